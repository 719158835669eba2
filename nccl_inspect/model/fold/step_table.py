"""Steps and bursts of blocks that were read in columns, until somebody asks for those of processes.

This module needs numpy: it is imported only if there are such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nccl_inspect.event.base import Event, Process
from nccl_inspect.model.fold.process_log import Burst, ProcessLog
from nccl_inspect.model.fold.step import Step, step_of
from nccl_inspect.scanning.found import Row
from nccl_inspect.scanning.line_table import Printed, joined
from nccl_inspect.util.columns import Column, order_of

Take: TypeAlias = Callable[[ProcessLog, Sequence[Row]], None]
"""Takes in lines of a process that were read one by one."""
MANY = 1 << 17
"""Steps and bursts that wait at most."""


class Entries(NamedTuple):
    """Holds what a block has of several processes: first steps, then bursts."""

    process: Column
    """By the numbers of processes."""
    thread: Column
    """By the numbers of threads."""
    place: Column
    events: list[Event]
    """Of steps, as is the next."""
    printed: Printed
    bursts: list[Burst]


class Ends(NamedTuple):
    """Holds where processes end."""

    process: Column
    place: Column
    printed: Printed


class Apart(NamedTuple):
    """Lines of the last block that were read one by one."""

    rows: Mapping[Process, Sequence[Row]]
    base: int
    """What makes places of their numbers."""
    take: Take


class StepTable:
    """Holds what blocks have of processes, in the order in which they were read; each block is added once."""

    def __init__(self) -> None:
        self._numbers: dict[Process, int] = {}
        self._logs: list[ProcessLog] = []
        self._threads: dict[tuple[int, int], int] = {}
        """By number of the process and thread."""
        self._parts: list[Entries] = []
        self._bootstraps: list[tuple[Column, Column]] = []
        self._ends: list[Ends] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        """Whether as much waits as may."""
        return self._size > MANY

    def numbers(self, logs: Iterable[ProcessLog]) -> dict[Process, int]:
        """The numbers of processes, old ones and these.

        Args:
            logs: where what they print is put.
        """
        numbers = self._numbers
        for log in logs:
            if numbers.setdefault(log.process, len(numbers)) == len(self._logs):
                self._logs.append(log)
        return numbers

    def threads(self, threads: Iterable[tuple[int, int]]) -> list[int]:
        """The numbers of threads, of each the number of its process and what the system calls it."""
        numbers = self._threads
        return [numbers.setdefault(thread, len(numbers)) for thread in threads]

    def add(self, entries: Entries, bootstraps: tuple[Column, Column], ends: Ends) -> None:
        """Add what a block has, which follows on all before.

        Args:
            entries: of processes.
            bootstraps: processes and places where they begin.
            ends: of processes.
        """
        self._parts.append(entries)
        self._bootstraps.append(bootstraps)
        self._ends.append(ends)
        self._size += len(entries.place)

    def put_into_logs(self, apart: Apart | None) -> None:
        """Put everything into what the processes printed; nothing is added after that.

        Args:
            apart: lines that belong between these.
        """
        for number, begin in zip(*(column.tolist() for column in _columns(self._bootstraps, 2)), strict=True):
            self._logs[number].bootstraps.append(begin)
        process, thread, place = _columns(self._parts, 3)
        entries: list[Step | Burst] = []
        for part in self._parts:
            entries += _steps(part)
            entries += part.bursts
        order = order_of(process, place)
        is_mixed = np.zeros(len(self._logs), bool)
        is_mixed[[self._numbers[owner] for owner in (apart.rows if apart else ())]] = True
        is_own = np.ones(len(order), bool)
        is_own[self._continue(entries, thread, order[~is_mixed[process[order]]])] = False
        order = order[is_own[order]]
        in_order = [entries[at] for at in order.tolist()]
        bounds = np.searchsorted(process[order], np.arange(len(self._logs) + 1)).tolist()
        for log, mixed, begin, end in zip(self._logs, is_mixed.tolist(), bounds, bounds[1:], strict=False):
            if not mixed:
                log.steps += in_order[begin:end]
        if apart is not None:
            for number in map(self._numbers.__getitem__, apart.rows):
                _merge_into(self._logs[number], in_order[bounds[number] : bounds[number + 1]], apart)
        self._end()

    def _continue(self, entries: Sequence[Any], thread: Column, order: Column) -> list[int]:
        """Let bursts continue those before; gives which do so.

        Args:
            entries: of all blocks.
            thread: of each.
            order: entries by process, those of a process by place.
        """
        order = order[np.argsort(thread[order], kind="stable")]
        bounds = np.ones(len(order) + 1, bool)
        bounds[1:-1] = thread[order[1:]] != thread[order[:-1]]
        firsts, lasts = order[bounds[:-1]].tolist(), order[bounds[1:]].tolist()
        is_burst = np.array([type(entry) is Burst for entry in entries], bool)[order]
        follow = np.flatnonzero(is_burst[1:] & is_burst[:-1] & ~bounds[1:-1])
        threads, logs = list(self._threads), self._logs
        continued: dict[int, Burst] = {}
        for at, (process, tid) in zip(firsts, map(threads.__getitem__, thread[firsts].tolist()), strict=True):
            begin, log = entries[at], logs[process]
            if isinstance(begin, Step):
                log.begun.setdefault(tid, None)
            elif burst := log.continued(begin.place, *begin.key):
                continued[at] = burst
                burst.rows += begin.rows
            else:
                log.begun.setdefault(tid, begin)
        for before, at in zip(order[follow].tolist(), order[follow + 1].tolist(), strict=True):
            burst, more = continued.get(before, entries[before]), entries[at]
            process, _ = threads[thread[at]]
            if burst.key == more.key and not logs[process].began_anew(burst.place, more.place):
                continued[at] = burst
                burst.rows += more.rows
        for at, (process, tid) in zip(lasts, map(threads.__getitem__, thread[lasts].tolist()), strict=True):
            end, log = continued.get(at, entries[at]), logs[process]
            if isinstance(end, Step):
                log.open.pop(tid, None)
            else:
                log.open[tid] = end
        return list(continued)

    def _end(self) -> None:
        """Let the processes end where they do in the last blocks that have them."""
        process, place = _columns(self._ends, 2)
        last = np.zeros(len(self._logs), np.int64)
        last[process] = np.arange(len(process))  # of equal ones the last counts
        printed = joined([part.printed for part in self._ends]).at(last)
        for log, end, origin in zip(self._logs, place[last].tolist(), printed, strict=True):
            log.last, log.final = end, origin


def _columns(parts: Sequence[tuple[Any, ...]], number: int) -> Iterable[Column]:
    """The first columns of several parts, one part after the other."""
    return (np.concatenate([part[at] for part in parts]) for at in range(number))


def _steps(part: Entries) -> Iterable[Step]:
    return map(step_of, zip(part.place[: len(part.events)].tolist(), part.printed.late, part.events, strict=True))


def _merge_into(log: ProcessLog, entries: list[Any], apart: Apart) -> None:
    """Put steps, bursts and lines that were read one by one into a log, in the order of lines."""
    places = [(entry.place, entry) for entry in entries]
    places += [(apart.base | row[0], row) for row in apart.rows[log.process]]
    for kind, some in groupby(sorted(places, key=itemgetter(0)), lambda placed: type(placed[1])):
        run = [entry for _, entry in some]
        if kind is tuple:
            apart.take(log, run)
        for entry in run if kind is not tuple else ():
            if kind is Step:
                log.step(*entry)
            else:
                log.burst(entry.place, entry.printed, entry.key.conn, entry.key.rank).rows += entry.rows
