"""Which communicators of its process the connection lines may belong to that name none.

Lines that belong together are a unit. Its candidates are the members in which all of them fit: own rank, GPUs in
brackets, hosts, number of channels.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from functools import cache, cached_property
from typing import NamedTuple, Protocol, TypeAlias

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.communicators.members import RINGS_AND_TREES, Member, ProcessMembers
from nccl_inspect.model.fold.fold import Burst, ProcessLog
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.records import Slotted, record

_FEW = 32
"""Units that are asked in less time than it takes to sort them by their candidates."""
Slot: TypeAlias = tuple[int, int, int, int | None, bool]
"""A connection that a communicator of a process has once: its set, its ends and which of them printed it."""


class Ends(NamedTuple):
    """Holds what a connection joins."""

    src: int
    dst: int | None
    src_dev: str | None
    dst_dev: str | None
    kind: ChannelConnect
    """Its event, or one that is equal but for channel, ranks and GPUs."""
    channels: int

    @property
    def receives(self) -> bool:
        """Return whether the receiving end printed it."""
        return self.kind.direction == "receive"


class Made(NamedTuple):
    """Connections that a thread made."""

    place: int
    """Where one of them stands: the last one, if no more is to be known."""
    conn: int | None
    member: Member


def ends_of(bursts: Iterable[Burst]) -> Iterator[Ends]:
    """Yield what connections join."""
    for edge in (edge for burst in bursts for edge in burst.edges.values()):
        event = edge.event
        yield Ends(event.src, event.dst, event.src_dev, event.dst_dev, event, edge.channels)


def slots_of(log: ProcessLog, ends: Iterable[Ends], conn: int | None) -> Iterator[tuple[Slot, int]]:
    """Yield what connections take of a communicator, and in which channels; those of an unknown set exclude nothing."""
    if conn is not None:
        for src, dst, _, _, kind, channels in ends:
            yield (id(log), conn, src, dst, kind.direction == "receive"), channels


class Candidates(Protocol):
    """Holds which members of a process a burst may belong to."""

    def find_members(self, burst: Burst, conn: int | None) -> list[Member]:
        """Return the members in which all lines of a burst fit, in their order."""


@record
class Unit(Slotted):
    """Bursts that belong together, with the members they may belong to."""

    log: ProcessLog
    bursts: list[Burst]
    candidates: list[Member]
    conn: int | None
    """The connection set, as printed, or as what follows shows."""
    doubtful: bool = False
    """Lines of several communicators may be in one burst."""
    ends: Sequence[Ends] = ()
    """What its connections join."""
    slots: Sequence[tuple[Slot, int]] = ()
    """What they take of a communicator."""
    left: dict[int, Member] = field(default_factory=dict)
    """The candidates that are not excluded, by their ids."""
    lost: set[int] = field(default_factory=set)
    """The ids of those of which others have what it wants, as far as they are not struck out yet."""
    choice: tuple[Member, ...] = ()
    """The candidates that were left when its process began to guess."""

    @property
    def first_place(self) -> int:
        """Return where the first of them stands."""
        return self.bursts[0].place


class Wanting:
    """The units that want a connection; all are known before somebody has it."""

    def __init__(self) -> None:
        self._units: list[tuple[Unit, int]] = []
        self._by_member: dict[int, list[tuple[Unit, int]]] = {}

    def add(self, unit: Unit, channels: int) -> None:
        """Add one, and the channels in which it wants it."""
        self._units.append((unit, channels))

    def find_units(self, member: int) -> Sequence[tuple[Unit, int]]:
        """Return those that may be of a member, by its id, and perhaps others, where these are few."""
        if len(self._units) > _FEW and not self._by_member:
            for entry in self._units:
                for candidate in entry[0].left:
                    self._by_member.setdefault(candidate, []).append(entry)
        return self._by_member.get(member, ()) if self._by_member else self._units


def units_of(process: ProcessMembers, candidates: Candidates) -> Iterator[Unit]:
    """Yield the bursts of a helper thread belong together when one communicator can have them all.

    Since 2.28 the calling thread itself connects, one communicator after the other: there only what stands between two
    ``Connected …`` lines belongs together, and connections of send/recv, which have none, may be of several.

    Args:
        process: with its members.
        candidates: which of these a burst may belong to.
    """
    together: dict[tuple[int, ...], list[Burst]] = {}
    for burst in process.loose:
        if process.is_apart(burst):
            yield from edge_units(process, burst, candidates)
        else:
            together.setdefault(process.together(burst), []).append(burst)
    for bursts in together.values():
        yield from burst_units(process, bursts, candidates)


def burst_units(process: ProcessMembers, bursts: list[Burst], candidates: Candidates) -> Iterator[Unit]:
    """Bursts that belong together when one communicator can have them all; otherwise each on its own."""
    groups = [candidates.find_members(burst, conn_of(process, burst)) for burst in bursts]
    several = [set(map(id, group)) for group in groups[1:]]
    shared = [member for member in groups[0] if all(id(member) in group for group in several)] if several else groups[0]
    if shared:
        conns = {conn_of(process, burst) for burst in bursts}
        yield Unit(process.log, bursts, shared, conns.pop() if len(conns) == 1 else None)
        return
    for burst, group in zip(bursts, groups, strict=True):
        if group or len(burst.edges) == 1:
            yield Unit(process.log, [burst], group, conn_of(process, burst))
        else:
            yield from edge_units(process, burst, candidates)


def conn_of(process: ProcessMembers, burst: Burst) -> int | None:
    """Return the connection set of a loose burst, as printed, or as what follows shows."""
    if burst.key.conn is None and process.closing(burst) is not None:
        return RINGS_AND_TREES
    return burst.key.conn


def edge_units(process: ProcessMembers, burst: Burst, candidates: Candidates) -> Iterator[Unit]:
    """Yield each edge of a burst on its own, and those that several communicators can have as one doubtful rest."""
    conn, rest = burst.key.conn, []
    for key in burst.edges:
        part = burst.some([key])
        group = candidates.find_members(part, conn)
        if len(group) > 1:
            rest.append(key)
        else:
            yield Unit(process.log, [part], group, conn)
    if rest:
        yield from doubtful_units(process, burst.some(rest), candidates)


def doubtful_units(process: ProcessMembers, burst: Burst, candidates: Candidates) -> Iterator[Unit]:
    """Edges each of which several communicators can have, as one unit if one can have them all."""
    conn = burst.key.conn
    for part in [burst] if candidates.find_members(burst, conn) else [burst.some([key]) for key in burst.edges]:
        yield Unit(process.log, [part], candidates.find_members(part, conn), conn, doubtful=True)


class FittingMembers:
    """Holds which members of a process a burst may belong to; most of its communicators have the same edges.

    Args:
        process: with its members.
    """

    def __init__(self, process: ProcessMembers) -> None:
        self._by_rank: dict[int, list[Member]] = {}
        for member in process.members:
            self._by_rank.setdefault(member.rank, []).append(member)
        self._fitting: dict[tuple[tuple[object, ...], ...], _Lives] = {}

    def find_members(self, burst: Burst, conn: int | None) -> list[Member]:
        """Return the members in which all lines of a burst fit, in their order."""
        rank = burst.key.rank
        key = tuple([(rank, *_claims(edge)) for edge in burst.edges.values()])
        fitting = self._fitting.get(key)
        if fitting is None:
            edges, members = burst.edges.values(), self._by_rank.get(rank, [])
            fitting = _Lives([member for member in members if all(fits(member, edge, rank) for edge in edges)])
            self._fitting[key] = fitting
        if conn == RINGS_AND_TREES:
            return [member for member in fitting.at(burst.place) if not member.eager]
        return fitting.at(burst.place)


class _Lives:
    """Finds the members that live at a place without asking all: a program may make thousands, one after the other.

    Args:
        members: in the order in which they began.
    """

    _FAN = 16

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._begins = [member.first.place for member in members]
        self._latest = [list(map(_end_of, members))]
        """The end of each member, the latest end of each group of them, of each group of groups, and so on."""
        while len(self._latest[-1]) > self._FAN:
            below = self._latest[-1]
            self._latest.append([max(below[at : at + self._FAN]) for at in range(0, len(below), self._FAN)])

    def at(self, place: int) -> list[Member]:
        """Return the members that live at a place, in their order."""
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


def _end_of(member: Member) -> float:
    return member.ended.place if member.ended else math.inf


def _claims(edge: Edge) -> tuple[object, ...]:
    """Return all of a connection that :func:`fits` looks at."""
    event = edge.event
    ends = event.src, event.dst, event.src_dev, event.dst_dev
    return *ends, event.direction, event.is_local, edge.channels.bit_length()


def fits(member: Member, edge: Edge, rank: int) -> bool:
    """Return whether a connection line of ``rank`` can be one of this member."""
    event = edge.event
    receives = event.direction == "receive"
    own_device, other_device = (event.dst_dev, event.src_dev) if receives else (event.src_dev, event.dst_dev)
    other = event.src if receives else event.dst
    comm = member.communicator
    if comm is None or member.rank != rank or not member.is_called(own_device):
        return False
    if member.counts and edge.channels.bit_length() > max(member.counts.coll, member.counts.p2p):
        return False
    if other is None:
        return True
    if other >= comm.nranks:
        return False
    mate = comm.mate(other)
    if mate is None:
        return True
    return mate.is_called(other_device) and (mate.log.process[0] == member.log.process[0] or not event.is_local)


Pair: TypeAlias = tuple[int | None, int, int | None]
"""A connection set and the ranks that a connection joins in its communicator."""

Printed: TypeAlias = tuple[bool, int | None, int, int | None]
"""The same, and before it whether the receiving end printed it."""


class Twins:
    """Compares what the processes of the two ends print.

    Args:
        processes: all of them.
        printed: see :func:`list_printed`, of a process by its number.
        unanswered: those of all processes of which an end is missing.
    """

    def __init__(
        self,
        processes: Iterable[Process],
        printed: Callable[[int], AbstractSet[Printed]],
        unanswered: Callable[[], AbstractSet[Pair]],
    ) -> None:
        index = {process: number for number, process in enumerate(processes)}
        self._printed = cache(lambda process: printed(index[process]))
        self._missing = unanswered

    def exclude(self, unit: Unit) -> Callable[[Member], bool] | None:
        """Return whether a communicator can have a unit; None if all can.

        A missing twin excludes one only where another one has all of them, and where nothing shows that the log breaks
        off before some twin.
        """
        if not (wanted := _list_wanted(unit)):
            return None
        twins = {key: self._has_all(wanted, member) for key, member in unit.left.items()}
        shown = set(twins.values())
        if not shown >= {True, False} or self._is_broken_off(wanted):
            return None
        return lambda member: twins[id(member)] is not False

    def _is_broken_off(self, wanted: Mapping[int, AbstractSet[Printed]]) -> bool:
        """Return whether an end of these is missing in some communicator."""
        return any(twin[1:] in self._unanswered_pairs for twins in wanted.values() for twin in twins)

    @cached_property
    def _unanswered_pairs(self) -> AbstractSet[Pair]:
        return self._missing()

    def _has_all(self, wanted: Mapping[int, AbstractSet[Printed]], member: Member) -> bool | None:
        """Return whether the other ends print all NET connections of a unit, too; None if the log shows none."""
        comm = member.communicator
        assert comm is not None
        has_all: bool | None = True
        for rank, twins in wanted.items():
            mate = comm.members.get(rank)
            if mate is None:
                has_all = None
            elif not twins <= self._printed(mate.log.process):
                return False
        return has_all


def list_printed(ends: Iterable[Ends]) -> set[Printed]:
    """Return the NET connections of a process and which end of them it is."""
    return {(end.receives, *_pair(end)) for end in ends if end.kind.direction}


def find_unanswered(ends: Iterable[Ends]) -> set[Pair]:
    """Return the NET connections that all senders do not print in as many channels as the receivers."""
    balance: Counter[Pair] = Counter()
    for end in ends:
        if end.kind.direction:
            balance[_pair(end)] += end.channels.bit_count() * (-1 if end.receives else 1)
    return {pair for pair, left in balance.items() if left}


def _list_wanted(unit: Unit) -> dict[int, set[Printed]]:
    """Return what the other ends of the NET connections of a unit print, by their ranks."""
    wanted: dict[int, set[Printed]] = {}
    for src, dst, _, _, kind, _ in unit.ends:
        if kind.direction is not None and dst is not None:
            receives = kind.direction == "receive"
            wanted.setdefault(src if receives else dst, set()).add((not receives, kind.conn, src, dst))
    return wanted


def _pair(ends: Ends) -> Pair:
    return ends.kind.conn, ends.src, ends.dst
