"""A checked policy for people and build logs: what is not kept, and each fix once."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.extras.gate.policy import Checked, Outcome
from nccl_inspect.extras.gate.policy.formats.words import by_fix, label, numbers, place, sentence, verdict
from nccl_inspect.report import Style
from nccl_inspect.report.words import block, paint, step_block
from nccl_inspect.util.text import printable

_COLORS = {"broken": "error", "undecided": "warning", "kept": "ok"}
_HANG = 11


def render(checked: Checked, strict: bool, style: Style) -> str:
    """The result, then what is broken, then what is undecided; it fits any width from 40 columns."""
    parts = [list(_head(checked, strict, style)), *_groups(checked, style)]
    if style.verbose and (kept := [line for outcome in checked.of("kept") for line in _outcome(outcome, style)]):
        parts.append(kept)
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _head(checked: Checked, strict: bool, style: Style) -> Iterator[str]:
    word = verdict(checked, strict)
    text = printable(f"{word}: {checked.policy}: {numbers(checked, strict)}")
    first, *rest = block("", text, style, indent=0, hang=0)
    yield first.replace(word, paint(word, "ok" if checked.is_met(strict) else "error", style), 1)
    yield from rest


def _groups(checked: Checked, style: Style) -> Iterator[list[str]]:
    for state, todo, outcomes in by_fix(checked):
        lines = [line for outcome in outcomes for line in _outcome(outcome, style)]
        yield [*lines, *step_block(label(state), printable(todo), style, indent=0, hang=_HANG)]


def _outcome(outcome: Outcome, style: Style) -> Iterator[str]:
    state = outcome.answer.state
    text = printable(f"{outcome.key}: {sentence(outcome)}")
    first, *rest = block(state, text, style, indent=0, hang=_HANG)
    yield first.replace(state, paint(state, _COLORS[state], style), 1)
    yield from rest
    if lines := place(outcome.answer.evidence):
        yield from block("", printable(lines), style, indent=0, hang=_HANG)
