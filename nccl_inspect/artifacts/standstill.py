"""Compares the calls of all ranks: which one the job stands still in, who did not make it, and who waits for whom.

Every kind is a fact of the rows, in the order of cause and effect: ranks that made different calls under one number; a
rank that did not make a call, on its own or since it waits elsewhere; a call that all made and that did not end. A rank
is in the first of its calls that is not over: what it called after that cannot begin before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache, cached_property

from nccl_inspect.artifacts import CYCLE, DIFFERENT, MISSING, NO_PARTNER, PARTLY, UNFINISHED
from nccl_inspect.artifacts.flight_recorder import SYMMETRIC, WORLD, Call, Direction, Dump, Group
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Frozen, Record

_SAME_SIZE = (
    *("all_reduce", "broadcast", "_broadcast_oop", "reduce"),
    *("_all_gather_base", "_reduce_scatter_base", "all_gather_into_tensor"),
)
"""Operations to which every rank passes the same number of elements."""
_MOST_CHAINS, _MOST_LINKS = 3, 8  # causes of which the calls that wait for them are listed, and how many of these
_FEWEST = 2  # other ranks that must agree on what is usual
_Rows = Mapping[int, Dump]
_Groups = Sequence[tuple[Group, list[int]]]
_Kind = tuple[str, int | None, tuple[str, ...]]  # see `_kind`
_Place = tuple[str, int]  # a call by the description of its group and its number there


class Part(Frozen):
    """Holds what one rank has to do with a standstill."""

    rank: int
    dump: str  # the file that says so
    call: Call | None  # the one it is about; for a rank that did not make it, the last one that it made
    label: str  # of the group of that call, as the program names it


class Link(Frozen):
    """Ranks that wait in a call for others."""

    ranks: tuple[int, ...]
    call: Call
    group: Group
    awaited: tuple[int, ...]


class Standstill(Record):
    """A call that is not over, or that ranks made in different ways: where nothing else explains it, a cause."""

    kind: str
    group: Group
    seq: int
    pending: Mapping[int, Call]  # what the ranks in it called, by rank
    culprits: list[Part] = field(default_factory=list)
    """The ranks that have to be looked at; those of a cycle each with the call in which it waits."""
    waiting: list[Part] = field(default_factory=list)  # the ranks that wait for them
    absent: Sequence[int] = ()  # ranks that did not make it
    silent: list[int] = field(default_factory=list)  # ranks of the group that made no dump: nothing is known of them
    older: list[int] = field(default_factory=list)
    """Ranks whose dump is older than those of the others: it lacks calls that the others finished with them."""
    overwritten: list[int] = field(default_factory=list)
    """Ranks whose dump no longer has the calls of this group; where they stand is known."""
    odd: list[int] = field(default_factory=list)
    """Of a cycle the ranks that make its calls in another order than all others."""
    peers: int = 0  # how many ranks of other groups with that description made the call of those that wait
    chain: list[Link] = field(default_factory=list)  # the calls in which others wait because of it, nearest first
    over: Mapping[int, Call | None] = field(default_factory=dict)
    """The ranks on which it is over, each with the later call of the group in which it is."""
    made: int | None = None  # of a transfer how many of them the side that is away has made

    @property
    def is_wait(self) -> bool:
        """Return whether ranks may be missing from it."""
        return self.kind in (MISSING, NO_PARTNER)

    @property
    def is_symmetric(self) -> bool:
        """Return whether it is a call that is over on no rank before every rank has come."""
        return all(call.operation in SYMMETRIC for call in self.pending.values() if call.operation)

    @property
    def operation(self) -> str:
        """Return the operation that is not over, or that is not what others call."""
        return next(part.call.operation for part in (self.waiting if self.is_wait else self.culprits) if part.call)

    @property
    def unknown(self) -> list[int]:
        """Return ranks that may or may not have made the call."""
        return sorted({*self.silent, *self.older, *self.overwritten})


def find_standstills(dumps: Iterable[Dump], busy: Collection[int] = ()) -> list[Standstill]:
    """Return what holds the job up, causes only: a rank that waits for another one is not a cause.

    Dumps of any number of ranks show it. Busy ranks wait for others outside of all calls, such as for those of a
    communicator that is being made.
    """
    rows = {dump.rank: dump for dump in dumps if dump.rank is not None}
    every = groups(rows)
    blocked = [*_blocked_collectives(every, rows), *_blocked_transfers(every, rows)]
    chains = _Chains(blocked, busy)
    stills = [blocked[number] for number in chains.roots if not blocked[number].is_wait]
    waits = {number: _root(number, chains, rows) for number in chains.roots if blocked[number].is_wait}
    kept = _without_repeats(waits.values())
    for cause in kept[:_MOST_CHAINS]:
        same = [number for number, other in waits.items() if _who(other) == _who(cause)]
        following = [number for number in chains.following(same) if waits.get(number) is not cause]
        cause.chain = [_link(number, chains) for number in following[:_MOST_LINKS]]
    different = [still for still in stills if still.kind == DIFFERENT]
    return [*different, *kept, *_cycle(chains, rows)] or stills


def groups(rows: _Rows) -> list[tuple[Group, list[int]]]:
    """Return each group with its ranks; the same name with other ranks is another group.

    Early versions number groups per process: there only number 0 is the same group everywhere.
    """
    by_name: dict[tuple[str, tuple[int, ...]], tuple[Group, list[int]]] = {}
    unlisted: list[tuple[int, Group]] = []
    seen: set[int] = set()
    for rank, dump in sorted(rows.items()):
        for group in dump.groups.values():
            if id(group) in seen:
                continue  # rows that are made of one log share their groups
            if group.ranks:
                seen.add(id(group))
                by_name.setdefault((group.name, group.ranks), (group, list(group.ranks)))
            elif group.name in dump.calls:
                unlisted.append((rank, group))
    listed = group_values((name, set(ranks)) for name, ranks in by_name)
    for rank, group in unlisted:
        if any(rank in ranks for ranks in listed.get(group.name, ())):
            continue  # the dump of another rank lists its ranks
        if group.desc or group.name in (WORLD, ""):
            by_name.setdefault((group.name, ()), (group, []))[1].append(rank)
    return list(by_name.values())


def _part(rank: int, rows: _Rows, call: Call | None) -> Part:
    row = rows[rank]
    return Part(rank, row.name, call, row.groups[call.group].label if call else "")


# Collectives


def _blocked_collectives(every: _Groups, rows: _Rows) -> Iterator[Standstill]:
    """Yield the first collective of each group that is not over on a rank that called it."""
    alike = group_values(((group.label, len(group.ranks)), (group, members)) for group, members in every)

    @cache
    def count_alike(label: str, size: int) -> dict[int, Counter[_Kind]]:
        return _count(alike[label, size], rows)

    for group, members in every:
        calls = {
            rank: {call.seq: call for call in _select_collectives(rows[rank], group.name)}
            for rank in members
            if rank in rows and group.name in rows[rank].groups
        }
        seq = min((one.seq for made in calls.values() for one in made.values() if not one.is_completed), default=None)
        if seq is None:
            continue
        if still := _different(group, calls, rows, count_alike):
            yield still
            continue
        pending = {rank: made[seq] for rank, made in calls.items() if seq in made and not made[seq].is_completed}
        absent = [rank for rank in calls if rows[rank].has_called(group.name, seq) is False]
        # Others finished later calls that need all ranks: these came to them, and their dumps lack that.
        finished = {rank: [one for one in made.values() if one.is_completed] for rank, made in calls.items()}
        over = {
            rank: next((one for one in calls[rank].values() if one.seq > seq and not one.is_completed), None)
            for rank, some in finished.items()
            if any(one.seq >= seq for one in some)
        }
        symmetric = (one.seq for some in finished.values() for one in some if one.operation in SYMMETRIC)
        last = max(symmetric, default=0)
        older = sorted(rank for rank in absent if calls[rank] and max(calls[rank]) < last)
        absent = [rank for rank in absent if rank not in older]
        silent = [rank for rank in members if rank not in rows]
        overwritten = [rank for rank in calls if rows[rank].has_called(group.name, seq) is None]
        still = Standstill(MISSING, group, seq, pending, [], [], absent, silent, older, overwritten, over=over)
        if not (absent or still.unknown):
            still.kind = PARTLY if over else UNFINISHED
            still.culprits = [_part(rank, rows, one) for rank, one in pending.items()]
            still.waiting = [_part(rank, rows, calls[rank].get(seq)) for rank in over]
        yield still


def _different(
    group: Group,
    calls: Mapping[int, Mapping[int, Call]],
    rows: _Rows,
    count_alike: Callable[[str, int], dict[int, Counter[_Kind]]],
) -> Standstill | None:
    """Return the first number under which ranks made different calls.

    Groups with one description have the same part in the program, such as all groups of tensor parallelism: of two
    ranks that disagree, the one that does as all ranks of the other groups is right, else the one whose operation
    the other ranks of the group call as well.
    """
    for seq in sorted({seq for made in calls.values() for seq in made}):
        here = {rank: made[seq] for rank, made in calls.items() if seq in made and made[seq].operation}
        kinds = Counter(map(_kind, here.values()))
        if len(kinds) < 2:
            continue
        common, most = kinds.most_common(1)[0]
        is_tie, agreeing = list(kinds.values()).count(most) > 1, 0
        if is_tie:
            others = count_alike(group.label, len(group.ranks))[seq] - _count([(group, [*calls])], rows)[seq]
            if len(others) == 1 and others.total() >= _FEWEST and others.keys() <= kinds.keys():
                is_tie, (common, agreeing) = False, others.most_common(1)[0]
            elsewhere = {made[max(made)].operation for rank, made in calls.items() if made and rank not in here}
            usual = [kind for kind in kinds if kind[0] in elsewhere]
            if is_tie and len(usual) == 1:
                is_tie, common = False, usual[0]
        odd = [_part(rank, rows, call) for rank, call in here.items() if is_tie or _kind(call) != common]
        rest = [_part(rank, rows, call) for rank, call in here.items() if not is_tie and _kind(call) == common]
        pending = {rank: call for rank, call in here.items() if not call.is_completed}
        return Standstill(DIFFERENT, group, seq, pending, odd, rest, peers=agreeing)
    return None


def _count(some: _Groups, rows: _Rows) -> dict[int, Counter[_Kind]]:
    """Return by number what ranks call in their groups, and how many."""
    members = ((rows.get(rank), group.name) for group, ranks in some for rank in ranks)
    calls = (call for dump, name in members for call in _select_collectives(dump, name))
    return {seq: Counter(kinds) for seq, kinds in group_values((call.seq, _kind(call)) for call in calls).items()}


def _kind(call: Call) -> _Kind:
    """Return what calls of one number have in common where they fit together."""
    is_sized = bool(call.group) and call.operation in _SAME_SIZE  # where lines name no group these may be of several
    return call.operation, sum(call.inputs) if is_sized else None, call.dtypes


def _select_collectives(dump: Dump | None, group: str) -> Iterable[Call]:
    return () if dump is None else (call for call in dump.calls.get(group, ()) if not call.is_p2p)


# Sends and receives


def _blocked_transfers(every: _Groups, rows: _Rows) -> Iterator[Standstill]:
    """Yield the first open transfer of each pair of ranks, from the calls of both sides."""
    for group, members in every:
        lanes: dict[frozenset[int], dict[int, list[Call]]] = {}
        for rank in members if group.ranks else ():
            for call in rows[rank].pending(group.name) if rank in rows else ():
                peers = call.peers if call.is_p2p else None
                if peers and max(peers) < len(members):
                    lanes.setdefault(frozenset(peers), {}).setdefault(rank, []).append(call)
        for lane, waiting in lanes.items():
            if len(lane) > 1:  # a rank may send to itself
                first = {rank: _first_open_calls(calls) for rank, calls in waiting.items()}
                yield from _blocked_transfer(group, {members[place] for place in lane}, first, rows)


def _first_open_calls(calls: Sequence[Call]) -> dict[Direction, Call]:
    """Return the first open call with a peer, or the batch of them: what is in a batch has no order."""
    first: dict[Direction, Call] = {}
    for call in calls:
        if call.peers and call.seq == calls[0].seq:
            first.setdefault(call.peers, call)
    return first


def _blocked_transfer(
    group: Group, ranks: Collection[int], waiting: Mapping[int, Mapping[Direction, Call]], rows: _Rows
) -> Iterator[Standstill]:
    away = tuple(rank for rank in sorted(ranks) if rank not in waiting)
    ends = {rank: next(iter(calls.values())) for rank, calls in waiting.items()}
    call = next(iter(ends.values()))
    kind, over = UNFINISHED, list[Part]()
    if away:  # the other side never came, or it is over there, as small sends are at once
        dump = rows.get(away[0])
        transfers = None if dump is None or dump.is_partial else dump.transfers
        made = None if transfers is None else transfers.get((group.name, next(iter(next(iter(waiting.values()))))), 0)
        if made is None or not 0 < call.nth <= made:
            absent, silent = ([rank for rank in away if (rank in rows) is is_here] for is_here in (True, False))
            yield Standstill(NO_PARTNER, group, call.seq, ends, absent=absent, silent=silent, made=made)
            return
        kind, over = PARTLY, [_part(rank, rows, None) for rank in away]
    else:
        here, there = waiting.values()
        both = next((peers for peers in here if peers in there), None)
        if both is None:  # both send, or both receive, first: each in a call that the other makes only after its own
            for rank, own in ends.items():
                yield Standstill(NO_PARTNER, group, own.seq, {rank: own}, absent=[one for one in ends if one != rank])
            return
        ends = {rank: calls[both] for rank, calls in waiting.items()}
        call, other = ends.values()
        if call.nth and call.nth == other.nth:
            sizes = (sum(one.inputs or one.outputs) for one in (call, other))
            kind = DIFFERENT if len(set(sizes)) > 1 or call.dtypes != other.dtypes else kind
    parts = [_part(rank, rows, end) for rank, end in ends.items()]
    pending = {rank: end for rank, end in ends.items() if not end.is_completed}
    yield Standstill(kind, group, call.seq, pending, parts, over)


# Who waits for whom


class _Chains:
    """Follows the waits of ranks from call to call to where they began.

    A call waits for the ranks that did not make it, and for those that made it but are in an earlier one.
    """

    def __init__(self, calls: Sequence[Standstill], busy: Collection[int] = ()) -> None:
        self.calls, self._busy = calls, busy
        self._stands: dict[int, int] = {}  # the call in which each rank stands, or behind which
        self.own: dict[int, Call] = {}
        """Of each rank the call in which it stands."""
        for number, call in enumerate(calls):
            later = {rank: one for rank, one in call.over.items() if one}
            for rank, pending in {**later, **call.pending}.items():
                if rank not in self._stands or pending.order < self.own[rank].order:
                    self._stands[rank], self.own[rank] = number, pending

    def idle(self, number: int) -> list[int]:
        """Return the ranks that a call waits for and that wait for nobody; else those that are busy elsewhere."""
        idle = [rank for rank in self.calls[number].absent if rank not in self._stands]
        return [rank for rank in idle if rank not in self._busy] or ([] if self.unknown(number) else idle)

    def unknown(self, number: int) -> list[int]:
        """Return the ranks that may have made a call, and of which nothing shows that they stand elsewhere."""
        call = self.calls[number]
        silent = [rank for rank in (*call.silent, *call.older) if rank not in self._busy]
        return [*silent, *(rank for rank in call.overwritten if rank not in self._stands)]

    def find_busy(self, number: int) -> list[int]:
        """Return the ranks that a call waits for and that are in another one."""
        call = self.calls[number]
        if call.kind == DIFFERENT:
            return []
        ranks = call.absent or [*call.pending, *call.overwritten]
        return [rank for rank in dict.fromkeys(ranks) if self._stands.get(rank, number) != number]

    @cached_property
    def roots(self) -> list[int]:
        """Return the calls in which a wait begins.

        Ranks of which nothing is known are where it begins only if nothing that is known holds up the call.
        """
        numbers = range(len(self.calls))
        known = [number for number in numbers if self._begins(number)]
        explained = {*self.following(known), *self._stuck_in_rings}
        return sorted({*known, *(number for number in numbers if number not in explained and self.unknown(number))})

    def _begins(self, number: int) -> bool:
        call = self.calls[number]
        if call.kind == DIFFERENT or any(rank not in self._busy and rank not in self._stands for rank in call.absent):
            return True
        if self.unknown(number):
            return False
        return bool(self.idle(number)) or not (self.find_busy(number) or call.silent or call.older)

    @cached_property
    def _stuck_in_rings(self) -> set[int]:
        """Return the calls that wait for ranks that wait for each other, and those of these ranks."""
        left = {
            number: len({self._stands[rank] for rank in self.find_busy(number)}) for number in range(len(self.calls))
        }
        ends = [number for number, count in left.items() if not count]
        for number in ends:
            for other in self._causes.get(number, ()):
                left[other] -= 1
                if not left[other]:
                    ends.append(other)
        return set(left) - set(ends)

    def following(self, roots: Iterable[int]) -> list[int]:
        """Return the calls that wait because of others, nearest first, behind those."""
        reached = dict.fromkeys(roots)
        queue = list(reached)
        for number in queue:
            fresh = [other for other in self._causes.get(number, ()) if other not in reached]
            reached.update(dict.fromkeys(fresh))
            queue.extend(fresh)
        return queue

    @cached_property
    def _causes(self) -> dict[int, list[int]]:
        held = ((number, self._stands[rank]) for number in range(len(self.calls)) for rank in self.find_busy(number))
        return group_values((cause, number) for number, cause in dict.fromkeys(held))

    def ring(self) -> list[tuple[int, int]]:
        """Return ranks that wait for each other, and for nothing else, each with its call; empty if none do."""
        ends = [number for number in range(len(self.calls)) if not self.find_busy(number)]
        explained = set(self.following([*self.roots, *ends]))
        rank = next((rank for rank, number in self._stands.items() if number not in explained), None)
        order: dict[int, int] = {}
        while rank is not None and rank not in order:
            order[rank] = len(order)
            rank = self.find_busy(self._stands[rank])[0]
        return [] if rank is None else [(m, self._stands[m]) for m in order if order[m] >= order[rank]]


def _root(number: int, chains: _Chains, rows: _Rows) -> Standstill:
    """Return a wait with the ranks that wait for nobody, and those of which nothing is known."""
    wait, unknown = chains.calls[number], set(chains.unknown(number))
    return wait.with_fields(
        culprits=[_part(rank, rows, rows[rank].last) for rank in chains.idle(number)],
        waiting=[_part(rank, rows, call) for rank, call in wait.pending.items()],
        silent=[rank for rank in wait.silent if rank in unknown],
        older=[rank for rank in wait.older if rank in unknown],
        overwritten=[rank for rank in wait.overwritten if rank in unknown],
    )


def _link(number: int, chains: _Chains) -> Link:
    call = chains.calls[number]
    awaited = [*chains.idle(number), *chains.unknown(number), *chains.find_busy(number)]
    ranks = tuple(sorted(call.pending.keys() - awaited))
    return Link(ranks, next(iter(call.pending.values())), call.group, tuple(sorted(awaited)))


def _who(cause: Standstill) -> tuple[object, ...]:
    return (*(part.rank for part in cause.culprits), None, *cause.unknown)


def _without_repeats(causes: Iterable[Standstill]) -> list[Standstill]:
    """Return the same ranks once, by the first call that they did not make: others wait in later ones.

    Ranks of which nothing is known are named once, together.
    """

    def sort_key(cause: Standstill) -> tuple[int, int]:
        return min((part.call.order for part in cause.waiting if part.call), default=0), -len(cause.waiting)

    kept: dict[tuple[object, ...], Standstill] = {}
    for cause in sorted(causes, key=sort_key):
        kept.setdefault(_who(cause), cause)
    unknown = [set(cause.unknown) for cause in kept.values() if not cause.culprits]
    return [
        cause for cause in kept.values() if cause.culprits or not any(set(cause.unknown) < other for other in unknown)
    ]


def _cycle(chains: _Chains, rows: _Rows) -> Iterator[Standstill]:
    """Yield ranks that wait for each other: each is followed by one for which it waits."""
    if not (ring := chains.ring()):
        return
    calls = [(rank, chains.own[rank]) for rank, _ in ring]
    first = chains.calls[ring[0][1]]
    others = {rank: call for _, number in ring for rank, call in chains.calls[number].pending.items()}
    members = {rank for rank, _ in ring}
    yield Standstill(
        CYCLE,
        first.group,
        first.seq,
        first.pending,
        [_part(rank, rows, call) for rank, call in calls],
        [_part(rank, rows, others[rank]) for rank in sorted(others.keys() - members)],
        odd=_out_of_order(calls, rows),
    )


def _out_of_order(ring: Sequence[tuple[int, Call]], rows: _Rows) -> list[int]:
    """Return those of ranks that wait for each other which make two calls in another order than all other ranks.

    Groups with one description have the same part in the program; where a rank has several of them, each has its own.
    """
    if any(call.is_p2p for _, call in ring):
        return []
    labels = {rank: {name: group.label for name, group in dump.groups.items()} for rank, dump in rows.items()}
    names = {rank: {name: name for name in dump.groups} for rank, dump in rows.items()}
    return _find_odd(ring, rows, labels) or _find_odd(ring, rows, names)


def _find_odd(ring: Sequence[tuple[int, Call]], rows: _Rows, roles: Mapping[int, Mapping[str, str]]) -> list[int]:
    """Return the ranks of a ring whose two calls all others make in the other order, by groups with the same role."""
    places = [(roles[rank][call.group], call.seq) for rank, call in ring]
    # Of each rank the call in which it stands, and that in which the one before it waits for it.
    pairs = list(zip(places, [places[-1], *places[:-1]], strict=True))
    awaited = group_sets(pairs)
    first, last = defaultdict[tuple[_Place, _Place], set[int]](set), defaultdict[tuple[_Place, _Place], set[int]](set)
    of_ring = {role for role, _ in places}
    for rank, dump in rows.items():
        some = [(role, name) for name, role in roles[rank].items() if role in of_ring]
        calls = ((role, call) for role, name in some for call in _select_collectives(dump, name))
        made = group_values(((role, call.seq), call.order) for role, call in calls if (role, call.seq) in awaited)
        # One that it made in two groups with that role says nothing about the order.
        order = {place: orders[0] for place, orders in made.items() if len(orders) == 1}
        for here in order:
            for other in awaited[here] & order.keys():
                (last if order[here] > order[other] else first)[here, other].add(rank)
    members = {rank for rank, _ in ring}
    support = {
        rank: len(last[pair] - members)
        for (rank, _), pair in zip(ring, pairs, strict=True)
        if len(last[pair] - {rank}) >= _FEWEST and not first[pair] - {rank}
    }
    odd = [rank for rank, others in support.items() if others == max(support.values()) > 0]
    return odd if len(odd) < len(ring) else []
