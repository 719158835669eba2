"""A checked policy for people and build logs: one line for each expectation that is not kept."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.policy import Checked, Outcome
from nccl_inspect.report import Style
from nccl_inspect.report.words import paint
from nccl_inspect.rules.facts import count
from nccl_inspect.text import printable

_COLORS = {"broken": "error", "undecided": "warning", "kept": "ok"}


def render(checked: Checked, strict: bool, style: Style) -> str:
    """The result, then what is broken, then what is undecided; lines are not wrapped, so that grep gets all of one."""
    return "\n".join(_lines(checked, strict, style)) + "\n"


def _lines(checked: Checked, strict: bool, style: Style) -> Iterator[str]:
    met = checked.is_met(strict)
    numbers = ", ".join(f"{len(found)} {state}" for state in _COLORS if (found := checked.of(state)))
    word = paint("KEPT" if met else "BROKEN", "ok" if met else "error", style)
    why = "; --strict lets nothing be undecided" if checked.state == "undecided" and not met else ""
    yield f"{word}: {printable(checked.policy)}: {numbers or 'no expectation'}{why}"
    for outcome in checked.outcomes:
        if outcome.answer.state != "kept" or style.verbose:
            yield _line(outcome, style)


def _line(outcome: Outcome, style: Style) -> str:
    answer = outcome.answer
    where = f" ({_where(answer.evidence)})" if answer.evidence else ""
    todo = f"; {answer.todo}" if answer.todo else ""
    state = paint(answer.state, _COLORS[answer.state], style)
    text = f"{outcome.key}: {answer.summary}, wanted: {outcome.wanted}{where}{todo}"
    return f"{state}  {printable(' '.join(text.split()))}"


def _where(evidence: list[Evidence]) -> str:
    """The first line, and how many more there are to look at in the JSON."""
    first = f"{evidence[0].source}:{evidence[0].line}"
    return first if len(evidence) == 1 else f"{first} and {count(len(evidence) - 1, 'more line')}"
