"""What srun says of its tasks: which of them were the first to end, and which ranks they are."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_end

TASK = "launchers/slurm-task-ended"
STATE = "launchers/slurm-tasks"
_BY_SIGNAL = "launchers/slurm-cancelled"
_MOST = 1 << 17
"""Tasks that are counted: more than a job has."""
_MOST_SAID = 200
"""Lines of srun of which tasks are counted."""


def numbers(tasks: str) -> set[int]:
    """The tasks of a list as Slurm writes it, ``0-1,3``; none where it is something else."""
    found: set[int] = set()
    for part in tasks.split(","):
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit()) or int(last or first) - int(first) > _MOST:
            return set()
        found.update(range(int(first), int(last or first) + 1))
    return found


def ranks_of(facts: Facts, notice: Notice) -> list[int]:
    """The ranks that tasks most likely are; none where a task may have launched several.

    A task is a rank where each process has one rank, and tasks are more than one for each host.
    """
    tasks = numbers(str(value(notice, "tasks")))
    return sorted(tasks) if tasks <= facts.once(_ranks) else []


def _ranks(facts: Facts) -> set[int]:
    """The ranks that are tasks, too; empty where a task may have launched several."""
    processes = facts.job.last_lines
    is_each_one = bool(processes) and all(len(last.ranks) == 1 for last in processes)
    known = {task for one in facts.notices(TASK, STATE)[:_MOST_SAID] for task in numbers(str(value(one, "tasks")))}
    ranks = {rank for last in processes for rank in last.ranks}
    is_task = is_each_one and known <= ranks and max(known, default=0) >= len(facts.hosts())
    return ranks if is_task else set()


def killed_first(facts: Facts) -> list[Notice]:
    """Tasks that were killed while the others went on, as far as the lines of srun tell: nobody had ended the job."""
    ends = [one for one in facts.errors() if job_end.is_forced(one.event) and one.production != TASK]
    if any(job_end.reason(one.event) or value(one, "signal") for one in ends if one.production == _BY_SIGNAL):
        return []  # slurmstepd and srun do not wait for each other: the order of their lines is no proof
    ends += facts.notices(
        "launchers/slurm-first-exit",
        "launchers/slurm-step-aborted",
        "launchers/slurm-terminating",
        "launchers/slurm-cancelled",
    )
    first = first_of_each(one.evidence[0] for one in ends)
    said = [one for one in facts.notices(TASK) if str(value(one, "how")).startswith("Killed")]
    lines = [(one, one.evidence[0]) for one in said]
    found = [one for one, line in lines if line.order < first.get(line.source, line.order + 1)]
    killed = {task for one in found[:_MOST_SAID] for task in numbers(str(value(one, "tasks")))}
    world = max((comm.nranks for comm in facts.job.communicators), default=0)
    return found if len(killed) == 1 or 0 < len(killed) < world else []


def left_first(facts: Facts) -> list[Notice]:
    """Tasks of which srun says that they had ended when it gave up waiting for the others (``--wait``)."""
    if not facts.notices("launchers/slurm-first-exit") or facts.is_over():  # then they had done their work
        return []
    return [one for one in facts.notices(STATE) if str(value(one, "state")).startswith("exited")]
