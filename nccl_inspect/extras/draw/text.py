"""Communicators, rings and trees for people: rings in their order, trees indented."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from nccl_inspect.extras.draw import bundles, fewest_crossings, host_of, tree_shape
from nccl_inspect.model.communicators.rings_and_trees import crossings, is_closed
from nccl_inspect.model.inventory import Stage
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.report import Style, picture
from nccl_inspect.report.words import block, paint
from nccl_inspect.topology import Topology
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import count, ranges

DRAWS = False
_MAX_FACTS = 5


_Links = dict[tuple[str, int, int], picture.DrawnLink]  # links by their kind and ends
_Fact = tuple[str | None, str]  # a label and what is so; without a label, a line as it is


def render(views: Sequence[picture.View], machines: Sequence[Topology], style: Style) -> str:
    """Return a paragraph per communicator, then the known machines."""
    parts = [(picture.view_title(view), _view(view, max(style.width, 40))) for view in views]
    for machine in machines:
        sizes = f"{count(machine.gpus, 'GPU')}, {count(len(machine.nics), 'NIC')}"
        parts.append((f"{escape_controls(machine.name)}: {sizes}", _machine(machine)))
    paragraphs = [] if views else ["no communicator and no connection in this log"]
    for title, facts in parts:
        lines = [paint(line, "bold", style) for line in block("", title, style, 0, 0)]
        for label, text in facts:
            lines += [text] if label is None else block(label, text, style)
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs) + "\n"


def _view(view: picture.View, width: int) -> Iterator[_Fact]:
    yield from _describe_communicator(view.comm)
    for host, ranks in view.hosts.items():
        gpus = {} if view.is_folded else {rank: picture.gpu_words(view, rank).partition(" busId")[0] for rank in ranks}
        named = ", ".join(f"{rank} ({gpu})" if gpu else str(rank) for rank, gpu in gpus.items())
        yield "host", f"{escape_controls(host)}: rank{'s' * (len(ranks) > 1)} {named or ranges(ranks)}"
    by_pair = {(link.kind, link.src, link.dst): link for link in view.links}
    if view.is_folded:
        for kind in view.kinds:  # the links between hosts, not ranks
            for src, dst, look, links in bundles(view, kind):
                where = "inside" if src == dst else f"-> {escape_controls(dst)}"
                yield kind, f"{escape_controls(src)} {where}: {count(links, 'link')}, {look.words}"
    else:
        for ring in view.rings:
            yield from _ring(view, ring, by_pair)
        for tree in view.trees:
            shape = tree_shape(tree.links)
            words = f"depth {shape.depth}, at most {shape.children} below a rank"
            yield "tree", f"{picture.channel_words(tree.channels)}: {words}"
            yield from ((None, line) for line in _tree(tree, by_pair, width))
        for link in view.links:
            if link.kind == "connection":
                yield "link", f"{link.src} -> {link.dst} {link.way}, {picture.channel_words(link.channels)}"
    if not view.links:
        yield "links", "none in this log (NCCL_DEBUG=INFO of rank 0 shows rings)"


def _describe_communicator(info: CommunicatorInfo) -> Iterator[_Fact]:
    if info.parent:
        color = "" if info.color is None else f", color {info.color}"
        yield "from", escape_controls(f"split of {info.parent}{color}")
    if info.group:
        yield "use", escape_controls(f"called {info.group} by the program")
    elif info.parallelism:
        yield "use", f"likely {info.parallelism.kind}: {info.parallelism.evidence}"
    if info.algorithms:
        yield "has", ", ".join(info.algorithms)
    if timed := [stage for stage in info.lifetime if stage.first or stage.seconds is not None]:
        yield "life", "; ".join(map(_stage, timed))
    yield from (("odd", words) for words in info.inconsistent[:_MAX_FACTS])


def _stage(stage: Stage) -> str:
    span, last = stage.first or "", stage.last or ""
    if last != span:
        day = span.rpartition(" ")[0]
        span += f" to {last.removeprefix(f'{day} ') if day else last}"
    took = "" if stage.seconds is None else f" ({stage.seconds:.2f} s at most)"
    return escape_controls(" ".join(filter(None, (stage.name, span))) + took)


def _ring(view: picture.View, ring: picture.DrawnShape, by_pair: _Links) -> Iterator[_Fact]:
    order = [*ring.ranks, *ring.ranks[:1]]
    hops: Counter[str] = Counter(
        link.way if (link := by_pair.get(("ring", src, dst))) else picture.NO_LINE
        for src, dst in pairwise(order)
        if src is not None and dst is not None and src != dst
    )
    chain = " > ".join("?" if rank is None else str(rank) for rank in order)
    yield "ring", f"{picture.channel_words(ring.channels)}: {chain}"
    words = [f"{number} x {way}" for way, number in hops.most_common()]
    hosts = host_of(view.hosts, picture.UNKNOWN_HOST)
    if not is_closed(ring.ranks, view.comm.nranks):
        words.append("not whole in this log")
    elif fewest := fewest_crossings(ring.ranks, hosts):
        left = crossings(ring.ranks, hosts)
        words += [] if left is None else [f"leaves a host {count(left, 'time')} ({fewest} at least)"]
    yield "", ", ".join(words)


def _tree(tree: picture.DrawnShape, by_pair: _Links, width: int) -> Iterator[str]:
    children = group_values((parent, child) for parent, child in tree.links)
    below = {child for _, child in tree.links}
    seen: set[int | None] = set()
    roots = [rank for rank in children if rank not in below]
    waiting: list[tuple[int | None, int | None, int]] = [(rank, None, 0) for rank in reversed(roots)]
    while waiting:
        rank, parent, depth = waiting.pop()
        link = by_pair.get(("tree", parent, rank)) if parent is not None and rank is not None else None
        indent = " " * (4 + min(2 * depth, width // 2))
        way = link.way if link else picture.NO_LINE
        yield cut(f"{indent}{'?' if rank is None else rank}" + (f"  {way}" if depth else ""), width)
        if rank not in seen:  # a log that was torn may close a circle
            seen.add(rank)
            waiting += [(child, rank, depth + 1) for child in reversed(children.get(rank, []))]


def _machine(machine: Topology) -> Iterator[_Fact]:
    for gpu in machine.devices:
        facts = (escape_controls(gpu.bus_id) if gpu.bus_id else "", f"compute capability {gpu.sm}" if gpu.sm else "")
        name = str(gpu.index) if gpu.index is not None else "?"
        yield "GPU", " ".join(filter(None, (name, *facts)))
    kinds = Counter(machine.classes.values())
    pairs = ", ".join(f"{number} x {kind}" for kind, number in sorted(kinds.items()))
    yield "pairs", f"{pairs} (both directions)" if pairs else "none known"
    for nic in machine.nics:
        kinds_to: dict[str, list[int]] = {}
        for at, kind in nic.classes.items():
            index = machine.devices[at].index
            kinds_to.setdefault(kind, []).append(at if index is None else index)
        number = str(nic.index) if nic.index is not None else ""
        speed = f" {nic.gbps:g} Gb/s" if nic.gbps else ""
        gdr = "" if nic.gdr is None else ", GPUDirect" if nic.gdr else ", no GPUDirect"
        named = " ".join(filter(None, (number, escape_controls(nic.name or "")))) + speed + gdr
        near = [f"{kind} to GPU {ranges(gpus)}" for kind, gpus in kinds_to.items()]
        yield "NIC", "; ".join([named, *near])
