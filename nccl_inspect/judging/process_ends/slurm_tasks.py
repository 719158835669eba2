"""What srun says of its tasks: which of them were the first to end, and which ranks they are."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.judging.process_ends.reports import EXTERNAL, report_of, reports
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_end

_RUNNING = "launchers/slurm-tasks"
_BY_SIGNAL = "launchers/slurm-cancelled"
_MOST = 1 << 17
"""Tasks that are counted: more than a job has."""
_MOST_LINES = 200
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


def _tasks(notice: Notice) -> set[int]:
    return numbers(str(value(notice, "tasks")))


def ended(facts: Facts) -> list[Notice]:
    """What srun reports of tasks that ended."""
    return reports(facts, lambda event: event.process == "task")


def ranks_of(facts: Facts, notice: Notice) -> list[int]:
    """The ranks that tasks most likely are; none where a task may have launched several.

    A task is a rank where each process has one rank, and tasks are more than one for each host.
    """
    tasks = _tasks(notice)
    return sorted(tasks) if tasks <= facts.once(_ranks) else []


def _ranks(facts: Facts) -> set[int]:
    """The ranks that are tasks, too; empty where a task may have launched several."""
    processes = facts.job.last_lines
    is_each_one = bool(processes) and all(len(last.ranks) == 1 for last in processes)
    lines = [*ended(facts), *facts.notices(_RUNNING)][:_MOST_LINES]
    known = {task for one in lines for task in _tasks(one)}
    ranks = {rank for last in processes for rank in last.ranks}
    is_task = is_each_one and known <= ranks and max(known, default=0) >= len(facts.hosts())
    return ranks if is_task else set()


def is_end(facts: Facts, notice: Notice) -> bool:
    """Whether a report of tasks shows that they ended by themselves, or were killed before anybody ended the job."""
    event = report_of(notice)
    if event.how == "waiting":
        # They had ended when srun gave up waiting for the others; where all is over they had done their work.
        return bool(facts.notices("launchers/slurm-first-exit")) and not facts.is_over()
    if not event.code or event.code in EXTERNAL:
        return False
    return not event.is_external or id(notice) in facts.once(_killed_first)


def _killed_first(facts: Facts) -> set[int]:
    """Reports of tasks that were killed while the others went on, as far as the lines of srun tell."""
    ends = [one for one in facts.errors() if job_end.is_forced(one.event) and report_of(one).process != "task"]
    if any(job_end.reason(one.event) or value(one, "signal") for one in ends if one.production == _BY_SIGNAL):
        return set()  # slurmstepd and srun do not wait for each other: the order of their lines is no proof
    ends += facts.notices(
        "launchers/slurm-first-exit", "launchers/slurm-step-aborted", "launchers/slurm-terminating", _BY_SIGNAL
    )
    first = first_of_each(one.evidence[0] for one in ends)
    lines = [(one, one.evidence[0]) for one in ended(facts) if report_of(one).signal == "SIGKILL"]
    found = [one for one, line in lines if line.order < first.get(line.source, line.order + 1)]
    killed = {task for one in found[:_MOST_LINES] for task in _tasks(one)}
    world = max((comm.nranks for comm in facts.job.communicators), default=0)
    return set(map(id, found)) if len(killed) == 1 or 0 < len(killed) < world else set()
