"""Communicators in the language of Graphviz: ``nccl-inspect topology job.log --format dot | dot -Tpng -o job.png``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nccl_inspect.extras.draw import bundles
from nccl_inspect.report import Style
from nccl_inspect.report.picture import View, describe_link, find_look, gpu_words, view_title
from nccl_inspect.topology import Topology
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count, ranges

SUFFIXES = ("gv",)
DRAWS = True


def render(views: Sequence[View], machines: Sequence[Topology], style: Style) -> str:
    """Return a graph: a cluster for each communicator and kind of link, in it a cluster for each host."""
    lines = ["digraph nccl {", '  node [shape=box, fontname="sans-serif"];', '  edge [fontname="sans-serif"];']
    lines += ["  compound=true;", "  newrank=true;"]
    number = 0
    for view in views:
        for kind in view.kinds or [""]:
            number += 1
            title = view_title(view) + (f": {kind}s" if kind else "")
            lines += [f"  subgraph cluster_{number} {{", f"    label={_quote(title)};"]
            lines += _host_nodes(view, kind, number) if view.is_folded else _rank_nodes(view, kind, number)
            lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _rank_nodes(view: View, kind: str, number: int) -> Iterator[str]:
    for place, (host, ranks) in enumerate(view.hosts.items()):
        yield f"    subgraph cluster_{number}_{place} {{"
        yield f"      label={_quote(escape_controls(host))};"
        for rank in ranks:
            label = "\n".join(filter(None, (f"rank {rank}", gpu_words(view, rank).partition(" busId")[0])))
            yield f"      {_node(number, rank)} [label={_quote(label)}];"
        yield "    }"
    for link in view.links:
        if link.kind == kind:
            look = find_look(link)
            label = f"{escape_controls(link.detail or '?')} ch {ranges(link.channels)}"
            yield (
                f"    {_node(number, link.src)} -> {_node(number, link.dst)} [color={_quote(look.color)}, "
                f"style={look.dot_style}, label={_quote(label)}, tooltip={_quote(describe_link(link))}];"
            )


def _host_nodes(view: View, kind: str, number: int) -> Iterator[str]:
    for place, (host, ranks) in enumerate(view.hosts.items()):
        label = f"{escape_controls(host)}\n{count(len(ranks), 'rank')}"
        yield f"    {_node(number, place)} [label={_quote(label)}];"
    places = {host: place for place, host in enumerate(view.hosts)}
    for bundle in bundles(view, kind):
        label = f"{bundle.links} x {bundle.look.words}"
        yield (
            f"    {_node(number, places[bundle.src])} -> {_node(number, places[bundle.dst])} "
            f"[color={_quote(bundle.look.color)}, style={bundle.look.dot_style}, label={_quote(label)}];"
        )


def _node(number: int, rank: int) -> str:
    return f"n{number}_{rank}"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
