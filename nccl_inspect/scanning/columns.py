"""Reads the lines of large blocks in columns: whatever repeats is looked at once, by numpy.

Lines are distinguished by their bytes, eight at a time: lines with the same prefix have the same printer, and lines
with the same text after the channel number are one template (:mod:`nccl_inspect.scanning.forms` reads these). Whatever
is not proved to be a connection line is left to the scanner, line by line. Only large logs load numpy and this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.ingest.lines import timestamps
from nccl_inspect.ingest.lines.prefix import MARK, Origin
from nccl_inspect.ingest.lines.timestamps import Frame
from nccl_inspect.scanning.connection_table import MAX_CHANNEL, ConnectionTable
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.forms import CHANNEL, TAIL, Forms
from nccl_inspect.scanning.line_table import Heads, LineTable, Printers
from nccl_inspect.scanning.spans import ZERO, Block, Rows, number_of

_WIDEST = 256
"""Bytes of a prefix, or of a text, that is read in columns."""
_LEAST = 8
"""The same: there are eight in a word."""
_TRIES = 4
"""Prefixes that are parsed to prove that they differ in their time only."""
Mask: TypeAlias = NDArray[np.bool_]


class Known(NamedTuple):
    """What a scanner knows of prefixes."""

    seen: Callable[[bytes], Origin | None]
    """Who printed a line with a prefix that was seen lately."""
    parsed: Callable[[bytes], Origin | None]
    """Who printed a line with this prefix."""
    proven: Callable[[bytes], Frame | None]
    """What prefixes have in common that differ in their time."""
    is_news: Callable[[bytes], bool]
    """Whether the prefix changes how other lines are read."""


class Split(NamedTuple):
    """A block: what was read in columns, and the other lines."""

    lines: LineTable
    connections: ConnectionTable | None
    others: Rows
    """Places of lines, from 0."""
    left: list[bytes]
    """The same as they are."""


class Columns:
    """Reads lines that have NCCL's prefix.

    Args:
        grammar: what recognises them.
        text_of: what level and message of a line mean to its reader; None where that depends on the line.
        known: what is known of prefixes.
    """

    def __init__(self, grammar: Grammar, text_of: Callable[[bytes, Origin], Text | None], known: Known) -> None:
        self.forms = Forms(grammar, text_of)
        self._text_of = text_of
        self._known = known

    def split(self, data: bytes, first: int, is_timed: bool, known: Known | None = None) -> Split | None:
        """Read a block.

        Args:
            data: lines with a line end between each two.
            first: the number of the first one.
            is_timed: whether most lines have a time of their own.
            known: what is known of their prefixes.

        Returns:
            None where nothing can be read so.
        """
        block = Block(data)
        row, mark = _prefixed(block)
        read = _timed_heads if is_timed else _heads
        heads = read(block, row, mark, first, known or self._known) if len(row) else None
        if heads is None:
            return None
        at = np.flatnonzero(heads.printer >= 0)
        is_left = np.ones(len(block.begin), bool)
        connections, of = self._connections(block, at, row, mark, heads)
        is_left[row[of]] = False
        at = at[is_left[row[at]]]
        lines, of = self._lines(block, at, row, mark, heads)
        is_left[row[of]] = False
        others = np.flatnonzero(is_left)
        return Split(lines, connections, others, block.pieces(block.begin[others], block.end[others]))

    def _connections(
        self, block: Block, at: Rows, row: Rows, mark: Rows, heads: Heads
    ) -> tuple[ConnectionTable | None, Rows]:
        """The connection lines among some lines, and which of them these are."""
        at = at[_may_connect(block, mark[at] + len(MARK), block.end[row[at]])]
        begin, end = mark[at] + len(MARK) + TAIL, block.end[row[at]]
        number, where = number_of(block.alike(begin, end))
        read = self.forms.read(block, begin[where], end[where], lambda one: heads.origin(int(at[where[one]])))
        tens, ones = (block.bytes[begin - place].astype(np.int32) - ord("0") for place in (2, 1))
        channel = 10 * tens + ones
        kept = np.flatnonzero(read.way[number] >= 0)
        if not len(kept) or channel[kept].max() >= MAX_CHANNEL:
            return None, at[:0]
        of = at[kept]
        return (
            ConnectionTable(
                heads=heads,
                at=of,
                ways=self.forms.ways,
                texts=self.forms.texts,
                channel=channel[kept],
                template=number[kept],
                way=read.way,
                columns=read.columns,
            ),
            of,
        )

    def _lines(self, block: Block, at: Rows, row: Rows, mark: Rows, heads: Heads) -> tuple[LineTable, Rows]:
        """Other lines among some that are sound, and which of them these are."""
        begin, end = mark[at] + len(MARK), block.end[row[at]]
        is_wide = end - begin > _WIDEST
        narrow, wide = np.flatnonzero(~is_wide), np.flatnonzero(is_wide)
        first_alike = np.arange(len(at))
        first_alike[narrow] = narrow[block.alike(begin[narrow], end[narrow])]
        same: dict[bytes, int] = {}
        for one, text in zip(wide.tolist(), block.pieces(begin[wide], end[wide]), strict=True):
            first_alike[one] = same.setdefault(text, one)
        number, where = number_of(first_alike)
        texts: list[Text] = []
        numbers = np.full(len(where), -1, np.int32)
        origins, printers = heads.printers.origins, heads.printer[at[where]].tolist()
        rests = block.pieces(begin[where], end[where])
        for index, (rest, printer) in enumerate(zip(rests, printers, strict=True)):
            recognized = self._text_of(rest, origins[printer])
            if recognized is not None:
                numbers[index] = len(texts)
                texts.append(recognized)
        text_number = numbers[number]
        kept = np.flatnonzero(text_number >= 0)
        of = at[kept]
        return LineTable(heads=heads, at=of, text=text_number[kept], texts=texts), of


def _prefixed(block: Block) -> tuple[Rows, Rows]:
    """The lines with a prefix and a text of usual width, and the place of NCCL's name in them."""
    row, mark = block.first_in_lines(MARK)
    head = mark - block.begin[row]
    fits = (head >= _LEAST) & (head <= _WIDEST) & (block.end[row] - mark >= len(MARK) + _LEAST)
    return row[fits], mark[fits]


def _may_connect(block: Block, begin: Rows, end: Rows) -> Mask:
    """Which texts look like those about channels."""
    width = end - begin - TAIL
    candidates = (width >= _LEAST) & (width <= _WIDEST)
    candidates[candidates] = block.has(begin[candidates], CHANNEL)
    at = begin[candidates] + TAIL
    fits = (block.bytes[at] == ord("/")) | (block.bytes[at] == ord(" "))
    for place in (1, 2):
        digit = block.bytes[at - place]
        fits &= (digit >= ord("0")) & (digit <= ord("9"))
    candidates[candidates] = fits
    return candidates


def _heads(block: Block, row: Rows, mark: Rows, first: int, memory: Known) -> Heads | None:
    """Who printed lines; None where a prefix is news."""
    begin = block.begin[row]
    number, where = number_of(block.alike(begin, mark))
    origins: list[Origin] = []
    printers = []
    for head in block.pieces(begin[where], mark[where]):
        origin = memory.seen(head)
        if origin is None:
            if memory.is_news(head):
                return None
            origin = memory.parsed(head)
        printers.append(-1 if origin is None else len(origins))
        if origin is not None:
            origins.append(origin)
    return Heads(block, begin, mark, row + first, np.array(printers, np.int32)[number], Printers(origins))


def _timed_heads(block: Block, row: Rows, mark: Rows, first: int, memory: Known) -> Heads | None:
    """The same where lines have times: those that differ in these only are one."""
    begin = block.begin[row]
    timeless, has_time, is_sound = _without_times(block, begin, mark)
    number, where = number_of(timeless.alike(begin, mark))
    order, starts = None, np.zeros(0, np.int64)
    frames: list[Frame | None] = []
    origins: list[Origin] = []
    printers: list[int] = []
    keys = timeless.pieces(begin[where], mark[where])
    for index, (at, key) in enumerate(zip(where.tolist(), keys, strict=True)):
        frame = memory.proven(key) if has_time[at] else None
        origin = frame.origin if frame else None
        if frame is None:
            if order is None:
                order = np.argsort(number, kind="stable")
                starts = np.searchsorted(number[order], np.arange(len(where) + 1))
            some = order[starts[index] : min(starts[index + 1], starts[index] + _TRIES)]
            heads = block.pieces(begin[some], mark[some])
            if memory.is_news(heads[0]):
                return None
            frame = _frame(key, heads, memory) if has_time[at] else None
            origin = memory.parsed(key) if not has_time[at] else frame.origin if frame else None
        printers.append(-1 if origin is None else len(origins))
        if origin is not None:
            origins.append(origin)
            frames.append(frame)
    printer = np.where(is_sound, np.array(printers, np.int32)[number], -1)
    return Heads(block, begin, mark, row + first, printer, Printers(origins, frames))


def _frame(key: bytes, heads: Sequence[bytes], memory: Known) -> Frame | None:
    """What prefixes with this key have in common; None where that is not proven."""
    for head in heads:
        if frame := memory.proven(key):
            return frame
        memory.parsed(head)
    return memory.proven(key)


def _without_times(block: Block, begin: Rows, mark: Rows) -> tuple[Block, Mask, Mask]:
    """The block with zeros for the times in prefixes; of which there is one, and of which it can be one."""
    shapes = Block(block.data.translate(ZERO), block)
    number, where = number_of(shapes.alike(begin, mark))
    spans = map(timestamps.place, shapes.pieces(begin[where], mark[where]))
    time_spans = np.array(list(spans), np.int64).reshape(-1, 2)[number]
    start, width = begin + time_spans[:, 0], time_spans[:, 1] - time_spans[:, 0]
    timeless = block.overwritten(start, start + width, shapes)
    of_day = (width > 0) & (block.bytes[start + 2] == ord(":"))
    hour, minute, second = (block.bytes[start[of_day] + place] for place in (0, 3, 6))
    past = (hour > ord("2")) | ((hour == ord("2")) & (block.bytes[start[of_day] + 1] > ord("3")))
    is_sound = np.ones(len(begin), bool)
    is_sound[of_day] = ~(past | (minute > ord("5")) | (second > ord("5")))
    return timeless, width > 0, is_sound
