"""Steps and bursts of blocks that were read in columns, until somebody asks for those of processes.

This module needs numpy: it is imported only if there are such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.base import Event, Process
from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.model.fold.process_log import (
    LONG,
    MAX_NOTES,
    Burst,
    BurstKey,
    EdgeRows,
    ProcessLog,
    Stated,
    Step,
    Wording,
    step_of,
)
from nccl_inspect.model.fold.statement_table import StatementTable
from nccl_inspect.model.fold.uses import COUNTED, ENDS_ALL, ENDS_BURST, IN_ORDER, KEPT, fate_of
from nccl_inspect.scanning.found import Extent, Found, Row
from nccl_inspect.scanning.line_table import NONE, ConnectionTable, Heads, LineTable, Printed, edges, joined
from nccl_inspect.scanning.spans import Rows, firsts, number_of
from nccl_inspect.util.columns import Column, distinct, order_of

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


class _Statements(NamedTuple):
    """Statements of a block, in the order of their first lines."""

    first: Rows
    """The rows of these."""
    wording: Column
    """The text and the place in NCCL's source as one number."""
    locations: list[str | None]
    last: Rows
    """The place of the last line."""
    times: Rows


class _Bursts(NamedTuple):
    """Bursts, by columns: who printed the first line of each, and its number."""

    printer: Column
    line: Rows
    bursts: list[Burst]


class Extents(NamedTuple):
    """Holds where processes begin and end in a block, in the order in which they begin."""

    processes: list[Process]
    first: list[int]
    """The number of the first line, and who printed it."""
    openings: Printed
    last: Column
    """The number of the last line, and who printed it."""
    finals: Printed


class Tables:
    """The lines in the tables of a block, by process.

    Args:
        block: what was found.
        base: what makes a place of the number of a line.
    """

    def __init__(self, block: Found, base: int) -> None:
        lines, connections = block.lines, block.connections
        assert lines is not None
        self._lines, self._base = lines, base
        self._numbers: dict[Process, int] = {}
        self._threads: dict[tuple[int, int], int] = {}
        """By number of the process and thread."""
        heads, numbers = lines.heads, self._numbers
        origins = heads.printers.origins
        self._process_of = np.array([numbers.setdefault(one.process, len(numbers)) for one in origins], np.int32)
        self._thread_of = np.array(
            list(map(self._thread, self._process_of.tolist(), [one.tid for one in origins])), np.int32
        )
        """By printers, as the one before."""
        is_row = np.zeros(len(heads.printer), bool)
        for table in (lines, connections):
            if table is not None:
                is_row[table.at] = True
        self.extents = _extents(block.extents, heads, np.flatnonzero(is_row), self._process_of, list(numbers))
        """Also of the processes of which lines were read one by one."""
        _unknown(block, lines)
        self._fates = np.fromiter(map(fate_of, lines.texts), np.uint8, len(lines.texts))
        fate = self._fates[lines.text]
        self._in_order = np.flatnonzero(fate & IN_ORDER)
        self._bursts = _Bursts(np.zeros(0, np.int32), np.zeros(0, np.int64), [])
        if connections is not None:
            self._bursts = self._bursts_of(connections, *self._breaks(block, fate))

    def note_into(
        self,
        statement_table: StatementTable,
        kept: Callable[[Wording, Parsed | None], Stated],
        logs: Iterable[ProcessLog],
        by_process: Mapping[Process, Sequence[Row]],
    ) -> dict[Process, list[Row]]:
        """Add the statements to those of all blocks, before anything is put into logs.

        Args:
            statement_table: of all blocks.
            kept: gives the statement to be kept for one.
            logs: of the processes that are kept apart.
            by_process: lines that were read one by one.

        Returns:
            Lines to put into logs one by one, as statements of processes that have too many, or long ones, are.
        """
        lines, texts = self._lines, self._lines.texts
        is_said = (self._fates & (COUNTED | ENDS_ALL) > 0)[lines.text]
        is_long = np.zeros(len(texts), bool)
        for text in np.flatnonzero(self._fates & (COUNTED | ENDS_ALL)).tolist():
            is_long[text] = len(texts[text].message) > LONG
        process = self._process_of[lines.printer]
        statements = self._statements(np.flatnonzero(is_said), process)
        sizes = np.bincount(process[statements.first], minlength=len(self._numbers))
        sizes[process[is_long[lines.text]]] = MAX_NOTES
        number, listed = np.full(len(sizes), -1), sizes.tolist()
        for log in logs:
            at = self._numbers.get(log.process)
            if at is not None and (more := listed[at]):
                if rows := by_process.get(log.process):
                    more += MAX_NOTES if any(len(text.message) > LONG for _, _, text, _ in rows) else len(rows)
                if statement_table.adopt(log, more):
                    number[at] = statement_table.number(log.process)
        self._put(statement_table, kept, statements, number[process[statements.first]])
        fate = np.where(is_said & (number[process] < 0), KEPT, self._fates[lines.text])
        self._bootstraps = np.flatnonzero(fate & ENDS_ALL)
        return self._kept(np.flatnonzero(fate & KEPT))

    def _kept(self, rows: Rows) -> dict[Process, list[Row]]:
        """Some rows as lines that were read one by one."""
        lines, kept = self._lines, dict[Process, list[Row]]()
        origins = lines.heads.origins(lines.at[rows])
        for line, origin, text in zip(lines.line[rows].tolist(), origins, lines.text[rows].tolist(), strict=True):
            kept.setdefault(origin.process, []).append((line, origin, lines.texts[text], None))
        return kept

    def put_into(self, step_table: StepTable, logs: Iterable[ProcessLog]) -> None:
        """Add steps, bursts and bootstraps to those of all blocks, after the statements.

        Args:
            step_table: of all blocks.
            logs: of the processes in the order in which they begin.
        """
        lines, heads, bursts, extents = self._lines, self._lines.heads, self._bursts, self.extents
        numbers = step_table.numbers(logs)
        number = np.array([numbers.get(process, -1) for process in self._numbers], np.int32)
        owners = number.tolist()
        thread = np.array(step_table.threads((owners[process], tid) for process, tid in self._threads), np.int32)
        at = lines.at[self._in_order]
        printer = np.concatenate([heads.printer[at], bursts.printer])
        texts = lines.text[self._in_order].tolist()
        entries = Entries(
            number[self._process_of[printer]],
            thread[self._thread_of[printer]],
            np.concatenate([heads.line[at], bursts.line]) + self._base,
            [parsed.event for parsed in [lines.texts[text].parsed for text in texts] if parsed],
            heads.printed(at),
            bursts.bursts,
        )
        at = lines.at[self._bootstraps]
        begun = number[self._process_of[heads.printer[at]]], heads.line[at] + self._base
        ends = (
            np.array([numbers[process] for process in extents.processes], np.int32),
            extents.last + self._base,
            extents.finals,
        )
        step_table.add(entries, begun, Ends(*ends))

    def _thread(self, process: int, tid: int) -> int:
        return self._threads.setdefault((process, tid), len(self._threads))

    def _statements(self, rows: Rows, process: Column) -> _Statements:
        """Statements, by process, place in the source and text.

        Args:
            rows: of their lines.
            process: of each row of the table.
        """
        lines, heads = self._lines, self._lines.heads
        locations: dict[str | None, int] = {}
        location = np.array(
            [locations.setdefault(one.location, len(locations)) for one in heads.printers.origins], np.int64
        )
        line, printer = lines.line[rows], lines.printer[rows]
        wording: Column = lines.text[rows].astype(np.int64)
        wording = wording * len(locations) + location[printer]
        first, number = distinct(process[rows], wording)
        last = np.zeros(len(first), np.int64)
        last[number] = line + self._base
        times = np.bincount(number, minlength=len(first))
        return _Statements(rows[first], wording[first], list(locations), last, times)

    def _put(
        self,
        statement_table: StatementTable,
        kept: Callable[[Wording, Parsed | None], Stated],
        statements: _Statements,
        process: Column,
    ) -> None:
        """Add statements to those of all blocks.

        Args:
            statement_table: of all blocks.
            kept: gives the statement to be kept for one.
            statements: of this block.
            process: the number of the process there for each; -1 if it is not kept there.
        """
        chosen = np.flatnonzero(process >= 0)
        first, lines, locations = statements.first[chosen], self._lines, statements.locations
        wordings, wording = np.unique(statements.wording[chosen], return_inverse=True)
        numbers = []
        for entry in wordings.tolist():
            text = lines.texts[entry // len(locations)]
            stated = text.level, text.message, locations[entry % len(locations)]
            numbers.append(statement_table.wording(*kept(stated, text.parsed)))
        place = lines.line[first] + self._base
        columns = process[chosen], np.array(numbers, np.int64)[wording], place
        statement_table.add(
            [*columns, statements.last[chosen], statements.times[chosen]], lines.heads.printed(lines.at[first])
        )

    def _bursts_of(self, table: ConnectionTable, breaks: Rows, breaking: Rows) -> _Bursts:
        """The bursts of a table, and the lines that end those of threads."""
        grouped = edges(table, self._thread_of, breaks, breaking)
        begin = np.concatenate(([0], grouped.ends[:-1]))
        line, printer = grouped.line[begin], grouped.printer[begin]
        columns = begin, grouped.ends, line + self._base, grouped.columns["conn"][begin], grouped.rank[begin]
        listed = grouped.printed(begin).late, *(column.tolist() for column in columns)
        bursts = []
        for printed, first, end, place, conn, rank in zip(*listed, strict=True):
            key = BurstKey(printed.tid, None if conn == NONE else conn, rank)
            bursts.append(Burst(key, place, printed, {}, [EdgeRows(grouped, first, end, self._base)]))
        return _Bursts(printer, line, bursts)

    def _breaks(self, block: Found, fate: NDArray[np.uint8]) -> tuple[Rows, Rows]:
        """The lines that end bursts, and whose: threads."""
        lines, origins = self._lines, self._lines.heads.printers.origins
        ending = np.flatnonzero(fate & ENDS_BURST)
        broken = [
            (number, origin, fate_of(text)) for rows in block.by_process.values() for number, origin, text, _ in rows
        ]
        everywhere = [(number, origin) for number, origin, entry in broken if entry & ENDS_ALL]
        at = lines.at[np.flatnonzero(fate & ENDS_ALL)]
        printers = lines.heads.printer[at].tolist()
        everywhere += zip(lines.heads.line[at].tolist(), map(origins.__getitem__, printers), strict=True)
        numbers = self._numbers
        some = [
            (number, self._thread(numbers.setdefault(origin.process, len(numbers)), origin.tid))
            for number, origin, entry in broken
            if entry & ENDS_BURST
        ]
        several: dict[int, list[int]] = {}
        for (process, _), thread in self._threads.items() if everywhere else ():
            several.setdefault(process, []).append(thread)
        some += [
            (line, thread) for line, origin in everywhere for thread in several.get(numbers.get(origin.process, -1), ())
        ]
        broken_at, broken_threads = np.array(some, np.int64).reshape(-1, 2).T
        at = lines.at[ending]
        line, printer = lines.heads.line[at], lines.heads.printer[at]
        return np.concatenate([broken_at, line]), np.concatenate([broken_threads, self._thread_of[printer]])


def _extents(
    others: dict[Process, Extent], heads: Heads, at: Rows, process_of: Column, all: Sequence[Process]
) -> Extents:
    """Return where processes begin and end in tables, and in lines that were read one by one."""
    process = process_of[heads.printer[at]]
    first, last = np.full((2, len(all)), -1)
    first[process[::-1]] = at[::-1]
    last[process] = at
    printing = np.flatnonzero(first >= 0)
    printing = printing[np.argsort(first[printing])]
    begin, end = heads.printed(first[printing]), heads.printed(last[printing])
    lines = heads.line[first[printing]].tolist(), heads.line[last[printing]]
    processes = [all[number] for number in printing.tolist()]
    if not others:
        return Extents(processes, lines[0], begin, lines[1], end)
    extents = dict(others)
    for owner, extent in zip(processes, map(Extent, lines[0], begin, lines[1].tolist(), end), strict=True):
        other = others.get(owner, extent)
        opening, final = min(extent, other, key=attrgetter("first")), max(extent, other, key=attrgetter("last"))
        extents[owner] = Extent(opening.first, opening.opening, final.last, final.final)
    ordered = sorted(extents.items(), key=lambda entry: entry[1].first)
    columns = list(zip(*(extent for _, extent in ordered), strict=True))
    firsts, openings, lasts, finals = map(list, columns)
    return Extents([owner for owner, _ in ordered], firsts, Printed.of(openings), np.array(lasts), Printed.of(finals))


def _unknown(block: Found, table: LineTable) -> None:
    """Add the lines that no production knows, by their texts."""
    unknown = np.array([text.parsed is None for text in table.texts], bool)
    rows = np.flatnonzero(unknown[table.text])
    number, where = number_of(firsts([table.text[rows]]))
    counts = np.bincount(number, minlength=len(where)).tolist()
    first = table.at[rows[where]]
    columns = table.heads.line[first].tolist(), table.heads.origins(first), table.text[rows[where]].tolist(), counts
    for line, origin, text, count in zip(*columns, strict=True):
        block.unknown.append((line, origin, table.texts[text], count))
    block.unknown.sort(key=itemgetter(0))
