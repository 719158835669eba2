"""How far each rank got, its settings, how long it took to initialise, and what NCCL allocated there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import NamedTuple

from nccl_inspect.answers import Answer, Column, name_line
from nccl_inspect.answers.machines import find_last, last_line_fields
from nccl_inspect.event.base import PlacedEvent, Process, is_named
from nccl_inspect.event.types import CommInit, Message
from nccl_inspect.judging.facts import global_ranks
from nccl_inspect.judging.places import blamed_ranks
from nccl_inspect.judging.statements import is_error, is_survived, message_of
from nccl_inspect.model.communicators.rings_and_trees import PHASES
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Job, Notice
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, pick_fields
from nccl_inspect.util.wording import ranges


class Error(NamedTuple):
    """The error that a process reports."""

    notice: Notice
    line: Evidence | None  # None if many processes report the same: only the first lines are kept
    is_echo: bool  # whether it only reports a failure elsewhere


def _find_first_errors(job: Job) -> dict[Process, Error]:
    """Return the first error of each process, in log order; errors that the job survived are left out."""
    errors: dict[Process, Error] = {}
    for notice in job.notices:
        tone = getattr(notice.event, "tone", "info")
        if (is_error(notice) and not is_survived(notice, job)) or tone == "echo":
            for process, line in zip_longest(notice.processes, notice.evidence[: len(notice.processes)]):
                errors.setdefault(process, Error(notice, line, not is_error(notice)))
    return errors


STATES = {  # of a rank, worst first, with what they mean
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
_WORST = tuple(STATES)
_NO_RANK = 1 << 30
_MOST = 0.5  # share of the other ranks that must have continued for one to be called silent


class RankRow(Frozen):
    """A rank, or a process without one."""

    rank: int | None
    host: str | None
    pid: int | None
    pod: str | None  # what the launcher or collector calls the printer: pod, container, node or worker
    local_rank: int | None
    gpu: int | None  # its number in NVML, as nvidia-smi lists GPUs (nvmlDev)
    bus_id: str | None
    state: str  # one of `STATES`
    last_time: str | None  # of its last line, as the line has it
    last_source: str | None
    last_line: int | None
    error: str | None  # the first error that its process reports
    error_is_echo: bool  # the error is the effect of a failure elsewhere
    error_source: str | None
    error_line: int | None  # also None if many processes report the same


_RANK_COLUMNS = (
    Column("rank", "rank"),
    Column("state", "state"),
    Column("host", "host", goes=8, is_host=True),
    Column("pid", "pid", goes=7),
    Column("pod", "pod", goes=4, least=12),
    Column("local_rank", "local", goes=2),
    Column("gpu", "GPU", goes=6),
    Column("bus_id", "busId", goes=1),
    Column("last_time", "last time", goes=3),
    Column("last_line", "last line", goes=5, text=lambda row: name_line(row.last_source, row.last_line)),
    Column("error", "first error", goes=9, least=16),
)


def list_ranks(job: Job) -> list[RankRow]:
    """Return one row per rank, the worst state first; without the world in the log, one per rank of its communicators.

    A process without a rank has a row of its own: it may be one of the missing ranks.
    """
    lines = group_values((rank, last_line) for last_line in job.last_lines for rank in last_line.ranks)
    last = {rank: line for rank, several in lines.items() if (line := find_last(several))}
    errors = _find_first_errors(job)
    progress = _progress(job)
    silent = _find_silent(job, last, errors)
    blamed = set(blamed_ranks(job))
    hosts = {rank: host.name for host in job.hosts for rank in host.ranks}
    local = job.local_ranks
    if not local and job.world_size is not None and len(job.ranks_seen) >= job.world_size:  # as NCCL counts them
        orders = [sorted(host.ranks) for host in job.hosts if is_named(host.name)]
        local = {rank: at for ranks in orders for at, rank in enumerate(ranks)}
    named = job.paths.ends()

    def row(rank: int | None, state: str, line: LastLine | None, error: Error | None) -> RankRow:
        name = line.process.host if line else hosts.get(-1 if rank is None else rank)
        gpu = None if rank is None else job.gpus.get(rank)
        shown = error.line if error else None
        return RankRow(
            rank=rank,
            host=name if is_named(name) else None,
            pid=line.process.pid if line and is_named(line.process.host) else None,
            pod=(line.process.apart.partition("#")[0] or None) if line else None,
            local_rank=None if rank is None else local.get(rank),
            gpu=getattr(gpu, "nvml_dev", None),
            bus_id=getattr(gpu, "bus_id", None),
            state=state,
            **last_line_fields(line),
            error=" ".join(message_of(error.notice).split()) if error else None,
            error_is_echo=error is not None and error.is_echo,
            error_source=getattr(shown, "source", None),
            error_line=getattr(shown, "line", None),
        )

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
        table.append(row(rank, state, last.get(rank), error))
    for line in job.last_lines:
        if not line.ranks and is_named(line.process.host):
            error = errors.get(line.process)
            table.append(row(None, "failed" if _has_failed(job, None, error) else "seen", line, error))
    table.sort(key=lambda row: _NO_RANK if row.rank is None else row.rank)  # by rank among the equally bad
    return sorted(table, key=lambda row: (row.rank not in blamed, _WORST.index(row.state)))


def _has_failed(job: Job, rank: int | None, error: Error | None) -> bool:
    first = job.first_failure is not None and rank in job.first_failure.ranks
    return job.verdict == "failed" and (first or (error is not None and not error.is_echo))


def _progress(job: Job) -> dict[int, str]:
    """Return how far ranks got, in the most advanced communicator that has not ended."""
    roots = [comm for comm in job.communicators if comm.parent is None] or job.communicators
    reached: dict[int, list[str]] = {}
    for comm in roots:
        members = (comm.started, comm.completed, comm.connected, comm.ended)
        states = zip(("begun", "initialised", "connected", "ended"), members, strict=True)
        furthest = {rank: state for state, some in states for rank in global_ranks(comm, some)}
        for rank, state in furthest.items():
            reached.setdefault(rank, []).append(state)
    return {
        rank: max((state for state in states if state != "ended"), key=_WORST.index, default="ended")
        for rank, states in reached.items()
    }


def _find_silent(job: Job, last: Mapping[int, LastLine], errors: Mapping[Process, Error]) -> set[int]:
    """Return ranks of a failed job whose lines stop before its first error, while most others continue after it."""
    begun = {error.line.source: error.line.order for error in reversed(list(errors.values())) if error.line}
    if job.verdict != "failed" or job.excerpt or not begun:
        return set()
    early = {rank for rank, line in last.items() if line.order < begun.get(line.source, 0)}
    ended = {rank for comm in job.communicators for rank in global_ranks(comm, comm.ended)}
    return early - ended if len(early) <= _MOST * (len(last) - 1) else set()


class SettingRow(Frozen):
    """A variable with one of its values."""

    name: str
    value: str
    set_by: str  # `environment`, `config`, `plugin` or `unknown`
    ranks: list[int]
    hosts: list[str]
    everywhere: bool  # every process shows it
    differs: bool  # there are several values of this variable, or only some processes show it
    note: str | None
    """``outlier`` (far fewer processes have this value than another one), ``differs``, or None where all agree."""
    source: str | None
    line: int | None


_SETTING_COLUMNS = (
    Column("name", "variable"),
    Column("value", "value", least=12),
    Column("set_by", "set by", goes=2),
    Column("ranks", "ranks", least=8, text=lambda row: "all" if row.everywhere else ranges(row.ranks)),
    Column("note", "note", goes=3),
    Column("line", "line", goes=1, text=lambda row: name_line(row.source, row.line)),
)


def list_settings(job: Job) -> list[SettingRow]:
    """Return a row for each variable and value, by name."""
    sizes = group_values((one.name, (one.value, len(one.processes))) for one in job.environment)
    notes = {name: mark_unusual(dict(values)) for name, values in sizes.items()}
    table = []
    for setting in job.environment:
        first = setting.evidence[0] if setting.evidence else None
        everywhere, unusual = setting.ranks is None, notes[setting.name]
        differs = len(unusual) > 1 or not everywhere
        table.append(
            SettingRow(
                **pick_fields(setting, "name", "value", "hosts"),
                set_by=setting.source,
                ranks=list(job.ranks_seen) if setting.ranks is None else setting.ranks,
                everywhere=everywhere,
                differs=differs,
                note=unusual[setting.value] or ("differs" if differs else None),
                source=getattr(first, "source", None),
                line=getattr(first, "line", None),
            )
        )
    return table


def mark_unusual(sizes: Mapping[str, int]) -> dict[str, str]:
    """Return what is unusual about each value: ``outlier``, ``differs`` or nothing."""
    if len(sizes) == 1:
        return dict.fromkeys(sizes, "")
    most = max(sizes.values(), default=0)
    return {value: "outlier" if size * 2 < most else "differs" for value, size in sizes.items()}


_SLOW = 5.0  # seconds of an initialisation that are worth a look


class TimingRow(Frozen):
    """The initialisation of a communicator on one rank; times are seconds."""

    communicator: str
    rank: int | None  # global rank; None where the log does not show it
    host: str | None
    total: float
    slowest: str  # the phase that took most of it
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


_TIMING_COLUMNS = (
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
    Column("line", "line", goes=1, text=lambda row: name_line(row.source, row.line)),
)


def list_timings(job: Job) -> list[TimingRow]:
    """Return a row for each communicator and rank, as far as NCCL says it (2.22 and later), the longest first."""
    table = []
    for comm in job.communicators:
        for timing in comm.timings:
            host, line = timing.process.host, timing.evidence
            table.append(
                TimingRow(
                    communicator=comm.id,
                    rank=comm.ranks[timing.rank] if timing.rank < len(comm.ranks) else None,
                    host=host if is_named(host) else None,
                    total=timing.total,
                    slowest=max(timing.phases, key=timing.phases.__getitem__, default=""),
                    **{name: timing.phases.get(name) for name in PHASES},
                    source=line.source if line else "",
                    line=line.line if line else 0,
                )
            )
    return sorted(table, key=lambda row: -row.total)


GPU, HOST = "GPU", "host"
_KINDS = {  # productions with a size, and what is allocated, where the line does not name it in a field
    "nccl/allocation": "",
    "nccl/allocation-timed": "",
    "nccl/cumem-host-allocation": "CUMEM Host Alloc",
    "nccl/reallocation": "Mem Realloc",
    "nccl/shm-allocated": "shared memory",
    "nccl/p2p-buffer-allocated": "P2P buffer",
    "nccl/symmetric-memory-allocated": "symmetric memory",
}
_ON_GPU = ("Persistent cudaMalloc work buf", "Cuda Alloc", "Cuda Calloc", "Cuda CallocAsync", "P2P buffer")


class MemoryRow(Frozen):
    """Holds what a process allocated of one kind for one communicator."""

    rank: int | None  # global rank; None where the process has none, or several
    host: str | None
    pid: int | None
    communicator: str | None
    """Address of the communicator that the thread was building; None for what is allocated at other times."""
    memory: str  # `GPU` or `host`
    kind: str  # as the line names it: `Cuda Alloc`, `Host Calloc`, …
    bytes: int
    allocations: int
    largest: int


_MEMORY_COLUMNS = (
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


def list_memory(job: Job, events: Iterable[PlacedEvent]) -> list[MemoryRow]:
    """Return a row for each process, communicator and kind, the largest first; events come in the order of lines."""
    sums: dict[tuple[str | None, int | None, str | None, str], tuple[int, int, int]] = {}
    building: dict[tuple[str | None, int | None, int | None], str] = {}
    for where, event in events:
        thread = where.host, where.pid, where.tid
        if isinstance(event, CommInit):
            if event.phase == "START":
                building[thread] = event.comm
            else:
                building.pop(thread, None)
        elif isinstance(event, Message) and event.qualified_name in _KINDS:
            values = dict(event.values)
            if size := int(values.get("size") or 0) - int(values.get("old_size") or 0):
                kind = str(values.get("what") or _KINDS[event.qualified_name])
                key = (where.host, where.pid, building.get(thread), kind)
                total, number, largest = sums.get(key, (0, 0, 0))
                sums[key] = total + size, number + 1, max(largest, size)
    ranks = {(last.process.host, last.process.pid): last.ranks for last in job.last_lines}
    table = []
    for (host, pid, communicator, kind), amounts in sums.items():
        own = ranks.get((host or "", pid or 0), [])
        rank, name = own[0] if len(own) == 1 else None, host if is_named(host) else None
        memory = GPU if kind in _ON_GPU else HOST
        table.append(MemoryRow(rank, name, pid, communicator, memory, kind, *amounts))
    return sorted(table, key=lambda row: -row.bytes)


RANKS = Answer(RankRow, _RANK_COLUMNS, list_ranks, lambda row: row.state in ("suspect", "failed", "missing", "silent"))
ENV = Answer(SettingRow, _SETTING_COLUMNS, list_settings, lambda row: row.note == "outlier")
TIMINGS = Answer(TimingRow, _TIMING_COLUMNS, list_timings, lambda row: row.total >= _SLOW)
MEMORY = Answer(MemoryRow, _MEMORY_COLUMNS, list_memory, lambda _: False)
