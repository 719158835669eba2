"""What is counted while lines are read, and what a line says."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from nccl_inspect.event.types import NEAR, ProcessEnded
from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.ingest.lines import exceptions
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.util.records import Record, record

TAIL = 100
TAIL_WIDTH = 4096
_WIDTH = 400  # bytes of a line that is shown
MAX_EXAMPLES = 20


@record
class Text(Record):
    """The part of a line after ``NCCL``: its level, and what the grammar makes of it."""

    level: str
    message: bytes
    parsed: Parsed | None
    damaged: bool = False
    use: Any = None  # whatever its reader wants to remember with it: the same text comes many times


_SUMS = (
    *("lines", "nccl_lines", "typed_lines", "unrecognised_lines", "repaired_lines", "split_lines", "damaged_lines"),
    "related_lines",
)


@record
class Counts(Record):
    """Holds how sound a source was."""

    lines: int = 0
    nccl_lines: int = 0
    typed_lines: int = 0
    unrecognised_lines: int = 0
    repaired_lines: int = 0  # lines put together from two places
    split_lines: int = 0  # lines that were split into several
    damaged_lines: int = 0
    related_lines: int = 0  # lines of other programs (PyTorch, libfabric, nccl-tests) that the grammar knows
    tail: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=TAIL))
    """The last lines that are not NCCL's, with their numbers: they often show how a job ended."""
    broken: list[tuple[int, bytes]] = field(default_factory=list)  # the first damaged lines, with their numbers
    mended: list[tuple[int, bytes]] = field(default_factory=list)
    """The first lines that were joined or split, with their numbers."""
    doubtful: set[int] = field(default_factory=set)
    """The numbers of all lines that were joined or split, or whose end is missing."""
    pending: dict[tuple[str | None, str], tuple[int, bytes]] = field(default_factory=dict)
    """By label and stream, the beginnings of lines that a collector passes on in parts, with their numbers."""
    awaited: exceptions.Awaited = field(default_factory=dict)
    """The printers of exceptions whose next line may be what NCCL said last."""
    reports: list[tuple[int, ProcessEnded]] = field(default_factory=list)
    """The last lines about ends of processes, with their numbers: the next lines may complete them."""
    tracebacks: exceptions.Open = field(default_factory=dict)
    """The printers of tracebacks whose next line may be the exception."""

    def add(self, lines: int, unknown: int = 0) -> None:
        """Count sound lines of NCCL; no production knows some of these."""
        self.nccl_lines += lines
        self.typed_lines += lines - unknown
        self.unrecognised_lines += unknown

    def number(self, size: int, mended: Mended | None = None) -> Sequence[int]:
        """Count the next lines; gives their numbers."""
        if mended is None:
            self.lines += size
            return range(self.lines - size + 1, self.lines + 1)
        self.lines, self.repaired_lines = mended.lines, mended.repaired
        for line in mended.examples:
            if line.repaired:
                _remember(line.number, line.line, self.mended)
            self.doubtful.add(line.number)
        return mended.numbers

    def add_other(self, number: int, line: bytes) -> None:
        """Keep a line that is not NCCL's among the last ones."""
        self.tail.append((number, line[:TAIL_WIDTH]))

    def add_damaged(self, number: int, line: bytes) -> None:
        """Count a line of NCCL that cannot be read, and keep it among the first."""
        self.nccl_lines += 1
        self.damaged_lines += 1
        _remember(number, line, self.broken)

    def add_split(self, number: int, line: bytes, pieces: int) -> None:
        """Count the sound lines that one line turned out to be, and keep it among the first."""
        self.add(pieces)
        self.split_lines += 1
        self.doubtful.add(number)
        _remember(number, line, self.mended)

    def merge(self, later: Counts) -> None:
        """Take in the counts of the lines that follow."""
        before = self.lines
        self.tracebacks.update((printer, last + before) for printer, last in later.tracebacks.items())
        self.awaited.update((one, (size, last + before)) for one, (size, last) in later.awaited.items())
        self.reports.extend((number + before, event) for number, event in later.reports)
        self.pending.update((key, (number + before, text)) for key, (number, text) in later.pending.items())
        self.tail.extend((number + before, text) for number, text in later.tail)
        for mine, theirs in ((self.broken, later.broken), (self.mended, later.mended)):
            mine.extend((number + before, text) for number, text in theirs)
            del mine[MAX_EXAMPLES:]
        self.doubtful.update(number + before for number in later.doubtful)
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(later, name))

    @property
    def is_torn(self) -> bool:
        """Return whether some lines are not as they were printed."""
        return bool(self.doubtful or self.damaged_lines)

    @property
    def goes_on(self) -> bool:
        """Return whether what the next lines mean depends on those before."""
        is_report = bool(self.reports) and self.lines - self.reports[-1][0] < NEAR
        return bool(self.pending or self.awaited or self.tracebacks or is_report)


def _remember(number: int, line: bytes, examples: list[tuple[int, bytes]]) -> None:
    """Keep a line among the first of its kind."""
    if len(examples) < MAX_EXAMPLES:
        examples.append((number, line[:_WIDTH]))
