"""Communicators, rings and trees for people: rings in their order, trees indented."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from nccl_inspect.extras.draw import bundles
from nccl_inspect.model.communicators.shapes import crossings, fewest_crossings, host_of, is_closed, tree_shape
from nccl_inspect.model.inventory import Stage
from nccl_inspect.report import Style
from nccl_inspect.report.picture import (
    UNKNOWN_HOST,
    DrawnLink,
    DrawnShape,
    View,
    channel_words,
    gpu_words,
    view_title,
)
from nccl_inspect.report.words import block, paint
from nccl_inspect.topology import Topology
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import count, ranges

DRAWS = False
_MAX_FACTS = 5


def render(views: Sequence[View], machines: Sequence[Topology], style: Style) -> str:
    """Return a paragraph per communicator, then the known machines."""
    parts = [_view(view, style) for view in views] or [["no communicator and no connection in this log"]]
    parts += [_machine(machine, style) for machine in machines]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _view(view: View, style: Style) -> list[str]:
    lines = [paint(line, "bold", style) for line in block("", view_title(view), style, 0, 0)]
    lines += _describe_communicator(view, style)
    for host, ranks in view.hosts.items():
        gpus = {} if view.is_folded else {rank: gpu_words(view, rank).partition(" busId")[0] for rank in ranks}
        named = ", ".join(f"{rank} ({gpu})" if gpu else str(rank) for rank, gpu in gpus.items())
        lines += block("host", f"{escape_controls(host)}: rank{'s' * (len(ranks) > 1)} {named or ranges(ranks)}", style)
    by_pair = {(link.kind, link.src, link.dst): link for link in view.links}
    if view.is_folded:
        for kind in view.kinds:  # the links between hosts, not ranks
            for bundle in bundles(view, kind):
                where = "inside" if bundle.src == bundle.dst else f"-> {escape_controls(bundle.dst)}"
                text = f"{escape_controls(bundle.src)} {where}: {count(bundle.links, 'link')}, {bundle.look.words}"
                lines += block(kind, text, style)
    else:
        for ring in view.rings:
            lines += _ring(view, ring, by_pair, style)
        for tree in view.trees:
            shape = tree_shape(tree.links)
            words = f"depth {shape.depth}, at most {shape.children} below a rank"
            lines += block("tree", f"{channel_words(tree.channels)}: {words}", style)
            lines += _tree(tree, by_pair, style)
        for link in view.links:
            if link.kind == "connection":
                text = f"{link.src} -> {link.dst} {_way(link)}, {channel_words(link.channels)}"
                lines += block("link", text, style)
    if not view.links:
        lines += block("links", "none in this log (NCCL_DEBUG=INFO of rank 0 shows rings)", style)
    return lines


def _describe_communicator(view: View, style: Style) -> list[str]:
    """Write the origin, purpose and time of a communicator, and what its ranks disagree on."""
    info = view.info
    if info is None:
        return []
    lines = []
    if info.parent:
        color = "" if info.color is None else f", color {info.color}"
        lines += block("from", escape_controls(f"split of {info.parent}{color}"), style)
    if info.group:
        lines += block("use", escape_controls(f"called {info.group} by the program"), style)
    elif info.parallelism:
        lines += block("use", f"likely {info.parallelism.kind}: {info.parallelism.evidence}", style)
    if info.algorithms:
        lines += block("has", ", ".join(info.algorithms), style)
    timed = [stage for stage in info.lifetime if stage.first or stage.seconds is not None]
    if timed:
        lines += block("life", "; ".join(map(_stage, timed)), style)
    for words in info.inconsistent[:_MAX_FACTS]:
        lines += block("odd", words, style)
    return lines


def _stage(stage: Stage) -> str:
    span, last = stage.first or "", stage.last or ""
    if last != span:
        day = span.rpartition(" ")[0]
        span += f" to {last.removeprefix(f'{day} ') if day else last}"
    took = "" if stage.seconds is None else f" ({stage.seconds:.2f} s at most)"
    return escape_controls(" ".join(filter(None, (stage.name, span))) + took)


def _ring(view: View, ring: DrawnShape, by_pair: dict[tuple[str, int, int], DrawnLink], style: Style) -> list[str]:
    order = [*ring.ranks, *ring.ranks[:1]]
    hops: Counter[str] = Counter(
        _way(by_pair.get(("ring", src, dst)))
        for src, dst in pairwise(order)
        if src is not None and dst is not None and src != dst
    )
    chain = " > ".join("?" if rank is None else str(rank) for rank in order)
    lines = block("ring", f"{channel_words(ring.channels)}: {chain}", style)
    words = [f"{number} x {way}" for way, number in hops.most_common()]
    hosts = host_of(view.hosts, UNKNOWN_HOST)
    if not is_closed(ring.ranks, view.nranks):
        words.append("not whole in this log")
    elif fewest := fewest_crossings(ring.ranks, hosts):
        left = crossings(ring.ranks, hosts)
        words += [] if left is None else [f"leaves a host {count(left, 'time')} ({fewest} at least)"]
    return lines + block("", ", ".join(words), style)


def _tree(tree: DrawnShape, by_pair: dict[tuple[str, int, int], DrawnLink], style: Style) -> Iterator[str]:
    children = group_values((parent, child) for parent, child in tree.links)
    below = {child for _, child in tree.links}
    width = max(style.width, 40)
    seen: set[int | None] = set()
    roots = [rank for rank in children if rank not in below]
    waiting: list[tuple[int | None, int | None, int]] = [(rank, None, 0) for rank in reversed(roots)]
    while waiting:
        rank, parent, depth = waiting.pop()
        link = by_pair.get(("tree", parent, rank)) if parent is not None and rank is not None else None
        indent = " " * (4 + min(2 * depth, width // 2))
        yield cut(f"{indent}{'?' if rank is None else rank}" + (f"  {_way(link)}" if depth else ""), width)
        if rank not in seen:  # a log that was torn may close a circle
            seen.add(rank)
            waiting += [(child, rank, depth + 1) for child in reversed(children.get(rank, []))]


def _way(link: DrawnLink | None) -> str:
    if link is None or link.detail is None:
        return "no connection line"
    return escape_controls(link.detail) + ("/GDRDMA" if link.gdr is True else "")


def _machine(machine: Topology, style: Style) -> list[str]:
    title = f"{escape_controls(machine.name)}: {count(machine.gpus, 'GPU')}, {count(len(machine.nics), 'NIC')}"
    lines = [paint(line, "bold", style) for line in block("", title, style, 0, 0)]
    for gpu in machine.devices:
        facts = (escape_controls(gpu.bus_id) if gpu.bus_id else "", f"compute capability {gpu.sm}" if gpu.sm else "")
        name = str(gpu.index) if gpu.index is not None else "?"
        lines += block("GPU", " ".join(filter(None, (name, *facts))), style)
    kinds = Counter(machine.classes.values())
    pairs = ", ".join(f"{number} x {kind}" for kind, number in sorted(kinds.items()))
    lines += block("pairs", f"{pairs} (both directions)" if pairs else "none known", style)
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
        lines += block("NIC", "; ".join([named, *near]), style)
    return lines
