"""Markdown with all log text escaped or quoted as code."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from nccl_inspect.judging.remedies import is_sentence
from nccl_inspect.report import Style
from nccl_inspect.util.text import cut, printable

_MAX_LINE = 500
"""Characters of a line of evidence, unless verbose: an issue holds 65,536 in all."""
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>|~&$#]")
_CALLS = re.compile(r"(\\?[@#]|\bGH-)(?=\w)")


def details(title: str, lines: Iterable[str], style: Style) -> str:
    """Log lines in a folded section; the fence is longer than any in them."""
    text = "\n".join(printable(line) if style.verbose else cut(printable(line), _MAX_LINE) for line in lines)
    fence = "`" * max(3, _ticks(text) + 1)
    return f"<details><summary>{html.escape(title)}</summary>\n\n{fence}text\n{text}\n{fence}\n\n</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are markup already."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def plain(text: str) -> str:
    """Text in which nothing is markup, a mention or a reference."""
    escaped = _SPECIAL.sub(r"\\\g<0>", printable(text).strip())
    return _CALLS.sub(r"\1<!-- -->", escaped)


def step(step: str) -> str:
    """A step as an item of a list; commands as code."""
    return f"- {plain(step) if is_sentence(step) else code(step)}"


def code(text: str) -> str:
    """A code span that can be copied as it is."""
    text = printable(text)
    ticks = "`" * (_ticks(text) + 1)
    space = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _ticks(text: str) -> int:
    """The longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)
