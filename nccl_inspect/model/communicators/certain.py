"""Gives connections that fit one communicator of their process to it, all at once, where there are many.

What :mod:`.attribution` decides burst by burst: the same questions (:func:`.candidates.fits`), asked of columns. What
fits several communicators, or none, or what another connection took, is left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from nccl_inspect.model.communicators.candidates import (
    Ends,
    FittingMembers,
    Made,
    Unit,
    burst_units,
    doubtful_units,
    edge_units,
    units_of,
)
from nccl_inspect.model.communicators.exclusion import Exclusion, number_of_bit
from nccl_inspect.model.communicators.loose import LooseBursts
from nccl_inspect.model.communicators.member_table import MemberTable
from nccl_inspect.model.communicators.members import RINGS_AND_TREES, SEND_RECV, Member, ProcessMembers
from nccl_inspect.model.communicators.twins import Pair, Printed
from nccl_inspect.model.fold.burst_part import part_of
from nccl_inspect.model.fold.edge_table import NOTHING, EdgeTable
from nccl_inspect.model.fold.process_log import Burst
from nccl_inspect.util.columns import Column, distinct, groups, joined, joint, order_of, ranges

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
        self.receives = table.of_kinds(lambda event: event.direction == "receive")
        self._own = np.where(self.receives, table.dst_dev, table.src_dev)
        self._far = np.where(self.receives, table.src_dev, table.dst_dev)
        self._other = np.where(self.receives, table.src, table.dst)
        self._local = table.of_kinds(lambda event: event.is_local)
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

    def misplaced(self) -> AbstractSet[int]:
        """The ids of bursts inside of START and COMPLETE that do not fit their member."""
        if not any(member.bursts for member in self._members.all):
            return set()
        number = {id(burst): at for at, burst in enumerate(self._table.bursts)}
        pairs = [
            (number[id(burst)], owner) for owner, member in enumerate(self._members.all) for burst in member.bursts
        ]
        bursts, owner = np.array(pairs, np.int64).T
        rows = joined([self._table.bursts[burst].at for burst in bursts.tolist()])
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
        slots = joint(process, conn, table.src, table.dst, self.receives)
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
        self._count_uses(process, member[units], size, order_of(process, turn[units], loose.place_of_unit[units]))
        is_whole = loose.is_alike | ~loose.is_alone
        whole = np.flatnonzero(is_whole & (turn[loose.unit_of_burst] != NOTHING))
        owners = member[loose.unit_of_burst[whole]].tolist()
        places = np.where(loose.is_alike, loose.last, loose.place)[whole].tolist()
        for at, owner, index, place in zip(whole.tolist(), owners, loose.process[whole].tolist(), places, strict=True):
            burst, one = loose.bursts[at], members.all[owner]
            one.bursts.append(burst)
            tid, conn, _ = burst.key
            made[index].setdefault(tid, []).append(Made(place, conn, one))
        apart = np.flatnonzero(~is_whole[loose.burst] & (turn[loose.unit] != NOTHING))
        for group in groups(joint(loose.burst[apart], member[loose.unit[apart]])):
            some = apart[group]
            burst, owner = loose.bursts[loose.burst[some[0]]], members.all[member[loose.unit[some[0]]]]
            part = burst if len(some) == len(burst.at) else part_of(burst, table, loose.rows[some])
            owner.bursts.append(part)
            # Other threads may say amid those of rings and trees that some are complete.
            tid, conn, _ = burst.key
            places = table.place[loose.rows[some if conn != SEND_RECV else some[-1:]]].tolist()
            own = made[int(loose.process[loose.burst[some[0]]])].setdefault(tid, [])
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
        for group in groups(joint(loose.burst[left], loose.is_doubtful[loose.unit[left]])):
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

    def _of_open(self) -> Column:
        """Connections of processes that have some which are not certain."""
        is_open = np.zeros(len(self._processes), bool)
        is_open[self._owner[self.member == NOTHING]] = True
        return np.flatnonzero(is_open[self._owner])

    def ends_of(self, bursts: Sequence[Burst]) -> Iterator[Ends]:
        """See :func:`.candidates.ends_of`."""
        return self._ends(joined([np.asarray(burst.at) for burst in bursts]))

    def like(self) -> Iterator[tuple[Member, int, Ends]]:
        """Connections that went to members and join the ranks that some that are left do in the same process."""
        table, process, rows = self._table, self._owner, self._of_open()
        ends = joint(process[rows], table.src[rows], table.dst[rows])
        is_like = np.isin(ends, ends[self.member[rows] == NOTHING])
        rows = rows[is_like & (self.member[rows] != NOTHING) & (self.conn[rows] != NOTHING)]
        columns = (column[rows].tolist() for column in (self.member, self.conn))
        for member, conn, end in zip(*columns, self._ends(rows), strict=True):
            yield self._members.all[member], conn, end

    def printed(self, process: int) -> set[Printed]:
        """See :func:`.twins.printed`, of a process by its number."""
        rows = slice(*self._table.begins[np.searchsorted(self._process, (process, process + 1))])
        table = self._table
        columns = (column[rows].tolist() for column in (self.receives, table.kind, table.src, table.dst))
        of_network = {at: kind.conn for at, kind in enumerate(table.kinds) if kind.direction}
        return {
            (receives, of_network[kind], src, dst)
            for receives, kind, src, dst in zip(*columns, strict=True)
            if kind in of_network
        }

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


class _Fitting:
    """Holds which members of a process a burst fits, where that was asked of all at once."""

    def __init__(self, members: Sequence[Member], fitting: Column) -> None:
        self._members, self._fitting = members, fitting

    def of(self, burst: Burst, conn: int | None) -> list[Member]:
        """The members in which all lines of a burst fit, in their order."""
        bits = int(np.bitwise_and.reduce(self._fitting[burst.at]))
        some = [member for index, member in enumerate(self._members) if bits >> index & 1]
        is_free = conn != RINGS_AND_TREES
        return [member for member in some if (is_free or not member.eager) and member.lives_at(burst.place)]
