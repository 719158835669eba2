"""The layout of the hosts of a tree: a column per level, children beside their parent, so no link crosses a box."""

from __future__ import annotations

from typing import NamedTuple

from nccl_inspect.report.picture.view import DrawnShape, View


class Place(NamedTuple):
    """The position of a host: its level, and its distance from the top in heights of a leaf."""

    level: int
    down: float


def places(view: View, tree: DrawnShape) -> dict[str, Place]:
    """The positions of all hosts; hosts that the tree does not reach are extra roots at the bottom."""
    neighbours = _children(view, tree)
    below = {child for some in neighbours.values() for child in some}
    levels: dict[str, int] = {}
    children: dict[str, list[str]] = {}
    by_host: dict[str, Place] = {}
    leaves = 0
    # In a log that was torn every host may be below another one: then the first is the root.
    for root in [*(host for host in view.hosts if host not in below), *view.hosts]:
        if root in levels:
            continue
        for host in reversed(_walked(root, neighbours, levels, children)):
            # Leaves come from the last to the first, so they are counted upwards and turned below.
            lower = [by_host[child].down for child in children[host]]
            by_host[host] = Place(levels[host], sum(lower) / len(lower) if lower else leaves)
            leaves += not lower
    return {host: Place(place.level, leaves - 1 - place.down) for host, place in by_host.items()}


def _walked(
    root: str, neighbours: dict[str, list[str]], levels: dict[str, int], children: dict[str, list[str]]
) -> list[str]:
    """A host and all below it, each before its children; records levels and parents."""
    levels[root] = 0
    order, waiting = [], [root]
    while waiting:
        host = waiting.pop()
        order.append(host)
        children[host] = [child for child in neighbours.get(host, ()) if child not in levels]
        levels.update(dict.fromkeys(children[host], levels[host] + 1))
        waiting += reversed(children[host])
    return order


def _children(view: View, tree: DrawnShape) -> dict[str, list[str]]:
    """The hosts directly below each host."""
    host_of = {rank: host for host, ranks in view.hosts.items() for rank in ranks}
    below: dict[str, dict[str, None]] = {}
    for parent, child in tree.links:
        src, dst = host_of.get(-1 if parent is None else parent), host_of.get(-1 if child is None else child)
        if src is not None and dst is not None and src != dst:
            below.setdefault(src, {})[dst] = None
    order = {host: at for at, host in enumerate(view.hosts)}
    return {host: sorted(some, key=order.__getitem__) for host, some in below.items()}
