"""Markdown for an issue or the summary of a pipeline: what is not kept, each fix once, and the lines folded away."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.extras.gate.policy import Checked
from nccl_inspect.extras.gate.policy.formats.words import by_fix, label, numbers, place, verdict
from nccl_inspect.report import Style
from nccl_inspect.report.words import escape_markdown, folded_lines, markdown_table, step_item
from nccl_inspect.util.wording import count

SUFFIXES = ("md",)


def render(checked: Checked, strict: bool, style: Style) -> str:
    """The result, a table of what is not kept for each fix, and what is kept where all is wanted."""
    return "\n\n".join([*_head(checked, strict), *_groups(checked, style), *_kept(checked, style)]) + "\n"


def _head(checked: Checked, strict: bool) -> Iterator[str]:
    yield f"## {verdict(checked, strict)}: {escape_markdown(checked.policy)}"
    yield escape_markdown(numbers(checked, strict))


def _groups(checked: Checked, style: Style) -> Iterator[str]:
    for state, todo, outcomes in by_fix(checked):
        rows = [
            [
                f"**{state}**",
                escape_markdown(o.key),
                escape_markdown(o.answer.summary),
                escape_markdown(o.wanted),
                escape_markdown(place(o.answer.evidence)),
            ]
            for o in outcomes
        ]
        yield markdown_table(("", "expectation", "found", "wanted", "line"), rows)
        yield f"**{label(state).capitalize()}:**\n{step_item(todo)}"
        evidence = [line for outcome in outcomes for line in outcome.answer.evidence]
        if lines := list(dict.fromkeys(f"{line.source}:{line.line}: {line.text}" for line in evidence)):
            yield folded_lines(f"Evidence: {count(len(lines), 'line')}", lines, style)


def _kept(checked: Checked, style: Style) -> Iterator[str]:
    if style.verbose and (kept := checked.of("kept")):
        rows = [
            ["**kept**", escape_markdown(o.key), escape_markdown(o.answer.summary), escape_markdown(o.wanted)]
            for o in kept
        ]
        yield markdown_table(("", "expectation", "found", "wanted"), rows)
