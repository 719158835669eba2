"""The edges of many bursts as one table: a row for each, columns of numbers, and what they have in common once.

The edges of one burst are rows one behind the other, and each edge knows its row. This module needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.fold.process_log import Burst
from nccl_inspect.util.columns import Column

_KIND = attrgetter(
    *("dialect", "production", "conn", "direction", "transport", "mechanism", "read", "copy_engine", "via_rank"),
    *("net", "nic_index", "pxn_rank", "gdr", "gdr_pci", "shared"),
)
"""What events of one kind have in common: all but channel, ranks, GPUs and message."""
NOTHING = -1
"""Instead of a number that a line does not state."""


class EdgeTable:
    """The edges of some bursts.

    Args:
        bursts: their edges get the numbers of their rows.
    """

    def __init__(self, bursts: Sequence[Burst]) -> None:
        self.bursts = bursts
        self.edges = [edge for burst in bursts for edge in sorted(burst.edges.values(), key=attrgetter("place"))]
        for row, edge in enumerate(self.edges):
            edge.row = row
        sizes = [len(burst.edges) for burst in bursts]
        self.burst = np.repeat(np.arange(len(bursts)), sizes)
        self.begins = np.append(0, np.cumsum(sizes, dtype=np.int64))
        """Of each burst its first row, and the end of all."""
        self.place = column(map(attrgetter("place"), self.edges))
        self.lines = column(map(attrgetter("lines"), self.edges))
        channels = list(map(attrgetter("channels"), self.edges))
        self.channel_sets = list(dict.fromkeys(channels))
        """Bits, of which there may be more than a number has."""
        self.channels = column(map(_numbers(self.channel_sets).__getitem__, channels))
        """A place in :attr:`channel_sets`."""
        events = list(map(attrgetter("event"), self.edges))
        keys = list(map(id, events))  # edges that say the same have the same event
        stated = list(dict(zip(keys, events, strict=True)).values())
        event = column(map(_numbers(dict.fromkeys(keys)).__getitem__, keys))
        self.devices: dict[str | None, int] = {None: 0}
        self.src = column(one.src for one in stated)[event]
        self.dst = column(NOTHING if one.dst is None else one.dst for one in stated)[event]
        self.src_dev = column(self.devices.setdefault(one.src_dev, len(self.devices)) for one in stated)[event]
        """A place in :attr:`devices`, as is the next one."""
        self.dst_dev = column(self.devices.setdefault(one.dst_dev, len(self.devices)) for one in stated)[event]
        kinds = list(map(_KIND, stated))
        self.kind = column(map(_numbers(dict.fromkeys(kinds)).__getitem__, kinds))[event]
        self.kinds = list(dict(zip(kinds, stated, strict=True)).values())
        """An event of each kind, equal but for channel, ranks, GPUs and message."""

    def __len__(self) -> int:
        return len(self.edges)

    def map_events(self, value: Callable[[ChannelConnect], int]) -> Column:
        """Return for each row what a function says of its event: a number, or whether something is so."""
        values = [value(event) for event in self.kinds]
        return np.array(values, bool if isinstance(values[0], bool) else np.int64)[self.kind]


def _numbers(keys: Iterable[Any]) -> dict[Any, int]:
    """Return the place of each of some keys."""
    return {key: place for place, key in enumerate(keys)}


def column(numbers: Iterable[int]) -> Column:
    """Return numbers as a column."""
    return np.array(list(numbers), np.int64)


def rows_of(bursts: Iterable[Burst]) -> Column:
    """Return the rows of the edges of some bursts."""
    return column(edge.row for burst in bursts for edge in burst.edges.values())


def ranks_column(ranks: Sequence[int | None]) -> Column:
    """Ranks as a column, with -1 for those that are not known."""
    if isinstance(ranks, range):
        return np.arange(ranks.start, ranks.stop)
    return column(NOTHING if rank is None else rank for rank in ranks)


def part_of(burst: Burst, table: EdgeTable, rows: Column) -> Burst:
    """Return some edges of a burst, by their rows in the table of all."""
    keys = {edge.row: key for key, edge in burst.edges.items()}
    return burst.some(keys[row] for row in rows.tolist())
