"""Runs the rules over a job, joins causes with their effects and gives the verdict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from nccl_inspect.discovery import modules
from nccl_inspect.errors import NcclInspectError, suggestion
from nccl_inspect.model import endings
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.records import Record
from nccl_inspect.rules import culprits, failure, verdicts
from nccl_inspect.rules.facts import Facts
from nccl_inspect.rules.statements import is_retold, value
from nccl_inspect.text import cut

if TYPE_CHECKING:
    from nccl_inspect.rules.accepted import Terms

SEVERITIES = ("info", "warning", "error")
CATEGORIES = (
    "intra-node path",
    "network",
    "gpudirect",
    "plugins",
    "bootstrap",
    "environment",
    "topology",
    "failures",
    "log quality",
)
_MAX_EVIDENCE = 5
_MAX_SUMMARY = 300
"""Characters; a summary may quote a message of any length, and the evidence holds all of it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rule(Record):
    """What a rule is; what it found is a :class:`~nccl_inspect.model.finding.Finding`."""

    name: str
    category: str
    severity: str
    """The usual severity; a finding may have another one, by its effect."""
    title: str
    """What is wrong, in one line."""
    because: tuple[str, ...] = ()
    """Rules whose finding, when present, is the cause of this one."""
    echo_of: tuple[str, ...] = ()
    """Of these rules the finding is but the effect: when one is present, it leads and this one folds under it."""
    specific: tuple[str, ...] = ()
    """More specific rules: when one of them found something, this one keeps silent."""
    leads: bool = False
    """Found only where it came first: what else ends the job is its effect, but for the rules that it is an echo of."""
    upsets: bool = False
    """What the same process reports after it is its effect, whatever that is elsewhere."""
    ends: bool = False
    """It tells why the job ended: that makes the headline before what only costs time."""
    symptom: bool = False
    """It tells where something failed, not why: each other finding that tells why the job ended leads before it."""
    folds: bool = False
    """A cause that is told under the slow path it leads to, when there is one: the effect makes the headline."""
    local: bool = False
    """The fault lies with the ranks and hosts that it names; they do not merely suffer from that of others."""

    def finding(
        self,
        summary: str,
        *,
        cause: str,
        impact: str,
        fix: Iterable[str],
        severity: str | None = None,
        confidence: str = "certain",
        ranks: Iterable[int] = (),
        hosts: Iterable[str | None] = (),
        evidence: Iterable[Evidence] = (),
        fatal: bool = False,
    ) -> Finding:
        """A finding of this rule: one for each cause, with its evidence cut to the first lines."""
        return Finding(
            rule=self.name,
            category=self.category,
            severity=severity or self.severity,
            confidence=confidence,
            summary=cut(" ".join(summary.split()), _MAX_SUMMARY),
            cause=cause,
            impact=impact,
            fix=list(fix),
            ranks=sorted(set(ranks)),
            hosts=sorted({host for host in hosts if host}),
            evidence=_in_order(evidence)[:_MAX_EVIDENCE],
            fatal=fatal,
        )

    def clue(
        self,
        summary: str,
        *,
        cause: str,
        impact: str,
        fix: Iterable[str],
        confirm: str,
        severity: str | None = None,
        confidence: str = "likely",
        ranks: Iterable[int] = (),
        hosts: Iterable[str | None] = (),
        evidence: Iterable[Evidence] = (),
    ) -> Finding:
        """A finding that rests on a statement, a setting or an inventory: the log does not show the effect.

        It never makes the verdict of a job ``degraded`` or ``failed``; where nothing else does, the verdict is
        ``unknown``, and the headline leads with the strongest clue.

        Args:
            summary: what the log suggests, in one line.
            cause: why.
            impact: what it costs if it is so.
            fix: what must be changed, step by step.
            confirm: what would confirm or refute it: a line to look for, a command, a setting for the next run.
            severity: that of the effect, one step lower; None for that of the rule.
            confidence: ``likely`` where the statement hardly leaves another reading, else ``possible``.
            ranks: that it is about.
            hosts: that it is about.
            evidence: the lines that suggest it.
        """
        found = self.finding(
            summary,
            cause=cause,
            impact=impact,
            fix=fix,
            severity=severity,
            confidence=confidence,
            ranks=ranks,
            hosts=hosts,
            evidence=evidence,
        )
        found.clue = True
        found.confirm = confirm
        return found

    def undecided(self, reason: str, needs: str) -> NotJudged:
        """A question that the log leaves open, with what would answer it."""
        return NotJudged(self.name, reason, needs)

    @property
    def page(self) -> str:
        """The Markdown page of the rule."""
        return (Path(__file__).parent / f"{self.name.replace('-', '_')}.md").read_text(encoding="utf-8")


def _in_order(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Each line once: one may tell of a rank both that it waited and that it lags."""
    lines = {(line.source, line.order): line for line in evidence}
    return [lines[place] for place in sorted(lines)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Registered(Record):
    """A rule with its judgement."""

    rule: Rule
    judge: Callable[[Facts], Iterable[Finding | NotJudged]]


@cache
def registered() -> tuple[Registered, ...]:
    """All rules, ordered by category and name."""
    found = []
    for name in _with_page():
        loaded = import_module(f"nccl_inspect.rules.{name}")
        found.append(Registered(loaded.RULE, loaded.judge))
    return tuple(sorted(found, key=lambda entry: (CATEGORIES.index(entry.rule.category), entry.rule.name)))


def _with_page() -> list[str]:
    """The modules that are rules: each has its page beside it, what several rules share has none."""
    beside = {entry.name for entry in os.scandir(Path(__file__).parent)}
    return [name for name in modules(__file__) if f"{name}.md" in beside]


def selected(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> list[Registered]:
    """The rules that are to run.

    Args:
        select: names, globs or categories; nothing selects all.
        ignore: likewise, taken away from the selected.

    Raises:
        NcclInspectError: a pattern fits no rule.
    """
    wanted, unwanted = _expand(select), _expand(ignore)
    return [
        entry for entry in registered() if (not wanted or entry.rule.name in wanted) and entry.rule.name not in unwanted
    ]


def _expand(patterns: Iterable[str]) -> set[str]:
    names: set[str] = set()
    for pattern in patterns:
        fits = {
            entry.rule.name
            for entry in registered()
            if fnmatchcase(entry.rule.name, pattern) or entry.rule.category == pattern.lower()
        }
        if not fits:
            known = [entry.rule.name for entry in registered()]
            raise NcclInspectError(
                f"no rule '{pattern}'",
                suggestion(pattern, known) or "see 'nccl-inspect rules' for names and categories",
            )
        names |= fits
    return names


def judge(facts: Facts, rules: Iterable[Registered], terms: Terms | None = None) -> None:
    """Run the rules and put findings, what was not judged, path verdicts and the verdict into the job.

    Args:
        facts: about the job.
        rules: that are to run.
        terms: how the user wants findings to be taken; None as their rules say.
    """
    wanted = {entry.rule.name for entry in rules}
    found: list[Finding] = []
    open_questions: list[NotJudged] = []
    for entry in registered():
        for result in entry.judge(facts):
            (open_questions if isinstance(result, NotJudged) else found).append(result)  # type: ignore[arg-type]
    # What rules that are left out have to say is not told, but while they find fault nothing is called good.
    facts.job.left_out = sorted({f.rule for f in found if f.rule not in wanted and f.severity != "info"})
    by_name = {entry.rule.name: entry.rule for entry in registered()}
    looked_for = {finding.rule for finding in found if finding.rule in wanted}
    kept = [f for f in found if f.rule in wanted and not looked_for & set(by_name[f.rule].specific)]
    kept = _without_retold(kept, by_name)
    culprits.locate(facts, kept, [entry.rule.name for entry in registered() if entry.rule.local])
    counting = kept
    if terms:
        counting, _ = terms.parted(kept)
        kept, facts.job.suppressed = terms.parted(terms.weighed(kept))
    accepted = {entry.finding.rule for entry in facts.job.suppressed}
    present = {finding.rule: SEVERITIES.index(finding.severity) for finding in kept}
    leaders = [by_name[name] for name in present if by_name[name].leads]
    reasons = [by_name[f.rule] for f in kept if f.fatal and not by_name[f.rule].symptom]
    upset = [f for f in kept if by_name[f.rule].upsets and f.fatal]
    before = [[by_name[one.rule] for one in upset if failure.follows(facts, f, one)] for f in kept]
    joined = [
        _joined(f, by_name[f.rule], present, accepted, [*(reasons if by_name[f.rule].symptom else leaders), *first])
        for f, first in zip(kept, before, strict=True)
    ]
    worst = {finding.rule: _worst(finding, joined, by_name) for finding in joined}
    aside = accepted | {finding.rule for finding in found if finding.rule not in wanted}
    facts.job.findings = sorted(joined, key=lambda f: _order(f, by_name[f.rule], worst[f.rule], aside))
    facts.job.rules = sorted(wanted)
    # Where what a rule asks about is but the effect of another finding, its question is answered.
    facts.job.not_judged = [
        question
        for question in open_questions
        if question.rule in wanted and not present.keys() & by_name[question.rule].echo_of
    ]
    verdicts.judge_paths(facts, counting)
    facts.job.unexplained = _unexplained(facts, found)
    facts.job.verdict = verdicts.of_job(facts.job)
    facts.job.first_failure = failure.first(facts)


def _without_retold(findings: list[Finding], by_name: dict[str, Rule]) -> list[Finding]:
    """The findings without symptoms of which each line is shown by another one, which says more of it."""
    saying_more = [one for one in findings if not by_name[one.rule].symptom and one.category != CATEGORIES[-1]]
    told = {(line.source, line.order) for one in saying_more for line in one.evidence}
    return [
        one
        for one in findings
        if not by_name[one.rule].symptom or not told.issuperset((line.source, line.order) for line in one.evidence)
    ]


def _unexplained(facts: Facts, findings: list[Finding]) -> list[Notice]:
    """Errors that no finding shows; a finding that shows one of a kind shows all of it, unless it is about the log.

    Where a finding tells why the job is dead, what PyTorch and launchers say of that needs no other explanation. Where
    none does, every warning may: also one that is harmless elsewhere.

    Args:
        facts: about the job.
        findings: of all rules, also those that are not told: a rule explains the error, whoever wants to hear it.
    """
    about_the_job = [finding for finding in findings if finding.category != CATEGORIES[-1]]
    told = {(line.source, line.order) for finding in about_the_job for line in finding.evidence}
    shown = {id(notice) for notice in facts.job.notices if any((e.source, e.order) in told for e in notice.evidence)}
    kinds = {_kind(notice) for notice in facts.job.notices if notice.event and id(notice) in shown}
    why = any(finding.fatal for finding in about_the_job)
    errors = set(map(id, facts.errors()))
    left = [
        notice
        for notice in facts.job.notices
        if (id(notice) in errors or (facts.job.failed and not why and notice.level == "WARN"))
        and id(notice) not in shown
        and _kind(notice) not in kinds
        and not facts.is_echo(notice)
    ]
    dead = any(finding.fatal and finding.confidence != "possible" for finding in about_the_job)
    return [one for one in left if not (why and is_retold(one)) and not (dead and endings.is_forced(one.event))]


def _kind(notice: Notice) -> tuple[str, object]:
    """What makes errors the same: the wording, and the status in it, which tells apart what NICs report."""
    return notice.production, value(notice, "status")


def _joined(
    finding: Finding, rule: Rule, present: dict[str, int], accepted: set[str], leaders: Iterable[Rule]
) -> Finding:
    """The finding with its causes: first those that lead.

    Args:
        finding: as its rule gave it.
        rule: its rule.
        present: rules with findings, and their severities.
        accepted: rules with findings that the user accepts.
        leaders: rules with findings that came first, in this job or before this finding; for a symptom, all that tell
            why the job ended.
    """
    own = SEVERITIES.index(finding.severity)
    # What the user made less severe than its effect does not hide it.
    first = [one.name for one in leaders if finding.fatal and rule.name != one.name and rule.name not in one.echo_of]
    leads = [name for name in (*rule.echo_of, *first) if present.get(name, -1) >= own]
    causes = [name for name in (*rule.echo_of, *first, *rule.because) if name in present or name in accepted]
    causes = sorted(dict.fromkeys([*leads, *causes]), key=lambda name: name not in present)
    return replace(finding, because=[name for name in causes if name != finding.rule], root=not leads)


def _worst(finding: Finding, findings: list[Finding], by_name: dict[str, Rule]) -> int:
    """How severe it is, together with the causes that are told under it: a slow path leads, whatever leads to it."""
    under = [other for other in findings if other.rule in finding.because and by_name[other.rule].folds]
    return max(SEVERITIES.index(other.severity) for other in (finding, *under))


def _order(finding: Finding, rule: Rule, severity: int, aside: set[str]) -> tuple[object, ...]:
    """Roots before echoes, the job before its log, the dead before the slow, the sure before the possible.

    Args:
        finding: with its causes.
        rule: its rule.
        severity: its own, or that of what is told under it.
        aside: rules whose findings are accepted or not asked for; their effects stand behind the roots that are told.
    """
    confidence = ("certain", "likely", "possible").index(finding.confidence)
    about_log = rule.category == CATEGORIES[-1]
    is_effect = not finding.root or not aside.isdisjoint(rule.echo_of)
    return (
        not finding.root,
        is_effect,
        about_log,
        not (finding.fatal or rule.ends),
        -severity,
        rule.folds,
        confidence,
        finding.rule,
    )
