"""Lines that were read in columns, put among the others of their processes.

Loaded where there are such only: this module needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from nccl_inspect.event.base import Process
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.fold.fold import Fate
from nccl_inspect.model.fold.process_log import EdgeRows, ProcessLog
from nccl_inspect.scanning.bulk import Extent, Found
from nccl_inspect.scanning.connection_table import NONE, ConnectionTable, edges
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.line_table import LineTable, Table
from nccl_inspect.scanning.spans import firsts, number_of


class Counted(NamedTuple):
    """Lines of one process that say the same."""

    text: Text
    last: int
    count: int

    def add_to(self, log: ProcessLog, base: int, number: int, origin: Origin) -> None:
        """Add them to what their process printed."""
        log.note(base | number, origin, self.text, base | self.last, self.count)


class Connected(NamedTuple):
    """The edges of a burst."""

    rows: EdgeRows

    def add_to(self, log: ProcessLog, base: int, number: int, origin: Origin) -> None:
        """Add them to what their process printed."""
        found, first = self.rows.edges, self.rows.begin
        conn = int(found.columns["conn"][first])
        burst = log.burst(base | number, origin, None if conn == NONE else conn, int(found.rank[first]))
        burst.rows.append(self.rows._replace(base=base))


def put_among(found: Found, fate_of: Callable[[Text], Fate]) -> None:
    """Put what stands in the tables of a block among its other lines.

    Args:
        found: of the block.
        fate_of: what becomes of lines with a text.
    """
    by_process: dict[Process, list[Any]] = found.by_process
    marks = list(_marks(found, fate_of))
    for table in (found.lines, found.connections):
        if table is not None:
            _extend(found.extents, table)
    if found.lines is not None:
        fates = [fate_of(text) for text in found.lines.texts]
        _unknown(found, found.lines)
        for number, origin, text in (*_counted(found.lines, fates), *_kept(found.lines, fates)):
            by_process.setdefault(origin.process, []).append((number, origin, text, None))
        marks += _marks_of(found.lines, fates)
    if found.connections is not None:
        for number, origin, burst in _bursts(found.connections, marks):
            by_process.setdefault(origin.process, []).append((number, origin, burst, None))
    for rows in by_process.values():
        rows.sort(key=itemgetter(0))
    found.extents = dict(sorted(found.extents.items(), key=lambda one: one[1].first))


def _extend(extents: dict[Process, Extent], table: Table) -> None:
    """Let the processes begin and end where they do in a table."""
    for process, first, last in table.extents():
        known = extents.get(process)
        if known is None or known.first > table.line[first]:
            opening = int(table.line[first]), table.origin(first)
        else:
            opening = known.first, known.opening
        if known is None or known.last < table.line[last]:
            final = int(table.line[last]), table.origin(last)
        else:
            final = known.last, known.final
        extents[process] = Extent(*opening, *final)


def _unknown(found: Found, table: LineTable) -> None:
    """Add the lines that no production knows, by their texts."""
    unknown = np.array([text.parsed is None for text in table.texts], bool)
    rows = np.flatnonzero(unknown[table.text])
    number, where = number_of(firsts([table.text[rows]]))
    counts = np.bincount(number, minlength=len(where)).tolist()
    for row, count in zip(rows[where].tolist(), counts, strict=True):
        text = table.texts[int(table.text[row])]
        found.unknown.append((int(table.line[row]), table.origin(row), text, count))
    found.unknown.sort(key=itemgetter(0))


def _counted(table: LineTable, fates: list[Fate]) -> Iterator[tuple[int, Origin, Counted]]:
    """Lines of which the number matters, by process and text."""
    processes: dict[object, int] = {}
    places = [(origin.process, origin.location) for origin in table.origins]
    process = np.array([processes.setdefault(place, len(processes)) for place in places], np.int32)
    rows = np.flatnonzero(np.array([fate.is_counted for fate in fates], bool)[table.text])
    number, where = number_of(firsts([process[table.printer[rows]], table.text[rows]]))
    last = np.zeros(len(where), np.int64)
    last[number] = table.line[rows]
    first = rows[where]
    columns = (first, table.line[first], table.text[first], last, np.bincount(number, minlength=len(where)))
    for row, line, text, end, count in zip(*(column.tolist() for column in columns), strict=True):
        yield line, table.origin(row), Counted(table.texts[text], end, count)


def _kept(table: LineTable, fates: list[Fate]) -> Iterator[tuple[int, Origin, Text]]:
    """Lines of which each matters."""
    rows = np.flatnonzero(np.array([fate.is_kept for fate in fates], bool)[table.text])
    for row, line, text in zip(rows.tolist(), table.line[rows].tolist(), table.text[rows].tolist(), strict=True):
        yield line, table.origin(row), table.texts[text]


_Mark = tuple[int, Process, int | None]
"""The number of a line that ends a burst, its process, and its thread; None for all threads."""


def _marks(found: Found, fate_of: Callable[[Text], Fate]) -> Iterator[_Mark]:
    """Where bursts end for lines that were read by themselves."""
    for process, rows in found.by_process.items():
        for number, origin, text, _ in rows:
            fate = fate_of(text)
            if fate.ends_burst or fate.ends_all:
                yield number, process, None if fate.ends_all else origin.tid


def _marks_of(table: LineTable, fates: list[Fate]) -> Iterator[_Mark]:
    """The same for those of a table."""
    rows = np.flatnonzero(np.array([fate.ends_burst or fate.ends_all for fate in fates], bool)[table.text])
    columns = table.line[rows], table.printer[rows], table.text[rows]
    for line, printer, text in zip(*(column.tolist() for column in columns), strict=True):
        origin = table.origins[printer]
        yield line, origin.process, None if fates[text].ends_all else origin.tid


def _bursts(table: ConnectionTable, marks: list[_Mark]) -> Iterator[tuple[int, Origin, Connected]]:
    """The bursts of a table."""
    threads: dict[tuple[Process, int], int] = {}
    owner = np.array([threads.setdefault((one.process, one.tid), len(threads)) for one in table.origins], np.int32)
    several: dict[Process, list[int]] = {}
    for (process, _), thread in threads.items():
        several.setdefault(process, []).append(thread)
    breaks: list[tuple[int, int]] = []
    for line, process, tid in marks:
        if tid is None:
            breaks += [(line, thread) for thread in several.get(process, ())]
        elif (thread := threads.get((process, tid), -1)) >= 0:
            breaks.append((line, thread))
    lines, breaking = np.array(breaks, np.int64).reshape(-1, 2).T
    found = edges(table, owner, lines, breaking)
    begin = 0
    for end in found.ends.tolist():
        yield int(found.line[begin]), found.origin(begin), Connected(EdgeRows(found, begin, end))
        begin = end
