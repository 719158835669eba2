"""Joins the story of a job and the findings of rules: which lead, which follow, and which rule words the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nccl_inspect.event.types import ErrorCascade, ProcessEnded
from nccl_inspect.grammar.layers import Layer
from nccl_inspect.judging.actors import name_of, ranks_among
from nccl_inspect.judging.check import Account
from nccl_inspect.judging.engine import SEVERITIES, Registered, Rule, list_rules, rules_by_name
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import error_of
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.statements import job_failure
from nccl_inspect.story.edges import Incident, before
from nccl_inspect.story.telling import Story, rule_of

_VAGUE = ("waited", "lost-connection", "launcher-report", "watchdog-stuck", "process-crashed", "call-failed")
"""Kinds that name nobody: the rule that joins their statements may know more."""
_BY_ELIMINATION = ("fell-silent", "call-unfinished")
"""Kinds for which the rule that joins their statements may name fewer ranks."""
_ENDS = {"process-ended", "ended-from-outside"}
"""Kinds of ends: what they follow from says more."""
_MOST_LINES = 3
_NO_REASON = "failure-unexplained"
"""The rule for a failed job that nothing explains."""


def decide(facts: Facts, story: Story, findings: Sequence[Finding]) -> tuple[list[Finding], dict[str, int]]:
    """Decide which findings lead and which follow from these; return also the place of each rule in the story.

    Args:
        facts: about the job.
        story: of it.
        findings: of all rules.
    """
    by_name = {entry.rule.name: entry for entry in list_rules()}
    candidates = {f.rule: f for f in findings if rules_by_name()[f.rule].tells}
    kept = [finding for finding in findings if not rules_by_name()[finding.rule].tells]
    if not story.roots:
        settled = [_under_conditions(finding, findings) for finding in findings]
        return [*settled, *_report_unexplained(by_name[_NO_REASON], facts, story, findings)], {}
    by_rule: dict[str, list[Incident]] = defaultdict(list)
    tellers = {kind: rule_of(kind, candidates) for kind in {incident.kind for incident in story.incidents}}
    for incident in {id(one): one for one in (*story.roots, *story.incidents)}.values():
        if rule := _rule_of(incident, tellers):
            by_rule[rule].append(incident)
    place = {rule: number for number, rule in enumerate(by_rule)}
    own_ends = facts.with_event(ProcessEnded, lambda event: not event.is_external)
    present = {finding.rule for finding in kept}
    for rule, incidents in by_rule.items():
        if rule in present:
            continue
        roots = [one for one in incidents if not one.because]
        candidate = candidates.pop(rule, None)
        if (
            candidate is None
            and own_ends
            and all(one.is_launchers_signal for one in roots)
            and any(f.fatal for f in findings)
        ):
            continue  # it ended the others because one failed, and a rule says why
        account = _find_by_rule(by_name[rule], facts, story, roots, candidate) if roots else candidate
        if account is not None:
            kept.append(account)
    kept += candidates.values()
    for _ in range(2):  # without what the story tells others have other causes
        joined = [_join_causes(story, finding, by_rule, kept, tellers) for finding in kept]
        joined = [_as_deadly(story, finding) for finding in joined]
        kept = [finding for finding in joined if not _repeats_story(finding, by_rule[finding.rule], joined)]
    kept = [_without_waiting(story, finding) for finding in kept]
    return [*kept, *_report_unexplained(by_name[_NO_REASON], facts, story, kept)], place


def _report_unexplained(
    entry: Registered, facts: Facts, story: Story, findings: Iterable[Finding]
) -> Iterator[Finding]:
    """Yield what a rule says about a failed job if none of the findings says that it failed, or was ended."""
    lead = next(iter(story.lead), None)
    is_ended = lead is not None and (lead.kind, lead.confidence) == ("ended-from-outside", "certain")
    if not facts.job.failed or is_ended or any(finding.fatal for finding in findings):
        return
    calls = sorted(job_failure.failed_calls(facts.job.notices), key=lambda notice: notice.place)
    said = [call for call in calls if not isinstance(call.event, ErrorCascade)] or calls[-1:]
    assert entry.tell is not None
    ranks = sorted({rank for call in said for rank in call.ranks})
    hosts = sorted({host for call in said for host in call.hosts})
    words = error_of(said[0]) or said[0].message
    lines = [line for call in said for line in call.evidence][:_MOST_LINES]
    yield entry.tell(facts, Account("unexplained", words, ranks, hosts, "", "certain", lines, ""))


def _rule_of(incident: Incident, tellers: Mapping[str, str | None]) -> str | None:
    return incident.finding.rule if incident.finding else incident.teller or tellers.get(incident.kind)


def _find_by_rule(
    entry: Registered, facts: Facts, story: Story, roots: list[Incident], candidate: Finding | None
) -> Finding | None:
    """Return what a rule finds about the roots of its kinds: its own finding if that names the same ranks."""
    same = story.alike(roots[0])
    ranks = story.ranks_in(same)
    kind = roots[0].kind
    is_surer = False
    if candidate is not None and kind in entry.rule.tells:
        closer = kind in _BY_ELIMINATION and bool(candidate.ranks) and set(candidate.ranks) <= set(ranks)
        is_surer = roots[0].is_kill and roots[0].confidence == "certain" != candidate.confidence
        is_same = not ranks or (set(candidate.ranks) == set(ranks) and not is_surer)
        is_stated = kind == "calls-differ" and not roots[0].lags
        is_doubtful = candidate.confidence == "possible"
        # Others lost those that a signal ended: that is more than the end of a log.
        was_lost = is_doubtful and kind == "ended-from-outside" and story.effects_of(roots[:1])
        if not was_lost and (is_same or closer or is_stated or kind in _VAGUE or is_doubtful):
            return candidate
    if entry.tell is None or kind in _VAGUE:
        return candidate
    account = _build_account(story, same)
    is_of_all = candidate is not None and (candidate.confidence == "certain" or not account.is_partial)
    is_told = candidate is not None and (candidate.open_end or (kind == "ended-from-outside" and is_of_all))
    if candidate is not None and is_told:  # where the log may only be cut its rule says both
        return candidate if _went_to_launcher(roots) else candidate.with_fields(ranks=ranks)
    finding = entry.tell(facts, account)
    if candidate is not None and is_surer:
        shown = [*finding.evidence, *(line for line in candidate.evidence if line not in finding.evidence)]
        finding = finding.with_fields(evidence=shown[:_MOST_LINES])
    beside = [one for one in roots if one not in same]
    if not beside:
        return finding
    who = name_of(story.actors_in(beside[:1]))
    also = f"independently of it, {who + ': ' if who else ''}{beside[0].words}"
    order = "" if before(same[0], beside[0]) is not None else "; the order is unknown"
    return finding.with_fields(cause=f"{finding.cause}. Also found, {also}{order}")


def _went_to_launcher(roots: Iterable[Incident]) -> bool:
    """Return whether a signal is known to have gone to no process, but to what started them all."""
    return any(one.is_signal and not one.actors for one in roots)


def _build_account(story: Story, incidents: list[Incident]) -> Account:
    first = incidents[0]
    actors = story.actors_in(incidents)
    effects = story.effects_of(incidents)
    others = {actor for one in effects if one.is_foreign for actor in one.actors} - actors
    lines = [one.line for one in (*incidents, *effects) if one.line is not None and one.line.text]
    return Account(
        kind=first.kind,
        words=first.words,
        ranks=story.ranks_in(incidents),
        hosts=story.hosts_in(incidents),
        who=name_of(actors),
        confidence=first.confidence,
        evidence=lines[:_MOST_LINES],
        effects=f"{name_of(others)} waited for it or lost it" if others else "",
        pids=story.pids_in(incidents),
        is_partial=bool(others),
    )


def _causes(
    finding: Finding, incidents: Iterable[Incident], present: set[str], tellers: dict[str, str | None]
) -> list[str]:
    """Return the nearest causes that have a finding."""
    queue = [cause for one in incidents for cause in one.because]
    names: list[str] = []
    for cause in queue:  # grows
        name = _rule_of(cause, tellers)
        if name in present and name != finding.rule:
            names.append(name)
        else:
            queue += [one for one in cause.because if one not in queue]
    return list(dict.fromkeys(names))


def _join_causes(
    story: Story,
    finding: Finding,
    by_rule: dict[str, list[Incident]],
    kept: list[Finding],
    tellers: dict[str, str | None],
) -> Finding:
    """Return a finding with its causes by the story."""
    incidents, rule = by_rule.get(finding.rule, ()), rules_by_name()[finding.rule]
    present = {other.rule for other in kept}
    if not incidents:
        lead = story.roots[0]
        name = _rule_of(lead, tellers)
        is_late = finding.fatal or _is_late(rule)
        begins = "never-began" in rule.tells and lead.layer is Layer.LAUNCHER  # it was ended for that
        follows = is_late and name in present and name != finding.rule and not begins
        return finding.with_fields(because=[name], root=False) if follows and name else finding
    is_root = any(not one.because for one in incidents)
    if not is_root:
        because = _causes(finding, incidents, present, tellers)
    else:
        # Settings may lead to what nothing explains: clues alone end no job.
        layers = {one.layer.name.lower() for one in incidents if not (one.because or one.is_condition)}
        clues = (one.rule for one in kept if one.clue and finding.confidence != "certain")
        because = [name for name in clues if not layers.isdisjoint(rules_by_name()[name].may_cause)]
    is_alone = len(story.actors_in(incidents)) == 1 and set(story.hosts_in(incidents)) <= set(finding.hosts)
    own = [one for one in incidents if not one.because and (is_alone or one.layer != Layer.SETTING)]
    own = [] if _went_to_launcher(own) else own
    own = [one for one in own if one.layer != Layer.LOSS or one.finding is None]  # who reports a loss is not at fault
    ranks = finding.ranks or story.ranks_in(own)
    return finding.with_fields(because=because, root=is_root or not because, ranks=ranks)


def _repeats_story(finding: Finding, incidents: Iterable[Incident], findings: Sequence[Finding]) -> bool:
    """Return whether it is about ends that follow from another finding, and no crash: the story tells them."""
    if _ENDS.isdisjoint(rules_by_name()[finding.rule].tells) or any(one.is_kill for one in incidents):
        return False
    if any(finding.rule in other.explains for other in findings):
        return False
    sure = [other for other in findings if other is not finding and other.confidence != "possible"]
    is_vague = finding.confidence == "possible" and any(other.fatal for other in sure)
    return is_vague or (not finding.root and any(other.rule in finding.because for other in sure))


def _as_deadly(story: Story, finding: Finding) -> Finding:
    """Return a finding; one that may be survivable is fatal where others lost the process to which it happened."""
    is_sure = finding.fatal and finding.confidence != "possible"
    rules = {one.finding.rule for one in story.deadly if one.finding}
    if is_sure or finding.clue or finding.rule not in rules:
        return finding
    confidence = "likely" if finding.confidence == "possible" else finding.confidence
    return finding.with_fields(severity="error", confidence=confidence, fatal=True)


def _without_waiting(story: Story, finding: Finding) -> Finding:
    """Return a finding; one about a time-out that follows from another does not name those that only waited."""
    if finding.root or "waited" not in rules_by_name()[finding.rule].tells:
        return finding
    waited = ranks_among({actor for one in story.incidents if one.kind == "waited" for actor in one.actors})
    is_late = any(one.lags and one.peers == set(finding.ranks) for one in story.incidents)
    only_waited = set(waited).issuperset(finding.ranks) and not is_late
    return finding.with_fields(ranks=[], hosts=[]) if only_waited else finding


def _is_late(rule: Rule) -> bool:
    """Return whether what a rule finds follows from a failure, if there is one."""
    return bool(rule.tells) or Layer.END <= rule.reach < Layer.NONE


def _under_conditions(finding: Finding, findings: Iterable[Finding]) -> Finding:
    """Return a finding of a job that did not fail, below the settings that may lead to it."""
    rule = rules_by_name()[finding.rule]
    layer = "stage" if "never-began" in rule.tells else rule.reach.name.lower()
    if not _is_late(rule) or (rule.tells and layer != "stage"):
        return finding
    why = [other for other in findings if layer in rules_by_name()[other.rule].may_cause]
    leads = any(SEVERITIES.index(other.severity) >= SEVERITIES.index(finding.severity) for other in why)
    return finding.with_fields(because=[other.rule for other in why], root=not leads) if why else finding
