"""The loose bursts of many processes in columns, and which of their connections belong together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nccl_inspect.model.communicators.candidates import conn_of
from nccl_inspect.model.communicators.member_table import MemberTable
from nccl_inspect.model.communicators.members import RINGS_AND_TREES, ProcessMembers
from nccl_inspect.model.fold.edge_table import NOTHING, EdgeTable
from nccl_inspect.model.fold.process_log import Burst
from nccl_inspect.util.columns import Column, ranges

MOST_MEMBERS = 64
"""Members of one process that each of its connections is compared with here."""
_ALL = np.uint64((1 << MOST_MEMBERS) - 1)


class LooseBursts:
    """A row for each loose burst of the processes with few members.

    Args:
        processes: with their members.
        members: all of these.
        table: of all connections.
    """

    def __init__(self, processes: Sequence[ProcessMembers], members: MemberTable, table: EdgeTable) -> None:
        self._members, self._table = members, table
        self.bursts: list[Burst] = []
        self.passed_over: list[int] = []
        """The other processes, by their numbers."""
        groups: dict[tuple[int, ...], int] = {}
        number = {id(burst): at for at, burst in enumerate(table.bursts)}
        bursts: list[tuple[int, ...]] = []
        for index, process in enumerate(processes):
            if not members.are_few(index, MOST_MEMBERS):
                self.passed_over.append(index)
                continue
            for burst in process.loose:
                conn, (_, own, rank) = conn_of(process, burst), burst.key
                group = NOTHING
                if not process.is_apart(burst):
                    group = groups.setdefault((index, *process.together(burst)), len(groups))
                conns = NOTHING if conn is None else conn, NOTHING if own is None else own
                bursts.append((index, *conns, group, burst.place, rank, number[id(burst)]))
            self.bursts += process.loose
        columns = np.array(bursts, np.int64).reshape(-1, 7).T
        self.process, self.conn, self._own_conn, self._group, self.place, self.rank, at = columns
        first, self.size = table.begins[at], table.begins[at + 1] - table.begins[at]
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
        fits = self._living(np.bitwise_and.reduceat(fitting, self.begin), self.process, self.place, self.conn)
        grouped = np.flatnonzero(group != NOTHING)
        shared = np.full(self._groups + 1, _ALL)
        np.bitwise_and.at(shared, group[grouped], fits[grouped])
        shared[NOTHING] = 0
        in_group = shared[group] != 0
        alone = ~in_group & ((group == NOTHING) | ((fits == 0) & (self.size > 1)))
        self.is_alone = alone
        """Bursts whose connections are units of their own."""
        singles = self._groups + np.arange(len(self.bursts))
        self.unit_of_burst = np.where(in_group, group, singles)
        self.unit = self.unit_of_burst[self.burst]
        """By rows; units are groups of bursts, bursts, or connections."""
        apart = rows[alone[self.burst]]
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
        self.candidates = np.zeros(self.units, np.uint64)
        """By units, a bit for each member of the process."""
        self.candidates[self.unit_of_burst] = np.where(in_group, shared[group], np.where(alone, 0, fits))
        own = self.unit[apart]
        units = self.process_of_unit[own], self.place_of_unit[own], self.conn_of_unit[own]
        self.candidates[own] = self._living(fitting[apart], *units)
        self.is_doubtful = is_row & (self.candidates & (self.candidates - np.uint64(1)) != 0)
        """Units that may be of several members, and then together."""

    def _living(self, fits: Column, process: Column, place: Column, conn: Column) -> Column:
        """Of the bits for members that connections of a set fit those of members that they can be of at their place."""
        members = self._members
        living = np.zeros(len(process), np.uint64)
        for index in range(int(fits.max(initial=0)).bit_length()):
            some = np.flatnonzero(fits & np.uint64(1 << index))
            member = members.begin[process[some]] + index
            lives = (members.first[member] <= place[some]) & (place[some] <= members.last[member])
            lives &= ~(members.eager[member] & (conn[some] == RINGS_AND_TREES))
            living[some[lives]] |= np.uint64(1 << index)
        return living
