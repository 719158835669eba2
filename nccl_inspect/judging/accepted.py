"""Users' settings for findings: severities of their own, and findings that they accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase

from nccl_inspect.model.finding import Finding, Suppressed
from nccl_inspect.util.records import Frozen


class Suppression(Frozen):
    """Findings that the user accepts, with the reason."""

    rules: frozenset[str]
    reason: str
    hosts: tuple[str, ...] = ()  # globs; empty for all
    ranks: frozenset[int] | None = None  # None for all

    def covers(self, finding: Finding) -> bool:
        """Return whether it covers the whole finding: one that also concerns other ranks or hosts is not accepted."""
        if finding.rule not in self.rules:
            return False
        if self.ranks is not None and not (finding.ranks and self.ranks.issuperset(finding.ranks)):
            return False
        names = [any(fnmatchcase(host, pattern) for pattern in self.hosts) for host in finding.hosts]
        return not self.hosts or (bool(names) and all(names))


class Terms(Frozen):
    """Severities and suppressions that the user set."""

    severities: Mapping[str, str] = field(default_factory=dict)
    """By the name of the rule; others keep the severity of the rule."""
    suppressions: tuple[Suppression, ...] = ()

    def with_user_severities(self, findings: Iterable[Finding]) -> list[Finding]:
        """Return the findings with the severities that the user set."""
        return [f.with_fields(severity=self.severities.get(f.rule, f.severity)) for f in findings]

    def split_accepted(self, findings: Iterable[Finding]) -> tuple[list[Finding], list[Suppressed]]:
        """Findings that count, and findings that are accepted."""
        reasons = [
            (finding, next((entry.reason for entry in self.suppressions if entry.covers(finding)), None))
            for finding in findings
        ]
        accepted = [Suppressed(finding, reason) for finding, reason in reasons if reason is not None]
        return [finding for finding, reason in reasons if reason is None], accepted
