"""Words and colours that reports for people share."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from nccl_inspect.report import Style
from nccl_inspect.rules.remedies import COMMENT

_COLORS = {"error": "31", "warning": "33", "info": "36", "ok": "32", "bold": "1", "dim": "2"}
_VERDICT_COLOR = {"ok": "ok", "degraded": "warning", "failed": "error", "unknown": "info"}
_NARROW = 60
"""Columns below which labels get no column of their own."""


def paint(text: str, color: str, style: Style) -> str:
    """The text in a colour, when the style has colours."""
    return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if style.color else text


def verdict_color(verdict: str) -> str:
    """The colour of a verdict."""
    return _VERDICT_COLOR[verdict]


def block(label: str, text: str, style: Style, indent: int = 2, hang: int = 10) -> list[str]:
    """A labelled paragraph, wrapped to the width: the label in a column of its own."""
    lead = " " * indent + label.ljust(hang)
    width = max(style.width, 40)
    if width < _NARROW:
        lead, hang_text = " " * indent + (f"{label} " if label else ""), " " * (indent + 2)
        if label and text and len(lead) + len(text.split()[0]) > width:
            return [lead.rstrip(), *block("", text, style, indent + 2, 0)]
    else:
        hang_text = " " * (indent + hang)
    return textwrap.wrap(
        text, width, initial_indent=lead, subsequent_indent=hang_text, break_long_words=False, break_on_hyphens=False
    ) or [lead.rstrip()]


def step_block(label: str, step: str, style: Style) -> list[str]:
    """A step of a fix: where it does not fit into one line, the words about a command follow as lines of comment."""
    whole = block(label, step, style)
    code, mark, words = step.partition(COMMENT)
    if len(whole) == 1 or not mark:
        return whole
    lines = block(label, code, style)
    indent = " " * (4 if style.width < _NARROW else 14) + "# "
    return lines + textwrap.wrap(
        words,
        max(style.width, 40),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shortened(items: Iterable[str], limit: int = 6) -> str:
    """Items in a row, with the number of those left out."""
    items = list(items)
    more = len(items) - limit
    return ", ".join(items[:limit]) + (f", … {more} more" if more > 0 else "")
