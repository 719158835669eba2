"""Findings about errors that say what failed: how much they matter follows from what became of the job."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.judging.process_ends.exceptions import came_up_below
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice

_SOUND = "none that this log shows: all communicators came to their end in order"
_LOSS = "nccl/socket-closed-by-peer"
"""A communicator does not survive the loss of a rank."""
_GOES_ON = "not shown: connections were made, and no call of NCCL is known to have failed. Where one did, {}"


def finding(
    rule: Rule,
    facts: Facts,
    said: list[Notice],
    summary: str,
    *,
    cause: str,
    stops: str,
    fix: Iterable[str],
    confirm: str,
    confidence: str = "likely",
    deadly: bool = False,
) -> Finding:
    """An error where nothing came up, a clue where the job may have gone on, an info where it came to its end.

    Args:
        rule: that found it.
        facts: about the job.
        said: what was said of it; nothing else needs to explain these statements.
        summary: what failed, in one line.
        cause: why.
        stops: what follows where NCCL cannot do without.
        fix: step by step.
        confirm: what tells whether it did harm.
        confidence: in the cause.
        deadly: whether no job goes on after it, also where its communicators were up.
    """
    if is_fatal(facts, said, deadly):
        return rule.finding(
            summary,
            cause=cause,
            impact=stops,
            fix=fix,
            severity="error",
            confidence=confidence,
            notices=said,
            explains_errors=said,
            fatal=True,
        )
    if facts.is_over():
        return rule.finding(
            summary,
            cause=cause,
            impact=_SOUND,
            fix=fix,
            severity="info",
            confidence=confidence,
            notices=said,
            explains_errors=said,
        )
    return rule.clue(
        summary,
        cause=cause,
        impact=_GOES_ON.format(stops),
        fix=fix,
        confirm=confirm,
        severity="warning",
        confidence="likely" if confidence == "certain" else confidence,
        notices=said,
        explains_errors=said,
    )


def is_fatal(facts: Facts, said: Iterable[Notice], deadly: bool = False) -> bool:
    """Whether a call of NCCL failed, peers were lost after it, or nothing that the log shows came up beside it."""
    if facts.job.failed:
        return True
    if facts.is_over():
        return False
    said = list(said)
    if deadly or _lost_after(facts, said):
        return True
    return not facts.job.paths and not all(came_up_below(facts, notice) for notice in said)


def _lost_after(facts: Facts, said: Iterable[Notice]) -> bool:
    """Whether ranks lost a connection below one of these errors."""
    first = first_of_each(one.evidence[0] for one in said)
    lines = (loss.evidence[0] for loss in facts.notices(_LOSS))
    return any(line.order > first.get(line.source, line.order) for line in lines)
