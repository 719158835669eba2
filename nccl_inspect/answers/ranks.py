"""How far each rank got: where it runs, its state, its last line and its first error; also ranks without a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nccl_inspect.answers import Column, place
from nccl_inspect.answers.errors import Error, first_errors
from nccl_inspect.answers.last import latest
from nccl_inspect.event.base import Process, is_named
from nccl_inspect.judging.facts import global_ranks
from nccl_inspect.judging.places import blamed_ranks
from nccl_inspect.judging.statements import message_of
from nccl_inspect.model.inventory import Gpu, LastLine
from nccl_inspect.model.job import CommunicatorInfo, Job
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.records import Frozen, frozen

STATES = {
    "suspect": "is the one that the verdict points at: it died, hangs, or did something different from the others",
    "failed": "reports an error itself, in a job that failed",
    "missing": "has no line in this log",
    "silent": "printed nothing after the first error of the job, although most others did",
    "seen": "has lines, but none of a communicator",
    "begun": "began to build its communicator",
    "initialised": "has its communicator, and no connection line yet (connections are made at first use since 2.22)",
    "connected": "has its communicator and connections",
    "ended": "destroyed or aborted its communicators",
}
"""Of a rank, worst first, with what they mean."""
_WORST = tuple(STATES)
_NO_RANK = 1 << 30
_MOST = 0.5
"""Share of the other ranks that must have continued for one to be called silent."""


@frozen
class RankRow(Frozen):
    """A rank, or a process without one."""

    rank: int | None
    host: str | None
    pid: int | None
    pod: str | None
    """What the launcher or collector calls the printer: pod, container, node or worker."""
    local_rank: int | None
    gpu: int | None
    """Its number in NVML, as nvidia-smi lists GPUs (nvmlDev)."""
    bus_id: str | None
    state: str
    """One of :data:`STATES`."""
    last_time: str | None
    """Of its last line, as the line has it."""
    last_source: str | None
    last_line: int | None
    error: str | None
    """The first error that its process reports."""
    error_is_echo: bool
    """The error is the effect of a failure elsewhere."""
    error_source: str | None
    error_line: int | None
    """Also None if many processes report the same."""


RECORD = RankRow
COLUMNS = (
    Column("rank", "rank"),
    Column("state", "state"),
    Column("host", "host", goes=8, is_host=True),
    Column("pid", "pid", goes=7),
    Column("pod", "pod", goes=4, least=12),
    Column("local_rank", "local", goes=2),
    Column("gpu", "GPU", goes=6),
    Column("bus_id", "busId", goes=1),
    Column("last_time", "last time", goes=3),
    Column("last_line", "last line", goes=5, text=lambda row: place(row.last_source, row.last_line)),
    Column("error", "first error", goes=9, least=16),
)


def is_bad(row: RankRow) -> bool:
    """Whether a rank is dead, or may be."""
    return row.state in ("suspect", "failed", "missing", "silent")


def rows(job: Job) -> list[RankRow]:
    """One per rank, the worst state first; if the log does not show the world, one per rank of its communicators.

    A process without a rank has a row of its own: it may be one of the missing ranks.
    """
    lines = grouped((rank, last_line) for last_line in job.last_lines for rank in last_line.ranks)
    last = {rank: line for rank, several in lines.items() if (line := latest(several))}
    errors = first_errors(job)
    progress = _progress(job)
    silent = _silent(job, last, errors)
    blamed = set(blamed_ranks(job))
    hosts = {rank: host.name for host in job.hosts for rank in host.ranks}
    local = job.local_ranks or _counted(job)
    named = job.paths.ends()
    table = []
    for rank in sorted({*last, *named, *job.ranks_seen, *range(job.world_size or 0)}):
        error = errors.get(last[rank].process) if rank in last else None
        state = "missing" if rank not in last else progress.get(rank, "seen")
        if _has_failed(job, rank, error):
            state = "failed"
        elif rank in silent:
            state = "silent"
        elif rank in blamed and rank in last:
            state = "suspect"
        facts = _RankFacts(last.get(rank), error, hosts.get(rank), local.get(rank), job.gpus.get(rank))
        table.append(_row(rank, state, facts))
    for last_line in job.last_lines:
        if not last_line.ranks and is_named(last_line.process.host):
            error = errors.get(last_line.process)
            state = "failed" if _has_failed(job, None, error) else "seen"
            table.append(_row(None, state, _RankFacts(last_line, error)))
    table.sort(key=lambda row: _NO_RANK if row.rank is None else row.rank)  # by rank among the equally bad
    return sorted(table, key=lambda row: (row.rank not in blamed, _WORST.index(row.state)))


class _RankFacts(NamedTuple):
    """The facts about a rank."""

    last: LastLine | None
    error: Error | None
    host: str | None = None
    local_rank: int | None = None
    gpu: Gpu | None = None


def _row(rank: int | None, state: str, facts: _RankFacts) -> RankRow:
    last, error, host, local_rank, gpu = facts
    line = error.line if error else None
    name = last.process.host if last else host
    return RankRow(
        rank=rank,
        host=name if is_named(name) else None,
        pid=last.process.pid if last and is_named(last.process.host) else None,
        pod=(last.process.apart.partition("#")[0] or None) if last else None,
        local_rank=local_rank,
        gpu=gpu.nvml_dev if gpu else None,
        bus_id=gpu.bus_id if gpu else None,
        state=state,
        last_time=last.time if last else None,
        last_source=last.source if last else None,
        last_line=last.line if last else None,
        error=" ".join(message_of(error.notice).split()) if error else None,
        error_is_echo=error is not None and error.is_echo,
        error_source=line.source if line else None,
        error_line=line.line if line else None,
    )


def _has_failed(job: Job, rank: int | None, error: Error | None) -> bool:
    """Whether a rank failed itself, in a job that did."""
    first = job.first_failure is not None and rank in job.first_failure.ranks
    return job.verdict == "failed" and (first or (error is not None and not error.is_echo))


def _progress(job: Job) -> dict[int, str]:
    """Return how far ranks got, in the most advanced communicator that has not ended."""
    roots = [comm for comm in job.communicators if comm.parent is None] or job.communicators
    reached = grouped((rank, state) for comm in roots for rank, state in _states(comm).items())
    order = _WORST.index
    return {
        rank: max((state for state in states if state != "ended"), key=order, default="ended")
        for rank, states in reached.items()
    }


def _states(comm: CommunicatorInfo) -> dict[int, str]:
    states: dict[int, str] = {}
    for state, members in (
        ("begun", comm.started),
        ("initialised", comm.completed),
        ("connected", comm.connected),
        ("ended", comm.ended),
    ):
        states.update(dict.fromkeys(global_ranks(comm, members), state))
    return states


def _silent(job: Job, last: Mapping[int, LastLine], errors: Mapping[Process, Error]) -> set[int]:
    """Ranks of a failed job whose lines stop before its first error, while most others continue after it."""
    begun = {error.line.source: error.line.order for error in reversed(list(errors.values())) if error.line}
    if job.verdict != "failed" or job.excerpt or not begun:
        return set()
    early = {rank for rank, line in last.items() if line.order < begun.get(line.source, 0)}
    ended = {rank for comm in job.communicators for rank in global_ranks(comm, comm.ended)}
    return early - ended if len(early) <= _MOST * (len(last) - 1) else set()


def _counted(job: Job) -> dict[int, int]:
    """Local ranks by the order of ranks on a host, as NCCL counts them, if the log has all ranks."""
    if job.world_size is None or len(job.ranks_seen) < job.world_size:
        return {}
    hosts: Sequence[list[int]] = [sorted(host.ranks) for host in job.hosts if is_named(host.name)]
    return {rank: at for ranks in hosts for at, rank in enumerate(ranks)}
