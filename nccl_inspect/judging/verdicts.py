"""The verdicts: of each path by what rules found about it, and of the job by its findings and paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.model.paths.table import refine
from nccl_inspect.model.statements import usage

_LOSS = "socket-closed-by-peer"


def judge_paths(facts: Facts, counting: Iterable[Finding]) -> None:
    """The verdict of each path; one with which a rule that was left out finds fault is not judged.

    A finding that the user accepts stands beside its paths and does not make them bad. One that the user calls an info
    weighs less, which does not make its paths any better.

    Args:
        facts: about the job.
        counting: the findings that are not accepted, with the severities that their rules gave them.
    """
    accepted = {entry.finding.rule for entry in facts.job.suppressed}
    by_rule: dict[str, list[Finding]] = {}
    for finding in facts.job.findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    faults = {finding.rule for finding in counting if finding.severity != "info" and finding.confidence != "possible"}
    left_out = set(facts.job.left_out)
    marks = facts.kinds_of_marks()
    rules = [tuple(name for name in mark.rules if name in by_rule or name in accepted) for mark in marks]
    verdicts = []
    withheld = set()
    for place, (mark, own) in enumerate(zip(marks, rules, strict=True)):
        worst = [finding for name in own for finding in by_rule.get(name, ()) if finding.severity != "info"]
        if faults.intersection(own) or any(finding.confidence != "possible" for finding in worst):
            verdicts.append("fallback")
        elif worst or mark.is_open:
            verdicts.append("unknown")
        elif left_out.intersection(mark.rules):
            verdicts.append("unknown")
            withheld.add(place)
        else:
            verdicts.append("ok")
    facts.job.withheld = sum(place in withheld for place in facts.marking) if withheld else 0
    refine(
        facts.job.paths.table,
        facts.marking,
        lambda kind, place: replace(kind, verdict=verdicts[place], rules=rules[place]),
    )


def of_job(job: Job, *, is_dead: bool = False, is_waiting: bool = False) -> str:
    """``failed`` when the job is dead or stuck, ``degraded`` with a sound finding that costs time, else ``ok``.

    ``ok`` needs paths, every one of them judged, and good but for what the user calls an info. ``unknown`` is what is
    left: no path, one that could not be judged, connections that could not be placed, something that is only possible,
    a clue, an error that no rule explains, a rule that is left out and finds fault, a rank without a line, ranks that
    wait where the log ends. An excerpt never shows that a job is sound.

    Args:
        job: with its findings.
        is_dead: a rank died of an error, whether a finding tells of it or not.
        is_waiting: the log ends while ranks wait for each other: still starting, stuck, or cut there.
    """
    everything = [*job.findings, *(entry.finding for entry in job.suppressed)]  # who accepts a death does not undo it
    if any(f.fatal and f.confidence != "possible" for f in everything) or job.failed or is_dead:
        return "failed"
    if any(f.severity != "info" and f.confidence != "possible" and not f.clue for f in job.findings):
        return "degraded"
    doubts = bool(job.unexplained or job.unplaced_lines) or any(f.severity != "info" for f in job.findings)
    doubts |= is_waiting or _lost_a_rank(job) or _lacks_ranks(job)
    judged = len(job.paths) > 0 and all(kind.verdict != "unknown" for kind in job.paths.kinds)
    return "ok" if judged and not doubts and not job.left_out and not job.excerpt else "unknown"


def _lacks_ranks(job: Job) -> bool:
    """Whether ranks of the world have no line in the log: what they would say of their paths is not known."""
    if job.rank_space != "global" or not job.world_size or any(not last.ranks for last in job.last_lines):
        return False
    return len(set(job.ranks_seen)) < job.world_size


def _lost_a_rank(job: Job) -> bool:
    """Whether a peer closed a connection of a communicator that has not come to its end."""
    is_over = usage.is_over(job) or not job.communicators
    return not is_over and any(notice.production == _LOSS for notice in job.notices)
