"""Two compared runs as the document ``nccl-inspect-diff/1``; its schema is ``schema/nccl-inspect-diff-1.json``."""

from __future__ import annotations

from typing import Any

from nccl_inspect.extras.gate.differences import Change, Difference
from nccl_inspect.model.document import clean, evidence_to_dict
from nccl_inspect.model.job import Job
from nccl_inspect.util.records import picked

SCHEMA = "nccl-inspect-diff/1"


def to_dict(difference: Difference) -> dict[str, Any]:
    """The document: plain lists, dictionaries, printable text and numbers."""
    numbers = {id(change): number for number, change in enumerate(difference.changes)}
    document: dict[str, Any] = clean(
        {
            "schema": SCHEMA,
            "is_same": not difference.changes,
            "a": _run(difference.a),
            "b": _run(difference.b),
            "renamed_hosts": [{"a": name, "b": other} for name, other in difference.renamed.items()],
            "changes": [_change(change) for change in difference.changes],
            "explanations": [
                {
                    "causes": [numbers[id(change)] for change in chain.causes],
                    "findings": [numbers[id(change)] for change in chain.findings],
                    "effects": [numbers[id(change)] for change in chain.effects],
                    "fix": chain.fix,
                }
                for chain in difference.explanations
            ],
            "not_compared": difference.open,
        }
    )
    return document


def _run(job: Job) -> dict[str, Any]:
    return {
        "sources": [source.name for source in job.sources],
        **picked(job, "verdict", "partial", "world_size", "nccl_versions", "config"),
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        **picked(change, "area", "what", "kind", "before", "after"),
        "pairs": [list(pair) for pair in change.pairs],
        **picked(change, "ranks", "rules"),
        "evidence": [evidence_to_dict(line) for line in change.evidence],
        "severity": change.severity or None,
        "fix": change.fix,
    }
