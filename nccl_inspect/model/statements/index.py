"""What was stated: each statement once, with all who made it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from nccl_inspect.event.base import Event, Process
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.process_log import Burst, Note, ProcessLog, Step, Wording
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Record, record
from nccl_inspect.util.text import decode

Line = Callable[[int, Origin, str, str], Evidence]  # makes evidence of (place, origin, level, message)


@record
class Statement(Record):
    """A text at one place of NCCL's source, and by columns who stated it, in the order of the log."""

    event: Event | None  # None for a WARN that no production knows
    level: str
    message: bytes
    location: str | None
    processes: list[Process] = field(default_factory=list)
    origins: Sequence[Origin] = field(default_factory=list)  # of the first line of each process, as is the next
    places: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)  # of the last line
    counts: list[int] = field(default_factory=list)

    def line(self, row: int, line: Line) -> Evidence:
        """Return the first line of a process."""
        return line(self.places[row], self.origins[row], self.level, decode(self.message))


class StatementLine(NamedTuple):
    """A line of a process that is a statement."""

    place: int
    row: int  # of its process
    statement: Statement

    @property
    def origin(self) -> Origin:
        """Return who printed it."""
        return self.statement.origins[self.row]

    @property
    def event(self) -> Event | None:
        """Return what it states."""
        return self.statement.event

    def line(self, line: Line) -> Evidence:
        """Return the line."""
        return line(self.place, self.origin, self.statement.level, decode(self.statement.message))


class Statements:
    """The statements of some processes, in the order of their first lines."""

    def __init__(self, logs: Sequence[ProcessLog]) -> None:
        distinct: dict[Wording, tuple[Event | None, list[tuple[Any, ...]]]] = {}
        rows = [(note, log.process) for log in logs for note in log.notes.values()]
        rows.sort(key=lambda row: row[0].place)
        for note, process in rows:
            _, stated = distinct.setdefault(note.wording, (note.event, []))
            stated.append((process, note.origin, note.place, note.last, note.count))
        self.all = [
            Statement(event, *wording, *map(list, zip(*stated, strict=True)))
            for wording, (event, stated) in distinct.items()
        ]

    def where(self, is_wanted: Callable[[Event], bool]) -> Iterator[Statement]:
        """Yield the statements whose event is wanted."""
        return (statement for statement in self.all if statement.event is not None and is_wanted(statement.event))

    def find_kind(self, kind: type[Event]) -> Iterator[Statement]:
        """Return the statements with an event of a kind."""
        return (statement for statement in self.all if isinstance(statement.event, kind))

    def last(self) -> dict[Process, StatementLine]:
        """By process the last line that is a statement, with the origin of the first one like it."""
        places: dict[Process, int] = {}
        last: dict[Process, tuple[Statement, int]] = {}
        for statement in self.all:
            for row, (process, place) in enumerate(zip(statement.processes, statement.lasts, strict=True)):
                if place > places.get(process, -1):
                    places[process], last[process] = place, (statement, row)
        return {process: StatementLine(places[process], row, statement) for process, (statement, row) in last.items()}


def by_process(statements: Iterable[Statement]) -> dict[Process, list[StatementLine]]:
    """Return statements by process, those of a process in the order of their first lines."""
    processes = group_values(
        (process, StatementLine(place, row, statement))
        for statement in statements
        for row, (process, place) in enumerate(zip(statement.processes, statement.places, strict=True))
    )
    for lines in processes.values():
        lines.sort(key=attrgetter("place"))
    return processes


class Quotes:
    """Quotes lines; paths do so when they are asked, and keep nothing else of what made them."""

    def __init__(self, where: Callable[[int], tuple[str, int, int]]) -> None:
        self.where = where

    def message(self, place: int, origin: Origin, level: str, message: str) -> Evidence:
        """Return the line at a place, as it stood."""
        return self.line(place, prefix.join_line(origin.head, level, message))

    def line(self, place: int, text: str) -> Evidence:
        """Return the line at a place that has a text."""
        source, line, order = self.where(place)
        return Evidence(source, line, text, order)

    def edge(self, edge: Edge) -> Evidence:
        """Return the first line of a connection."""
        return self.message(edge.place, edge.origin, edge.level, edge.message)

    def step(self, step: Step | Burst) -> Evidence:
        """Return the line of a step, or the first one of a burst."""
        if isinstance(step, Step):
            return self.message(step.place, step.origin, "INFO", step.event.message)
        return self.edge(min(step.edges.values(), key=lambda edge: edge.place))

    def first_steps(self, steps: Iterable[Step], most: int) -> list[Evidence]:
        """Return the lines of the first of some steps."""
        return list(map(self.step, sorted(steps, key=itemgetter(0))[:most]))

    def note(self, note: Note) -> Evidence:
        """Return the first line of a statement."""
        return self.message(note.place, note.origin, note.level, decode(note.message))
