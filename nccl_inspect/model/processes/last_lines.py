"""What the last line of a process says."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.fold import Burst, ProcessLog, Step
from nccl_inspect.model.statements.index import Line, StatementLine


def kept(log: ProcessLog, stated: StatementLine | None, line: Line) -> Evidence | None:
    """The last line of a process of which more than its place is kept.

    Args:
        log: of the process.
        stated: the last line that is a statement.
        line: makes evidence of lines.
    """
    place, last = max(_ends(log, stated), key=itemgetter(0), default=(0, None))
    match last:
        case None:
            return None
        case StatementLine():
            return last.line(line)
        case Step():
            return line(place, last.origin, "INFO", last.event.message)
        case Burst():
            edge = last.final
            return line(place, edge.origin, edge.level, edge.stated.message)


def _ends(log: ProcessLog, stated: StatementLine | None) -> Iterator[tuple[int, Step | Burst | StatementLine]]:
    if stated is not None:
        yield stated.place, stated
    for step in (*log.steps[-1:], *log.open.values()):
        if isinstance(step, Burst):
            yield step.last, step
        else:
            yield step.place, step
