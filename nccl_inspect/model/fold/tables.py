"""Lines that were read in columns, put among the others of their processes.

Loaded where there are such only: this module needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.base import Process
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.fold.process_log import EdgeRows, ProcessLog
from nccl_inspect.model.fold.uses import COUNTED, ENDS_ALL, ENDS_BURST, KEPT
from nccl_inspect.scanning.connection_table import NONE, ConnectionTable, Edges, edges
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.found import Extent, Found
from nccl_inspect.scanning.line_table import Heads, LineTable
from nccl_inspect.scanning.spans import Column, Rows, firsts, number_of


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

    edges: Edges
    begin: int
    end: int
    conn: int
    rank: int

    def add_to(self, log: ProcessLog, base: int, number: int, origin: Origin) -> None:
        """Add them to what their process printed."""
        burst = log.burst(base | number, origin, None if self.conn == NONE else self.conn, self.rank)
        burst.rows.append(EdgeRows(self.edges, self.begin, self.end, base))


class _Put(NamedTuple):
    """Rows of :class:`~nccl_inspect.scanning.found.Found`, of several processes."""

    line: Rows
    process: Column
    rows: Iterable[tuple[int, Origin, Any, int | None]]


def put_among(block: Found, fate_of: Callable[[Text], int]) -> None:
    """Merge the rows of a block's tables with its other lines.

    Args:
        block: of the block.
        fate_of: what becomes of lines with a text.
    """
    lines, connections = block.lines, block.connections
    assert lines is not None
    heads = lines.heads
    numbers: dict[Process, int] = {}
    process_of = np.array(
        [numbers.setdefault(printer.process, len(numbers)) for printer in heads.printers.origins], np.int32
    )
    is_row = np.zeros(len(heads.printer), bool)
    for table in (lines, connections):
        if table is not None:
            is_row[table.at] = True
    _extend(block.extents, heads, np.flatnonzero(is_row), process_of, list(numbers))
    fate = np.fromiter(map(fate_of, lines.texts), np.uint8, len(lines.texts))[lines.text]
    _unknown(block, lines)
    parts = [_by_line(block, numbers), *_counted(lines, np.flatnonzero(fate & COUNTED), process_of)]
    parts.append(_kept(lines, np.flatnonzero(fate & KEPT), process_of))
    if connections is not None:
        parts.append(_bursts(connections, _Breaks(block, lines, fate, fate_of), process_of))
    process = np.concatenate([part.process for part in parts])
    order = np.lexsort((np.concatenate([part.line for part in parts]), process))
    rows = list(chain.from_iterable(part.rows for part in parts))
    rows = [rows[at] for at in order.tolist()]
    ends = np.searchsorted(process[order], np.arange(len(numbers) + 1)).tolist()
    for printer, begin, end in zip(numbers, ends, ends[1:], strict=False):
        block.by_process[printer] = rows[begin:end]


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


def _by_line(block: Found, numbers: dict[Process, int]) -> _Put:
    """Lines that were read one by one; processes of these only get numbers, too."""
    rows = [row for some in block.by_process.values() for row in some]
    process = [numbers.setdefault(row[1].process, len(numbers)) for row in rows]
    return _Put(np.array([row[0] for row in rows], np.int64), np.array(process, np.int32), rows)


def _counted(table: LineTable, rows: Rows, process_of: Column) -> tuple[_Put, _Put]:
    """Lines of which the number matters, by process, place in the source and text: those that came once, and others."""
    places: dict[str | None, int] = {}
    origins = table.heads.printers.origins
    place = np.array([places.setdefault(origin.location, len(places)) for origin in origins], np.int32)
    printer, line = table.printer[rows], table.line[rows]
    number, where = number_of(firsts([process_of[printer], place[printer], table.text[rows]]))
    last, times = np.zeros(len(where), np.int64), np.bincount(number, minlength=len(where))
    last[number] = line
    several = np.flatnonzero(times > 1)
    once, again = _kept(table, rows[where[times == 1]], process_of), _kept(table, rows[where[several]], process_of)
    texts = map(Counted, (row[2] for row in again.rows), last[several].tolist(), times[several].tolist())
    counted = zip(again.line.tolist(), (row[1] for row in again.rows), texts, repeat(None))
    return once, again._replace(rows=counted)


def _kept(table: LineTable, rows: Rows, process_of: Column) -> _Put:
    """Lines as they are."""
    at, texts = table.at[rows], table.texts
    line = table.heads.line[at]
    kept_texts = [texts[text] for text in table.text[rows].tolist()]
    put = list(zip(line.tolist(), table.heads.origins(at), kept_texts, repeat(None)))
    return _Put(line, process_of[table.heads.printer[at]], put)


class _Breaks:
    """Lines that end bursts.

    Args:
        found: those that were read one by one.
        lines: others.
        fate: by rows, what becomes of these.
        fate_of: what becomes of lines with a text.
    """

    def __init__(self, block: Found, lines: LineTable, fate: NDArray[np.uint8], fate_of: Callable[[Text], int]) -> None:
        self.threads: dict[tuple[Process, int], int] = {}
        origins = lines.heads.printers.origins
        self.thread_of = np.array([self._thread(entry) for entry in origins], np.int32)
        """By printers."""
        ending = np.flatnonzero(fate & ENDS_BURST)
        broken = [
            (number, origin, fate_of(text)) for rows in block.by_process.values() for number, origin, text, _ in rows
        ]
        everywhere = [(number, origin) for number, origin, entry in broken if entry & ENDS_ALL]
        for row in np.flatnonzero(fate & ENDS_ALL).tolist():
            everywhere.append((int(lines.line[row]), origins[lines.printer[row]]))
        some = [(number, self._thread(origin)) for number, origin, entry in broken if entry & ENDS_BURST]
        several: dict[Process, list[int]] = {}
        for (process, _), thread in self.threads.items() if everywhere else ():
            several.setdefault(process, []).append(thread)
        some += [(line, thread) for line, origin in everywhere for thread in several.get(origin.process, ())]
        broken_at, broken_threads = np.array(some, np.int64).reshape(-1, 2).T
        self.line = np.concatenate([broken_at, lines.line[ending]])
        self.thread = np.concatenate([broken_threads, self.thread_of[lines.printer[ending]]])

    def _thread(self, origin: Origin) -> int:
        return self.threads.setdefault((origin.process, origin.tid), len(self.threads))


def _bursts(table: ConnectionTable, breaks: _Breaks, process_of: Column) -> _Put:
    """The bursts of a table."""
    grouped = edges(table, breaks.thread_of, breaks.line, breaks.thread)
    begin = np.concatenate(([0], grouped.ends[:-1]))
    line, printer = grouped.line[begin], grouped.printer[begin]
    columns = begin, grouped.ends, grouped.columns["conn"][begin], grouped.rank[begin]
    bursts = map(Connected, repeat(grouped), *(column.tolist() for column in columns))
    heads = repeat(b"") if grouped.head is None else [grouped.head[edge] for edge in begin.tolist()]
    origins = map(table.heads.printers.origin, printer.tolist(), heads)
    return _Put(line, process_of[printer], zip(line.tolist(), origins, bursts, repeat(None)))
