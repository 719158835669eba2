"""The loose bursts of many processes in columns, and which of their connections belong together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nccl_inspect.model.communicators.candidates import conn_of
from nccl_inspect.model.communicators.member_table import MemberTable
from nccl_inspect.model.communicators.members import RINGS_AND_TREES, SEND_RECV, ProcessMembers
from nccl_inspect.model.fold.edge_table import NOTHING, EdgeTable
from nccl_inspect.util.columns import Column, order_of, ranges

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
        at = at[order_of(process[at], table.place[table.begins[at]])]
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
        several = np.unique(group[grouped[self.conn[grouped] != self.conn_of_unit[group[grouped]]]])
        self.conn_of_unit[several] = NOTHING
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
