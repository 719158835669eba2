"""Ray's reports of workers that ended: tasks, actors, and the workers of Ray Train.

Ray may restart what failed. Only final failures count: exceptions of the driver, or Ray Train's decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.line_order import is_before
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.exceptions import RaisedException
from nccl_inspect.judging.process_ends.process_end import ProcessEnd, place, with_pid
from nccl_inspect.judging.statements import report_of, value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice

_RAISE, _RETRY = "launchers/ray-train-raise", "launchers/ray-train-retry"
_UNHEALTHY = "unhealthy"
"""How a rank ended, by the word of the grammar."""
_SELECTED = "launchers/ray-memory-selected"
_OF_RAY = ("ActorDiedError", "RayActorError", "WorkerCrashedError", "OutOfMemoryError", "ActorUnavailableError")
"""Exceptions with which a task of Ray only reports the end of another process."""
_EXCEPTION = 1


@once
def ends(facts: Facts) -> list[ProcessEnd]:
    """The workers that ended a job of Ray, each rank once."""
    if not _is_for_good(facts):
        return []
    dead = _merged(_deaths(facts), _unhealthy(facts))
    ranks = {rank for end in dead for rank in end.ranks}
    raised = [end for end in (*_of_snippets(facts), *_of_tasks(facts)) if not ranks.intersection(end.ranks)]
    if any(end.ranks and end.raised for end in raised):
        dead = [end for end in dead if end.ranks]  # others are not ranks, and Ray may have restarted them
    given_up = [ProcessEnd([], None, None, _EXCEPTION, notice) for notice in _given_up(facts)]
    return [*dead, *raised] or given_up[:1]


def raised_by(facts: Facts, notice: Notice) -> set[int]:
    """The ranks that, according to Ray, raised an exception."""
    mine = [end for end in ends(facts) if (raised := end.raised or end.echo) is not None and raised.notice is notice]
    return {rank for end in mine for rank in end.ranks}


def is_maybe_caught(facts: Facts, notice: Notice) -> bool:
    """Whether a driver may have caught the exception of a task and continued."""
    return _is_task(report_of(notice)) and not _given_up(facts)


def is_of_task(notice: Notice) -> bool:
    """Whether it is an exception of a task or an actor."""
    return _is_task(report_of(notice))


def ranks_killed_by_monitor(facts: Facts) -> set[int]:
    """The ranks that Ray's memory monitor killed."""
    return {rank for notice in facts.notices(_SELECTED) for rank in _of_pid(facts, value(notice, "pid"))[0]}


def _is_task(event: ProcessEnded) -> bool:
    """Whether it is an exception of a task or an actor, given by its pid."""
    return event.retries and event.exception and event.ended_pid is not None


def _is_snippet(event: ProcessEnded) -> bool:
    """Whether it is an exception of ranks that Ray Train reports."""
    return event.retries and event.exception and bool(event.ranks)


def _is_death(event: ProcessEnded) -> bool:
    return event.retries and not event.exception and event.process != "training"


def _given_up(facts: Facts) -> list[Notice]:
    """Reports that training failed, without details from Ray Train."""
    return facts.with_event(ProcessEnded, lambda event: event.process == "training")


def _is_for_good(facts: Facts) -> bool:
    """Whether Ray Train, or a call of the driver, failed and was not retried."""
    if facts.notices(_RAISE):
        return True
    raised = [] if facts.is_over() else [*_raised_deaths(facts), *_tasks_of_nccl(facts)]  # else the driver continued
    return bool(_given_up(facts) or raised) and not facts.notices(_RETRY)


def _raised_deaths(facts: Facts) -> list[Notice]:
    """Exceptions of a driver because a process of Ray died."""
    return facts.with_event(ProcessEnded, lambda event: _is_death(event) and event.reporter == "driver")


def _tasks_of_nccl(facts: Facts) -> list[Notice]:
    """Tasks that ran, or may have run, in a process with NCCL; the driver may have caught exceptions of others."""
    tasks = facts.with_event(ProcessEnded, _is_task)
    return tasks if facts.job.spared else [task for task in tasks if with_pid(facts, report_of(task).ended_pid)]


def _lines(notices: Iterable[Notice]) -> list[Evidence]:
    return [line for notice in notices for line in notice.evidence]


def _not_before(lines: Iterable[Evidence], borders: Iterable[Evidence]) -> list[Evidence]:
    borders = list(borders)
    return [line for line in lines if not any(is_before(line, border) for border in borders)]


def _snippets(facts: Facts) -> dict[tuple[int, ...], tuple[Notice, list[Evidence]]]:
    """Ray Train's reports of the end of ranks, without attempts that it retried."""
    raises = _lines(facts.notices(_RAISE))
    by_ranks: dict[tuple[int, ...], tuple[Notice, list[Evidence]]] = {}
    for notice in facts.with_event(ProcessEnded, _is_snippet):
        if lines := _not_before(notice.evidence, raises):
            by_ranks.setdefault(report_of(notice).ranks, (notice, []))[1].extend(lines)
    return by_ranks


def _deaths(facts: Facts) -> list[ProcessEnd]:
    """Processes that the raylet lost in the last attempt."""
    ends = []
    retries = _lines(facts.notices(_RETRY))
    for notice in facts.with_event(ProcessEnded, lambda event: _is_death(event) and event.reporter == "raylet"):
        if _not_before(notice.evidence, retries):
            event = report_of(notice)
            ends.append(ProcessEnd(*_of_pid(facts, event.ended_pid), event.ended_pid, event.code or 0, notice))
    raised = [] if ends else _raised_deaths(facts)  # the raylet's lines may be elsewhere
    return ends or [ProcessEnd([], None, None, 0, notice) for notice in raised[:1]]


def _unhealthy(facts: Facts) -> list[ProcessEnd]:
    """Ranks whose process stopped responding to Ray Train."""
    snippets = _snippets(facts).items()
    return [
        ProcessEnd(list(ranks), None, None, 0, notice)
        for ranks, (notice, _) in snippets
        if report_of(notice).how == _UNHEALTHY
    ]


def _merged(lost: list[ProcessEnd], unhealthy: list[ProcessEnd]) -> list[ProcessEnd]:
    """Join the raylet's pids and Ray Train's ranks: if NCCL's lines do not, a single one of each is the same."""
    if len(lost) == len(unhealthy) == 1 and not lost[0].ranks:
        return [lost[0].with_fields(ranks=unhealthy[0].ranks)]
    if unhealthy:
        lost = [end for end in lost if end.ranks]
    ranks = {rank for end in lost for rank in end.ranks}
    return [*lost, *(end for end in unhealthy if not ranks.issuperset(end.ranks))]


def _of_snippets(facts: Facts) -> list[ProcessEnd]:
    """The exceptions of ranks that Ray Train reports."""
    ends: list[ProcessEnd] = []
    empty: list[ProcessEnd] = []
    for ranks, (notice, lines) in _snippets(facts).items():
        if report_of(notice).how == _UNHEALTHY:
            continue
        # If Ray drops lines of the controller, the driver still prints them.
        texts = [raised for line in lines if (raised := exceptions.find_below(facts, line)) is not None]
        if not texts:
            empty.append(ProcessEnd(list(ranks), None, None, _EXCEPTION, notice))
        elif not any(map(exceptions.is_of_nccl, texts)):  # other rules report these
            ends += [_by(texts[0], ([rank], *place(facts, rank)), notice) for rank in ranks]
    return ends or empty


def _of_tasks(facts: Facts) -> list[ProcessEnd]:
    """The exceptions of tasks and actors by pid: below the last line that passes them on."""
    by_pid: dict[int | None, ProcessEnd] = {}
    tasks = facts.with_event(ProcessEnded, _is_task)
    last = {line.source: line.order for line in sorted((task.evidence[0] for task in tasks), key=attrgetter("order"))}
    for notice in tasks:
        line, pid = notice.evidence[0], report_of(notice).ended_pid
        raised = exceptions.find_below(facts, line)
        is_passed_on = raised is None and line.order < last[line.source]
        if value(notice, "exception") in _OF_RAY or is_passed_on or (raised and exceptions.is_of_nccl(raised)):
            continue
        raised = raised or RaisedException(str(value(notice, "exception")), line)
        by_pid.setdefault(pid, _by(raised, (*_of_pid(facts, pid), pid), notice))
    return list(by_pid.values())


def _by(raised: RaisedException, process: tuple[list[int], str | None, int | None], notice: Notice) -> ProcessEnd:
    """A process that an exception ended, or that only reports the loss of another one."""
    end = ProcessEnd(*process, _EXCEPTION, notice)
    return end.with_fields(echo=raised) if raised.is_loss_of_peer else end.with_fields(raised=raised)


def _of_pid(facts: Facts, pid: int | None) -> tuple[list[int], str | None]:
    """The ranks and the host of a process; empty if its pid is not unique."""
    processes = with_pid(facts, pid)
    return (processes[0].ranks, processes[0].process.host) if len(processes) == 1 else ([], None)
