"""Ranks that come last to the collectives of their group again and again, by how long the calls took on each rank.

Who comes last finds all others there: the call is short on that rank, and long on those that waited for it. Both times
are taken by the GPU of the rank itself, so clocks of hosts that differ have no part in it. The time at which a program
put a call into the queue says nothing of the sort: a rank that prints the loss has a shorter queue than others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from nccl_inspect.artifacts import standstill
from nccl_inspect.artifacts.flight_recorder import Dump, Group
from nccl_inspect.util.records import Frozen, frozen

FEWEST = 16
"""Calls in which some rank is late: fewer may be chance."""
_AGAIN = 0.9
"""Share of them in which it is the same rank."""
_MOST = 1 / 2
"""A rank is late where the call takes at most this share of what it takes on the next one."""
_LEAST_MS = 1.0
"""That much longer it takes there."""
_WORTH = 0.1
"""Share of the time that the others lose."""


@frozen
class Timed(Frozen):
    """How long one call took on one rank."""

    rank: int
    dump: str
    order: int
    seq: int
    milliseconds: float


@frozen
class Straggler(Frozen):
    """A rank that comes last."""

    rank: int
    group: Group
    late: int
    """Calls to which it came last."""
    compared: int
    """Calls of which the duration is known on all ranks of the group."""
    share: float
    """Of the time from the first to the last of them: that long the others waited for it."""
    gap_ms: float
    """The usual wait in such a call."""
    calls: tuple[Timed, Timed]
    """The call with the longest wait, on this rank and on one that waited."""


def of(dumps: Iterable[Dump]) -> list[Straggler]:
    """The stragglers, those for which the others wait the longest first; each rank once.

    Args:
        dumps: of any number of ranks; groups count of which all ranks are there.
    """
    by_rank = {dump.rank: dump for dump in dumps if dump.rank is not None and dump.recorded.durations}
    stragglers: dict[int, Straggler] = {}
    for group, members in standstill.groups(by_rank) if len(by_rank) > 1 else ():
        if len(members) > 1 and all(rank in by_rank for rank in members):
            straggler = _in_group(group, members, by_rank)
            if straggler and straggler.share > (
                stragglers[straggler.rank].share if straggler.rank in stragglers else 0
            ):
                stragglers[straggler.rank] = straggler
    return sorted(stragglers.values(), key=lambda straggler: (-straggler.share, straggler.rank))


def _in_group(group: Group, members: Sequence[int], by_rank: Mapping[int, Dump]) -> Straggler | None:
    durations = [by_rank[rank].recorded.durations.get(group.name) for rank in members]
    if not all(durations):
        return None
    spans = [dict(zip(timed.numbers, timed.milliseconds, strict=True)) for timed in durations if timed]
    common = sorted(set(spans[0]).intersection(*spans[1:]))
    late = list(_late(spans, common))
    if len(late) < FEWEST:
        return None
    places = [place for place, _, _ in late]
    last = max(set(places), key=places.count)
    mine = [(seq, gap) for place, seq, gap in late if place == last]
    timed = durations[last]
    assert timed is not None
    began = dict(zip(timed.numbers, timed.created_ns, strict=True))
    whole = (began[common[-1]] - began[common[0]]) / 1e6
    share = sum(gap for _, gap in mine) / whole if whole > 0 else 0.0
    if len(mine) < _AGAIN * len(late) or len(mine) < FEWEST or share < _WORTH:
        return None
    seq = max(mine, key=lambda call: call[1])[0]
    waiting = max(range(len(members)), key=lambda place: spans[place][seq])
    calls = tuple(_timed(by_rank[members[place]], members[place], group, seq) for place in (last, waiting))
    gap = median(gap for _, gap in mine)
    return Straggler(members[last], group, len(mine), len(common), min(share, 1.0), gap, (calls[0], calls[1]))


def _late(spans: Sequence[Mapping[int, float]], common: Iterable[int]) -> Iterator[tuple[int, int, float]]:
    """The calls to which one rank came clearly after all others: its place, the number, what the next one waited."""
    for seq in common:
        times = sorted((span[seq], place) for place, span in enumerate(spans))[:2]
        (least, place), (second, _) = times
        if least <= second * _MOST and second - least >= _LEAST_MS:
            yield place, seq, second - least


def _timed(dump: Dump, rank: int, group: Group, seq: int) -> Timed:
    timed = dump.recorded.durations[group.name]
    place = timed.numbers.index(seq)
    return Timed(rank, dump.name, timed.orders[place], seq, timed.milliseconds[place])
