"""A checked policy as the document ``nccl-inspect-check/1``; its schema is ``schema/nccl-inspect-check-1.json``."""

from __future__ import annotations

from typing import Any

from nccl_inspect.model.document import clean, evidence_to_dict
from nccl_inspect.policy import Checked

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
            "verdict": checked.job.verdict,
            "expectations": [
                {
                    "key": outcome.key,
                    "wanted": outcome.wanted,
                    "state": outcome.answer.state,
                    "summary": outcome.answer.summary,
                    "todo": outcome.answer.todo,
                    "ranks": outcome.answer.ranks,
                    "evidence": [evidence_to_dict(line) for line in outcome.answer.evidence],
                }
                for outcome in checked.outcomes
            ],
        }
    )
    return document
