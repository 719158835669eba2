"""Ranks for which the others wait again and again, by how long the calls took on each rank.

A collective is over on all ranks of its group at once. What a rank does until the end of the next one is its own work
and waiting in calls, of this group or another: who waits the least works the longest, and the others wait for it. Who
comes last to a call because it was itself held up in another one, as the later stages of a pipeline are, waits as long
as the others in all.

All times are taken by the GPU of the rank itself, so clocks of hosts that differ have no part in it. The time at which
a program put a call into the queue says nothing of the sort: a rank that prints the loss has a shorter queue than
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from nccl_inspect.artifacts import standstill
from nccl_inspect.artifacts.flight_recorder import Dump, Durations, Group
from nccl_inspect.util.records import Frozen

FEWEST = 16  # calls in which some rank is late: fewer may be chance
_AGAIN = 0.9  # share of them in which it is the same rank
_MOST = 3 / 4  # a rank is late where it spends at most this share of the time in calls that the next one spends there
_LEAST_MS = 1.0  # that much less time it spends in them
_WORTH = 0.1  # share of the time that the others lose


class Timed(Frozen):
    """Holds how long one call took on one rank."""

    rank: int
    dump: str
    order: int
    seq: int
    milliseconds: float


class Straggler(Frozen):
    """A rank that comes last."""

    rank: int
    group: Group
    late: int  # calls to which it came last
    compared: int  # calls of which it is known how long all ranks of the group waited in them and before
    share: float  # of the time from the first to the last of them: that long the others waited for it
    gap_ms: float  # how long the others usually wait for it
    plain: float
    """That share of the time in these very calls: the others may have waited for it in calls of other groups, too."""
    calls: tuple[Timed, Timed]  # the call in which another rank waited the longest, on this rank and on that one


def find_stragglers(dumps: Iterable[Dump]) -> list[Straggler]:
    """Return the stragglers, the longest awaited first; each rank once, in the group that shows it.

    Groups count of which the dumps of all ranks are there.
    """
    by_rank = {dump.rank: dump for dump in dumps if dump.rank is not None and dump.durations}
    stragglers: dict[int, Straggler] = {}
    for group, members in standstill.groups(by_rank) if len(by_rank) > 1 else ():
        if len(members) > 1 and all(rank in by_rank for rank in members):
            straggler = _find_in_group(group, members, by_rank)
            other = stragglers.get(straggler.rank) if straggler else None
            if straggler and (other is None or straggler.plain > other.plain):
                stragglers[straggler.rank] = straggler
    return sorted(stragglers.values(), key=lambda straggler: (-straggler.share, straggler.rank))


def _find_in_group(group: Group, members: Sequence[int], by_rank: Mapping[int, Dump]) -> Straggler | None:
    durations = [timed for rank in members if (timed := by_rank[rank].durations.get(group.name))]
    if len(durations) < len(members):
        return None
    spans = [dict(zip(timed.numbers, timed.milliseconds, strict=True)) for timed in durations]
    common = sorted(set(spans[0]).intersection(*spans[1:]))
    late = list(_late(durations, common))
    if len(late) < FEWEST:
        return None
    places = [place for place, _, _ in late]
    last = max(set(places), key=places.count)
    gaps = [(seq, gap) for place, seq, gap in late if place == last]
    began = dict(zip(durations[last].numbers, durations[last].created_ns, strict=True))
    whole = (began[common[-1]] - began[common[0]]) / 1e6
    share = sum(gap for _, gap in gaps) / whole if whole > 0 else 0.0
    if len(gaps) < _AGAIN * len(late) or len(gaps) < FEWEST or share < _WORTH:
        return None
    seq = max((seq for seq, _ in gaps), key=lambda seq: max(span[seq] for span in spans) - spans[last][seq])
    waiting = max(range(len(members)), key=lambda place: spans[place][seq])

    def call_of(place: int) -> Timed:
        order = durations[place].orders[durations[place].numbers.index(seq)]
        return Timed(members[place], by_rank[members[place]].name, order, seq, spans[place][seq])

    gap = median(gap for _, gap in gaps)
    direct = sum(min(span[seq] for span in spans if span is not spans[last]) - spans[last][seq] for seq, _ in gaps)
    calls = call_of(last), call_of(waiting)
    plain = max(direct, 0.0) / whole
    return Straggler(members[last], group, len(gaps), len(common) - 1, min(share, 1.0), gap, plain, calls)


def _late(durations: Sequence[Durations], common: Sequence[int]) -> Iterator[tuple[int, int, float]]:
    """Yield calls before which one rank waited clearly less than all others: its place, the number, how much less."""
    places = [dict(zip(timed.numbers, range(len(timed.numbers)), strict=True)) for timed in durations]
    for before, seq in pairwise(common):
        waited = []
        for place, (timed, at) in enumerate(zip(durations, places, strict=True)):
            first, last = at[before], at[seq]
            if timed.untimed[first] != timed.untimed[last]:
                break
            waited.append((timed.spent[last] - timed.spent[first], place))
        else:
            (least, place), (second, _) = sorted(waited)[:2]
            if least <= second * _MOST and second - least >= _LEAST_MS:
                yield place, seq, second - least
