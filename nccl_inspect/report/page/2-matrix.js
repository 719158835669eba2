// The matrix: rank by rank up to LIMIT ranks, else host by host, else groups of hosts; a folded cell opens to its ranks.

const LIMIT = 128;
const order = { fallback: 0, unknown: 1, ok: 2 };
const slow = ["p2p", "collnet", "gdr", "shm", "unknown", "net"];
let views = [];
let cells = new Map();

function rankGroups(wanted) {
  const groups = [];
  data.hosts.forEach(([, ranks], host) => {
    for (const rank of ranks) if (wanted.has(rank)) groups.push({ label: `${rank}`, host, ranks: [rank] });
  });
  return groups;
}

function groupsOf(wanted) {
  if (wanted.size <= LIMIT) return { groups: rankGroups(wanted), unit: "rank" };
  const hosts = data.hosts
    .map(([name, ranks], host) => ({ label: name, host, ranks: ranks.filter((rank) => wanted.has(rank)) }))
    .filter((group) => group.ranks.length);
  if (hosts.length <= LIMIT) return { groups: hosts, unit: "host" };
  const size = Math.ceil(hosts.length / LIMIT);
  const groups = [];
  for (let at = 0; at < hosts.length; at += size) {
    const some = hosts.slice(at, at + size);
    groups.push({ label: `${some[0].label} … (${some.length})`, host: at, ranks: some.flatMap((group) => group.ranks) });
  }
  return { groups, unit: "group of hosts" };
}

function show(wanted, words) {
  const { groups, unit } = groupsOf(wanted);
  views.push({ wanted, words });
  const place = new Map();
  groups.forEach((group, at) => group.ranks.forEach((rank) => place.set(rank, at)));
  cells = new Map();
  paths.forEach((path) => {
    const row = place.get(path.src), column = place.get(path.dst);
    if (row === undefined || column === undefined) return;
    const key = row * groups.length + column;
    if (cells.has(key)) cells.get(key).paths.push(path);
    else cells.set(key, { row, column, paths: [path], groups, unit });
  });
  byId("matrix").replaceChildren(table(groups, unit));
  crumbs(groups.length, unit);
  dim();
  const first = worstCell();
  if (first) {
    first.box.tabIndex = 0;
    tell(first);
  }
}

function crumbs(number, unit) {
  const last = views[views.length - 1];
  const parts = [];
  if (views.length > 1) {
    const back = make("button", { type: "button" }, `◂ ${views[views.length - 2].words}`);
    back.addEventListener("click", () => {
      views.pop();
      const before = views.pop();
      show(before.wanted, before.words);
    });
    parts.push(back);
  }
  const nouns = unit === "group of hosts" ? "groups of hosts" : `${unit}s`;
  parts.push(make("span", {}, `${last.words}: ${number} × ${number} ${nouns}`));
  if (unit !== "rank") parts.push(make("span", {}, "(Enter or a click opens a cell)"));
  if (common.length > 3) parts.push(make("span", {}, `… = ${common}`));
  byId("crumbs").replaceChildren(...parts);
}

// Where lines are lower than letters, every eighth has a label, and each that is marked; the others have a title.
const LABEL_EACH = 8;

function label(words, group, at, side) {
  if (side >= 12) return words;
  return at % LABEL_EACH && !markOf(group) ? "" : make("span", {}, words);
}

// As large as the room beside the chosen path allows, from 8 to 34 pixels.
function sideFor(number) {
  const room = Math.max(document.querySelector(".beside").clientWidth - 420, 300);
  return Math.min(Math.max(Math.floor(room / number), 8), 34);
}

function table(groups, unit) {
  const byRank = unit === "rank";
  const side = sideFor(groups.length);
  const short = byRank || groups.every((group) => brief(group.label).length < 6);
  const grid = make("table", {
    class: `grid ${side < 12 ? "tiny" : side < 22 ? "small" : ""}`, role: "grid", "aria-label": `paths, sender by receiver, by ${unit}`,
  });
  grid.style.setProperty("--side", `${side}px`);
  const starts = groups.map((group, at) => at > 0 && byRank && group.host !== groups[at - 1].host);
  const head = make("tr", {}, make("th", { colspan: byRank ? 2 : 1 }, "from \\ to"));
  groups.forEach((group, at) => head.append(
    make("th", { scope: "col", class: `rank${markOf(group)}${starts[at] ? " edge-left" : ""}`, title: titleOf(group) },
      label(byRank ? group.label : short ? brief(group.label) : `${at}`, group, at, side)),
  ));
  grid.append(make("thead", {}, byRank ? hostRow(groups, side) : null, head));
  const body = make("tbody", {});
  groups.forEach((group, row) => {
    const line = make("tr", { class: starts[row] ? "edge-top" : null });
    if (byRank && (row === 0 || starts[row])) {
      const same = groups.filter((other) => other.host === group.host).length;
      const name = data.hosts[group.host][0];
      line.append(make("th", { scope: "rowgroup", rowspan: same, class: `host${starts[row] ? " edge-top" : ""}`, title: name }, side < 22 ? brief(name) : shorter(name)));
    }
    line.append(make("th", { scope: "row", class: `rank${markOf(group)}${starts[row] ? " edge-top" : ""}`, title: titleOf(group) },
      label(byRank ? group.label : short ? brief(group.label) : `${row} ${brief(group.label)}`, group, row, side)));
    groups.forEach((other, column) => {
      const cell = cells.get(row * groups.length + column);
      const edges = `${starts[column] ? " edge-left" : ""}${starts[row] ? " edge-top" : ""}`;
      line.append(cell ? drawCell(cell, edges) : make("td", { class: (row === column ? "none" : "") + edges }));
    });
    body.append(line);
  });
  grid.append(body);
  return grid;
}

function hostRow(groups, side) {
  const row = make("tr", {}, make("td", { colspan: 2, class: "corner" }));
  for (let at = 0; at < groups.length;) {
    const host = groups[at].host;
    let end = at;
    while (end < groups.length && groups[end].host === host) end += 1;
    const name = data.hosts[host][0];
    row.append(make("th", { scope: "colgroup", colspan: end - at, class: `host${at ? " edge-left" : ""}`, title: name }, name.length * 6.5 < (end - at) * side ? name : brief(name)));
    at = end;
  }
  return row;
}

// What all names begin with says nothing in a head of the matrix: "train-node-12" is "…12".
const prefix = data.hosts.length < 2 ? 0 : data.hosts.reduce((length, [name]) => {
  let at = 0;
  while (at < length && name[at] === data.hosts[0][0][at]) at += 1;
  return at;
}, data.hosts[0][0].length);
const common = data.hosts.length ? data.hosts[0][0].slice(0, prefix).replace(/[^-._]*$/, "") : "";

function brief(name) {
  return common.length > 3 && name.startsWith(common) ? `…${name.slice(common.length)}` : shorter(name);
}

// The end of a name tells pods of one job apart.
function shorter(name) {
  return name.length > 22 ? `…${name.slice(-21)}` : name;
}

function titleOf(group) {
  const gpu = group.ranks.length === 1 && data.gpus[group.ranks[0]];
  const words = gpu ? `rank ${group.label}, ${gpu}` : `${group.label}: ranks ${ranges(group.ranks)}`;
  const named = culpritsOf(group);
  return named.length ? `${words}; bad paths have in common: ${named.join(", ")}` : words;
}

// What the bad paths have in common is marked in the heads of its rows and columns.
const culprits = data.culprits.map(([words, ranks]) => [words, new Set(ranks)]);

function culpritsOf(group) {
  return culprits.filter(([, ranks]) => group.ranks.some((rank) => ranks.has(rank))).map(([words]) => words);
}

function markOf(group) {
  return culpritsOf(group).length ? " culprit" : "";
}

// Of several paths the cell shows the worst.
function worst(some) {
  return some.reduce((a, b) => {
    const states = order[a.kind.verdict] - order[b.kind.verdict];
    return (states || slow.indexOf(b.kind.look) - slow.indexOf(a.kind.look)) <= 0 ? a : b;
  });
}

// Where a reader wants to look first.
function worstCell() {
  const all = [...cells.values()];
  if (!all.length) return null;
  const path = worst(all.map((cell) => worst(cell.paths)));
  return all.find((cell) => cell.paths.includes(path));
}

function drawCell(cell, edges) {
  const path = worst(cell.paths);
  const state = { fallback: " fallback", unknown: " doubt" }[path.kind.verdict] || "";
  const mark = { fallback: "!", unknown: "?" }[path.kind.verdict] || "";
  const letter = looks.get(path.kind.look).letter + (path.kind.gdr === "partial" ? "g" : "");
  const folded = cell.unit !== "rank";
  const words = folded
    ? `${cell.groups[cell.row].label} to ${cell.groups[cell.column].label}: ${counted(cell.paths.length, "pair")}, worst ${path.kind.detail}, ${path.kind.verdict}`
    : cell.paths.map(inWords).join("; ");
  const box = make("td", { class: `look-${path.kind.look}${state}${edges}`, tabindex: -1, "aria-label": words }, letter + mark);
  box.dataset.key = cell.row * cell.groups.length + cell.column;
  cell.box = box;
  return box;
}

function cellAt(target) {
  const box = target.closest ? target.closest("td[data-key]") : null;
  return box ? cells.get(Number(box.dataset.key)) : null;
}

function focusOn(cell) {
  const grid = byId("matrix");
  grid.querySelectorAll('td[tabindex="0"]').forEach((box) => { box.tabIndex = -1; });
  cell.box.tabIndex = 0;
  cell.box.focus();
}

// The nearest filled cell in a direction; straight on if there is one, else in the next row or column that has one.
function neighbour(cell, key) {
  const all = [...cells.values()];
  const along = key === "ArrowLeft" || key === "ArrowRight" ? ["row", "column"] : ["column", "row"];
  const sign = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
  const [same, moving] = along;
  const ahead = (other) => sign * (other[moving] - cell[moving]);
  const straight = all.filter((other) => other[same] === cell[same] && ahead(other) > 0);
  const some = straight.length ? straight : all.filter((other) => ahead(other) > 0);
  const away = (other) => ahead(other) * 10000 + Math.abs(other[same] - cell[same]);
  return some.reduce((best, other) => (!best || away(other) < away(best) ? other : best), null);
}

function inRow(cell, last) {
  const row = [...cells.values()].filter((other) => other.row === cell.row);
  row.sort((a, b) => a.column - b.column);
  return last ? row[row.length - 1] : row[0];
}

function open(cell) {
  if (cell.unit === "rank") return;
  const a = cell.groups[cell.row], b = cell.groups[cell.column];
  const words = a === b ? a.label : `${a.label} and ${b.label}`;
  show(new Set([...a.ranks, ...b.ranks]), words);
  const first = byId("matrix").querySelector('td[tabindex="0"]');
  if (first) first.focus();
}

function tell(cell) {
  const some = cell.paths.filter((path) => path.fits !== false)
    .sort((a, b) => order[a.kind.verdict] - order[b.kind.verdict]);
  const rest = some.length - 3;
  const parts = cell.unit === "rank" ? [] : [make("h3", {}, cell.box.getAttribute("aria-label")), kindsOf(some)];
  byId("detail").replaceChildren(...parts, ...some.slice(0, 3).map(describe),
    ...(rest > 0 ? [make("p", { class: "hint" }, `and ${rest} more: open the cell, or see the list`)] : []));
}

function kindsOf(some) {
  const numbers = new Map();
  for (const path of some) {
    const words = `${path.kind.detail}${path.kind.gdr ? `, GDR ${path.kind.gdr}` : ""}, ${path.kind.verdict}`;
    numbers.set(words, (numbers.get(words) || 0) + 1);
  }
  return make("ul", {}, ...[...numbers].map(([words, number]) => make("li", {}, `${number} × ${words}`)));
}

function describe(path) {
  const kind = path.kind;
  const line = lineOf(path);
  const gpu = (rank) => (data.gpus[rank] ? `, ${data.gpus[rank]}` : "");
  const rows = [
    ["from", `rank ${path.src} on ${hostName(path.src)}${gpu(path.src)}`],
    ["to", `rank ${path.dst} on ${hostName(path.dst)}${gpu(path.dst)}`],
    ["path", kind.detail + (kind.link ? ` over ${kind.link}` : "") + (kind.shared ? ", shared connection" : "")],
    ["scope", kind.scope],
    ["GDR", kind.gdr],
    ["NIC", kind.nic],
    ["PXN", kind.pxn === undefined ? null : `by rank ${kind.pxn}`],
    ["channels", kind.channels],
    ["used by", (kind.comms || []).join(", ")],
    ["also", (kind.also || []).join("; ")],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
  const list = make("dl", {}, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, `${value}`)]));
  if (kind.rules) {
    const links = kind.rules.flatMap((rule, at) => [at ? ", " : "",
      data.rules.includes(rule) ? make("a", { href: `#rule-${rule}` }, rule) : rule]);
    list.append(make("dt", {}, "found"), make("dd", {}, ...links));
  }
  if (kind.guessed) list.append(make("dt", {}, "sure"), make("dd", {}, "no: only the order of use tells the communicator"));
  const title = `${path.src} → ${path.dst}: ${kind.verdict}`;
  return make("div", { class: "path" }, make("h3", {}, title), list,
    line && make("ul", { class: "evidence" }, make("li", {}, make("span", { class: "place" }, line.place), " ", make("code", {}, line.text))));
}

function dim() {
  for (const cell of cells.values()) cell.box.classList.toggle("dim", cell.paths.every((path) => path.fits === false));
}

function startMatrix() {
  const grid = byId("matrix");
  grid.addEventListener("mouseover", (event) => { const cell = cellAt(event.target); if (cell) tell(cell); });
  grid.addEventListener("mouseleave", () => { const cell = cellAt(document.activeElement); if (cell) tell(cell); });
  grid.addEventListener("focusin", (event) => { const cell = cellAt(event.target); if (cell) tell(cell); });
  grid.addEventListener("click", (event) => {
    const cell = cellAt(event.target);
    if (!cell) return;
    focusOn(cell);
    open(cell);
  });
  grid.addEventListener("keydown", (event) => {
    const cell = cellAt(event.target);
    if (!cell) return;
    let next = null;
    if (event.key.startsWith("Arrow")) next = neighbour(cell, event.key);
    else if (event.key === "Home" || event.key === "End") next = inRow(cell, event.key === "End");
    else if (event.key === "Enter" || event.key === " ") open(cell);
    else return;
    event.preventDefault();
    if (next) focusOn(next);
  });
  show(new Set(paths.flatMap((path) => [path.src, path.dst])), "all");
}

if (byId("matrix")) startMatrix();
