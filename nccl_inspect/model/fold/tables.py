"""Lines that were read in columns, put among the others of their processes.

Loaded where there are such only: this module needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nccl_inspect.event.base import Process
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.fold.process_log import EdgeRows, ProcessLog
from nccl_inspect.model.fold.uses import Fate
from nccl_inspect.scanning.connection_table import NONE, ConnectionTable, edges
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.found import Extent, Found
from nccl_inspect.scanning.line_table import LineTable, Table
from nccl_inspect.scanning.spans import firsts, number_of


class Counted(NamedTuple):
    """Lines of one process that say the same."""

    text: Text
    last: int
    times: int

    def add_to(self, log: ProcessLog, base: int, number: int, origin: Origin) -> None:
        """Add them to what their process printed."""
        log.note(base | number, origin, self.text, base | self.last, self.times)


class Connected(NamedTuple):
    """The edges of a burst."""

    rows: EdgeRows

    def add_to(self, log: ProcessLog, base: int, number: int, origin: Origin) -> None:
        """Add them to what their process printed."""
        found, first = self.rows.edges, self.rows.begin
        conn = int(found.columns["conn"][first])
        burst = log.burst(base | number, origin, None if conn == NONE else conn, int(found.rank[first]))
        burst.rows.append(self.rows._replace(base=base))


_Row: TypeAlias = tuple[int, Origin, Any, None]


def put_among(found: Found, fate_of: Callable[[Text], Fate]) -> None:
    """Merge the rows of a block's tables with its other lines.

    Args:
        found: of the block.
        fate_of: what becomes of lines with a text.
    """
    lines, connections = found.lines, found.connections
    assert lines is not None
    processes = _Processes(lines.origins)
    _extend(found.extents, [table for table in (lines, connections) if table is not None], processes)
    marks = list(_marks(found, fate_of))
    fates = [fate_of(text) for text in lines.texts]
    _unknown(found, lines)
    rows = [*_counted(lines, fates, processes), *_kept(lines, fates)]
    marks += _marks_of(lines, fates)
    if connections is not None:
        rows += _bursts(connections, marks)
    rows.sort(key=itemgetter(0))
    by_process: dict[Process, list[Any]] = found.by_process
    mixed = [by_process[process] for process in by_process]
    for row in rows:
        process = row[1].process
        if process in by_process:
            by_process[process].append(row)
        else:
            by_process[process] = [row]
    for own in mixed:
        own.sort(key=itemgetter(0))


class _Processes:
    """The processes of some printers, by numbers."""

    def __init__(self, origins: Sequence[Origin]) -> None:
        numbers: dict[Process, int] = {}
        self.of = np.array([numbers.setdefault(origin.process, len(numbers)) for origin in origins], np.int32)
        """By printers."""
        self.all = list(numbers)


def _extend(extents: dict[Process, Extent], tables: Sequence[Table], processes: _Processes) -> None:
    """Let the processes begin and end where they do in tables."""
    line = np.concatenate([table.line for table in tables])
    process = np.concatenate([processes.of[table.printer] for table in tables])
    at = np.concatenate([table.at for table in tables])
    order = np.argsort(line)
    first, last = np.full((2, len(processes.all)), -1)
    first[process[order[::-1]]] = order[::-1]
    last[process[order]] = order
    heads = tables[0].heads
    for number in np.flatnonzero(first >= 0).tolist():
        begin, end = first[number], last[number]
        found = Extent(int(line[begin]), heads.origin(int(at[begin])), int(line[end]), heads.origin(int(at[end])))
        known = extents.get(processes.all[number])
        if known is not None and known.first < found.first:
            found = found._replace(first=known.first, opening=known.opening)
        if known is not None and known.last > found.last:
            found = found._replace(last=known.last, final=known.final)
        extents[processes.all[number]] = found
    ordered = sorted(extents.items(), key=lambda one: one[1].first)
    extents.clear()
    extents.update(ordered)


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


def _counted(table: LineTable, fates: list[Fate], processes: _Processes) -> Iterator[_Row]:
    """Lines of which the number matters, by process, place in the source and text."""
    places: dict[str | None, int] = {}
    place = np.array([places.setdefault(origin.location, len(places)) for origin in table.origins], np.int32)
    rows = np.flatnonzero(np.array([fate.is_counted for fate in fates], bool)[table.text])
    printer, text = table.printer[rows], table.text[rows]
    number, where = number_of(firsts([processes.of[printer], place[printer], text]))
    last = np.zeros(len(where), np.int64)
    last[number] = table.line[rows]
    first = rows[where]
    columns = table.line[first], text[where], last, np.bincount(number, minlength=len(where))
    every = zip(table.origins_of(first), *(column.tolist() for column in columns), strict=True)
    for origin, line, said, end, count in every:
        yield line, origin, Counted(table.texts[said], end, count), None


def _kept(table: LineTable, fates: list[Fate]) -> Iterator[_Row]:
    """Lines of which each matters."""
    rows = np.flatnonzero(np.array([fate.is_kept for fate in fates], bool)[table.text])
    columns = table.line[rows].tolist(), table.origins_of(rows), table.text[rows].tolist()
    for line, origin, text in zip(*columns, strict=True):
        yield line, origin, table.texts[text], None


_Mark = tuple[int, Process, int | None]
"""The number of a line that ends a burst, its process, and its thread; None for all threads."""


def _marks(found: Found, fate_of: Callable[[Text], Fate]) -> Iterator[_Mark]:
    """Where bursts end for lines that were read one by one."""
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


def _bursts(table: ConnectionTable, marks: list[_Mark]) -> Iterator[_Row]:
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
        yield int(found.line[begin]), found.origin(begin), Connected(EdgeRows(found, begin, end)), None
        begin = end
