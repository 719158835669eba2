"""What processes printed, as lists of numbers and of what these number: so it goes from one process to another.

Pickle takes objects one by one, in a fifth of the time that reading took; lists of numbers are copied as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from nccl_inspect.event.base import Event, Process
from nccl_inspect.model.fold.process_log import Burst, BurstKey, EdgeRows, ProcessLog, Step, step_of
from nccl_inspect.util.records import columns_of, made_of

if TYPE_CHECKING:
    from nccl_inspect.model.fold.process_log import CallKey, Note, Tally
    from nccl_inspect.scanning.line_table import Edges

_Thing = TypeVar("_Thing")
_STEP = -1
"""Instead of the number of a burst."""


class _Once(Generic[_Thing]):
    """Objects in the order of their numbers; each has one, which others that equal it do not share."""

    def __init__(self) -> None:
        self.all: list[_Thing] = []
        self._numbers: dict[int, int] = {}

    def numbers(self, things: Iterable[_Thing]) -> list[int]:
        """The number of each."""
        things = list(things)
        ids = list(map(id, things))
        for identity, thing in dict(zip(ids, things, strict=True)).items():
            if self._numbers.setdefault(identity, len(self.all)) == len(self.all):
                self.all.append(thing)
        return list(map(self._numbers.__getitem__, ids))


class _Steps(NamedTuple):
    place: list[int]
    origin: list[int]
    event: list[int]


class _Bursts(NamedTuple):
    tid: list[int]
    conn: list[int | None]
    rank: list[int]
    place: list[int]
    origin: list[int]
    parts: list[int]
    """How many of the following each has."""
    table: list[int]
    begin: list[int]
    end: list[int]
    base: list[int]
    apart: dict[int, Burst]
    """Those with edges that are objects, by their numbers."""


class _Threads(NamedTuple):
    """By processes and threads the number of a burst, or none."""

    size: list[int]
    """How many threads each process has."""
    tid: list[int]
    burst: list[int]


class _Events(NamedTuple):
    """Events of one kind."""

    kind: type[Event]
    numbers: list[int]
    columns: list[list[Any]]


class PackedLogs(NamedTuple):
    """Holds what processes printed."""

    processes: list[Process]
    extents: tuple[list[int], list[int], list[int], list[int]]
    """By processes: the first and the last line, and the origins of these."""
    long_notes: list[int]
    bootstraps: list[list[int]]
    apart: dict[int, tuple[dict[object, Note], dict[CallKey, Tally]]]
    """The statements and calls of those that have any as objects."""
    sizes: list[int]
    """How many steps and bursts each has."""
    order: list[int]
    """For each of these the number of the burst, or that it is a step."""
    steps: _Steps
    bursts: _Bursts
    open: _Threads
    begun: _Threads
    origins: list[Any]
    """Each an origin, or what makes one when asked (:class:`nccl_inspect.ingest.lines.timestamps.Late`)."""
    events: list[_Events]
    tables: list[Edges]


def packed(logs: Iterable[ProcessLog]) -> PackedLogs:
    """Some logs as lists, which are made of them again by :func:`unpacked`."""
    logs = list(logs)
    origins, events, tables, bursts = _Once[Any](), _Once[Event](), _Once["Edges"](), _Once[Burst]()
    entries = [step for log in logs for step in log.steps]
    numbers = iter(bursts.numbers(step for step in entries if isinstance(step, Burst)))
    order = [next(numbers) if isinstance(step, Burst) else _STEP for step in entries]
    steps = [step for step in entries if isinstance(step, Step)]
    places, origins_of, events_of = zip(*steps, strict=True) if steps else ((), (), ())
    open_bursts = _threads([log.open for log in logs], bursts)
    begun = _threads([log.begun for log in logs], bursts)
    return PackedLogs(
        processes=[log.process for log in logs],
        extents=(
            [log.first for log in logs],
            [log.last for log in logs],
            origins.numbers(log.opening for log in logs),
            origins.numbers(log.closing for log in logs),
        ),
        long_notes=[log.long_notes for log in logs],
        bootstraps=[log.bootstraps for log in logs],
        apart={at: (log.notes, log.calls) for at, log in enumerate(logs) if log.notes or log.calls},
        sizes=[len(log.steps) for log in logs],
        order=order,
        steps=_Steps(list(places), origins.numbers(origins_of), events.numbers(events_of)),
        bursts=_packed_bursts(bursts.all, origins, tables),
        open=open_bursts,
        begun=begun,
        origins=origins.all,
        events=_packed_events(events.all),
        tables=tables.all,
    )


def _threads(by_log: Sequence[dict[int, Any]], bursts: _Once[Burst]) -> _Threads:
    tids = [tid for own in by_log for tid in own]
    given = [burst for own in by_log for burst in own.values()]
    numbers = iter(bursts.numbers(burst for burst in given if burst is not None))
    return _Threads(list(map(len, by_log)), tids, [_STEP if burst is None else next(numbers) for burst in given])


def _packed_bursts(bursts: Sequence[Burst], origins: _Once[Any], tables: _Once[Edges]) -> _Bursts:
    apart = {number: burst for number, burst in enumerate(bursts) if burst.own or burst.at is not None}
    parts = [part for burst in bursts for part in burst.rows]
    edges, begin, end, base = zip(*parts, strict=True) if parts else ((), (), (), ())
    tid, conn, rank = zip(*(burst.key for burst in bursts), strict=True) if bursts else ((), (), ())
    return _Bursts(
        list(tid),
        list(conn),
        list(rank),
        [burst.place for burst in bursts],
        origins.numbers(burst.printed for burst in bursts),
        [len(burst.rows) for burst in bursts],
        tables.numbers(edges),
        list(begin),
        list(end),
        list(base),
        apart,
    )


def _packed_events(events: Sequence[Event]) -> list[_Events]:
    by_kind: dict[type[Event], list[int]] = {}
    for number, event in enumerate(events):
        by_kind.setdefault(type(event), []).append(number)
    return [
        _Events(kind, numbers, columns_of([events[number] for number in numbers])) for kind, numbers in by_kind.items()
    ]


def unpacked(logs: PackedLogs) -> Iterator[ProcessLog]:
    """The logs again."""
    bursts, origins, events = _bursts(logs), logs.origins, _events(logs.events)
    origins_of, events_of = map(origins.__getitem__, logs.steps.origin), map(events.__getitem__, logs.steps.event)
    steps = map(step_of, zip(logs.steps.place, origins_of, events_of, strict=True))
    entries = iter([next(steps) if number == _STEP else bursts[number] for number in logs.order])
    opened, begun = _by_log(logs.open, bursts), _by_log(logs.begun, bursts)
    extents = zip(*logs.extents, strict=True)
    for at, (process, (first, last, opening, final)) in enumerate(zip(logs.processes, extents, strict=True)):
        notes, calls = logs.apart.get(at, ({}, {}))
        yield ProcessLog(
            process=process,
            steps=list(islice(entries, logs.sizes[at])),
            notes=notes,
            calls=calls,
            first=first,
            last=last,
            opening=origins[opening],
            closing=origins[final],
            long_notes=logs.long_notes[at],
            bootstraps=logs.bootstraps[at],
            open=next(opened),
            begun=next(begun),
        )


def _events(events: Iterable[_Events]) -> dict[int, Event]:
    made = ((numbers, made_of(kind, columns)) for kind, numbers, columns in events)
    return {number: event for numbers, some in made for number, event in zip(numbers, some, strict=True)}


def _bursts(logs: PackedLogs) -> list[Burst]:
    own, tables = logs.bursts, logs.tables
    keys = map(partial(tuple.__new__, BurstKey), zip(own.tid, own.conn, own.rank, strict=True))
    all_parts = zip(map(tables.__getitem__, own.table), own.begin, own.end, own.base, strict=True)
    parts = map(partial(tuple.__new__, EdgeRows), all_parts)
    bursts = [
        Burst(key, place, logs.origins[origin], {}, list(islice(parts, size)))
        for key, place, origin, size in zip(keys, own.place, own.origin, own.parts, strict=True)
    ]
    for number, burst in own.apart.items():
        bursts[number] = burst
    return bursts


def _by_log(threads: _Threads, bursts: Sequence[Burst]) -> Iterator[dict[int, Any]]:
    entries = zip(threads.tid, (None if at == _STEP else bursts[at] for at in threads.burst), strict=True)
    return (dict(islice(entries, size)) for size in threads.size)
