// Text from the log is only ever set as textContent or as an attribute; the page's policy forbids anything else.

const data = JSON.parse(document.getElementById("data").textContent);
const looks = new Map(data.looks.map(([key, letter, words, dashes]) => [key, { key, letter, words, dashes }]));

function byId(id) {
  return document.getElementById(id);
}

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  return filled(element, attributes, children);
}

function draw(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function counted(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

// [0, 1, 2, 5] as "0-2,5", and five and more with one step between them as "0-32:8".
function ranges(numbers) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const runs = [];
  for (const number of sorted) {
    const last = runs[runs.length - 1];
    if (last && last[1] === number - 1) last[1] = number;
    else runs.push([number, number]);
  }
  const parts = [];
  for (let at = 0; at < runs.length;) {
    const step = at + 1 < runs.length ? runs[at + 1][0] - runs[at][0] : 0;
    let end = at;
    while (end < runs.length && runs[end][0] === runs[end][1] && runs[end][0] === runs[at][0] + (end - at) * step) end += 1;
    const [first, last] = runs[at];
    if (step && end - at >= 5) parts.push(`${first}-${runs[end - 1][0]}:${step}`);
    else parts.push(first === last ? `${first}` : `${first}-${last}`);
    at = step && end - at >= 5 ? end : at + 1;
  }
  return parts.join(",");
}

const hostOf = new Map();
data.hosts.forEach(([name, ranks], place) => ranks.forEach((rank) => hostOf.set(rank, place)));

function hostName(rank) {
  return hostOf.has(rank) ? data.hosts[hostOf.get(rank)][0] : "?";
}

// Paths as they are used: columns hold what differs, kinds what many have in common.
for (const kind of data.kinds) if (kind.comms) kind.comms = kind.comms.map((comm) => data.kindComms[comm]);
const columns = Object.fromEntries(Object.entries(data.paths).map(([name, column]) => [name, unpacked(column)]));
const paths = columns.src.map((src, at) => ({ at, src, dst: columns.dst[at], kind: data.kinds[columns.kind[at]] }));
const headOf = textsOf(data.heads);
const messageOf = textsOf(data.messages);

function lineOf(path) {
  const source = data.sources[columns.source[path.at]];
  if (source === null) return null;
  return { place: `${source}:${columns.line[path.at]}`, text: headOf(path.at) + messageOf(path.at) };
}

function inWords(path) {
  const gdr = path.kind.gdr ? `, GDR ${path.kind.gdr}` : "";
  return `rank ${path.src} to rank ${path.dst}: ${path.kind.detail}${gdr}, ${path.kind.verdict}`;
}

// --- theme, printing, copying ---

const isDark = window.matchMedia("(prefers-color-scheme: dark)");

function nameTheme() {
  const theme = document.documentElement.dataset.theme || (isDark.matches ? "dark" : "light");
  byId("theme").textContent = theme === "dark" ? "light" : "dark";
  byId("theme").setAttribute("aria-label", `switch to ${theme === "dark" ? "light" : "dark"} colours`);
}

byId("theme").hidden = false;
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = byId("theme").textContent;
  nameTheme();
});
isDark.addEventListener("change", nameTheme);
nameTheme();

let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details.under:not([open]), #sources details:not([open]), #network details:not([open]), #hosts details:not([open])")];
  opened.forEach((box) => { box.open = true; });
});
window.addEventListener("afterprint", () => opened.forEach((box) => { box.open = false; }));

for (const code of document.querySelectorAll(".fix code")) {
  if (!navigator.clipboard) break;
  const button = make("button", { type: "button" }, "copy");
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(code.textContent).then(() => { button.textContent = "copied"; }, () => {});
  });
  code.after(button);
}

// A link to a folded finding opens it.
function unfold() {
  const target = location.hash.startsWith("#rule-") ? byId(location.hash.slice(1)) : null;
  if (target && target.tagName === "DETAILS") target.open = true;
}
window.addEventListener("hashchange", unfold);
unfold();
