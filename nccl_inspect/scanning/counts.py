"""What is counted while lines are read, and what a line says."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.ingest.lines import last_error, tracebacks
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.util.records import Record

TAIL = 100
TAIL_WIDTH = 4096
_WIDTH = 400
"""Bytes of a line that is shown."""
MAX_EXAMPLES = 20


@dataclass(slots=True, eq=False, repr=False)
class Text(Record):
    """The part of a line after ``NCCL``: its level, and what the grammar makes of it."""

    level: str
    message: bytes
    parsed: Parsed | None
    damaged: bool = False
    use: Any = None
    """Whatever its reader wants to remember with it: the same text comes many times."""


@dataclass(slots=True, eq=False, repr=False)
class Counts(Record):
    """How sound a source was."""

    lines: int = 0
    nccl_lines: int = 0
    typed_lines: int = 0
    unrecognised_lines: int = 0
    repaired_lines: int = 0
    """Lines put together from two places."""
    split_lines: int = 0
    """Lines that were split into several."""
    damaged_lines: int = 0
    related_lines: int = 0
    """Lines of other programs (PyTorch, libfabric, nccl-tests) that the grammar knows."""
    tail: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=TAIL))
    """The last lines that are not NCCL's, with their numbers: they often show how a job ended."""
    broken: list[tuple[int, bytes]] = field(default_factory=list)
    """The first damaged lines, with their numbers."""
    mended: list[tuple[int, bytes]] = field(default_factory=list)
    """The first lines that were joined or split, with their numbers."""
    pending: dict[tuple[str | None, str], tuple[int, bytes]] = field(default_factory=dict)
    """By label and stream, the beginnings of lines that a collector passes on in parts, with their numbers."""
    awaited: last_error.Awaited = field(default_factory=dict)
    """The printers of exceptions whose next line may be what NCCL said last."""

    tracebacks: tracebacks.Open = field(default_factory=dict)
    """The printers of tracebacks whose next line may be the exception."""

    def add(self, lines: int, unknown: int = 0) -> None:
        """Count sound lines of NCCL; no production knows some of these."""
        self.nccl_lines += lines
        self.typed_lines += lines - unknown
        self.unrecognised_lines += unknown

    def become(self, other: Counts) -> None:
        """Count what another reading of the same source counted."""
        for entry in fields(self):
            setattr(self, entry.name, getattr(other, entry.name))

    @property
    def goes_on(self) -> bool:
        """Whether what the next lines mean depends on those before."""
        return bool(self.pending or self.awaited or self.tracebacks)


def numbered(size: int, counts: Counts, mended: Mended | None) -> Sequence[int]:
    """The numbers of the next lines of a source."""
    if mended is None:
        counts.lines += size
        return range(counts.lines - size + 1, counts.lines + 1)
    counts.lines, counts.repaired_lines = mended.lines, mended.repaired
    for line in mended.examples:
        remember(line.number, line.line, counts.mended)
    return mended.numbers


def damaged(number: int, line: bytes, counts: Counts) -> None:
    """Count a line of NCCL that cannot be read, and keep it among the first."""
    counts.nccl_lines += 1
    counts.damaged_lines += 1
    remember(number, line, counts.broken)


def remember(number: int, line: bytes, examples: list[tuple[int, bytes]]) -> None:
    """Keep a line among the first of its kind."""
    if len(examples) < MAX_EXAMPLES:
        examples.append((number, line[:_WIDTH]))
