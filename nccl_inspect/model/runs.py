"""Tells apart the runs in one log: a pod that was started again, or two logs in one file.

Processes that share a communicator are of one run. A run is over when its last line comes before the first line of
another one on the same hosts, by the time of the lines if they have one and else by their order, or when the end of a
job stands between them; then only the newest is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from nccl_inspect.event import Process
from nccl_inspect.model import endings
from nccl_inspect.model.communicators import Communicator
from nccl_inspect.model.fold import ProcessLog, source_and_line
from nccl_inspect.times import in_order, moment


class Run:
    """Processes that are joined by communicators.

    Args:
        logs: what they printed.
    """

    def __init__(self, logs: Sequence[ProcessLog]) -> None:
        self.logs = logs
        self.processes = {log.process for log in logs}
        self.begin = min(log.first for log in logs)
        self.end = max(log.last for log in logs)

        opening = [moment(log.opening.time) for log in logs]
        final = [moment(log.final.time) for log in logs]
        known = in_order(*opening, *final)
        self.began = min(time for time in opening if time) if known else None
        """When the first process began, where all lines tell the time by one clock."""
        self.ended = max(time for time in final if time) if known else None

    @cached_property
    def _hosts(self) -> set[str]:
        return {log.process.host for log in self.logs}

    @cached_property
    def _extents(self) -> dict[str | int, tuple[int, int]]:
        """The first and the last place of each host, and in each source."""
        extents: dict[str | int, tuple[int, int]] = {}
        for log in self.logs:
            for place in (log.first, *(step.place for step in log.steps), log.last):
                for key in (log.process.host, source_and_line(place)[0]):
                    first, last = extents.get(key, (place, place))
                    extents[key] = min(first, place), max(last, place)
        return extents

    def is_before(self, other: Run, ends: Sequence[int]) -> bool:
        """Whether this run is known to have ended before the other one began.

        The order of lines says something only where the same hosts are in both, or in the same source the end of a job
        stands between them: else the logs of two hosts may have been put one behind the other.

        Args:
            other: a run.
            ends: places of lines that say that a job ended.
        """
        shared_hosts = self._hosts & other._hosts
        if shared_hosts and self.ended and other.began and in_order(self.ended, other.began):
            return self.ended < other.began
        shared = self._extents.keys() & other._extents.keys()
        if any(self._extents[key][1] >= other._extents[key][0] for key in shared):
            return False  # a file of each pod has all attempts of it, one after the other
        between = any(self.end < end < other.begin for end in ends)
        return bool(shared_hosts or (between and shared))


def superseded(communicators: Sequence[Communicator], logs: Sequence[ProcessLog]) -> list[Run]:
    """The runs that were over before the newest one began, the oldest first.

    Args:
        communicators: of the whole log, with their members.
        logs: of all who said something.
    """
    runs = _runs(communicators)
    if len(runs) < 2:
        return []
    times = [run.began for run in runs]
    if in_order(*times):
        runs.sort(key=lambda run: run.began or times[0])  # type: ignore[arg-type,return-value]
    else:
        runs.sort(key=lambda run: run.begin)
    ends = [note.last for log in logs for note in log.notes.values() if endings.is_end(note.event)]
    return [run for run in runs[:-1] if run.is_before(runs[-1], ends)]


def _runs(communicators: Sequence[Communicator]) -> list[Run]:
    """Processes joined by communicators of more than one rank."""
    group: dict[Process, int] = {}
    logs: dict[int, dict[Process, ProcessLog]] = {}
    for comm in communicators:
        if comm.nranks == 1:
            continue
        members = {member.log.process: member.log for member in comm.members.values()}
        joined = {group[process] for process in members if process in group}
        into = min(joined, default=len(logs))
        for other in joined - {into}:
            members.update(logs[other])
            logs[other] = {}
        logs.setdefault(into, {}).update(members)
        group.update(dict.fromkeys(members, into))
    return [Run(list(run.values())) for run in logs.values() if run]
