"""The order of lines, and how findings cite them: lines of different sources have no order."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice


def is_before(line: Evidence, other: Evidence) -> bool:
    """Return whether a line precedes another in the same source."""
    return line.source == other.source and line.order < other.order


def precedes(notice: Notice, other: Notice) -> bool:
    """Return whether a statement precedes another in the same source."""
    return is_before(notice.evidence[0], other.evidence[0])


def first_of_each(lines: Iterable[Evidence]) -> dict[str, int]:
    """Return the position of the first of these lines in each source."""
    first: dict[str, int] = {}
    for line in lines:
        first[line.source] = min(line.order, first.get(line.source, line.order))
    return first


def short(line: Evidence) -> str:
    """Return a line as cited in a sentence: ``job.log:12``."""
    return f"{line.source.rpartition('/')[2]}:{line.line}"
