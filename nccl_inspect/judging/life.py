"""Signs of life: what shows that a job worked below a line, so that what is said there did not end it.

A step, a result of a benchmark or an answer of a server is such a sign. Who prints it is unknown: it may be a process
that has not yet lost the others, so that it makes a failure doubtful. Only work below the line with which a launcher
starts all processes anew proves that they live; a server that comes up may be another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_failure
from nccl_inspect.model.statements.job_failure import shows_work

_STILL = 12
"""Lines from a report to the end of the log, if those who wait were still waiting there."""
_BEGINNING = (events.BootstrapInterface, events.CudaDriver, events.NcclVersion, events.NetDevices, events.OfiPlatform)
"""What a process prints before it starts a communicator."""


@once
def find_begun(facts: Facts) -> set[Process]:
    """Return the processes of which the log has the beginning: a tail of it lacks that."""
    return {process for kind in _BEGINNING for notice in facts.with_event(kind) for process in notice.processes}


def works_below(facts: Facts, notices: Iterable[Notice]) -> bool:
    """Return whether work was done after each of these statements was last made, as far as their sources show."""
    return _are_above(notices, last_signs(facts))


def succeeded_below(facts: Facts, notices: Iterable[Notice]) -> bool:
    """Return whether the program reported success after each of these statements was last made."""
    return _are_above(notices, successes(facts))


def _are_above(notices: Iterable[Notice], ends: Mapping[str, int]) -> bool:
    places = list(_last_places(notices))
    return bool(places) and all(ends.get(source, 0) > last for source, last in places)


def is_still(facts: Facts, waits: Iterable[Notice]) -> bool:
    """Return whether the log ends soon after one of these statements was last made, without a sign of life below."""
    signs, ends = last_signs(facts), {source.name: source.lines for source in facts.job.sources}
    return any(
        ends.get(source, 0) - last <= _STILL and signs.get(source, 0) < last for source, last in _last_places(waits)
    )


def worked_last(facts: Facts) -> bool:
    """Return whether work was done below NCCL's last line of each source: all that was begun there came up."""
    signs, lasts = last_signs(facts), facts.job.last_lines
    return bool(lasts) and all(signs.get(last.source, 0) > last.order for last in lasts)


@once
def revivals(facts: Facts) -> dict[str, int]:
    """Return where a launcher last began all processes of each source anew, if they worked and nothing failed below."""
    if facts.job.failed or facts.with_role("gives-up"):
        return {}
    signs, starts = last_signs(facts), sorted(_last_places(facts.with_role("restart")))
    found = {source: place for source, place in starts if signs.get(source, 0) > place}
    ends = facts.with_event(events.ProcessEnded, lambda event: not event.is_external)
    lost = [notice for notice in facts.job.notices if job_failure.reason(notice.event) == job_failure.NODE_FAILURE]
    failures = [*facts.errors(forced_ends=False), *facts.with_role("program-exception"), *ends, *lost]
    failed = [*_last_places(failures), *(line.position for line in facts.job.raised)]
    return found if all(last < found.get(source, 0) for source, last in failed) else {}


def is_outlived(facts: Facts, lines: Iterable[Evidence]) -> bool:
    """Return whether all processes began anew below these lines, and worked from then on.

    Where NCCL shows how ranks begin, it would show that of the new ones, too: work without it is late output of others.
    """
    if not (places := revivals(facts)):
        return False
    began = dict(sorted((last.source, last.first) for last in facts.job.last_lines if last.ranks))
    return all(line.order < min(places.get(line.source, 0), began.get(line.source, line.order + 1)) for line in lines)


@once
def successes(facts: Facts) -> dict[str, int]:
    """Return where each source says that the program reached its goal; empty if work, new ranks or a start follow."""
    ends = dict(sorted(_last_places(facts.with_role("succeeded"))))
    starts = ((last.source, last.first) for last in facts.job.last_lines if last.ranks)
    begun = [*last_signs(facts).items(), *starts, *_last_places(facts.with_role("program-begins"))]
    is_last = all(place < ends.get(source, 0) for source, place in begun)
    return ends if is_last and not facts.job.is_one_of_several else {}


@once
def last_signs(facts: Facts) -> dict[str, int]:
    """Return the last sign of life in each source, which may be that of another job where several print there."""
    shown = [line.position for line in facts.job.benchmarks if shows_work(line.text)]
    stated = [*facts.with_role("works"), *facts.with_event(events.NcclTestResult)]
    return dict(sorted([*shown, *_last_places(stated)]))


def _last_places(notices: Iterable[Notice]) -> Iterator[tuple[str, int]]:
    """Yield where each of the processes last made a statement."""
    for notice in notices:
        yield from ((line.source, last) for line, last in zip(notice.lines, notice.until, strict=True))
