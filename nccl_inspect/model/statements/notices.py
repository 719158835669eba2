"""Joins what several processes said in the same words at the same place of NCCL's source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from nccl_inspect.event.base import Process, without_secrets
from nccl_inspect.grammar import engine
from nccl_inspect.model.communicators import lifetime
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.places import source_and_line
from nccl_inspect.model.job import Earliest, Notice
from nccl_inspect.model.statements.environment import MAX_EVIDENCE
from nccl_inspect.model.statements.index import Line, Statement
from nccl_inspect.util.secrets import masked
from nccl_inspect.util.text import decode
from nccl_inspect.util.times import in_order, moment

Completed = Callable[[Process, int], int]
"""Where a thread of a process completed a communicator for the last time; -1 where it did not."""
_UNMADE = Earliest([], device=None, time=None, evidence=Evidence("", 0, ""), is_ordered=False)
"""Until somebody asks who made a statement first."""


def joined(
    statements: Iterable[Statement],
    ranks: Mapping[Process, list[int]],
    releases: Mapping[str, str],
    line: Line,
    completed: Completed,
) -> list[Notice]:
    """One notice for each statement, in the order of the log.

    Args:
        statements: in the order of the log.
        ranks: the global ranks of each process.
        releases: by production the NCCL releases that print it.
        line: makes evidence of lines.
        completed: finds where a thread completed a communicator for the last time.
    """
    # Nearly each process has timings of its own, and no rule asks for them.
    statements = [statement for statement in statements if not lifetime.is_timing(statement.event)]
    warned = {entry.message for entry in statements if entry.level == "WARN" and entry.location is not None}
    return [
        _notice(statement, ranks, releases, line, completed)
        for statement in statements
        if statement.level != "WARN" or statement.message not in warned or not _is_retold(statement)
    ]


def _notice(
    statement: Statement,
    ranks: Mapping[Process, list[int]],
    releases: Mapping[str, str],
    line: Line,
    completed: Completed,
) -> Notice:
    event, printers = statement.event, statement.processes
    notice = Notice(
        event=event and without_secrets(event),
        production=event.qualified_name if event else "",
        level=statement.level,
        message=masked(decode(statement.message)),
        count=sum(statement.counts),
        place=statement.places[0],
        ranks=[],
        hosts=[],
        processes=printers,
        evidence=[],
        earliest=_UNMADE,
        releases=releases.get(event.production, "") if event else "",
        rule=engine.rule_of(event) if event else "",
        roles=engine.roles_of(event) if event else frozenset(),
        location=statement.location,
    )
    return notice.defer(
        ranks=lambda: sorted({rank for process in printers for rank in ranks.get(process, ())}),
        hosts=lambda: list(dict.fromkeys([process.host for process in printers if process.host])),
        evidence=lambda: [statement.line(row, line) for row in range(min(len(printers), MAX_EVIDENCE))],
        lines=lambda: [statement.line(row, line) for row in range(len(printers))],
        earliest=lambda: _earliest(statement, line) if len(printers) > 1 else _only(statement, notice.evidence[0]),
        until=lambda: [source_and_line(place)[1] for place in statement.lasts],
        outlived=lambda: _is_outlived(statement, completed),
    )


def _is_outlived(statement: Statement, completed: Completed) -> bool:
    """Whether each thread completed a communicator after it made a statement for the last time."""
    rows = zip(statement.processes, statement.origins, statement.lasts, strict=True)
    later = [last < completed(process, origin.tid) for process, origin, last in rows]
    return bool(later) and all(later)


def _is_retold(statement: Statement) -> bool:
    """Whether an exception passed a warning on, of which the process is not known."""
    return statement.location is None and not any(process.host for process in statement.processes)


def _only(statement: Statement, line: Evidence) -> Earliest:
    origin = statement.origins[0]
    is_ordered = moment(origin.time) is not None
    return Earliest(
        statement.processes[:1], device=origin.device, time=origin.time, evidence=line, is_ordered=is_ordered
    )


def _earliest(statement: Statement, line: Line) -> Earliest:
    """Return who said it first: by time where all have times of one clock, else the first in the log."""
    row, origins = 0, statement.origins
    times = [moment(origin.time) for origin in origins] if origins[0].time else [None]
    ordered = in_order(*times)
    processes = statement.processes[:1]
    if ordered:
        seconds = [time.seconds for time in times if time]
        earliest = min(seconds)
        processes = [process for process, when in zip(statement.processes, seconds, strict=True) if when == earliest]
        row = seconds.index(earliest)
    return Earliest(
        processes=processes,
        device=origins[row].device,
        time=origins[row].time,
        evidence=statement.line(row, line),
        is_ordered=ordered,
    )
