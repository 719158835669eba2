"""The verdicts: of each path by what rules found about it, and of the job by its findings and paths."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.judging.judgement import Judgement, PathVerdict
from nccl_inspect.judging.results import Results
from nccl_inspect.model.finding import Finding, Suppressed
from nccl_inspect.model.job import Job, Path
from nccl_inspect.model.statements import usage

_LOSS = "nccl/socket-closed-by-peer"


def of_paths(
    paths: Iterable[Path],
    results: Results,
    findings: Iterable[Finding],
    counting: Iterable[Finding],
    suppressed: Iterable[Suppressed],
    left_out: Iterable[str],
) -> list[PathVerdict]:
    """The verdict of each path; one with which a rule that was left out finds fault is not judged.

    A finding that the user accepts stands beside its paths and does not make them bad. One that the user calls an info
    weighs less, which does not make its paths any better.

    Args:
        paths: of the job.
        results: of all rules.
        findings: that are shown, with the severities that the user gives them.
        counting: the findings that are not accepted, with the severities that their rules gave them.
        suppressed: the findings that are accepted.
        left_out: rules that were not asked for and find fault.
    """
    worst: dict[str, int] = {entry.finding.rule: 0 for entry in suppressed}
    for finding in findings:
        weight = 0 if finding.severity == "info" else 1 if finding.confidence == "possible" else 2
        worst[finding.rule] = max(weight, worst.get(finding.rule, 0))
    faults = {finding.rule for finding in counting if finding.severity != "info" and finding.confidence != "possible"}
    hidden = set(left_out)

    def judged(path: Path) -> PathVerdict:
        marks = results.marks(path)
        rules = [name for name in marks if name in worst]
        weight = 2 if faults.intersection(rules) else max((worst[name] for name in rules), default=0)
        if weight == 2:
            return PathVerdict("fallback", rules)
        if weight or results.is_open(path):
            return PathVerdict("unknown", rules)
        is_withheld = not hidden.isdisjoint(marks)
        return PathVerdict("unknown" if is_withheld else "ok", rules, is_withheld)

    return list(map(judged, paths))


def of_job(job: Job, judgement: Judgement, *, is_dead: bool = False, is_waiting: bool = False) -> str:
    """``failed`` when the job is dead or stuck, ``degraded`` with a sound finding that costs time, else ``ok``.

    ``ok`` needs paths, every one of them judged, and good but for what the user calls an info. ``unknown`` is what is
    left: no path, one that could not be judged, connections that could not be placed, something that is only possible,
    a clue, an error that no rule explains, a rule that is left out and finds fault, a rank without a line, ranks that
    wait where the log ends. An excerpt never shows that a job is sound.

    Args:
        job: that is judged.
        judgement: its findings, and the verdicts of its paths.
        is_dead: a rank died of an error, whether a finding tells of it or not.
        is_waiting: the log ends while ranks wait for each other: still starting, stuck, or cut there.
    """
    findings = judgement.findings
    everything = [*findings, *(entry.finding for entry in judgement.suppressed)]  # who accepts a death does not undo it
    if any(f.fatal and f.confidence != "possible" for f in everything) or job.failed or is_dead:
        return "failed"
    if any(f.severity != "info" and f.confidence != "possible" and not f.clue for f in findings):
        return "degraded"
    doubts = bool(judgement.unexplained or job.unplaced_lines) or any(f.severity != "info" for f in findings)
    doubts |= is_waiting or _lost_a_rank(job) or _lacks_ranks(job)
    judged = bool(judgement.paths) and all(path.verdict != "unknown" for path in judgement.paths)
    return "ok" if judged and not doubts and not judgement.left_out and not job.excerpt else "unknown"


def _lacks_ranks(job: Job) -> bool:
    """Whether ranks of the world have no line in the log: what they would say of their paths is not known."""
    if job.rank_space != "global" or not job.world_size or any(not last.ranks for last in job.last_lines):
        return False
    return len(set(job.ranks_seen)) < job.world_size


def _lost_a_rank(job: Job) -> bool:
    """Whether a peer closed a connection of a communicator that has not come to its end."""
    is_over = usage.is_over(job) or not job.communicators
    return not is_over and any(notice.production == _LOSS for notice in job.notices)
