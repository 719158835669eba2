"""Reads the lines of large blocks in columns: whatever repeats is looked at once, by numpy.

Lines are distinguished by their bytes, eight at a time: lines with the same prefix have the same printer, and lines
with the same text after the channel number are one template (:mod:`nccl_inspect.scanning.forms` reads these). Whatever
is not proved to be a connection line is left to the scanner, line by line. Only large logs load numpy and this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.ingest.lines.prefix import MARK, Origin
from nccl_inspect.scanning.connection_table import MAX_CHANNEL, ConnectionTable
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.forms import CHANNEL, TAIL, Forms
from nccl_inspect.scanning.heads import Known, Spans, heads_of
from nccl_inspect.scanning.line_table import Heads, LineTable
from nccl_inspect.scanning.spans import Block, Mask, Rows, number_of

_WIDEST = 256
"""Bytes of a prefix, or of a text, that is read in columns."""
_LEAST = 8
"""The same: there are eight in a word."""


class Split(NamedTuple):
    """A block: what was read in columns, and the other lines."""

    size: int
    """How many lines there are."""
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
        self._forms = Forms(grammar, text_of)
        self._text_of = text_of
        self._known = known

    def forget(self) -> None:
        """Forget what was learned of texts: from here on they may mean something else."""
        self._forms.forget()

    def split(self, data: bytes, first: int, is_timed: bool) -> Split | None:
        """Read a block.

        Args:
            data: lines with a line end between each two.
            first: the number of the first one.
            is_timed: whether most prefixes have a time.

        Returns:
            None where nothing can be read so.
        """
        block = Block(data)
        spans = prefixed(block)
        heads = heads_of(block, spans, first, is_timed, self._known) if len(spans.row) else None
        return None if heads is None else self.read(spans, heads)

    def read(self, spans: Spans, heads: Heads) -> Split:
        """Read lines of a block.

        Args:
            spans: where they stand.
            heads: who printed them.
        """
        block, row = heads.block, spans.row
        at = np.flatnonzero(heads.printer >= 0)
        is_left = np.ones(len(block.begin), bool)
        connections, of = self._connections(at, spans, heads)
        is_left[row[of]] = False
        at = at[is_left[row[at]]]
        lines, of = self._lines(at, spans, heads)
        is_left[row[of]] = False
        others = np.flatnonzero(is_left)
        return Split(len(block.begin), lines, connections, others, block.pieces(block.begin[others], block.end[others]))

    def _connections(self, at: Rows, spans: Spans, heads: Heads) -> tuple[ConnectionTable | None, Rows]:
        """The connection lines among some lines, and which of them these are."""
        block = heads.block
        at = at[_may_connect(block, spans.mark[at] + len(MARK), spans.end[at])]
        begin, end = spans.mark[at] + len(MARK) + TAIL, spans.end[at]
        number, where = number_of(block.alike((begin, end)))
        read = self._forms.read(block, begin[where], end[where], lambda one: heads.origin(int(at[where[one]])))
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
                ways=self._forms.ways,
                texts=self._forms.texts,
                channel=channel[kept],
                template=number[kept],
                way=read.way,
                columns=read.columns,
            ),
            of,
        )

    def _lines(self, at: Rows, spans: Spans, heads: Heads) -> tuple[LineTable, Rows]:
        """Other lines among some that are sound, and which of them these are."""
        block = heads.block
        begin, end = spans.mark[at] + len(MARK), spans.end[at]
        is_wide = end - begin > _WIDEST
        narrow, wide = np.flatnonzero(~is_wide), np.flatnonzero(is_wide)
        first_alike = np.arange(len(at))
        first_alike[narrow] = narrow[block.alike((begin[narrow], end[narrow]))]
        same: dict[bytes, int] = {}
        for one, text in zip(wide.tolist(), block.pieces(begin[wide], end[wide]), strict=True):
            first_alike[one] = same.setdefault(text, one)
        number, where = number_of(first_alike)
        texts: list[Text] = []
        numbers = np.full(len(where), -1, np.int32)
        origins, printers = heads.printers.origins, heads.printer[at[where]].tolist()
        for index, text in enumerate(block.pieces(begin[where], end[where])):
            meaning = self._text_of(text, origins[printers[index]])
            if meaning is not None:
                numbers[index] = len(texts)
                texts.append(meaning)
        text_number = numbers[number]
        kept = np.flatnonzero(text_number >= 0)
        of = at[kept]
        return LineTable(heads=heads, at=of, text=text_number[kept], texts=texts), of


def prefixed(block: Block) -> Spans:
    """The lines with a prefix and a text of usual width."""
    row, mark = block.first_in_lines(MARK)
    return usual(Spans(row, block.begin[row], mark, block.end[row]))


def usual(spans: Spans) -> Spans:
    """Return those with a prefix and a text of usual width."""
    head = spans.mark - spans.begin
    return spans.at((head >= _LEAST) & (head <= _WIDEST) & (spans.end - spans.mark >= len(MARK) + _LEAST))


def _may_connect(block: Block, begin: Rows, end: Rows) -> Mask:
    """Return which texts look like those about channels."""
    width = end - begin - TAIL
    at = np.flatnonzero((width >= _LEAST) & (width <= _WIDEST))
    fits = np.zeros(len(begin), bool)
    for mark in b"/", b" ":
        fits[at] = are_so = block.has_form(begin[at], CHANNEL + b"00" + mark)
        at = at[~are_so]
    return fits
