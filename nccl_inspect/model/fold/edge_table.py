"""The edges of many bursts as one table: a row for each, columns of numbers, and what they have in common once.

The edges of one burst are rows one behind the other, and each burst knows its rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.model.fold.process_log import Burst, Edge, EdgeRows, edge_key
from nccl_inspect.util.columns import Column, number_groups, ranges
from nccl_inspect.util.records import record

if TYPE_CHECKING:
    from nccl_inspect.scanning.line_table import Edges


_KIND = attrgetter(
    *("dialect", "production", "conn", "direction", "transport", "mechanism", "read", "copy_engine", "via_rank"),
    *("net", "nic_index", "pxn_rank", "gdr", "gdr_pci", "shared"),
)
"""What events of one kind have in common: all but channel, ranks, GPUs and message."""
NOTHING = -1
"""Instead of a number that a line does not state."""
_COLUMNS = ("burst", "place", "src", "dst", "kind", "src_dev", "dst_dev", "channels", "lines", "is_object", "at")


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
    is_object: Column
    at: Column
    """A place among the objects, or among the edges of all blocks."""

    def __init__(self, bursts: Sequence[Burst]) -> None:
        self.bursts = bursts
        self.kinds: list[ChannelConnect] = []
        """An event of each kind, equal but for channel, ranks, GPUs and message."""
        self.devices: dict[str | None, int] = {None: 0}
        self._kinds: dict[Any, int] = {}
        self._channel_sets: dict[int, int] = {}
        self._made: dict[int, Edge] = {}
        self._blocks: list[Edges] = []
        self._begins: list[int] = []
        """Of each block where its edges are among those of all."""
        self._objects: list[Edge] = []
        of_objects, columns = self._of_objects(), self._of_blocks()
        if len(of_objects["burst"]):
            columns = {name: np.concatenate([of_objects[name], columns[name]]) for name in _COLUMNS}
            order = np.argsort(columns["burst"], kind="stable")
            columns = {name: column[order] for name, column in columns.items()}
        for name in _COLUMNS:
            setattr(self, name, columns[name])
        self.channel_sets = list(self._channel_sets)
        """Bits, of which there may be more than a number has."""
        self.begins = np.append(0, np.cumsum(np.bincount(self.burst, minlength=len(bursts))))
        """Of each burst its first row, and the end of all."""
        begins, numbers = self.begins.tolist(), np.arange(len(self))
        for burst, begin, end in zip(bursts, begins, begins[1:], strict=False):
            burst.at = numbers[begin:end]
        for row in np.flatnonzero(self.is_object).tolist():
            self.edge(row)

    def __len__(self) -> int:
        return len(self.place)

    def _of_objects(self) -> dict[str, Column]:
        """Return the edges of bursts that have them as objects."""
        rows = []
        device, channels = self.devices, self._channel_sets
        for index, burst in enumerate(self.bursts):
            for edge in sorted(burst.edges.values(), key=attrgetter("place")) if burst.own else ():
                event = edge.event
                dst = NOTHING if event.dst is None else event.dst
                ends = device.setdefault(event.src_dev, len(device)), device.setdefault(event.dst_dev, len(device))
                channel_set = channels.setdefault(edge.channels, len(channels))
                states = edge.lines, True, len(self._objects)
                rows.append((index, edge.place, event.src, dst, self._kind(event), *ends, channel_set, *states))
                self._objects.append(edge)
        return dict(zip(_COLUMNS, np.array(rows, np.int64).reshape(-1, len(_COLUMNS)).T, strict=True))

    def _kind(self, event: ChannelConnect) -> int:
        kind = self._kinds.setdefault(_KIND(event), len(self.kinds))
        if kind == len(self.kinds):
            self.kinds.append(event)
        return kind

    def _of_blocks(self) -> dict[str, Column]:
        """Return the edges of the others: those that continue from one block to the next are one."""
        in_blocks = [[] if burst.own else burst.rows for burst in self.bursts]
        pieces = list(chain.from_iterable(in_blocks))
        if not pieces:
            return dict.fromkeys(_COLUMNS, np.empty(0, np.int64))
        blocks = {id(piece.edges): piece.edges for piece in pieces}
        self._blocks = list(blocks.values())
        ends = list(accumulate(len(block.line) for block in self._blocks))
        self._begins = [0, *ends[:-1]]
        begin_of = dict(zip(blocks, self._begins, strict=True))
        block_begin = np.array([begin_of[id(piece.edges)] for piece in pieces])
        begin, end, base = (np.array(numbers, np.int64) for numbers in list(zip(*pieces, strict=True))[1:])
        counts = np.array(list(map(len, in_blocks)), np.int32)
        index = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        is_cut, begin, size = counts[index] > 1, block_begin + begin, end - begin
        at = ranges(begin, size)
        every, bits = self._columns_of_blocks(), np.concatenate([block.channels for block in self._blocks])[at]
        columns = {name: column[at] for name, column in every.items()}
        columns |= {
            "burst": np.repeat(index, size),
            "place": columns.pop("line") + np.repeat(base, size),
        }
        if is_cut.any():
            kept = self._join_cut(columns, bits, np.flatnonzero(np.repeat(is_cut, size)))
            at, bits = at[kept], bits[kept]
            columns = {name: column[kept] for name, column in columns.items()}
        changes = np.append(True, bits[1:] != bits[:-1])
        sets, channels = np.unique(bits[changes]), self._channel_sets
        numbers = [channels.setdefault(channel_set, len(channels)) for channel_set in sets.tolist()]
        return {
            **columns,
            "channels": np.array(numbers, np.int32)[np.searchsorted(sets, bits)],
            "is_object": np.zeros(len(at), bool),
            "at": at.astype(np.int32),
        }

    def _columns_of_blocks(self) -> dict[str, Column]:
        """Return what the edges of all blocks state, one block after the other."""
        parts: dict[str, list[Column]] = {}
        for block in self._blocks:
            kind = np.array([self._kind(event) for event in block.kinds], np.int32)
            names = (*block.texts, None)
            device = np.array([self.devices.setdefault(name, len(self.devices)) for name in names], np.int32)
            columns: dict[str, Column] = {name: block.columns[name].astype(np.int32) for name in ("src", "dst")}
            columns |= {name: device[block.columns[name]] for name in ("src_dev", "dst_dev")}
            columns |= {"kind": kind[block.kind], "line": block.line, "lines": block.lines}
            for name, column in columns.items():
                parts.setdefault(name, []).append(column)
        return {name: np.concatenate(some) for name, some in parts.items()}

    def _join_cut(self, columns: dict[str, Column], bits: Column, cut: Column) -> Column:
        """Join edges of bursts that several blocks have; shows which are left."""
        keys: dict[object, int] = {}
        wording = np.array([keys.setdefault(_wording(event), len(keys)) for event in self.kinds])
        some = [columns[name][cut] for name in ("burst", "src", "dst", "src_dev", "dst_dev")]
        first, group = number_groups(*some, wording[columns["kind"][cut]])
        into, lines = cut[first][group], columns["lines"]
        is_kept = np.ones(len(bits), bool)
        is_kept[cut] = into == cut
        more = cut[into != cut]
        np.bitwise_or.at(bits, into[into != cut], bits[more])
        np.add.at(lines, into[into != cut], lines[more])
        return np.flatnonzero(is_kept)

    def edge(self, row: int) -> Edge:
        """Return the edge of a row."""
        if row not in self._made:
            at = int(self.at[row])
            if self.is_object[row]:
                edge = self._objects[at]
            else:
                block = bisect_right(self._begins, at) - 1
                edge = EdgeRows(self._blocks[block], 0, 0).edge(at - self._begins[block])
                edge.place = int(self.place[row])
                edge.channels, edge.lines = self.channel_sets[self.channels[row]], int(self.lines[row])
            edge.row = row
            self._made[row] = edge
        return self._made[row]

    def of_kinds(self, value: Callable[[ChannelConnect], int]) -> Column:
        """Return for each row what a function says of its event: a number, or whether something is so."""
        values = [value(event) for event in self.kinds]
        return np.array(values, bool if isinstance(values[0], bool) else np.int64)[self.kind]


def _wording(event: ChannelConnect) -> tuple[object, ...]:
    """Return what makes edges of equal ends different ones."""
    return edge_key(event.with_fields(src=0, dst=0, src_dev=None, dst_dev=None))


def ranks_column(ranks: Sequence[int | None]) -> Column:
    """Ranks as a column, with -1 for those that are not known."""
    if isinstance(ranks, range):
        return np.arange(ranks.start, ranks.stop)
    return np.array([NOTHING if rank is None else rank for rank in ranks], np.int64)


@record
class BurstPart(Burst):
    """Some edges of a burst; they are made when somebody asks for them."""

    table: EdgeTable | None = None

    @property
    def edges(self) -> dict[tuple[object, ...], Edge]:
        """Return the edges by what distinguishes them."""
        if not self.own:
            self.own = {edge_key(edge.event): edge for edge in map(self._table.edge, self.at.tolist())}
        return self.own

    @property
    def lines(self) -> int:
        """Return how many lines it has."""
        return int(self._table.lines[self.at].sum())

    @property
    def size(self) -> int:
        """Return how many edges it has."""
        return len(self.at)

    @property
    def last(self) -> int:
        """Return the place of its last edge."""
        return int(self._table.place[self.at].max())

    @property
    def highest(self) -> int:
        """Return the highest rank that it names."""
        return int(max(self._table.src[self.at].max(), self._table.dst[self.at].max()))

    @property
    def reduces(self) -> bool:
        """Return whether one of its edges is to a network that reduces."""
        return any(kind.transport == "COLLNET" for kind in self.kinds)

    @property
    def kinds(self) -> Iterable[ChannelConnect]:
        """Return an event of each kind of its edges."""
        return [self._table.kinds[kind] for kind in set(self._table.kind[self.at].tolist())]

    def parts(self) -> list[Burst]:
        """Return each of its edges on its own."""
        return [self.some([number]) for number in range(len(self.at))]

    def some(self, numbers: list[int]) -> Burst:
        """Return some of its edges, by their numbers in it."""
        return part_of(self, self._table, self.at[numbers])

    @property
    def _table(self) -> EdgeTable:
        assert self.table is not None
        return self.table


def part_of(burst: Burst, table: EdgeTable, at: Column) -> BurstPart:
    """Return some edges of a burst, by their rows in the table of all."""
    return BurstPart(burst.key, int(table.place[at[0]]), burst.printed, at=at, table=table)
