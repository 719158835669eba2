"""Connection lines in the ranks of their spaces as columns, where they are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nccl_inspect.model.fold.edge_table import NOTHING, EdgeTable, ranks_column
from nccl_inspect.model.fold.process_log import Edge, ProcessLog
from nccl_inspect.model.paths.ends import Line
from nccl_inspect.model.paths.placement import Placed, owners
from nccl_inspect.util.columns import Column, distinct, joined, joint, order_of


class Rows:
    """Connections that join two ranks of a space, in the order of these, those of a pair in that of their owners.

    Args:
        placed: all bursts.
        table: of all connections.
    """

    def __init__(self, placed: Placed, table: EdgeTable) -> None:
        self._placements, self.table = placed.placements, table
        self._devices = list(table.devices)
        self._bursts = [burst for placement in self._placements for burst in placement.bursts]
        sizes = [len(placement.bursts) for placement in self._placements]
        owner = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        ats = [burst.at for burst in self._bursts]
        rows = joined(ats)
        at = np.repeat(np.arange(len(ats), dtype=np.int32), list(map(len, ats)))
        rank_lists = self._flatten()
        lists = rank_lists[owner][at]
        proxy = table.of_kinds(lambda event: NOTHING if event.pxn_rank is None else event.pxn_rank)[rows]
        src, dst, proxy = (self._flat_places(lists, each) for each in (table.src[rows], table.dst[rows], proxy))
        reduces = table.of_kinds(lambda event: event.transport == "COLLNET")[rows]
        is_known = (self._flat[src] != NOTHING) & (self._flat[dst] != NOTHING)
        self.unplaced = int(table.lines[rows[~is_known & ~reduces]].sum())
        kept = np.flatnonzero(is_known & ~reduces)
        self._number = np.array(owners(self._placements), np.int32)
        kept = kept[order_of(self._number[owner[at[kept]]], table.place[rows[kept]])]
        self.networks = self._counted(table.kind[rows[kept]])
        """How many connections each network has."""
        self.spaces, space = _named([placement.space for placement in self._placements])
        of_space = np.argsort(np.argsort(self.spaces))[space]
        pair = joint(self._flat[src[kept]], self._flat[dst[kept]], of_space[owner[at[kept]]])
        by_pair = np.argsort(pair, kind="stable")
        kept, pair = kept[by_pair], pair[by_pair]
        self.begins = np.flatnonzero(np.append(True, pair[1:] != pair[:-1])[: len(pair)])
        """Where each pair of ranks begins, as do the next two columns of pairs and rows."""
        self.sizes = np.diff(self.begins, append=len(pair))
        self.pair = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.row, self._at = rows[kept], at[kept]
        self._src, self._dst = src[kept], dst[kept]
        self.src, self.dst, self.proxy = (self._flat[each] for each in (self._src, self._dst, proxy[kept]))
        self._owner = owner[self._at]
        self.space = space[self._owner]
        self.communicators, communicator = _named([placement.communicator for placement in self._placements])
        self.communicator = communicator[self._owner]
        self.log = _named([id(placement.log) for placement in self._placements])[1][self._owner]
        self.guessed = np.array(placed.doubts(self._bursts), np.int8)[self._at]
        self.kind, self.place = table.kind[self.row], table.place[self.row]
        self.is_local = table.of_kinds(lambda event: event.is_local)[self.row]

    def __len__(self) -> int:
        return len(self.row)

    def _flatten(self) -> Column:
        """Put the ranks of all placements one behind the other, and give for each the number of its list of ranks."""
        lists = {id(placement.ranks): placement for placement in self._placements}
        number = {key: index for index, key in enumerate(lists)}
        self._sizes = np.array([len(placement.ranks) for placement in lists.values()], np.int32)
        self._begins = np.cumsum(self._sizes) - self._sizes
        ranks = [ranks_column(placement.ranks) for placement in lists.values()]
        self._flat = joined([*ranks, np.array([NOTHING])]).astype(np.int32)
        self._lists = [(placement.space, len(placement.ranks)) for placement in lists.values()]
        return np.array([number[id(placement.ranks)] for placement in self._placements], np.int32)

    def _flat_places(self, lists: Column, rank: Column) -> Column:
        """The places of ranks in their lists among all; the last place where they are not there."""
        is_there = (rank >= 0) & (rank < self._sizes[lists])
        return np.where(is_there, self._begins[lists] + rank, len(self._flat) - 1)

    def log_of(self, index: int) -> ProcessLog:
        """Return who printed one of them."""
        return self._placements[int(self._owner[index])].log

    def lines(self, rows: Sequence[int] | Column) -> list[Line]:
        """Some of them."""
        table, at = self.table, self.row[rows]
        columns = [column[rows] for column in (self._owner, self._at, self.guessed, self.src, self.dst, self.proxy)]
        stated = (table.kind[at], table.place[at], table.channels[at], table.src_dev[at], table.dst_dev[at])
        return [
            self._line(*numbers) for numbers in zip(*(column.tolist() for column in (*columns, *stated)), strict=True)
        ]

    def _line(
        self,
        owner: int,
        at: int,
        guessed: int,
        src: int,
        dst: int,
        proxy: int,
        kind: int,
        place: int,
        channels: int,
        src_dev: int,
        dst_dev: int,
    ) -> Line:
        placement, event = self._placements[owner], self.table.kinds[kind]
        return Line(
            placement.space,
            src,
            dst,
            event,
            Edge(event, self._bursts[at].origin, place, self.table.channel_sets[channels]),
            placement.communicator,
            placement.log,
            guessed > 0,
            guessed > 1,
            None if proxy == NOTHING else proxy,
            self._devices[src_dev],
            self._devices[dst_dev],
        )

    def _counted(self, kind: Column) -> Counter[str]:
        counts: Counter[str] = Counter()
        heads, number = distinct(kind)
        for place, count in zip(kind[heads].tolist(), np.bincount(number).tolist(), strict=True):
            if net := self.table.kinds[place].net:
                counts[net] += count
        return counts

    def local(self, hosts: Mapping[tuple[str, int], str]) -> Iterator[tuple[str, int, int]]:
        """The ranks that SHM and P2P join; none if the hosts of all ranks are known.

        Args:
            hosts: of ranks, by space and rank.
        """
        _, src_host, dst_host = self.hosts(hosts)
        local = np.flatnonzero(self.is_local)
        if not (np.minimum(src_host, dst_host)[local] == NOTHING).any():
            return
        rows = local[distinct(self.pair[local])[0]]
        rows = rows[order_of(self._number[self._owner[rows]], self.place[rows])]
        for space, src, dst in zip(
            *(column[rows].tolist() for column in (self.space, self.src, self.dst)), strict=True
        ):
            yield self.spaces[space], src, dst

    def hosts(self, hosts: Mapping[tuple[str, int], str]) -> tuple[list[str], Column, Column]:
        """The names of hosts, and for each row the places of those of its ends, -1 where they are not known.

        Args:
            hosts: of ranks, by space and rank.
        """
        names = {name: index for index, name in enumerate(dict.fromkeys(hosts.values()))}
        places = {rank: names[name] for rank, name in hosts.items()}
        spaces = [space for space, size in self._lists for _ in range(size)]
        by_rank = [places.get(rank, NOTHING) for rank in zip(spaces, self._flat.tolist(), strict=False)]
        host = np.array([*by_rank, NOTHING], np.int32)
        return list(names), host[self._src], host[self._dst]

    def devices(self) -> Iterator[tuple[str, int, str | None]]:
        """The GPUs of ranks by their spaces."""
        for rank, device in ((self.src, self.table.src_dev[self.row]), (self.dst, self.table.dst_dev[self.row])):
            heads = distinct(self.space, rank, device)[0]
            columns = (column[heads].tolist() for column in (self.space, rank, device))
            for space, number, name in zip(*columns, strict=True):
                yield self.spaces[space], number, self._devices[name]


def _named(names: Sequence[Hashable]) -> tuple[list[Any], Column]:
    """The distinct names of placements in their order, and for each placement the place of its own."""
    number = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return list(number), np.array([number[name] for name in names], np.int32)
