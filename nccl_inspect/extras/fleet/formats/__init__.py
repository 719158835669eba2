"""The formats of a report on a store: text and HTML from templates, and JSON.

The JSON Schema of the document is ``nccl_inspect/schema/nccl-inspect-fleet-1.json``.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from nccl_inspect._version import __version__
from nccl_inspect.report import Format, Style
from nccl_inspect.report.words import environment, paint
from nccl_inspect.util.text import cut, escape_controls

_HERE = Path(__file__).parent
_MARKED = re.compile("⟦(.*?)⟧")
_MIN_WIDTH, _INDENT = 40, " " * 14
_LEAST_CHANCE = 1e-9  # the least probability that is worth a number
_MOST_CAUSES = 4


def _rate(counted: dict[str, Any]) -> str:
    """Return a rate with its interval, in words."""
    return f"{counted['rate']:.1%} ({counted['low']:.1%}-{counted['high']:.1%})"


def _chance(suspect: dict[str, Any]) -> str:
    return f"{suspect['chance']:.1g}" if suspect["chance"] > _LEAST_CHANCE else f"below {_LEAST_CHANCE:g}"


def _text(document: dict[str, Any], style: Style) -> str:
    """Return the report for people: who is suspected, what to drain, causes, what is new, and the last days."""
    width = max(style.width, _MIN_WIDTH)
    pages = environment(_HERE).overlay(autoescape=False)
    pages.filters |= {"table": _table, "cut": partial(cut, width=width - len(_INDENT))}
    page = pages.get_template("text.j2").render(document=document, rate=_rate, chance=_chance)
    wrap = partial(
        textwrap.wrap, width=width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )
    lines = page.strip("\n").splitlines()
    fitted = (part for line in lines for part in (wrap(line) if line.startswith("    ") else [line.rstrip()]))
    return "".join(_MARKED.sub(lambda marked: paint(marked[1], "bold", style), f"{line}\n") for line in fitted)


def _table(rows: Iterable[dict[str, Any]], heads: Sequence[str], keys: Sequence[str]) -> str:
    """Return rows by their keys: a date is cut to its day, the rate of a row has no key. Templates keep its lines."""
    from markupsafe import Markup
    from tabulate import tabulate

    def show(row: dict[str, Any], key: str) -> str:
        value = row[key] if key else _rate(row)
        return "-" if value is None else escape_controls(str(value))[: 10 if key in ("first", "last") else None]

    cells = [[show(row, key) for key in keys] for row in rows]
    return Markup(textwrap.indent(tabulate(cells, heads, tablefmt="plain", disable_numparse=True), "  "))  # noqa: S704


def _html(document: dict[str, Any], _style: Style) -> str:
    """Return one page in the look of the report on a job; it needs no other file, no script and no network."""
    from nccl_inspect.report.html import page_look

    pages = environment(_HERE)
    pages.filters["attrs"] = lambda row, *names: [row[name] for name in names]
    days, trends = document["days"], []
    if days:
        spans = [(day["low"], day["high"]) for day in days]
        words = [f"{_rate(day)}, {day['bad']} of {day['jobs']}" for day in days]
        caption = "Part of the jobs that are bad, with its interval (95 %)"
        trends.append(_draw_trend(caption, days, [day["rate"] for day in days], words, spans))
        trends.append(_draw_trend("Jobs", days, [day["jobs"] for day in days]))
        for cause in document["causes"][:_MOST_CAUSES]:
            bad = {one["day"]: one["bad"] for one in cause["days"]}
            trends.append(_draw_trend(f"Bad by {cause['rule']}", days, [bad.get(day["day"], 0) for day in days]))
    worst = "failed" if document["suspects"] else "degraded" if document["bad"]["bad"] else "ok"
    context = {"document": document, "rate": _rate, "chance": _chance, "trends": trends, "version": __version__}
    return pages.get_template("page.html.j2").render(**context, **page_look(worst)) + "\n"


def _draw_trend(
    caption: str,
    days: Sequence[dict[str, Any]],
    numbers: Sequence[float],
    words: Sequence[str] = (),
    spans: Sequence[tuple[float, float]] = (),
) -> dict[str, Any]:
    """Return a number of each day with jobs, in the units of its picture; lines end where days have none."""
    from nccl_inspect.report.html import LABELS, LEFT, RIGHT, draw_scale

    up, scale = draw_scale(max(*numbers, *(high for _, high in spans), 0) * 1.05 or 1.0)
    dates = [date.fromisoformat(day["day"]).toordinal() for day in days]
    width = max(dates[-1] - dates[0], 1)

    def across(day: int) -> float:
        return round(LEFT + (day - dates[0]) / width * (RIGHT - LEFT), 1)

    gaps = [place for place, (day, later) in enumerate(pairwise(dates), 1) if later - day > 1]
    runs = [slice(begin, end) for begin, end in pairwise((0, *gaps, len(days)))]
    line, low, high = (
        [f"{across(day)},{up(height)}" for day, height in zip(dates, heights, strict=True)]
        for heights in (numbers, *zip(*(spans or [(0, 0)] * len(days)), strict=True))
    )
    points = zip(dates, numbers, days, words or numbers, strict=True)
    labels = range(dates[0], dates[-1] + 1, -(-(width + 1) // LABELS))
    return {
        "caption": caption,
        "verdict": "" if caption == "Jobs" else "low",
        "lines": [" ".join(line[run]) for run in runs],
        "bands": [" ".join(high[run] + low[run][::-1]) for run in runs if spans],
        "points": [(across(at), up(number), f"{day['day']}: {said}") for at, number, day, said in points],
        "scale": [(up(number), f"{number:.0%}" if spans else f"{number:g}") for number in scale],
        "days": [(across(day), date.fromordinal(day).isoformat()[5:]) for day in labels],
    }


FORMATS = {
    "text": Format(_text),
    "html": Format(_html, ("htm",)),
    "json": Format(
        lambda document, style: json.dumps(document, indent=2 if style.indent else None, ensure_ascii=False) + "\n"
    ),
}
