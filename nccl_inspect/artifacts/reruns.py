"""Dumps that an earlier run of the same job left in the folder: what timed out by the log is not in them.

PyTorch writes a dump when a call runs out of time, and the log names that call: its number and its size. A dump of the
same run holds it, and there it is not over. A process writes one dump: what it calls and waits for later is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from nccl_inspect.artifacts.calls import Call
from nccl_inspect.event.base import Event
from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.grammar import engine
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.job import Notice

_PAIRWISE = ("SEND", "RECV", "COALESCED", "BATCH_ISEND_IRECV")
_READER = "flight_recorder"
_DUMPING = "watchdog-dump"
"""The role of lines with which a rank announces its dump."""


class _Timeout(NamedTuple):
    """A call that ran out of time, by the log."""

    seq: int
    numel: int | None
    is_later: bool
    """Whether the rank had announced its dump before."""


def sorted_out(artifacts: Iterable[Artifact], notices: Iterable[Notice]) -> list[Artifact]:
    """The evidence, with a reason at dumps of another run."""
    entries = list(artifacts)
    reported = _reported(notices) if any(_is_dump(entry) for entry in entries) else {}
    if not reported:
        return entries
    fits = [_fits(entry, reported) if _is_dump(entry) else None for entry in entries]
    is_other_run = False in fits and True not in fits
    return [
        _unused(entry, reported, fit) if fit is False or (is_other_run and _is_dump(entry)) else entry
        for entry, fit in zip(entries, fits, strict=True)
    ]


def _is_dump(entry: Artifact) -> bool:
    return entry.reader == _READER and entry.value is not None


def _unused(entry: Artifact, reported: dict[int, list[_Timeout]], fit: bool | None) -> Artifact:
    rank = entry.value.rank
    why = "beside dumps of another run"
    if fit is False:
        why = (
            f"of another run: by the log work {reported[rank][0].seq} of rank {rank} timed out, and it has no such call"
        )
    return replace(entry, value=None, problem=why)


def _reported(notices: Iterable[Notice]) -> dict[int, list[_Timeout]]:
    """The calls that timed out, by rank of the job; PyTorch says it again when the process ends, long after that."""
    by_rank: dict[int, dict[tuple[int, int | None], _Timeout]] = {}
    dumped: dict[int, Evidence] = {}
    for notice in notices:
        event = notice.event
        if event is not None and engine.is_of(event, _DUMPING) and (rank := _rank(event)) is not None:
            dumped.setdefault(rank, notice.evidence[0])
        if not isinstance(event, CollectiveTimeout) or event.operation in _PAIRWISE:  # they are numbered by themselves
            continue
        if event.global_rank is not None and event.seq is not None:
            before = dumped.get(event.global_rank)
            is_later = before is not None and before.source == notice.evidence[0].source
            timeout = _Timeout(event.seq, event.numel_in, is_later)
            by_rank.setdefault(event.global_rank, {}).setdefault((event.seq, event.ran_ms), timeout)
    return {rank: [*timeouts.values()] for rank, timeouts in by_rank.items()}


def _rank(event: Event) -> int | None:
    """The rank of the job that announces its dump."""
    rank = dict(getattr(event, "values", ())).get("global_rank")
    return rank if isinstance(rank, int) else None


def _fits(entry: Artifact, reported: dict[int, list[_Timeout]]) -> bool | None:
    """Whether a dump holds a call that timed out on its rank; None where that cannot be known."""
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
    """Whether one of the calls of a group is the one; None where it may have been overwritten, or came later."""
    if calls and timeout.seq < min(call.seq for call in calls):
        return None
    return any(call.seq == timeout.seq and _is_alike(call, timeout) for call in calls) or (
        None if timeout.is_later else False
    )


def _is_alike(call: Call, timeout: _Timeout) -> bool:
    """Whether it may be that call: what is over did not run out of time."""
    is_of_size = timeout.numel is None or not call.inputs or sum(call.inputs) == timeout.numel
    return is_of_size and not call.is_completed
