"""Joins what several processes said in the same words at the same place of NCCL's source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import NamedTuple

from nccl_inspect.event.base import Process, without_secrets
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.communicators import lifetime
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.fold import Note, ProcessLog
from nccl_inspect.model.fold.places import source_and_line
from nccl_inspect.model.job import Earliest, Notice
from nccl_inspect.model.statements.environment import MAX_EVIDENCE
from nccl_inspect.util.secrets import masked
from nccl_inspect.util.text import decode
from nccl_inspect.util.times import in_order, moment


class _Said(NamedTuple):
    """The same statement of several processes, in the order of the log."""

    processes: list[Process]
    notes: list[Note]

    def sorted(self) -> _Said:
        """By place; mostly it is."""
        places = [note.place for note in self.notes]
        order = sorted(range(len(places)), key=places.__getitem__)
        return _Said([self.processes[at] for at in order], [self.notes[at] for at in order])


def joined(
    logs: Iterable[ProcessLog],
    ranks: Mapping[Process, list[int]],
    releases: Mapping[str, str],
    evidence: Callable[[int, Origin, str, str], Evidence],
) -> list[Notice]:
    """One notice for each statement, in the order of the log.

    Args:
        logs: what each process said.
        ranks: the global ranks of each process.
        releases: by production the NCCL releases that print it.
        evidence: makes evidence of (place, origin, level, message).
    """
    statements: dict[tuple[str, bytes, str | None], _Said] = {}
    for log in logs:
        process = log.process
        for note in log.notes.values():
            if lifetime.is_timing(note.event):
                continue  # nearly each process has its own, and no rule asks for them
            key = (note.level, note.message, note.origin.location)
            if (statement := statements.get(key)) is None:
                statements[key] = _Said([process], [note])
            else:
                statement.processes.append(process)
                statement.notes.append(note)
    warned = {message for level, message, location in statements if level == "WARN" and location is not None}
    notices = (
        _notice(all_said.sorted(), ranks, releases, evidence)
        for (level, message, _), all_said in statements.items()
        if level != "WARN" or message not in warned or not _is_retold(all_said)
    )
    return sorted(notices, key=attrgetter("place"))


def _notice(
    statement: _Said,
    ranks: Mapping[Process, list[int]],
    releases: Mapping[str, str],
    evidence: Callable[[int, Origin, str, str], Evidence],
) -> Notice:
    printers, notes = statement
    first = notes[0]
    lines = [_line(note, evidence) for note in notes[:MAX_EVIDENCE]]
    return Notice(
        event=first.event and without_secrets(first.event),
        production=first.event.qualified_name if first.event else "",
        level=first.level,
        message=masked(decode(first.message)),
        count=sum([note.count for note in notes]),
        place=first.place,
        ranks=sorted({rank for process in printers for rank in ranks.get(process, ())}),
        hosts=list(dict.fromkeys([process.host for process in printers if process.host])),
        processes=printers,
        evidence=lines,
        earliest=_earliest(statement, evidence) if len(notes) > 1 else _only(statement, lines[0]),
        releases=releases.get(first.event.production, "") if first.event else "",
        rule=engine.rule_of(first.event) if first.event else "",
        roles=engine.roles_of(first.event) if first.event else frozenset(),
        location=first.origin.location,
        until=[source_and_line(note.last)[1] for note in notes],
    )


def _is_retold(statement: _Said) -> bool:
    """Whether an exception passed a warning on, of which the process is not known."""
    located = any(note.origin.location is not None for note in statement.notes)
    return not located and not any(process.host for process in statement.processes)


def _line(note: Note, evidence: Callable[[int, Origin, str, str], Evidence]) -> Evidence:
    return evidence(note.place, note.origin, note.level, decode(note.message))


def _only(statement: _Said, line: Evidence) -> Earliest:
    origin = statement.notes[0].origin
    is_ordered = moment(origin.time) is not None
    return Earliest(
        statement.processes[:1], device=origin.device, time=origin.time, evidence=line, is_ordered=is_ordered
    )


def _earliest(statement: _Said, evidence: Callable[[int, Origin, str, str], Evidence]) -> Earliest:
    """Who said it first: by time where one clock tells that of all, else the first in the log."""
    first = statement.notes[0]
    times = [moment(note.origin.time) for note in statement.notes] if first.origin.time else [None]
    ordered = in_order(*times)
    processes = statement.processes[:1]
    if ordered:
        seconds = [time.seconds for time in times if time]
        earliest = min(seconds)
        processes = [process for process, when in zip(statement.processes, seconds, strict=True) if when == earliest]
        first = statement.notes[seconds.index(earliest)]
    return Earliest(
        processes=processes,
        device=first.origin.device,
        time=first.origin.time,
        evidence=_line(first, evidence),
        is_ordered=ordered,
    )
