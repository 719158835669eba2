"""Lines that a terminal broke at its width, as they are copied out of tmux, screen or a console: put together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nccl_inspect.ingest.lines.prefix import MARK
from nccl_inspect.ingest.lines.torn import Numbered
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.util.patterns import compile_later

_WIDTHS = range(40, 401)
_FEW = 5
"""Broken lines that are enough, if nearly all lines of full width are."""
_SHARE = 0.8
_KINDS = 3
"""Different messages among them: those of one kind may have the same length anyway."""
_KIND = 16
_VALUES = compile_later(rb"0x[0-9a-f]+|\d+")
_OWN = compile_later(rb":\d{1,10}:\d{1,10} \[|^\[?\d{4}-\d\d-\d\d|^[\w.-]{1,100}:\d{1,10}:\d{1,10} ")
"""Text that marks a line as not continuing the one before."""


def reader(head: bytes) -> Folded | None:
    """Return what puts the lines of a source that begins so together; None when they were not broken at one width."""
    lines = [line.rstrip() for line in head.split(b"\n")[:-1]]
    width = max(map(len, lines), default=0)
    if width not in _WIDTHS:
        return None
    full = [place for place, line in enumerate(lines[:-1]) if len(line) == width]
    if len(full) < _FEW or not _are_broken(lines, full):
        return None
    return Folded(width)


def _are_broken(lines: Sequence[bytes], full: Sequence[int]) -> bool:
    broken = [lines[place] for place in full if _goes_on(lines[place + 1])]
    kinds = {_VALUES.sub(b"", line.partition(MARK)[2])[:_KIND] for line in broken if MARK in line}
    return len(broken) >= _SHARE * len(full) and len(kinds) >= _KINDS


def _goes_on(line: bytes) -> bool:
    return line != b"" and _OWN.search(line) is None


class Folded:
    """Takes the bytes of a source as they come and gives lines as they were before."""

    def __init__(self, width: int) -> None:
        self.lines = 0
        """Line ends seen."""
        self._width = width
        self._rest = b""
        self._open: list[bytes] = []
        """The pieces of a line that may continue."""
        self._number = 0
        """Of the line read last."""

    def feed(self, data: bytes) -> Iterator[Numbered]:
        """Yield the lines that are whole by now."""
        self.lines += data.count(b"\n")
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:BLOCK]
        for line in lines:
            yield from self._line(line.rstrip())

    def finish(self) -> Iterator[Numbered]:
        """Yield the line that is left at the end of the source."""
        if self._rest:
            yield from self._line(self._rest.rstrip())
        yield from self._end_line()

    def _line(self, line: bytes) -> Iterator[Numbered]:
        if not (self._open and self._is_full(self._open[-1]) and _goes_on(line)):
            yield from self._end_line()
        self._number += 1
        self._open.append(line)
        if len(self._open) * self._width > BLOCK:
            yield from self._end_line()

    def _is_full(self, line: bytes) -> bool:
        """Return whether a line reaches to the edge; a blank there is not copied."""
        return len(line) >= self._width - 1

    def _end_line(self) -> Iterator[Numbered]:
        if self._open:
            *pieces, last = self._open
            text = b"".join(piece.ljust(self._width) for piece in pieces) + last
            yield Numbered(self._number - len(pieces), text)
            self._open = []
