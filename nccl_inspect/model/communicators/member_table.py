"""The members of all processes in columns, where they have many connections."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import ProcessMembers
from nccl_inspect.model.fold.edge_table import NOTHING, ranks_column
from nccl_inspect.util.columns import Column, joined

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
            global_ranks = joined([*(ranks_column(some.global_ranks) for some in comms.values()), np.array([NOTHING])])
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
        """Whether a process has no more members than these, and all their ranks are listed; by processes."""
        owner = np.repeat(np.arange(len(self.number)), self.number)
        unlisted = np.bincount(owner[self._listed == 0], minlength=len(self.number))
        return (self.number <= most) & (unlisted == 0)
