"""Communicators in the language of Graphviz: ``nccl-inspect topology job.log --format dot | dot -Tpng -o job.png``."""

from __future__ import annotations

from collections.abc import Sequence

from nccl_inspect.extras.draw import bundles
from nccl_inspect.report import Style
from nccl_inspect.report.picture import Look, View, describe_link, find_look, gpu_words, view_title
from nccl_inspect.topology import Topology
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count, ranges

SUFFIXES = ("gv",)
DRAWS = True


def render(views: Sequence[View], machines: Sequence[Topology], style: Style) -> str:
    """Return a graph: a cluster for each communicator and kind of link, in it its hosts, with their ranks if few."""
    lines = ["digraph nccl {", '  node [shape=box, fontname="sans-serif"];', '  edge [fontname="sans-serif"];']
    lines += ["  compound=true;", "  newrank=true;"]
    parts = [(view, kind) for view in views for kind in view.kinds or [""]]
    for number, (view, kind) in enumerate(parts, 1):
        title = view_title(view) + (f": {kind}s" if kind else "")
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quote(title)};"]
        for at, (host, ranks) in enumerate(view.hosts.items()):
            name = escape_controls(host)
            if view.is_folded:
                label = _quote(f"{name}\n{count(len(ranks), 'rank')}")
                lines.append(f"    n{number}_{at} [label={label}];")
                continue
            lines += [f"    subgraph cluster_{number}_{at} {{", f"      label={_quote(name)};"]
            for rank in ranks:
                words = "\n".join(filter(None, (f"rank {rank}", gpu_words(view, rank).partition(" busId")[0])))
                lines.append(f"      n{number}_{rank} [label={_quote(words)}];")
            lines.append("    }")
        if view.is_folded:
            numbers = {host: at for at, host in enumerate(view.hosts)}
            for bundle in bundles(view, kind):
                ends, label = (numbers[bundle.src], numbers[bundle.dst]), f"{bundle.links} x {bundle.look.words}"
                lines.append(_edge(number, ends, bundle.look, label))
        else:
            for link in view.links:
                if link.kind == kind:
                    label = f"{escape_controls(link.detail or '?')} ch {ranges(link.channels)}"
                    lines.append(_edge(number, (link.src, link.dst), find_look(link), label, describe_link(link)))
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _edge(number: int, ends: tuple[int, int], look: Look, label: str, tooltip: str = "") -> str:
    more = f", tooltip={_quote(tooltip)}" if tooltip else ""
    looks = f"color={_quote(look.color)}, style={look.dot_style}, label={_quote(label)}{more}"
    return f"    n{number}_{ends[0]} -> n{number}_{ends[1]} [{looks}];"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
