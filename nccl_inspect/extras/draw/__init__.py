"""Drawings of communicators, one module for each format.

A module states ``render(views, machines, style)``, which gives the text, and whether it ``DRAWS`` a picture, where many
communicators would overlap; its name is the name of the format.
"""

from __future__ import annotations

from typing import NamedTuple

from nccl_inspect.report.picture import LOOKS_BY_KEY, Look, View, find_look
from nccl_inspect.util.discovery import package


class Bundle(NamedTuple):
    """All links of one look between two hosts."""

    src: str
    dst: str
    look: Look
    links: int


def bundles(view: View, kind: str) -> list[Bundle]:
    """Return the links of one kind, host by host."""
    host_of = {rank: host for host, ranks in view.hosts.items() for rank in ranks}
    counts: dict[tuple[str, str, str], int] = {}
    for link in view.links:
        if link.kind == kind and link.src in host_of and link.dst in host_of:
            key = host_of[link.src], host_of[link.dst], find_look(link).key
            counts[key] = counts.get(key, 0) + 1
    return [Bundle(src, dst, LOOKS_BY_KEY[key], links) for (src, dst, key), links in counts.items()]


names, load = package(__name__, __file__, first="text")
