// The page: loads the parts, then forbids every request, hands files to the worker and shows what comes back.
"use strict";

const LIMIT = 200 * 2 ** 20; // what a browser usually has memory for
const MOST_SHOWN = 1_000_000; // characters of text or JSON on the page; saved files hold all
const SMALLER =
  "Give it the lines of NCCL only: grep -a -E 'NCCL|Error|signal|exit' job.log > small.log. Or use the command, which " +
  "is one file without dependencies where this page was built: python3 nccl-inspect.pyz job.log";
const ENDLESS = -1; // nobody knows how long it takes
const WORDS = { html: "report.html", text: "report.txt", json: "report.json" };
const TYPES = { html: "text/html", text: "text/plain", json: "application/json" };
const BUILD = JSON.parse(document.getElementById("build").textContent);
const $ = (id) => document.getElementById(id);
const megabytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MB`;

let parts; // name → Blob
let worker, files = null, reports = null, form = "html", waiting = null, isReady = false, isBusy = false;

// --- what the page says --------------------------------------------------------------------------------------------

function say(text, share = null) {
  $("status").textContent = text;
  $("bar").hidden = share === null;
  if (share === ENDLESS) $("bar").removeAttribute("value");
  else if (share !== null) $("bar").value = share;
}

function complain(text) {
  $("error").textContent = text;
  $("error").hidden = !text;
}

function busy(is) {
  isBusy = is;
  $("cancel").hidden = !is;
  for (const id of ["choose", "choose-folder", "sample", "judge-text", "save", "anonymize"]) $(id).disabled = is;
}

// --- the parts, loaded once ----------------------------------------------------------------------------------------

function embedded(name) {
  const element = $(`part-${name}`);
  if (!element) return null;
  const text = atob(element.textContent.trim());
  element.remove();
  return new Blob([Uint8Array.from(text, (character) => character.charCodeAt(0))]);
}

async function fetched(part, told) {
  const response = await fetch(`parts/${part.file}`);
  if (!response.ok) throw new Error(`${part.file}: ${response.status} ${response.statusText}`);
  const pieces = [];
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    told(value.length);
  }
  const blob = new Blob(pieces);
  await kept(part, blob);
  return blob;
}

// For the next time, also without network; a browser that keeps nothing loads anew.
async function kept(part, blob) {
  try {
    const cache = await caches.open(BUILD.name);
    const address = `parts/${part.file}`;
    if (!(await cache.match(address))) await cache.put(address, new Response(blob));
  } catch { /* no cache here: an address without HTTPS, private windows, a full disk */ }
}

async function offline() {
  if (!BUILD.offline || !navigator.serviceWorker) return;
  try {
    await navigator.serviceWorker.register("offline.js");
    await navigator.serviceWorker.ready;
  } catch { /* works while the server can be reached */ }
}

async function load() {
  const total = BUILD.parts.reduce((sum, part) => sum + part.size, 0);
  let done = 0;
  const told = (size) => say(`Loading, ${megabytes((done += size))} of ${megabytes(total)}`, done / total);
  told(0);
  if (BUILD.offline && location.protocol === "file:") throw new Error("a folder");
  const loaded = BUILD.parts.map(async (part) => [part.name, embedded(part.name) ?? (await fetched(part, told))]);
  parts = Object.fromEntries(await Promise.all(loaded));
  await offline();
  forbid();
}

// From here on nothing can be sent, by the page or its worker: the browser refuses.
function forbid() {
  const policy = document.createElement("meta");
  policy.httpEquiv = "Content-Security-Policy";
  policy.content = "connect-src 'none'";
  document.head.append(policy);
}

// --- the worker ----------------------------------------------------------------------------------------------------

async function begin() {
  isReady = false;
  const text = await new Response(parts["worker.js"].stream().pipeThrough(new DecompressionStream("gzip"))).text();
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  worker = new Worker(address);
  worker.onmessage = ({ data }) => ANSWERS[data.kind](data);
  worker.onerror = (event) => ANSWERS.failed({ task: "start", error: event.message || "the worker did not start" });
  say("Starting Python", ENDLESS);
  worker.postMessage({ task: "start", parts });
}

const ANSWERS = {
  ready() {
    isReady = true;
    document.documentElement.dataset.state = "ready";
    if (waiting) send(waiting);
    else say("Ready. No request leaves this page.");
  },
  progress({ stage, done, total }) {
    if (total) say(`${stage}, ${Math.floor((100 * done) / total)} %`, done / total);
    else say(stage, ENDLESS);
  },
  judged(answer) {
    busy(false);
    say("");
    if (answer.error) return complain(answer.error);
    show(answer);
  },
  anonymized({ error, data, name }) {
    busy(false);
    say(error ? "" : "Look over the copy before you pass it on: what your own program prints may name things.");
    if (error) return complain(error);
    save(new Blob([data]), name);
  },
  failed({ task, error }) {
    busy(false);
    say("");
    complain(`The browser could not do this, probably for lack of memory: ${error}. ${SMALLER}`);
    if (task === "start") closed();
    else again();
  },
};

function send(task) {
  waiting = null;
  say("Working", ENDLESS);
  worker.postMessage(task);
}

function ask(task) {
  complain("");
  busy(true);
  if (isReady) send(task);
  else waiting = task;
}

// A worker cannot be interrupted: it ends, and another one begins.
function again() {
  worker.terminate();
  begin();
}

function cancel() {
  busy(false);
  waiting = null;
  if (isReady) again();
}

function closed() {
  for (const control of document.querySelectorAll("#drop button")) control.disabled = true;
}

// --- what is given -------------------------------------------------------------------------------------------------

function judge(given) {
  if (!given.length || isBusy) return;
  const size = given.reduce((sum, { data }) => sum + data.size, 0);
  $("result").hidden = true;
  if (size > LIMIT) {
    const what = given.length > 1 ? `These ${given.length} files are` : `${given[0].path} is`;
    return complain(`${what} ${megabytes(size)}; this page reads up to ${LIMIT >> 20} MB. ${SMALLER}`);
  }
  files = label(given);
  ask({ task: "judge", files: together(given), limit: LIMIT });
}

function label(given) {
  return given.length > 1 ? `${given.length} files` : given[0].path;
}

// One file, or one folder: loose files are put into one.
function together(given) {
  const roots = new Set(given.map(({ path }) => path.split("/")[0]));
  return roots.size < 2 ? given : given.map(({ path, data }) => ({ path: `logs/${path}`, data }));
}

const inside = (path) => path.split("/").filter((part) => part && part !== "." && part !== "..").join("/") || "job.log";
const listed = (list) => [...list].map((data) => ({ path: inside(data.webkitRelativePath || data.name), data }));

async function below(entry) {
  if (entry.isFile) {
    const data = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ path: inside(entry.fullPath), data }];
  }
  const found = [];
  for (const reader = entry.createReader(); ; ) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return found;
    for (const one of some) found.push(...(await below(one)));
  }
}

async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const loose = listed(transfer.files); // before the first await: it is empty afterwards
  const text = transfer.getData("text/plain");
  if (entries.length) return (await Promise.all(entries.map(below))).flat();
  return loose.length || !text ? loose : [{ path: "pasted.log", data: new Blob([text]) }];
}

// --- what comes out ------------------------------------------------------------------------------------------------

function show(answer) {
  reports = answer;
  $("version").textContent = answer.version;
  $("verdict").className = answer.verdict;
  const word = document.createElement("span");
  word.className = "word";
  word.textContent = answer.verdict.toUpperCase();
  const name = document.createElement("span");
  name.className = "files";
  name.textContent = files;
  $("verdict").replaceChildren(word, " ", name);
  $("problems").replaceChildren(...answer.problems.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  $("problems").hidden = !answer.problems.length;
  $("report").srcdoc = answer.html;
  for (const [id, text] of [["text-report", answer.text], ["json", answer.json]]) {
    const cut = text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}\n… the saved file holds all ${megabytes(text.length)}` : text;
    $(id).firstElementChild.textContent = cut;
  }
  $("result").hidden = false;
  $("verdict").focus();
}

function choose(wanted) {
  form = wanted;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const is = tab.id === `tab-${wanted}`;
    tab.ariaSelected = String(is);
    tab.tabIndex = is ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !is;
  }
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// --- what people do ------------------------------------------------------------------------------------------------

for (const [button, input] of [["choose", "files"], ["choose-folder", "folder"]]) {
  $(button).onclick = () => $(input).click();
  $(input).onchange = ({ target }) => {
    judge(listed(target.files));
    target.value = "";
  };
}
$("sample").onclick = () => {
  $("result").hidden = true;
  files = "sample.log";
  ask({ task: "judge", sample: true, limit: LIMIT });
};
$("judge-text").onclick = () => {
  const text = $("text").value;
  if (text.trim()) judge([{ path: "pasted.log", data: new Blob([text]) }]);
  else complain("There is no text to judge: paste lines of the log first.");
};
$("cancel").onclick = cancel;
$("save").onclick = () => save(new Blob([reports[form]], { type: TYPES[form] }), WORDS[form]);
$("anonymize").onclick = () => ask({ task: "anonymize" });

const TABS = [...document.querySelectorAll("[role=tab]")];
for (const [place, tab] of TABS.entries()) {
  tab.onclick = () => choose(tab.id.slice(4));
  tab.onkeydown = ({ key }) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (!step) return;
    const next = TABS[(place + step + TABS.length) % TABS.length];
    next.focus();
    next.click();
  };
}

document.ondragover = (event) => {
  event.preventDefault();
  $("drop").classList.add("over");
};
document.ondragleave = () => $("drop").classList.remove("over");
document.ondrop = async (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  judge(await dropped(event.dataTransfer));
};
document.onpaste = (event) => {
  if (event.target.closest?.("textarea")) return;
  const data = event.clipboardData;
  const text = data.getData("text/plain");
  if (data.files.length) judge(listed(data.files));
  else if (text.trim()) judge([{ path: "pasted.log", data: new Blob([text]) }]);
};

load().then(begin).catch((error) => {
  say("");
  closed();
  complain(
    location.protocol === "file:"
      ? "A browser does not load the parts of this page from a folder. Open nccl-inspect-try.html, which holds all in " +
        "one file, or serve the folder: python3 -m http.server"
      : `The page could not be loaded: ${error.message}. Reload it.`,
  );
});
