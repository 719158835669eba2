"""Findings about errors that name what failed: their severity follows from how the job continued."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.exceptions import came_up_below
from nccl_inspect.judging.facts import Facts, first_of_each
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice

_SOUND = "none visible in this log: all communicators were finalized in order"
_LOSS = "nccl/socket-closed-by-peer"
"""A communicator does not survive the loss of a rank."""
_CONTINUES = "not shown: connections were made, and no call of NCCL is known to have failed. Where one did, {}"


def finding(
    rule: Rule,
    facts: Facts,
    notices: list[Notice],
    summary: str,
    *,
    cause: str,
    stops: str,
    fix: Iterable[str],
    confirm: str,
    confidence: str = "likely",
    deadly: bool = False,
) -> Finding:
    """Return an error if the job failed, a clue if it may have continued, an info if it ended in order.

    Args:
        notices: the statements about it; nothing else needs to explain them.
        stops: the impact if NCCL cannot continue without it.
        confirm: how to check whether it did harm.
        deadly: no job survives it, even with its communicators up.
    """
    fatal = is_fatal(facts, notices, deadly)
    is_clue = not (fatal or facts.is_over())
    return rule.finding(
        summary,
        cause=cause,
        impact=stops if fatal else _CONTINUES.format(stops) if is_clue else _SOUND,
        fix=fix,
        confirm=confirm if is_clue else "",
        severity="error" if fatal else "warning" if is_clue else "info",
        confidence="likely" if is_clue and confidence == "certain" else confidence,
        notices=notices,
        explains_errors=notices,
        fatal=fatal,
    )


def is_fatal(facts: Facts, notices: Iterable[Notice], deadly: bool = False) -> bool:
    """Return whether a call of NCCL failed, peers were lost after it, or no connection came up despite it."""
    if facts.job.failed:
        return True
    if facts.is_over():
        return False
    notices = list(notices)
    if deadly or _lost_after(facts, notices):
        return True
    return not facts.job.paths and not all(came_up_below(facts, notice) for notice in notices)


def _lost_after(facts: Facts, notices: Iterable[Notice]) -> bool:
    """Return whether ranks lost a connection below one of these errors."""
    first = first_of_each(notice.evidence[0] for notice in notices)
    lines = (loss.evidence[0] for loss in facts.notices(_LOSS))
    return any(line.order > first.get(line.source, line.order) for line in lines)
