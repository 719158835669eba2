"""Tells sources whose newest line comes first, as log explorers export them, from those in the order of writing.

What a process printed has descending times there; where lines have none, it says over which interface it bootstraps
after it has begun communicators. A few lines out of order, clocks that differ between hosts and containers that were
restarted processes prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.model.fold.fold import Burst, Fold, ProcessLog, Step
from nccl_inspect.model.fold.process_log import source_and_line
from nccl_inspect.util.times import are_in_order, moment

_MAX_PROCESSES = 64
_MAX_MARKS = 200
"""Lines of a process that are looked at."""
_FEW, _ENOUGH = 3, 10
"""Lines older than the one before: this many if none is newer, or this many for each one that is."""
_MIN_STEPS = 2


class _Order(NamedTuple):
    """Holds how often the next line of a process is newer, and how often older."""

    newer: int
    older: int

    @property
    def is_backwards(self) -> bool:
        return self.older >= _FEW + _ENOUGH * self.newer


def sources(fold: Fold) -> set[str]:
    """Return the sources to read from their end."""
    by_source: dict[int, list[ProcessLog]] = {}
    for log in fold.processes.values():
        source = source_and_line(log.first)[0]
        if source == source_and_line(log.last)[0]:
            by_source.setdefault(source, []).append(log)
    return {fold.sources[source].name for source, logs in by_source.items() if _is_backwards(logs)}


def _is_backwards(logs: list[ProcessLog]) -> bool:
    orders = [_order(log) for log in islice(logs, _MAX_PROCESSES)]
    telling = [
        order_of_log for order_of_log in orders if order_of_log.newer + order_of_log.older > 1
    ]  # one step may lead from one run to another
    order = _Order(
        sum(order_of_log.newer for order_of_log in telling), sum(order_of_log.older for order_of_log in telling)
    )
    if order.is_backwards:
        return not _is_in_order(logs)  # what stands around lines may have the times of several clocks
    return order.newer < order.older + _FEW and _begins_at_the_end(logs)


def _order(log: ProcessLog) -> _Order:
    """Return the order of the lines with times of one clock."""
    if not (log.opening.time or log.final.time):
        return _Order(0, 0)
    times = [moment(time) for _, time in sorted(islice(_marks(log), _MAX_MARKS)) if time]
    steps = [
        after.seconds - before.seconds
        for before, after in pairwise(times)
        if before and after and are_in_order(before, after)
    ]
    return _Order(sum(step > 0 for step in steps), sum(step < 0 for step in steps))


def _marks(log: ProcessLog) -> Iterator[tuple[int, str | None]]:
    yield log.first, log.opening.time
    yield log.last, log.final.time
    for entry in (*log.steps, *log.notes.values()):
        yield entry.place, entry.origin.time


def _is_in_order(logs: list[ProcessLog]) -> bool:
    """Return whether what NCCL says in one order only, a process over its interface first, has that order."""
    telling = [log for log in logs if log.bootstraps and log.steps]
    return any(log.bootstraps[0] < min(step.place for step in log.steps) for log in telling) and not any(
        log.bootstraps[0] > max(step.place for step in log.steps) for log in telling
    )


def _begins_at_the_end(logs: Iterable[ProcessLog]) -> bool:
    """Return whether each process names its interface only after all else that has an order, and none completes."""
    telling = [log for log in logs if log.bootstraps and len(log.steps) >= _MIN_STEPS]
    return bool(telling) and all(
        log.bootstraps[0] > max(step.place for step in log.steps) and not _completes(log.steps) for log in telling
    )


def _completes(steps: Iterable[Step | Burst]) -> bool:
    """Return whether a communicator begins and is completed in this order."""
    begun: set[str] = set()
    for step in steps:
        if isinstance(step, Step) and isinstance(step.event, events.CommInit):
            if step.event.phase == "START":
                begun.add(step.event.comm)
            elif step.event.comm in begun:
                return True
    return False
