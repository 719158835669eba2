"""Connections to paths where they are many: pairs of ranks whose connections say the same have the same kind of path.

Rows are only compared here. What they mean, :mod:`.build` says of one pair for all that are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.connection import SIDES
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.edge_table import NOTHING
from nccl_inspect.model.fold.process_log import Edge
from nccl_inspect.model.paths.columns import Columns
from nccl_inspect.model.paths.ends import Line, NicName
from nccl_inspect.model.paths.path import Path, PathKind, key_of, kind_of
from nccl_inspect.model.paths.rows import Rows
from nccl_inspect.util.columns import Column, distinct, joint, order_of

_LONG = 64
"""Connections of one pair that are compared with those of others; a pair that has more has a kind of its own."""


class _Evidence:
    """The first lines of paths, made when they are asked for."""

    def __init__(
        self, rows: Rows, first: Column, of_ends: Mapping[str, Column], evidence: Callable[[Edge], Evidence]
    ) -> None:
        self._table, self._first, self._evidence = rows.table, rows.row[first].tolist(), evidence
        self._of_ends = of_ends

    def __getitem__(self, row: int) -> list[Evidence]:
        return [self._evidence(self._table.edge(self._first[row]))]

    def of_end(self, row: int, side: str) -> list[Evidence]:
        """See :class:`~.columns.EndLines`."""
        line = int(self._of_ends[side][row])
        return [] if line == NOTHING else [self._evidence(self._table.edge(line))]


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
        order = np.argsort(np.argsort(rows.spaces))
        key = joint(rows.src, rows.dst, order[rows.space])
        self._by_pair = np.argsort(key, kind="stable")
        ordered = key[self._by_pair]
        begins = np.append(True, ordered[1:] != ordered[:-1])
        self._begins = np.flatnonzero(begins)
        self._sizes = np.diff(self._begins, append=len(key))
        self.pair = np.empty(len(key), np.int64)
        self.pair[self._by_pair] = np.cumsum(begins) - 1
        details: dict[str, int] = {}
        self._detail = np.array([details.setdefault(kind.detail, len(details)) for kind in rows.table.kinds])[rows.kind]
        self._details = details
        self._likeness = self._alike(self._signs(nic_name, scope))

    def _of_pairs(self, column: Column) -> tuple[Column, Column]:
        """The least and the greatest value of each pair."""
        ordered = column[self._by_pair]
        return np.minimum.reduceat(ordered, self._begins), np.maximum.reduceat(ordered, self._begins)

    def _is_mixed(self, column: Column) -> Column:
        low, high = self._of_pairs(column)
        return low != high

    def _signs(self, nic_name: NicName, scope: Callable[[Line], str]) -> Column:
        """Equal for connections that say the same of their paths."""
        rows = self._rows
        self.mixed = self._is_mixed(rows.communicator)
        # Which communicators they are matters where several ways are named with theirs; else that they are several.
        communicator = np.where(self._is_mixed(self._detail)[self.pair], rows.communicator, NOTHING - 1 - self._nth())
        nic = self._nics(nic_name)
        channels = rows.table.channels[rows.row]
        return distinct(rows.kind, channels, nic, rows.proxy, rows.guessed, communicator, self._scopes(scope))[1]

    def _nth(self) -> Column:
        """Of each connection whether its communicator is the first of its pair, the second, …"""
        nth = np.zeros(len(self.pair), np.int64)
        mixed = self._by_pair[self.mixed[self.pair[self._by_pair]]]
        if len(mixed):
            pair = self.pair[mixed]
            number = distinct(pair, self._rows.communicator[mixed])[1]
            begins = np.unique(pair, return_index=True)[1]
            nth[mixed] = number - np.repeat(number[begins], np.diff([*begins, len(pair)]))
        return nth

    def _nics(self, nic_name: NicName) -> Column:
        """The NIC of each connection."""
        rows = self._rows
        nics = [(kind.net, kind.nic_index) for kind in rows.table.kinds]
        numbers: dict[object, int] = {}
        nic = np.array([numbers.setdefault(nic, len(numbers)) for nic in nics])[rows.kind]
        first, group = distinct(rows.log, nic)
        names: dict[str | None, int] = {}
        named = []
        for row, kind in zip(first.tolist(), rows.kind[first].tolist(), strict=True):
            net, index = nics[kind]
            name = nic_name(rows.log_of(row), net, index) if net is not None and index is not None else None
            named.append(names.setdefault(name, len(names)))
        return np.array(named, np.int64)[group]

    def _scopes(self, scope: Callable[[Line], str]) -> Column:
        """Whether the ends of each connection are on one host."""
        rows, (src_host, dst_host) = self._rows, self._hosts
        both = (src_host != NOTHING) & (dst_host != NOTHING)
        ends = np.where(both, src_host == dst_host, 2 + self.pair)
        devices = joint(rows.table.src_dev[rows.row], rows.table.dst_dev[rows.row])
        first, group = distinct(rows.communicator, rows.is_local, ends, np.where(both, 0, devices))
        scopes: dict[str, int] = {}
        return np.array([scopes.setdefault(scope(rows.line(row)), len(scopes)) for row in first.tolist()])[group]

    def _alike(self, signs: Column) -> Column:
        """Equal for pairs with equal connections in equal order."""
        ordered, is_long = signs[self._by_pair], self._sizes > _LONG
        signature = np.where(is_long, np.cumsum(is_long), 0)
        for place in range(min(_LONG, int(self._sizes.max(initial=0)))):
            at = np.minimum(self._begins + place, len(ordered) - 1)
            sign = np.where(is_long | (self._sizes <= place), NOTHING, ordered[at])
            signature = distinct(signature, sign)[1]
        return signature

    def rows_of(self, pair: int) -> list[int]:
        """The connections of a pair, in their order."""
        begin = self._begins[pair]
        rows: list[int] = self._by_pair[begin : begin + self._sizes[pair]].tolist()
        return rows

    def columns(
        self, path_of: Callable[[Sequence[Line]], Path], evidence: Callable[[Edge], Evidence], hosts: Sequence[str]
    ) -> Columns:
        """The paths.

        Args:
            path_of: the path of a pair, by its lines.
            evidence: of an edge.
            hosts: their names.
        """
        rows, table = self._rows, self._rows.table
        first, like = distinct(self._likeness)
        number: dict[object, int] = {}
        kinds: list[PathKind] = []
        kind, detail = [], []
        for pair in first.tolist():
            path = path_of([rows.line(row) for row in self.rows_of(pair)])
            place = number.setdefault(key_of(path), len(kinds))
            if place == len(kinds):
                kinds.append(kind_of(path))
            kind.append(place)
            detail.append(self._details[path.detail])
        is_chosen = self._detail == np.array(detail, np.int64)[like][self.pair]
        chosen = self._by_pair[is_chosen[self._by_pair]]
        chosen = chosen[order_of(self.pair[chosen], rows.place[chosen])]
        line = chosen[np.unique(self.pair[chosen], return_index=True)[1]]
        lines = _Evidence(rows, line, self._of_ends(chosen), evidence)
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
            end_lines=lines.of_end,
        )

    def _of_ends(self, chosen: Column) -> dict[str, Column]:
        """For each side the row of the first connection that each pair prints there.

        Args:
            chosen: connections in the order of their pairs and lines.
        """
        rows, of_ends = self._rows, {}
        for side in SIDES:
            is_there = rows.table.of_kinds(partial(_is_printed_at, side))[rows.row[chosen]]
            there = chosen[np.flatnonzero(is_there)][::-1]
            of_ends[side] = np.full(len(self._sizes), NOTHING)
            of_ends[side][self.pair[there]] = rows.row[there]
        return of_ends

    def _communicators(self, is_chosen: Column, line: Column) -> tuple[list[tuple[str, ...]], Column]:
        """The communicators of each path."""
        rows = self._rows
        sets: dict[tuple[str, ...], int] = {(name,): place for place, name in enumerate(rows.communicators)}
        numbers = rows.communicator[line]
        mixed = np.flatnonzero(self.mixed[self.pair] & is_chosen)
        some = mixed[distinct(self.pair[mixed], rows.communicator[mixed])[0]]
        some = some[np.argsort(self.pair[some], kind="stable")]
        pairs, begins = np.unique(self.pair[some], return_index=True)
        names = [rows.communicators[place] for place in rows.communicator[some].tolist()]
        for pair, begin, end in zip(pairs.tolist(), begins.tolist(), [*begins[1:].tolist(), None], strict=False):
            numbers[pair] = sets.setdefault(tuple(names[begin:end]), len(sets))
        return list(sets), numbers
