"""Markdown for a ticket: what explains what with its fix, then all changes by area."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.extras.gate.differences import AREAS, Difference
from nccl_inspect.extras.gate.differences.formats import words
from nccl_inspect.report import Style
from nccl_inspect.report.words import code_span, escape_markdown, folded_lines, markdown_table, step_item

SUFFIXES = ("md",)


def render(difference: Difference, style: Style) -> str:
    """The comparison as GitHub and GitLab show it."""
    parts = (_head(difference), _why(difference, style), _lonely(difference), _changes(difference), _open(difference))
    return "\n\n".join(text for part in parts for text in part) + "\n"


def _head(difference: Difference) -> Iterator[str]:
    yield f"## {escape_markdown(words.headline(difference))}"
    yield markdown_table(
        ("", ""),
        [("**A**", escape_markdown(words.run(difference.a))), ("**B**", escape_markdown(words.run(difference.b)))],
    )
    if hosts := words.renamed(difference):
        yield escape_markdown(hosts)


def _why(difference: Difference, style: Style) -> Iterator[str]:
    if difference.explanations:
        yield "### What likely explains what"
    for chain in difference.explanations:
        yield escape_markdown(words.chain_words(chain))
        yield from _fix(chain.fix)
        if lines := words.proof(chain):
            yield folded_lines("Evidence", lines, style)


def _lonely(difference: Difference) -> Iterator[str]:
    if changes := words.unexplained(difference):
        yield "### Other findings of B"
    for change in changes:
        yield f"{code_span(change.what)}: {escape_markdown(change.after or '')}"
        yield from _fix(change.fix[:1])


def _fix(steps: list[str]) -> Iterator[str]:
    if steps:
        yield "**Fix:**\n" + "\n".join(map(step_item, steps))


def _changes(difference: Difference) -> Iterator[str]:
    if difference.changes:
        yield "### Changes"
        rows = [
            [
                words.SIGNS[change.kind].replace("-", "\\-").replace("+", "\\+"),
                area,
                escape_markdown(words.change_words(change)),
            ]
            for area in AREAS
            for change in difference.of(area)
        ]
        yield markdown_table(("", "area", "change"), rows)


def _open(difference: Difference) -> Iterator[str]:
    if difference.open:
        yield "### Not compared"
        yield "\n".join(f"- {escape_markdown(text)}" for text in difference.open)
