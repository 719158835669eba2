"""The edges of many bursts as one table: a row for each, columns of numbers, and what they have in common once.

The edges of one burst are rows one behind the other, and each burst knows its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.fold.process_log import Burst, Edge, EdgeRows, edge_key
from nccl_inspect.util.columns import Column, distinct, ranges

_KIND = attrgetter(
    *("dialect", "production", "conn", "direction", "transport", "mechanism", "read", "copy_engine", "via_rank"),
    *("net", "nic_index", "pxn_rank", "gdr", "gdr_pci", "shared"),
)
"""What events of one kind have in common: all but channel, ranks, GPUs and message."""
NOTHING = -1
"""Instead of a number that a line does not state."""
_COLUMNS = ("burst", "place", "src", "dst", "kind", "src_dev", "dst_dev", "channels", "lines", "block", "at")


class EdgeTable:
    """The edges of some bursts.

    Args:
        bursts: each gets the numbers of its rows.
    """

    burst: Column
    place: Column
    src: Column
    dst: Column
    kind: Column
    src_dev: Column
    """A place in :attr:`devices`, as is the next one."""
    dst_dev: Column
    channels: Column
    """A place in :attr:`channel_sets`."""
    lines: Column
    block: Column
    """Which block has the edge, and where; else it is an object."""
    at: Column

    def __init__(self, bursts: Sequence[Burst]) -> None:
        self.bursts = bursts
        self.kinds: list[ChannelConnect] = []
        """An event of each kind, equal but for channel, ranks, GPUs and message."""
        self.devices: dict[str | None, int] = {None: 0}
        self._kinds: dict[Any, int] = {}
        self._channel_sets: dict[int, int] = {}
        self._made: dict[int, Edge] = {}
        self._blocks: list[EdgeRows] = []
        self._objects: list[Edge] = []
        rows = np.concatenate([self._of_objects(), self._of_blocks()], axis=1)
        rows = rows[:, np.lexsort((rows[1], rows[0]))]
        for name, column in zip(_COLUMNS, rows, strict=True):
            setattr(self, name, column)
        self.channel_sets = list(self._channel_sets)
        """Bits, of which there may be more than a number has."""
        begins = np.searchsorted(self.burst, np.arange(len(bursts) + 1))
        numbers = np.arange(len(self))
        for burst, begin, end in zip(bursts, begins.tolist(), begins[1:].tolist(), strict=False):
            burst.at = numbers[begin:end]
        for row in np.flatnonzero(self.block == NOTHING).tolist():
            self.edge(row)

    def __len__(self) -> int:
        return len(self.place)

    def _of_objects(self) -> Column:
        """The edges of bursts that have them as objects."""
        rows = []
        device, channels = self.devices, self._channel_sets
        for index, burst in enumerate(self.bursts):
            for edge in burst.edges.values() if burst.own else ():
                event = edge.event
                dst = NOTHING if event.dst is None else event.dst
                ends = device.setdefault(event.src_dev, len(device)), device.setdefault(event.dst_dev, len(device))
                channel_set = channels.setdefault(edge.channels, len(channels))
                states = edge.lines, NOTHING, len(self._objects)
                rows.append((index, edge.place, event.src, dst, self._kind(event), *ends, channel_set, *states))
                self._objects.append(edge)
        return np.array(rows, np.int64).reshape(-1, len(_COLUMNS)).T

    def _kind(self, event: ChannelConnect) -> int:
        kind = self._kinds.setdefault(_KIND(event), len(self.kinds))
        if kind == len(self.kinds):
            self.kinds.append(event)
        return kind

    def _of_blocks(self) -> Column:
        """The edges of the others: those that continue from one block to the next are one."""
        pieces: dict[int, list[tuple[int, EdgeRows]]] = {}
        for index, burst in enumerate(self.bursts):
            for piece in () if burst.own else burst.rows:
                pieces.setdefault(id(piece.edges), []).append((index, piece))
        in_order = sorted(pieces.values(), key=lambda some: some[0][1].place)
        parts = [self._of_block(some) for some in in_order]
        if not parts:
            return np.empty((len(_COLUMNS), 0), np.int64)
        rows, bits = np.concatenate([part for part, _ in parts], axis=1), np.concatenate([some for _, some in parts])
        burst, _, src, dst, kind, src_dev, dst_dev, _, lines, *_ = rows
        keys: dict[object, int] = {}
        same = np.array([keys.setdefault(_wording(event), len(keys)) for event in self.kinds])[kind]
        first, group = distinct(burst, src, dst, src_dev, dst_dev, same)
        if len(first) < len(burst):
            order = np.argsort(group, kind="stable")
            begins = np.searchsorted(group[order], np.arange(len(first)))
            bits, lines = np.bitwise_or.reduceat(bits[order], begins), np.add.reduceat(lines[order], begins)
            rows = rows[:, first]
            rows[8] = lines
        sets, number = np.unique(bits, return_inverse=True)
        channels = self._channel_sets
        rows[7] = np.array([channels.setdefault(channel_set, len(channels)) for channel_set in sets.tolist()])[
            number.ravel()
        ]
        return rows

    def _of_block(self, pieces: Sequence[tuple[int, EdgeRows]]) -> tuple[Column, Column]:
        """The edges of pieces of one block, and their channels."""
        some = pieces[0][1].edges
        sizes = np.array([piece.end - piece.begin for _, piece in pieces], np.int64)
        at = ranges(np.array([piece.begin for _, piece in pieces], np.int64), sizes)
        burst = np.repeat(np.array([index for index, _ in pieces], np.int64), sizes)
        kind = np.array([self._kind(event) for event in some.kinds])[some.kind[at]]
        device = np.array([self.devices.setdefault(name, len(self.devices)) for name in (*some.texts, None)])
        number, nothing = np.full(len(at), len(self._blocks)), np.zeros(len(at), np.int64)
        self._blocks.append(pieces[0][1])
        src, dst, src_dev, dst_dev = (some.columns[name][at] for name in ("src", "dst", "src_dev", "dst_dev"))
        ends = src, dst, kind, device[src_dev], device[dst_dev]
        base = np.repeat(np.array([piece.base for _, piece in pieces], np.int64), sizes)
        return np.array((burst, base + some.line[at], *ends, nothing, some.lines[at], number, at)), some.channels[at]

    def edge(self, row: int) -> Edge:
        """The edge of a row."""
        if row not in self._made:
            block, at = int(self.block[row]), int(self.at[row])
            if block == NOTHING:
                edge = self._objects[at]
            else:
                edge = self._blocks[block].edge(at)
                edge.place = int(self.place[row])
                edge.channels, edge.lines = self.channel_sets[self.channels[row]], int(self.lines[row])
            edge.row = row
            self._made[row] = edge
        return self._made[row]

    def rows_of(self, burst: Burst) -> Sequence[int]:
        """The rows of the edges of a burst, or of a part of one."""
        rows: Sequence[int] = burst.at
        return rows

    def of_kinds(self, value: Callable[[ChannelConnect], int]) -> Column:
        """Of each row what a function says of its event: a number, or whether something is so."""
        values = [value(event) for event in self.kinds]
        return np.array(values, bool if isinstance(values[0], bool) else np.int64)[self.kind]


def _wording(event: ChannelConnect) -> tuple[object, ...]:
    """What makes edges of equal ends different ones."""
    return edge_key(event.with_fields(src=0, dst=0, src_dev=None, dst_dev=None))


def ranks_column(ranks: Sequence[int | None]) -> Column:
    """Ranks as a column, with -1 for those that are not known."""
    if isinstance(ranks, range):
        return np.arange(ranks.start, ranks.stop)
    return np.array([NOTHING if rank is None else rank for rank in ranks], np.int64)
