"""Tells apart the runs in one log: a pod that was started again, or two logs in one file.

Processes that share a communicator are of one run. A run is over when its last line comes before the first line of
another one on the same hosts, by the time of the lines if they have one and else by their order, or when the end of a
job stands between them; then only the newest is judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.fold.fold import ProcessLog
from nccl_inspect.model.jobs import parts
from nccl_inspect.model.jobs.parts import Part
from nccl_inspect.model.statements import job_end
from nccl_inspect.util.times import in_order


def is_before(part: Part, other: Part, ends: Sequence[int]) -> bool:
    """Whether a run is known to have ended before the other one began.

    The order of lines says something only where the same hosts are in both, or in the same source the end of a job
    stands between them: else the logs of two hosts may have been put one behind the other.

    Args:
        part: a run.
        other: another one.
        ends: places of lines that say that a job ended.
    """
    shared_hosts = part.hosts & other.hosts
    if shared_hosts and part.ended and other.began and in_order(part.ended, other.began):
        return part.ended < other.began
    shared = part.extents.keys() & other.extents.keys()
    if any(part.extents[key][1] >= other.extents[key][0] for key in shared):
        return False  # a file of each pod has all attempts of it, one after the other
    between = any(part.end < end < other.begin for end in ends)
    return bool(shared_hosts or (between and shared))


def superseded(communicators: Sequence[Communicator], logs: Sequence[ProcessLog]) -> list[Part]:
    """The runs that were over before the newest one began, the oldest first.

    Args:
        communicators: of the whole log, with their members.
        logs: of all who said something.
    """
    runs = parts.joined(communicators)
    if len(runs) < 2:
        return []
    times = [run.began for run in runs]
    if in_order(*times):
        runs.sort(key=lambda run: run.began or times[0])  # type: ignore[arg-type,return-value]
    else:
        runs.sort(key=lambda run: run.begin)
    ends = [note.last for log in logs for note in log.notes.values() if job_end.is_end(note.event)]
    return [run for run in runs[:-1] if is_before(run, runs[-1], ends)]
