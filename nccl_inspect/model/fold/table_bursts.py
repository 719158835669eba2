"""Bursts of a table of connection lines, put among the other lines of their processes.

Loaded where there is such a table only: this module needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from nccl_inspect.event.base import Process
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.fold.process_log import Edge, ProcessLog, edge_key
from nccl_inspect.scanning.bulk import Found
from nccl_inspect.scanning.connection_table import NONE, Bursts, ConnectionTable, bursts
from nccl_inspect.scanning.counts import Text


class Connected(NamedTuple):
    """A burst of a table, in the place of its first line."""

    table: ConnectionTable
    edges: list[tuple[int, int, int]]
    """Of each its first row, a bit for each channel, and how many lines it has."""

    def add_to(self, log: ProcessLog, base: int) -> None:
        """Add its lines to what a process printed."""
        table = self.table
        first = self.edges[0][0]
        template = int(table.template[first])
        conn, rank = int(table.columns["conn"][template]), int(table.rank[template])
        place = base | int(table.line[first])
        burst = log.burst(place, table.origin(first), None if conn == NONE else conn, rank)
        for row, channels, lines in self.edges:
            event = table.event(row)
            level = table.ways[int(table.way[int(table.template[row])])].level
            origin = table.origin(row)
            burst.add(edge_key(event), Edge(event, origin, base | int(table.line[row]), channels, lines, level))


def put_among(found: Found, ends: Callable[[Text], tuple[bool, bool]]) -> None:
    """Put the bursts of a block among the other lines of their processes.

    Args:
        found: of the block; its lines by process are changed.
        ends: whether a line ends the burst of its thread, and those of all threads of its process.
    """
    table = found.connections
    assert table is not None
    threads: dict[tuple[Process, int], int] = {}
    owner = np.array([threads.setdefault((one.process, one.tid), len(threads)) for one in table.origins], np.int32)
    marks = np.array(list(_marks(found, threads, ends)), np.int64).reshape(-1, 2)
    grouped = bursts(table, owner[table.printer], marks[:, 0], marks[:, 1])
    for number, origin, burst in _connected(table, grouped):
        found.by_process.setdefault(origin.process, []).append((number, origin, burst, None))  # type: ignore[arg-type]
    for rows in found.by_process.values():
        rows.sort(key=itemgetter(0))
    found.by_process = dict(sorted(found.by_process.items(), key=lambda one: one[1][0][0]))


def _marks(
    found: Found, threads: dict[tuple[Process, int], int], ends: Callable[[Text], tuple[bool, bool]]
) -> Iterator[tuple[int, int]]:
    """The number of each line that ends a burst, and the thread whose burst it ends."""
    several: dict[Process, list[int]] = {}
    for (process, _), thread in threads.items():
        several.setdefault(process, []).append(thread)
    for process, own in several.items():
        for number, origin, text, _ in found.by_process.get(process, ()):
            of_thread, of_all = ends(text)
            if of_all:
                yield from ((number, thread) for thread in own)
            elif of_thread and (thread := threads.get((process, origin.tid))) is not None:
                yield number, thread


def _connected(table: ConnectionTable, grouped: Bursts) -> Iterator[tuple[int, Origin, Connected]]:
    edges = list(zip(grouped.row.tolist(), grouped.channels.tolist(), grouped.lines.tolist(), strict=True))
    begin = 0
    for first, end in zip(grouped.first.tolist(), grouped.edges.tolist(), strict=True):
        yield int(table.line[first]), table.origin(first), Connected(table, edges[begin:end])
        begin = end
