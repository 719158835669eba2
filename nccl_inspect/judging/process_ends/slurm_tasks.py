"""Reports of srun about its tasks: which ended first, and which ranks they are."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.judging.process_ends.reports import EXTERNAL, report_of, reports
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_end

_RUNNING = "launchers/slurm-tasks"
_BY_SIGNAL = "launchers/slurm-cancelled"
_MOST = 1 << 17
"""The most tasks to count: more than a job has."""
_MOST_LINES = 200
"""The most lines of srun whose tasks are counted."""


def numbers(tasks: str) -> set[int]:
    """The tasks of a list in Slurm's notation, ``0-1,3``; empty for anything else."""
    result: set[int] = set()
    for part in tasks.split(","):
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit()) or int(last or first) - int(first) > _MOST:
            return set()
        result.update(range(int(first), int(last or first) + 1))
    return result


def _tasks(notice: Notice) -> set[int]:
    return numbers(str(value(notice, "tasks")))


def task_ends(facts: Facts) -> list[Notice]:
    """Reports of srun about tasks that ended."""
    return reports(facts, lambda event: event.process == "task")


def ranks_of(facts: Facts, notice: Notice) -> list[int]:
    """The ranks that tasks most likely are; none if a task may have launched several.

    A task is a rank if each process has one rank, and there is more than one task per host.
    """
    tasks = _tasks(notice)
    return sorted(tasks) if tasks <= _ranks(facts) else []


@once
def _ranks(facts: Facts) -> set[int]:
    """The ranks that are also tasks; empty if a task may have launched several."""
    processes = facts.job.last_lines
    is_each_one = bool(processes) and all(len(last.ranks) == 1 for last in processes)
    lines = [*task_ends(facts), *facts.notices(_RUNNING)][:_MOST_LINES]
    tasks = {task for notice in lines for task in _tasks(notice)}
    ranks = {rank for last in processes for rank in last.ranks}
    is_task = is_each_one and tasks <= ranks and max(tasks, default=0) >= len(facts.hosts())
    return ranks if is_task else set()


def is_end(facts: Facts, notice: Notice) -> bool:
    """Whether a report shows that tasks ended on their own, or were killed before the job was ended."""
    event = report_of(notice)
    if event.how == "waiting":
        # They had ended when srun stopped waiting for the others; if all is over they had done their work.
        return bool(facts.notices("launchers/slurm-first-exit")) and not facts.is_over()
    if not event.code or event.code in EXTERNAL:
        return False
    return not event.is_external or id(notice) in _killed_first(facts)


@once
def _killed_first(facts: Facts) -> set[int]:
    """Reports of tasks that were killed while the others continued, as far as the lines of srun show."""
    ends = [
        notice for notice in facts.errors() if job_end.is_forced(notice.event) and report_of(notice).process != "task"
    ]
    if any(
        job_end.reason(notice.event) or value(notice, "signal") for notice in ends if notice.production == _BY_SIGNAL
    ):
        return set()  # slurmstepd and srun do not synchronize: the order of their lines proves nothing
    ends += facts.notices(
        "launchers/slurm-first-exit", "launchers/slurm-step-aborted", "launchers/slurm-terminating", _BY_SIGNAL
    )
    first = first_of_each(notice.evidence[0] for notice in ends)
    lines = [(notice, notice.evidence[0]) for notice in task_ends(facts) if report_of(notice).signal == "SIGKILL"]
    earliest = [notice for notice, line in lines if line.order < first.get(line.source, line.order + 1)]
    killed = {task for notice in earliest[:_MOST_LINES] for task in _tasks(notice)}
    world = max((comm.nranks for comm in facts.job.communicators), default=0)
    return set(map(id, earliest)) if len(killed) == 1 or 0 < len(killed) < world else set()
