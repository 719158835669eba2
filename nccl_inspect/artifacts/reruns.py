"""Dumps that an earlier run of the same job left in the folder: what timed out by the log is not in them.

PyTorch writes a dump when a call runs out of time, and the log names that call: its number and its size. A dump of the
same run holds it, and there it is not over: it began as long before as the log says that it ran. The log tells the
time by the clock of the host, without year and zone, the dump by that of the world: they differ by quarters of an hour.
A process writes one dump: what it calls and waits for later is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from nccl_inspect.artifacts.calls import Call
from nccl_inspect.event.base import Event
from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.grammar import engine
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.job import Job, Notice
from nccl_inspect.util.times import glog_seconds

_PAIRWISE = ("SEND", "RECV", "COALESCED", "BATCH_ISEND_IRECV")
_READER = "flight_recorder"
_DUMPING = "watchdog-dump"
"""The role of lines with which a rank announces its dump."""


class _Timeout(NamedTuple):
    """A call that ran out of time, by the log."""

    seq: int
    numel: int | None
    is_later: bool
    """Whether it may have begun after the rank wrote its dump."""
    began: float | None
    """When, in seconds of the day, by the clock of its host."""


_ZONES = 900.0
"""Seconds by which clocks of two zones may differ, or a multiple."""
_EARLY, _LATE = 20.0, 120.0
"""Seconds by which a line may seem too early, and by which PyTorch may print it too late."""
_LAST_WORDS = "terminated with exception: "
"""Before what PyTorch prints again after it waited for the dumps and aborted the communicators."""
_FINISHED = "of another run, or of an earlier moment: calls are open in the dumps, and by the log all ranks finished"
_RELEASE = re.compile(r"\d+\.\d+\.\d+")


def sorted_out(artifacts: Iterable[Artifact], job: Job) -> list[Artifact]:
    """Return the evidence, with a reason at dumps of another run."""
    entries = [_check_release(entry, job.nccl_versions) for entry in artifacts]
    if any(_is_dump(entry) and entry.value.is_waiting for entry in entries) and _has_finished(job):
        return [replace(entry, value=None, problem=_FINISHED) if _is_dump(entry) else entry for entry in entries]
    reported = _reported(job.notices) if any(_is_dump(entry) for entry in entries) else {}
    if not reported:
        return entries
    fits = [_fits(entry, reported) if _is_dump(entry) else None for entry in entries]
    is_other_run = False in fits and True not in fits
    return [
        _unused(entry, reported, fit) if fit is False or (is_other_run and _is_dump(entry)) else entry
        for entry, fit in zip(entries, fits, strict=True)
    ]


def _check_release(entry: Artifact, releases: Sequence[str]) -> Artifact:
    """Return a dump, with a reason if another release of NCCL wrote it than the log was printed by."""
    match = _RELEASE.match(entry.value.nccl_version or "") if _is_dump(entry) else None
    logged = [match[0] for text in releases if "inferred" not in text and (match := _RELEASE.match(text))]
    if match is None or not logged or len(logged) < len(releases) or match[0] in logged:
        return entry
    return replace(entry, value=None, problem=f"of another run: of NCCL {match[0]}; the log is of {', '.join(logged)}")


def _has_finished(job: Job) -> bool:
    """Return whether by the log all ranks destroyed all their communicators, and no call ran out of time."""
    comms = job.communicators
    is_whole = bool(comms) and all(comm.state == "destroyed" and len(comm.ended) == comm.nranks for comm in comms)
    has_timeout = any(isinstance(notice.event, CollectiveTimeout) for notice in job.notices)
    return is_whole and not (job.failed or job.ended_by or has_timeout)


def _is_dump(entry: Artifact) -> bool:
    return entry.reader == _READER and entry.value is not None


def _unused(entry: Artifact, reported: dict[int, list[_Timeout]], fit: bool | None) -> Artifact:
    rank = entry.value.rank
    why = "beside dumps of another run"
    if fit is False:
        timeout = f"by the log work {reported[rank][0].seq} of rank {rank} timed out, and it has no such call"
        why = f"of another run, or of an earlier moment: {timeout}"
        if any(_is_number_and_size(call, reported[rank][0]) for calls in entry.value.calls.values() for call in calls):
            why = f"of another run: {timeout} of that time"
    return replace(entry, value=None, problem=why)


def _reported(notices: Iterable[Notice]) -> dict[int, list[_Timeout]]:
    """The calls that timed out, by rank of the job; PyTorch says it again when the process ends, long after that."""
    by_rank: dict[int, dict[tuple[int, int | None], _Timeout]] = {}
    dumped: dict[int, tuple[Evidence, float | None]] = {}
    for notice in notices:
        event = notice.event
        if event is not None and engine.has_role(event, _DUMPING) and (rank := _rank(event)) is not None:
            dumped.setdefault(rank, (notice.evidence[0], glog_seconds(notice.message)))
        if not isinstance(event, CollectiveTimeout) or event.operation in _PAIRWISE:  # they are numbered by themselves
            continue
        if event.global_rank is not None and event.seq is not None:
            line, at = dumped.get(event.global_rank, (None, None))
            began = _began(notice, event)
            is_later = line is not None and line.source == notice.evidence[0].source
            is_later &= began is None or at is None or began >= at
            timeout = _Timeout(event.seq, event.numel_in, is_later, began)
            by_rank.setdefault(event.global_rank, {}).setdefault((event.seq, event.ran_ms), timeout)
    return {rank: [*timeouts.values()] for rank, timeouts in by_rank.items()}


def _began(notice: Notice, event: CollectiveTimeout) -> float | None:
    """Return when a call began; None where only the last words of the process name it, any time after that."""
    printed = None if _LAST_WORDS in notice.message else glog_seconds(notice.message)
    return None if printed is None or event.ran_ms is None else printed - event.ran_ms / 1000


def _rank(event: Event) -> int | None:
    """Return the rank of the job that announces its dump."""
    rank = dict(getattr(event, "values", ())).get("global_rank")
    return rank if isinstance(rank, int) else None


def _fits(entry: Artifact, reported: dict[int, list[_Timeout]]) -> bool | None:
    """Return whether a dump holds a call that timed out on its rank; None where that cannot be known."""
    dump = entry.value
    timeouts = reported.get(dump.rank)
    if timeouts is None or not dump.calls:
        return None
    answers = [
        _holds([call for call in calls if not call.is_p2p], timeout)
        for calls in dump.calls.values()
        for timeout in timeouts
    ]
    return True if True in answers else None if None in answers else False


def _holds(calls: Sequence[Call], timeout: _Timeout) -> bool | None:
    """Return whether one of the calls of a group is the one; None where it may have been overwritten, or came later."""
    if calls and timeout.seq < min(call.seq for call in calls):
        return None
    return any(_is_alike(call, timeout) for call in calls) or (None if timeout.is_later else False)


def _is_alike(call: Call, timeout: _Timeout) -> bool:
    """Return whether it may be that call: what is over did not run out of time."""
    return _is_number_and_size(call, timeout) and not call.is_completed and _is_of_time(call, timeout)


def _is_number_and_size(call: Call, timeout: _Timeout) -> bool:
    is_of_size = timeout.numel is None or not call.inputs or sum(call.inputs) == timeout.numel
    return call.seq == timeout.seq and is_of_size


def _is_of_time(call: Call, timeout: _Timeout) -> bool:
    """Return whether it began when the log says, in some zone."""
    if timeout.began is None or call.created_ns <= 0:
        return True
    late = (timeout.began - call.created_ns / 1e9 + _EARLY) % _ZONES
    return late <= _EARLY + _LATE
