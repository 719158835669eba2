"""What processes printed as columns of numbers: packed and unpacked in three quarters of the time of objects.

Events, origins and messages come many times. Each stands once in a table, and everything else names it by its number.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from nccl_inspect.event.base import Event, Process
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.fold.process_log import Burst, BurstKey, Edge, EdgeRows, Note, ProcessLog, Step, edge_key
from nccl_inspect.util.records import again, values

Packed: TypeAlias = tuple[Any, ...]

_NONE = -(1 << 62)
"""Instead of the connection set of a burst, or of the burst that a thread began with, where there is none."""


class _Table:
    """Numbers objects by their identity."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self._numbers: dict[int, int] = {}

    def number(self, one: object) -> int:
        number = self._numbers.get(id(one))
        if number is None:
            number = self._numbers[id(one)] = len(self.entries)
            self.entries.append(one)
        return number


def packed(logs: Iterable[ProcessLog], notes: Iterable[Note]) -> Packed:
    """Logs of processes, and notes of no process."""
    return _Packer().all(logs, notes)


class _Packer:
    def __init__(self) -> None:
        self._events, self._origins, self._texts, self._edges = _Table(), _Table(), _Table(), _Table()
        self._numbers = array("q")
        self._channels: list[int] = []
        """Bits, of which there may be more than a number of the column has."""

    def all(self, logs: Iterable[ProcessLog], notes: Iterable[Note]) -> Packed:
        rest = [(tuple(log.process), log.calls, log.bootstraps, self._log(log), _places(log)) for log in logs]
        self._notes(notes)
        origins = [tuple(origin) for origin in self._origins.entries]
        events = [None if event is None else (type(event), values(event)) for event in self._events.entries]
        return origins, events, self._texts.entries, self._edges.entries, self._channels, self._numbers, rest

    def _log(self, log: ProcessLog) -> dict[int, object]:
        """Put a log into the columns; what is left are keys of notes that are not the usual ones, by their places."""
        put = self._numbers.extend
        places = self._origins.number(log.opening), self._origins.number(log.final)
        put((log.first, log.last, *places, log.long_notes, len(log.steps)))
        bursts: dict[int, int] = {}
        for at, step in enumerate(log.steps):
            if isinstance(step, Burst):
                bursts[id(step)] = at
                self._burst(step)
            else:
                put((0, step.place, self._origins.number(step.origin), self._events.number(step.event)))
        self._notes(log.notes.values())
        put((len(log.open), len(log.begun)))
        for tid, burst in log.open.items():
            put((tid, bursts[id(burst)]))
        for tid, begun in log.begun.items():
            put((tid, _NONE if begun is None else bursts[id(begun)]))
        return {at: key for at, (key, note) in enumerate(log.notes.items()) if key != _usual_key(note)}

    def _burst(self, burst: Burst) -> None:
        """One more than its edges, so that it differs from a step, then the burst."""
        tid, conn, rank = burst.key
        origin = self._origins.number(burst.origin)
        own, rows = burst.own.values(), burst.rows
        states = tid, _NONE if conn is None else conn, rank, len(rows)
        self._numbers.extend((1 + len(own), burst.place, origin, *states))
        for part in rows:
            self._numbers.extend((self._edges.number(part.edges), part.begin, part.end, part.base))
        for edge in own:
            event, origin = self._events.number(edge.stated), self._origins.number(edge.origin)
            self._numbers.extend((event, origin, edge.place, edge.lines, self._texts.number(edge.level)))
            self._channels.append(edge.channels)

    def _notes(self, notes: Iterable[Note]) -> None:
        notes = list(notes)
        self._numbers.append(len(notes))
        event, origin, text, put = self._events.number, self._origins.number, self._texts.number, self._numbers.extend
        for note in notes:
            put((event(note.event), origin(note.origin), text(note.level), text(note.message)))
            put((note.place, note.last, note.count))


def unpacked(found: Packed) -> tuple[dict[Process, ProcessLog], dict[bytes, Note]]:
    """The inverse of :func:`packed`: logs by their processes, and the notes of no process by their messages."""
    return _Unpacker(found).all()


class _Unpacker:
    def __init__(self, found: Packed) -> None:
        origins, events, self._texts, self._edges, channels, numbers, self._rest = found
        self._origins = [Origin(head, Process(*process), *rest) for head, process, *rest in origins]
        self._events: list[Any] = [None if one is None else again(*one) for one in events]
        self._channels = iter(channels)
        self._numbers = iter(numbers)

    def all(self) -> tuple[dict[Process, ProcessLog], dict[bytes, Note]]:
        logs = {}
        for process, calls, bootstraps, keys, places in self._rest:
            log = ProcessLog(Process(*process), calls=calls, bootstraps=bootstraps)
            self._fill(log, keys)
            for at, note in enumerate(log.notes.values() if places else ()):
                note.places = places.get(at)
            logs[log.process] = log
        return logs, {note.message: note for note in self._notes()}

    def _next(self, count: int) -> Iterator[int]:
        return islice(self._numbers, count)

    def _fill(self, log: ProcessLog, keys: dict[int, object]) -> None:
        log.first, log.last, opening, final, log.long_notes, steps = self._next(6)
        log.opening, log.final = self._origins[opening], self._origins[final]
        log.steps = [self._step() for _ in range(steps)]
        notes = self._notes()
        if keys:
            log.notes = {keys.get(at) or _usual_key(note): note for at, note in enumerate(notes)}
        else:
            log.notes = {_usual_key(note): note for note in notes}
        still_open, begun = self._next(2)
        bursts: Any = log.steps
        for _ in range(still_open):
            tid, at = self._next(2)
            log.open[tid] = bursts[at]
        for _ in range(begun):
            tid, at = self._next(2)
            log.begun[tid] = None if at == _NONE else bursts[at]

    def _step(self) -> Step | Burst:
        kind, place, origin, event_or_tid = self._next(4)
        if kind == 0:
            event: Event = self._events[event_or_tid]
            return Step(place, self._origins[origin], event)
        conn, rank, parts = self._next(3)
        burst = Burst(BurstKey(event_or_tid, None if conn == _NONE else conn, rank), place, self._origins[origin])
        for _ in range(parts):
            number, *extent = self._next(4)
            burst.rows.append(EdgeRows(self._edges[number], *extent))
        for _ in range(kind - 1):
            number, printed_by, at, lines, level = self._next(5)
            connect = self._events[number]
            edge = Edge(connect, self._origins[printed_by], at, next(self._channels), lines, self._texts[level])
            burst.own[edge_key(connect)] = edge
        return burst

    def _notes(self) -> list[Note]:
        events, origins, texts, numbers = self._events, self._origins, self._texts, self._numbers
        count = next(numbers)
        rows = zip(*[islice(numbers, count * 7)] * 7, strict=True)
        return [
            Note(events[event], origins[origin], texts[level], texts[message], place, last, times)
            for event, origin, level, message, place, last, times in rows
        ]


def _places(log: ProcessLog) -> dict[int, array[int]]:
    """Of notes that keep where they were made again, by their places in the log."""
    return {at: note.places for at, note in enumerate(log.notes.values()) if note.places is not None}


def _usual_key(note: Note) -> object:
    return note.level, note.message, note.origin.location
