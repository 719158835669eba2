"""The order of lines, and how findings name them: lines of two sources have no order."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice


def is_before(line: Evidence, other: Evidence) -> bool:
    """Whether a line stands before another in the same source."""
    return line.source == other.source and line.order < other.order


def precedes(one: Notice, other: Notice) -> bool:
    """Whether a statement stands before another in the same source."""
    return is_before(one.evidence[0], other.evidence[0])


def first_of_each(lines: Iterable[Evidence]) -> dict[str, int]:
    """Where the first of some lines stands, by source."""
    first: dict[str, int] = {}
    for line in lines:
        first[line.source] = min(line.order, first.get(line.source, line.order))
    return first


def short(line: Evidence) -> str:
    """The place of a line within a sentence: ``job.log:12``."""
    return f"{line.source.rpartition('/')[2]}:{line.line}"
