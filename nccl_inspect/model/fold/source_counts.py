"""What is counted of each source that is read: the base of ``log_quality``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import NamedTuple, TypeAlias

from nccl_inspect.model.inventory import SourceInfo
from nccl_inspect.scanning.counts import MAX_EXAMPLES, Counts
from nccl_inspect.util.records import Record, pick_fields, record

MAX_PROCESSES = 1 << 17  # processes that are kept apart: more than the largest runs have
_CROWDED = f"lines of more than {MAX_PROCESSES:,} processes: those of others were left out; give the logs of one job"
MAX_BENCHMARKS = 20_000
"""Lines with results that are kept of a source: more than sweeps have; profilers print them for days."""
NEAR_END = 1 << 14  # bytes at the end of a source of which each line is looked at
MAX_RAISED = 200  # exceptions of a source that are kept: programs may print any number of those that they catch
_Numbered: TypeAlias = tuple[int, bytes]
_Sieve: TypeAlias = Callable[[bytes], bool]


class Raised(NamedTuple):
    """An exception whose rank only the envelope around it may name."""

    number: int  # of the line
    text: bytes
    rank: int | None  # what the envelope states: a task of srun, a rank of MPI


@record
class SourceCounts(Record):
    """A source by name, with how sound it was."""

    name: str
    counts: Counts = field(default_factory=Counts)
    bytes: int = 0
    problem: str | None = None  # why it could not be read, or not to its end
    stands: list[int] = field(default_factory=list)
    """Where each line stands, if lines are numbered in another order than that of the source."""
    newest_first: bool = False  # whether it was read from its end
    crowded: bool = False  # whether it has lines of more processes than are kept: those were left out
    spared: list[_Numbered] = field(default_factory=list)
    """The first lines of which a collector says that others like them were left out, with their numbers."""
    elided: bool = False
    """Whether one of its lines says that others were left out, in a text that is short enough to be a paste."""
    decorated: bool = False
    """Whether one of the lines of such a text ends as people and their tools end lines, and programs do not."""
    is_cut: bool = False  # whether its lines end at one column, where they were cut
    raised: deque[Raised] = field(default_factory=lambda: deque(maxlen=MAX_RAISED))
    """The last exceptions of unknown ranks, with their line numbers."""

    benchmarks: list[_Numbered] = field(default_factory=list)
    """Lines that may be results of benchmarks or speeds of training steps, with their numbers."""
    at_end: list[_Numbered] = field(default_factory=list)
    """The lines near its end, until :meth:`look_at_end` leaves such of them."""
    may_go_on: bool = False  # whether a table may continue in the next lines
    until: int = 0  # the last line that counts, where others follow that are of another job

    @property
    def end(self) -> int:
        """Return the number of its last line."""
        return self.until or self.counts.lines

    def line(self, number: int) -> int:
        """Return the line of the source that has a number."""
        return self.stands[number - 1] if self.stands else number

    def merge(self, later: SourceCounts) -> None:
        """Take in the counts of the lines that follow in the same source."""
        self.bytes += later.bytes
        self.problem = self.problem or later.problem
        self.stands.extend(later.stands)
        for flag in ("newest_first", "crowded", "elided", "decorated", "is_cut"):
            setattr(self, flag, getattr(self, flag) or getattr(later, flag))
        before = self.counts.lines
        self.counts.merge(later.counts)
        self.raised.extend(exception._replace(number=exception.number + before) for exception in later.raised)
        self.spared.extend((number + before, text) for number, text in later.spared)
        del self.spared[MAX_EXAMPLES:]
        self.benchmarks.extend((number + before, text) for number, text in later.benchmarks)
        del self.benchmarks[MAX_BENCHMARKS:]
        self.end_with([(number + before, text) for number, text in later.at_end], is_all=later.bytes >= NEAR_END)
        self.may_go_on = later.may_go_on

    def end_with(self, lines: list[_Numbered], *, is_all: bool) -> None:
        """Take in the lines near the end of what follows: all there are, or what it adds to those before it."""
        self.at_end = lines if is_all else self.at_end + lines
        while sum(len(text) + 1 for _, text in self.at_end) > 2 * NEAR_END:
            del self.at_end[: len(self.at_end) // 2 or 1]  # the last line alone may be longer

    def look_at_end(self, is_kept: _Sieve) -> None:
        """Leave only those lines near the end that may be results or speeds; the source is read to its end."""
        self.at_end = [(number, text) for number, text in self.at_end if is_kept(text)]

    def results(self) -> list[_Numbered]:
        """Return the lines that may be results or speeds, in order, each once."""
        return sorted({**dict(self.at_end), **dict(self.benchmarks)}.items())

    def info(self) -> SourceInfo:
        """Return what a job says of it."""
        counts = self.counts
        return SourceInfo(
            name=self.name,
            bytes=self.bytes,
            repaired_lines=counts.repaired_lines + counts.split_lines,
            **pick_fields(counts, "lines", "nccl_lines", "typed_lines", "unrecognised_lines"),
            **pick_fields(counts, "damaged_lines", "related_lines"),
            newest_first=self.newest_first,
            problem=self.problem or (f"{self.name}: {_CROWDED}" if self.crowded else None),
        )
