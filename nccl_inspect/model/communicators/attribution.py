"""Decides to which communicator the connection lines belong that name none (2.22 and later connect lazily).

What a thread printed in one go is a unit. Its candidates are the members of its process in which all of it fits: own
rank, GPUs in brackets, hosts, number of channels. What fits one member only is certain. Where lines fit several, what
is certain elsewhere excludes some: a connection prints once in a communicator, and a connection over the network has a
line at its other end. What is left is decided by the order in which other processes used the communicators, and marked
as a guess.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import TypeAlias

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.communicators import communicator
from nccl_inspect.model.communicators.communicator import Claims, Communicator, Member, ProcessMembers
from nccl_inspect.model.fold import Burst, ProcessLog
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Record, Slotted

MAX_QUESTIONS = 1_000_000  # how often a burst of one process is compared with a communicator: about a second's work
Ends: TypeAlias = tuple[int, int | None, bool]
"""The ranks that a connection joins, and whether the receiving one printed it."""
Slots: TypeAlias = tuple[int, int]
"""The id of a member and a connection set, in which it has a connection of the same ends once for each channel."""


class _Lives:
    """Finds the members that live at a place without asking all: a program may make thousands, one after the other."""

    _FAN = 16

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self._begins = [member.first.place for member in members]
        ends: list[float] = [member.ended.place if member.ended else math.inf for member in members]
        self._latest = [ends]
        """The end of each member, the latest end of each group of them, of each group of groups, and so on."""
        while len(self._latest[-1]) > self._FAN:
            below = self._latest[-1]
            self._latest.append([max(below[at : at + self._FAN]) for at in range(0, len(below), self._FAN)])

    def between(self, first: int, last: int) -> list[Member]:
        """Return the members that live at a place or somewhere between two, in their order."""
        if len(self.members) == 1:
            return self.members if self._begins[0] <= last and first <= self._latest[0][0] else []
        begun = bisect_right(self._begins, last)
        groups: Iterable[int] = range(len(self._latest[-1]))
        for level in range(len(self._latest) - 1, 0, -1):
            latest, fan, end = self._latest[level], self._FAN, -(-begun // self._FAN ** (level - 1))
            groups = [
                below
                for group in groups
                if latest[group] >= first
                for below in range(group * fan, min(group * fan + fan, end))
            ]
        ends, members = self._latest[0], self.members
        return [members[index] for index in groups if index < begun and ends[index] >= first]


_Shape: TypeAlias = tuple[int, ...]  # :attr:`Burst.wording`


class _Fitting:
    """Finds what of a burst fits a member: once for all bursts of a job that say the same, in communicators alike."""

    def __init__(self) -> None:
        self._claims: dict[int, Claims] = {}  # by the id of events: all edges that say the same have one
        self._looks: dict[object, int] = {}
        self._look_of: dict[int, int | None] = {}
        """By the id of a communicator a number for what its members look like; None where not all are there."""
        self._found: dict[object, list[bytes]] = {}

    def list_keys(self, member: Member, burst: Burst, shape: _Shape) -> list[bytes]:
        """Return the keys of those connections of the rank of a member that can be ones of it."""
        comm, counts = member.communicator, member.counts
        if comm is None:
            return []
        most = max(counts.coll, counts.p2p) if counts else math.inf
        if id(comm) not in self._look_of:
            self._look_of[id(comm)] = self._look(comm)
        look = self._look_of[id(comm)]
        if look is None:
            return [key for key, edge in burst.edges.items() if self._fits(edge, member, comm, most)]
        whole = shape, look, most
        if whole not in self._found:
            self._found[whole] = [key for key, edge in burst.edges.items() if self._fits(edge, member, comm, most)]
        return self._found[whole]

    def _look(self, comm: Communicator) -> int | None:
        if len(comm.members) < comm.nranks:
            return None
        hosts: dict[str, int] = {}
        members = sorted(comm.members.items())
        look = tuple([(one.device_names, hosts.setdefault(one.log.process.host, len(hosts))) for _, one in members])
        return self._looks.setdefault(look, len(self._looks))

    def _fits(self, edge: Edge, member: Member, comm: Communicator, most: float) -> bool:
        event = edge.event
        claims = self._claims.get(id(event)) or self._claims.setdefault(id(event), communicator.read_claims(event))
        other, own_device, other_device, is_local = claims
        if not member.is_called(own_device) or edge.channels.bit_length() > most:
            return False
        if other is None:
            return True
        mate = comm.mate(other)
        is_far = is_local and mate is not None and mate.log.process.host != member.log.process.host
        return other < comm.nranks and (mate is None or (mate.is_called(other_device) and not is_far))


class _Candidates:
    """Finds the members of a process that bursts fit; most of its communicators have the same ones."""

    def __init__(self, members: Iterable[Member], fitting: _Fitting) -> None:
        self._fitting = fitting
        by_rank = group_values((member.rank, member) for member in members)
        self._by_rank = {rank: _Lives(some) for rank, some in by_rank.items()}
        self._whole: dict[_Shape, _Lives] = {}
        self._lives: dict[_Shape, _Lives] = {}

    def find(self, burst: Burst) -> list[Member]:
        """Return the members that live where a burst begins and in which all of it fits, in order."""
        shape, size = burst.wording, len(burst.edges)
        lives = self._whole.get(shape)
        if lives is None:
            members = self._by_rank[burst.key.rank].members if burst.key.rank in self._by_rank else []
            members = [one for one in members if len(self._fitting.list_keys(one, burst, shape)) == size]
            some = tuple(map(id, members))
            lives = self._whole[shape] = self._lives.get(some) or self._lives.setdefault(some, _Lives(members))
        return lives.between(burst.place, burst.place)

    def find_parts(self, burst: Burst) -> list[tuple[Member, list[bytes]]]:
        """Return the members in which some of a burst fits, in order, with the keys of what does."""
        if burst.key.rank not in self._by_rank:
            return []
        first, last, shape = burst.place, burst.last, burst.wording
        parts = []
        for member in self._by_rank[burst.key.rank].between(first, last):
            keys = self._fitting.list_keys(member, burst, shape)
            if not (member.lives_at(first) and member.lives_at(last)):
                keys = [key for key in keys if member.lives_at(burst.edges[key].place)]
            if keys:
                parts.append((member, keys))
        return parts


class Unit(Slotted):
    """A burst, or a part of one, with the members it may belong to."""

    burst: Burst
    left: dict[int, Member]  # the candidates that are not excluded, by their ids
    is_divisible: bool = False  # whether each of its connections belongs to the candidate on its own
    doubtful: bool = False  # lines of several communicators may be in it
    lost: set[int] = field(default_factory=set)
    """The ids of those that have what it wants, as far as they are not struck out yet."""


class Attribution(Record):
    """Holds what became of the loose bursts."""

    homeless: list[tuple[ProcessLog, Burst]] = field(default_factory=list)
    """Bursts that fit no communicator that the log shows."""
    guessed: set[int] = field(default_factory=set)  # the ids of bursts decided by the order of use only
    paired: set[int] = field(default_factory=set)  # those that join the same ranks in each possible communicator
    given_up: int = 0  # connection lines that could not be compared with all communicators in reasonable time


_End: TypeAlias = tuple[int | None, int, int | None, bool]
"""An end of a network connection: connection set, ranks, and whether it receives."""


class _OtherEnds:
    """Compares what the processes of both ends of network connections print."""

    def __init__(self, bursts: Mapping[Process, Sequence[Burst]]) -> None:
        self._bursts = bursts
        self._printed = cache(lambda process: set(map(_find_end, _list_network_events(bursts[process]))))
        self._broken_pairs = cache(self._find_broken_pairs)

    def narrow(self, unit: Unit) -> dict[int, Member]:
        """Return the candidates whose other ranks print the other ends of a unit, or all.

        A missing end excludes one only where another one has all of them, and where nothing shows that the log breaks
        off before such an end.
        """
        wanted: dict[int, set[_End]] = {}
        for event in _list_network_events([unit.burst]):
            conn, src, dst, receives = _find_end(event)
            if dst is not None:
                wanted.setdefault(src if receives else dst, set()).add((conn, src, dst, not receives))
        has_all = {key: self._has_all(member, wanted) for key, member in unit.left.items()}
        is_told = {True, False} <= set(has_all.values())
        broken = self._broken_pairs(unit.burst.key.conn) if is_told else ()
        if not is_told or any(end[:3] in broken for ends in wanted.values() for end in ends):
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

    def _find_broken_pairs(self, conn: int | None) -> set[tuple[object, ...]]:
        """Return the connections of a set that all senders do not print in as many channels as the receivers."""
        bursts = (burst for some in self._bursts.values() for burst in some if burst.key.conn == conn)
        balance = Counter[tuple[object, ...]]()
        for alike in group_values((burst.wording, burst) for burst in bursts).values():
            for edge in alike[0].edges.values():
                *connection, receives = _find_end(edge.event)
                number = edge.channels.bit_count() * len(alike) if edge.event.direction else 0
                balance[tuple(connection)] += -number if receives else number
        return {connection for connection, left in balance.items() if left}


def _list_network_events(bursts: Iterable[Burst]) -> list[ChannelConnect]:
    """Return what the ends of network connections say."""
    return [edge.event for burst in bursts for edge in burst.edges.values() if edge.event.direction]


def _find_end(event: ChannelConnect) -> _End:
    return event.conn, event.src, event.dst, event.direction == "receive"


def attribute(processes: Collection[ProcessMembers]) -> Attribution:
    """Add every loose burst of some processes to the member it belongs to."""
    result, fitting, turns = Attribution(), _Fitting(), dict[int, int]()
    other_ends = _OtherEnds({process.log.process: process.bursts for process in processes})
    undecided: list[_ProcessWork] = []
    for process in processes:
        work = _ProcessWork(process, result, fitting, turns)
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


class _ProcessWork:
    """Gives the loose bursts of a process to its members; programs use communicators in the same order (``turns``)."""

    def __init__(self, process: ProcessMembers, result: Attribution, fitting: _Fitting, turns: dict[int, int]) -> None:
        self._process, self._result, self._turns = process, result, turns
        self._candidates = _Candidates(process.members, fitting)
        self._questions = MAX_QUESTIONS
        self._guesses = False  # whether only the order of use decides from here on
        self._given: list[tuple[Burst, Member]] = []  # the bursts that came to members here
        self._used: defaultdict[Slots, dict[Ends, int]] = defaultdict(dict)
        """The channels of connections that are there already."""
        self._wanting: defaultdict[Slots, dict[Ends, list[tuple[Unit, int]]]] = defaultdict(dict)
        """The units that may be of a member and want a connection of it, and in which channels."""
        for member in process.members:
            for burst in member.bursts:  # what stands between START and COMPLETE
                self._take(burst, member, communicator.RINGS_AND_TREES)
        self.units: list[Unit] = []  # those that are not decided yet, in their order
        for unit in sorted(self._form_units(), key=lambda unit: unit.burst.place):
            if not unit.left:
                self._give_up(unit)
                continue
            self.units.append(unit)
            conn = unit.burst.key.conn
            if conn is None or unit.is_divisible:
                continue
            for key in unit.left:  # which of them have what it wants, and will have it
                used, wanting = self._used[key, conn], self._wanting[key, conn]
                for edge in unit.burst.edges.values():
                    ends = edge.event.src, edge.event.dst, edge.event.direction == "receive"
                    wanting.setdefault(ends, []).append((unit, edge.channels))
                    if used.get(ends, 0) & edge.channels:
                        unit.lost.add(key)

    def _form_units(self) -> Iterator[Unit]:
        """Yield bursts that one communicator can have, and the connections of others by what they fit.

        Since 2.28 the calling thread itself connects, one communicator after the other: there only rings and trees of a
        burst belong together.
        """
        for burst in self._process.loose:
            if not self._process.is_apart(burst):
                left = self._find(burst)
                if left or len(burst.edges) == 1:
                    yield Unit(burst, left)
                    continue
            parts = self._candidates.find_parts(burst)
            if len(parts) == 1 and len(parts[0][1]) == len(burst.edges):  # as nearly always
                yield Unit(burst, {id(parts[0][0]): parts[0][0]}, is_divisible=True)
                continue
            owners = Counter(chain.from_iterable(keys for _, keys in parts))
            yield from (Unit(burst.some([key]), {}) for key in burst.edges if key not in owners)
            for member, keys in parts:
                if own := [key for key in keys if owners[key] == 1]:
                    part = burst if len(own) == len(burst.edges) else burst.some(own)
                    yield Unit(part, {id(member): member}, is_divisible=True)
            if rest := [key for key in burst.edges if owners[key] > 1]:
                part = burst.some(rest)
                for some in [part] if self._find(part) else [burst.some([key]) for key in rest]:
                    yield Unit(some, self._find(some), doubtful=True)

    def _find(self, burst: Burst) -> dict[int, Member]:
        return {id(member): member for member in self._candidates.find(burst)}

    def _take(self, burst: Burst, member: Member, conn: int | None, *, is_divisible: bool = False) -> list[bytes]:
        """Let a member have connections: each prints once in a communicator; without its set it may be another one.

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
        self._guesses = True
        self._result.guessed.update(id(unit.burst) for unit in self.units)
        self._result.paired.update(id(unit.burst) for unit in self.units if _is_same_pair(unit))
        while self.units:
            if self._questions <= 0:
                self._result.given_up += sum(unit.burst.lines for unit in self.units)
                break
            unit = self.units.pop(0)
            self._questions -= len(unit.left)
            likely = min(
                unit.left.values(),
                key=lambda one: (bool(one.bursts), self._turns.get(id(one.communicator), math.inf), one.first.place),
            )
            self._assign(unit, likely)
            self.settle()

    def _decide(self, unit: Unit) -> bool:
        """Strike out candidates that have what a unit wants, and return whether that decides it."""
        lost = unit.lost & unit.left.keys()
        self._questions -= len(lost)
        if len(lost) < len(unit.left):
            for key in lost:
                del unit.left[key]
            unit.lost.clear()
        elif not self._guesses:
            self._give_up(unit)
            return True
        if len(unit.left) != 1:
            return False
        if unit.doubtful:
            self._result.guessed.add(id(unit.burst))
        self._assign(unit, *unit.left.values())
        return True

    def _give_up(self, unit: Unit) -> None:
        self._result.homeless.append((self._process.log, unit.burst))

    def _assign(self, unit: Unit, member: Member) -> None:
        burst = unit.burst
        if left := self._take(burst, member, burst.key.conn, is_divisible=unit.is_divisible):
            self._result.homeless.extend((self._process.log, burst.some([key])) for key in left)
            if len(left) == len(burst.edges):
                return
            burst = burst.some([key for key in burst.edges if key not in left])
        member.bursts = communicator.with_more(member.bursts, burst)
        self._given.append((burst, member))
        self._turns.setdefault(id(member.communicator), len(self._turns))

    def connect(self) -> None:
        """Give ``Connected …`` lines to the communicator whose connections were made just before.

        Those are connections of the same thread, and those of rings and trees of threads that print no such line: they
        connect for others.
        """
        closing = {step.printed.tid for step in self._process.connected}
        for tid in closing:
            made: list[tuple[int, Member]] = []
            for burst, member in self._given:
                if burst.key.tid == tid or (burst.key.tid not in closing and burst.key.conn != communicator.SEND_RECV):
                    is_apart = self._process.is_apart(burst)
                    places = [edge.place for edge in burst.edges.values()] if is_apart else [burst.place]
                    made.extend((place, member) for place in places)
            made.sort(key=itemgetter(0))
            for step in self._process.connected:
                if step.printed.tid == tid and (before := bisect_left(made, step.place, key=itemgetter(0))):
                    member = made[before - 1][1]
                    member.connected = communicator.with_more(member.connected, step)


def _is_same_pair(unit: Unit) -> bool:
    """Return whether a unit joins the same ranks in each candidate: which one it is then tells nothing about paths."""
    ends = {end for edge in unit.burst.edges.values() for end in (edge.event.src, edge.event.dst) if end is not None}
    joined = set()
    for comm in (member.communicator for member in unit.left.values()):
        known = [comm.global_rank(end) if comm and comm.world else None for end in ends]
        joined.add((*known, id(comm) if None in known else None))
    return len(joined) == 1
