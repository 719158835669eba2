"""What is counted of each source that is read: the base of ``log_quality``."""

from __future__ import annotations

from dataclasses import dataclass, field

from nccl_inspect.grammar.scanner import MAX_EXAMPLES, Counts
from nccl_inspect.ingest import retold
from nccl_inspect.records import Record

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
        ours, theirs = self.counts, later.counts
        ours.awaited.update(retold.moved(theirs.awaited, ours.lines))
        ours.pending.update((key, (number + ours.lines, text)) for key, (number, text) in theirs.pending.items())
        ours.tail.extend((number + ours.lines, text) for number, text in theirs.tail)
        for mine_too, theirs_too in ((ours.broken, theirs.broken), (ours.mended, theirs.mended)):
            mine_too.extend((number + ours.lines, text) for number, text in theirs_too)
            del mine_too[MAX_EXAMPLES:]
        for name in _SUMS:
            setattr(ours, name, getattr(ours, name) + getattr(theirs, name))
