"""Lines that were read in columns, put into what their processes printed.

This module needs numpy: it is imported only if there are such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.base import Process
from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.model.fold.note import Stated, Wording
from nccl_inspect.model.fold.process_log import LONG, MAX_NOTES, Burst, BurstKey, EdgeRows, ProcessLog
from nccl_inspect.model.fold.statement_table import StatementTable
from nccl_inspect.model.fold.step_table import Ends, Entries, StepTable
from nccl_inspect.model.fold.uses import COUNTED, ENDS_ALL, ENDS_BURST, IN_ORDER, KEPT, fate_of
from nccl_inspect.scanning.connection_table import NONE, ConnectionTable, edges
from nccl_inspect.scanning.found import Extent, Found, Row
from nccl_inspect.scanning.line_table import Heads, LineTable, Printed
from nccl_inspect.scanning.spans import Column, Rows, firsts, number_of
from nccl_inspect.util.columns import distinct


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
        wording = lines.text[rows].astype(np.int64) * len(locations) + location[printer]
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
