"""Runs the rules over a job, joins causes with their effects and gives the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from nccl_inspect.judging import culprits, first_failure, placeholders, placement, results, verdicts
from nccl_inspect.judging.engine import CATEGORIES, SEVERITIES, Registered, Rule, registered
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.hangs import standstill
from nccl_inspect.judging.judgement import Judgement
from nccl_inspect.judging.process_ends import last_words
from nccl_inspect.judging.relations import relations
from nccl_inspect.judging.results import Results
from nccl_inspect.judging.statements import is_retold, value
from nccl_inspect.model.finding import Finding, NotJudged, Suppressed
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_end

if TYPE_CHECKING:
    from nccl_inspect.judging.accepted import Terms

_MAX_STEPS = 4
"""Steps that a finding proposes, the likeliest first; the page of its rule has all."""


def judge(facts: Facts, rules: Iterable[Registered], terms: Terms | None = None) -> Judgement:
    """Run the rules over a job.

    Args:
        facts: about the job.
        rules: that are to run.
        terms: how the user wants findings to be taken; None as their rules say.
    """
    wanted = {entry.rule.name for entry in rules}
    by_name = {entry.rule.name: entry.rule for entry in registered()}
    returned = results.of(facts, registered())
    found = returned.findings
    # What rules that are left out have to say is not told, but while they find fault nothing is called good.
    left_out = sorted({f.rule for f in found if f.rule not in wanted and f.severity != "info"})
    kept = _settled(facts, _confirmed(_without_retold(_without_general(found, wanted), by_name)))
    kept = last_words.made_fatal(facts, kept)
    culprits.locate(facts, returned, kept, [name for name, rule in by_name.items() if rule.local])
    kept = [replace(finding, fix=finding.fix[:_MAX_STEPS]) for finding in kept]
    placeholders.fill(facts, kept)
    counting = kept
    suppressed: list[Suppressed] = []
    if terms:
        counting, _ = terms.parted(kept)
        kept, suppressed = terms.parted(terms.weighed(kept))
    accepted = {entry.finding.rule for entry in suppressed}
    aside = accepted | {finding.rule for finding in found if finding.rule not in wanted}
    findings = _sorted(_with_causes(facts, kept, by_name, accepted), by_name, aside)
    paths, withheld = verdicts.of_paths(facts, returned, findings, counting, suppressed, left_out)
    judgement = Judgement(
        rules=sorted(wanted),
        left_out=left_out,
        findings=findings,
        suppressed=suppressed,
        not_judged=_open(returned.questions, wanted, {finding.rule for finding in kept}),
        unexplained=_unexplained(facts, returned),
        paths=paths,
        withheld=withheld,
        platform=facts.platform.name if facts.platform else None,
        likely_ranks=placement.likely_ranks(facts),
        waiting=standstill.of(facts),
    )
    is_dead, is_waiting = last_words.is_death(facts), standstill.is_at_the_end(facts)
    judgement.verdict = verdicts.of_job(facts.job, judgement, is_dead=is_dead, is_waiting=is_waiting)
    judgement.first_failure = first_failure.first(facts, judgement, returned)
    return judgement


def _without_general(found: list[Finding], wanted: set[str]) -> list[Finding]:
    """The findings of the wanted rules, where no more specific one of these found something."""
    present = {finding.rule for finding in found} & wanted
    kept = {name for name in present if present.isdisjoint(relations().specific(name))}
    return [finding for finding in found if finding.rule in kept]


def _confirmed(findings: list[Finding]) -> list[Finding]:
    """The findings, of which those are certain that a file beside the log explains for certain."""
    proven = {rule for finding in findings if finding.confidence == "certain" for rule in finding.explains}
    sure = [finding.rule in proven and not finding.clue for finding in findings]
    return [
        replace(finding, confidence="certain") if is_sure else finding
        for finding, is_sure in zip(findings, sure, strict=True)
    ]


def _settled(facts: Facts, findings: list[Finding]) -> list[Finding]:
    """The findings, with what files of machines say of them."""
    if not facts.job.artifacts:
        return findings
    from nccl_inspect.judging.evidence import settled  # most jobs are a log alone

    return settled.settled(facts, findings)


def _open(questions: list[NotJudged], wanted: set[str], present: set[str]) -> list[NotJudged]:
    """The questions that are left: where it asks about the effect of another finding, that one answers it."""
    asked = (question for question in questions if question.rule in wanted)
    return [question for question in asked if present.isdisjoint(relations().leads(question.rule))]


def _with_causes(facts: Facts, findings: list[Finding], by_name: dict[str, Rule], accepted: set[str]) -> list[Finding]:
    """The findings, each with those of which it is the effect.

    Args:
        facts: about the job.
        findings: that are told.
        by_name: all rules.
        accepted: rules with findings that the user accepts.
    """
    present = {finding.rule: SEVERITIES.index(finding.severity) for finding in findings}
    leaders = [by_name[name] for name in present if by_name[name].leads]
    reasons = [by_name[f.rule] for f in findings if f.fatal and not by_name[f.rule].symptom]
    upset = [f for f in findings if by_name[f.rule].upsets and f.fatal]
    joined = []
    for finding in findings:
        rule = by_name[finding.rule]
        before = [by_name[one.rule] for one in upset if first_failure.follows(facts, finding, one)]
        causes = [by_name[one.rule] for one in findings if finding.rule in one.explains]
        before += [cause for cause in causes if not cause.explains]
        first = [*(reasons if rule.symptom else leaders), *before]
        shown = [cause for cause in causes if cause.explains]
        joined.append(_joined(finding, rule, present, accepted, first, shown))
    return joined


def _sorted(findings: list[Finding], by_name: dict[str, Rule], aside: set[str]) -> list[Finding]:
    """The findings in the order in which they are told."""
    worst = {finding.rule: _worst(finding, findings, by_name) for finding in findings}
    return sorted(findings, key=lambda f: _order(f, by_name[f.rule], worst[f.rule], aside))


def _without_retold(findings: list[Finding], by_name: dict[str, Rule]) -> list[Finding]:
    """The findings without symptoms of which each line is shown by another one, which says more of it."""
    saying_more = [one for one in findings if not by_name[one.rule].symptom and one.category != CATEGORIES[-1]]
    told = {(line.source, line.order) for one in saying_more for line in one.evidence}
    return [
        one
        for one in findings
        if not by_name[one.rule].symptom or not told.issuperset((line.source, line.order) for line in one.evidence)
    ]


def _unexplained(facts: Facts, returned: Results) -> list[Notice]:
    """Errors that no finding shows; a finding that shows one of a kind shows all of it, unless it is about the log.

    Where a finding tells why the job is dead, what PyTorch and launchers say of that needs no other explanation. Where
    none does, every warning may: also one that is harmless elsewhere.

    Args:
        facts: about the job.
        returned: by all rules, also those that are not asked for: a rule explains the error, whoever wants to hear it.
    """
    about_the_job = [finding for finding in returned.findings if finding.category != CATEGORIES[-1]]
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
        and not returned.is_effect(notice)
    ]
    dead = any(finding.fatal and finding.confidence != "possible" for finding in about_the_job)
    return [one for one in left if not (why and is_retold(one)) and not (dead and job_end.is_forced(one.event))]


def _kind(notice: Notice) -> tuple[str, object]:
    """What makes errors the same: the wording, and the status in it, which tells apart what NICs report."""
    return notice.production, value(notice, "status")


def _joined(
    finding: Finding,
    rule: Rule,
    present: dict[str, int],
    accepted: set[str],
    leaders: Iterable[Rule],
    shown: Iterable[Rule],
) -> Finding:
    """The finding with its causes: first those that lead.

    Args:
        finding: as its rule gave it.
        rule: its rule.
        present: rules with findings, and their severities.
        accepted: rules with findings that the user accepts.
        leaders: rules with findings that came first, in this job or before this finding; for a symptom, all that tell
            why the job ended.
        shown: rules with findings that explain it by a file beside the log.
    """
    own = SEVERITIES.index(finding.severity)
    leading, causing = relations().leads(rule.name), relations().causes(rule.name)
    # What the user made less severe than its effect does not hide it.
    before = [one for one in leaders if one.name not in finding.explains]
    first = [
        one.name
        for one in before
        if finding.fatal and rule.name != one.name and rule.name not in relations().leads(one.name)
    ]
    proven = [one.name for one in shown]
    over = [one.name for one in shown if not one.folds]
    leads = [name for name in (*leading, *first, *over) if present.get(name, -1) >= own]
    causes = [name for name in (*proven, *leading, *first, *causing) if name in present or name in accepted]
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
    is_effect = not finding.root or not aside.isdisjoint(relations().leads(rule.name))
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
