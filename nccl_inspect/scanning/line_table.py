"""Lines of a block in columns: who printed each, and what it says. This module needs numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Frame, Late
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.spans import Block, Column, Rows
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

    def some(self, chosen: Sequence[bool]) -> Printers:
        """Return those that are chosen, in their order."""
        return Printers(list(compress(self.origins, chosen)), list(compress(self.frames, chosen)))


@record
class Printed(Record, Sequence[Origin]):
    """Holds who printed some lines, and when: the origin of a line is made when somebody asks for it."""

    printers: Printers
    printer: Column
    """By lines: an index into the printers."""
    time: Times | None = None
    """By lines: the time where lines have times of their own; more bytes may follow it."""

    @classmethod
    def of(cls, origins: list[Origin]) -> Printed:
        """Lines whose origins were made."""
        return cls(Printers(origins), np.arange(len(origins), dtype=np.int32))

    def __len__(self) -> int:
        return len(self.printer)

    @overload
    def __getitem__(self, at: int) -> Origin: ...
    @overload
    def __getitem__(self, at: slice) -> Printed: ...
    def __getitem__(self, at: int | slice) -> Origin | Printed:
        if isinstance(at, slice):
            return Printed(self.printers, self.printer[at], None if self.time is None else self.time[at])
        return self.printers.origin(int(self.printer[at]), b"" if self.time is None else self.time[at])

    def __iter__(self) -> Iterator[Origin]:
        return iter(self.origins)

    @property
    def origins(self) -> list[Origin]:
        """Return those of all lines."""
        printers, origins = self.printer.tolist(), self.printers.origins
        if self.time is None:
            return [origins[printer] for printer in printers]
        return list(map(self.printers.origin, printers, self.time.tolist()))

    @property
    def late(self) -> list[Origin | Late]:
        """Return the same, where few are asked for."""
        origins, frames, printers = self.printers.origins, self.printers.frames, self.printer.tolist()
        if self.time is None:
            return [origins[printer] for printer in printers]
        return [
            origins[printer] if (frame := frames[printer]) is None else Late(frame, time)
            for printer, time in zip(printers, self.time.tolist(), strict=True)
        ]

    def at(self, lines: Rows) -> Printed:
        """Some of them; of others nothing is kept."""
        printer, time = self.printer[lines], None if self.time is None else self.time[lines]
        is_used = np.zeros(len(self.printers.origins), bool)
        is_used[printer] = True
        number = np.cumsum(is_used, dtype=np.int32) - 1
        return Printed(self.printers.some(is_used.tolist()), number[printer], time)


def joined(parts: Sequence[Printed]) -> Printed:
    """Lines one part after the other."""
    sizes = np.array([len(part.printers.origins) for part in parts], np.int32)
    begins = np.cumsum(sizes, dtype=np.int32) - sizes
    printer = np.concatenate([part.printer + begin for part, begin in zip(parts, begins, strict=True)])
    origins = [origin for part in parts for origin in part.printers.origins]
    if all(part.time is None for part in parts):
        return Printed(Printers(origins), printer)
    frames = [frame for part in parts for frame in part.printers.frames or [None] * len(part.printers.origins)]
    times = [np.zeros(len(part), "S1") if part.time is None else part.time for part in parts]
    return Printed(Printers(origins, frames), printer, np.concatenate(times))


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

    def printed(self, at: Rows) -> Printed:
        """Return the same, where few are asked for."""
        return Printed(self.printers, self.printer[at], self.times(at))

    def times(self, at: Rows) -> Times | None:
        """The bytes of some prefixes from their times on; None where the printers state them."""
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
