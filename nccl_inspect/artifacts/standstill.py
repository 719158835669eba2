"""Compares the dumps of all ranks: which call the job stands still in, who did not make it, and who waits for whom.

Every kind is a fact of the dumps, in the order of cause and effect: ranks that made different calls under
one number; a rank that did not make a call, on its own or since it waits elsewhere; a call that all made and that did
not end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from nccl_inspect.artifacts import pairwise, peers
from nccl_inspect.artifacts.calls import SYMMETRIC, Call
from nccl_inspect.artifacts.causes import CYCLE, DIFFERENT, MISSING, NO_PARTNER, PARTLY, UNFINISHED
from nccl_inspect.artifacts.chains import Blocked, Chains
from nccl_inspect.artifacts.flight_recorder import WORLD, Dump, Group
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.records import Frozen, Record, frozen, record

_SAME_SIZE = ("all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base", "all_gather_into_tensor")
"""Operations to which every rank passes the same number of elements."""


@frozen
class Part(Frozen):
    """Holds what one rank has to do with a standstill."""

    rank: int
    dump: str
    """The file that says so."""
    call: Call | None
    """The one it is about; for a rank that did not make it, the last one that it made."""


@frozen
class Link(Frozen):
    """Ranks that wait in a call for others."""

    ranks: tuple[int, ...]
    call: Call
    group: Group
    awaited: tuple[int, ...]


@record
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
    odd: list[int] = field(default_factory=list)
    """Of a cycle the ranks that make its calls in another order than all others."""
    peers: int = 0
    """How many ranks of other groups with that description made the call of those that wait."""
    chain: list[Link] = field(default_factory=list)
    """The calls in which others wait because of it, nearest first."""
    made: int | None = None
    """Of a transfer how many of them the side that is away has made."""

    @property
    def unknown(self) -> list[int]:
        """Ranks that may or may not have made the call."""
        return sorted({*self.silent, *self.older, *self.overwritten})


@frozen
class _Wait(Frozen):
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


def of(dumps: Iterable[Dump], busy: Collection[int] = ()) -> list[Standstill]:
    """Return what holds the job up, causes only: a rank that waits for another one is not a cause.

    Args:
        dumps: of any number of ranks; those without a rank are left out.
        busy: ranks that wait for others outside of all calls, such as for those of a communicator that is being made.
    """
    by_rank = {dump.rank: dump for dump in dumps if dump.rank is not None}
    blocked = list(_blocked(groups(by_rank), by_rank))
    chains = Chains([_link(entry) for entry in blocked], busy)
    causes = {number: blocked[number] for number in chains.roots}
    different = [cause for cause in causes.values() if isinstance(cause, Standstill) and cause.kind == DIFFERENT]
    waits = {
        number: _root(number, cause, chains, by_rank) for number, cause in causes.items() if isinstance(cause, _Wait)
    }
    kept = _without_repeats(waits.values())
    for cause in kept[:_MOST_CHAINS]:
        same = [number for number, other in waits.items() if _who(other) == _who(cause)]
        following = [number for number in chains.following(same) if waits.get(number) is not cause]
        cause.chain = [_hop(number, blocked[number], chains) for number in following[:_MOST_LINKS]]
    certain = [*different, *kept, *_cycle(chains.ring(), blocked, by_rank)]
    unfinished = [cause for cause in causes.values() if isinstance(cause, Standstill) and cause.kind != DIFFERENT]
    return certain or unfinished


_MOST_CHAINS, _MOST_LINKS = 3, 8
"""Causes of which the calls that wait for them are listed, and how many of these."""


def _blocked(every: Sequence[tuple[Group, list[int]]], by_rank: Mapping[int, Dump]) -> Iterator[Standstill | _Wait]:
    """The calls that are not over, the first of each group and pair of ranks."""
    siblings = peers.Siblings(every, by_rank, _kind)
    for group, members in every:
        calls = _collectives(group, members, by_rank)
        first = _first_pending(calls)
        if first is None:
            continue
        if difference := _different(group, calls, first, by_rank, siblings):
            yield difference
            continue
        wait = _wait(group, members, calls, first, by_rank)
        is_wait = wait.absent or wait.silent or wait.older or wait.overwritten
        yield wait if is_wait else _unfinished(group, calls, first, by_rank)
    for pair in pairwise.pairs(every, by_rank):
        if pair.kind == pairwise.NO_END:
            yield _missing_end(pair, by_rank)
        elif pair.kind == pairwise.CROSSED:
            yield from _crossed(pair)
        else:
            yield _of_pair(pair, by_rank)


def _link(entry: Standstill | _Wait) -> Blocked:
    """Return what a blocked call has to do with others."""
    if isinstance(entry, _Wait):
        return Blocked(entry.waiting, entry.absent, [*entry.silent, *entry.older], entry.overwritten)
    parts = [part for part in (*entry.culprits, *entry.waiting) if part.call and not part.call.is_completed]
    return Blocked({part.rank: part.call for part in parts if part.call}, is_cause=entry.kind == DIFFERENT)


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
    group: Group,
    calls: Mapping[int, Mapping[int, Call]],
    first: int,
    by_rank: Mapping[int, Dump],
    siblings: peers.Siblings,
) -> Standstill | None:
    """The first number under which ranks made different calls, up to the one in which they wait."""
    numbers = sorted({seq for of in calls.values() for seq in of if seq <= first})
    for seq in numbers:
        made = {rank: of[seq] for rank, of in calls.items() if seq in of}
        kinds = Counter(map(_kind, made.values()))
        if len(kinds) < 2:
            continue
        usual, most = kinds.most_common(1)[0]
        is_tie, agreeing = list(kinds.values()).count(most) > 1, 0
        if is_tie and (elsewhere := siblings.usual(group, seq)) and elsewhere[0] in kinds:
            is_tie, (usual, agreeing) = False, elsewhere
        odd = [rank for rank, call in made.items() if is_tie or _kind(call) != usual]
        rest = [rank for rank, call in made.items() if not is_tie and _kind(call) == usual]
        return Standstill(
            DIFFERENT,
            group,
            seq,
            made[odd[0]].operation,
            [_part(rank, by_rank, made[rank]) for rank in odd],
            [_part(rank, by_rank, made[rank]) for rank in rest],
            peers=agreeing,
        )
    return None


def _kind(call: Call) -> Hashable:
    """Return what calls of one number have in common where they fit together."""
    size = sum(call.inputs) if call.operation in _SAME_SIZE else None
    return call.operation, size, call.dtypes


def _wait(
    group: Group,
    members: Sequence[int],
    calls: Mapping[int, Mapping[int, Call]],
    seq: int,
    by_rank: Mapping[int, Dump],
) -> _Wait:
    """Return who is in a call, and who did not come to it, as far as the dumps show."""
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


def _root(number: int, wait: _Wait, chains: Chains, by_rank: Mapping[int, Dump]) -> Standstill:
    """A wait for ranks that wait for nobody."""
    first = next(iter(wait.waiting.values()))
    unknown = chains.unknown(number)
    return Standstill(
        NO_PARTNER if wait.pair else MISSING,
        wait.group,
        wait.seq,
        first.operation,
        [_part(rank, by_rank, by_rank[rank].last) for rank in chains.idle(number)],
        [_part(rank, by_rank, call) for rank, call in wait.waiting.items()],
        silent=[rank for rank in wait.silent if rank in unknown],
        older=[rank for rank in wait.older if rank in unknown],
        overwritten=[rank for rank in wait.overwritten if rank in unknown],
        made=wait.pair.made if wait.pair else None,
    )


def _hop(number: int, entry: Standstill | _Wait, chains: Chains) -> Link:
    """A blocked call with the ranks for which it waits."""
    pending = _link(entry).pending
    awaited = [*chains.idle(number), *chains.unknown(number), *chains.held(number)]
    ranks = tuple(sorted(pending.keys() - awaited))
    return Link(ranks, next(iter(pending.values())), entry.group, tuple(sorted(awaited)))


def _who(cause: Standstill) -> tuple[object, ...]:
    """The ranks that have to be looked at."""
    return (*(part.rank for part in cause.culprits), None, *cause.unknown)


def _without_repeats(causes: Iterable[Standstill]) -> list[Standstill]:
    """Return the same ranks once, by the first call that they did not make: others wait in later ones.

    Ranks of which nothing is known are named once, together.
    """
    kept: dict[tuple[object, ...], Standstill] = {}
    for cause in sorted(causes, key=lambda cause: (_order(cause), -len(cause.waiting))):
        kept.setdefault(_who(cause), cause)
    unknown = [set(cause.unknown) for cause in kept.values() if not cause.culprits]
    return [
        cause for cause in kept.values() if cause.culprits or not any(set(cause.unknown) < other for other in unknown)
    ]


def _order(cause: Standstill) -> int:
    """Return when the first of those that wait made the call, in the order of its own calls."""
    return min((part.call.order for part in cause.waiting if part.call), default=0)


def _cycle(
    ring: Sequence[tuple[int, int]], blocked: Sequence[Standstill | _Wait], by_rank: Mapping[int, Dump]
) -> Iterator[Standstill]:
    """Ranks that wait for each other: each is followed by one for which it waits."""
    if not ring:
        return
    calls = [(rank, _link(blocked[number]).pending[rank]) for rank, number in ring]
    first = blocked[ring[0][1]]
    members = {rank for rank, _ in ring}
    others = {rank: call for _, number in ring for rank, call in _link(blocked[number]).pending.items()}
    yield Standstill(
        CYCLE,
        first.group,
        first.seq,
        calls[0][1].operation,
        [_part(rank, by_rank, call) for rank, call in calls],
        [_part(rank, by_rank, others[rank]) for rank in sorted(others.keys() - members)],
        odd=peers.out_of_order(calls, by_rank),
    )


def _part(rank: int, by_rank: Mapping[int, Dump], call: Call | None) -> Part:
    return Part(rank, by_rank[rank].name, call)
