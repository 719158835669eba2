"""Decides to which communicator the connection lines belong that name none (2.22 and later connect lazily).

Lines that belong together are a unit. Its candidates are the members of its process in which all of them fit: own rank,
GPUs in brackets, hosts, number of channels. What fits one member only is certain. Where lines fit several, what is
certain elsewhere excludes some: a connection prints once in a communicator, and a connection over the network has a
line at its other end. What is left is decided by the order in which other processes used the communicators, and marked
as a guess.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from functools import cache, cached_property
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeAlias

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import RINGS_AND_TREES, SEND_RECV, Member, ProcessMembers, with_more
from nccl_inspect.model.fold.fold import Burst, ProcessLog
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.records import Record, Slotted, record

MAX_QUESTIONS = 1_000_000
"""How often a burst of one process is compared with a communicator: about a second's work."""
Ends: TypeAlias = tuple[int, int | None, bool]
"""The ranks that a connection joins, and whether the receiving one printed it."""
Slots: TypeAlias = tuple[int, int]
"""The id of a member and a connection set, in which it has a connection of the same ends once for each channel."""


class Claims(NamedTuple):
    """Holds what a connection line says that only some communicators can have."""

    other: int | None
    """The rank at its other end; None for CollNet."""
    own_device: str | None
    other_device: str | None
    is_local: bool


class _ClaimsOfEvents(dict[int, Claims]):
    """Holds what connection lines claim by the id of their event, found out once for all edges that have the same."""

    def find(self, event: ChannelConnect) -> Claims:
        """Return the claims of an event."""
        if event.direction == "receive":
            claims = Claims(event.src, event.dst_dev, event.src_dev, event.is_local)
        else:
            claims = Claims(event.dst, event.src_dev, event.dst_dev, event.is_local)
        self[id(event)] = claims
        return claims


def _fits(member: Member, claims: Claims, channels: int) -> bool:
    """Return whether a connection of the rank of a member, with that number of channels, can be one of it."""
    other, own_device, other_device, is_local = claims
    comm, counts, names = member.communicator, member.counts, member.device_names
    if comm is None or (own_device and names and own_device not in names):  # as is_called, asked for every connection
        return False
    if counts and channels > counts.coll and channels > counts.p2p:
        return False
    if other is None:
        return True
    if other >= comm.nranks:
        return False
    mate = comm.members.get(other) or comm.mate(other)
    if mate is None:
        return True
    if other_device and mate.device_names and other_device not in mate.device_names:
        return False
    return not is_local or mate.log.process.host == member.log.process.host


class _Lives:
    """Finds the members that live at a place without asking all: a program may make thousands, one after the other.

    Args:
        members: in the order in which they began.
    """

    _FAN = 16

    def __init__(self, members: list[Member]) -> None:
        self._members = members
        self._begins = [member.first.place for member in members]
        ends: list[float] = [member.ended.place if member.ended else math.inf for member in members]
        self._latest = [ends]
        """The end of each member, the latest end of each group of them, of each group of groups, and so on."""
        while len(self._latest[-1]) > self._FAN:
            below = self._latest[-1]
            self._latest.append([max(below[at : at + self._FAN]) for at in range(0, len(below), self._FAN)])

    def at(self, place: int) -> list[Member]:
        """Return the members that live at a place, in their order."""
        if len(self._members) == 1:
            return self._members if self._begins[0] <= place <= self._latest[0][0] else []
        begun = bisect_right(self._begins, place)
        groups: Iterable[int] = range(len(self._latest[-1]))
        for level in range(len(self._latest) - 1, 0, -1):
            latest, fan, end = self._latest[level], self._FAN, -(-begun // self._FAN ** (level - 1))
            groups = [
                below
                for group in groups
                if latest[group] >= place
                for below in range(group * fan, min(group * fan + fan, end))
            ]
        ends, members = self._latest[0], self._members
        return [members[index] for index in groups if index < begun and ends[index] >= place]


_FEW = 16
"""Members that are asked about each connection; of more, what they answered is remembered."""


class _Candidates:
    """Finds the members of a process that connections fit; most of its communicators have the same ones.

    Args:
        members: of the process.
        claims: of connections.
    """

    def __init__(self, members: Iterable[Member], claims: _ClaimsOfEvents) -> None:
        self._claims = claims
        self._by_rank: defaultdict[int, list[Member]] = defaultdict(list)
        for member in members:
            self._by_rank[member.rank].append(member)
        self._fitting: dict[tuple[int, ...], _Lives] = {}
        self._lives: dict[tuple[int, ...], _Lives] = {}

    def find(self, edges: Collection[Edge], rank: int, place: int, conn: int | None) -> list[Member]:
        """Return the members in which all of some connections fit, in their order.

        Args:
            edges: of one burst.
            rank: that printed them.
            place: at which the members have to be alive.
            conn: the connection set.
        """
        key = tuple([part for edge in edges for part in (id(edge.event), edge.channels.bit_length())])
        found = (self._fitting.get(key) or self._fit(key, edges, rank)).at(place)
        return [member for member in found if not member.eager] if conn == RINGS_AND_TREES else found

    def find_each(self, burst: Burst) -> Iterator[list[Member]]:
        """Yield for each connection of a burst the members in which it fits."""
        _, conn, rank = burst.key
        members, claims_of = self._by_rank[rank], self._claims
        if len(members) > _FEW:
            for edge in burst.edges.values():
                yield self.find((edge,), rank, edge.place, conn)
            return
        members = [member for member in members if not (conn == RINGS_AND_TREES and member.eager)]
        for edge in burst.edges.values():
            place, channels = edge.place, edge.channels.bit_length()
            claims = claims_of.get(id(edge.event)) or claims_of.find(edge.event)
            if len(members) == 1:  # as in most processes; this takes half the time of what follows
                yield members if _fits(members[0], claims, channels) and members[0].lives_at(place) else []
            else:
                yield [member for member in members if _fits(member, claims, channels) and member.lives_at(place)]

    def _fit(self, key: tuple[int, ...], edges: Iterable[Edge], rank: int) -> _Lives:
        members = self._by_rank[rank]
        for edge in edges:
            if not members:
                break
            event, channels = edge.event, edge.channels.bit_length()
            claims = self._claims.get(id(event)) or self._claims.find(event)
            members = [member for member in members if _fits(member, claims, channels)]
        some = tuple(map(id, members))
        lives = self._fitting[key] = self._lives.get(some) or self._lives.setdefault(some, _Lives(members))
        return lives


@record
class Unit(Slotted):
    """Bursts that belong together, with the members they may belong to."""

    bursts: list[Burst]
    conn: int | None
    """The connection set, as printed, or as what follows shows; of an unknown one nothing excludes another."""
    left: dict[int, Member]
    """The candidates that are not excluded, by their ids."""
    is_divisible: bool = False
    """Whether each of its connections belongs to the candidate on its own."""
    doubtful: bool = False
    """Lines of several communicators may be in one burst."""
    lost: set[int] = field(default_factory=set)
    """The ids of those that have what it wants, as far as they are not struck out yet."""
    choice: tuple[Member, ...] = ()
    """The candidates that were left when its process began to guess."""


@record
class Attribution(Record):
    """Holds what became of the loose bursts."""

    homeless: list[tuple[ProcessLog, Burst]] = field(default_factory=list)
    """Bursts that fit no communicator that the log shows."""
    guessed: set[int] = field(default_factory=set)
    """The ids of bursts decided by the order of use only."""
    paired: set[int] = field(default_factory=set)
    """The ids of those whose ranks are the same in each communicator that they may be of."""
    given_up: int = 0
    """Connection lines that could not be compared with all communicators in reasonable time."""

    def is_guessed(self, bursts: Iterable[Burst]) -> bool:
        """Return whether there are bursts, and all were decided so."""
        ids = [*map(id, bursts)]
        return bool(ids) and self.guessed.issuperset(ids)


_End: TypeAlias = tuple[int | None, int, int | None, bool]
"""An end of a network connection: connection set, ranks, and whether it receives."""


class _OtherEnds:
    """Compares what the processes of both ends of network connections print.

    Args:
        bursts: of each process.
    """

    def __init__(self, bursts: Mapping[Process, Sequence[Burst]]) -> None:
        self._bursts = bursts
        self._printed = cache(self._list_printed)

    def narrow(self, unit: Unit) -> dict[int, Member]:
        """Return the candidates whose other ranks print the other ends of a unit, or all.

        A missing end excludes one only where another one has all of them, and where nothing shows that the log breaks
        off before such an end.
        """
        wanted: dict[int, set[_End]] = {}
        for event in _list_network_events(unit.bursts):
            conn, src, dst, receives = _find_end(event)
            if dst is not None:
                wanted.setdefault(src if receives else dst, set()).add((conn, src, dst, not receives))
        has_all = {key: self._has_all(member, wanted) for key, member in unit.left.items()}
        is_told = {True, False} <= set(has_all.values())
        if not is_told or any(end[:3] in self._broken_pairs for ends in wanted.values() for end in ends):
            return unit.left
        return {key: member for key, member in unit.left.items() if has_all[key] is not False}

    def _has_all(self, member: Member, wanted: Mapping[int, AbstractSet[_End]]) -> bool | None:
        """Return whether the ranks of a communicator print some ends; None if the log shows none of their lines."""
        assert member.communicator is not None
        has_all: bool | None = True
        for rank, ends in wanted.items():
            mate = member.communicator.members.get(rank)
            if mate is None:
                has_all = None
            elif not ends <= self._printed(mate.log.process):
                return False
        return has_all

    def _list_printed(self, process: Process) -> set[_End]:
        return set(map(_find_end, _list_network_events(self._bursts[process])))

    @cached_property
    def _broken_pairs(self) -> set[tuple[object, ...]]:
        """Return the connections that all senders do not print in as many channels as the receivers."""
        printed: dict[int, tuple[ChannelConnect, list[int]]] = {}
        """The channels of lines of the same event, by its id: a job has far fewer events than connections."""
        for bursts in self._bursts.values():
            for burst in bursts:
                for edge in burst.edges.values():
                    event = edge.event
                    if event.direction:
                        if (found := printed.get(id(event))) is None:
                            found = printed[id(event)] = event, []
                        found[1].append(edge.channels)
        balance = Counter[tuple[object, ...]]()
        for event, channels in printed.values():
            *connection, receives = _find_end(event)
            count = sum(map(int.bit_count, channels))
            balance[tuple(connection)] += -count if receives else count
        return {connection for connection, left in balance.items() if left}


def _list_network_events(bursts: Iterable[Burst]) -> list[ChannelConnect]:
    """Return what the ends of network connections say."""
    return [edge.event for burst in bursts for edge in burst.edges.values() if edge.event.direction]


def _find_end(event: ChannelConnect) -> _End:
    return event.conn, event.src, event.dst, event.direction == "receive"


class _FirstUses:
    """Holds when processes first used a communicator, counted in what each of them connected."""

    def __init__(self) -> None:
        self._by_log: dict[int, int] = {}
        self._ordered: list[int] = []
        """The same in their order, once somebody asked."""

    def add(self, log: ProcessLog, order: int) -> None:
        """Note a use by a process; only the first one counts."""
        if id(log) not in self._by_log:
            self._by_log[id(log)] = order
            if self._ordered:
                insort(self._ordered, order)

    def has(self, log: ProcessLog) -> bool:
        """Return whether a process used it."""
        return id(log) in self._by_log

    @property
    def usual(self) -> int:
        """Return the median."""
        self._ordered = self._ordered or sorted(self._by_log.values())
        return self._ordered[len(self._ordered) // 2]


class _OrderOfUse:
    """Holds in which order the processes used communicators: SPMD programs use them in the same order."""

    def __init__(self) -> None:
        self._first_uses: defaultdict[tuple[object, ...], _FirstUses] = defaultdict(_FirstUses)
        """By what a communicator is called in every process."""
        self._name = cache(_name_in_all_processes)

    def add(self, member: Member, order: int) -> None:
        """Note that a process used a communicator, and in which turn."""
        self._first_uses[self._name(member.communicator)].add(member.log, order)

    def find_turn(self, member: Member) -> tuple[object, ...]:
        """Return what sorts the communicators of a process by their likely turn."""
        first_uses = self._first_uses.get(self._name(member.communicator))
        if first_uses is None:
            return False, len(self._first_uses), member.first.place
        return first_uses.has(member.log), first_uses.usual, member.first.place


def _name_in_all_processes(comm: Communicator | None) -> tuple[object, ...]:
    ordinals: list[object] = []
    while comm is not None and comm.parent is not None:
        ordinals.append(comm.ordinal)
        comm = comm.parent
    return ("root", comm.first, *reversed(ordinals)) if comm is not None else ()


def attribute(processes: Collection[ProcessMembers]) -> Attribution:
    """Add every loose burst to the member it belongs to.

    Args:
        processes: with their members.
    """
    result, claims, order = Attribution(), _ClaimsOfEvents(), _OrderOfUse()
    for process in processes:
        _release_misplaced(process, claims)
    other_ends = _OtherEnds({process.log.process: process.bursts for process in processes})
    undecided: list[_ProcessWork] = []
    for process in processes:
        work = _ProcessWork(process, result, claims, order)
        work.settle()
        if work.units:
            undecided.append(work)
        else:
            work.connect()
    for work in undecided:
        work.narrow(other_ends)
    for work in undecided:  # guesses go by what all others did
        work.guess()
        work.connect()
    return result


def _release_misplaced(process: ProcessMembers, claims: _ClaimsOfEvents) -> None:
    """Take from members what they cannot have: with COMPLETE lost, later lines of the thread came to them."""
    misplaced = {
        id(burst)
        for member in process.members
        for burst in member.bursts
        if burst.key.rank != member.rank
        or not all(
            _fits(member, claims.get(id(edge.event)) or claims.find(edge.event), edge.channels.bit_length())
            for edge in burst.edges.values()
        )
    }
    if not misplaced:
        return
    for member in process.members:
        for burst in member.bursts:
            if id(burst) in misplaced:
                process.leave(burst)
        member.bursts = [burst for burst in member.bursts if id(burst) not in misplaced]
    process.loose.sort(key=attrgetter("place"))
    process.by_caller = any(burst.key.tid in process.callers for burst in process.loose)


class _ProcessWork:
    """Gives the loose bursts of a process to its members.

    Args:
        process: with its members.
        result: of all processes.
        claims: of connections.
        order: in which processes used communicators.
    """

    def __init__(
        self, process: ProcessMembers, result: Attribution, claims: _ClaimsOfEvents, order: _OrderOfUse
    ) -> None:
        self._process, self._result, self._order = process, result, order
        self._candidates = _Candidates(process.members, claims)
        self._questions = MAX_QUESTIONS
        self._uses = 0
        """How often it used a communicator."""
        self._given: list[tuple[Burst, Member]] = []
        """The bursts that came to members here."""
        self._used: defaultdict[Slots, dict[Ends, int]] = defaultdict(dict)
        """The channels of connections that are there already."""
        self._wanting: defaultdict[Slots, dict[Ends, list[tuple[Unit, int]]]] = defaultdict(dict)
        """The units that may be of a member and want a connection of it, and in which channels."""
        for member in process.members:
            for burst in member.bursts:  # what stands between START and COMPLETE
                self._take(burst, member, RINGS_AND_TREES)
        self.units: list[Unit] = []
        """Those that are not decided yet, in their order."""
        for unit in sorted(self._form_units(), key=lambda unit: unit.bursts[0].place):
            if unit.left:
                self.units.append(unit)
                self._want(unit)
            else:
                self._give_up(unit)

    def _form_units(self) -> Iterator[Unit]:
        """Yield the units: bursts of a helper thread belong together when one communicator can have them all.

        Since 2.28 the calling thread itself connects, one communicator after the other: there only what stands between
        two ``Connected …`` lines belongs together, and connections of send/recv, which have none, may be of several.
        """
        process = self._process
        together: dict[tuple[int, ...], list[Burst]] = {}
        for burst in process.loose:
            if process.is_apart(burst):
                yield from self._divide(burst)
            else:
                together.setdefault(process.together(burst), []).append(burst)
        for bursts in together.values():
            conns = [self._find_conn(burst) for burst in bursts]
            found = [
                {id(member): member for member in self._find(burst.edges.values(), burst, burst.place, conn)}
                for burst, conn in zip(bursts, conns, strict=True)
            ]
            shared = {key: member for key, member in found[0].items() if all(key in some for some in found)}
            if shared:
                yield Unit(bursts, conns[0] if len(set(conns)) == 1 else None, shared)
                continue
            for burst, conn, members in zip(bursts, conns, found, strict=True):
                if members or len(burst.edges) == 1:
                    yield Unit([burst], conn, members)
                else:
                    yield from self._divide(burst)

    def _find_conn(self, burst: Burst) -> int | None:
        """Return the connection set of a loose burst, as printed, or as what follows shows."""
        if burst.key.conn is None and self._process.closing(burst) is not None:
            return RINGS_AND_TREES
        return burst.key.conn

    def _find(self, edges: Collection[Edge], burst: Burst, place: int, conn: int | None) -> list[Member]:
        return self._candidates.find(edges, burst.key.rank, place, conn)

    def _divide(self, burst: Burst) -> Iterator[Unit]:
        """Yield the connections of a burst by what they fit, and those that fit several as one doubtful rest."""
        conn = burst.key.conn
        by_member: dict[Member | None, list[tuple[object, ...]]] = {}
        rest: list[tuple[object, ...]] = []
        for key, members in zip(burst.edges, self._candidates.find_each(burst), strict=True):
            if len(members) > 1:
                rest.append(key)
            else:
                member = members[0] if members else None
                if (keys := by_member.get(member)) is None:
                    keys = by_member[member] = []
                keys.append(key)
        for member, keys in by_member.items():
            if member is None:
                for key in keys:
                    yield Unit([burst.some([key])], conn, {})
            else:
                part = burst if len(keys) == len(burst.edges) else burst.some(keys)
                yield Unit([part], conn, {id(member): member}, is_divisible=True)
        if rest:
            part = burst.some(rest)
            is_one = self._find(part.edges.values(), part, part.place, conn)
            for some in [part] if is_one else [burst.some([key]) for key in rest]:
                members = self._find(some.edges.values(), some, some.place, conn)
                yield Unit([some], conn, {id(member): member for member in members}, doubtful=True)

    def _want(self, unit: Unit) -> None:
        """Find out which candidates have what a unit wants, and will have it."""
        if unit.conn is None or unit.is_divisible:
            return
        for key in unit.left:
            used, wanting = self._used[key, unit.conn], self._wanting[key, unit.conn]
            for burst in unit.bursts:
                for edge in burst.edges.values():
                    ends = edge.event.src, edge.event.dst, edge.event.direction == "receive"
                    wanting.setdefault(ends, []).append((unit, edge.channels))
                    if used.get(ends, 0) & edge.channels:
                        unit.lost.add(key)

    def _take(
        self, burst: Burst, member: Member, conn: int | None, *, is_divisible: bool = False
    ) -> list[tuple[object, ...]]:
        """Let a member have connections: each prints once in a communicator; without its set it may be another one.

        Args:
            burst: with the connections.
            member: whose they are.
            conn: the connection set.
            is_divisible: whether it has those only that it has not yet.

        Returns:
            The keys of the edges that it did not get.
        """
        if conn is None:
            return []
        slots, left = (id(member), conn), []
        used, wanting = self._used[slots], self._wanting.get(slots)
        for key, edge in burst.edges.items():
            event, channels = edge.event, edge.channels
            ends = event.src, event.dst, event.direction == "receive"
            before = used.get(ends, 0)
            if is_divisible and before & channels:
                left.append(key)
                continue
            used[ends] = before | channels
            for unit, wanted in wanting.get(ends, ()) if wanting else ():
                if wanted & channels:
                    unit.lost.add(id(member))
        return left

    def settle(self) -> None:
        """Decide what can be decided; each decision may exclude candidates of other units."""
        while self._questions > 0:
            undecided = [unit for unit in self.units if not ((unit.lost or len(unit.left) == 1) and self._decide(unit))]
            is_stuck = len(undecided) == len(self.units)
            self.units = undecided
            if is_stuck:
                break

    def narrow(self, other_ends: _OtherEnds) -> None:
        """Decide what the other ends of connections show."""
        for unit in self.units:
            self._questions -= len(unit.left)
            unit.left = other_ends.narrow(unit)
        self.settle()

    def guess(self) -> None:
        """Decide the rest by the order of use."""
        self._questions = MAX_QUESTIONS
        # What could not be decided before the first guess depends on it.
        self._result.guessed.update(id(burst) for unit in self.units for burst in unit.bursts)
        for unit in self.units:
            unit.choice = tuple(unit.left.values())
        while self.units:
            if self._questions <= 0:
                self._result.given_up += sum(burst.lines for unit in self.units for burst in unit.bursts)
                break
            unit = self.units.pop(0)
            self._questions -= len(unit.left)
            self._assign(unit, min(unit.left.values(), key=self._order.find_turn))
            self.settle()

    def _decide(self, unit: Unit) -> bool:
        """Strike out candidates that have what a unit wants, and return whether that decides it."""
        lost = unit.lost & unit.left.keys()
        self._questions -= len(lost)
        if len(lost) < len(unit.left):
            for key in lost:
                del unit.left[key]
            unit.lost.clear()
        elif not unit.choice:
            self._give_up(unit)
            return True
        if len(unit.left) != 1:
            return False
        if unit.doubtful:
            self._result.guessed.update(map(id, unit.bursts))
        self._assign(unit, *unit.left.values())
        return True

    def _give_up(self, unit: Unit) -> None:
        self._result.homeless.extend((self._process.log, burst) for burst in unit.bursts)

    def _assign(self, unit: Unit, member: Member) -> None:
        bursts, log = unit.bursts, self._process.log
        if unit.choice and _is_same_pair(unit):
            self._result.paired.update(map(id, bursts))
        for burst in bursts:
            if left := self._take(burst, member, unit.conn, is_divisible=unit.is_divisible):
                self._result.homeless.extend((log, burst.some([key])) for key in left)
                free = [key for key in burst.edges if key not in left]
                bursts = [burst.some(free)] if free else []
        if bursts:
            member.bursts = with_more(member.bursts, *bursts)
            self._given.extend((burst, member) for burst in bursts)
            self._order.add(member, self._uses + 1)
            self._uses += len(bursts[0].edges) if unit.is_divisible else 1

    def connect(self) -> None:
        """Give ``Connected …`` lines to the communicator whose connections were made just before.

        Those are connections of the same thread, and those of rings and trees of threads that print no such line: they
        connect for others.
        """
        closing = {step.printed.tid for step in self._process.connected}
        for tid in closing:
            made: list[tuple[int, Member]] = []
            for burst, member in self._given:
                if burst.key.tid == tid or (burst.key.tid not in closing and burst.key.conn != SEND_RECV):
                    is_apart = self._process.is_apart(burst)
                    places = [edge.place for edge in burst.edges.values()] if is_apart else [burst.place]
                    made.extend((place, member) for place in places)
            made.sort(key=itemgetter(0))
            for step in self._process.connected:
                if step.printed.tid == tid and (before := bisect_left(made, step.place, key=itemgetter(0))):
                    member = made[before - 1][1]
                    member.connected = with_more(member.connected, step)


def _is_same_pair(unit: Unit) -> bool:
    """Return whether a unit was guessed to be of one of several communicators, and joins the same ranks in each.

    So it is where a program makes a second communicator of the same ranks: which of the two it is tells nothing about
    paths.
    """
    edges = (edge for burst in unit.bursts for edge in burst.edges.values())
    named = {rank for edge in edges for rank in (edge.event.src, edge.event.dst) if rank is not None}
    joined = ([_global(member, rank) for rank in named] for member in unit.choice)
    first = next(joined)
    return all(ranks == first for ranks in joined)


def _global(member: Member, rank: int) -> object:
    """Return the global rank; a value of its own where the log does not show it."""
    comm = member.communicator
    global_rank = comm.global_ranks[rank] if comm is not None and rank < len(comm.global_ranks) else None
    return (id(comm), rank) if global_rank is None or comm is None or comm.world is None else global_rank
