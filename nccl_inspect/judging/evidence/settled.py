"""Findings settled by files from machines: their cause, fix and confidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nccl_inspect.judging import gdr
from nccl_inspect.judging.check import Hit
from nccl_inspect.judging.evidence.machines import CERTAIN, FAULTS, LIKELY, Fault, Sighting, all_cards
from nccl_inspect.judging.facts import Facts, cite_line, once
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import list_words

_ORDER = (CERTAIN, LIKELY, "possible")
_MAX_LINES = 5
_NIC = "<NIC>"
_OWN_LINES = 3
"""Lines of the log that a settled finding keeps as evidence."""


@once
def sightings(facts: Facts) -> list[tuple[Fault, list[Sighting]]]:
    """Return the sightings in files of this job's machines, by fault."""
    return [(fault, list(fault.find(facts))) for fault in FAULTS] if facts.job.artifacts else []


def find_clues(facts: Facts, rule: str) -> Iterator[Hit]:
    """Find faults without an effect in the log, each once for all machines."""
    for fault, candidates in sightings(facts):
        seen = [sighting for sighting in candidates if sighting.is_in_use]
        if fault.clue == rule and seen:
            named = {
                "file": _words(seen),
                "lines": list_words(_lines(seen), limit=3),
                "costs": fault.costs,
                "steps": [step.replace(_NIC, seen[0].part or _NIC) for step in fault.fix],
            }
            ranks = {rank for sighting in seen for rank in sighting.ranks}
            yield Hit([], named, ranks, {one.host for one in seen}, [one.evidence for one in seen])


def settle(facts: Facts, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings, settled by the files, without clues about faults that explain another finding."""
    findings = list(findings)
    if not sightings(facts):
        return findings
    used: set[int] = set()
    results = [_settle_finding(facts, finding, used) for finding in findings]
    seen = [sighting for _, sightings_of in sightings(facts) for sighting in sightings_of]
    lines = {(entry.evidence.source, entry.evidence.order) for entry in seen if id(entry) in used}
    rules = {fault.clue for fault, _ in sightings(facts) if fault.clue}
    return [
        finding
        for finding in results
        if finding.rule not in rules or not lines.issuperset((line.source, line.order) for line in finding.evidence)
    ]


def _settle_finding(facts: Facts, finding: Finding, used: set[int]) -> Finding:
    """Return a finding with the first fault that certainly explains it, else the first that likely does."""
    best: tuple[str, Fault, list[Sighting]] | None = None
    for fault, seen in sightings(facts):
        if finding.rule not in fault.explains or not _may_explain(facts, finding, fault):
            continue
        if fitting := _related_sightings(facts, finding, fault, seen):
            sure = _confidence(facts, finding, fault, fitting)
            if best is None or _ORDER.index(sure) < _ORDER.index(best[0]):
                best = (sure, fault, fitting)
    if best is None:
        return _doubt_finding(facts, finding)
    used.update(map(id, best[2]))
    return _with(finding, *best)


def _doubt_finding(facts: Facts, finding: Finding) -> Finding:
    """Return a finding with evidence against its cause from all its hosts; the file may be from another shell."""
    for fault, _ in sightings(facts):
        if finding.rule not in fault.explains or fault.against is None:
            continue
        seen = [sighting for sighting in fault.against(facts) if sighting.host and sighting.host in finding.hosts]
        if seen and {sighting.host for sighting in seen} == set(finding.hosts):
            cause = f"{finding.cause}. But {_words(seen)} ({list_words(_lines(seen), limit=3)})"
            lines = [*finding.evidence[: _MAX_LINES - 1], seen[0].evidence]
            return replace(finding, cause=cause, evidence=lines)
    return finding


def _related_sightings(facts: Facts, finding: Finding, fault: Fault, seen: Sequence[Sighting]) -> list[Sighting]:
    """Return the sightings related to a finding: on its hosts, and of the NIC if its lines name one."""
    hosts = set(finding.hosts)
    text = "\n".join(line.text for line in finding.evidence)
    if fault.unless and re.search(fault.unless, text):
        return []
    near = [sighting for sighting in seen if not sighting.host or not hosts or sighting.host in hosts]
    named = {card for card in all_cards(facts) if re.search(rf"(?<!\w){re.escape(card)}(?!\w)", text) is not None}
    own = [sighting for sighting in near if (sighting.part in named if named and sighting.part else sighting.is_in_use)]
    if own or fault.where_it_hurts:
        return own
    return [sighting for sighting in seen if sighting.host not in hosts and sighting.is_in_use]


def _may_explain(facts: Facts, finding: Finding, fault: Fault) -> bool:
    """Return whether no other reason is known: a missing kernel module does not explain an excessive distance."""
    if not finding.rule.startswith("gdr-") or "peermem" not in "".join(fault.fix):
        return True
    nets = {kind.net for kind in facts.inter_host_rdma_paths().kinds}
    reasons: list[Notice] = gdr.gdr_refusals(facts)
    measured = gdr.first_too_far([*reasons, *gdr.gpus_too_far(facts)])
    return not (measured or facts.is_rccl() or gdr.settings_without_gdr(facts)) and all(
        (net or "").startswith("IB") for net in nets
    )


def _confidence(facts: Facts, finding: Finding, fault: Fault, seen: Sequence[Sighting]) -> str:
    """Return the confidence: a file that may be of another host, or of the other end of a transfer, proves nothing."""
    sure = fault.explains[finding.rule]
    if finding.rule.startswith("gdr-") and gdr.gdr_refusals(facts):
        sure = CERTAIN  # NCCL asked the drivers, and the module is missing
    is_near = all(sighting.host and (not finding.hosts or sighting.host in finding.hosts) for sighting in seen)
    return sure if is_near or (len(facts.job.hosts) < 2 and sure == CERTAIN) else LIKELY


def _with(finding: Finding, sure: str, fault: Fault, seen: Sequence[Sighting]) -> Finding:
    proof = f"{_words(seen)} ({list_words(_lines(seen), limit=3)})"
    is_sure = sure == CERTAIN
    part = next((sighting.part for sighting in seen if sighting.part), _NIC)
    steps = [step.replace(_NIC, part) for step in fault.fix]
    commands = {step.partition(COMMENT)[0] for step in steps}
    others = [step for step in finding.fix if step.partition(COMMENT)[0] not in commands]
    confidence = min(finding.confidence, LIKELY if finding.clue else sure, key=_ORDER.index)
    own = finding.evidence[: max(_OWN_LINES, _MAX_LINES - len(seen))]
    return replace(
        finding,
        cause=proof if is_sure else f"likely: {proof}. Otherwise: {finding.cause}",
        fix=steps if is_sure and steps else [*steps, *others],
        confidence=confidence,
        hosts=sorted({*finding.hosts, *(sighting.host for sighting in seen if sighting.host)}),
        ranks=sorted({*finding.ranks, *(rank for sighting in seen for rank in sighting.ranks)})
        if is_sure
        else finding.ranks,
        evidence=[*own, *(sighting.evidence for sighting in seen)][:_MAX_LINES],
    )


def _words(seen: Sequence[Sighting]) -> str:
    places: dict[str, list[str]] = {}
    for sighting in seen:
        places.setdefault(sighting.words, []).extend([sighting.host] if sighting.host else [])
    parts = [f"{words} on {list_words(hosts)}" if hosts else words for words, hosts in places.items()]
    return "; ".join(parts[:3]) + (f"; and {len(parts) - 3} more" if len(parts) > 3 else "")


def _lines(seen: Iterable[Sighting]) -> list[str]:
    return [cite_line(sighting.evidence) for sighting in seen]
