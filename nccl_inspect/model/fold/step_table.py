"""Steps and bursts of blocks that were read in columns, until somebody asks for those of processes.

Loaded where there are such only: this module needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nccl_inspect.event.base import Event, Process
from nccl_inspect.model.fold.process_log import Burst, ProcessLog, Step
from nccl_inspect.scanning.found import Row
from nccl_inspect.scanning.line_table import Printed, joined
from nccl_inspect.util.columns import Column, order_of

Take: TypeAlias = Callable[[ProcessLog, Sequence[Row]], None]
"""Takes in lines of a process that were read one by one."""
_MANY = 1 << 17
"""Steps and bursts that wait at most."""
_step = partial(tuple.__new__, Step)
"""Makes a step of its fields in a third of the time."""


class Entries(NamedTuple):
    """What a block has of several processes: first steps, then bursts."""

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
    """Where processes end."""

    process: Column
    place: Column
    printed: Printed


class StepTable:
    """What blocks have of processes, in the order in which they were read; each block is added once."""

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
        return self._size > _MANY

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

    def put_into_logs(self, rows: Mapping[Process, Sequence[Row]], base: int, take: Take | None) -> None:
        """Put everything into what the processes printed; nothing is added after that.

        Args:
            rows: lines of the last block that were read one by one.
            base: what makes places of their numbers.
            take: takes them in.
        """
        for number, begin in zip(*(column.tolist() for column in _columns(self._bootstraps, 2)), strict=True):
            self._logs[number].bootstraps.append(begin)
        process, thread, place = _columns(self._parts, 3)
        entries = [entry for part in self._parts for entry in (*_steps(part), *part.bursts)]
        mixed = {self._numbers[owner] for owner in rows}
        order = order_of(process, place)
        is_own = np.ones(len(order), bool)
        is_own[self._continue(entries, thread, order, mixed)] = False
        order = order[is_own[order]]
        in_order = [entries[at] for at in order.tolist()]
        bounds = np.searchsorted(process[order], np.arange(len(self._logs) + 1)).tolist()
        for number, log in enumerate(self._logs):
            if number not in mixed:
                log.steps += in_order[bounds[number] : bounds[number + 1]]
        for owner, some in rows.items():
            number = self._numbers[owner]
            _merge_into(self._logs[number], in_order[bounds[number] : bounds[number + 1]], some, base, take)
        self._end()

    def _continue(self, entries: list[Step | Burst], thread: Column, order: Column, mixed: set[int]) -> list[int]:
        """Let bursts continue those before; gives which do so.

        Args:
            entries: of all blocks.
            thread: of each.
            order: the entries by process, those of a process by place.
            mixed: the numbers of processes of which some lines were read one by one.
        """
        order = order[np.argsort(thread[order], kind="stable")]
        is_burst = np.array([type(entry) is Burst for entry in entries], bool)[order]
        begins = np.ones(len(order) + 1, bool)
        begins[1:-1] = thread[order[1:]] != thread[order[:-1]]
        follow = np.flatnonzero(is_burst[1:] & is_burst[:-1] & ~begins[1:-1])
        threads = list(self._threads)
        continued: dict[int, Burst] = {}
        bounds = order[begins[:-1]].tolist(), order[begins[1:]].tolist()
        listed = [(*threads[number], self._logs[threads[number][0]]) for number in thread[bounds[0]].tolist()]
        for (process, tid, log), first in zip(listed, bounds[0], strict=True):
            begin = entries[first]
            if process in mixed:
                continue
            if isinstance(begin, Step):
                log.begun.setdefault(tid, None)
            elif burst := log.continued(begin.place, *begin.key):
                burst.rows += begin.rows
                continued[first] = burst
            else:
                log.begun.setdefault(tid, begin)
        for before, at in zip(order[follow].tolist(), order[follow + 1].tolist(), strict=True):
            burst, more = continued.get(before) or entries[before], entries[at]
            process = threads[thread[at]][0]
            if (
                burst.key == more.key
                and process not in mixed
                and not self._logs[process].began_anew(burst.place, more.place)
            ):
                burst.rows += more.rows
                continued[at] = burst
        for (process, tid, log), last in zip(listed, bounds[1], strict=True):
            end = continued.get(last) or entries[last]
            if process in mixed:
                continue
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
    return map(_step, zip(part.place[: len(part.events)].tolist(), part.printed, part.events, strict=True))


def _merge_into(log: ProcessLog, entries: list[Any], rows: Sequence[Row], base: int, take: Take) -> None:
    """Put steps, bursts and lines that were read one by one into a log, in the order of lines."""
    places = [(entry.place, entry) for entry in entries] + [(base | row[0], row) for row in rows]
    for kind, some in groupby(sorted(places, key=itemgetter(0)), lambda placed: type(placed[1])):
        run = [entry for _, entry in some]
        if kind is tuple:
            take(log, run)
        for entry in run if kind is not tuple else ():
            if kind is Step:
                log.step(*entry)
            else:
                log.burst(entry.place, entry.origin, entry.key.conn, entry.key.rank).rows += entry.rows
