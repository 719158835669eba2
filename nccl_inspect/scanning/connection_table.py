"""Connection lines of a block in columns: what lines have in common is kept once, and an event is made when asked for.

This module needs numpy; it is loaded for large logs only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.scanning.spans import Bits, Column, Rows, firsts, number_of
from nccl_inspect.util.records import Record

NONE = -1
"""In a column, what a line does not state."""
MAX_CHANNEL = 64
"""Channels are bits of one number; a block with more of them is read line by line."""
_EDGE = ("src", "dst", "src_dev", "dst_dev", "nic_index", "pxn_rank")
"""The columns that, with the way, tell one edge of a burst from another."""


class Part(NamedTuple):
    """A field of a message: a column, and how its values are written."""

    name: str
    write: Callable[[object], str]
    is_text: bool
    """Whether the column names a text by its number."""


@dataclass(slots=True, eq=False, repr=False)
class Way(Record):
    """Messages that differ in numbers and in the names of devices only."""

    event: ChannelConnect
    """That of one of them."""
    level: str
    parts: Sequence[str | Part]
    """The message: what is the same in all, and the fields in between."""
    numbers: tuple[str, ...]
    """The fields of the event that are numbers or names of devices; all others are those of :attr:`event`."""


@dataclass(slots=True, eq=False, repr=False)
class ConnectionTable(Record):
    """The connection lines of a block, in their order; no channel is :data:`MAX_CHANNEL` or above."""

    ways: list[Way]
    texts: list[str]
    """Names of devices, as printed."""
    origins: list[Origin]
    """The origins; of lines that state different times one stands for the others."""
    line: Rows
    """By rows: the number of the line."""
    printer: Column
    """By rows: an index into the origins."""
    channel: Column
    template: Column
    """By rows: what the message is but for the channel; an index into the columns of templates."""
    way: Column
    """By templates: an index into the ways."""
    columns: Mapping[str, Column]
    """By templates: ``conn``, ``src``, ``dst``, ``nic_index``, ``pxn_rank``, ``via_rank``; ``src_dev`` and ``dst_dev``
    are indexes into the texts. :data:`NONE` for what is not stated."""
    origin_at: Callable[[int], Origin] | None = None
    """The origin of a row itself, where lines state their time."""
    rank: Column = field(init=False)
    """By templates: the rank that prints."""

    def __post_init__(self) -> None:
        receives = np.array([way.event.direction == "receive" for way in self.ways], bool)
        dst = self.columns["dst"]
        self.rank = np.where(receives[self.way] & (dst != NONE), dst, self.columns["src"])

    def __len__(self) -> int:
        return len(self.line)

    def values(self, name: str) -> Column:
        """A column of templates, by rows."""
        return self.columns[name][self.template]

    def origin(self, row: int) -> Origin:
        """Who printed a row, with its time."""
        return self.origin_at(row) if self.origin_at else self.origins[int(self.printer[row])]

    def event(self, row: int) -> ChannelConnect:
        """The event of a row, as reading its line would give it."""
        template = int(self.template[row])
        way = self.ways[self.way[template]]
        stated: dict[str, object] = {"channel": int(self.channel[row])}
        for part in way.parts:
            if isinstance(part, Part) and part.name != "channel":
                value = int(self.columns[part.name][template])
                stated[part.name] = self.texts[value] if part.is_text else value
        message = "".join(part if isinstance(part, str) else part.write(stated[part.name]) for part in way.parts)
        return way.event.with_fields(message=message, **{name: stated[name] for name in way.numbers})

    def last_lines(self) -> dict[Process, tuple[int, Origin]]:
        """By processes, the number and the origin of their last lines."""
        last = np.full(len(self.origins), NONE)
        last[self.printer] = np.arange(len(self))
        found: dict[Process, int] = {}
        for printer in np.flatnonzero(last >= 0).tolist():
            process = self.origins[printer].process
            found[process] = max(found.get(process, 0), int(last[printer]))
        return {process: (int(self.line[row]), self.origin(row)) for process, row in found.items()}

    def only(self, rows: Rows) -> ConnectionTable:
        """Some of its lines, each with a template of its own; it does not keep the text of the block."""
        template = self.template[rows]
        columns = {name: column[template] for name, column in self.columns.items()}
        origins, printer = self.origins, self.printer[rows]
        if self.origin_at is not None:
            origins, printer = list(map(self.origin, rows.tolist())), np.arange(len(rows), dtype=np.int32)
        numbers = np.arange(len(rows), dtype=np.int32)
        return ConnectionTable(
            ways=self.ways,
            texts=self.texts,
            origins=origins,
            line=self.line[rows],
            printer=printer,
            channel=self.channel[rows],
            template=numbers,
            way=self.way[template],
            columns=columns,
        )

    def edges(self) -> Rows:
        """For each template the first one of the same edge of a burst, whatever the wording."""
        kinds: dict[tuple[object, ...], int] = {}
        kind = [kinds.setdefault(_kind(way.event), len(kinds)) for way in self.ways]
        keys = [np.array(kind, np.int32)[self.way], *(self.columns[name] for name in _EDGE)]
        return firsts(keys)


def _kind(event: ChannelConnect) -> tuple[object, ...]:
    """What an edge states besides numbers and devices: see :func:`~nccl_inspect.model.fold.process_log.edge_key`."""
    return event.direction, event.detail, event.gdr, event.shared


class Bursts(NamedTuple):
    """Connection lines by bursts and edges; a burst is what a thread prints for one communicator in one go.

    The first columns have a row for each burst: bursts of a thread follow each other, in the order of their lines. The
    others have a row for each edge, in the order of bursts, then of lines.
    """

    thread: Column
    """By bursts: what numbers the threads."""
    first: Column
    """By bursts: the first row of the table."""
    is_apart: NDArray[np.bool_]
    """By bursts: whether something stands before it that ends a burst; else it goes on with one of the thread that is
    still open and has the same connection set and rank."""
    edges: Column
    """By bursts: where its edges end."""
    row: Column
    """By edges: the first row of the table, which tells all but the channels."""
    channels: Bits
    """By edges: a bit for each channel."""
    lines: Column
    """By edges: how many rows."""


def bursts(table: ConnectionTable, thread: Column, breaks: Rows, breaking: Column) -> Bursts:
    """The bursts of a table.

    Args:
        table: of connection lines.
        thread: by the rows of the table, who printed a line.
        breaks: the numbers of other lines that end the burst of a thread, if one is open.
        breaking: the threads of these.
    """
    size = len(table)
    span = np.int64(1) << np.int64(40)
    order = np.argsort(thread.astype(np.uint16) if thread.max(initial=0) < 1 << 16 else thread, kind="stable")
    owner, template = thread[order], table.template[order]
    marks = np.sort(breaking * span + breaks)
    before = np.searchsorted(marks, owner * span + table.line[order])
    since = before - np.searchsorted(marks, owner * span)
    conn, rank = table.columns["conn"][template], table.rank[template]
    begins = np.ones(size, bool)
    begins[1:] = _changes(owner) | _changes(before) | _changes(conn) | _changes(rank)
    starts = np.flatnonzero(begins)
    burst = np.cumsum(begins, dtype=np.int32) - 1
    begins_thread = np.ones(len(starts), bool)
    begins_thread[1:] = _changes(owner[starts])
    apart = ~begins_thread | (since[starts] > 0)
    edge, heads = number_of(firsts([burst, table.edges()[template]]))
    sorted_ = np.argsort(edge, kind="stable")
    bits = np.uint64(1) << table.channel[order][sorted_].astype(np.uint64)
    lines = np.bincount(edge, minlength=len(heads)).astype(np.int32)
    channels = np.bitwise_or.reduceat(bits, np.cumsum(lines) - lines)
    ends = np.searchsorted(burst[heads], np.arange(len(starts)), side="right")
    return Bursts(owner[starts], order[starts], apart, ends, order[heads], channels, lines)


def _changes(column: NDArray[np.generic]) -> NDArray[np.bool_]:
    return column[1:] != column[:-1]
