"""The edges of the bursts of one block of a log, as columns: an edge is made only when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.fold.process_log import Edge
from nccl_inspect.scanning.connection_table import NONE, Bursts, ConnectionTable
from nccl_inspect.util.columns import distinct

KIND = attrgetter(
    *("dialect", "production", "conn", "direction", "transport", "mechanism", "read", "copy_engine", "via_rank"),
    *("net", "nic_index", "pxn_rank", "gdr", "gdr_pci", "shared"),
)
"""What events of one kind have in common: all but channel, ranks, GPUs and message."""


class EdgeBlock:
    """Edges in the order of their bursts.

    Args:
        table: the connection lines of a block.
        grouped: their bursts.
        base: the place in front of the first line of the source.
    """

    def __init__(self, table: ConnectionTable, grouped: Bursts, base: int) -> None:
        first = table.only(grouped.row)
        self._first = first
        self.place = base | first.line.astype(np.int64)
        self.channels, self.lines = grouped.channels, grouped.lines
        self.src, self.dst = first.columns["src"], first.columns["dst"]
        self.src_dev, self.dst_dev = first.columns["src_dev"], first.columns["dst_dev"]
        self.texts = first.texts
        columns = (first.columns[name] for name in ("conn", "nic_index", "pxn_rank", "via_rank"))
        rows, self.kind = distinct(first.way, *columns)
        self.kinds = [first.event(row) for row in rows.tolist()]
        """An event of each kind."""
        self.reduces = any(kind.transport == "COLLNET" for kind in self.kinds)
        """Whether a network reduces."""

    def event(self, row: int) -> ChannelConnect:
        """The event of a row, as its line has it."""
        return self._first.event(row)

    def edge(self, row: int, place: int) -> Edge:
        """The edge of a row, which is at a place now."""
        first = self._first
        src, dst = int(self.src[row]), int(self.dst[row])
        src_dev, dst_dev = self.src_dev[row], self.dst_dev[row]
        event = self.kinds[self.kind[row]].with_fields(
            channel=int(first.channel[row]),
            src=src,
            dst=None if dst == NONE else dst,
            src_dev=None if src_dev == NONE else self.texts[src_dev],
            dst_dev=None if dst_dev == NONE else self.texts[dst_dev],
            message="",
        )
        level, channels, lines = first.ways[first.way[row]].level, int(self.channels[row]), int(self.lines[row])
        return Edge(event, first.origin(row), place, channels, lines, level, block=self, at=row)


class Piece(NamedTuple):
    """What a block holds of a burst."""

    block: EdgeBlock
    begin: int
    end: int
    shift: int = 0
    """How far the block has moved since it was read."""

    @property
    def last(self) -> int:
        """The place of the last edge."""
        return int(self.block.place[self.end - 1]) + self.shift

    @property
    def highest(self) -> int:
        """The highest rank that an edge names."""
        return int(max(self.block.src[self.begin : self.end].max(), self.block.dst[self.begin : self.end].max()))

    def edges(self) -> list[Edge]:
        """The edges."""
        places = (self.block.place[self.begin : self.end] + self.shift).tolist()
        return [self.block.edge(row, place) for row, place in enumerate(places, self.begin)]

    @property
    def kinds(self) -> list[ChannelConnect]:
        """An event of each kind of its edges."""
        return [self.block.kinds[kind] for kind in set(self.block.kind[self.begin : self.end].tolist())]

    def moved(self, move: Callable[[int], int]) -> Piece:
        """The same in the fold that takes it in."""
        place = int(self.block.place[self.begin]) + self.shift
        return self._replace(shift=self.shift + move(place) - place)
