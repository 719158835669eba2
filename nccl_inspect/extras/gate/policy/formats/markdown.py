"""Markdown for an issue or the summary of a pipeline: what is not kept, each fix once, and the lines folded away."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.extras.gate.policy import Checked
from nccl_inspect.extras.gate.policy.formats.words import by_fix, label, numbers, place, verdict
from nccl_inspect.report import Style
from nccl_inspect.report.markup import details, plain, step, table
from nccl_inspect.util.wording import count

SUFFIXES = ("md",)


def render(checked: Checked, strict: bool, style: Style) -> str:
    """The result, a table of what is not kept for each fix, and what is kept where all is wanted."""
    return "\n\n".join([*_head(checked, strict), *_groups(checked, style), *_kept(checked, style)]) + "\n"


def _head(checked: Checked, strict: bool) -> Iterator[str]:
    yield f"## {verdict(checked, strict)}: {plain(checked.policy)}"
    yield plain(numbers(checked, strict))


def _groups(checked: Checked, style: Style) -> Iterator[str]:
    for state, todo, outcomes in by_fix(checked):
        rows = [
            [f"**{state}**", plain(o.key), plain(o.answer.summary), plain(o.wanted), plain(place(o.answer.evidence))]
            for o in outcomes
        ]
        yield table(("", "expectation", "found", "wanted", "line"), rows)
        yield f"**{label(state).capitalize()}:**\n{step(todo)}"
        evidence = [line for outcome in outcomes for line in outcome.answer.evidence]
        if lines := list(dict.fromkeys(f"{line.source}:{line.line}: {line.text}" for line in evidence)):
            yield details(f"Evidence: {count(len(lines), 'line')}", lines, style)


def _kept(checked: Checked, style: Style) -> Iterator[str]:
    if style.verbose and (kept := checked.of("kept")):
        rows = [["**kept**", plain(o.key), plain(o.answer.summary), plain(o.wanted)] for o in kept]
        yield table(("", "expectation", "found", "wanted"), rows)
