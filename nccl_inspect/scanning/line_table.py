"""Lines of a block in columns: who printed each, and what it says. This module needs numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Frame, Late
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.spans import Bits, Block, Column, Rows, firsts, number_of
from nccl_inspect.util.records import Record, record

Times: TypeAlias = NDArray[np.bytes_]


@record
class Printers(Record):
    """Holds who printed the lines of a block."""

    origins: list[Origin]
    """Of those that differ in their time only, one stands for the others."""
    frames: Sequence[Frame | None] = ()
    """What makes the origin of a line itself where lines have times, by the same numbers."""

    def origin(self, printer: int, time: bytes) -> Origin:
        """Return who printed a line, with its time."""
        frame = self.frames[printer] if self.frames else None
        return self.origins[printer] if frame is None else frame.with_time(time)

    def late(self, printer: Column, time: Times | None) -> list[Origin | Late]:
        """Return who printed some lines; with their times, which are read when somebody asks.

        Args:
            printer: of each line.
            time: of each line, where lines have times of their own; more bytes may follow it.
        """
        origins, frames, printers = self.origins, self.frames, printer.tolist()
        if time is None:
            return [origins[printer] for printer in printers]
        return [
            origins[printer] if (frame := frames[printer]) is None else Late(frame, digits)
            for printer, digits in zip(printers, time.tolist(), strict=True)
        ]


@record
class Heads(Record):
    """The prefixes of lines of a block, in their order."""

    block: Block
    begin: Rows
    end: Rows
    line: Rows
    """The numbers of the lines."""
    printer: Column
    """An index into the printers; -1 where who printed it is to be found out line by line."""
    printers: Printers
    time: Rows | None = None
    """Where the times stand that are not in the prefixes, but in what is around the lines."""

    def origin(self, at: int) -> Origin:
        """Return who printed a line, with its time."""
        return self.origins(np.array([at]))[0]

    def origins(self, at: Rows) -> list[Origin]:
        """Return who printed some lines, with their times."""
        return [printed.origin if isinstance(printed, Late) else printed for printed in self.late(at)]

    def late(self, at: Rows) -> list[Origin | Late]:
        """Return the same, where few times are asked for."""
        return self.printers.late(self.printer[at], self.times(at))

    def times(self, at: Rows) -> Times | None:
        """Return the bytes of some prefixes from their times on; None where the printers state them."""
        frames = self.printers.frames
        if not frames:
            return None
        begin = self.time
        if begin is None:
            begins = np.array([0 if frame is None else frame.begin for frame in frames])
            begin = self.begin + begins[self.printer]
        width = max(1, *map(_width, frames))
        return self.block.windows(begin[at], width).view(f"S{width}")[:, 0]


def _width(frame: Frame | None) -> int:
    return 0 if frame is None else len(frame.time)


@record
class Table(Record):
    """Lines of a block, in their order."""

    heads: Heads
    at: Rows
    """By rows: an index into the prefixes."""

    def __len__(self) -> int:
        return len(self.at)

    @property
    def line(self) -> Rows:
        """By rows: the number of the line."""
        return self.heads.line[self.at]

    @property
    def printer(self) -> Column:
        """By rows: an index into the printers."""
        return self.heads.printer[self.at]


@record
class LineTable(Table):
    """Lines that are not connections, or that could not be read as such."""

    text: Column
    """By rows: an index into the texts."""
    texts: list[Text]

    def count(self, chosen: Sequence[bool]) -> int:
        """Return how many rows have one of the chosen texts."""
        return int(np.array(chosen, bool)[self.text].sum())


NONE = -1
"""In a column, what a line does not state."""
MAX_CHANNEL = 64
"""Channels are bits of one number; lines with more are not rows."""
_EDGE = ("src", "dst", "src_dev", "dst_dev", "nic_index", "pxn_rank")
"""The columns that, with the way, distinguish the edges of a burst."""

_NARROW = ((127, np.int8), (32_767, np.int16))
"""Numbers, and in what they are kept."""


class Part(NamedTuple):
    """A field of a message: a column, and how its values are written."""

    name: str
    width: int
    """The digits that a number has at least."""
    is_text: bool
    """Whether the column names a text by its number."""

    def write(self, value: object) -> str:
        """A value as it is printed."""
        return str(value).rjust(self.width, "0")


@record
class Way(Record):
    """Messages that differ in numbers and in the names of devices only."""

    event: ChannelConnect
    """That of one of them."""
    level: str
    parts: Sequence[str | Part]
    """The message: what is the same in all, and the fields in between."""
    numbers: tuple[str, ...]
    """The fields of the event that are numbers or names of devices; all others are those of :attr:`event`."""


@record
class ConnectionTable(Table):
    """The connection lines of a block; no channel is :data:`MAX_CHANNEL` or above."""

    ways: list[Way]
    texts: list[str]
    """Names of devices, as printed."""
    channel: Column
    """By rows."""
    template: Column
    """By rows: what the message is but for the channel; an index into the columns of templates."""
    way: Column
    """By templates: an index into the ways."""
    columns: Mapping[str, Column]
    """By templates: ``conn``, ``src``, ``dst``, ``nic_index``, ``pxn_rank``, ``via_rank``; ``src_dev`` and ``dst_dev``
    are indexes into the texts. :data:`NONE` for what is not stated."""
    edge: Rows = field(init=False)
    """By templates: the first template with the same edge of a burst, whatever the wording."""
    rank: Column = field(init=False)
    """By templates: the rank that prints."""

    def __post_init__(self) -> None:
        receives = np.array([way.event.direction == "receive" for way in self.ways], bool)
        dst = self.columns["dst"]
        self.rank = np.where(receives[self.way] & (dst != NONE), dst, self.columns["src"])
        self.edge = self._edges()

    def _edges(self) -> Rows:
        """For each template the first one of the same edge."""
        kinds: dict[tuple[object, ...], int] = {}
        kind = [kinds.setdefault(_kind(way.event), len(kinds)) for way in self.ways]
        keys = [np.array(kind, np.int32)[self.way], *(self.columns[name] for name in _EDGE)]
        return firsts(keys)


def _kind(event: ChannelConnect) -> tuple[object, ...]:
    """Return what an edge states besides numbers and devices.

    See :func:`~nccl_inspect.model.fold.process_log.edge_key`.
    """
    return event.direction, event.detail, event.gdr, event.shared


@record
class Edges(Record):
    """Connection lines that are the same but for the channel, by bursts: what a thread prints in one go.

    It stands for itself: nothing of the block is kept.
    """

    ways: list[Way]
    texts: list[str]
    printers: Printers
    ends: Rows
    """By bursts: where its edges end. Those of a thread follow each other in the order of their lines."""
    line: Rows
    """By edges: the number of the first line. Those of a burst follow each other in the order of these."""
    printer: Column
    """By edges: an index into the printers."""
    time: Times | None
    """By edges: the time of the first line, where lines have times of their own; more bytes may follow it."""
    channel: Column
    """By edges: the channel of the first line."""
    channels: Bits
    """By edges: a bit for each channel."""
    lines: Column
    """By edges: how many there are."""
    rank: Column
    """By edges: the rank that prints."""
    way: Column
    """By edges: an index into the ways."""
    columns: Mapping[str, Column]
    """By edges, as in :class:`ConnectionTable`."""
    kind: Column = field(init=False)
    """By edges: an index into the kinds."""
    kinds: list[ChannelConnect] = field(init=False)
    """An event of each kind: equal but for channel, ranks, GPUs and message."""
    reduces: bool = field(init=False)
    """Whether one of them is to a network that reduces."""

    def __post_init__(self) -> None:
        columns = (self.columns[name] for name in ("conn", "nic_index", "pxn_rank", "via_rank"))
        kind, heads = number_of(firsts([self.way, *columns]))
        self.kind = _narrow(kind)
        self.kinds = list(map(self.event, heads.tolist()))
        self.reduces = any(kind.transport == "COLLNET" for kind in self.kinds)

    def origin(self, edge: int) -> Origin:
        """Return who printed the first line of an edge."""
        return self.printers.origin(int(self.printer[edge]), b"" if self.time is None else bytes(self.time[edge]))

    def late(self, edges: Rows) -> list[Origin | Late]:
        """Return who printed the first lines of some edges."""
        return self.printers.late(self.printer[edges], None if self.time is None else self.time[edges])

    def level(self, edge: int) -> str:
        """Return the level of its lines."""
        return self.ways[int(self.way[edge])].level

    def bare(self, edge: int) -> ChannelConnect:
        """Return the same without its message, which takes longest."""
        dst, ends = int(self.columns["dst"][edge]), (self.columns["src_dev"][edge], self.columns["dst_dev"][edge])
        src_dev, dst_dev = (None if end == NONE else self.texts[end] for end in ends)
        event: ChannelConnect = self.kinds[self.kind[edge]].with_fields(
            channel=int(self.channel[edge]),
            src=int(self.columns["src"][edge]),
            dst=None if dst == NONE else dst,
            src_dev=src_dev,
            dst_dev=dst_dev,
            message="",
        )
        return event

    def event(self, edge: int) -> ChannelConnect:
        """Return the event of the first line of an edge, as reading the line would give it."""
        way = self.ways[int(self.way[edge])]
        stated: dict[str, object] = {"channel": int(self.channel[edge])}
        message = ""
        for part in way.parts:
            if isinstance(part, str):
                message += part
                continue
            if part.name not in stated:
                value = int(self.columns[part.name][edge])
                stated[part.name] = self.texts[value] if part.is_text else value
            message += part.write(stated[part.name])
        return way.event.with_fields(message=message, **{name: stated[name] for name in way.numbers})


def edges(table: ConnectionTable, thread: Column, breaks: Rows, breaking: Rows) -> Edges:
    """Return the bursts of a table and their edges.

    Args:
        table: of connection lines.
        thread: by printers, a number for their thread.
        breaks: the numbers of other lines that end the burst of a thread, if one is open.
        breaking: the threads of these.
    """
    span = len(table.heads.line) + 1
    owner = thread[table.printer]
    order = _in_order(owner, len(thread))
    owner, template = owner[order], table.template[order]
    begins = np.ones(len(table) + 1, bool)
    begins[1:-1] = _changes(owner)
    at = np.searchsorted(table.heads.line, breaks)
    begins[np.searchsorted(owner.astype(np.int64) * span + table.at[order], breaking * span + at)] = True
    begins = begins[:-1]
    begins[1:] |= _changes(table.columns["conn"][template]) | _changes(table.rank[template])
    burst = np.cumsum(begins, dtype=np.int32) - 1
    edge, heads = number_of(firsts([burst, table.edge[template]]))
    by_edge = _in_order(edge, len(heads))
    lines = np.bincount(edge, minlength=len(heads)).astype(np.int32)
    bits = np.uint64(1) << table.channel[order][by_edge].astype(np.uint64)
    rows, templates = order[heads], template[heads]
    return Edges(
        ways=table.ways,
        texts=table.texts,
        printers=table.heads.printers,
        ends=np.searchsorted(burst[heads], np.arange(burst[-1] + 1), side="right"),
        line=table.line[rows],
        printer=_narrow(table.printer[rows]),
        time=table.heads.times(table.at[rows]),
        channel=_narrow(table.channel[rows]),
        channels=np.bitwise_or.reduceat(bits, np.cumsum(lines) - lines),
        lines=lines,
        rank=table.rank[templates],
        way=_narrow(table.way[templates]),
        columns={name: _narrow(column[templates]) for name, column in table.columns.items()},
    )


def _narrow(column: Column) -> Column:
    """A column in as few bytes as its numbers need: the edges of all blocks are kept, and handed over by processes."""
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    for most, kind in _NARROW:
        if -most <= low and high <= most:
            return column.astype(kind)
    return column


def _in_order(numbers: Column, size: int) -> Rows:
    """The places of numbers below a size in their order, those of equal ones as they stand: few bits sort fast."""
    return np.argsort(numbers.astype(np.uint16) if size <= 1 << 16 else numbers, kind="stable")


def _changes(column: NDArray[Any]) -> Any:
    return column[1:] != column[:-1]
