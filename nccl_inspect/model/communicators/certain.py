"""Gives connections that fit one communicator of their process to it, all at once, where there are many.

What :mod:`.attribution` decides burst by burst: the same questions (:func:`.candidates.fits`), asked of columns. What
fits several communicators, or none, or what another connection took, is left to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from nccl_inspect.model.communicators.candidates import (
    Ends,
    FittingMembers,
    Made,
    Pair,
    Printed,
    Unit,
    burst_units,
    conn_of,
    doubtful_units,
    edge_units,
    units_of,
)
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import RINGS_AND_TREES, SEND_RECV, Member, ProcessMembers, with_more
from nccl_inspect.model.fold.edge_table import NOTHING, EdgeTable, part_of, ranks_column, rows_of
from nccl_inspect.model.fold.process_log import Burst
from nccl_inspect.util.columns import Column, concatenate, groups, join_keys, number_groups, ranges, sort_rows

_UNNAMED = -2
"""Instead of the name of a GPU that no connection names."""


class MemberTable:
    """A row for each member.

    Args:
        processes: with their members.
        devices: the numbers of the names of GPUs.
    """

    def __init__(self, processes: Sequence[ProcessMembers], devices: dict[str | None, int]) -> None:
        self.all = [member for process in processes for member in process.members]
        self.number = np.array([len(process.members) for process in processes], np.int64)
        """By processes: how many members they have, and the first one."""
        self.begin = np.cumsum(self.number) - self.number
        hosts: dict[str, int] = {}
        names: dict[frozenset[str], tuple[int, int]] = {}
        for member in self.all:
            if member.device_names not in names:
                own = [devices.get(name, _UNNAMED) for name in sorted(member.device_names)] or [NOTHING]
                names[member.device_names] = own[0], own[-1]
        self._names = np.array([names[member.device_names] for member in self.all], np.int64).reshape(-1, 2).T
        self.rank = np.array([member.rank for member in self.all], np.int64)
        self.host = np.array([hosts.setdefault(member.log.process.host, len(hosts)) for member in self.all], np.int64)
        self.first = np.array([member.first.place for member in self.all], np.int64)
        self.last = np.array([member.ended.place if member.ended else math.inf for member in self.all])
        self.eager = np.array([member.eager for member in self.all], bool)
        self.room = np.array([max(m.counts.coll, m.counts.p2p) if m.counts else math.inf for m in self.all])
        self._mates()

    def _mates(self) -> None:
        """List for each communicator the member with each of its ranks; those that claim too many list none."""
        comms: dict[int, Communicator] = {}
        for member in self.all:
            assert member.communicator is not None
            comms.setdefault(id(member.communicator), member.communicator)
        index = {key: number for number, key in enumerate(comms)}
        listed = np.array([len(comm.global_ranks) for comm in comms.values()], np.int64)
        begin = np.cumsum(listed) - listed
        comm = np.array([index[id(member.communicator)] for member in self.all], np.int64)
        self.nranks = np.array([some.nranks for some in comms.values()], np.int64)[comm]
        self._listed, self._begin = listed[comm], begin[comm]
        self._by_rank = np.full(int(listed.sum()) + 1, NOTHING)
        there = np.flatnonzero(self.rank < self._listed)
        self._by_rank[self._begin[there] + self.rank[there]] = there
        world = next((some.world for some in comms.values()), None)
        if world is not None and id(world) in index:
            number = index[id(world)]
            of_world = np.append(self._by_rank[begin[number] : begin[number] + listed[number]], NOTHING)
            global_ranks = concatenate(
                [*(ranks_column(some.global_ranks) for some in comms.values()), np.array([NOTHING])]
            )
            self._by_rank = np.where(self._by_rank == NOTHING, of_world[global_ranks], self._by_rank)

    def mate(self, member: Column, rank: Column) -> Column:
        """See :meth:`~.communicator.Communicator.mate`."""
        is_listed = (rank >= 0) & (rank < self._listed[member])
        return self._by_rank[np.where(is_listed, self._begin[member] + rank, -1)]

    def is_called(self, member: Column, device: Column) -> Column:
        """See :meth:`~.members.Member.is_called`."""
        one, other = self._names[0][member], self._names[1][member]
        return (device == 0) | (one == NOTHING) | (one == device) | (other == device)

    def are_few(self, most: int) -> Column:
        """Return whether a process has no more members than these, and all their ranks are listed; by processes."""
        owner = np.repeat(np.arange(len(self.number)), self.number)
        unlisted = np.bincount(owner[self._listed == 0], minlength=len(self.number))
        return (self.number <= most) & (unlisted == 0)


MOST_MEMBERS = 64
"""Members of one process that each of its connections is compared with here."""
_ALL = np.uint64((1 << MOST_MEMBERS) - 1)


class LooseBursts:
    """A row for each loose burst of the processes with few members.

    Args:
        processes: with their members.
        members: all of these.
        table: of all connections.
        process: of each burst of the table the number of its process.
        is_loose: of each burst of the table whether no member has it.
    """

    def __init__(
        self,
        processes: Sequence[ProcessMembers],
        members: MemberTable,
        table: EdgeTable,
        process: Column,
        is_loose: Column,
    ) -> None:
        self._members, self._table = members, table
        is_small = members.are_few(MOST_MEMBERS)
        self.passed_over = np.flatnonzero(~is_small).tolist()
        """The other processes, by their numbers."""
        at = np.flatnonzero(is_loose & is_small[process])
        at = at[sort_rows(process[at], table.place[table.begins[at]])]
        first, self.size = table.begins[at], table.begins[at + 1] - table.begins[at]
        self.process, self.place, self.last = process[at], table.place[first], table.place[first + self.size - 1]
        """The process of each burst, and its first and its last line."""
        self.bursts = [table.bursts[burst] for burst in at.tolist()]
        own = [NOTHING if burst.key.conn is None else burst.key.conn for burst in self.bursts]
        self._own_conn = np.array(own, np.int64)
        """Connection sets as printed."""
        self.conn = self._own_conn.copy()
        """The same, or as what follows shows."""
        self._group = np.full(len(at), NOTHING)
        groups: dict[tuple[int, ...], int] = {}
        is_by_caller = np.array([some.by_caller for some in processes])[self.process]
        rows = np.flatnonzero(~is_by_caller | (self._own_conn == RINGS_AND_TREES))
        self._group[rows] = [
            groups.setdefault((index, *processes[index].together(self.bursts[row])), len(groups))
            for row, index in zip(rows.tolist(), self.process[rows].tolist(), strict=True)
        ]
        for row in np.flatnonzero(self._own_conn == NOTHING).tolist():
            if conn_of(processes[self.process[row]], self.bursts[row]) is not None:
                self.conn[row] = RINGS_AND_TREES
        self._groups = len(groups)
        self.begin = np.cumsum(self.size) - self.size
        """The first of its connections among all rows, which are places in the table of all."""
        self.rows = ranges(first, self.size)
        self.burst = np.repeat(np.arange(len(self.bursts)), self.size)

    def form_units(self, fitting: Column) -> None:
        """Find out what belongs together, as :func:`.candidates.units_of` does, and what it fits.

        Args:
            fitting: of each row a bit for each member of its process that the connection fits.
        """
        group, rows = self._group, np.arange(len(self.rows))
        common = np.bitwise_and.reduceat(fitting, self.begin)
        fits = self._living(common, self.process, self.conn, self.place, self.place)
        grouped = np.flatnonzero(group != NOTHING)
        shared = np.full(self._groups + 1, _ALL)
        np.bitwise_and.at(shared, group[grouped], fits[grouped])
        shared[NOTHING] = 0
        in_group = shared[group] != 0
        alone = ~in_group & ((group == NOTHING) | ((fits == 0) & (self.size > 1)))
        self.is_alone = alone
        """Bursts whose connections are decided each on its own."""
        self.is_alike = alone & self._are_alike(common, fitting)
        """Those whose connections have the same candidates: they are one unit."""
        is_split = alone & ~self.is_alike
        singles = self._groups + np.arange(len(self.bursts))
        self.unit_of_burst = np.where(in_group, group, singles)
        self.unit = self.unit_of_burst[self.burst]
        """By rows; units are groups of bursts, bursts, or connections."""
        apart = rows[is_split[self.burst]]
        self.unit[apart] = self._groups + len(self.bursts) + np.arange(len(apart))
        self.units = self._groups + len(self.bursts) + len(apart)
        first = np.zeros(self.units, np.int64)
        """The first row of each unit."""
        first[self.unit[::-1]] = rows[::-1]
        burst = self.burst[first]
        is_row = np.arange(self.units) >= self._groups + len(self.bursts)
        self.process_of_unit = self.process[burst]
        self.place_of_unit = np.where(is_row, self._table.place[self.rows[first]], self.place[burst])
        self.conn_of_unit = np.where(is_row, self._own_conn[burst], self.conn[burst])
        own: Column = group[grouped]
        differs: Column = self.conn[grouped] != self.conn_of_unit[own]
        self.conn_of_unit[own[differs]] = NOTHING
        self.is_of_alike = np.zeros(self.units, bool)
        self.is_of_alike[self.unit_of_burst[self.is_alike]] = True
        self.candidates = np.zeros(self.units, np.uint64)
        """By units, a bit for each member of the process."""
        self.candidates[self.unit_of_burst] = np.where(in_group, shared[group], np.where(is_split, 0, fits))
        own = self.unit[apart]
        place = self.place_of_unit[own]
        self.candidates[own] = self._living(
            fitting[apart], self.process_of_unit[own], self.conn_of_unit[own], place, place
        )
        is_open = self.candidates & (self.candidates - np.uint64(1)) != 0
        self.is_doubtful = (is_row | self.is_of_alike) & is_open
        """Units that may be of several members, and then together."""

    def _are_alike(self, common: Column, fitting: Column) -> Column:
        """Bursts of send/recv whose connections all fit the same members, each of which lives at all of them or none.

        Args:
            common: of each burst a bit for each member that all of its connections fit.
            fitting: the same of each row.
        """
        alike = np.bitwise_or.reduceat(fitting, self.begin) == common
        own = common, self.process, self._own_conn
        at_all, at_some = self._living(*own, self.place, self.last), self._living(*own, self.last, self.place)
        return alike & (at_all == at_some) & (self._own_conn == SEND_RECV)

    def _living(self, fits: Column, process: Column, conn: Column, since: Column, until: Column) -> Column:
        """Return the bits of those members that can have connections of a set and live between two places."""
        members = self._members
        living = np.zeros(len(process), np.uint64)
        for index in range(int(fits.max(initial=0)).bit_length()):
            some = np.flatnonzero(fits & np.uint64(1 << index))
            member = members.begin[process[some]] + index
            lives = (members.first[member] <= since[some]) & (until[some] <= members.last[member])
            lives &= ~(members.eager[member] & (conn[some] == RINGS_AND_TREES))
            living[some[lives]] |= np.uint64(1 << index)
        return living


_MAX_TURNS = 16
"""How often what was decided may decide more; a process that needs more turns is left."""
_LOW, _HALF = np.uint64((1 << 32) - 1), np.uint64(32)
_ONE = np.uint64(1)
_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
"""What spreads numbers over buckets: the highest bits of products with odd numbers."""


class Exclusion:
    """Holds which units of loose bursts are certain.

    Args:
        loose: the bursts, whose candidates are narrowed down.
        slots: for each connection of the table a number, the same for those that a communicator has once.
        channels: of each its channels as bits.
        member: of each the number that the member in its process has which has it; -1 where none has.
    """

    def __init__(self, loose: LooseBursts, slots: Column, channels: Column, member: Column) -> None:
        self._loose = loose
        self.turn = np.full(loose.units, NOTHING)
        """In which turn each unit was decided."""
        self._is_open = (loose.candidates != 0) & ~loose.is_doubtful
        self._in_conflict = np.zeros(int(loose.process.max()) + 1, bool)
        """Processes in which the order matters."""
        self._share(slots, channels, member)
        self._decide()
        self.turn[self._in_conflict[loose.process_of_unit]] = NOTHING

    def _share(self, slots: Column, channels: Column, member: Column) -> None:
        """Find the slots that several units want, or that somebody has."""
        loose = self._loose
        wanting = (loose.candidates != 0) & (loose.conn_of_unit != NOTHING)
        self._members = int(loose.candidates.max()).bit_length()
        own = np.flatnonzero(wanting[loose.unit])
        taken = np.flatnonzero((member != NOTHING) & (member < self._members))
        rows: Column = np.concatenate([loose.rows[own], taken])
        unit: Column = np.concatenate([loose.unit[own], np.full(len(taken), NOTHING)])
        for factor in _FACTORS:  # most slots have one line, and need no sorting
            shift = np.uint64(63 - len(rows).bit_length())  # two to four buckets for each row
            bucket = (slots[rows].astype(np.uint64) * factor >> shift).astype(np.int64)
            some = np.flatnonzero((np.bincount(bucket) > 1)[bucket])
            rows, unit = rows[some], unit[some]
        _, slot, number = np.unique(slots[rows], return_inverse=True, return_counts=True)
        some = np.flatnonzero((number > 1)[slot])
        rows, slot, unit = rows[some], slot[some], unit[some]
        self._used = np.zeros(len(number) * self._members, np.uint64)
        """By slots and members."""
        had = np.flatnonzero(unit == NOTHING)
        np.bitwise_or.at(self._used, slot[had] * self._members + member[rows[had]], channels[rows[had]])
        wanted = np.flatnonzero(unit != NOTHING)
        rows, slot, unit = rows[wanted], slot[wanted], unit[wanted]
        order = sort_rows(slot, unit)
        rows, slot, unit = rows[order], slot[order], unit[order]
        begins = np.flatnonzero(np.append(True, (slot[1:] != slot[:-1]) | (unit[1:] != unit[:-1]))[: len(rows)])
        self._slot, self._unit = slot[begins], unit[begins]
        self._channels, clash = _unite_bits(channels[rows], begins)
        unit = self._unit[clash]
        self._in_conflict[loose.process_of_unit[unit[loose.is_of_alike[unit] & self._is_open[unit]]]] = True

    def _decide(self) -> None:
        candidates = self._loose.candidates
        for turn in range(_MAX_TURNS):
            now = self._is_open & (self.turn == NOTHING) & (candidates & (candidates - _ONE) == 0)
            if not now.any():
                break
            self.turn[now] = turn
            self._take(np.flatnonzero(now[self._unit]))
            self._exclude()
        else:
            waiting = self._is_open & (self.turn == NOTHING) & (candidates & (candidates - _ONE) == 0)
            self._in_conflict[self._loose.process_of_unit[waiting]] = True
        waiting = np.flatnonzero(self._loose.is_doubtful[self._unit])
        unit = self._unit[waiting]
        contested = unit[self._mask_members(waiting) & candidates[unit] != 0]
        self._in_conflict[self._loose.process_of_unit[contested]] = True

    def _take(self, some: Column) -> None:
        """Let units have what they want of their only candidates, unless two want the same."""
        if not len(some):
            return
        unit = self._unit[some]
        at = self._slot[some] * self._members + number_of_bit(self._loose.candidates[unit])
        order = np.argsort(at, kind="stable")
        at, channels, unit = at[order], self._channels[some[order]], unit[order]
        begins = np.flatnonzero(np.append(True, at[1:] != at[:-1]))
        both, clash = _unite_bits(channels, begins)
        clash |= both & self._used[at[begins]] != 0
        self._in_conflict[self._loose.process_of_unit[unit[begins[clash]]]] = True
        self._used[at[begins]] |= both

    def _exclude(self) -> None:
        """Strike out members that have what units want."""
        waiting = np.flatnonzero((self._is_open & (self.turn == NOTHING))[self._unit])
        unit = self._unit[waiting]
        gone = np.zeros(self._loose.units, np.uint64)
        np.bitwise_or.at(gone, unit, self._mask_members(waiting))
        self._loose.candidates &= ~gone
        lost = unit[self._loose.candidates[unit] == 0]
        self._is_open[lost] = False
        self._in_conflict[self._loose.process_of_unit[lost]] = True

    def _mask_members(self, some: Column) -> Column:
        """Return a bit for each member that has what is wanted."""
        blocked = np.zeros(len(some), np.uint64)
        for member in range(self._members):
            has = self._used[self._slot[some] * self._members + member] & self._channels[some]
            blocked |= (has != 0).astype(np.uint64) << np.uint64(member)
        return blocked


def _unite_bits(bits: Column, begins: Column) -> tuple[Column, Column]:
    """Return the bits that are in one of some groups of numbers, and whether one is in two."""
    if not len(begins):
        return bits, bits != 0
    both = np.bitwise_or.reduceat(bits, begins)
    # Sums are the same as unions where no bit is in two.
    low, high = np.add.reduceat(bits & _LOW, begins), np.add.reduceat(bits >> _HALF, begins)
    return both, (low != both & _LOW) | (high != both >> _HALF)


def number_of_bit(bits: Column) -> Column:
    """Return the number of the bit, of numbers with one bit."""
    return np.frexp(bits.astype(np.float64))[1] - 1


_CHANNELS = (1 << 64) - 1
"""Bits that a number of a column has."""


class Certainty:
    """Decides what is certain.

    Args:
        processes: with their members.
        table: of all their bursts.
    """

    def __init__(self, processes: Sequence[ProcessMembers], table: EdgeTable) -> None:
        self._processes, self._table = processes, table
        self._members = MemberTable(processes, table.devices)
        self.receives = table.map_events(lambda event: event.direction == "receive")
        self._own = np.where(self.receives, table.dst_dev, table.src_dev)
        self._far = np.where(self.receives, table.src_dev, table.dst_dev)
        self._other = np.where(self.receives, table.src, table.dst)
        self._local = table.map_events(lambda event: event.is_local)
        self._width = np.array([channels.bit_length() for channels in table.channel_sets])[table.channels]
        self._rank = np.array([burst.key.rank for burst in table.bursts], np.int64)
        sizes = [len(process.loose) + sum(len(member.bursts) for member in process.members) for process in processes]
        self._process = np.repeat(np.arange(len(processes)), sizes)
        """By bursts."""
        self._owner = self._process[table.burst]
        """The same by connections."""
        self.member = np.full(len(table), NOTHING)
        """The member that each connection went to."""
        self.conn = np.full(len(table), NOTHING)
        """The connection set of these, as far as it is known."""
        self._is_loose = np.ones(len(table.bursts), bool)
        """By bursts: whether no member has it."""
        self._devices = list(table.devices)
        self._fitting = np.zeros(len(table), np.uint64)
        """A bit for each member of the process that a connection fits."""
        self._first_uses: list[tuple[int, int]] = []
        self._left: list[list[Unit]] = [[] for _ in processes]

    def fits(self, rows: Column, member: Column) -> Column:
        """See :func:`.candidates.fits`; but for the rank that prints."""
        members, other = self._members, self._other[rows]
        mate = members.mate(member, other)
        is_known = members.is_called(mate, self._far[rows])
        is_near = ~self._local[rows] | (members.host[mate] == members.host[member])
        return (
            members.is_called(member, self._own[rows])
            & (self._width[rows] <= members.room[member])
            & (other < members.nranks[member])
            & ((mate == NOTHING) | (is_known & is_near))
        )

    def find_misplaced(self) -> AbstractSet[int]:
        """Return the ids of bursts inside of START and COMPLETE that do not fit their member."""
        if not any(member.bursts for member in self._members.all):
            return set()
        number = {id(burst): at for at, burst in enumerate(self._table.bursts)}
        pairs = [
            (number[id(burst)], owner) for owner, member in enumerate(self._members.all) for burst in member.bursts
        ]
        bursts, owner = np.array(pairs, np.int64).T
        rows = rows_of(self._table.bursts[burst] for burst in bursts.tolist())
        member = np.repeat(owner, np.bincount(self._table.burst, minlength=len(number))[bursts])
        self.member[rows], self.conn[rows] = member, RINGS_AND_TREES
        fit = self.fits(rows, member) & (self._members.rank[member] == self._rank[self._table.burst[rows]])
        lost = np.unique(self._table.burst[rows[~fit]])
        self._is_loose[bursts] = False
        self._is_loose[lost] = True
        gone = np.isin(self._table.burst, lost)
        self.member[gone] = self.conn[gone] = NOTHING
        return {id(self._table.bursts[burst]) for burst in lost.tolist()}

    def decide(self) -> list[dict[int, list[Made]]]:
        """Give members what is certain, and find of each process what its threads made for whom."""
        made: list[dict[int, list[Made]]] = [{} for _ in self._processes]
        loose = LooseBursts(self._processes, self._members, self._table, self._process, self._is_loose)
        for process in loose.passed_over:
            some = self._processes[process]
            self._left[process].extend(units_of(some, FittingMembers(some)))
        if loose.bursts:
            loose.form_units(self._fit(loose))
            turn = self._turns(loose)
            self._assign(loose, turn, made)
            self._leave(loose, turn)
        return made

    def _fit(self, loose: LooseBursts) -> Column:
        """Return for each loose connection a bit for each member of its process that it fits."""
        members = self._members
        number, rank = members.number[loose.process], self._rank[self._table.burst[loose.rows[loose.begin]]]
        fitting = np.zeros(len(loose.rows), np.uint64)
        for index in range(int(number.max(initial=0))):
            some = np.flatnonzero(number > index)
            member = members.begin[loose.process[some]] + index
            prints = members.rank[member] == rank[some]
            some, member = some[prints], member[prints]
            at = ranges(loose.begin[some], loose.size[some])
            fit = self.fits(loose.rows[at], np.repeat(member, loose.size[some]))
            fitting[at[fit]] |= np.uint64(1 << index)
        self._fitting[loose.rows] = fitting
        return fitting

    def _turns(self, loose: LooseBursts) -> Column:
        """In which turn each unit was decided; -1 if it is not certain."""
        table, process = self._table, self._owner
        conn = self.conn.copy()
        conn[loose.rows] = loose.conn_of_unit[loose.unit]
        slots = join_keys(process, conn, table.src, table.dst, self.receives)
        bits = np.array([channels & _CHANNELS for channels in table.channel_sets], np.uint64)[table.channels]
        index = np.where(self.member == NOTHING, NOTHING, self.member - self._members.begin[process])
        turn = Exclusion(loose, slots, bits, index).turn
        too_wide = np.isin(loose.process_of_unit, process[self._width > _CHANNELS.bit_length()])
        turn[too_wide] = NOTHING
        return turn

    def _assign(self, loose: LooseBursts, turn: Column, made: list[dict[int, list[Made]]]) -> None:
        """Give members what is certain."""
        table, members = self._table, self._members
        units = np.flatnonzero(turn != NOTHING)
        process = loose.process_of_unit[units]
        member = np.full(loose.units, NOTHING)
        member[units] = members.begin[process] + number_of_bit(loose.candidates[units])
        self.member[loose.rows] = member[loose.unit]
        self.conn[loose.rows] = np.where(member[loose.unit] == NOTHING, NOTHING, loose.conn_of_unit[loose.unit])
        size = np.where(loose.is_of_alike, np.bincount(loose.unit, minlength=loose.units), 1)[units]
        self._count_uses(process, member[units], size, sort_rows(process, turn[units], loose.place_of_unit[units]))
        is_whole = loose.is_alike | ~loose.is_alone
        whole = np.flatnonzero(is_whole & (turn[loose.unit_of_burst] != NOTHING))
        owners = member[loose.unit_of_burst[whole]].tolist()
        places = np.where(loose.is_alike, loose.last, loose.place)[whole].tolist()
        for at, owner, index, place in zip(whole.tolist(), owners, loose.process[whole].tolist(), places, strict=True):
            burst, one = loose.bursts[at], members.all[owner]
            one.bursts = with_more(one.bursts, burst)
            tid, conn, _ = burst.key
            made[index].setdefault(tid, []).append(Made(place, conn, one))
        apart = np.flatnonzero(~is_whole[loose.burst] & (turn[loose.unit] != NOTHING))
        for group in groups(join_keys(loose.burst[apart], member[loose.unit[apart]])):
            some = apart[group]
            first = int(some[0])
            burst, owner = loose.bursts[int(loose.burst[first])], members.all[int(member[loose.unit[first]])]
            part = burst if len(some) == len(burst.edges) else part_of(burst, table, loose.rows[some])
            owner.bursts = with_more(owner.bursts, part)
            # Other threads may say amid those of rings and trees that some are complete.
            tid, conn, _ = burst.key
            places = table.place[loose.rows[some if conn != SEND_RECV else some[-1:]]].tolist()
            own = made[int(loose.process[loose.burst[first]])].setdefault(tid, [])
            own.extend(Made(place, conn, owner) for place in places)

    def _count_uses(self, process: Column, member: Column, size: Column, order: Column) -> None:
        """Number what each process decided in its order, and note the first number of each member."""
        process, member, size = process[order], member[order], size[order]
        begins = np.flatnonzero(np.append(True, process[1:] != process[:-1])[: len(process)])
        before = np.cumsum(size) - size
        number = 1 + before - np.repeat(before[begins], np.diff([*begins, len(order)]))
        members, at = np.unique(member, return_index=True)
        self._first_uses = list(zip(members.tolist(), number[at].tolist(), strict=True))

    def _leave(self, loose: LooseBursts, turn: Column) -> None:
        """Form units of what is not certain."""
        together: dict[int, list[int]] = {}
        left = np.flatnonzero(~loose.is_alone & (turn[loose.unit_of_burst] == NOTHING))
        for at, unit in zip(left.tolist(), loose.unit_of_burst[left].tolist(), strict=True):
            together.setdefault(unit, []).append(at)
        for bursts in together.values():
            index = int(loose.process[bursts[0]])
            process = self._processes[index]
            fitting = _Fitting(process.members, self._fitting)
            self._left[index] += burst_units(process, [loose.bursts[at] for at in bursts], fitting)
        left = np.flatnonzero(loose.is_alone[loose.burst] & (turn[loose.unit] == NOTHING))
        for group in groups(join_keys(loose.burst[left], loose.is_doubtful[loose.unit[left]])):
            some = left[group]
            at = int(loose.burst[some[0]])
            process = self._processes[int(loose.process[at])]
            part = part_of(loose.bursts[at], self._table, loose.rows[some])
            units = doubtful_units if loose.is_doubtful[loose.unit[some[0]]] else edge_units
            self._left[int(loose.process[at])] += units(process, part, _Fitting(process.members, self._fitting))

    def left(self, process: int) -> list[Unit]:
        """Return what is not certain in a process, by its number."""
        return self._left[process]

    def first_uses(self) -> Iterator[tuple[Member, int]]:
        """Members with connections that were decided, and how many others their process had made before, and one."""
        for member, order in self._first_uses:
            yield self._members.all[member], order

    def _find_open(self) -> Column:
        """Connections of processes that have some which are not certain."""
        is_open = np.zeros(len(self._processes), bool)
        is_open[self._owner[self.member == NOTHING]] = True
        return np.flatnonzero(is_open[self._owner])

    def ends_of(self, bursts: Sequence[Burst]) -> Iterator[Ends]:
        """See :func:`.candidates.ends_of`."""
        return self._ends(rows_of(bursts))

    def like(self) -> Iterator[tuple[Member, int, Ends]]:
        """Connections that went to members and join the ranks that some that are left do in the same process."""
        table, process, rows = self._table, self._owner, self._find_open()
        ends = join_keys(process[rows], table.src[rows], table.dst[rows])
        is_like = np.isin(ends, ends[self.member[rows] == NOTHING])
        rows = rows[is_like & (self.member[rows] != NOTHING) & (self.conn[rows] != NOTHING)]
        columns = (column[rows].tolist() for column in (self.member, self.conn))
        for member, conn, end in zip(*columns, self._ends(rows), strict=True):
            yield self._members.all[member], conn, end

    def list_printed(self, process: int) -> set[Printed]:
        """See :func:`.candidates.list_printed`, of a process by its number."""
        rows = slice(*self._table.begins[np.searchsorted(self._process, (process, process + 1))])
        table = self._table
        columns = (column[rows].tolist() for column in (self.receives, table.kind, table.src, table.dst))
        of_network = {at: kind.conn for at, kind in enumerate(table.kinds) if kind.direction}
        return {
            (receives, of_network[kind], src, dst)
            for receives, kind, src, dst in zip(*columns, strict=True)
            if kind in of_network
        }

    def find_unanswered(self) -> set[Pair]:
        """See :func:`.candidates.find_unanswered`."""
        table = self._table
        rows = np.flatnonzero(table.map_events(lambda event: event.direction is not None))
        if not len(rows):
            return set()
        conn = table.map_events(lambda event: NOTHING if event.conn is None else event.conn)[rows]
        number = np.array([channels.bit_count() for channels in table.channel_sets])[table.channels[rows]]
        first, group = number_groups(conn, table.src[rows], table.dst[rows])
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


class _Fitting:
    """Holds which members of a process a burst fits, where that was asked of all at once."""

    def __init__(self, members: Sequence[Member], fitting: Column) -> None:
        self._members, self._fitting = members, fitting

    def find_members(self, burst: Burst, conn: int | None) -> list[Member]:
        """Return the members in which all lines of a burst fit, in their order."""
        bits = int(np.bitwise_and.reduce(self._fitting[rows_of([burst])]))
        some = [member for index, member in enumerate(self._members) if bits >> index & 1]
        is_free = conn != RINGS_AND_TREES
        return [member for member in some if (is_free or not member.eager) and member.lives_at(burst.place)]
