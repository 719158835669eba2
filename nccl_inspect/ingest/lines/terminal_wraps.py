"""Lines that a terminal broke at its width, as they are copied out of tmux, screen or a console: put together again."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.ingest.lines.prefix import MARK
from nccl_inspect.ingest.lines.torn import LineReader, Numbered
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.util.patterns import compile_later

_WIDTHS = range(40, 401)
_FEW = 5  # broken lines that are enough, if nearly all lines of full width are
_SHARE = 0.8
_KINDS = 3  # different messages among them: those of one kind may have the same length anyway
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
    broken = [lines[place] for place in full if _goes_on(lines[place + 1])]
    if len(full) < _FEW or len(broken) < _SHARE * len(full):
        return None
    kinds = {_VALUES.sub(b"", line.partition(MARK)[2])[:_KIND] for line in broken if MARK in line}
    return Folded(width) if len(kinds) >= _KINDS else None


def _goes_on(line: bytes) -> bool:
    return line != b"" and _OWN.search(line) is None


class Folded(LineReader):
    """Gives lines as they were before they were broken at a width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width
        self._open: list[bytes] = []  # the pieces of a line that may continue
        self._number = 0

    def _take(self, line: bytes) -> Iterator[Numbered]:
        line = line.rstrip()
        # A line that reaches to the edge may continue; a blank there is not copied.
        if not (self._open and len(self._open[-1]) >= self._width - 1 and _goes_on(line)):
            yield from self._end()
        self._number += 1
        self._open.append(line)
        if len(self._open) * self._width > BLOCK:
            yield from self._end()

    def _end(self) -> Iterator[Numbered]:
        if self._open:
            *pieces, last = self._open
            text = b"".join(piece.ljust(self._width) for piece in pieces) + last
            yield Numbered(self._number - len(pieces), text)
            self._open = []
