"""Lines of a block in columns: who printed each, and what it says. This module needs numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Frame
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.spans import Block, Column, Rows
from nccl_inspect.util.records import Record, record

Times: TypeAlias = NDArray[np.bytes_]


@record
class Printers(Record):
    """Who printed the lines of a block."""

    origins: list[Origin]
    """Of those that differ in their time only, one stands for the others."""
    frames: Sequence[Frame | None] = ()
    """What tells the origin of a line itself where lines have times, by the same numbers."""

    def origin(self, printer: int, time: bytes) -> Origin:
        """Who printed a line, with its time."""
        frame = self.frames[printer] if self.frames else None
        return self.origins[printer] if frame is None else frame.with_time(time)


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
        """Who printed a line, with its time."""
        return self.origins(np.array([at]))[0]

    def origins(self, at: Rows) -> list[Origin]:
        """Who printed some lines, with their times."""
        printers, origins, frames = self.printer[at].tolist(), self.printers.origins, self.printers.frames
        if not frames:
            return [origins[printer] for printer in printers]
        if self.time is not None:
            times = self.block.pieces(self.time[at], self.time[at] + max(map(_width, frames)))
            return [self.printers.origin(printer, time) for printer, time in zip(printers, times, strict=True)]
        return [
            origins[printer] if (frame := frames[printer]) is None else frame.at(head)
            for printer, head in zip(printers, self.block.pieces(self.begin[at], self.end[at]), strict=True)
        ]

    def times(self, at: Rows) -> Times | None:
        """The bytes of some prefixes from their times on; None where the printers tell all."""
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
        """How many rows have one of the chosen texts."""
        return int(np.array(chosen, bool)[self.text].sum())
