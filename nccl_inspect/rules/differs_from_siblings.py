"""One of several hosts, ranks or communicators that should be alike differs from the others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from nccl_inspect.judging.engine import Facts, Finding, Results, Rule
from nccl_inspect.judging.siblings.comparison import Odd, tell
from nccl_inspect.judging.siblings.observed import find
from nccl_inspect.model.job import Selection

RULE = Rule(
    name="differs-from-siblings",
    category="topology",
    severity="warning",
    title="One of several that should be alike differs from the others",
    local=True,
)
_CAUSE = "the log does not say why: a setting, an image, a cable or a part is different there, or it is meant to be so"
_SLOW = "rings and trees are as fast as their slowest connection, so that all ranks wait for it"
_UNKNOWN = "none if it is meant to be so; otherwise the others wait for the odd one, or are slowed down by it"


def explain(facts: Facts, findings: Sequence[Finding]) -> Results:
    """Judge what no other finding says of the same ranks and hosts: slower paths, and differences that may cost."""
    heavy = [finding for finding in findings if finding.severity != "info"]
    for entries in find(facts):
        slow = [one.paths() for odd in entries if odd.is_likely for one in odd.found if one.paths]
        paths = reduce(or_, slow) if slow else None
        if not any(_tells(facts, finding, one, paths) for finding in heavy for one in entries):
            yield _find(entries, paths)


def _tells(facts: Facts, finding: Finding, odd: Odd, slow: Selection | None) -> bool:
    """Whether a finding is about the same: slow paths, a line, or the same ranks in a related respect."""
    if slow is not None and finding.paths is not None and set(slow.rows) <= set(finding.paths.rows):
        return True
    shown = {(line.source, line.order) for line in finding.evidence}
    if any((line.source, line.order) in shown for line in odd.lines()[:1]):
        return True
    some = len(finding.ranks) < len(facts.job.ranks_seen)
    is_named = some and bool(odd.ranks) and odd.ranks <= set(finding.ranks)
    is_there = bool(finding.hosts) and odd.hosts >= set(finding.hosts)
    return (is_named or is_there) and finding.category in odd.attribute.told_by


def _find(entries: list[Odd], slow: Selection | None) -> Finding:
    """Make a finding of what is odd about some siblings: a clue, unless it is a slower path of one among many."""
    steps = list(dict.fromkeys(one.attribute.check.format(label=one.label) for one in entries))
    return RULE.finding(
        tell(entries),
        cause=_CAUSE,
        impact=_UNKNOWN if slow is None else _SLOW,
        fix=steps,
        confirm="" if slow is not None else f"Compare it with one of the others: {steps[0]}",
        confidence="likely" if entries[0].is_likely else "possible",
        ranks=entries[0].ranks,
        hosts=entries[0].hosts,
        paths=slow,
        evidence=[line for one in entries for line in one.lines()],
    )
