"""One of several hosts, ranks or communicators that should be alike differs from the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_

from nccl_inspect.judging import siblings
from nccl_inspect.judging.check import Facts, Finding, Hit
from nccl_inspect.judging.siblings import Odd
from nccl_inspect.model.job import Selection


def differs_from_siblings(facts: Facts, findings: Sequence[Finding]) -> Iterator[Hit]:
    """Find what no other finding says of the same ranks and hosts: slower paths, and differences that may cost.

    It is a clue, unless it is a slower path of one among many.
    """
    heavy = [finding for finding in findings if finding.severity != "info"]
    for entries in siblings.find_differences(facts):
        slow = [one.paths() for odd in entries if odd.is_likely for one in odd.found if one.paths]
        paths = reduce(or_, slow) if slow else None
        if not any(_tells(facts, finding, one, paths) for finding in heavy for one in entries):
            first, checks = entries[0], [one.attribute.check.format(label=one.label) for one in entries]
            named = {
                "difference": siblings.tell(entries),
                "checks": list(dict.fromkeys(checks)),
                "check": checks[0],
                "likely": first.is_likely,
            }
            lines = [line for one in entries for line in one.lines()]
            yield Hit([], named, first.ranks, first.hosts, lines, paths)


def _tells(facts: Facts, finding: Finding, odd: Odd, slow: Selection | None) -> bool:
    """Return whether a finding is about the same: slow paths, a line, or the same ranks in a related respect."""
    if slow is not None and finding.paths is not None and set(slow.rows) <= set(finding.paths.rows):
        return True
    shown = {(line.source, line.order) for line in finding.evidence}
    if any((line.source, line.order) in shown for line in odd.lines()[:1]):
        return True
    some = len(finding.ranks) < len(facts.job.ranks_seen)
    is_named = some and bool(odd.ranks) and odd.ranks <= set(finding.ranks)
    is_there = bool(finding.hosts) and odd.hosts >= set(finding.hosts)
    return (is_named or is_there) and finding.category in odd.attribute.told_by
