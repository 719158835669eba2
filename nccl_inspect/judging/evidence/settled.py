"""Findings settled by what files of machines show: their cause, their fix and how sure they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence.machine_faults import CERTAIN, FAULTS, LIKELY, Fault
from nccl_inspect.judging.evidence.machines import Sighting, cards
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.hardware import distances
from nccl_inspect.judging.line_order import short
from nccl_inspect.judging.networks import gdr_statements
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed

_ORDER = (CERTAIN, LIKELY, "possible")
_MAX_LINES = 5
_NIC = "<NIC>"
_OWN_LINES = 3
"""Lines of the log that stay among those of a finding that is settled."""


def sightings(facts: Facts) -> list[tuple[Fault, list[Sighting]]]:
    """What the files of this job's machines show, by the fault."""
    return [(fault, list(fault.find(facts))) for fault in FAULTS] if facts.job.artifacts else []


def clues(facts: Facts, rule: Rule) -> Iterator[Finding]:
    """Faults that the log shows no effect of, each once for all machines."""
    for fault, found in facts.once(sightings):
        seen = [one for one in found if one.is_in_use]
        if fault.clue == rule.name and seen:
            yield rule.clue(
                _words(seen),
                cause=f"{listed(_lines(seen), limit=3)} {'says' if len(seen) == 1 else 'say'} so",
                impact=fault.costs,
                fix=[step.replace(_NIC, seen[0].part or _NIC) for step in fault.fix],
                confirm="Look at it once more while the job runs: the file may be older or newer than the log.",
                confidence=LIKELY,
                ranks={rank for one in seen for rank in one.ranks},
                hosts={one.host for one in seen},
                evidence=[one.evidence for one in seen],
            )


def settled(facts: Facts, findings: Iterable[Finding]) -> list[Finding]:
    """The findings, with what the files say of them; a clue of a fault that explains another finding is left out.

    Args:
        facts: about the job.
        findings: of all rules that are wanted.
    """
    findings = list(findings)
    if not facts.once(sightings):
        return findings
    used: set[int] = set()
    known = [_settled(facts, finding, used) for finding in findings]
    told = {(one.evidence.source, one.evidence.order) for one in _seen(facts) if id(one) in used}
    rules = {fault.clue for fault, _ in facts.once(sightings) if fault.clue}
    return [one for one in known if one.rule not in rules or not _is_told(one, told)]


def _seen(facts: Facts) -> list[Sighting]:
    return [one for _, seen in facts.once(sightings) for one in seen]


def _is_told(clue: Finding, told: set[tuple[str, int]]) -> bool:
    return all((line.source, line.order) in told for line in clue.evidence)


def _settled(facts: Facts, finding: Finding, used: set[int]) -> Finding:
    """A finding with the first fault that explains it for sure, else with the first that likely does."""
    best: tuple[str, Fault, list[Sighting]] | None = None
    for fault, seen in facts.once(sightings):
        if finding.rule not in fault.explains or not _may_explain(facts, finding, fault):
            continue
        if fitting := _fitting(facts, finding, fault, seen):
            sure = _confidence(facts, finding, fault, fitting)
            if best is None or _ORDER.index(sure) < _ORDER.index(best[0]):
                best = (sure, fault, fitting)
    if best is None:
        return _doubted(facts, finding)
    used.update(map(id, best[2]))
    return _with(finding, *best)


def _doubted(facts: Facts, finding: Finding) -> Finding:
    """A finding with what speaks against the cause that it names, on all of its hosts; it may be another shell's."""
    for fault, _ in facts.once(sightings):
        if finding.rule not in fault.explains or fault.against is None:
            continue
        seen = [one for one in fault.against(facts) if one.host and one.host in finding.hosts]
        if seen and {one.host for one in seen} == set(finding.hosts):
            cause = f"{finding.cause}. But {_words(seen)} ({listed(_lines(seen), limit=3)})"
            lines = [*finding.evidence[: _MAX_LINES - 1], seen[0].evidence]
            return replace(finding, cause=cause, evidence=lines)
    return finding


def _fitting(facts: Facts, finding: Finding, fault: Fault, seen: Sequence[Sighting]) -> list[Sighting]:
    """The sightings that have to do with a finding: on its hosts, and of the NIC where its lines name one."""
    hosts = set(finding.hosts)
    text = "\n".join(line.text for line in finding.evidence)
    if fault.unless and re.search(fault.unless, text):
        return []
    near = [one for one in seen if not one.host or not hosts or one.host in hosts]
    named = {card for card in facts.once(cards) if _is_named(card, text)}
    own = [one for one in near if (one.part in named if named and one.part else one.is_in_use)]
    if own or fault.where_it_hurts:
        return own
    return [one for one in seen if one.host not in hosts and one.is_in_use]


def _is_named(card: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(card)}(?!\w)", text) is not None


def _may_explain(facts: Facts, finding: Finding, fault: Fault) -> bool:
    """Whether nothing else is known to be the reason: a distance that is too long needs no kernel module."""
    if not finding.rule.startswith("gdr-") or "peermem" not in "".join(fault.fix):
        return True
    nets = {kind.net for kind in facts.rdma().kinds}
    reasons: list[Notice] = gdr_statements.refused(facts)
    measured = distances.too_far([*reasons, *gdr_statements.too_far(facts)])
    return not (measured or facts.is_rccl() or gdr_statements.switched_off(facts)) and all(
        (net or "").startswith("IB") for net in nets
    )


def _confidence(facts: Facts, finding: Finding, fault: Fault, seen: Sequence[Sighting]) -> str:
    """How sure it is: a file that may be of another host, or of the other end of a transfer, proves nothing."""
    sure = fault.explains[finding.rule]
    if finding.rule.startswith("gdr-") and gdr_statements.refused(facts):
        sure = CERTAIN  # NCCL asked the drivers, and the module is not there
    is_near = all(one.host and (not finding.hosts or one.host in finding.hosts) for one in seen)
    return sure if is_near or (len(facts.job.hosts) < 2 and sure == CERTAIN) else LIKELY


def _with(finding: Finding, sure: str, fault: Fault, seen: Sequence[Sighting]) -> Finding:
    """A finding with its reason from the files."""
    proof = f"{_words(seen)} ({listed(_lines(seen), limit=3)})"
    is_sure = sure == CERTAIN
    confidence = min(finding.confidence, LIKELY if finding.clue else sure, key=_ORDER.index)
    own = finding.evidence[: max(_OWN_LINES, _MAX_LINES - len(seen))]
    return replace(
        finding,
        cause=proof if is_sure else f"likely this: {proof}. Else: {finding.cause}",
        fix=_fix(finding, fault, seen, is_sure),
        confidence=confidence,
        hosts=sorted({*finding.hosts, *(one.host for one in seen if one.host)}),
        ranks=sorted({*finding.ranks, *(rank for one in seen for rank in one.ranks)}) if is_sure else finding.ranks,
        evidence=[*own, *(one.evidence for one in seen)][:_MAX_LINES],
    )


def _fix(finding: Finding, fault: Fault, seen: Sequence[Sighting], is_sure: bool) -> list[str]:
    """What mends the fault; where it may be another one, the steps of the finding follow."""
    part = next((one.part for one in seen if one.part), _NIC)
    steps = [step.replace(_NIC, part) for step in fault.fix]
    commands = {step.partition(COMMENT)[0] for step in steps}
    if is_sure and steps:
        return steps
    return [*steps, *(step for step in finding.fix if step.partition(COMMENT)[0] not in commands)]


def _words(seen: Sequence[Sighting]) -> str:
    """What was seen where: the same on several hosts once."""
    places: dict[str, list[str]] = {}
    for one in seen:
        places.setdefault(one.words, []).extend([one.host] if one.host else [])
    parts = [f"{words} on {listed(hosts)}" if hosts else words for words, hosts in places.items()]
    return "; ".join(parts[:3]) + (f"; and {len(parts) - 3} more" if len(parts) > 3 else "")


def _lines(seen: Iterable[Sighting]) -> list[str]:
    return [short(one.evidence) for one in seen]
