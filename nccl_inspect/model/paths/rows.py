"""Connection lines in the ranks of their spaces as columns, where they are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from nccl_inspect.model.fold.edge_table import NOTHING, EdgeTable, ranks_column
from nccl_inspect.model.fold.process_log import Edge, ProcessLog
from nccl_inspect.model.paths.ends import Line
from nccl_inspect.model.paths.placement import Placement, owners
from nccl_inspect.util.columns import Column, Lookup, distinct, joined, order_of, pair


class Rows:
    """Connections that join two ranks of a space, in the order of their owners.

    Args:
        placements: of bursts.
        table: of all connections.
    """

    def __init__(self, placements: Sequence[Placement], table: EdgeTable) -> None:
        self._placements, self.table = placements, table
        self._devices = list(table.devices)
        ats = [table.rows_of(placement.burst) for placement in placements]
        rows = joined(ats)
        at = np.repeat(np.arange(len(placements)), list(map(len, ats)))
        rank_lists = {id(placement.ranks): placement.ranks for placement in placements}
        number = {key: index for index, key in enumerate(rank_lists)}
        self._sizes = np.array([len(ranks) for ranks in rank_lists.values()], np.int64)
        self._begins = np.cumsum(self._sizes) - self._sizes
        self._flat = joined([*map(ranks_column, rank_lists.values()), np.array([NOTHING])])
        ranks = np.array([number[id(placement.ranks)] for placement in placements], np.int64)[at]
        proxy = table.of_kinds(lambda event: NOTHING if event.pxn_rank is None else event.pxn_rank)[rows]
        src, dst, proxy = (self._known(ranks, each) for each in (table.src[rows], table.dst[rows], proxy))
        reduces = table.of_kinds(lambda event: event.transport == "COLLNET")[rows]
        is_known = (src != NOTHING) & (dst != NOTHING)
        self.unplaced = int(table.lines[rows[~is_known & ~reduces]].sum())
        kept = np.flatnonzero(is_known & ~reduces)
        owner = np.array(owners(placements), np.int64)[at[kept]]
        kept = kept[order_of(owner, table.place[rows[kept]])]
        self.row, self._at = rows[kept], at[kept]
        self.src, self.dst, self.proxy = src[kept], dst[kept], proxy[kept]
        self.spaces, self.space = self._named([placement.space for placement in placements])
        self.communicators, self.communicator = self._named([placement.communicator for placement in placements])
        logs = {id(placement.log): index for index, placement in enumerate(placements)}
        self.log = np.array([logs[id(placement.log)] for placement in placements], np.int64)[self._at]
        self.guessed = np.array([placement.guessed + placement.doubtful for placement in placements], np.int64)[
            self._at
        ]
        self.kind, self.place = table.kind[self.row], table.place[self.row]
        self.is_local = table.of_kinds(lambda event: event.is_local)[self.row]

    def __len__(self) -> int:
        return len(self.row)

    def _known(self, ranks: Column, rank: Column) -> Column:
        there = (rank >= 0) & (rank < self._sizes[ranks])
        return np.where(there, self._flat[np.where(there, self._begins[ranks] + rank, 0)], NOTHING)

    def _named(self, names: Sequence[str]) -> tuple[list[str], Column]:
        """The distinct names of placements in their order, and for each row the place of its own."""
        number = {name: index for index, name in enumerate(dict.fromkeys(names))}
        return list(number), np.array([number[name] for name in names], np.int64)[self._at]

    def log_of(self, index: int) -> ProcessLog:
        """Who printed one of them."""
        return self._placements[int(self._at[index])].log

    def line(self, index: int) -> Line:
        """One of them."""
        placement, table, row = self._placements[self._at[index]], self.table, self.row[index]
        event, proxy = table.kinds[table.kind[row]], int(self.proxy[index])
        return Line(
            placement.space,
            int(self.src[index]),
            int(self.dst[index]),
            event,
            Edge(event, placement.burst.origin, int(table.place[row]), table.channel_sets[table.channels[row]]),
            placement.communicator,
            placement.log,
            placement.guessed,
            placement.doubtful,
            None if proxy == NOTHING else proxy,
            self._devices[table.src_dev[row]],
            self._devices[table.dst_dev[row]],
        )

    @property
    def networks(self) -> Counter[str]:
        """How many connections each network has."""
        counts: Counter[str] = Counter()
        heads, number = distinct(self.kind)
        for kind, count in zip(self.kind[heads].tolist(), np.bincount(number).tolist(), strict=True):
            if net := self.table.kinds[kind].net:
                counts[net] += count
        return counts

    def local(self) -> Iterator[tuple[str, int, int]]:
        """The ranks that SHM and P2P join."""
        local = np.flatnonzero(self.is_local)
        rows = local[distinct(self.space[local], self.src[local], self.dst[local])[0]]
        for space, src, dst in zip(
            *(column[rows].tolist() for column in (self.space, self.src, self.dst)), strict=True
        ):
            yield self.spaces[space], src, dst

    def hosts(self, hosts: Mapping[tuple[str, int], str]) -> tuple[list[str], Column, Column]:
        """The names of hosts, and for each row the places of those of its ends, -1 where they are not known."""
        names = {name: index for index, name in enumerate(dict.fromkeys(hosts.values()))}
        spaces = {name: index for index, name in enumerate(self.spaces)}
        named_hosts = [(spaces[space], rank, names[name]) for (space, rank), name in hosts.items() if space in spaces]
        space, rank, name = np.array(named_hosts, np.int64).reshape(-1, 3).T
        lookup = Lookup(pair(space, rank), name)
        return list(names), lookup.of(pair(self.space, self.src)), lookup.of(pair(self.space, self.dst))

    def devices(self) -> Iterator[tuple[str, int, str | None]]:
        """The GPUs of ranks by their spaces."""
        for rank, device in ((self.src, self.table.src_dev[self.row]), (self.dst, self.table.dst_dev[self.row])):
            heads = distinct(self.space, rank, device)[0]
            columns = (column[heads].tolist() for column in (self.space, rank, device))
            for space, number, name in zip(*columns, strict=True):
                yield self.spaces[space], number, self._devices[name]
