"""Which change explains which: nothing but what rules say of causes, and the lines that findings stand on."""

from __future__ import annotations

from nccl_inspect.differences import Change, Explanation

_CAUSES = ("versions", "environment")


def explain(changes: list[Change]) -> list[Explanation]:
    """Chains of changes, first those of what run B has, then those of what it has no more.

    A finding explains another that names it as its cause, and the paths that it is about. A changed setting or version
    explains a finding when one of its lines is evidence of that finding. What a run lacks that failed explains nothing.
    """
    found = []
    failed = any(change.area == "verdict" and change.after == "failed" for change in changes)
    for kind in ("new",) if failed else ("new", "gone"):
        found += _chains([change for change in changes if change.area == "findings" and change.kind == kind], changes)
    return found


def _chains(findings: list[Change], changes: list[Change]) -> list[Explanation]:
    names = {finding.what for finding in findings}
    chains = []
    for first in findings:
        if names.intersection(first.rules) - {first.what}:
            continue  # it is an effect of another one
        members = [first, *_effects(first, findings)]
        causes = [change for change in changes if change.area in _CAUSES and _shares_a_line(change, first)]
        rules = {member.what for member in members}
        effects = [change for change in changes if change.area == "paths" and rules.intersection(change.rules)]
        networks = [change for change in changes if change.area == "network"]
        effects = [n for n in networks if any(_shares_a_line(n, member) for member in members)] + effects
        if causes or effects or len(members) > 1:
            chains.append(Explanation(causes, members, effects))
    return chains


def _effects(cause: Change, findings: list[Change]) -> list[Change]:
    """Findings that name a cause, and those that name them, the nearest first."""
    found: list[Change] = []
    names = {cause.what}
    while fresh := [f for f in findings if f.what not in names and names.intersection(f.rules)]:
        found += fresh
        names |= {finding.what for finding in fresh}
    return found


def _shares_a_line(change: Change, finding: Change) -> bool:
    """Whether a line of the change is evidence of the finding."""
    lines = {(line.source, line.order) for line in finding.evidence}
    return any((line.source, line.order) in lines for line in change.evidence)
