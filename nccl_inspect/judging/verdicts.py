"""The verdicts: of each path by the findings about it, and of the job by its findings and paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.results import Results
from nccl_inspect.model.finding import Entry, Finding, NotJudged, Suppressed
from nccl_inspect.model.inventory import Waiting
from nccl_inspect.model.job import FirstFailure, Job, Notice, PathKind, Paths
from nccl_inspect.model.paths.table import refine_kinds
from nccl_inspect.model.statements import usage
from nccl_inspect.util.records import Record, record


@record
class Judgement(Record):
    """The results of the rules, and what follows from them; the fields are those of the job."""

    rules: list[str]
    left_out: list[str]
    findings: list[Finding]
    suppressed: list[Suppressed]
    not_judged: list[NotJudged]
    unexplained: list[Notice]
    paths: Paths
    """Those of the job, with their verdicts."""
    withheld: int = 0
    """How many are unknown only because of rules that were left out."""
    platform: str | None = None
    likely_ranks: dict[int, int] = field(default_factory=dict)
    """The probable ranks of processes, by their position among the last lines."""
    waiting: Waiting | None = None
    verdict: str = "unknown"
    first_failure: FirstFailure | None = None
    story: list[Entry] = field(default_factory=list)

    def put_into(self, job: Job) -> None:
        """Write everything into the job that was judged."""
        job.rules, job.left_out = self.rules, self.left_out
        job.findings, job.suppressed, job.not_judged = self.findings, self.suppressed, self.not_judged
        job.unexplained, job.waiting, job.platform = self.unexplained, self.waiting, self.platform
        job.verdict, job.first_failure, job.story = self.verdict, self.first_failure, self.story
        job.paths, job.withheld = self.paths, self.withheld
        for position, rank in self.likely_ranks.items():
            job.last_lines[position].likely_rank = rank


_LOSS = "nccl/socket-closed-by-peer"


def judge_paths(
    facts: Facts,
    results: Results,
    findings: Iterable[Finding],
    counting: Iterable[Finding],
    suppressed: Iterable[Suppressed],
    left_out: Iterable[str],
) -> tuple[Paths, int]:
    """Return the paths with their verdicts, and the number of paths without one because of ignored rules.

    A path is not judged if an ignored rule has a finding about it.

    A finding that the user accepts is listed with its paths but does not make them bad. One that the user makes an info
    weighs less, which does not make its paths better.

    Args:
        facts: about the job.
        results: of all rules.
        findings: that are shown, with the severities that the user gives them.
        counting: the findings that are not accepted, with the severities that their rules gave them.
        suppressed: the findings that are accepted.
        left_out: ignored rules with findings.
    """
    worst: dict[str, int] = {entry.finding.rule: 0 for entry in suppressed}
    for finding in findings:
        weight = 0 if finding.severity == "info" else 1 if finding.confidence == "possible" else 2
        worst[finding.rule] = max(weight, worst.get(finding.rule, 0))
    faults = {finding.rule for finding in counting if finding.severity != "info" and finding.confidence != "possible"}
    hidden = set(left_out)
    rules = [tuple(name for name in mark.rules if name in worst) for mark in results.marks]
    verdicts = []
    withheld = set()
    for place, (mark, shown) in enumerate(zip(results.marks, rules, strict=True)):
        weight = 2 if faults.intersection(shown) else max((worst[name] for name in shown), default=0)
        if not weight and not mark.is_open and not hidden.isdisjoint(mark.rules):
            withheld.add(place)
        is_open = weight or mark.is_open or place in withheld
        verdicts.append("fallback" if weight == 2 else "unknown" if is_open else "ok")

    def judge_kind(kind: PathKind, place: int) -> PathKind:
        link, expected = facts.link(kind), facts.expected_transport(kind)
        path = kind.with_fields(link=link, expected=expected, verdict=verdicts[place], rules=rules[place])
        return path.with_fields(pair_class=None, on_fabric=False)

    number = sum(place in withheld for place in results.marking) if withheld else 0
    return refine_kinds(facts.paths_with_hardware, results.marking, judge_kind), number


def judge_job(job: Job, judgement: Judgement, *, is_dead: bool = False, is_waiting: bool = False) -> str:
    """``failed`` if the job is dead or stuck, ``degraded`` with a solid finding that costs time, else ``ok``.

    ``ok`` needs paths that are all judged, and good except for infos. Everything else is ``unknown``: no path, an
    unjudged path, unplaced connections, a finding that is only possible, a clue, an unexplained error, a finding of an
    ignored rule, a rank without a line, ranks that wait at the end of the log. An excerpt never shows that a job is
    healthy.

    Args:
        job: that is judged.
        judgement: its findings, and the verdicts of its paths.
        is_dead: a rank died of an error, whether or not a finding reports it.
        is_waiting: the log ends while ranks wait for each other: still starting, stuck, or cut there.
    """
    findings = judgement.findings
    everything = [*findings, *(entry.finding for entry in judgement.suppressed)]  # accepting a death does not undo it
    if any(f.fatal and f.confidence != "possible" for f in everything) or job.failed or is_dead:
        return "failed"
    if any(f.severity != "info" and f.confidence != "possible" and not f.clue for f in findings):
        return "degraded"
    doubts = bool(judgement.unexplained or job.unplaced_lines) or any(f.severity != "info" for f in findings)
    doubts |= is_waiting or _lost_a_rank(job) or _lacks_ranks(job)
    judged = bool(judgement.paths) and all(kind.verdict != "unknown" for kind in judgement.paths.kinds)
    return "ok" if judged and not doubts and not judgement.left_out and not job.excerpt else "unknown"


def _lacks_ranks(job: Job) -> bool:
    """Return whether ranks of the world have no line in the log, so that their paths are unknown."""
    if job.rank_space != "global" or len(job.ranks_seen) >= (job.world_size or 0):
        return False
    return all(last.ranks for last in job.last_lines)


def _lost_a_rank(job: Job) -> bool:
    """Return whether a peer closed a connection of a communicator that was not finalized."""
    is_over = usage.is_over(job) or not job.communicators
    return not is_over and any(notice.production == _LOSS for notice in job.notices)
