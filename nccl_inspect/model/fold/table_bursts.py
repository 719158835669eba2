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
from nccl_inspect.model.fold.edge_blocks import EdgeBlock, Piece
from nccl_inspect.model.fold.process_log import ProcessLog
from nccl_inspect.scanning.bulk import Found
from nccl_inspect.scanning.connection_table import NONE, Bursts, ConnectionTable, bursts
from nccl_inspect.scanning.counts import Text


class Connected(NamedTuple):
    """A burst of a table, in the place of its first line."""

    block: EdgeBlock
    begin: int
    """Its first edge."""
    end: int
    conn: int | None
    rank: int

    def add_to(self, log: ProcessLog, place: int, origin: Origin) -> None:
        """Add its lines to what a process printed."""
        burst = log.burst(place, origin, self.conn, self.rank)
        burst.pieces.append(Piece(self.block, self.begin, self.end))


def put_among(found: Found, ends: Callable[[Text], tuple[bool, bool]], base: int) -> None:
    """Put the bursts of a block among the other lines of their processes.

    Args:
        found: of the block; its lines by process are changed.
        ends: whether a line ends the burst of its thread, and those of all threads of its process.
        base: the place in front of the first line of the source.
    """
    table = found.connections
    assert table is not None
    threads: dict[tuple[Process, int], int] = {}
    owner = np.array([threads.setdefault((one.process, one.tid), len(threads)) for one in table.origins], np.int32)
    marks = np.array(list(_marks(found, threads, ends)), np.int64).reshape(-1, 2)
    grouped = bursts(table, owner[table.printer], marks[:, 0], marks[:, 1])
    for number, origin, burst in _connected(table, grouped, base):
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


def _connected(table: ConnectionTable, grouped: Bursts, base: int) -> Iterator[tuple[int, Origin, Connected]]:
    block = EdgeBlock(table, grouped, base)
    template = table.template[grouped.first]
    columns = table.line[grouped.first], table.columns["conn"][template], table.rank[template]
    begin = 0
    for first, end, line, conn, rank in zip(
        grouped.first.tolist(), grouped.edges.tolist(), *(column.tolist() for column in columns), strict=True
    ):
        yield line, table.origin(first), Connected(block, begin, end, None if conn == NONE else conn, rank)
        begin = end
