"""Lines that were read in columns, put into what their processes printed.

Loaded where there are such only: this module needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.base import Process
from nccl_inspect.model.fold.process_log import LONG, MAX_NOTES, Burst, BurstKey, EdgeRows, ProcessLog, Step
from nccl_inspect.model.fold.statement_table import StatementTable
from nccl_inspect.model.fold.uses import COUNTED, ENDS_ALL, ENDS_BURST, IN_ORDER, KEPT
from nccl_inspect.scanning.connection_table import NONE, ConnectionTable, edges
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.found import Extent, Found, Row
from nccl_inspect.scanning.line_table import Heads, LineTable
from nccl_inspect.scanning.spans import Column, Rows, firsts, number_of
from nccl_inspect.util.columns import distinct
from nccl_inspect.util.named_tuples import NamedTuple

_step = partial(tuple.__new__, Step)
"""Makes a step of its fields in a third of the time."""


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


class _Sorted:
    """Entries by process, and those of a process in the order of their lines.

    Args:
        process: the number of the process of each entry.
        line: its line.
        entries: in any order.
    """

    def __init__(self, process: NDArray[Any], line: Rows, entries: Iterable[Any]) -> None:
        self.order = np.lexsort((line, process))
        given = list(entries)
        self._entries = [given[at] for at in self.order.tolist()]
        self._begins = np.searchsorted(process[self.order], np.arange(process.max(initial=-1) + 2))
        self._bounds = self._begins.tolist()

    def of(self, process: int) -> list[Any]:
        """Those of a process."""
        begin, end = self._bounds[process : process + 2] if process + 1 < len(self._bounds) else (0, 0)
        return self._entries[begin:end]

    def places(self) -> Rows:
        """The place of each, as sorted, among those of its process."""
        return np.arange(len(self._entries)) - np.repeat(self._begins[:-1], np.diff(self._begins))


class Tables:
    """The lines in the tables of a block, by process; where processes begin and end in these is put into the block.

    Args:
        block: what was found.
        fate_of: what becomes of lines with a text.
        base: what makes a place of the number of a line.
    """

    def __init__(self, block: Found, fate_of: Callable[[Text], int], base: int) -> None:
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
        _extend(block.extents, heads, np.flatnonzero(is_row), self._process_of, list(numbers))
        _unknown(block, lines)
        self._fates = np.fromiter(map(fate_of, lines.texts), np.uint8, len(lines.texts))
        fate = self._fates[lines.text]
        bursts = _Bursts(np.zeros(0, np.int32), np.zeros(0, np.int64), [])
        if connections is not None:
            bursts = self._bursts(connections, *self._breaks(block, fate, fate_of))
        self._steps, self._ends = self._ordered(np.flatnonzero(fate & IN_ORDER), bursts)

    def note_into(
        self, statement_table: StatementTable, logs: Iterable[ProcessLog], by_process: Mapping[Process, Sequence[Row]]
    ) -> None:
        """Add the statements to those of all blocks, before anything is put into logs.

        Those of processes that have too many, or long ones, are put into their logs line by line.

        Args:
            statement_table: of all blocks.
            logs: of the processes that are kept apart.
            by_process: lines that were read one by one.
        """
        lines, texts = self._lines, self._lines.texts
        is_said = (self._fates & (COUNTED | ENDS_ALL) > 0)[lines.text]
        is_long = np.array([len(text.message) > LONG for text in texts], bool)[lines.text]
        process = self._process_of[lines.printer]
        statements = self._statements(np.flatnonzero(is_said), process)
        sizes = np.bincount(process[statements.first], minlength=len(self._numbers))
        sizes[process[is_said & is_long]] = MAX_NOTES
        number = np.full(len(sizes), -1)
        for log in logs:
            at = self._numbers.get(log.process)
            if at is not None and sizes[at]:
                rows = by_process.get(log.process, ())
                more = MAX_NOTES if any(len(text.message) > LONG for _, _, text, _ in rows) else len(rows)
                if statement_table.adopt(log, int(sizes[at]) + more):
                    number[at] = statement_table.number(log.process)
        self._put(statement_table, statements, number[process[statements.first]])
        fate = np.where(is_said & (number[process] < 0), KEPT, self._fates[lines.text])
        self._bootstraps = self._sorted(np.flatnonzero(fate & ENDS_ALL), lambda line, *_: (line + self._base).tolist())
        self._kept = self._sorted(
            np.flatnonzero(fate & KEPT), lambda line, *more: zip(line.tolist(), *more, repeat(None))
        )

    def put_into(self, log: ProcessLog, rows: Sequence[Row], take: Callable[[ProcessLog, Sequence[Row]], None]) -> None:
        """Add the other lines of a process to what it printed.

        Args:
            log: of the process.
            rows: its lines that were read one by one.
            take: takes such lines in.
        """
        process = self._numbers.get(log.process, len(self._numbers))
        steps, kept = self._steps.of(process), self._kept.of(process)
        log.bootstraps += self._bootstraps.of(process)
        if rows or kept:
            self._merge_into(log, steps, [*rows, *kept], take)
            return
        continuing = set[int]()
        for tid, first, last in self._ends.get(process, ()):
            begin, end = steps[first], steps[last]
            if isinstance(begin, Step):
                log.begun.setdefault(tid, None)
            elif burst := log.continued(begin.place, *begin.key):
                burst.rows += begin.rows
                continuing.add(first)
                end = burst if first == last else end
            else:
                log.begun.setdefault(tid, begin)
            if isinstance(end, Step):
                log.open.pop(tid, None)
            else:
                log.open[tid] = end
        log.steps += [step for at, step in enumerate(steps) if at not in continuing] if continuing else steps

    def _merge_into(
        self, log: ProcessLog, entries: list[Any], rows: list[Row], take: Callable[[ProcessLog, Sequence[Row]], None]
    ) -> None:
        """The same where some lines were read one by one, in the order of lines."""
        places = [(entry.place, entry) for entry in entries] + [(self._base | row[0], row) for row in rows]
        for kind, some in groupby(sorted(places, key=itemgetter(0)), lambda placed: type(placed[1])):
            run = [entry for _, entry in some]
            if kind is tuple:
                take(log, run)
            for entry in run if kind is not tuple else ():
                if kind is Step:
                    log.step(*entry)
                else:
                    log.burst(entry.place, entry.origin, entry.key.conn, entry.key.rank).rows += entry.rows

    def _thread(self, process: int, tid: int) -> int:
        return self._threads.setdefault((process, tid), len(self._threads))

    def _sorted(self, rows: Rows, entries: Callable[..., Iterable[Any]]) -> _Sorted:
        """Some rows as they are.

        Args:
            rows: of the lines.
            entries: makes them of numbers of lines, of origins and of texts.
        """
        lines = self._lines
        at, texts = lines.at[rows], lines.texts
        line = lines.heads.line[at]
        made = entries(line, lines.heads.origins(at), [texts[text] for text in lines.text[rows].tolist()])
        return _Sorted(self._process_of[lines.heads.printer[at]], line, made)

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
        wording = lines.text[rows].astype(np.int64) * len(locations) + location[printer]
        first, number = distinct(process[rows], wording)
        last = np.zeros(len(first), np.int64)
        last[number] = line + self._base
        times = np.bincount(number, minlength=len(first))
        return _Statements(rows[first], wording[first], list(locations), last, times)

    def _put(self, statement_table: StatementTable, statements: _Statements, process: Column) -> None:
        """Add statements to those of all blocks.

        Args:
            statement_table: of all blocks.
            statements: of this block.
            process: the number of the process there for each; -1 if it is not kept there.
        """
        chosen = np.flatnonzero(process >= 0)
        first, lines, locations = statements.first[chosen], self._lines, statements.locations
        wordings, wording = np.unique(statements.wording[chosen], return_inverse=True)
        numbers = []
        for entry in wordings.tolist():
            text = lines.texts[entry // len(locations)]
            numbers.append(
                statement_table.wording((text.level, text.message, locations[entry % len(locations)]), text.parsed)
            )
        place = lines.line[first] + self._base
        columns = process[chosen], np.array(numbers, np.int64)[wording], place
        statement_table.add(
            [*columns, statements.last[chosen], statements.times[chosen]], lines.heads.origins(lines.at[first])
        )

    def _ordered(self, rows: Rows, bursts: _Bursts) -> tuple[_Sorted, dict[int, list[tuple[int, int, int]]]]:
        """Events whose order matters and bursts; and by process where those of each thread begin and end among them."""
        lines = self._lines
        at = lines.at[rows]
        line, printer = lines.heads.line[at], lines.heads.printer[at]
        is_event = np.zeros(len(lines.texts), bool)
        is_event[lines.text[rows]] = True
        events = [
            text.parsed.event if some and text.parsed else None
            for text, some in zip(lines.texts, is_event.tolist(), strict=True)
        ]
        said = map(events.__getitem__, lines.text[rows].tolist())
        steps = map(_step, zip((line + self._base).tolist(), lines.heads.origins(at), said, strict=True))
        printer = np.concatenate([printer, bursts.printer])
        line = np.concatenate([line, bursts.line])
        ordered = _Sorted(self._process_of[printer], line, [*steps, *bursts.bursts])
        thread, place = self._thread_of[printer[ordered.order]], ordered.places()
        first, last = np.full((2, len(self._threads)), -1)
        first[thread[::-1]], last[thread] = place[::-1], place
        ends: dict[int, list[tuple[int, int, int]]] = {}
        for (process, tid), since, until in zip(self._threads, first.tolist(), last.tolist(), strict=True):
            if since >= 0:
                ends.setdefault(process, []).append((tid, since, until))
        return ordered, ends

    def _bursts(self, table: ConnectionTable, breaks: Rows, breaking: Rows) -> _Bursts:
        """The bursts of a table, and the lines that end those of threads."""
        grouped = edges(table, self._thread_of, breaks, breaking)
        begin = np.concatenate(([0], grouped.ends[:-1]))
        line, printer = grouped.line[begin], grouped.printer[begin]
        columns = begin, grouped.ends, line + self._base, grouped.columns["conn"][begin], grouped.rank[begin]
        bursts = []
        for first, end, place, conn, rank in zip(*(column.tolist() for column in columns), strict=True):
            origin = grouped.origin(first)
            key = BurstKey(origin.tid, None if conn == NONE else conn, rank)
            bursts.append(Burst(key, place, origin, rows=[EdgeRows(grouped, first, end, self._base)]))
        return _Bursts(printer, line, bursts)

    def _breaks(self, block: Found, fate: NDArray[np.uint8], fate_of: Callable[[Text], int]) -> tuple[Rows, Rows]:
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


def _extend(extents: dict[Process, Extent], heads: Heads, at: Rows, process_of: Column, all: Sequence[Process]) -> None:
    """Let the processes begin and end where they do in tables."""
    process = process_of[heads.printer[at]]
    first, last = np.full((2, len(all)), -1)
    first[process[::-1]] = at[::-1]
    last[process] = at
    printing = np.flatnonzero(first >= 0)
    printing = printing[np.argsort(first[printing])]
    begin, end = first[printing], last[printing]
    columns = heads.line[begin].tolist(), heads.origins(begin), heads.line[end].tolist(), heads.origins(end)
    is_mixed = bool(extents)
    for number, extent in zip(printing.tolist(), map(Extent, *columns), strict=True):
        earlier = extents.get(all[number])
        if earlier is not None and earlier.first < extent.first:
            extent = extent._replace(first=earlier.first, opening=earlier.opening)
        if earlier is not None and earlier.last > extent.last:
            extent = extent._replace(last=earlier.last, final=earlier.final)
        extents[all[number]] = extent
    if is_mixed:
        ordered = sorted(extents.items(), key=lambda entry: entry[1].first)
        extents.clear()
        extents.update(ordered)


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
