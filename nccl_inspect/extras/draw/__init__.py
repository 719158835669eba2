"""Drawings of communicators, one module for each format.

A module states ``render(views, machines, style)``, which gives the text, and whether it ``DRAWS`` a picture, where many
communicators would overlap; its name is the name of the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nccl_inspect.report.picture import LOOKS_BY_KEY, Look, View, find_look
from nccl_inspect.util.discovery import package


def bundles(view: View, kind: str) -> list[tuple[str, str, Look, int]]:
    """Return the links of one kind, host by host: both hosts, their look, and how many look so."""
    host_of = {rank: host for host, ranks in view.hosts.items() for rank in ranks}
    counts: dict[tuple[str, str, str], int] = {}
    for link in view.links:
        if link.kind == kind and link.src in host_of and link.dst in host_of:
            key = host_of[link.src], host_of[link.dst], find_look(link).key
            counts[key] = counts.get(key, 0) + 1
    return [(src, dst, LOOKS_BY_KEY[key], links) for (src, dst, key), links in counts.items()]


def host_of(hosts: Mapping[str, Iterable[int]], unknown: str) -> dict[int, str]:
    """Return the host of each rank, where it is known."""
    return {rank: host for host, ranks in hosts.items() if host != unknown for rank in ranks}


def fewest_crossings(ring: Sequence[int | None], hosts: Mapping[int, str]) -> int:
    """Return how often a ring of these ranks must leave a host: once for each, if there are several."""
    there = {hosts[rank] for rank in ring if rank is not None and rank in hosts}
    return len(there) if len(there) > 1 else 0


Links = Sequence[tuple[int | None, int | None]]


class TreeShape(NamedTuple):
    """Holds what one tree looks like."""

    roots: int  # more than one where links are missing
    depth: int  # links from a root to the farthest rank
    children: int  # the most that a rank has


def tree_shape(links: Links) -> TreeShape:
    """Return the shape of a tree; a circle, which only a damaged log has, counts once."""
    children: dict[int | None, list[int | None]] = {}
    for parent, child in links:
        children.setdefault(parent, []).append(child)
    below = {child for _, child in links}
    level = [rank for rank in children if rank not in below]
    roots, depth, seen = len(level), 0, set(level)
    while level := [child for rank in level for child in children.get(rank, ()) if child not in seen]:
        seen.update(level)
        depth += 1
    return TreeShape(roots, depth, max(map(len, children.values()), default=0))


names, load = package(__name__, __file__, first="text")
