"""The memory that NCCL allocated, by rank, communicator and kind: the largest first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nccl_inspect.answers import Column
from nccl_inspect.event.base import Event, PlacedEvent, is_named
from nccl_inspect.event.types import CommInit, Message
from nccl_inspect.model.job import Job
from nccl_inspect.util.records import Frozen, Record, frozen, record

GPU, HOST = "GPU", "host"
_KINDS = {
    "nccl/allocation": "",
    "nccl/allocation-timed": "",
    "nccl/cumem-host-allocation": "CUMEM Host Alloc",
    "nccl/reallocation": "Mem Realloc",
    "nccl/shm-allocated": "shared memory",
    "nccl/p2p-buffer-allocated": "P2P buffer",
    "nccl/symmetric-memory-allocated": "symmetric memory",
}
"""Productions with a size, and what is allocated, where the line does not name it in a field."""
_ON_GPU = ("Persistent cudaMalloc work buf", "Cuda Alloc", "Cuda Calloc", "Cuda CallocAsync", "P2P buffer")


@frozen
class MemoryRow(Frozen):
    """Holds what a process allocated of one kind for one communicator."""

    rank: int | None
    """Global rank; None where the process has none, or several."""
    host: str | None
    pid: int | None
    communicator: str | None
    """Address of the communicator that the thread was building; None for what is allocated at other times."""
    memory: str
    """``GPU`` or ``host``."""
    kind: str
    """As the line names it: ``Cuda Alloc``, ``Host Calloc``, …"""
    bytes: int
    allocations: int
    largest: int


RECORD = MemoryRow
COLUMNS = (
    Column("rank", "rank"),
    Column("bytes", "bytes"),
    Column("memory", "memory"),
    Column("kind", "kind", goes=9),
    Column("allocations", "allocations", goes=5),
    Column("largest", "largest", goes=4),
    Column("communicator", "communicator", goes=6, folds=True),
    Column("host", "host", goes=8, is_host=True),
    Column("pid", "pid", goes=3),
)


class _Key(NamedTuple):
    host: str | None
    pid: int | None
    communicator: str | None
    kind: str


@record
class _Sum(Record):
    """Allocations that are counted together."""

    bytes: int = 0
    allocations: int = 0
    largest: int = 0

    def add(self, size: int) -> None:
        """Count one."""
        self.bytes += size
        self.allocations += 1
        self.largest = max(self.largest, size)


def is_bad(_: MemoryRow) -> bool:
    """No amount of memory deserves a mark."""
    return False


def rows(job: Job, events: Iterable[PlacedEvent]) -> list[MemoryRow]:
    """One for each process, communicator and kind, the largest first.

    Args:
        job: knows the ranks of processes.
        events: of the same inputs, in the order of their lines.
    """
    sums: dict[_Key, _Sum] = {}
    building: dict[tuple[str | None, int | None, int | None], str] = {}
    for where, event in events:
        thread = where.host, where.pid, where.tid
        if isinstance(event, CommInit):
            if event.phase == "START":
                building[thread] = event.comm
            else:
                building.pop(thread, None)
        elif size := _size(event):
            key = _Key(where.host, where.pid, building.get(thread), _kind(event))
            sums.setdefault(key, _Sum()).add(size)
    ranks = {(last.process.host, last.process.pid): last.ranks for last in job.last_lines}
    table = [_row(key, total, ranks.get((key.host or "", key.pid or 0), [])) for key, total in sums.items()]
    return sorted(table, key=lambda row: -row.bytes)


def _size(event: Event) -> int:
    """The bytes that an event says were allocated; 0 for any other event."""
    if not isinstance(event, Message) or event.qualified_name not in _KINDS:
        return 0
    values = dict(event.values)
    return int(values.get("size") or 0) - int(values.get("old_size") or 0)


def _kind(event: Event) -> str:
    assert isinstance(event, Message)
    return str(dict(event.values).get("what") or _KINDS[event.qualified_name])


def _row(key: _Key, total: _Sum, ranks: list[int]) -> MemoryRow:
    return MemoryRow(
        rank=ranks[0] if len(ranks) == 1 else None,
        host=key.host if is_named(key.host) else None,
        pid=key.pid,
        communicator=key.communicator,
        memory=GPU if key.kind in _ON_GPU else HOST,
        kind=key.kind,
        bytes=total.bytes,
        allocations=total.allocations,
        largest=total.largest,
    )
