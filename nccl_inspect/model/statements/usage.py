"""Which communicators a job uses: NCCL (2.22 and later) connects them with their first use."""

from __future__ import annotations

from nccl_inspect.model.job import CommunicatorInfo, Job


def is_idle(comm: CommunicatorInfo) -> bool:
    """Return whether all ranks initialised it and nothing used it."""
    return len(comm.completed) == comm.nranks and not (comm.connected or comm.unconnected)


def used_communicators(job: Job) -> list[CommunicatorInfo]:
    """Return the communicators that show how the job fares: without idle ones, if there are others."""
    return [comm for comm in job.communicators if not is_idle(comm)] or job.communicators


def is_over(job: Job) -> bool:
    """Return whether these all came to their end in order."""
    comms = used_communicators(job)
    return bool(comms) and all(len(comm.ended) == comm.nranks for comm in comms)
