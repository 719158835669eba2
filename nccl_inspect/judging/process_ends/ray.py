"""What Ray tells of its workers that ended: tasks, actors, and the workers of Ray Train.

Ray may start anew what failed. Only what it gave up counts here: what the driver raised, or Ray Train's decision.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter

from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.line_order import is_before
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.exceptions import Raised
from nccl_inspect.judging.process_ends.process_end import ProcessEnd
from nccl_inspect.judging.process_ends.processes import place, with_pid
from nccl_inspect.judging.process_ends.reports import report_of, reports
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice

_RAISE, _RETRY, _UNHEALTHY = (
    "launchers/ray-train-raise",
    "launchers/ray-train-retry",
    "launchers/ray-health-check-failed",
)
_BORDERS = (_RETRY, "launchers/ray-train-function-failed", _UNHEALTHY)
"""Where what one worker raised is over, as with each report of Ray."""
_SELECTED = "launchers/ray-memory-selected"
_OF_RAY = ("ActorDiedError", "RayActorError", "WorkerCrashedError", "OutOfMemoryError", "ActorUnavailableError")
"""Exceptions by which a task of Ray only tells of the end of another process."""
_EXCEPTION = 1


def ends(facts: Facts) -> list[ProcessEnd]:
    """The workers that ended a job of Ray; a rank with several reports comes once."""
    return facts.once(_ends)


def raised_by(facts: Facts, notice: Notice) -> set[int]:
    """The ranks of which Ray says that they raised a statement."""
    mine = [end for end in ends(facts) if (raised := end.raised or end.echo) is not None and raised.notice is notice]
    return {rank for end in mine for rank in end.ranks}


def is_maybe_caught(facts: Facts, notice: Notice) -> bool:
    """Whether a driver may have caught what a task raised, and gone on."""
    return _is_task(report_of(notice)) and not _given_up(facts)


def is_of_task(notice: Notice) -> bool:
    """Whether it is what a task or an actor raised."""
    return _is_task(report_of(notice))


def selected(facts: Facts) -> set[int]:
    """The ranks that Ray's memory monitor ended."""
    return {rank for notice in facts.notices(_SELECTED) for rank in _of_pid(facts, value(notice, "pid"))[0]}


def _is_task(event: ProcessEnded) -> bool:
    """Whether it is what a task or an actor raised, by its pid."""
    return event.retries and event.exception and event.ended_pid is not None


def _is_snippet(event: ProcessEnded) -> bool:
    """Whether it is what ranks raised, as Ray Train reports it."""
    return event.retries and event.exception and bool(event.ranks)


def _is_death(event: ProcessEnded) -> bool:
    return event.retries and not event.exception and event.process != "training"


def _given_up(facts: Facts) -> list[Notice]:
    """Where training failed, and Ray Train tells no more."""
    return reports(facts, lambda event: event.process == "training")


def _ends(facts: Facts) -> list[ProcessEnd]:
    if not _is_for_good(facts):
        return []
    dead = _merged(_deaths(facts), _unhealthy(facts))
    known = {rank for end in dead for rank in end.ranks}
    raised = [end for end in (*_of_snippets(facts), *_of_tasks(facts)) if not known.intersection(end.ranks)]
    if any(end.ranks and end.raised for end in raised):
        dead = [end for end in dead if end.ranks]  # others are no ranks, and Ray may have begun them anew
    given_up = [ProcessEnd([], None, None, _EXCEPTION, notice) for notice in _given_up(facts)]
    return [*dead, *raised] or given_up[:1]


def _is_for_good(facts: Facts) -> bool:
    """Whether Ray Train, or a call of the driver, failed and was not tried again."""
    if facts.notices(_RAISE):
        return True
    raised = [] if facts.is_over() else [*_raised_deaths(facts), *_tasks_of_nccl(facts)]  # else the driver went on
    return bool(_given_up(facts) or raised) and not facts.notices(_RETRY)


def _raised_deaths(facts: Facts) -> list[Notice]:
    """What a driver raises where a process of Ray died."""
    return reports(facts, lambda event: _is_death(event) and event.reporter == "driver")


def _tasks_of_nccl(facts: Facts) -> list[Notice]:
    """Tasks that ran in a process of NCCL, or may have; what another one raised the driver may have caught."""
    tasks = reports(facts, _is_task)
    return tasks if facts.job.spared else [one for one in tasks if with_pid(facts, report_of(one).ended_pid)]


def _lines(notices: Iterable[Notice]) -> list[Evidence]:
    return [line for notice in notices for line in notice.evidence]


def _not_before(lines: Iterable[Evidence], borders: Iterable[Evidence]) -> list[Evidence]:
    borders = list(borders)
    return [line for line in lines if not any(is_before(line, border) for border in borders)]


def _snippets(facts: Facts) -> dict[tuple[int, ...], tuple[Notice, list[Evidence]]]:
    """For ranks where Ray Train reports their end, without the attempts after which it tried again."""
    raises = _lines(facts.notices(_RAISE))
    found: dict[tuple[int, ...], tuple[Notice, list[Evidence]]] = {}
    for notice in reports(facts, _is_snippet):
        if lines := _not_before(notice.evidence, raises):
            found.setdefault(report_of(notice).ranks, (notice, []))[1].extend(lines)
    return found


def _deaths(facts: Facts) -> list[ProcessEnd]:
    """Processes that the raylet lost in the last attempt."""
    found = []
    retries = _lines(facts.notices(_RETRY))
    for notice in reports(facts, lambda event: _is_death(event) and event.reporter == "raylet"):
        if _not_before(notice.evidence, retries):
            event = report_of(notice)
            found.append(ProcessEnd(*_of_pid(facts, event.ended_pid), event.ended_pid, event.code or 0, notice))
    raised = [] if found else _raised_deaths(facts)  # the raylet's lines may be elsewhere
    return found or [ProcessEnd([], None, None, 0, notice) for notice in raised[:1]]


def _unhealthy(facts: Facts) -> list[ProcessEnd]:
    """Ranks whose process did not answer Ray Train any more."""
    snippets = _snippets(facts).items()
    return [
        ProcessEnd(list(ranks), None, None, 0, notice)
        for ranks, (notice, lines) in snippets
        if _is_unhealthy(facts, lines)
    ]


def _is_unhealthy(facts: Facts, lines: list[Evidence]) -> bool:
    failed = {(line.source, line.order - 1) for line in _lines(facts.notices(_UNHEALTHY))}
    return any((line.source, line.order) in failed for line in lines)


def _merged(lost: list[ProcessEnd], unhealthy: list[ProcessEnd]) -> list[ProcessEnd]:
    """The raylet knows pids and Ray Train ranks; where NCCL's lines do not join them, one of each is the same."""
    if len(lost) == len(unhealthy) == 1 and not lost[0].ranks:
        return [lost[0]._replace(ranks=unhealthy[0].ranks)]
    if unhealthy:
        lost = [end for end in lost if end.ranks]
    known = {rank for end in lost for rank in end.ranks}
    return [*lost, *(end for end in unhealthy if not known.issuperset(end.ranks))]


def _of_snippets(facts: Facts) -> list[ProcessEnd]:
    """What ranks raised, as Ray Train reports it."""
    found: list[ProcessEnd] = []
    empty: list[ProcessEnd] = []
    for ranks, (notice, lines) in _snippets(facts).items():
        if _is_unhealthy(facts, lines):
            continue
        # Where Ray leaves out lines of the controller, the driver still prints them.
        texts = [raised for line in lines if (raised := _below(facts, line)) is not None]
        if not texts:
            empty.append(ProcessEnd(list(ranks), None, None, _EXCEPTION, notice))
        elif not any(exceptions.is_of_nccl(one) for one in texts):  # that is told by other rules
            found += [_by(texts[0], ([rank], *place(facts, rank)), notice) for rank in ranks]
    return found or empty


def _of_tasks(facts: Facts) -> list[ProcessEnd]:
    """What tasks and actors raised, by the pid: below the last line that passes it on."""
    found: dict[int | None, ProcessEnd] = {}
    tasks = reports(facts, _is_task)
    last = {line.source: line.order for line in sorted((one.evidence[0] for one in tasks), key=attrgetter("order"))}
    for notice in tasks:
        line, pid = notice.evidence[0], report_of(notice).ended_pid
        raised = _below(facts, line)
        is_passed_on = raised is None and line.order < last[line.source]
        if value(notice, "exception") in _OF_RAY or is_passed_on or (raised and exceptions.is_of_nccl(raised)):
            continue
        raised = raised or Raised(str(value(notice, "exception")), line)
        found.setdefault(pid, _by(raised, (*_of_pid(facts, pid), pid), notice))
    return list(found.values())


def _by(raised: Raised, process: tuple[list[int], str | None, int | None], notice: Notice) -> ProcessEnd:
    """A process that an exception ended, or that only tells with it that it lost another one."""
    end = ProcessEnd(*process, _EXCEPTION, notice)
    return end._replace(echo=raised) if raised.is_of_a_peer else end._replace(raised=raised)


def _below(facts: Facts, line: Evidence) -> Raised | None:
    """The exception that stands below a line: the last one before a line that begins with another one."""
    borders = facts.once(_borders).get(line.source, [])
    at = bisect_right(borders, line.order)
    stated = facts.once(_stated).get(line.source, [])
    first = bisect_right(stated, line.order, key=_order)
    if at == len(borders):  # it may be followed by the output of others
        return stated[first] if first < len(stated) else None
    last = bisect_left(stated, borders[at], key=_order)
    return stated[last - 1] if last > first else None


def _order(raised: Raised) -> int:
    return raised.line.order


def _borders(facts: Facts) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    of_ray = reports(facts, lambda event: event.retries and event.reporter != "raylet")
    for line in _lines([*of_ray, *facts.notices(*_BORDERS)]):
        found.setdefault(line.source, []).append(line.order)
    return {source: sorted(orders) for source, orders in found.items()}


def _stated(facts: Facts) -> dict[str, list[Raised]]:
    found: dict[str, list[Raised]] = {}
    for one in exceptions.stated(facts):
        found.setdefault(one.line.source, []).append(one)
    return {source: sorted(raised, key=_order) for source, raised in found.items()}


def _of_pid(facts: Facts, pid: int | None) -> tuple[list[int], str | None]:
    """The ranks and the host of a process, where only one has that pid."""
    known = with_pid(facts, pid)
    return (known[0].ranks, known[0].process.host) if len(known) == 1 else ([], None)
