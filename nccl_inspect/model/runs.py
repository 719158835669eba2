"""Tells apart the runs in one log: a pod that was started again, or two logs in one file.

Processes that share a communicator are of one run. A run is over when its last line stands before the first line of
another one; then only the newest is judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from nccl_inspect.model.communicators import Communicator
from nccl_inspect.model.fold import ProcessLog


def superseded(communicators: Sequence[Communicator]) -> list[set[tuple[str, int]]]:
    """The processes of each run that was over before the newest one began, the oldest first.

    Args:
        communicators: of the whole log, with their members.
    """
    runs = _runs(communicators)
    if len(runs) < 2:
        return []
    newest = max(runs, key=_begin)
    return [{log.process for log in run} for run in sorted(runs, key=_begin) if _end(run) < _begin(newest)]


def _runs(communicators: Sequence[Communicator]) -> list[list[ProcessLog]]:
    """Processes joined by communicators of more than one rank."""
    group: dict[tuple[str, int], int] = {}
    logs: dict[int, dict[tuple[str, int], ProcessLog]] = {}
    for comm in communicators:
        members = {member.log.process: member.log for member in comm.members.values()}
        joined = {group[process] for process in members if process in group}
        into = min(joined, default=len(logs))
        logs.setdefault(into, {}).update(members)
        for other in joined - {into}:
            logs[into].update(logs.pop(other))
            logs[other] = {}
        for process in logs[into]:
            group[process] = into
    return [list(run.values()) for run in logs.values() if run]


def _begin(run: list[ProcessLog]) -> int:
    return min(log.first for log in run)


def _end(run: list[ProcessLog]) -> int:
    return max(log.last for log in run)
