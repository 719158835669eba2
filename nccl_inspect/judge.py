"""Run the rules over a job, join causes with their effects and decide the verdict."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING

from nccl_inspect import topology
from nccl_inspect.grammar.layers import Layer
from nccl_inspect.judging import at_end, culprits, life, machine_type, places, remedies, watchdog
from nccl_inspect.judging.actors import actors_of
from nccl_inspect.judging.engine import (
    CATEGORIES,
    SEVERITIES,
    Registered,
    Results,
    Rule,
    causes_of,
    list_rules,
    rules_by_name,
    run_rules,
    superseding,
)
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import is_forced, is_propagated_error, value
from nccl_inspect.model.evidence import positions_in
from nccl_inspect.model.finding import ACTIONS, Finding, Suppressed
from nccl_inspect.model.inventory import contents_of
from nccl_inspect.model.job import Job, Notice, PathKind, Paths
from nccl_inspect.model.paths.table import refine_kinds
from nccl_inspect.model.statements import usage
from nccl_inspect.story.findings import decide
from nccl_inspect.story.telling import Story, tell

if TYPE_CHECKING:
    from nccl_inspect.judging.accepted import Terms
    from nccl_inspect.platforms import Platform
    from nccl_inspect.topology import Topology


_MAX_STEPS = 4
"""Steps that a finding proposes, the likeliest first; the page of its rule has all."""


def gather_facts(job: Job, platform: Platform | None = None, topologies: Iterable[Topology] = ()) -> Facts:
    """Return the facts about a job.

    Args:
        job: without findings.
        platform: the machine type, if the user named it; else it is derived from the log, if a plugin or the GPUs name
            it.
        topologies: from ``--topology``; those that the log itself proves are added.
    """
    expected = machine_type.expected_of(platform or machine_type.platform_of(job), job)
    known = [*topologies, *contents_of(job.artifacts, "topology_file"), *topology.topologies(job)]
    whole = [one.proven for one in known if one.host is None]
    is_foreign = machine_type.rests_on_list(platform, expected, job) or (bool(whole) and not any(whole))
    return Facts(job, expected, known, "likely" if is_foreign else "certain")


def judge(facts: Facts, rules: Iterable[Registered], terms: Terms | None = None) -> None:
    """Run the rules over a job, and write into it what follows from them.

    Args:
        terms: the user's severities and suppressions; None for those of the rules.
    """
    job = facts.job
    wanted = {entry.rule.name for entry in rules}
    returned = run_rules(facts, list_rules())
    all_findings = watchdog.doubt(facts, returned.findings)
    # Findings of ignored rules are not reported, but while there are some nothing is called good.
    left_out = sorted({f.rule for f in all_findings if f.rule not in wanted and f.severity != "info"})
    kept = _weigh_confidence(facts, _drop_repeated_symptoms(_drop_superseded(all_findings, wanted)))
    if job.artifacts:
        from nccl_inspect.judging.evidence import settled  # most jobs are a log alone

        kept = settled.settle(facts, kept)
    story = tell(facts, _drop_repeated_symptoms(_drop_superseded(all_findings, rules_by_name())))
    decided, place = decide(facts, story, kept)
    decided = [finding for finding in decided if finding.root or not _is_repeated(finding, decided)]
    decided = [_weigh_survival(facts, story, finding) for finding in decided]
    kept = [finding for finding in decided if finding.rule in wanted]
    left_out = sorted({*left_out, *(f.rule for f in decided if f.rule not in wanted and f.severity != "info")})
    culprits.locate(facts, returned, kept, lambda finding: _names_fault(story, finding))
    kept = [finding.with_fields(fix=finding.fix[:_MAX_STEPS]) for finding in kept]
    places.fill(facts, kept)
    counting = kept
    suppressed: list[Suppressed] = []
    if terms:
        counting, _ = terms.split_accepted(kept)
        kept, suppressed = terms.split_accepted(terms.with_user_severities(kept))
    for entry in suppressed:
        entry.finding.action = NO_ACTION
    accepted = {entry.finding.rule for entry in suppressed}
    aside = accepted | {finding.rule for finding in all_findings if finding.rule not in wanted}
    severities = {finding.rule: SEVERITIES.index(finding.severity) for finding in kept}
    lowered = {one.rule for one in counting if severities.get(one.rule, 0) < SEVERITIES.index(one.severity)}
    findings = _sort_findings(_add_causes(kept, accepted, lowered, place), aside, place)
    findings = remedies.order_steps(findings, _MAX_STEPS)
    present = {finding.rule for finding in kept}
    paths, withheld = judge_paths(facts, returned, findings, counting, suppressed, left_out)
    # A question about an effect of a finding is answered by that finding.
    asked = [question for question in returned.questions if question.rule in wanted]
    not_judged = [question for question in asked if present.isdisjoint(_list_leading(question.rule))]
    unexplained = _find_unexplained(facts, returned)
    is_waiting = at_end.is_at_the_end(facts) or bool(at_end.find_stragglers(facts))
    is_dead = not life.successes(facts) and (job.failed or bool(story.deadly))
    waiting, actors = at_end.waiting_ranks(facts), actors_of(facts)

    job.rules, job.left_out, job.findings, job.suppressed = sorted(wanted), left_out, findings, suppressed
    job.not_judged, job.unexplained, job.paths, job.withheld = not_judged, unexplained, paths, withheld
    job.platform, job.waiting = facts.platform.name if facts.platform else None, waiting
    job.verdict = judge_job(job, is_dead=is_dead, is_waiting=is_waiting)
    has_failed, has_ended = job.verdict == "failed", job.failed or bool(job.ended_by)
    for number, one in enumerate(findings):
        is_why = has_failed and (one.fatal or not number)
        action = choose_action(one, rules_by_name()[one.rule], is_why, has_ended=has_ended, hosts=len(job.hosts))
        findings[number] = one.with_fields(action=action)
    job.story = story.entries({finding.rule for finding in findings})
    job.first_failure = story.first_failure() if has_failed else None
    for last in actors.mute if actors.world else ():
        actor = actors.actor_by_process(last.process)
        last.likely_rank = actor if isinstance(actor, int) else None


def _names_fault(story: Story, finding: Finding) -> bool:
    """Return whether the fault is in the ranks and hosts of a finding: others wait for them, or they failed first."""
    rule = rules_by_name()[finding.rule]
    if rule.tells:
        return any(one.is_report and one.peers == set(finding.ranks) for one in story.incidents)
    is_of_both_ends = rule.category == "network" and rule.reach == Layer.SETTING
    return rule.reach <= Layer.RESOURCE and not is_of_both_ends


def _drop_superseded(findings: list[Finding], wanted: Container[str]) -> list[Finding]:
    """Return the findings of the wanted rules, without those superseded by a more specific wanted rule.

    What only may have happened does not replace a failure.
    """
    own = [finding for finding in findings if finding.rule in wanted]
    present = {finding.rule for finding in own}
    sure = {finding.rule for finding in own if finding.confidence != "possible" or finding.fatal}
    return [f for f in own if not superseding(f.rule) & (sure if f.fatal else present)]


def _weigh_confidence(facts: Facts, findings: list[Finding]) -> list[Finding]:
    """Return the findings; what a file beside the log explains is certain, what only torn lines show is possible."""
    proven = {rule for finding in findings if finding.confidence == "certain" for rule in finding.explains}
    doubtful = facts.job.doubtful
    weighed = []
    for finding in findings:
        if finding.rule in proven and not finding.clue:
            finding = finding.with_fields(confidence="certain")
        is_told = finding.severity != "info" and bool(doubtful and finding.evidence)
        if is_told and positions_in(finding.evidence) <= doubtful:
            finding = finding.with_fields(confidence="possible", fatal_anyway=False)
        weighed.append(finding)
    return weighed


def _weigh_survival(facts: Facts, story: Story, finding: Finding) -> Finding:
    """Return the finding; one beside the success of the program, or after which all worked again, ended no job.

    Below its success processes leave without a word: others that do not find them when they leave, too, did not fail.
    """
    may_have_failed = finding.fatal or (finding.confidence == "possible" and finding.paths is None)
    ends = life.successes(facts) if may_have_failed else {}
    is_above = finding.evidence and all(line.order < ends.get(line.source, 0) for line in finding.evidence)
    is_above = is_above and (not finding.explained or life.succeeded_below(facts, finding.explained))
    has_left = bool(story.incidents) and all(one.is_leaving for one in story.incidents)
    if ends and (is_above or has_left):
        impact = remedies.look_up("@SURVIVED") if finding.fatal else finding.impact
        return finding.with_fields(severity="info", fatal=False, impact=impact)
    if finding.fatal and ends:
        words, impact = "@SUCCEEDED", "@BAD_END"
    elif finding.fatal and life.is_outlived(facts, finding.evidence):
        words, impact = "@BEGAN_ANEW", "@LOST_ATTEMPT"
    else:
        return finding
    summary, impact = f"{finding.summary}; {remedies.look_up(words)}", remedies.look_up(impact)
    return finding.with_fields(severity="warning", fatal=False, summary=summary, impact=impact, action=NO_ACTION)


def _list_leading(name: str) -> list[str]:
    """Return the rules whose findings lead those of a rule."""
    return [cause.name for cause in causes_of(name) if not cause.nest_under_effect]


def _add_causes(
    findings: list[Finding], accepted: set[str], lowered: set[str], place: Mapping[str, int]
) -> list[Finding]:
    """Return the findings, each with its causes: those of failures by the story, the others by what rules declare."""
    present = {finding.rule: SEVERITIES.index(finding.severity) for finding in findings}
    sure = {one.rule for one in findings if one.severity != "info" and one.confidence == "certain"} - lowered
    beside = {entry.rule.name for entry in list_rules() if entry.explain}
    joined = []
    for finding in findings:
        name = finding.rule
        shown = [rules_by_name()[other.rule] for other in findings if name in other.explains and other.rule in beside]
        able = {other for other, severity in present.items() if severity >= present[name]}
        able |= sure if finding.confidence != "certain" else set()
        leading = () if name in place or not finding.root else _list_leading(name)
        leads = [*leading, *(cause.name for cause in shown if not cause.nest_under_effect)]
        leads = [cause for cause in leads if cause in able]  # one that the user made less severe does not hide it
        declared = [cause.name for cause in causes_of(name)]
        known = [*(cause.name for cause in shown), *finding.because, *leading, *declared]
        known = [cause for cause in known if cause in present or cause in accepted]
        causes = sorted(dict.fromkeys([*leads, *known]), key=lambda cause: cause not in present)
        because = [cause for cause in causes if cause != name]
        joined.append(finding.with_fields(because=because, root=finding.root and not leads))
    return joined


def _sort_findings(findings: list[Finding], aside: set[str], place: Mapping[str, int]) -> list[Finding]:
    """Sort the findings: roots before echoes, the job before its log, the dead before the slow.

    A setting of which the log shows neither a bad path nor a failed job comes last. The effects of what is accepted or
    ignored (``aside``) follow the reported roots.
    """
    worst: dict[str, int] = {}
    for finding in findings:  # a slow path leads, whatever its cause: those nested under it count
        under = [one for one in findings if one.rule in finding.because and rules_by_name()[one.rule].nest_under_effect]
        worst[finding.rule] = max(SEVERITIES.index(one.severity) for one in (finding, *under))
    causes = {name for finding in findings for name in finding.because}

    def order(finding: Finding) -> tuple[object, ...]:
        name, rule = finding.rule, rules_by_name()[finding.rule]
        return (
            not finding.root,
            not (finding.root and aside.isdisjoint(_list_leading(name))),
            rule.category == CATEGORIES[-1],
            not (finding.fatal or place.get(name) == 0),
            place.get(name, len(place)) if finding.fatal else 0,
            -worst[name],
            name in causes and rule.nest_under_effect,
            ("certain", "likely", "possible").index(finding.confidence),
            rule.category == "environment" and not (finding.paths or finding.fatal),
            name,
        )

    return sorted(findings, key=order)


def _drop_repeated_symptoms(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without symptoms whose lines all appear in findings that say more than they join."""
    findings = list(findings)
    return [finding for finding in findings if not _is_repeated(finding, findings, joining=False)]


def _is_repeated(symptom: Finding, findings: Iterable[Finding], *, joining: bool = True) -> bool:
    """Return whether it is a symptom whose lines all appear in findings that say more.

    Args:
        joining: whether findings that join statements of several processes count.
    """
    rules = rules_by_name()
    if rules[symptom.rule].reach != Layer.CALL:
        return False
    others = [f for f in findings if rules[f.rule].reach != Layer.CALL and f.category != CATEGORIES[-1]]
    says_more = [f for f in others if joining or not rules[f.rule].tells]
    return positions_in(symptom.evidence) <= positions_in(line for finding in says_more for line in finding.evidence)


def _find_unexplained(facts: Facts, returned: Results) -> list[Notice]:
    """Return errors that no finding shows; one error in a finding covers its kind, unless it is about the log.

    If a finding explains why the job is dead, the reports of PyTorch and launchers about it need no other explanation.
    If none does, every warning may matter, even one that is harmless elsewhere; and where nothing shows that the job
    is dead, so does a line that only passes a failure on.

    Args:
        returned: by all rules, including ignored ones: an error is explained even if its finding is not reported.
    """
    about_the_job = [finding for finding in returned.findings if finding.category != CATEGORIES[-1]]
    lines = positions_in(line for finding in about_the_job for line in finding.evidence)
    notices = facts.job.notices if lines else ()
    shown = {id(notice) for notice in notices if not lines.isdisjoint(positions_in(notice.evidence))}
    kinds = {_kind(notice) for notice in facts.job.notices if notice.event and id(notice) in shown}
    why = any(finding.fatal for finding in about_the_job)
    errors = {id(notice) for notice in facts.errors() if not returned.is_effect(notice)}
    if facts.job.failed and not why:
        warnings = (notice for notice in facts.job.notices if notice.level == "WARN")
        errors.update(id(notice) for notice in warnings if not returned.is_effect(notice))
    elif not any(finding.fatal for finding in returned.findings):
        errors.update(map(id, _find_last_echoes(facts)))
    left = [
        notice
        for notice in facts.job.notices
        if id(notice) in errors and id(notice) not in shown and _kind(notice) not in kinds
    ]
    dead = any(finding.fatal and finding.confidence != "possible" for finding in about_the_job)
    return [error for error in left if not (why and is_propagated_error(error)) and not (dead and is_forced(error))]


def _find_last_echoes(facts: Facts) -> list[Notice]:
    """Return the echoes of a failure that is not in the log, where the job neither ended well nor worked below them."""
    if facts.job.failed or facts.is_over() or life.successes(facts):
        return []
    return [notice for notice in facts.with_role("echoes-failure") if not life.works_below(facts, [notice])]


def _kind(notice: Notice) -> tuple[str, object]:
    """Return what makes errors the same: the wording, and its status, which distinguishes the reports of NICs."""
    return notice.production, value(notice, "status")


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


def judge_job(job: Job, *, is_dead: bool = False, is_waiting: bool = False) -> str:
    """Return ``failed`` if the job is dead or stuck, ``degraded`` with a solid finding that costs time, else ``ok``.

    ``ok`` needs paths that are all judged, and good except for infos, or one rank that ended. Everything else is
    ``unknown``: no path, an unjudged path, unplaced connections, a finding that is only possible, a clue, an
    unexplained error, a finding of an ignored rule, a rank without a line, ranks that wait at the end of the log. An
    excerpt never shows that a job is healthy.

    Args:
        job: with its findings, and the verdicts of its paths.
        is_dead: a rank died, or a call of NCCL failed, whether or not a finding reports it.
        is_waiting: the log ends while ranks wait for each other: still starting, stuck, or cut there.
    """
    findings = job.findings
    everything = [*findings, *(entry.finding for entry in job.suppressed)]  # accepting a death does not undo it
    fatal = [finding for finding in everything if finding.fatal]
    is_failed = any(finding.confidence != "possible" for finding in fatal)
    if is_failed or is_dead or (any(finding.fatal_anyway for finding in fatal) and not usage.is_over(job)):
        return "failed"
    if any(f.severity != "info" and f.confidence != "possible" and not f.clue for f in findings):
        return "degraded"
    doubts = bool(job.unexplained or job.unplaced_lines) or any(f.severity != "info" for f in findings)
    # A peer closed a connection of a communicator that was not finalized.
    is_over = usage.is_over(job) or not job.communicators
    doubts |= is_waiting or (not is_over and any(notice.production == _LOSS for notice in job.notices))
    doubts |= _lacks_ranks(job)
    judged = all(kind.verdict != "unknown" for kind in job.paths.kinds) if job.paths else _is_alone(job)
    return "ok" if judged and not doubts and not job.left_out and not job.excerpt else "unknown"


def _lacks_ranks(job: Job) -> bool:
    """Return whether ranks have no line in the log, so that their paths are unknown."""
    if job.rank_space == "global":
        seen = set(job.ranks_seen)
        if not all(last.ranks for last in job.last_lines):  # the line that names the rank was lost: it connects
            own = job.paths.where(lambda kind: kind.transport != "NET" or kind.ends("send"))
            seen |= {src for (src,) in own.distinct("src")}
        return len(seen) < (job.world_size or 0)
    if job.communicators:
        return any(comm.lacks_members for comm in job.communicators)
    return not {rank for pair in job.paths.distinct("src", "dst") for rank in pair}.issubset(job.ranks_seen)


def _is_alone(job: Job) -> bool:
    """Return whether the job was one rank, which needs no path and came to its end in order."""
    is_whole = usage.is_over(job) and not job.is_one_of_several and len(job.last_lines) == 1
    has_failed = job.ended_by or job.raised or any("program-exception" in notice.roles for notice in job.notices)
    return (
        is_whole
        and not has_failed
        and all(comm.nranks == 1 and comm.state == "destroyed" for comm in job.communicators)
    )


DRAIN, MEND, RESTART, WAIT, NO_ACTION = ACTIONS
_MENDED = (Layer.SYSTEM, Layer.SETTING, Layer.PROGRAM, Layer.RESOURCE)
"""Layers at which the next start fails as this one did."""


def choose_action(finding: Finding, rule: Rule, is_dead: bool, *, has_ended: bool, hosts: int) -> str:
    """Return the action for a finding.

    A host is only drained for a finding that is certain or likely, is not a clue, names the host, and names few: what
    most hosts share is the network, a setting, or a maintenance. What is only possible is no reason to hold a job back.

    Args:
        finding: with its causes.
        is_dead: whether the job ended for it, or never continues.
        has_ended: whether the log shows that the job ended.
    """
    if not finding.root:
        return NO_ACTION  # that of its cause counts
    is_sure = finding.confidence != "possible" and not finding.clue
    stated = finding.action
    if not is_dead:
        if finding.fatal or stated in (WAIT, NO_ACTION):
            return stated if stated == NO_ACTION else WAIT  # it may be dead: look whether it still runs
        counts = is_sure and finding.severity != "info" and rule.category != CATEGORIES[-1] and stated != RESTART
        return NO_ACTION if not counts else DRAIN if stated == DRAIN and _names_few_hosts(finding, hosts) else MEND
    if finding.open_end and not has_ended:
        return WAIT
    if not stated:
        mended = MEND if rule.reach in _MENDED and not rule.tells else RESTART
        stated = DRAIN if rule.reach == Layer.HARDWARE else mended
    if stated == DRAIN and not (is_sure and _names_few_hosts(finding, hosts)):
        return RESTART
    return RESTART if stated == MEND and not is_sure else stated


def _names_few_hosts(finding: Finding, hosts: int) -> bool:
    return 0 < len(finding.hosts) <= max(1, hosts // 2)
