// Rings as circles, trees from left to right; above LIMIT ranks neighbours on one host are drawn as one.

function ranksOf(column) {
  return unpacked(column).map((rank) => (rank < 0 ? null : rank));
}

// What is drawn of a ring or a tree, unpacked when it is chosen.
function unpackedShape(kind, shape) {
  if (kind === "ring") return { ...shape, ranks: ranksOf(shape.ranks) };
  const [parents, children] = shape.links.map(ranksOf);
  return { ...shape, links: parents.map((parent, at) => [parent, children[at]]) };
}

function chosenShape() {
  const comm = data.comms[byId("comm").value];
  const [kind, at] = byId("shape").value.split(" ");
  return { comm, kind, shape: unpackedShape(kind, comm[`${kind}s`][at]) };
}

function edgesOf(comm) {
  if (!comm.known) {
    const [from, to, ways] = comm.edges.map(unpacked);
    comm.known = new Map(from.map((src, at) => {
      const [look, detail] = comm.ways[ways[at]];
      return [`${src} ${to[at]}`, { look, detail }];
    }));
  }
  return comm.known;
}

function way(comm, src, dst) {
  return edgesOf(comm).get(`${src} ${dst}`) || { look: "unknown", detail: null };
}

function listShapes() {
  const comm = data.comms[byId("comm").value];
  const options = ["ring", "tree"].flatMap((kind) => comm[`${kind}s`].map((shape, at) =>
    make("option", { value: `${kind} ${at}` }, `${kind}, ${shape.channels}`)));
  byId("shape").replaceChildren(...options);
  drawShape();
}

function drawShape() {
  const { comm, kind, shape } = chosenShape();
  byId("shape-words").textContent = comm.title + (shape.cut ? "; the log does not have this ring whole" : "");
  byId("drawing").replaceChildren(kind === "ring" ? ring(comm, shape) : tree(comm, shape));
  const found = [...looks.values()].filter((look) => byId("drawing").querySelector(`.hop-${look.key}`));
  byId("strokes").replaceChildren(...found.map((look) => make("li", {},
    draw("svg", { class: "stroke", viewBox: "0 0 44 8", "aria-hidden": "true" },
      draw("path", { class: `hop hop-${look.key}`, d: "M0 4h44", "stroke-dasharray": look.dashes || null })), ` ${look.words}`)));
  const named = (rank) => (rank === null ? "?" : `${rank}`);
  byId("order").textContent = kind === "ring"
    ? [...shape.ranks, shape.ranks[0]].map(named).join(" → ")
    : [...shape.links].sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((link) => link.map(named).join(" → ")).join(", ");
}

function picture(width, height, words, ...parts) {
  const tips = [...looks.keys()].map((key) => draw("marker",
    { id: `tip-${key}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" },
    draw("path", { class: `tip-${key}`, d: "M0 0 L8 4 L0 8 z" })));
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words },
    draw("defs", {}, ...tips), ...parts);
}

function hop(d, found, words) {
  const look = looks.get(found.look);
  return draw("path", { class: `hop hop-${look.key}`, d, "stroke-dasharray": look.dashes || null, "marker-end": `url(#tip-${look.key})` },
    draw("title", {}, `${words}: ${found.detail || "no connection line in the log"}${found.look === "gdr" ? ", GPUDirect RDMA" : ""}`));
}

function widthOf(words) {
  return Math.max(13, words.length * 4 + 5);
}

function wordsOf(stop) {
  const [first] = stop.ranks;
  return stop.ranks.length > 1 ? `${brief(stop.host)} ×${stop.ranks.length}` : first === null ? "?" : `${first}`;
}

function nodeOf(stop, x, y) {
  const words = wordsOf(stop);
  const half = widthOf(words);
  const gpu = stop.ranks.length === 1 && data.gpus[stop.ranks[0]];
  const title = `rank ${ranges(stop.ranks.filter((rank) => rank !== null)) || "?"} on ${stop.host}${gpu ? `, ${gpu}` : ""}`;
  return draw("g", {}, draw("rect", { class: "node", x: x - half, y: y - 12, width: 2 * half, height: 24, rx: 12 }, draw("title", {}, title)),
    draw("text", { x, y: y + 4 }, words));
}

// The stops of a ring: its ranks, or runs of ranks on one host where there are too many to draw each.
function stopsOf(ranks) {
  const stops = ranks.map((rank) => ({ ranks: [rank], host: hostName(rank), first: rank, last: rank }));
  if (ranks.length <= LIMIT) return stops;
  const joined = [];
  for (const stop of stops) {
    const before = joined[joined.length - 1];
    if (before && before.host === stop.host) {
      before.ranks.push(stop.first);
      before.last = stop.first;
    } else joined.push(stop);
  }
  return joined;
}

function ring(comm, shape) {
  const stops = stopsOf(shape.ranks);
  return stops.length > 16 ? rows(comm, shape, stops) : circle(comm, shape, stops);
}

// A ring too long for a circle: line by line, a host on each; above LIMIT ranks a line holds several hosts.
function rows(comm, shape, stops) {
  const folded = stops.length < shape.ranks.length || stops.every((stop) => stop.ranks.length > 1);
  const left = folded ? Math.max(...stops.map((stop) => widthOf(wordsOf(stop)))) : 40 + 6.5 * Math.max(...stops.map((stop) => shorter(stop.host).length));
  const step = folded ? 30 + 8 * Math.max(...stops.map((stop) => wordsOf(stop).length)) : 58;
  const most = Math.max(4, Math.min(16, Math.floor(1150 / step)));
  let column = -1, row = 0, last = 0;
  stops.forEach((stop, place) => {
    const other = !folded && place > 0 && stops[place - 1].host !== stop.host;
    column += 1;
    if (other || column === most) {
      row += 1;
      column = 0;
    }
    last = Math.max(last, column);
    stop.x = left + 24 + column * step;
    stop.y = 36 + row * 46;
    stop.heads = !folded && (place === 0 || other);
  });
  const right = left + 24 + last * step + 34;
  const parts = stops.map((stop, place) => {
    const next = stops[(place + 1) % stops.length];
    const reach = widthOf(wordsOf(stop)) + 2, other = widthOf(wordsOf(next)) + 2;
    const words = `${stop.last} → ${next.first}`;
    const back = place + 1 === stops.length ? 14 : (stop.y + next.y) / 2;
    const aside = place + 1 === stops.length ? right + 12 : right;
    const d = stop.y === next.y && next.x > stop.x
      ? `M${stop.x + reach} ${stop.y}H${next.x - other}`
      : `M${stop.x + reach} ${stop.y}H${aside}V${back}H${left - 12}V${next.y}H${next.x - other}`;
    return hop(d, way(comm, stop.last, next.first), words);
  });
  const names = stops.filter((stop) => stop.heads).map((stop) => {
    const name = draw("text", { class: "hostname", x: 0, y: stop.y + 4 }, shorter(stop.host));
    name.style.textAnchor = "start";
    return name;
  });
  return picture(right + 20, 62 + row * 46, `ring of ${comm.name}, ${shape.channels}`, ...parts,
    ...stops.map((stop) => nodeOf(stop, stop.x, stop.y)), ...names);
}

function circle(comm, shape, stops) {
  const radius = Math.max(70, (stops.length * 46) / (2 * Math.PI));
  const names = stops.map((stop) => shorter(stop.host).length);
  const room = radius + 60 + 7 * Math.max(...names);
  const high = radius + 64;
  const at = (place, distance) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * place) / stops.length;
    return [room + distance * Math.cos(angle), high + distance * Math.sin(angle)];
  };
  const parts = [];
  let odd = false;
  for (let start = 0; start < stops.length;) {
    let end = start;
    while (end + 1 < stops.length && stops[end + 1].host === stops[start].host) end += 1;
    const [x1, y1] = at(start - 0.4, radius + 26), [x2, y2] = at(end + 0.4, radius + 26);
    const far = end - start + 0.8 > stops.length / 2 ? 1 : 0;
    parts.push(draw("path", { class: `band${odd ? " odd" : ""}`, d: `M${x1} ${y1}A${radius + 26} ${radius + 26} 0 ${far} 1 ${x2} ${y2}` }));
    const [x, y] = at((start + end) / 2, radius + 46);
    const side = x > room + 20 ? "start" : x < room - 20 ? "end" : "middle";
    const name = draw("text", { class: "hostname", x, y: y + 4 }, shorter(stops[start].host));
    name.style.textAnchor = side;
    parts.push(name);
    odd = !odd;
    start = end + 1;
  }
  stops.forEach((stop, place) => {
    const next = stops[(place + 1) % stops.length];
    if (stops.length < 2) return;
    const [x1, y1] = at(place, radius), [x2, y2] = at(place + 1, radius);
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
    const cut = Math.min(16, length / 3);
    parts.push(hop(`M${x1 + dx * cut} ${y1 + dy * cut}L${x2 - dx * cut} ${y2 - dy * cut}`, way(comm, stop.last, next.first), `${stop.last} → ${next.first}`));
  });
  stops.forEach((stop, place) => parts.push(nodeOf(stop, ...at(place, radius))));
  return picture(2 * room, 2 * high, `ring of ${comm.name}, ${shape.channels}`, ...parts);
}

// Links between hosts only, where there are too many ranks to draw each.
function linksOf(shape) {
  const links = shape.links.filter(([parent, child]) => parent !== null && child !== null);
  const nodes = new Map();
  const folded = links.length >= LIMIT;
  const keyOf = (rank) => (folded ? hostName(rank) : rank);
  const add = (rank) => {
    const key = keyOf(rank);
    if (!nodes.has(key)) nodes.set(key, { ranks: [], host: hostName(rank), children: [], depth: 0 });
    if (!nodes.get(key).ranks.includes(rank)) nodes.get(key).ranks.push(rank);
    return nodes.get(key);
  };
  const below = new Set();
  for (const [parent, child] of links) {
    const from = add(parent), to = add(child);
    if (from === to || below.has(to)) continue;
    below.add(to);
    from.children.push({ to, src: parent, dst: child });
  }
  return [...nodes.values()].filter((stop) => !below.has(stop));
}

function tree(comm, shape) {
  const parts = [], nodes = [];
  let leaf = 0, deep = 0;
  const roots = linksOf(shape);
  const step = roots.some((stop) => stop.ranks.length > 1) ? 150 : 72;
  const settle = (stop, depth, above) => {
    stop.x = 60 + depth * step;
    deep = Math.max(deep, depth);
    if (!stop.children.length) {
      stop.y = 40 + leaf * 46;
      leaf += 1;
    }
    for (const { to, src, dst } of stop.children) {
      settle(to, depth + 1, stop);
      const middle = (stop.x + to.x) / 2;
      parts.push({ from: stop, to, middle, src, dst });
    }
    if (stop.children.length) stop.y = (stop.children[0].to.y + stop.children[stop.children.length - 1].to.y) / 2;
    nodes.push([stop, above]);
  };
  roots.forEach((root) => settle(root, 0, null));
  const reach = (stop) => widthOf(wordsOf(stop)) + 2;
  const lines = parts.map(({ from, to, middle, src, dst }) => hop(
    `M${from.x + reach(from)} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x - reach(to)} ${to.y}`, way(comm, src, dst), `${src} → ${dst}`));
  const drawn = nodes.map(([stop]) => nodeOf(stop, stop.x, stop.y));
  const names = nodes.filter(([stop, above]) => stop.ranks.length === 1 && (!above || above.host !== stop.host))
    .map(([stop]) => draw("text", { class: "hostname", x: stop.x, y: stop.y - 16 }, brief(stop.host)));
  return picture(140 + deep * step, 30 + leaf * 46, `tree of ${comm.name}, ${shape.channels}`, ...lines, ...drawn, ...names);
}

function startShapes() {
  if (!data.comms.length) {
    byId("shape-words").textContent = "The log shows no ring and no tree: NCCL prints them with NCCL_DEBUG=INFO, subsystem INIT or GRAPH.";
    return;
  }
  byId("comm").append(...data.comms.map((comm, at) => make("option", { value: at }, comm.title)));
  byId("choose").hidden = byId("words-box").hidden = false;
  byId("choose").addEventListener("submit", (event) => event.preventDefault());
  byId("comm").addEventListener("change", listShapes);
  byId("shape").addEventListener("change", drawShape);
  listShapes();
}

if (byId("drawing")) startShapes();
