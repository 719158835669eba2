"""What was stated: each statement once, with all who made it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple

from nccl_inspect.event.base import Event, Process
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold import PLACE, Burst, Note, ProcessLog, Step, Wording
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.text import decode


class Statement(NamedTuple):
    """A text at one place of NCCL's source, and who stated it, in the order of the log."""

    event: Event | None  # None for a WARN that no production knows
    level: str
    message: bytes
    location: str | None
    processes: list[Process]
    notes: list[Note]  # of each process what it stated


def statements(logs: Iterable[ProcessLog]) -> list[Statement]:
    """Return the statements of some processes, in the order of their first lines."""
    distinct: dict[Wording, Statement] = {}
    made = [(note, log.process) for log in logs for note in log.notes.values()]
    for note, process in sorted(made, key=lambda pair: pair[0].place):
        statement = distinct.get(note.wording)
        if statement is None:
            statement = distinct[note.wording] = Statement(note.event, *note.wording, [], [])
        statement.processes.append(process)
        statement.notes.append(note)
    return list(distinct.values())


def by_process(some: Iterable[Statement]) -> dict[Process, list[Note]]:
    """Return statements by process, those of a process in the order of their first lines."""
    processes = group_values(
        pair for statement in some for pair in zip(statement.processes, statement.notes, strict=True)
    )
    for notes in processes.values():
        notes.sort(key=PLACE)
    return processes


class Quotes:
    """Quotes lines; paths do so when they are asked, and keep nothing else of what made them."""

    def __init__(self, where: Callable[[int], tuple[str, int, int]]) -> None:
        self.where = where

    def line(self, place: int, text: str) -> Evidence:
        """Return the line at a place that has a text."""
        source, line, order = self.where(place)
        return Evidence(source, line, text, order)

    def message(self, place: int, origin: Origin, level: str, message: str) -> Evidence:
        """Return the line at a place, as it stood."""
        return self.line(place, prefix.join_line(origin.head, level, message))

    def edge(self, edge: Edge) -> Evidence:
        """Return the first line of a connection."""
        return self.message(edge.place, edge.printed.origin, edge.level, edge.message)

    def step(self, step: Step | Burst) -> Evidence:
        """Return the line of a step, or the first one of a burst."""
        if isinstance(step, Step):
            return self.message(step.place, step.printed.origin, "INFO", step.event.message)
        return self.edge(min(step.edges.values(), key=PLACE))

    def first_steps(self, steps: Iterable[Step], most: int) -> list[Evidence]:
        """Return the lines of the first of some steps."""
        return list(map(self.step, sorted(steps, key=itemgetter(0))[:most]))

    def note(self, note: Note) -> Evidence:
        """Return the first line of a statement."""
        return self.message(note.place, note.printed.origin, note.level, decode(note.message))

    def last(self, end: Note | Step | Burst) -> Evidence:
        """Return the last line of a statement, with the printer of the first one, of a step or of a burst."""
        if isinstance(end, Burst):
            return self.edge(end.final)
        if isinstance(end, Step):
            return self.step(end)
        return self.message(end.last, end.printed.origin, end.level, decode(end.message))
