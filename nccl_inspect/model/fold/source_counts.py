"""What is counted of each source that is read: the base of ``log_quality``."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from nccl_inspect.ingest.lines import last_error
from nccl_inspect.ingest.lines.elisions import PASTE, is_elided
from nccl_inspect.ingest.lines.prefix import MARK
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.model.inventory import SourceInfo
from nccl_inspect.scanning.counts import MAX_EXAMPLES, TAIL_WIDTH, Counts
from nccl_inspect.util.records import Record

MAX_PROCESSES = 1 << 17
"""Processes that are kept apart: more than the largest runs have."""
_CROWDED = f"lines of more than {MAX_PROCESSES:,} processes: those of others were left out; give the logs of one job"
MAX_RAISED = 200
"""Exceptions of a source that are kept: programs may print any number of those that they catch."""
_SPARED = b"x across cluster]"
"""What Ray puts behind a line that it shows for several workers: ``[repeated 7x across cluster]``."""
_Numbered: TypeAlias = tuple[int, bytes]


class Raised(NamedTuple):
    """An exception whose rank only the envelope around it may name."""

    number: int
    """Of the line."""
    text: bytes
    rank: int | None
    """What the envelope states: a task of srun, a rank of MPI."""


_SUMS = (
    "lines",
    "nccl_lines",
    "typed_lines",
    "unrecognised_lines",
    "repaired_lines",
    "split_lines",
    "damaged_lines",
    "related_lines",
)


@dataclass(slots=True, eq=False, repr=False)
class SourceCounts(Record):
    """A source by name, with how sound it was."""

    name: str
    counts: Counts = field(default_factory=Counts)
    bytes: int = 0
    problem: str | None = None
    """Why it could not be read, or not to its end."""
    stands: list[int] = field(default_factory=list)
    """Where each line stands, if lines are numbered in another order than that of the source."""
    newest_first: bool = False
    """Whether it was read from its end."""
    crowded: bool = False
    """Whether it has lines of more processes than are kept: those were left out."""
    spared: list[_Numbered] = field(default_factory=list)
    """The first lines of which a collector says that others like them were left out, with their numbers."""
    elided: bool = False
    """Whether one of its lines says that others were left out, in a text that is short enough to be a paste."""
    raised: deque[Raised] = field(default_factory=lambda: deque(maxlen=MAX_RAISED))
    """The last exceptions of unknown ranks, with their line numbers."""

    until: int = 0
    """The last line that counts, where others follow that are of another job."""

    @property
    def end(self) -> int:
        """The number of its last line."""
        return self.until or self.counts.lines

    def look_for_spared(self, lines: Lines, before: int) -> None:
        """Keep what a collector says of lines that it left out.

        Args:
            lines: some lines of the source.
            before: how many lines came before them.
        """
        text, at = lines.text, -1
        while len(self.spared) < MAX_EXAMPLES and (at := text.find(_SPARED, at + 1)) >= 0:
            begin, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
            line = text[begin : end if end >= 0 else len(text)]
            if MARK in line:
                index = text.count(b"\n", 0, at)
                number = lines.mended.numbers[index] if lines.mended else before + index + 1
                self.spared.append((number, line[:TAIL_WIDTH]))

    def look_for_elision(self, lines: Lines) -> None:
        """See whether a line says that others were left out, as long as the source may be a paste.

        Args:
            lines: the next ones; their bytes are counted.
        """
        if self.bytes <= PASTE and not self.elided:
            self.elided = is_elided(lines.text)

    def line(self, number: int) -> int:
        """The line of the source that has a number."""
        return self.stands[number - 1] if self.stands else number

    def merge(self, later: SourceCounts) -> None:
        """Take in the counts of the lines that follow in the same source."""
        self.bytes += later.bytes
        self.problem = self.problem or later.problem
        self.stands.extend(later.stands)
        self.newest_first |= later.newest_first
        self.crowded |= later.crowded
        self.elided |= later.elided
        ours, theirs = self.counts, later.counts
        ours.tracebacks.update((printer, last + ours.lines) for printer, last in theirs.tracebacks.items())
        ours.awaited.update(last_error.moved(theirs.awaited, ours.lines))
        ours.pending.update((key, (number + ours.lines, text)) for key, (number, text) in theirs.pending.items())
        self.raised.extend(exception._replace(number=exception.number + ours.lines) for exception in later.raised)
        ours.tail.extend((number + ours.lines, text) for number, text in theirs.tail)
        pairs = (ours.broken, theirs.broken), (ours.mended, theirs.mended), (self.spared, later.spared)
        for mine_too, theirs_too in pairs:
            mine_too.extend((number + ours.lines, text) for number, text in theirs_too)
            del mine_too[MAX_EXAMPLES:]
        for name in _SUMS:
            setattr(ours, name, getattr(ours, name) + getattr(theirs, name))

    def info(self) -> SourceInfo:
        """What a job says of it."""
        counts = self.counts
        return SourceInfo(
            name=self.name,
            bytes=self.bytes,
            lines=counts.lines,
            nccl_lines=counts.nccl_lines,
            typed_lines=counts.typed_lines,
            unrecognised_lines=counts.unrecognised_lines,
            repaired_lines=counts.repaired_lines + counts.split_lines,
            damaged_lines=counts.damaged_lines,
            related_lines=counts.related_lines,
            newest_first=self.newest_first,
            problem=self.problem or (f"{self.name}: {_CROWDED}" if self.crowded else None),
        )
