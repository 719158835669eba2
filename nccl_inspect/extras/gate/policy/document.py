"""A checked policy as the document ``nccl-inspect-check/1``; its schema is ``schema/nccl-inspect-check-1.json``."""

from __future__ import annotations

from typing import Any

from nccl_inspect.extras.gate.policy import Checked
from nccl_inspect.model.document import clean, evidence_to_dict, finding_to_dict
from nccl_inspect.model.finding import Finding
from nccl_inspect.util.records import picked

_OF_FINDINGS = ("rule", "severity", "confidence", "summary", "cause", "impact", "fix", "ranks", "evidence")
SCHEMA = "nccl-inspect-check/1"


def to_dict(checked: Checked, strict: bool) -> dict[str, Any]:
    """The document: plain lists, dictionaries, printable text and numbers."""
    document: dict[str, Any] = clean(
        {
            "schema": SCHEMA,
            "policy": checked.policy,
            "config": checked.job.config,
            "sources": [source.name for source in checked.job.sources],
            "state": checked.state,
            "strict": strict,
            "is_met": checked.is_met(strict),
            **picked(checked.job, "verdict", "partial"),
            "expectations": [
                {
                    **picked(outcome, "key", "wanted"),
                    **picked(outcome.answer, "state", "summary", "todo"),
                    "rule": outcome.answer.rule or None,
                    "ranks": outcome.answer.ranks,
                    "evidence": [evidence_to_dict(line) for line in outcome.answer.evidence],
                }
                for outcome in checked.outcomes
            ],
            "findings": [_finding(finding) for finding in checked.findings],
        }
    )
    return document


def _finding(finding: Finding) -> dict[str, Any]:
    """Return what a report of the policy needs of a finding; the rest is in the document of the job."""
    whole = finding_to_dict(finding)
    return {key: whole[key] for key in _OF_FINDINGS}
