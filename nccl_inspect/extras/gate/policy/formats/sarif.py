"""SARIF 2.1.0: each expectation that is not kept, at the line of the log that shows it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from nccl_inspect.extras.gate.policy import Checked, Outcome
from nccl_inspect.extras.gate.policy.formats.words import label, level, sentence
from nccl_inspect.report import Style
from nccl_inspect.report.sarif import Fingerprints, document, fingerprints, result


def render(checked: Checked, strict: bool, style: Style) -> str:
    """One run whose rules are the expectations of the policy."""
    bad = [outcome for outcome in checked.outcomes if outcome.answer.state != "kept"]
    wanted = {outcome.key: outcome.wanted for outcome in bad}
    places = {key: index for index, key in enumerate(wanted)}
    counts: Fingerprints = Counter()
    results = [_result(outcome, places[outcome.key], strict, counts) for outcome in bad]
    rules = [_rule(key, words) for key, words in wanted.items()]
    return document(checked.job, rules, results, policy=checked.policy, isMet=checked.is_met(strict))


def _rule(key: str, wanted: str) -> dict[str, Any]:
    return {
        "id": f"policy/{key}",
        "shortDescription": {"text": f"{key}: {wanted}"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["policy"]},
    }


def _result(outcome: Outcome, index: int, strict: bool, counts: Fingerprints) -> dict[str, Any]:
    answer = outcome.answer
    rule = f"policy/{outcome.key}"
    text = f"{sentence(outcome)}\n{label(answer.state).capitalize()}: {answer.todo}"
    marks = fingerprints(rule, answer.ranks, counts)
    return {
        **result(rule, index, level(outcome, strict), text, answer.evidence, marks),
        "properties": {"state": answer.state, "finding": answer.rule or None, "ranks": answer.ranks},
    }
