"""Compares the dumps of all ranks: which call the job stands still in, who did not make it, and who waits for whom.

Every kind is a fact of the dumps, told apart in the order of cause and effect: ranks that made different calls under
one number; a rank that did not make a call, on its own or since it waits elsewhere; a call that all made and that did
not end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nccl_inspect.artifacts import pairwise
from nccl_inspect.artifacts.calls import SYMMETRIC, Call
from nccl_inspect.artifacts.causes import CYCLE, DIFFERENT, MISSING, NO_PARTNER, PARTLY, UNFINISHED
from nccl_inspect.artifacts.flight_recorder import WORLD, Dump, Group
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.records import Record

_SAME_SIZE = ("all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base", "all_gather_into_tensor")
"""Operations to which every rank passes the same number of elements."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part(Record):
    """What one rank has to do with a standstill."""

    rank: int
    dump: str
    """The file that says so."""
    call: Call | None
    """The one it is about; for a rank that did not make it, the last one that it made."""


@dataclass(slots=True, eq=False, repr=False)
class Standstill(Record):
    """Why one or several groups are stuck."""

    kind: str
    group: Group
    seq: int
    operation: str
    culprits: list[Part]
    """The ranks that have to be looked at; those of a cycle each with the call in which it waits."""
    waiting: list[Part]
    """The ranks that wait for them."""
    silent: list[int] = field(default_factory=list)
    """Ranks of the group that made no dump: nothing is known of them."""
    older: list[int] = field(default_factory=list)
    """Ranks whose dump is older than those of the others: it lacks calls that the others finished with them."""
    overwritten: list[int] = field(default_factory=list)
    """Ranks whose dump no longer has the calls of this group."""
    made: int | None = None
    """Of a transfer how many of them the side that is away has made."""

    @property
    def unknown(self) -> list[int]:
        """Ranks that may or may not have made the call."""
        return sorted({*self.silent, *self.older, *self.overwritten})


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Wait(Record):
    """Ranks that did not come to a call of a group, with those that wait there for them."""

    group: Group
    seq: int
    waiting: dict[int, Call]
    absent: list[int]
    silent: list[int]
    older: list[int] = field(default_factory=list)
    overwritten: list[int] = field(default_factory=list)
    pair: pairwise.Pair | None = None
    """The transfer that it is about."""


def of(dumps: Iterable[Dump]) -> list[Standstill]:
    """What holds the job up, causes only: a rank that waits because of another one is not told as a cause.

    Args:
        dumps: of any number of ranks; those without a rank are left out.
    """
    by_rank = {dump.rank: dump for dump in dumps if dump.rank is not None}
    every = groups(by_rank)
    different: list[Standstill] = []
    waits: list[_Wait] = []
    unfinished: list[Standstill] = []
    for group, members in every:
        calls = _collectives(group, members, by_rank)
        first = _first_pending(calls)
        if first is None:
            continue
        if difference := _different(group, calls, first, by_rank):
            different.append(difference)
            continue
        wait = _wait(group, members, calls, first, by_rank)
        if wait.absent or wait.silent or wait.older or wait.overwritten:
            waits.append(wait)
        else:
            unfinished.append(_unfinished(group, calls, first, by_rank))
    for pair in pairwise.pairs(every, by_rank):
        if pair.kind == pairwise.NO_END:
            waits.append(_missing_end(pair, by_rank))
        elif pair.kind == pairwise.CROSSED:
            waits.extend(_crossed(pair))
        else:
            (different if pair.kind == pairwise.DIFFERENT else unfinished).append(_of_pair(pair, by_rank))
    return [*different, *_causes(waits, [*different, *unfinished], by_rank)] or unfinished


def groups(by_rank: Mapping[int, Dump]) -> list[tuple[Group, list[int]]]:
    """Each group with its ranks; the same name with other ranks is another group.

    Early versions number groups per process: there only number 0 is the same group everywhere.
    """
    by_name: dict[tuple[str, tuple[int, ...]], tuple[Group, list[int]]] = {}
    unlisted: list[tuple[int, Group]] = []
    for rank, dump in sorted(by_rank.items()):
        for group in dump.groups.values():
            if group.ranks:
                by_name.setdefault((group.name, group.ranks), (group, list(group.ranks)))
            elif group.name in dump.calls:
                unlisted.append((rank, group))
    listed = grouped((name, set(ranks)) for name, ranks in by_name)
    for rank, group in unlisted:
        if any(rank in ranks for ranks in listed.get(group.name, ())):
            continue  # the dump of another rank lists its ranks
        if group.desc or group.name == WORLD:
            by_name.setdefault((group.name, ()), (group, []))[1].append(rank)
    return list(by_name.values())


def _collectives(group: Group, members: Sequence[int], by_rank: Mapping[int, Dump]) -> dict[int, dict[int, Call]]:
    """The collectives of each member that made a dump, by their numbers."""
    return {
        rank: {call.seq: call for call in by_rank[rank].calls.get(group.name, ()) if not call.is_p2p}
        for rank in members
        if rank in by_rank and group.name in by_rank[rank].groups
    }


def _first_pending(calls: Mapping[int, Mapping[int, Call]]) -> int | None:
    """The lowest number that is not over on a rank that called it."""
    return min((call.seq for of in calls.values() for call in of.values() if not call.is_completed), default=None)


def _different(
    group: Group, calls: Mapping[int, Mapping[int, Call]], first: int, by_rank: Mapping[int, Dump]
) -> Standstill | None:
    """The first number under which ranks made different calls, up to the one in which they wait."""
    numbers = sorted({seq for of in calls.values() for seq in of if seq <= first})
    for seq in numbers:
        made = {rank: of[seq] for rank, of in calls.items() if seq in of}
        kinds = Counter(map(_kind, made.values()))
        if len(kinds) < 2:
            continue
        usual = kinds.most_common(1)[0]
        is_tie = list(kinds.values()).count(usual[1]) > 1
        odd = [rank for rank, call in made.items() if is_tie or _kind(call) != usual[0]]
        rest = [rank for rank, call in made.items() if not is_tie and _kind(call) == usual[0]]
        return Standstill(
            DIFFERENT,
            group,
            seq,
            made[odd[0]].operation,
            [_part(rank, by_rank, made[rank]) for rank in odd],
            [_part(rank, by_rank, made[rank]) for rank in rest],
        )
    return None


def _kind(call: Call) -> tuple[object, ...]:
    """What calls of one number have in common where they fit together."""
    size = sum(call.inputs) if call.operation in _SAME_SIZE else None
    return call.operation, size, call.dtypes


def _wait(
    group: Group,
    members: Sequence[int],
    calls: Mapping[int, Mapping[int, Call]],
    seq: int,
    by_rank: Mapping[int, Dump],
) -> _Wait:
    """Who is in a call, and who did not come to it, as far as the dumps tell."""
    waiting = {rank: of[seq] for rank, of in calls.items() if seq in of and not of[seq].is_completed}
    absent = [rank for rank in calls if by_rank[rank].has_called(group.name, seq) is False]
    older = _older(calls, absent)
    return _Wait(
        group,
        seq,
        waiting,
        absent=[rank for rank in absent if rank not in older],
        silent=[rank for rank in members if rank not in by_rank],
        older=sorted(older),
        overwritten=[rank for rank in calls if by_rank[rank].has_called(group.name, seq) is None],
    )


def _older(calls: Mapping[int, Mapping[int, Call]], absent: Iterable[int]) -> set[int]:
    """The ranks that came to calls which their dumps lack: others finished these, and they need all ranks."""
    finished = max(
        (
            call.seq
            for of in calls.values()
            for call in of.values()
            if call.is_completed and call.operation in SYMMETRIC
        ),
        default=0,
    )
    return {rank for rank in absent if calls[rank] and max(calls[rank]) < finished}


def _unfinished(
    group: Group, calls: Mapping[int, Mapping[int, Call]], seq: int, by_rank: Mapping[int, Dump]
) -> Standstill:
    """A call that all ranks of a group made, and that is not over on all of them."""
    stuck = [_part(rank, by_rank, of[seq]) for rank, of in calls.items() if seq in of and not of[seq].is_completed]
    over = [
        _part(rank, by_rank, of.get(seq))
        for rank, of in calls.items()
        if any(call.is_completed and call.seq >= seq for call in of.values())
    ]
    operation = stuck[0].call.operation if stuck[0].call else ""
    return Standstill(PARTLY if over else UNFINISHED, group, seq, operation, stuck, over)


def _missing_end(pair: pairwise.Pair, by_rank: Mapping[int, Dump]) -> _Wait:
    seq = next(iter(pair.ends.values())).seq
    absent = [rank for rank in pair.others if rank in by_rank]
    silent = [rank for rank in pair.others if rank not in by_rank]
    return _Wait(pair.group, seq, dict(pair.ends), absent, silent, pair=pair)


def _crossed(pair: pairwise.Pair) -> Iterator[_Wait]:
    """Both sides wait for each other, each in a call that the other one makes only after its own."""
    for rank, call in pair.ends.items():
        yield _Wait(pair.group, call.seq, {rank: call}, [other for other in pair.ends if other != rank], [], pair=pair)


def _of_pair(pair: pairwise.Pair, by_rank: Mapping[int, Dump]) -> Standstill:
    """A transfer that is stuck although both sides arrived."""
    kinds = {pairwise.DIFFERENT: DIFFERENT, pairwise.HALF: PARTLY}
    call = next(iter(pair.ends.values()))
    ends = [_part(rank, by_rank, end) for rank, end in pair.ends.items()]
    over = [_part(rank, by_rank, None) for rank in pair.others]
    return Standstill(kinds.get(pair.kind, UNFINISHED), pair.group, call.seq, call.operation, ends, over)


def _causes(waits: Sequence[_Wait], stuck: Sequence[Standstill], by_rank: Mapping[int, Dump]) -> list[Standstill]:
    """What the waits come from: ranks that wait for nobody, a call in which those stand who did not come, a cycle."""
    if not waits:
        return []
    in_calls = {part.rank for still in stuck for part in still.culprits} | {
        part.rank for still in stuck for part in still.waiting if part.call and not part.call.is_completed
    }
    held = {rank for wait in waits for rank in wait.waiting} | in_calls
    roots = [wait for wait in waits if _unknown(wait, held) or any(rank not in held for rank in wait.absent)]
    if roots:
        return _without_repeats([_root(wait, held, by_rank) for wait in roots])
    if any(rank in in_calls for wait in waits for rank in wait.absent):
        return [still for still in stuck if still.kind != DIFFERENT]
    return [_cycle(waits, by_rank)]


def _unknown(wait: _Wait, held: set[int]) -> list[int]:
    """Ranks that may or may not have come, and are not known to stand elsewhere."""
    return [*wait.silent, *wait.older, *(rank for rank in wait.overwritten if rank not in held)]


def _root(wait: _Wait, held: set[int], by_rank: Mapping[int, Dump]) -> Standstill:
    idle = [rank for rank in wait.absent if rank not in held]
    first = next(iter(wait.waiting.values()))
    return Standstill(
        NO_PARTNER if wait.pair else MISSING,
        wait.group,
        wait.seq,
        first.operation,
        [_part(rank, by_rank, by_rank[rank].last) for rank in idle],
        [_part(rank, by_rank, call) for rank, call in wait.waiting.items()],
        silent=wait.silent,
        older=wait.older,
        overwritten=[rank for rank in wait.overwritten if rank not in held],
        made=wait.pair.made if wait.pair else None,
    )


def _without_repeats(causes: list[Standstill]) -> list[Standstill]:
    """The same ranks once, by the first call that they did not make: others wait in later ones."""
    kept: dict[tuple[object, ...], Standstill] = {}
    for cause in sorted(causes, key=lambda cause: (_order(cause), -len(cause.waiting))):
        kept.setdefault((*(part.rank for part in cause.culprits), None, *cause.unknown), cause)
    return list(kept.values())


def _order(cause: Standstill) -> int:
    """When the first of those that wait made the call, in the order of its own calls."""
    return min((part.call.order for part in cause.waiting if part.call), default=0)


def _cycle(waits: Sequence[_Wait], by_rank: Mapping[int, Dump]) -> Standstill:
    """Ranks that wait for each other, beginning anywhere: each is followed by one for which it waits."""
    targets: dict[int, tuple[_Wait, int]] = {}
    for wait in waits:
        for rank in wait.waiting:
            targets.setdefault(rank, (wait, wait.absent[0]))
    rank = next(iter(targets))
    order: dict[int, int] = {}
    while rank not in order:
        order[rank] = len(order)
        rank = targets[rank][1]
    ring = [member for member in order if order[member] >= order[rank]]
    parts = [_part(member, by_rank, targets[member][0].waiting[member]) for member in ring]
    others = {member for wait in waits for member in wait.waiting} - set(ring)
    first = targets[ring[0]][0]
    operation = first.waiting[ring[0]].operation
    waiting = [_part(member, by_rank, targets[member][0].waiting[member]) for member in sorted(others)]
    return Standstill(CYCLE, first.group, first.seq, operation, parts, waiting)


def _part(rank: int, by_rank: Mapping[int, Dump], call: Call | None) -> Part:
    return Part(rank, by_rank[rank].name, call)
