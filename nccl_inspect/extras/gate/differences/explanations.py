"""Which change explains which, only by the causes that rules name and by the evidence of findings."""

from __future__ import annotations

import re

from nccl_inspect.extras.gate.differences import CausalChain, Change
from nccl_inspect.judging.remedies import COMMENT

_CAUSES = ("versions", "environment")
_PLAIN = re.compile(r"[^\s;]+")
"""A value for all ranks, from the environment."""


def explain(changes: list[Change], pairwise: bool) -> list[CausalChain]:
    """Chains of changes, first those of new findings in B, then those of gone ones.

    A finding explains another that names it as its cause, and the paths that it is about. A changed setting or version
    explains a finding if one of its lines is evidence of that finding. What a failed run lacks explains nothing.
    """
    chains = []
    failed = any(change.area == "verdict" and change.after == "failed" for change in changes)
    for kind in ("new",) if failed else ("new", "gone"):
        findings = [change for change in changes if change.area == "findings" and change.kind == kind]
        chains += _chains(findings, changes, pairwise)
        explained = {id(effect) for chain in chains for effect in chain.effects if effect.area == "paths"}
        changes = [change for change in changes if id(change) not in explained]  # what is new there says why
    return chains


def _chains(findings: list[Change], changes: list[Change], pairwise: bool) -> list[CausalChain]:
    names = {finding.what for finding in findings}
    chains = []
    for first in findings:
        if names.intersection(first.rules) - {first.what}:
            continue  # it is an effect of another one
        members = [first, *_effects(first, findings)]
        causes = [change for change in changes if change.area in _CAUSES and _shares_a_line(change, first)]
        paths = (change for change in changes if change.area == "paths")
        effects = [path for path in paths if any(_is_effect(path, member, pairwise) for member in members)]
        if effects and first.severity != "info":  # what worse paths cost, or better ones gain
            is_slower = first.kind == "new"
            effects += [change for change in changes if change.area == "bandwidth" and change.is_slower == is_slower]
        networks = [change for change in changes if change.area == "network"]
        effects = [n for n in networks if any(_shares_a_line(n, member) for member in members)] + effects
        if causes or effects or len(members) > 1:
            chains.append(CausalChain(causes, members, effects, _fix(causes, members)))
    return chains


def _is_effect(path: Change, finding: Change, pairwise: bool) -> bool:
    """Whether a finding explains a change of paths.

    A finding without cost makes no path appear or disappear. A pair that B does not connect at all lost its finding
    with its lines, not by a fix.
    """
    if finding.what not in path.rules or (finding.severity == "info" and path.kind != "changed"):
        return False
    return not (pairwise and path.kind == finding.kind == "gone")


def _fix(causes: list[Change], findings: list[Change]) -> list[str]:
    """The first step of the first finding with a fix, and how to revert causes that it does not name."""
    steps = next((finding.fix[:1] for finding in findings if finding.fix), [])
    if findings[0].kind == "new" and (steps or findings[0].severity != "info"):
        steps = steps + [_back(cause) for cause in causes if not any(_names(step, cause) for step in steps)]
    return steps


def _names(step: str, cause: Change) -> bool:
    """Whether a step already names a new setting."""
    return cause.kind == "new" and cause.what in step


def _back(cause: Change) -> str:
    """Return how to revert a cause to its state in A; a command for a setting with one value."""
    if cause.area == "versions":
        return f"Use {cause.what} {cause.before} again, as A does."
    if cause.before is None:
        return f"unset {cause.what}{COMMENT}as in A"
    if _PLAIN.fullmatch(cause.before):
        return f"{cause.what}={cause.before}{COMMENT}as in A"
    return f"Set {cause.what} back to what A has: {cause.before}."


def _effects(cause: Change, findings: list[Change]) -> list[Change]:
    """Findings that name a cause, and those that name them, the nearest first."""
    effects: list[Change] = []
    names = {cause.what}
    while fresh := [f for f in findings if f.what not in names and names.intersection(f.rules)]:
        effects += fresh
        names |= {finding.what for finding in fresh}
    return effects


def _shares_a_line(change: Change, finding: Change) -> bool:
    """Whether a line of the change is evidence of the finding."""
    lines = {(line.source, line.order) for line in finding.evidence}
    return any((line.source, line.order) in lines for line in change.evidence)
