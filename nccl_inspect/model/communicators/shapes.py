"""What rings and trees are like: closed or cut, how often they leave a host, how deep and broad they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import ne
from typing import NamedTuple

Links = Sequence[tuple[int | None, int | None]]


def host_of(hosts: Mapping[str, Iterable[int]], unknown: str) -> dict[int, str]:
    """Return the host of each rank, where it is known."""
    return {rank: host for host, ranks in hosts.items() if host != unknown for rank in ranks}


def is_closed(ring: Sequence[int | None], nranks: int) -> bool:
    """Return whether a ring has each rank of the communicator once, so that its last rank leads back to its first."""
    return None not in ring and len(set(ring)) == len(ring) == nranks


def crossings(ring: Sequence[int | None], hosts: Mapping[int, str]) -> int | None:
    """Return how often a ring goes from one host to another; None where a host is not known."""
    there = [hosts.get(rank) if rank is not None else None for rank in ring]
    if None in there:
        return None
    return sum(map(bool, map(ne, there, [*there[1:], *there[:1]])))


def fewest_crossings(ring: Sequence[int | None], hosts: Mapping[int, str]) -> int:
    """Return how often a ring of these ranks must leave a host: once for each, if there are several."""
    there = {hosts[rank] for rank in ring if rank is not None and rank in hosts}
    return len(there) if len(there) > 1 else 0


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
