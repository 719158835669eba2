"""The report for people, as text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup
from tabulate import tabulate

from nccl_inspect.report import Style, html
from nccl_inspect.report.words import paint
from nccl_inspect.util.text import cut, escape_controls

_MARKED = re.compile("⟦(.*?)⟧")
_MIN_WIDTH, _INDENT = 40, " " * 14
_LEAST_CHANCE = 1e-9  # the least probability that is worth a number


def render(document: dict[str, Any], style: Style) -> str:
    """Return the report: who is suspected, what to drain, causes, what is new, and the last days."""
    width = max(style.width, _MIN_WIDTH)
    pages = html.environment(Path(__file__).parent).overlay(autoescape=False)
    pages.filters |= {"table": _table, "cut": partial(cut, width=width - len(_INDENT))}
    lines = pages.get_template("text.j2").render(context(document)).strip("\n").splitlines()
    wrap = partial(
        textwrap.wrap, width=width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )
    fitted = (part for line in lines for part in (wrap(line) if line.startswith("    ") else [line.rstrip()]))
    return "".join(_MARKED.sub(lambda marked: paint(marked[1], "bold", style), f"{line}\n") for line in fitted)


def context(document: dict[str, Any]) -> dict[str, Any]:
    """Return what templates print."""

    def chance(suspect: dict[str, Any]) -> str:
        return f"{suspect['chance']:.1g}" if suspect["chance"] > _LEAST_CHANCE else f"below {_LEAST_CHANCE:g}"

    return {"document": document, "rate": rate, "chance": chance}


def rate(counted: dict[str, Any]) -> str:
    """Return a rate with its interval, in words."""
    return f"{counted['rate']:.1%} ({counted['low']:.1%}-{counted['high']:.1%})"


def _table(rows: Iterable[dict[str, Any]], heads: Sequence[str], keys: Sequence[str]) -> str:
    """Return rows by their keys: a date is cut to its day, the rate of a row has no key. Templates keep its lines."""

    def show(row: dict[str, Any], key: str) -> str:
        value = row[key] if key else rate(row)
        return "-" if value is None else escape_controls(str(value))[: 10 if key in ("first", "last") else None]

    cells = [[show(row, key) for key in keys] for row in rows]
    return Markup(textwrap.indent(tabulate(cells, heads, tablefmt="plain", disable_numparse=True), "  "))  # noqa: S704
