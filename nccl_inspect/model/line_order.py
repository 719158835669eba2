"""Tells sources whose newest line comes first, as log explorers export them, from those in the order of writing.

What a process printed has descending times there; where lines have none, it says over which interface it bootstraps
after it has begun communicators. A few lines out of order, clocks that differ between hosts and containers that were
restarted processes prove nothing.
"""

from __future__ import annotations

from itertools import chain, islice, pairwise

from nccl_inspect.event import types as events
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.model.fold.process_log import ProcessLog, source_and_line
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.times import are_in_order, moment

_MAX_PROCESSES = 64
_MAX_MARKS = 200  # lines of a process that are looked at
_FEW, _ENOUGH = 3, 10  # lines older than the one before: this many if none is newer, or this many for each one that is
_MIN_STEPS = 2


def sources(fold: Fold) -> set[str]:
    """Return the sources to read from their end."""
    logs = fold.processes.values()
    sources = ((source_and_line(log.first)[0], source_and_line(log.last)[0], log) for log in logs)
    by_source = group_values((first, log) for first, last, log in sources if first == last)
    return {fold.sources[source].name for source, logs in by_source.items() if _is_backwards(logs)}


def _is_backwards(logs: list[ProcessLog]) -> bool:
    counts = [_count_steps(log) for log in islice(logs, _MAX_PROCESSES)]
    telling = [(newer, older) for newer, older in counts if newer + older > 1]  # one may lead from one run to another
    newer, older = sum(newer for newer, _ in telling), sum(older for _, older in telling)
    is_older = older >= _FEW + _ENOUGH * newer
    if not is_older and newer >= older + _FEW:
        return False
    # What NCCL says in one order only: over its interface a process bootstraps before all else.
    named = [
        (log, log.bootstraps[0], [step.place for step in log.steps]) for log in logs if log.bootstraps and log.steps
    ]
    if is_older:  # what stands around lines may have the times of several clocks
        return not any(first < min(places) for _, first, places in named) or any(
            first > max(places) for _, first, places in named
        )
    named = [entry for entry in named if len(entry[2]) >= _MIN_STEPS]
    if not named or any(first <= max(places) for _, first, places in named):
        return False
    for log, _, _ in named:  # none begins a communicator and then completes it
        begun: set[str] = set()
        for event in (step.event for step in log.steps if isinstance(step.event, events.CommInit)):
            if event.phase == "START":
                begun.add(event.comm)
            elif event.comm in begun:
                return False
    return True


def _count_steps(log: ProcessLog) -> tuple[int, int]:
    """Return how often the next line is newer, and how often older, by times of one clock."""
    if not (log.opening.time or log.closing.time):
        return 0, 0
    ends = [(log.first, log.opening.time), (log.last, log.closing.time)]
    marks = chain(ends, ((entry.place, entry.printed.time) for entry in (*log.steps, *log.notes.values())))
    times = [moment(time) for _, time in sorted(islice(marks, _MAX_MARKS)) if time]
    steps = [
        after.seconds - before.seconds
        for before, after in pairwise(times)
        if before and after and are_in_order(before, after)
    ]
    return sum(step > 0 for step in steps), sum(step < 0 for step in steps)
