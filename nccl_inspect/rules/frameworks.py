"""What PyTorch, JAX, TensorFlow and Horovod say of calls that they refuse, and of processes that others wait for."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging import exceptions
from nccl_inspect.judging.check import Effects, Facts, Hit, Notice, first_evidence, value
from nccl_inspect.util.grouping import group_values

_NAMES_BELOW = 4
"""Lines below a report in which it names a task."""
_STILL = 12
"""Lines from a report to the end of the log, if those who wait were still waiting there."""


def torch_call_refused(facts: Facts) -> Iterator[Hit | Effects]:
    """Find the exceptions, unless the program continued."""
    notices = facts.errors_of_rule("torch-call-refused")
    caught = [notice for notice in notices if exceptions.is_survived(facts, notice)]
    yield Effects(caught)
    kinds = group_values((notice.production, notice) for notice in notices if notice not in caught)
    for some in kinds.values():
        ranks = {
            rank for notice in some for name in ("global_rank", "rank") if (rank := value(notice, name)) is not None
        }
        yield Hit(some, ranks=ranks, hosts=())


def task_lost(facts: Facts) -> Iterator[Hit]:
    """Find what says that processes no longer answer, with the names that it has in its own line or below."""
    notices = facts.errors_of_rule("task-lost")
    named = [notice for notice in notices if value(notice, "task") is not None]
    named += [
        one
        for one in facts.notices("frameworks/task-named", "frameworks/task-of-error")
        if any(_is_near(notice, one, _NAMES_BELOW) for notice in notices)
    ]
    tasks = dict.fromkeys(f"task {value(one, 'task')} of {value(one, 'job')}" for one in named)
    if notices:
        yield Hit(notices, {"tasks": list(tasks)}, evidence=first_evidence([*notices[:2], *named]))


def xla_rendezvous_stuck(facts: Facts) -> Iterator[Hit]:
    """Find threads that gave up, or waited at the end of the log."""
    ended = facts.errors_of_rule("xla-rendezvous-stuck")
    unstuck = facts.notices("frameworks/rendezvous-unstuck")
    waits = [
        one for one in facts.notices("frameworks/rendezvous-waits") if not any(one.place < end.place for end in unstuck)
    ]
    if ended or waits:
        known = {"ended": ended, "still": _is_still(facts, waits)}
        yield Hit(ended or waits[-1:], known, evidence=first_evidence([*ended[:1], *waits[-1:]]))


def horovod_stalled(facts: Facts) -> Iterator[Hit]:
    """Find the ranks that did not submit what the others did."""
    ended, stalls = facts.errors_of_rule("horovod-stalled"), facts.notices("frameworks/horovod-stalled")
    names = facts.notices("frameworks/horovod-missing-rank", "frameworks/horovod-stalled-tensor")
    if not (ended or stalls) or facts.is_over():
        return
    texts = [str(value(one, "late") or value(one, "ranks") or "") for one in names]
    ranks = {int(rank) for text in texts for rank in text.rstrip("!").split(", ") if rank.isdigit()}
    known = {"late": ranks, "ended": ended, "still": _is_still(facts, stalls)}
    yield Hit([*ended, *stalls], known, ranks=ranks, hosts=(), evidence=first_evidence([*stalls[:1], *names, *ended]))


def _is_near(notice: Notice, below: Notice, most: int) -> bool:
    """Return whether a line of a statement is just below one of another."""
    return any(
        line.source == other.source and 0 < other.order - line.order <= most
        for line in notice.evidence
        for other in below.evidence
    )


def _is_still(facts: Facts, waits: list[Notice]) -> bool:
    """Return whether the log ends soon after the last of these statements."""
    if not waits or waits[-1].count > len(waits[-1].evidence):
        return bool(waits)
    last = waits[-1].evidence[-1]
    return any(source.name == last.source and source.lines - last.order <= _STILL for source in facts.job.sources)
