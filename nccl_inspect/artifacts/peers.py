"""What ranks in the same place do: of two that disagree, the one that does as all others is right.

Groups with one description have the same part in the program, such as all groups of tensor parallelism: their ranks
make the same calls in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

from nccl_inspect.artifacts.calls import Call
from nccl_inspect.artifacts.flight_recorder import Dump, Group
from nccl_inspect.util.grouping import grouped, grouped_sets

_FEWEST = 2
"""Other ranks that must agree."""
_Kind = Callable[[Call], Hashable]
_Place = tuple[str, int]
"""A call by the description of its group and its number there."""


class Siblings:
    """Groups with one description and size.

    Args:
        groups: all, with their ranks.
        by_rank: the dumps.
        kind: what calls have in common that fit together.
    """

    def __init__(self, groups: Sequence[tuple[Group, list[int]]], by_rank: Mapping[int, Dump], kind: _Kind) -> None:
        self._by_rank, self._kind = by_rank, kind
        self._alike = grouped((_alike(group), (group, members)) for group, members in groups)
        self._named = grouped(((*_alike(group), group.name), (group, members)) for group, members in groups)
        self._made: dict[tuple[str, int], dict[int, Counter[Hashable]]] = {}
        """By what groups have in common and the number of the collective: what all their ranks called."""

    def usual(self, group: Group, seq: int) -> tuple[Hashable, int] | None:
        """Return what the ranks of the other groups call under a number, and how many; None unless they agree.

        Args:
            group: one of them.
            seq: the number of the collective.
        """
        key = _alike(group)
        if key not in self._made:
            self._made[key] = self._counted(self._alike[key])
        own = self._counted(self._named[*key, group.name])
        others = self._made[key].get(seq, Counter()) - own.get(seq, Counter())
        return others.most_common(1)[0] if len(others) == 1 and others.total() >= _FEWEST else None

    def _counted(self, groups: Iterable[tuple[Group, list[int]]]) -> dict[int, Counter[Hashable]]:
        made: dict[int, Counter[Hashable]] = {}
        for group, members in groups:
            for rank in members:
                for call in _of_group(self._by_rank.get(rank), group.name):
                    made.setdefault(call.seq, Counter())[self._kind(call)] += 1
        return made


def _alike(group: Group) -> tuple[str, int]:
    """Return what groups with the same part in the program have in common."""
    return group.label, len(group.ranks)


def _of_group(dump: Dump | None, group: str) -> Iterable[Call]:
    """The collectives of a rank in a group."""
    return () if dump is None else (call for call in dump.calls.get(group, ()) if not call.is_p2p)


def out_of_order(ring: Sequence[tuple[int, Call]], by_rank: Mapping[int, Dump]) -> list[int]:
    """Return those of ranks that wait for each other which make two calls in another order than all other ranks.

    Args:
        ring: ranks with the calls in which they stand; each waits for the next one.
        by_rank: the dumps.
    """
    if any(call.is_p2p for _, call in ring):
        return []
    places = [(by_rank[rank].groups[call.group].label, call.seq) for rank, call in ring]
    pairs = list(zip(places, [places[-1], *places[:-1]], strict=True))
    """Of each rank the call in which it stands, and that in which the one before it waits for it."""
    awaited = grouped_sets(pairs)
    first, last = Counter[tuple[_Place, _Place]](), Counter[tuple[_Place, _Place]]()
    for order in _orders(awaited.keys(), by_rank, {rank for rank, _ in ring}):
        for here in order:
            for other in awaited[here] & order.keys():
                (last if order[here] > order[other] else first)[here, other] += 1
    odd = [rank for (rank, _), pair in zip(ring, pairs, strict=True) if last[pair] >= _FEWEST and not first[pair]]
    return odd if len(odd) < len(ring) else []


def _orders(
    places: Collection[_Place], by_rank: Mapping[int, Dump], ring: Collection[int]
) -> Iterable[dict[_Place, int]]:
    """Yield when each other rank made these calls, in the order of its own.

    A rank that made one of them in two groups with that description says nothing about it.
    """
    labels = {label for label, _ in places}
    for rank, dump in by_rank.items():
        if rank not in ring:
            groups = [group for group in dump.groups.values() if group.label in labels]
            calls = ((group.label, call) for group in groups for call in _of_group(dump, group.name))
            made = grouped(((label, call.seq), call.order) for label, call in calls if (label, call.seq) in places)
            yield {place: orders[0] for place, orders in made.items() if len(orders) == 1}
