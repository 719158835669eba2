"""Lines of a block that was read in columns as rows by process, bursts among them. This module needs numpy."""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.base import Process
from nccl_inspect.model.fold.process_log import EdgeRows
from nccl_inspect.model.fold.uses import ENDS_ALL, ENDS_BURST, MATTERS, RUN, Use, fate_of
from nccl_inspect.scanning.found import Extent, Found, Row
from nccl_inspect.scanning.line_table import NONE, ConnectionTable, LineTable, edges
from nccl_inspect.scanning.spans import Rows, firsts, number_of
from nccl_inspect.util.columns import Column


class Run(NamedTuple):
    """Connection lines of one thread that follow each other, in the place of the text of a line."""

    use: Use
    rows: EdgeRows


def rows_of(block: Found, base: int) -> tuple[dict[Process, list[Row]], dict[Process, Extent]]:
    """Return the lines of each process that matter, in their order, and where the processes begin and end.

    Args:
        block: what was found.
        base: what makes a place of the number of a line.
    """
    lines, connections = block.lines, block.connections
    assert lines is not None
    heads, rows = lines.heads, {process: list(some) for process, some in block.by_process.items()}
    fates = np.fromiter(map(fate_of, lines.texts), np.uint8, len(lines.texts))
    fate = fates[lines.text]
    chosen = np.flatnonzero(fate & MATTERS)
    at = lines.at[chosen]
    columns = heads.line[at].tolist(), heads.late(at), lines.text[chosen].tolist()
    for line, printed, text in zip(*columns, strict=True):
        rows.setdefault(printed.process, []).append((line, printed, lines.texts[text], None))
    if connections is not None:
        threads = _Threads(lines)
        grouped = edges(connections, threads.of_printers, *threads.breaks(block, fate))
        begin = np.concatenate(([0], grouped.ends[:-1]))
        ends = grouped.ends.tolist(), grouped.columns["conn"][begin].tolist(), grouped.rank[begin].tolist()
        listed = grouped.line[begin].tolist(), grouped.late(begin), begin.tolist(), *ends
        for line, printed, first, end, conn, rank in zip(*listed, strict=True):
            use = Use(RUN, 0, None if conn == NONE else conn, rank)
            rows.setdefault(printed.process, []).append(
                (line, printed, Run(use, EdgeRows(grouped, first, end, base)), None)
            )
    if connections is not None or block.by_process:
        for some in rows.values():
            some.sort(key=itemgetter(0))
    _add_unknown(block, lines)
    return rows, _extents(block, lines, connections)


class _Threads:
    """The threads of a block by numbers.

    Args:
        lines: of the block.
    """

    def __init__(self, lines: LineTable) -> None:
        self._lines = lines
        self._numbers: dict[Process, dict[int, int]] = {}
        self._size = 0
        numbers = [self._number(origin.process, origin.tid) for origin in lines.heads.printers.origins]
        self.of_printers: Column = np.array(numbers, np.int32)

    def _number(self, process: Process, tid: int) -> int:
        own = self._numbers.setdefault(process, {})
        if tid not in own:
            own[tid] = self._size
            self._size += 1
        return own[tid]

    def breaks(self, block: Found, fate: NDArray[np.uint8]) -> tuple[Rows, Rows]:
        """Return the lines that end bursts, and whose: threads."""
        lines, heads = self._lines, self._lines.heads
        one_by_one = [
            (number, printed, fate_of(text)) for rows in block.by_process.values() for number, printed, text, _ in rows
        ]
        some = [(number, self._number(by.process, by.tid)) for number, by, entry in one_by_one if entry & ENDS_BURST]
        everywhere = [(number, printed.process) for number, printed, entry in one_by_one if entry & ENDS_ALL]
        at = lines.at[np.flatnonzero(fate & ENDS_ALL)]
        everywhere += zip(heads.line[at].tolist(), (printed.process for printed in heads.late(at)), strict=True)
        some += [(line, thread) for line, process in everywhere for thread in self._numbers.get(process, {}).values()]
        broken_at, broken = np.array(some, np.int64).reshape(-1, 2).T
        at = lines.at[np.flatnonzero(fate & ENDS_BURST)]
        return np.concatenate([broken_at, heads.line[at]]), np.concatenate(
            [broken, self.of_printers[heads.printer[at]]]
        )


def _extents(block: Found, lines: LineTable, connections: ConnectionTable | None) -> dict[Process, Extent]:
    """Return where processes begin and end, in the order in which they begin."""
    heads = lines.heads
    is_row = np.zeros(len(heads.printer), bool)
    for table in (lines, connections):
        if table is not None:
            is_row[table.at] = True
    at = np.flatnonzero(is_row)
    numbers: dict[Process, int] = {}
    of = [numbers.setdefault(origin.process, len(numbers)) for origin in heads.printers.origins]
    process = np.array(of, np.int32)[heads.printer[at]]
    first, last = np.full((2, len(numbers)), -1)
    first[process[::-1]] = at[::-1]
    last[process] = at
    printing = np.flatnonzero(first >= 0)
    ends = ((heads.line[rows].tolist(), heads.late(rows)) for rows in (first[printing], last[printing]))
    (begins, openings), (closes, finals) = ends
    own = map(Extent, begins, openings, closes, finals)
    processes, extents = list(numbers), block.extents
    for number, extent in zip(printing.tolist(), own, strict=True):
        other = extents.get(processes[number], extent)
        begin, end = min(extent, other, key=attrgetter("first")), max(extent, other, key=attrgetter("last"))
        extents[processes[number]] = Extent(begin.first, begin.opening, end.last, end.final)
    return dict(sorted(extents.items(), key=lambda entry: entry[1].first))


def _add_unknown(block: Found, table: LineTable) -> None:
    """Add the lines that no production knows, by their texts."""
    unknown = np.array([text.parsed is None for text in table.texts], bool)
    rows = np.flatnonzero(unknown[table.text])
    number, where = number_of(firsts([table.text[rows]]))
    counts = np.bincount(number, minlength=len(where)).tolist()
    first = table.at[rows[where]]
    columns = table.heads.line[first].tolist(), table.heads.late(first), table.text[rows[where]].tolist(), counts
    for line, printed, text, count in zip(*columns, strict=True):
        block.unknown.append((line, printed, table.texts[text], count))
    block.unknown.sort(key=itemgetter(0))
