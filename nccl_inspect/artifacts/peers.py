"""What ranks in the same place do: of two that disagree, the one that does as all others is right.

Groups with one description have the same part in the program, such as all groups of tensor parallelism: their ranks
make the same calls in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

from nccl_inspect.artifacts.calls import Call
from nccl_inspect.artifacts.flight_recorder import Dump, Group

_FEWEST = 2
"""Other ranks that must agree."""
_Kind = Callable[[Call], Hashable]


class Siblings:
    """Groups with one description and size.

    Args:
        groups: all, with their ranks.
        by_rank: the dumps.
        kind: what calls have in common that fit together.
    """

    def __init__(self, groups: Sequence[tuple[Group, list[int]]], by_rank: Mapping[int, Dump], kind: _Kind) -> None:
        self._groups, self._by_rank, self._kind = groups, by_rank, kind
        self._made: dict[tuple[str, int, int], dict[str, Counter[Hashable]]] = {}

    def usual(self, group: Group, seq: int) -> tuple[Hashable, int] | None:
        """What the ranks of the other groups call under a number, and how many; None unless they agree.

        Args:
            group: one of them.
            seq: the number of the collective.
        """
        key = group.label, len(group.ranks), seq
        if key not in self._made:
            self._made[key] = self._counted(*key)
        others: Counter[Hashable] = Counter()
        for name, kinds in self._made[key].items():
            if name != group.name:
                others.update(kinds)
        return others.most_common(1)[0] if len(others) == 1 and others.total() >= _FEWEST else None

    def _counted(self, label: str, size: int, seq: int) -> dict[str, Counter[Hashable]]:
        made: dict[str, Counter[Hashable]] = {}
        for group, members in self._groups:
            if group.label == label and len(group.ranks) == size:
                calls = (call for rank in members for call in _of_group(self._by_rank.get(rank), group.name))
                made[group.name] = Counter(self._kind(call) for call in calls if call.seq == seq)
        return made


def _of_group(dump: Dump | None, group: str) -> Iterable[Call]:
    """The collectives of a rank in a group."""
    return () if dump is None else (call for call in dump.calls.get(group, ()) if not call.is_p2p)


def out_of_order(ring: Sequence[tuple[int, Call]], by_rank: Mapping[int, Dump]) -> list[int]:
    """Of ranks that wait for each other those that make two calls in another order than all other ranks.

    Args:
        ring: ranks with the calls in which they stand; each waits for the next one.
        by_rank: the dumps.
    """
    labels = {(rank, call.group): by_rank[rank].groups[call.group].label for rank, call in ring}
    places = [(labels[rank, call.group], call.seq) for rank, call in ring]
    if any(call.is_p2p for _, call in ring):
        return []
    orders = list(_orders(places, by_rank, {rank for rank, _ in ring}))
    odd = []
    for number, (rank, _) in enumerate(ring):
        here, awaited = places[number], places[number - 1]
        votes = [order[here] > order[awaited] for order in orders if here in order and awaited in order]
        if len(votes) >= _FEWEST and all(votes):
            odd.append(rank)
    return odd if len(odd) < len(ring) else []


def _orders(
    places: Collection[tuple[str, int]], by_rank: Mapping[int, Dump], ring: Collection[int]
) -> Iterable[dict[tuple[str, int], int]]:
    """When each other rank made these calls, in the order of its own."""
    labels = {label for label, _ in places}
    for rank, dump in by_rank.items():
        if rank not in ring:
            groups = [group for group in dump.groups.values() if group.label in labels]
            calls = ((group.label, call) for group in groups for call in _of_group(dump, group.name))
            yield {(label, call.seq): call.order for label, call in calls if (label, call.seq) in places}
