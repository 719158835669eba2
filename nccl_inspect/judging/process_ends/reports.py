"""Reports of launchers, shells and processes about processes that ended, with the lines that complete a report."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.model.job import Notice
from nccl_inspect.util import signals

EXTERNAL = (-signal.SIGTERM, -signal.SIGINT)
"""Signals with which launchers and users end processes that did not fail."""
_BELOW = 3
"""Lines below a report that may complete it, including blank ones."""
_NONE = ProcessEnded(order="own")


def report_of(notice: Notice) -> ProcessEnded:
    """The report in a statement; an empty one for any other statement."""
    return notice.event if isinstance(notice.event, ProcessEnded) else _NONE


def reports(facts: Facts, where: Callable[[ProcessEnded], bool] = lambda _: True) -> list[Notice]:
    """The reports, in the order of the log, without the lines that only complete one."""
    return [notice for notice in _reports(facts) if where(report_of(notice))]


@once
def _reports(facts: Facts) -> list[Notice]:
    return [notice for notice in facts.with_event(ProcessEnded) if not report_of(notice).completes]


def code_of(facts: Facts, notice: Notice) -> int | None:
    """The exit code in a report, negative for a signal; else that of a line below."""
    code = report_of(notice).code
    if code is not None:
        return code
    below = next(completions(facts, notice, range(1, _BELOW + 1), "above"), None)
    return report_of(below).code if below else None


def ranks_of(facts: Facts, notice: Notice) -> list[int]:
    """The ranks in a report; else those of the line above."""
    if ranks := report_of(notice).ranks:
        return list(ranks)
    above = completions(facts, notice, range(-1, 0), "below")
    return sorted({rank for line in above for rank in report_of(line).ranks})


def completions(facts: Facts, notice: Notice, near: range, completes: str) -> Iterator[Notice]:
    """The lines of the same reporter that complete a report.

    Args:
        facts: about the job.
        notice: the report.
        near: the lines to look at, counted from that of the report.
        completes: the position of the report according to these lines.
    """
    lines = _completions(facts)
    reporter = report_of(notice).reporter
    keys = ((completes, reporter, here.source, here.order + step) for here in notice.evidence for step in near)
    return filter(None, map(lines.get, keys))


@once
def _completions(facts: Facts) -> dict[tuple[str, str, str, int], Notice]:
    """Lines that complete a report, by position: equal ones by the position of their first and last line."""
    by_position: dict[tuple[str, str, str, int], Notice] = {}
    for notice in facts.with_event(ProcessEnded):
        event = report_of(notice)
        if event.completes:
            orders = {*(line.order for line in notice.evidence), *notice.until}
            source = notice.evidence[0].source
            by_position.update({(event.completes, event.reporter, source, order): notice for order in orders})
    return by_position


def external_below(facts: Facts) -> list[Notice]:
    """Reports of processes that were terminated, with the signal in a separate line."""
    return [notice for notice in reports(facts, lambda event: event.code is None) if _is_external(facts, notice)]


def _is_external(facts: Facts, notice: Notice) -> bool:
    code = code_of(facts, notice)
    return code is not None and code < 0 and signals.name(-code) in report_of(notice).external.split("|")
