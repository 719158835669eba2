"""Tells apart the jobs in one input (steps in one file, exports of collectors, folders of logs), and runs of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.model.jobs import parts
from nccl_inspect.model.processes import runs
from nccl_inspect.model.processes.gathering import Gathered

if TYPE_CHECKING:
    from nccl_inspect.model.jobs.shares import Share


def jobs_of(fold: Fold, gathered: Gathered) -> list[Share]:
    """The jobs of a log, in the order of their lines; none where it holds one only.

    Args:
        fold: of all that was read.
        gathered: its processes.
    """
    job_parts = parts.joined(gathered.communicators)
    if not job_parts or (
        len(job_parts) == 1 and all(life.process in job_parts[0].processes for life in gathered.living)
    ):
        return []
    from nccl_inspect.model.jobs.claims import Claims  # most inputs hold one job
    from nccl_inspect.model.jobs.separation import Separation
    from nccl_inspect.model.jobs.shares import shares

    claims = Claims(fold, gathered, Separation(job_parts, fold).groups()).all()
    return shares(fold, gathered, claims) if len(claims) > 1 else []


def runs_of(fold: Fold | Share, gathered: Gathered) -> list[Share]:
    """The runs of one job, the newest last; one where it was not started again.

    Args:
        fold: of all that was read, or the share of it that is the job's.
        gathered: the processes of the job.
    """
    from nccl_inspect.model.jobs.shares import Claim, shares  # most jobs have one run

    earlier = runs.superseded(gathered.communicators, gathered.everything)
    over = {process for run in earlier for process in run.processes}
    lives = {life.process for life in gathered.living}
    return shares(fold, gathered, [*(Claim(run.processes) for run in earlier), Claim(lives - over)])
