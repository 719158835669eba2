"""Changes of findings: new, gone, or about other ranks or of another severity."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.extras.gate.differences import Change
from nccl_inspect.judging.culprit_words import subject
from nccl_inspect.judging.engine import SEVERITIES
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.util.wording import ranges


def changes(a: Job, b: Job, pairwise: bool, open_questions: list[str]) -> Iterator[Change]:
    """Compare findings of the same rule, those with the same words first.

    Args:
        a: before.
        b: after.
        pairwise: whether ranks mean the same in both.
        open_questions: gets the findings of A that could not be judged in B.
    """
    left = list(b.findings)
    unjudged = {question.rule for question in b.not_judged}
    if not len(b.paths):
        unjudged.update(rule for kind in a.paths.kinds for rule in kind.rules)
    pairs = []
    twins = {(finding.rule, finding.summary) for finding in b.findings}
    for finding in sorted(a.findings, key=lambda old: (old.rule, old.summary) not in twins):
        partner = _partner(finding, left)
        if partner:
            left = [other for other in left if other is not partner]
        pairs.append((finding, partner))
    for old, new in pairs:
        if new:
            yield from _changed(old, new, pairwise)
        elif old.rule in unjudged:
            open_questions.append(f"{old.rule}: found in A; the log of B does not show it")
        else:
            yield _change(old, _words(old), None)
    for finding in left:
        yield _change(finding, None, _words(finding))


def worse(a: Job, b: Job, limit: str) -> list[Finding]:
    """Findings of B at or above a severity that A does not have, or has at a lower one."""
    left = list(a.findings)
    findings = []
    for finding in b.findings:
        partner = _partner(finding, left)
        if partner:
            left = [other for other in left if other is not partner]
        level = SEVERITIES.index(finding.severity)
        if level >= SEVERITIES.index(limit) and not (partner and SEVERITIES.index(partner.severity) >= level):
            findings.append(finding)
    return findings


def _partner(finding: Finding, others: list[Finding]) -> Finding | None:
    """The finding of the other run that is about the same thing."""
    alike = [other for other in others if other.rule == finding.rule]
    return next((other for other in alike if other.summary == finding.summary), alike[0] if alike else None)


def _words(finding: Finding) -> str:
    """A finding that only one run has, with where it is."""
    return f"{finding.severity}: {finding.summary}" + (f"; {finding.where}" if finding.where else "")


def _changed(old: Finding, new: Finding, pairwise: bool) -> Iterator[Change]:
    before, after = (f"{finding.severity}, {finding.confidence}" for finding in (old, new))
    if before != after:
        yield _change(new, before, after)
    if pairwise and old.ranks != new.ranks:
        yield _change(new, *map(_about, (old, new)))


def _about(finding: Finding) -> str:
    """The ranks of a finding, and what they have in common."""
    ranks = f"ranks {ranges(finding.ranks) or 'unknown'}"
    return f"{ranks} ({subject(finding.culprits)})" if finding.culprits else ranks


def _change(finding: Finding, before: str | None, after: str | None) -> Change:
    return Change(
        area="findings",
        what=finding.rule,
        before=before,
        after=after,
        ranks=finding.ranks,
        rules=finding.because,
        evidence=finding.evidence,
        severity=finding.severity,
        fix=finding.fix if before is None and finding.severity != "info" else [],
    )
