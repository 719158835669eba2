"""Two compared runs for people: what likely explains what, then all changes by area."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from nccl_inspect.extras.gate.differences import AREAS, Difference
from nccl_inspect.extras.gate.differences.formats import words
from nccl_inspect.report import Style
from nccl_inspect.report.words import block, paint, step_block, verdict_color
from nccl_inspect.util.text import printable

_COLORS = {"new": "warning", "gone": "info", "changed": "bold"}


def render(difference: Difference, style: Style) -> str:
    """The comparison; it fits any width from 40 columns."""
    parts = [
        _head(difference, style),
        _why(difference, style),
        *(_area(area, difference, style) for area in AREAS),
        _open(difference, style),
    ]
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def _head(difference: Difference, style: Style) -> Iterator[str]:
    yield from block("", words.headline(difference), style, indent=0, hang=0)
    for label, job in (("A", difference.a), ("B", difference.b)):
        first, *rest = block(label, printable(words.run(job)), style, indent=0, hang=3)
        word = job.verdict.upper()
        yield first.replace(word, paint(word, verdict_color(job.verdict), style), 1)
        yield from rest
    if hosts := words.renamed(difference):
        yield from block("", printable(hosts), style, indent=0, hang=0)


def _why(difference: Difference, style: Style) -> Iterator[str]:
    if difference.explanations:
        yield paint("what likely explains what", "bold", style)
    for chain in difference.explanations:
        yield from block("", printable(words.chain_words(chain)), style, indent=2, hang=0)
        for line in words.proof(chain):
            for text in block("", printable(line), style, indent=4, hang=0):
                yield paint(text, "dim", style)
        yield from _steps(chain.fix, style)


def _steps(fix: list[str], style: Style) -> Iterator[str]:
    for label, step in zip(itertools.chain(["fix"], itertools.repeat("")), fix, strict=False):
        yield from step_block(label, printable(step), style, indent=4, hang=5)


def _area(area: str, difference: Difference, style: Style) -> Iterator[str]:
    changes, lonely = difference.of(area), words.unexplained(difference)
    if changes:
        yield paint(area, "bold", style)
    for change in changes:
        sign = words.SIGNS[change.kind]
        first, *rest = block(sign, printable(words.change_words(change)), style, indent=2, hang=2)
        yield first.replace(sign, paint(sign, _COLORS[change.kind], style), 1)
        yield from rest
        if change in lonely:
            yield from _steps(change.fix[:1], style)


def _open(difference: Difference, style: Style) -> Iterator[str]:
    if difference.open:
        yield paint("not compared", "bold", style)
    for text in difference.open:
        yield from block("", printable(text), style, indent=2, hang=0)
