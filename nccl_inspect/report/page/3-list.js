// Search and filter over paths, and their list; what does not fit is dimmed in the matrix.

const STEP = 200;
const HEADS = ["from", "to", "from host", "to host", "scope", "path", "GDR", "NIC", "channels", "verdict", "line"];
let shown = STEP;

function fits(path, words, chosen) {
  const kind = path.kind;
  for (const [name, value] of chosen) if (`${kind[name] === undefined ? "-" : kind[name]}` !== value) return false;
  return words.every((word) => {
    const pair = /^(\d+)-?>(\d+)$/.exec(word);
    if (pair) return path.src === Number(pair[1]) && path.dst === Number(pair[2]);
    if (/^\d+$/.test(word)) return path.src === Number(word) || path.dst === Number(word);
    return textOf(path).includes(word);
  });
}

function textOf(path) {
  if (!path.text) {
    const kind = path.kind;
    const parts = [hostName(path.src), hostName(path.dst), kind.detail, kind.scope, kind.nic, kind.verdict, kind.link,
      ...(kind.rules || []), ...(kind.comms || [])];
    path.text = parts.filter(Boolean).join(" ").toLowerCase();
  }
  return path.text;
}

function apply() {
  const words = byId("words").value.toLowerCase().replace(/(\d)\s*-?>\s*(\d)/g, "$1->$2").split(/\s+/).filter(Boolean);
  const chosen = [["scope", "scope"], ["transport", "transport"], ["gdr", "gdr"], ["verdict", "state"]]
    .map(([name, id]) => [name, byId(id).value]).filter(([, value]) => value);
  for (const path of paths) path.fits = fits(path, words, chosen);
  const number = paths.filter((path) => path.fits).length;
  byId("found").textContent = number === paths.length ? "" : `${number.toLocaleString("en")} of ${counted(paths.length, "path")}`;
  shown = STEP;
  dim();
  list();
}

function list() {
  if (!byId("list-box").open) return;
  const some = paths.filter((path) => path.fits !== false);
  byId("list").tBodies[0].replaceChildren(...some.slice(0, shown).map((path) => {
    const line = lineOf(path);
    const kind = path.kind;
    const values = [path.src, path.dst, hostName(path.src), hostName(path.dst), kind.scope, kind.detail, kind.gdr || "–",
      kind.nic || "–", kind.channels || "–", (kind.verdict === "fallback" ? "! " : "") + kind.verdict];
    return make("tr", { class: kind.verdict }, ...values.map((value) => make("td", {}, `${value}`)),
      make("td", { class: "place", title: line && line.text }, line ? line.place : ""));
  }));
  byId("more").hidden = some.length <= shown;
  byId("more").textContent = `${(some.length - shown).toLocaleString("en")} more`;
}

function startList() {
  for (const [name, id] of [["scope", "scope"], ["transport", "transport"], ["gdr", "gdr"], ["verdict", "state"]]) {
    const values = [...new Set(data.kinds.map((kind) => (kind[name] === undefined ? "-" : kind[name])))].sort();
    byId(id).append(...values.map((value) => make("option", { value }, value === "-" ? "does not apply" : value)));
  }
  byId("list").tHead.append(make("tr", {}, ...HEADS.map((head) => make("th", { scope: "col" }, head))));
  const form = byId("filter");
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(apply, 0));
  byId("list-box").addEventListener("toggle", list);
  byId("more").addEventListener("click", () => { shown += 5 * STEP; list(); });
}

if (byId("list")) startList();
