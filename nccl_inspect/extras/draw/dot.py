"""Communicators in the language of Graphviz: ``nccl-inspect topology job.log --format dot | dot -Tpng -o job.png``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from nccl_inspect.extras.draw import bundles
from nccl_inspect.report import Style
from nccl_inspect.report.picture import Look, View, describe_link, find_look, gpu_words, view_title
from nccl_inspect.report.words import environment
from nccl_inspect.topology import Topology
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import ranges

SUFFIXES = ("gv",)
DRAWS = True


def render(views: Sequence[View], machines: Sequence[Topology], style: Style) -> str:
    """Return a graph: a cluster for each communicator and kind of link, in it its hosts, with their ranks if few."""
    pages = environment(Path(__file__).parent).overlay(autoescape=False, finalize=None)
    pages.filters |= {"quote": partial(json.dumps, ensure_ascii=False), "printable": escape_controls}
    kinds = [(view, kind) for view in views for kind in view.kinds or [""]]
    parts = [(number, view, kind, _join(view, kind)) for number, (view, kind) in enumerate(kinds, 1)]
    return pages.get_template("dot.j2").render(parts=parts, title=view_title, gpu=gpu_words) + "\n"


def _join(view: View, kind: str) -> Iterator[tuple[int, int, Look, str, str]]:
    """Yield the edges: ends, look, label and what is shown under the pointer."""
    numbers = {host: at for at, host in enumerate(view.hosts)}
    for src, dst, look, links in bundles(view, kind) if view.is_folded else ():
        yield numbers[src], numbers[dst], look, f"{links} x {look.words}", ""
    for link in view.links:
        if link.kind == kind and not view.is_folded:
            label = f"{escape_controls(link.detail or '?')} ch {ranges(link.channels)}"
            yield link.src, link.dst, find_look(link), label, describe_link(link)
