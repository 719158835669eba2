"""Sends and receives in the dumps of both sides: which end is missing, in which order, or of another size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nccl_inspect.artifacts.calls import Call, Direction
from nccl_inspect.artifacts.flight_recorder import Dump, Group
from nccl_inspect.util.records import Frozen, frozen

NO_END, CROSSED, DIFFERENT, OPEN, HALF = "no other end", "both the same way", "different", "open", "half"
"""The other side does not take part; both send, or both receive, first; the ends do not fit; both are open; one is
over on the other side."""


@frozen
class Pair(Frozen):
    """Two ranks of which at least one is in a send or receive with the other."""

    kind: str
    group: Group
    ends: Mapping[int, Call]
    """The first open call of each side, by the rank in the job."""
    others: tuple[int, ...]
    """The side that has no open call that fits."""
    made: int | None = None
    """How many calls of that direction the other side has made, where that is known."""


def pairs(groups: Sequence[tuple[Group, list[int]]], by_rank: Mapping[int, Dump]) -> Iterator[Pair]:
    """All pairs of stuck ranks, from the dumps of both."""
    for group, members in groups:
        if not group.ranks:
            continue
        lanes: dict[frozenset[int], dict[int, list[Call]]] = {}
        for rank in members:
            for call in by_rank[rank].pending(group.name) if rank in by_rank else ():
                peers = call.peers if call.is_p2p else None
                if peers and max(peers) < len(members):
                    lanes.setdefault(frozenset(peers), {}).setdefault(rank, []).append(call)
        for lane, waiting in lanes.items():
            if len(lane) > 1:  # a rank may send to itself
                first = {rank: _first(calls) for rank, calls in waiting.items()}
                yield from _judged(group, members, lane, first, by_rank)


def _first(calls: Sequence[Call]) -> dict[Direction, Call]:
    """The first open call with this peer, or the batch of them: what is in a batch has no order."""
    first: dict[Direction, Call] = {}
    for call in calls:
        if call.peers and call.seq == calls[0].seq:
            first.setdefault(call.peers, call)
    return first


def _judged(
    group: Group,
    members: Sequence[int],
    lane: frozenset[int],
    waiting: Mapping[int, Mapping[Direction, Call]],
    by_rank: Mapping[int, Dump],
) -> Iterator[Pair]:
    ranks = {members[place] for place in lane}
    away = tuple(rank for rank in sorted(ranks) if rank not in waiting)
    if away:
        for peers, call in next(iter(waiting.values())).items():
            yield _with_missing_end(group, peers, {next(iter(waiting)): call}, away, by_rank)
            return
    here, there = waiting.values()
    both = [peers for peers in here if peers in there]
    ends = {rank: next(iter(calls.values())) for rank, calls in waiting.items()}
    if not both:
        yield Pair(CROSSED, group, ends, ())
        return
    ends = {rank: calls[both[0]] for rank, calls in waiting.items()}
    yield Pair(DIFFERENT if _differ(*ends.values()) else OPEN, group, ends, ())


def _with_missing_end(
    group: Group, peers: Direction, ends: Mapping[int, Call], away: tuple[int, ...], by_rank: Mapping[int, Dump]
) -> Pair:
    """A call whose other side is not open: it never came, or it is over there, as small sends are at once."""
    call, dump = next(iter(ends.values())), by_rank.get(away[0])
    made = None if dump is None or dump.is_partial else dump.recorded.transfers.get((group.name, peers), 0)
    is_over = made is not None and 0 < call.nth <= made
    return Pair(HALF if is_over else NO_END, group, ends, away, made)


def _differ(call: Call, other: Call) -> bool:
    """Whether two ends of one transfer have different sizes or types; only where they are known to be of one."""
    if not call.nth or call.nth != other.nth:
        return False
    return (sum(_elements(call)), call.dtypes) != (sum(_elements(other)), other.dtypes)


def _elements(call: Call) -> tuple[int, ...]:
    return call.inputs or call.outputs
