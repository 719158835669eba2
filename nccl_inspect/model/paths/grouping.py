"""Connections to paths where they are many: pairs of ranks whose connections say the same have the same kind of path.

Rows are only compared here. What they mean, :mod:`.build` says of one pair for all that are alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.connection import SIDES
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.edge_table import NOTHING, EdgeTable, ranks_column, rows_of
from nccl_inspect.model.fold.process_log import ProcessLog
from nccl_inspect.model.paths.ends import Line, NicName
from nccl_inspect.model.paths.numbers import Columns
from nccl_inspect.model.paths.path import Path, PathKind, key_of, kind_of
from nccl_inspect.model.paths.placement import Placed, owners
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.columns import Column, concatenate, join_keys, number_groups, sort_rows


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
        rows = rows_of(self._bursts)
        sizes = [len(burst.edges) for burst in self._bursts]
        at = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        rank_lists = self._flatten()
        lists = rank_lists[owner][at]
        proxy = table.map_events(lambda event: NOTHING if event.pxn_rank is None else event.pxn_rank)[rows]
        src, dst, proxy = (self._flat_places(lists, each) for each in (table.src[rows], table.dst[rows], proxy))
        reduces = table.map_events(lambda event: event.transport == "COLLNET")[rows]
        is_known = (self._flat[src] != NOTHING) & (self._flat[dst] != NOTHING)
        self.unplaced = int(table.lines[rows[~is_known & ~reduces]].sum())
        kept = np.flatnonzero(is_known & ~reduces)
        self._number = np.array(owners(self._placements), np.int32)
        kept = kept[sort_rows(self._number[owner[at[kept]]], table.place[rows[kept]])]
        self.networks = self._count_networks(table.kind[rows[kept]])
        """How many connections each network has."""
        self.spaces, space = _number_names([placement.space for placement in self._placements])
        of_space = np.argsort(np.argsort(self.spaces))[space]
        pair = join_keys(self._flat[src[kept]], self._flat[dst[kept]], of_space[owner[at[kept]]])
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
        self.communicators, communicator = _number_names([placement.communicator for placement in self._placements])
        self.communicator = communicator[self._owner]
        self.log = _number_names([id(placement.log) for placement in self._placements])[1][self._owner]
        self.guessed = np.array(placed.doubts(self._bursts), np.int8)[self._at]
        self.kind, self.place = table.kind[self.row], table.place[self.row]
        self.is_local = table.map_events(lambda event: event.is_local)[self.row]

    def __len__(self) -> int:
        return len(self.row)

    def _flatten(self) -> Column:
        """Put the ranks of all placements one behind the other, and give for each the number of its list of ranks."""
        lists = {id(placement.ranks): placement for placement in self._placements}
        number = {key: index for index, key in enumerate(lists)}
        self._sizes = np.array([len(placement.ranks) for placement in lists.values()], np.int32)
        self._begins = np.cumsum(self._sizes) - self._sizes
        ranks = [ranks_column(placement.ranks) for placement in lists.values()]
        self._flat = concatenate([*ranks, np.array([NOTHING])]).astype(np.int32)
        self._lists = [(placement.space, len(placement.ranks)) for placement in lists.values()]
        return np.array([number[id(placement.ranks)] for placement in self._placements], np.int32)

    def _flat_places(self, lists: Column, rank: Column) -> Column:
        """Return the places of ranks in their lists among all; the last place where they are not there."""
        is_there = (rank >= 0) & (rank < self._sizes[lists])
        return np.where(is_there, self._begins[lists] + rank, len(self._flat) - 1)

    def log_of(self, index: int) -> ProcessLog:
        """Return who printed one of them."""
        return self._placements[int(self._owner[index])].log

    def lines(self, rows: Sequence[int] | Column) -> list[Line]:
        """Return some of them."""
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
            Edge(event, event.channel, self._bursts[at].printed, place, self.table.channel_sets[channels]),
            placement.communicator,
            placement.log,
            guessed > 0,
            guessed > 1,
            None if proxy == NOTHING else proxy,
            self._devices[src_dev],
            self._devices[dst_dev],
        )

    def _count_networks(self, kind: Column) -> Counter[str]:
        counts: Counter[str] = Counter()
        heads, number = number_groups(kind)
        for place, count in zip(kind[heads].tolist(), np.bincount(number).tolist(), strict=True):
            if net := self.table.kinds[place].net:
                counts[net] += count
        return counts

    def local(self, hosts: Mapping[tuple[str, int], str]) -> Iterator[tuple[str, int, int]]:
        """Yield the ranks that SHM and P2P join; none if the hosts of all ranks are known.

        Args:
            hosts: of ranks, by space and rank.
        """
        _, src_host, dst_host = self.hosts(hosts)
        local = np.flatnonzero(self.is_local)
        if not (np.minimum(src_host, dst_host)[local] == NOTHING).any():
            return
        rows = local[number_groups(self.pair[local])[0]]
        rows = rows[sort_rows(self._number[self._owner[rows]], self.place[rows])]
        for space, src, dst in zip(
            *(column[rows].tolist() for column in (self.space, self.src, self.dst)), strict=True
        ):
            yield self.spaces[space], src, dst

    def hosts(self, hosts: Mapping[tuple[str, int], str]) -> tuple[list[str], Column, Column]:
        """Return the names of hosts, and for each row the places of those of its ends, -1 where they are not known.

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
        """Yield the GPUs of ranks by their spaces."""
        for rank, device in ((self.src, self.table.src_dev[self.row]), (self.dst, self.table.dst_dev[self.row])):
            heads = number_groups(self.space, rank, device)[0]
            columns = (column[heads].tolist() for column in (self.space, rank, device))
            for space, number, name in zip(*columns, strict=True):
                yield self.spaces[space], number, self._devices[name]


def _number_names(names: Sequence[Hashable]) -> tuple[list[Any], Column]:
    """Return the distinct names of placements in their order, and for each placement the place of its own."""
    number = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return list(number), np.array([number[name] for name in names], np.int32)


_LONG = 64
"""Connections of one pair that are compared with those of others; a pair that has more has a kind of its own."""
_NEVER = np.iinfo(np.int64).max
"""A place behind all lines."""


class _Evidence:
    """The first lines of paths, made when they are asked for."""

    def __init__(
        self, rows: Rows, first: Column, of_ends: Mapping[str, Column], evidence: Callable[[Edge], Evidence]
    ) -> None:
        self._table, self._first, self._evidence = rows.table, rows.row[first].tolist(), evidence
        self._of_ends = of_ends

    def __getitem__(self, row: int) -> list[Evidence]:
        return [self._evidence(self._table.edges[self._first[row]])]

    def list_lines(self, row: int, side: str) -> list[Evidence]:
        """See :class:`~.columns.EndLines`."""
        line = int(self._of_ends[side][row])
        return [] if line == NOTHING else [self._evidence(self._table.edges[line])]


def _is_printed_at(side: str, event: ChannelConnect) -> bool:
    return event.direction == side


class Grouping:
    """Groups connections by the pairs that they join.

    Args:
        rows: the connections.
        hosts: the places of the hosts of their ends.
        nic_name: names NICs.
        scope: of a line.
    """

    def __init__(
        self, rows: Rows, hosts: tuple[Column, Column], nic_name: NicName, scope: Callable[[Line], str]
    ) -> None:
        self._rows, self._hosts = rows, hosts
        details: dict[str, int] = {}
        self._detail = np.array([details.setdefault(kind.detail, len(details)) for kind in rows.table.kinds])[rows.kind]
        self._details = details
        self._likeness = _alike(self._signs(nic_name, scope), rows.begins, rows.sizes)

    def _is_mixed(self, column: Column) -> Column:
        """Return whether the connections of each pair differ."""
        differs = np.append(False, column[1:] != column[:-1])
        differs[self._rows.begins] = False
        is_mixed = np.zeros(len(self._rows.sizes), bool)
        is_mixed[self._rows.pair[differs]] = True
        return is_mixed

    def _signs(self, nic_name: NicName, scope: Callable[[Line], str]) -> Column:
        """Equal for connections that say the same of their paths."""
        rows = self._rows
        self.mixed = self._is_mixed(rows.communicator)
        # Which communicators they are matters where several ways are named with theirs; else that they are several.
        communicator = np.where(self._is_mixed(self._detail)[rows.pair], rows.communicator, NOTHING - 1 - self._nth())
        nic = self._nics(nic_name)
        channels = rows.table.channels[rows.row]
        return number_groups(rows.kind, channels, nic, rows.proxy, rows.guessed, communicator, self._scopes(scope))[1]

    def _nth(self) -> Column:
        """Return for each connection whether its communicator is the first of its pair, the second, …"""
        nth = np.zeros(len(self._rows), np.int32)
        mixed = np.flatnonzero(self.mixed[self._rows.pair])
        if len(mixed):
            pair = self._rows.pair[mixed]
            number = number_groups(pair, self._rows.communicator[mixed])[1]
            begins = np.flatnonzero(np.append(True, pair[1:] != pair[:-1]))
            nth[mixed] = number - np.repeat(number[begins], np.diff(begins, append=len(pair)))
        return nth

    def _nics(self, nic_name: NicName) -> Column:
        """Return the NIC of each connection."""
        rows = self._rows
        nics = [(kind.net, kind.nic_index) for kind in rows.table.kinds]
        numbers: dict[object, int] = {}
        nic = np.array([numbers.setdefault(nic, len(numbers)) for nic in nics])[rows.kind]
        first, group = number_groups(rows.log, nic)
        names: dict[str | None, int] = {}
        named = []
        for row, kind in zip(first.tolist(), rows.kind[first].tolist(), strict=True):
            net, index = nics[kind]
            name = nic_name(rows.log_of(row), net, index) if net is not None and index is not None else None
            named.append(names.setdefault(name, len(names)))
        return np.array(named, np.int64)[group]

    def _scopes(self, scope: Callable[[Line], str]) -> Column:
        """Return whether the ends of each connection are on one host."""
        rows, (src_host, dst_host) = self._rows, self._hosts
        both = (src_host != NOTHING) & (dst_host != NOTHING)
        ends = np.where(both, src_host == dst_host, 2 + rows.pair)
        devices = join_keys(rows.table.src_dev[rows.row], rows.table.dst_dev[rows.row])
        first, group = number_groups(rows.communicator, rows.is_local, ends, np.where(both, 0, devices))
        scopes: dict[str, int] = {}
        return np.array([scopes.setdefault(scope(line), len(scopes)) for line in rows.lines(first)])[group]

    def columns(
        self, path_of: Callable[[Sequence[Line]], Path], evidence: Callable[[Edge], Evidence], hosts: Sequence[str]
    ) -> Columns:
        """Return the paths.

        Args:
            path_of: the path of a pair, by its lines.
            evidence: of an edge.
            hosts: their names.
        """
        rows, table = self._rows, self._rows.table
        first, like = number_groups(self._likeness)
        number: dict[object, int] = {}
        kinds: list[PathKind] = []
        kind, detail = [], []
        for begin, size in zip(rows.begins[first].tolist(), rows.sizes[first].tolist(), strict=True):
            path = path_of(rows.lines(slice(begin, begin + size)))
            place = number.setdefault(key_of(path), len(kinds))
            if place == len(kinds):
                kinds.append(kind_of(path))
            kind.append(place)
            detail.append(self._details[path.detail])
        is_chosen = self._detail == np.repeat(np.array(detail)[like], rows.sizes)
        line = self._firsts(is_chosen)
        lines = _Evidence(rows, line, self._first_rows(is_chosen), evidence)
        sets, communicators = self._communicators(is_chosen, line)
        kind_of_pair: Column = np.array(kind, np.int64)[like]
        src_host, dst_host = (column[line] + 1 for column in self._hosts)
        return Columns(
            src=rows.src[line],
            dst=rows.dst[line],
            src_host=src_host,
            dst_host=dst_host,
            src_gpu=table.src_dev[rows.row[line]],
            dst_gpu=table.dst_dev[rows.row[line]],
            kind=kind_of_pair,
            communicators=communicators,
            evidence=lines,
            hosts=[None, *hosts],
            gpus=list(table.devices),
            kinds=kinds,
            communicator_sets=sets,
            end_lines=lines.list_lines,
        )

    def _firsts(self, is_wanted: Column) -> Column:
        """Return for each pair the wanted connection that stands first in the log; -1 where none is wanted."""
        rows = self._rows
        place = np.where(is_wanted, rows.place, _NEVER)
        first = np.repeat(np.minimum.reduceat(place, rows.begins), rows.sizes)
        there = np.flatnonzero((place == first) & is_wanted)[::-1]
        firsts = np.full(len(rows.sizes), NOTHING)
        firsts[rows.pair[there]] = there
        return firsts

    def _first_rows(self, is_chosen: Column) -> dict[str, Column]:
        """Return for each side the row of the first connection that each pair prints there."""
        rows, of_ends = self._rows, {}
        for side in SIDES:
            is_printed = rows.table.map_events(partial(_is_printed_at, side))[rows.row]
            firsts = self._firsts(is_chosen & is_printed)
            of_ends[side] = np.where(firsts == NOTHING, NOTHING, rows.row[firsts])
        return of_ends

    def _communicators(self, is_chosen: Column, line: Column) -> tuple[list[tuple[str, ...]], Column]:
        """Return the communicators of each path."""
        rows = self._rows
        sets: dict[tuple[str, ...], int] = {(name,): place for place, name in enumerate(rows.communicators)}
        numbers = rows.communicator[line]
        mixed = np.flatnonzero(self.mixed[rows.pair] & is_chosen)
        if not len(mixed):
            return list(sets), numbers
        some = mixed[number_groups(rows.pair[mixed], rows.communicator[mixed])[0]]
        pair, communicator = rows.pair[some], rows.communicator[some]
        begins = np.flatnonzero(np.append(True, pair[1:] != pair[:-1]))
        sizes = np.diff(begins, append=len(pair))
        first, like = number_groups(_alike(communicator, begins, sizes))
        places = []
        for begin, size in zip(begins[first].tolist(), sizes[first].tolist(), strict=True):
            names = [rows.communicators[place] for place in communicator[begin : begin + size].tolist()]
            places.append(sets.setdefault(tuple(names), len(sets)))
        numbers[pair[begins]] = np.array(places)[like]
        return list(sets), numbers


def _alike(signs: Column, begins: Column, sizes: Column) -> Column:
    """Equal for groups of rows with equal signs in equal order.

    Args:
        signs: of the rows; not negative.
        begins: of the groups.
        sizes: of the groups.
    """
    is_long = sizes > _LONG
    signature = np.where(is_long, np.cumsum(is_long), 0)
    for place in range(min(_LONG, int(sizes.max(initial=0)))):
        at = np.minimum(begins + place, len(signs) - 1)
        sign = np.where(is_long | (sizes <= place), NOTHING, signs[at])
        signature = number_groups(signature, sign)[1]
    return signature
