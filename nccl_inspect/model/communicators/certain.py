"""Gives connections that fit one communicator of their process to it, all at once, where there are many.

What :mod:`.attribution` decides burst by burst: the same questions (:func:`.candidates.fits`), asked of columns. What
fits several communicators, or none, or what another connection took, is left to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import numpy as np

from nccl_inspect.model.communicators.candidates import Candidates, Ends, FittingMembers, conn_of
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import RINGS_AND_TREES, SEND_RECV, Member, ProcessMembers
from nccl_inspect.model.communicators.twins import Pair
from nccl_inspect.model.fold.edge_table import NOTHING, EdgeTable, ranks_column
from nccl_inspect.model.fold.process_log import Burst, ProcessLog
from nccl_inspect.util.columns import Column, Lookup, distinct, groups, joined, joint, pair, ranges

_MAX_MEMBERS = 64
"""Most members of one process that each of its connections is compared with here."""
_UNNAMED = -2
"""Instead of the name of a GPU that no connection names."""


class Decided(NamedTuple):
    """Connections of one burst that went to one member."""

    burst: Burst
    """The burst, or that part of it."""
    member: Member
    place: int
    """Where one of them stands: the last one, if no more is to be known."""


class _Members:
    """The members of all processes in columns."""

    def __init__(self, processes: Sequence[ProcessMembers], table: EdgeTable) -> None:
        self.all = [member for process in processes for member in process.members]
        self.number = np.array([len(process.members) for process in processes], np.int64)
        self.begin = np.cumsum(self.number) - self.number
        self.of_id = {id(member): index for index, member in enumerate(self.all)}
        comms = list({id(member.communicator): member.communicator for member in self.all}.values())
        index = {id(comm): at for at, comm in enumerate(comms)}
        hosts: dict[str, int] = {}
        device = table.devices
        names = [[device.get(name, _UNNAMED) for name in sorted(member.device_names)] for member in self.all]
        self.names = np.array([(some * 2)[:2] or [NOTHING, NOTHING] for some in names]).reshape(-1, 2)
        self.rank = np.array([member.rank for member in self.all], np.int64)
        self.comm = np.array([index[id(member.communicator)] for member in self.all], np.int64)
        self.host = np.array([hosts.setdefault(member.log.process.host, len(hosts)) for member in self.all], np.int64)
        self.first = np.array([member.first.place for member in self.all], np.int64)
        self.last = np.array([member.ended.place if member.ended else math.inf for member in self.all])
        self.eager = np.array([member.eager for member in self.all], bool)
        self.room = np.array([max(m.counts.coll, m.counts.p2p) if m.counts else math.inf for m in self.all])
        self._mates(comms, index)

    def _mates(self, comms: Sequence[Communicator | None], index: dict[int, int]) -> None:
        communicators = [comm for comm in comms if comm is not None]
        assert len(communicators) == len(comms)
        self.nranks = np.array([comm.nranks for comm in communicators], np.int64)
        self._listed = np.array([len(comm.global_ranks) for comm in communicators], np.int64)
        self._at = np.cumsum(self._listed) - self._listed
        self._global = joined([*(ranks_column(comm.global_ranks) for comm in communicators), np.array([NOTHING])])
        self._world = index.get(id(communicators[0].world), NOTHING) if communicators else NOTHING
        pairs = [
            (at, rank, self.of_id[id(mate)])
            for at, comm in enumerate(communicators)
            for rank, mate in comm.members.items()
        ]
        comm, rank, mate = np.array(pairs, np.int64).reshape(-1, 3).T
        self._by_rank = Lookup(pair(comm, rank), mate)

    def mate(self, comm: Column, rank: Column) -> Column:
        """See :meth:`~.communicator.Communicator.mate`."""
        own = self._by_rank.of(pair(comm, rank))
        if self._world == NOTHING:
            return own
        listed = (rank >= 0) & (rank < self._listed[comm])
        global_ranks = np.where(listed, self._global[np.where(listed, self._at[comm] + rank, 0)], NOTHING)
        in_world = np.where(
            global_ranks < 0, NOTHING, self._by_rank.of(pair(np.full(len(comm), self._world), global_ranks))
        )
        return np.where(own == NOTHING, in_world, own)

    def is_called(self, member: Column, device: Column) -> Column:
        """See :meth:`~.members.Member.is_called`."""
        first_name, second_name = self.names[member].T
        return (device == 0) | (first_name == NOTHING) | (first_name == device) | (second_name == device)


class Certainty:
    """Decides what is certain.

    Args:
        processes: with their members.
        table: of all their bursts.
    """

    def __init__(self, processes: Sequence[ProcessMembers], table: EdgeTable) -> None:
        self._processes, self._table = processes, table
        self._members = _Members(processes, table)
        receives = table.of_kinds(lambda event: event.direction == "receive")
        self.receives = receives
        self._own = np.where(receives, table.dst_dev, table.src_dev)
        self._far = np.where(receives, table.src_dev, table.dst_dev)
        self._other = np.where(receives, table.src, table.dst)
        self._local = table.of_kinds(lambda event: event.is_local)
        self._rank = np.array([burst.key.rank for burst in table.bursts])[table.burst]
        self._width = np.array([channels.bit_length() for channels in table.channel_sets])[table.channels]
        self.member = np.full(len(table), NOTHING)
        """The member that each connection went to."""
        self.conn = np.full(len(table), NOTHING)
        """The connection set of these, as far as it is known."""
        self._process = np.repeat(np.arange(len(processes)), [len(process.bursts) for process in processes])[
            table.burst
        ]
        self._begins = np.searchsorted(self._process, np.arange(len(processes) + 1)).tolist()
        self._devices = list(table.devices)
        self._fitting = np.zeros(len(table), np.uint64)
        """A bit for each member of the process that a connection fits."""
        self._first_uses: list[tuple[int, int]] = []

    def fits(self, rows: Column, member: Column) -> Column:
        """See :func:`.candidates.fits`."""
        members, other = self._members, self._other[rows]
        comm = members.comm[member]
        mate = members.mate(comm, other)
        there = np.maximum(mate, 0)
        is_known = members.is_called(there, self._far[rows])
        is_near = ~self._local[rows] | (members.host[there] == members.host[member])
        return (
            (members.rank[member] == self._rank[rows])
            & members.is_called(member, self._own[rows])
            & (self._width[rows] <= members.room[member])
            & ((other == NOTHING) | ((other < members.nranks[comm]) & ((mate == NOTHING) | (is_known & is_near))))
        )

    def misplaced(self) -> AbstractSet[int]:
        """The ids of bursts inside of START and COMPLETE that do not fit their member."""
        pairs = [
            (burst, self._members.of_id[id(member)])
            for process in self._processes
            for member in process.members
            for burst in member.bursts
        ]
        rows = joined([burst.at for burst, _ in pairs])
        sizes = [len(burst.at) for burst, _ in pairs]
        member = np.repeat(np.array([member for _, member in pairs], np.int64), sizes)
        self.member[rows], self.conn[rows] = member, RINGS_AND_TREES
        lost = rows[~self.fits(rows, member)] if len(rows) else rows
        bursts = np.unique(self._table.burst[lost])
        for burst in bursts.tolist():
            rows = self._table.bursts[burst].at
            self.member[rows] = self.conn[rows] = NOTHING
        return {id(self._table.bursts[burst]) for burst in bursts.tolist()}

    def decide(self) -> list[list[Decided]]:
        """What is certain, by process: members get their connections, and what is left stays with the process."""
        units = _Units(self._processes)
        decided: list[list[Decided]] = [[] for _ in self._processes]
        if len(units.rows):
            self._assign(units, *self._only(units))
            self._divide(units, decided)
        return decided

    def first_uses(self) -> Iterator[tuple[Member, int]]:
        """Members with connections that were decided, and how many others their process had made before, and one."""
        for member, order in self._first_uses:
            yield self._members.all[member], order

    def direct(self) -> Iterator[tuple[ProcessLog, str | None]]:
        """The GPUs to which processes have direct connections, as brackets name them."""
        local = np.flatnonzero(self._local)
        process, device = self._process[local], self._far[local]
        for row in distinct(process, device)[0].tolist():
            yield self._processes[process[row]].log, self._devices[device[row]]

    def candidates(self, process: ProcessMembers) -> Candidates:
        """Which members of a process its bursts fit."""
        if len(process.members) > _MAX_MEMBERS:
            return FittingMembers(process)
        return _Fitting(process.members, self._fitting)

    def ends_of(self, bursts: Sequence[Burst]) -> Iterator[Ends]:
        """See :func:`.candidates.ends_of`."""
        return self._ends(joined([np.asarray(burst.at) for burst in bursts]))

    def like(self, bursts: Sequence[Burst]) -> Iterator[tuple[Member, int, Ends]]:
        """Connections that went to members and join the ranks that some bursts of the same process do."""
        table = self._table
        ends = joint(self._process, table.src, table.dst)
        wanted = np.unique(ends[joined([burst.at for burst in bursts])])
        rows = np.flatnonzero(np.isin(ends, wanted) & (self.member != NOTHING) & (self.conn != NOTHING))
        columns = (column[rows].tolist() for column in (self.member, self.conn))
        for member, conn, end in zip(*columns, self._ends(rows), strict=True):
            yield self._members.all[member], conn, end

    def ends(self, process: int) -> Iterator[Ends]:
        """The connections of a process, by its number."""
        return self._ends(slice(*self._begins[process : process + 2]))

    def unanswered(self) -> set[Pair]:
        """See :func:`.twins.unanswered`."""
        table = self._table
        rows = np.flatnonzero(table.of_kinds(lambda event: event.direction is not None))
        if not len(rows):
            return set()
        conn = table.of_kinds(lambda event: NOTHING if event.conn is None else event.conn)[rows]
        number = np.array([channels.bit_count() for channels in table.channel_sets])[table.channels[rows]]
        first, group = distinct(conn, table.src[rows], table.dst[rows])
        left = np.bincount(group, np.where(self.receives[rows], -number, number))
        return {(end.kind.conn, end.src, end.dst) for end in self._ends(rows[first[left != 0]])}

    def _ends(self, rows: Any) -> Iterator[Ends]:
        table, devices = self._table, self._devices
        columns = table.src, table.dst, table.src_dev, table.dst_dev, table.kind, table.channels
        for src, dst, src_dev, dst_dev, kind, channels in zip(
            *(column[rows].tolist() for column in columns), strict=True
        ):
            names = devices[src_dev], devices[dst_dev]
            yield Ends(src, None if dst == NOTHING else dst, *names, table.kinds[kind], table.channel_sets[channels])

    def _only(self, units: _Units) -> tuple[Column, Column]:
        """Of each unit how many members it fits, and the last one of them."""
        members, rows = self._members, units.rows
        number = members.number[units.process]
        fits_of_unit, last = np.zeros(units.number, np.int64), np.zeros(units.number, np.int64)
        for index in range(int(number.max(initial=0))):
            there = np.flatnonzero(number > index)
            member = members.begin[units.process[there]] + index
            place, some = units.place(self._table, there), rows[there]
            fit = self.fits(some, member)
            self._fitting[some[fit]] |= np.uint64(1 << index)
            fit &= (members.first[member] <= place) & (place <= members.last[member])
            fit &= ~(members.eager[member] & (units.conn[there] == RINGS_AND_TREES))
            unit = units.unit[there]
            all_fit = np.zeros(units.number, bool)
            all_fit[unit] = True
            all_fit[unit[~fit]] = False
            fits_of_unit += all_fit
            last[unit[fit & all_fit[unit]]] = member[fit & all_fit[unit]]
        return fits_of_unit, last

    def _assign(self, units: _Units, fits_of_unit: Column, last: Column) -> None:
        """Give units to the only member that they fit, unless connections there use the same channels."""
        certain = fits_of_unit[units.unit] == 1
        rows, unit = units.rows[certain], units.unit[certain]
        self.member[rows], self.conn[rows] = last[unit], units.shared_conn()[unit]
        taken = np.flatnonzero((self.member != NOTHING) & (self.conn != NOTHING))
        table = self._table
        slots = joint(self.member[taken], self.conn[taken], table.src[taken], table.dst[taken], self.receives[taken])
        _, slot, number = np.unique(slots, return_inverse=True, return_counts=True)
        several = np.flatnonzero(number[slot.ravel()] > 1)
        contested = self._disputed(units, certain)
        for group in groups(slot.ravel()[several]):
            used, members = 0, taken[several[group]].tolist()
            for row in members:
                channels = table.channel_sets[table.channels[row]]
                if used & channels:
                    contested.update(members)
                used |= channels
        if contested:
            lost = np.isin(unit, unit[np.isin(rows, list(contested))])
            self.member[rows[lost]] = self.conn[rows[lost]] = NOTHING
            rows, unit = rows[~lost], unit[~lost]
        self._count_uses(units, rows, unit)

    def _disputed(self, units: _Units, certain: Column) -> set[int]:
        """Certain connections whose channels others of their process take, of which it is not certain where they went.

        Which of both comes first may decide.
        """
        rows, table = units.rows, self._table
        key = joint(units.process, units.conn, table.src[rows], table.dst[rows], self.receives[rows])
        is_known = units.conn != NOTHING
        both = is_known & np.isin(key, key[is_known & certain]) & np.isin(key, key[is_known & ~certain])
        some = np.flatnonzero(both)
        disputed = set[int]()
        for group in groups(key[some]):
            at = some[group]
            others = 0
            for row in rows[at[~certain[at]]].tolist():
                others |= table.channel_sets[table.channels[row]]
            ours = rows[at[certain[at]]].tolist()
            disputed.update(row for row in ours if table.channel_sets[table.channels[row]] & others)
        return disputed

    def _count_uses(self, units: _Units, rows: Column, unit: Column) -> None:
        """Number what each process decided in its order, and note the first number of each member."""
        if not len(rows):
            return
        place = np.full(units.number, np.iinfo(np.int64).max)
        np.minimum.at(place, unit, self._table.place[rows])
        distinct_units, first = np.unique(unit, return_index=True)
        member, process = self.member[rows[first]], self._process[rows[first]]
        order = np.lexsort((place[distinct_units], process))
        member, process = member[order], process[order]
        begins = np.flatnonzero(np.concatenate([[True], process[1:] != process[:-1]]))
        number = 1 + np.arange(len(order)) - np.repeat(begins, np.diff([*begins, len(order)]))
        members, at = np.unique(member, return_index=True)
        self._first_uses = list(zip(members.tolist(), number[at].tolist(), strict=True))

    def _divide(self, units: _Units, decided: list[list[Decided]]) -> None:
        """Divide bursts by what became of their connections."""
        process_of = units.process_of
        table, members = self._table, self._members.all
        rows = np.sort(units.rows)
        left: list[list[Burst]] = [[] for _ in self._processes]
        for group in groups(joint(table.burst[rows], self.member[rows])):
            some = rows[group]
            first = int(some[0])
            burst = table.bursts[table.burst[first]]
            process = process_of[id(burst)]
            part = burst
            if len(some) < len(burst.at):
                part = burst.part(table, some)
                self._processes[process].divide(burst, part)
            if self.member[first] == NOTHING:
                left[process].append(part)
                continue
            member = members[self.member[first]]
            member.bursts.append(part)
            # Other threads may say amid those of rings and trees that some are complete.
            apart = table.place[some if burst.key.conn != SEND_RECV else some[-1:]].tolist()
            places = [burst.place] if id(burst) in units.whole else apart
            decided[process].extend(Decided(part, member, place) for place in places)
        seen = process_of.keys()
        for members_of, bursts in zip(self._processes, left, strict=True):
            members_of.loose = [*(burst for burst in members_of.loose if id(burst) not in seen), *bursts]
            members_of.loose.sort(key=lambda burst: burst.place)


class _Fitting:
    """Which members of a process a burst fits, where that was asked of all at once."""

    def __init__(self, members: Sequence[Member], fitting: Column) -> None:
        self._members, self._fitting = members, fitting

    def of(self, burst: Burst, conn: int | None) -> list[Member]:
        """The members in which all lines of a burst fit, in their order."""
        bits = int(np.bitwise_and.reduce(self._fitting[burst.at]))
        some = [member for index, member in enumerate(self._members) if bits >> index & 1]
        is_free = conn != RINGS_AND_TREES
        return [member for member in some if (is_free or not member.eager) and member.lives_at(burst.place)]


class _Units:
    """What belongs together of the loose bursts, as in :func:`.candidates.units_of`, in rows of connections."""

    def __init__(self, processes: Sequence[ProcessMembers]) -> None:
        self.process_of: dict[int, int] = {}
        """By the id of each burst its process."""
        self.whole: set[int] = set()
        """The ids of bursts that belong together."""
        numbers: dict[tuple[int, ...], int] = {}
        bursts: list[tuple[Burst, int, int, int]] = []
        for index, process in enumerate(processes):
            if len(process.members) > _MAX_MEMBERS:
                continue
            for burst in process.loose:
                self.process_of[id(burst)] = index
                conn = conn_of(process, burst)
                if process.is_apart(burst):
                    unit = NOTHING
                else:
                    self.whole.add(id(burst))
                    unit = numbers.setdefault((index, *process.together(burst)), len(numbers))
                bursts.append((burst, index, NOTHING if conn is None else conn, unit))
        self._shared = len(numbers)
        sizes = np.array([len(burst.at) for burst, *_ in bursts], np.int64)
        begins = np.array([burst.at[0] for burst, *_ in bursts], np.int64)
        self.rows = ranges(begins, sizes)
        self.process, self.conn, unit = np.repeat(
            np.array([rest for _, *rest in bursts], np.int64).reshape(-1, 3), sizes, axis=0
        ).T
        alone = unit == NOTHING
        self.unit = np.where(alone, len(numbers) + np.cumsum(alone) - 1, unit)
        self.number = len(numbers) + int(alone.sum())
        self._place = np.where(alone, NOTHING, np.repeat(np.array([b.place for b, *_ in bursts], np.int64), sizes))

    def place(self, table: EdgeTable, some: Column) -> Column:
        """Where connections count as made: those that belong together where their bursts begin."""
        return np.where(self._place[some] == NOTHING, table.place[self.rows[some]], self._place[some])

    def shared_conn(self) -> Column:
        """The connection set of each unit; nothing where it has several."""
        low = np.full(self.number, np.iinfo(np.int64).max)
        high = np.full(self.number, NOTHING)
        np.minimum.at(low, self.unit, self.conn)
        np.maximum.at(high, self.unit, self.conn)
        return np.where(low == high, low, NOTHING)
