"""What Ray tells of its workers that ended: tasks, actors, and the workers of Ray Train.

Ray may start anew what failed. Only what it gave up counts here: what the driver raised, or Ray Train's decision.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.line_order import is_before
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.exceptions import Raised
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice

DIED, SNIPPET, TASK = "launchers/ray-worker-died", "launchers/ray-rank-snippet", "launchers/ray-task-error"
GIVEN_UP = ("launchers/ray-train-raise", "launchers/ray-train-failed", "launchers/ray-train-workers-failed")
"""Training failed, where Ray Train tells no more."""
PRODUCTIONS = (DIED, SNIPPET, TASK, *GIVEN_UP)
SELECTED = "launchers/ray-memory-selected"
_OF_DEATHS = ("launchers/ray-actor-died", "launchers/ray-worker-crashed")
_DRIVER = (*_OF_DEATHS, TASK)
"""What a driver raises when a call failed for good."""
_BORDERS = (
    SNIPPET,
    *GIVEN_UP,
    "launchers/ray-train-retry",
    "launchers/ray-train-function-failed",
    "launchers/ray-health-check-failed",
    *_DRIVER,
)
"""Where what one worker raised is over."""
_OF_RAY = ("ActorDiedError", "RayActorError", "WorkerCrashedError", "OutOfMemoryError", "ActorUnavailableError")
"""Exceptions by which a task of Ray only tells of the end of another process."""
_PID = re.compile(r" Worker PID: (\d{1,10}) ")
_EXIT_CODE = re.compile(r" exits with an exit code (\d{1,3})\.")
_RANK = re.compile(r"\d{1,7}")


class Ended(NamedTuple):
    """A worker that ended, as Ray tells it."""

    ranks: list[int]
    """Empty where neither Ray nor NCCL's lines tell them."""
    host: str | None
    pid: int | None
    code: int | None
    """Exit code, where Ray knows it; None for a process that died of what Ray does not know, and for exceptions."""
    notice: Notice
    died: bool
    """Whether the process died; else it raised an exception."""
    raised: Raised | None = None


def ended(facts: Facts) -> list[Ended]:
    """The workers that ended a job of Ray; a rank that several lines tell of comes once."""
    return facts.once(_ended)


def raised_by(facts: Facts, notice: Notice) -> set[int]:
    """The ranks of which Ray says that they raised a statement."""
    mine = [one for one in ended(facts) if one.raised is not None and one.raised.notice is notice]
    return {rank for one in mine for rank in one.ranks}


def is_maybe_caught(facts: Facts, notice: Notice) -> bool:
    """Whether a driver may have caught what a task raised, and gone on."""
    return notice.production == TASK and not facts.notices(*GIVEN_UP)


def selected(facts: Facts) -> set[int]:
    """The ranks that Ray's memory monitor ended."""
    return {rank for notice in facts.notices(SELECTED) for rank in _of_pid(facts, value(notice, "pid"))[0]}


def _ended(facts: Facts) -> list[Ended]:
    if not _is_for_good(facts):
        return []
    dead = _merged(_deaths(facts), _unhealthy(facts))
    known = {rank for one in dead for rank in one.ranks}
    raised = [one for one in (*_of_snippets(facts), *_of_tasks(facts)) if not known.intersection(one.ranks)]
    if any(one.ranks and one.raised and not one.raised.is_of_a_peer for one in raised):
        dead = [one for one in dead if one.ranks]  # others are no ranks, and Ray may have begun them anew
    given_up = [Ended([], None, None, None, notice, died=False) for notice in facts.notices(*GIVEN_UP)]
    return [*dead, *raised] or given_up[:1]


def _is_for_good(facts: Facts) -> bool:
    """Whether Ray Train, or a call of the driver, failed and was not tried again."""
    if facts.notices("launchers/ray-train-raise"):
        return True
    told = [] if facts.is_over() else facts.notices(*_DRIVER)  # else the driver went on
    errors = facts.notices(*GIVEN_UP) or [one for one in told if one.production != TASK or _is_of_nccl(facts, one)]
    return bool(errors) and not facts.notices("launchers/ray-train-retry")


def _is_of_nccl(facts: Facts, task: Notice) -> bool:
    """Whether a task ran in a process of NCCL, or may have; what another one raised the driver may have caught."""
    return value(task, "pid") in facts.once(_by_pid) or bool(facts.job.spared)


def _lines(notices: Iterable[Notice]) -> list[Evidence]:
    return [line for notice in notices for line in notice.evidence]


def _not_before(lines: Iterable[Evidence], borders: Iterable[Evidence]) -> list[Evidence]:
    borders = list(borders)
    return [line for line in lines if not any(is_before(line, border) for border in borders)]


def _reports(facts: Facts) -> dict[tuple[int, ...], tuple[Notice, list[Evidence]]]:
    """For ranks where Ray Train reports their end, without the attempts after which it tried again."""
    raises = _lines(facts.notices("launchers/ray-train-raise"))
    found: dict[tuple[int, ...], tuple[Notice, list[Evidence]]] = {}
    for notice in facts.notices(SNIPPET):
        ranks = tuple(sorted({int(rank) for rank in _RANK.findall(str(value(notice, "ranks")))}))
        if lines := _not_before(notice.evidence, raises):
            found.setdefault(ranks, (notice, []))[1].extend(lines)
    return found


def _deaths(facts: Facts) -> list[Ended]:
    """Processes that the raylet lost in the last attempt."""
    found = []
    for notice in facts.notices(DIED):
        if not _not_before(notice.evidence, _lines(facts.notices("launchers/ray-train-retry"))):
            continue
        given, code = _PID.search(notice.message), _EXIT_CODE.search(notice.message)
        pid = int(given[1]) if given else None
        ranks, host = _of_pid(facts, pid)
        found.append(Ended(ranks, host, pid, int(code[1]) if code else None, notice, died=True))
    raised = [] if found else facts.notices(*_OF_DEATHS)  # the raylet's lines may be elsewhere
    return found or [Ended([], None, None, None, notice, died=True) for notice in raised[:1]]


def _unhealthy(facts: Facts) -> list[Ended]:
    """Ranks whose process did not answer Ray Train any more."""
    said = [(ranks, notice) for ranks, (notice, lines) in _reports(facts).items() if _is_unhealthy(facts, lines)]
    return [Ended(list(ranks), None, None, None, notice, died=True) for ranks, notice in said]


def _is_unhealthy(facts: Facts, lines: list[Evidence]) -> bool:
    failed = {(line.source, line.order - 1) for line in _lines(facts.notices("launchers/ray-health-check-failed"))}
    return any((line.source, line.order) in failed for line in lines)


def _merged(lost: list[Ended], unhealthy: list[Ended]) -> list[Ended]:
    """The raylet knows pids and Ray Train ranks; where NCCL's lines do not join them, one of each is the same."""
    if len(lost) == len(unhealthy) == 1 and not lost[0].ranks:
        return [lost[0]._replace(ranks=unhealthy[0].ranks)]
    if unhealthy:
        lost = [one for one in lost if one.ranks]
    known = {rank for one in lost for rank in one.ranks}
    return [*lost, *(one for one in unhealthy if not known.issuperset(one.ranks))]


def _of_snippets(facts: Facts) -> list[Ended]:
    """What ranks raised, as Ray Train reports it."""
    found: list[Ended] = []
    empty: list[Ended] = []
    for ranks, (notice, lines) in _reports(facts).items():
        if _is_unhealthy(facts, lines):
            continue
        # Where Ray leaves out lines of the controller, the driver still prints them.
        texts = [raised for line in lines if (raised := _below(facts, line)) is not None]
        if not texts:
            empty.append(Ended(list(ranks), None, None, None, notice, died=False))
        elif not any(exceptions.is_of_nccl(one) for one in texts):  # that is told by other rules
            found += [_of_rank(facts, rank, notice, texts[0]) for rank in ranks]
    return found or empty


def _of_tasks(facts: Facts) -> list[Ended]:
    """What tasks and actors raised, by the pid: below the last line that passes it on."""
    found: dict[int, Ended] = {}
    tasks = facts.notices(TASK)
    last = {line.source: line.order for line in sorted((one.evidence[0] for one in tasks), key=attrgetter("order"))}
    for notice in tasks:
        line = notice.evidence[0]
        raised = _below(facts, line)
        is_passed_on = raised is None and line.order < last[line.source]
        if value(notice, "exception") in _OF_RAY or is_passed_on or (raised and exceptions.is_of_nccl(raised)):
            continue
        pid: int = value(notice, "pid")
        ranks, host = _of_pid(facts, pid)
        raised = raised or Raised(str(value(notice, "exception")), line)
        found.setdefault(pid, Ended(ranks, host, pid, None, notice, died=False, raised=raised))
    return list(found.values())


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
    for line in _lines(facts.notices(*_BORDERS)):
        found.setdefault(line.source, []).append(line.order)
    return {source: sorted(orders) for source, orders in found.items()}


def _stated(facts: Facts) -> dict[str, list[Raised]]:
    found: dict[str, list[Raised]] = {}
    for one in exceptions.stated(facts):
        found.setdefault(one.line.source, []).append(one)
    return {source: sorted(raised, key=_order) for source, raised in found.items()}


def _of_rank(facts: Facts, rank: int, notice: Notice, raised: Raised) -> Ended:
    here = facts.once(_by_rank).get(rank, [])
    host, pid = (here[0].process.host, here[0].process.pid) if len(here) == 1 else (None, None)
    return Ended([rank], host, pid, None, notice, died=False, raised=raised)


def _by_rank(facts: Facts) -> dict[int, list[LastLine]]:
    found: dict[int, list[LastLine]] = {}
    for last in facts.job.last_lines:
        for rank in last.ranks:
            found.setdefault(rank, []).append(last)
    return found


def _of_pid(facts: Facts, pid: int | None) -> tuple[list[int], str | None]:
    """The ranks and the host of a process, where only one has that pid."""
    known = facts.once(_by_pid).get(pid, [])
    return (known[0].ranks, known[0].process.host) if len(known) == 1 else ([], None)


def _by_pid(facts: Facts) -> dict[int | None, list[LastLine]]:
    found: dict[int | None, list[LastLine]] = {}
    for last in facts.job.last_lines:
        found.setdefault(last.process.pid, []).append(last)
    return found
