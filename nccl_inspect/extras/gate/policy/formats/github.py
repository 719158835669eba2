"""Workflow commands for GitHub Actions: what is not kept annotates the line of the log that shows it."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.extras.gate.policy import Checked, Outcome
from nccl_inspect.extras.gate.policy.formats.words import label, level, numbers, sentence, verdict
from nccl_inspect.report import Style
from nccl_inspect.report.github import annotation, unread


def render(checked: Checked, strict: bool, style: Style) -> str:
    """One command for the result and one for each expectation that is not kept."""
    return "\n".join(_commands(checked, strict)) + "\n"


def _commands(checked: Checked, strict: bool) -> Iterator[str]:
    kind = "notice" if checked.is_met(strict) else "error"
    text = f"{verdict(checked, strict)}: {checked.policy}: {numbers(checked, strict)}"
    yield annotation(kind, "nccl-inspect check", text)
    yield from unread(checked.job)
    for outcome in checked.outcomes:
        if outcome.answer.state != "kept" and outcome.key != "log":
            yield annotation(level(outcome, strict), outcome.key, _message(outcome), outcome.answer.evidence)


def _message(outcome: Outcome) -> str:
    answer = outcome.answer
    parts = [f"{answer.state}: {sentence(outcome)}", f"{label(answer.state)}: {answer.todo}"]
    if answer.rule:
        parts.append(f"finding: {answer.rule}")
    parts += [f"evidence: {line.source}:{line.line}: {line.text}" for line in answer.evidence[:1]]
    return "\n".join(parts)
