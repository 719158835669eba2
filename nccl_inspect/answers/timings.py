"""Where the time of each initialisation went, by rank: the slowest communicator and its slowest rank come first."""

from __future__ import annotations

from nccl_inspect.answers import Column, place
from nccl_inspect.event.base import is_named
from nccl_inspect.model.communicators.lifetime import PHASES
from nccl_inspect.model.inventory import InitTiming
from nccl_inspect.model.job import CommunicatorInfo, Job
from nccl_inspect.util.records import Frozen, frozen

_SLOW = 5.0
"""Seconds of an initialisation that are worth a look."""


@frozen
class TimingRow(Frozen):
    """The initialisation of a communicator on one rank; times are seconds."""

    communicator: str
    rank: int | None
    """Global rank; None where the log does not show it."""
    host: str | None
    total: float
    slowest: str
    """The phase that took most of it."""
    bootstrap: float | None
    topo: float | None
    graphs: float | None
    connections: float | None
    kernels: float | None
    alloc: float | None
    allgathers: float | None
    rest: float | None
    source: str
    line: int


RECORD = TimingRow
COLUMNS = (
    Column("rank", "rank"),
    Column("total", "total s"),
    Column("slowest", "slowest"),
    Column("bootstrap", "bootstrap", goes=7),
    Column("topo", "topo", goes=6),
    Column("graphs", "graphs", goes=5),
    Column("connections", "connections", goes=8),
    Column("kernels", "kernels", goes=4),
    Column("alloc", "alloc", goes=3),
    Column("allgathers", "allgathers", goes=2),
    Column("rest", "rest", goes=2),
    Column("host", "host", goes=9, is_host=True),
    Column("communicator", "communicator", goes=6, folds=True),
    Column("line", "line", goes=1, text=lambda row: place(row.source, row.line)),
)


def is_bad(row: TimingRow) -> bool:
    """Whether the initialisation took long."""
    return row.total >= _SLOW


def rows(job: Job) -> list[TimingRow]:
    """One for each communicator and rank, as far as NCCL says it (2.22 and later), the longest first."""
    table = [_row(comm, timing) for comm in job.communicators for timing in comm.timings]
    return sorted(table, key=lambda row: -row.total)


def slowest_phase(timing: InitTiming) -> str:
    """Return the phase that took most of the time."""
    return max(timing.phases, key=timing.phases.__getitem__, default="")


def _row(comm: CommunicatorInfo, timing: InitTiming) -> TimingRow:
    host, line = timing.process.host, timing.evidence
    return TimingRow(
        communicator=comm.id,
        rank=comm.ranks[timing.rank] if timing.rank < len(comm.ranks) else None,
        host=host if is_named(host) else None,
        total=timing.total,
        slowest=slowest_phase(timing),
        **{name: timing.phases.get(name) for name in PHASES},
        source=line.source if line else "",
        line=line.line if line else 0,
    )
