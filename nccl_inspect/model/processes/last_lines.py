"""Where the lines of each process end, and what the last of them says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter, itemgetter

from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.fold import Burst, Note, ProcessLog, Step
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.util.text import decode

_Line = Callable[[int, Origin, str, str], Evidence]


def of(log: ProcessLog, ranks: list[int], where: tuple[str, int, int], line: _Line) -> LastLine:
    """The last line of a process.

    Args:
        log: of the process.
        ranks: of the process.
        where: source, line and order of its last line.
        line: gives a line by its place, origin, level and message.
    """
    final = log.final
    return LastLine(log.process, ranks, *where, final.device, final.time, evidence=_kept(log, line))


def _kept(log: ProcessLog, line: _Line) -> Evidence | None:
    """The last line of which more than its place is kept."""
    place, last = max(_ends(log), key=itemgetter(0), default=(0, None))
    match last:
        case None:
            return None
        case Note():
            return line(place, last.origin, last.level, decode(last.message))
        case Step():
            return line(place, last.origin, "INFO", last.event.message)
        case Burst():
            edge = last.final
            return line(place, edge.origin, edge.level, edge.stated.message)


def _ends(log: ProcessLog) -> Iterator[tuple[int, Step | Burst | Note]]:
    if log.notes:
        note = max(log.notes.values(), key=attrgetter("last"))
        yield note.last, note
    for step in (*log.steps[-1:], *log.open.values()):
        if isinstance(step, Burst):
            yield step.last, step
        else:
            yield step.place, step
