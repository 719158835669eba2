"""The edges of many bursts as one table: a row for each, columns of numbers, and what they have in common once.

The edges of one burst are rows one behind the other, and each burst knows its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.fold.process_log import Burst, Edge
from nccl_inspect.util.columns import Column

_KIND = attrgetter(
    *("dialect", "production", "conn", "direction", "transport", "mechanism", "read", "copy_engine", "via_rank"),
    *("net", "nic_index", "pxn_rank", "gdr", "gdr_pci", "shared"),
)
NOTHING = -1
"""Instead of a number that a line does not state."""


class EdgeTable:
    """The edges of some bursts.

    Args:
        bursts: each gets the numbers of its rows.
    """

    def __init__(self, bursts: Sequence[Burst]) -> None:
        self.bursts = bursts
        self.kinds: list[ChannelConnect] = []
        """The first event of each kind: equal but for channel, ranks and GPUs."""
        self.devices: dict[str | None, int] = {None: 0}
        self.channel_sets: list[int] = []
        """Bits, of which there may be more than a number has."""
        self._edges: list[Edge] = [edge for burst in bursts for edge in burst.edges.values()]
        for row, edge in enumerate(self._edges):
            edge.row = row
        kinds: dict[Any, int] = {}
        channels: dict[int, int] = {}
        rows = []
        device = self.devices
        for edge in self._edges:
            event = edge.event
            kind = kinds.setdefault(_KIND(event), len(kinds))
            if kind == len(self.kinds):
                self.kinds.append(event)
            ends = device.setdefault(event.src_dev, len(device)), device.setdefault(event.dst_dev, len(device))
            dst = NOTHING if event.dst is None else event.dst
            channel_set = channels.setdefault(edge.channels, len(channels))
            rows.append((edge.place, event.src, dst, kind, *ends, channel_set, edge.lines))
        self.channel_sets = list(channels)
        table = np.array(rows, np.int64).reshape(-1, 8)
        self.place, self.src, self.dst, self.kind, self.src_dev, self.dst_dev, self.channels, self.lines = table.T
        sizes = np.array([len(burst.edges) for burst in bursts], np.int64)
        self.burst = np.repeat(np.arange(len(bursts)), sizes)
        begin = 0
        for burst, size in zip(bursts, sizes.tolist(), strict=True):
            burst.rows = np.arange(begin, begin + size)
            begin += size

    def __len__(self) -> int:
        return len(self.place)

    def edge(self, row: int) -> Edge:
        """The edge of a row."""
        return self._edges[row]

    def rows_of(self, burst: Burst) -> Sequence[int]:
        """The rows of the edges of a burst, or of a part of one."""
        rows: Sequence[int] = burst.rows
        return [edge.row for edge in burst.edges.values()] if rows is None else rows

    def of_kinds(self, value: Callable[[ChannelConnect], int]) -> Column:
        """Of each row what a function says of its event: a number, or whether something is so."""
        found = [value(event) for event in self.kinds]
        return np.array(found, bool if isinstance(found[0], bool) else np.int64)[self.kind]


def ranks_column(ranks: Sequence[int | None]) -> Column:
    """Ranks as a column, with -1 for those that are not known."""
    if isinstance(ranks, range):
        return np.arange(ranks.start, ranks.stop)
    return np.array([NOTHING if rank is None else rank for rank in ranks], np.int64)
