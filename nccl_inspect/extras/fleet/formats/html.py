"""One HTML file: suspects with their evidence, nodes to drain, and trends; in the look of the report on a job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from nccl_inspect._version import __version__
from nccl_inspect.extras.fleet.formats import text
from nccl_inspect.report import Style, html

SUFFIXES = ("htm",)
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 700, 10, 210
_LABELS, _MOST_CAUSES = 8, 4


def render(document: dict[str, Any], style: Style) -> str:
    """Return the page; it needs no other file, no script and no network."""
    pages = html.environment(Path(__file__).parent)
    pages.filters["attrs"] = lambda row, *names: [row[name] for name in names]
    days, trends = document["days"], []
    if days:
        spans = [(day["low"], day["high"]) for day in days]
        words = [f"{text.rate(day)}, {day['bad']} of {day['jobs']}" for day in days]
        caption = "Part of the jobs that are bad, with its interval (95 %)"
        trends.append(_draw_trend(caption, days, [day["rate"] for day in days], words, spans))
        trends.append(_draw_trend("Jobs", days, [day["jobs"] for day in days]))
        for cause in document["causes"][:_MOST_CAUSES]:
            bad = {one["day"]: one["bad"] for one in cause["days"]}
            trends.append(_draw_trend(f"Bad by {cause['rule']}", days, [bad.get(day["day"], 0) for day in days]))
    worst = "failed" if document["suspects"] else "degraded" if document["bad"]["bad"] else "ok"
    template = pages.get_template("page.html.j2")
    context = {**text.context(document), **html.page_look(worst), "trends": trends, "version": __version__}
    return template.render(context) + "\n"


def _draw_trend(
    caption: str,
    days: Sequence[dict[str, Any]],
    numbers: Sequence[float],
    words: Sequence[str] = (),
    spans: Sequence[tuple[float, float]] = (),
) -> dict[str, Any]:
    """Return a number of each day with jobs, in the units of its picture; lines end where days have none."""
    most = max(*numbers, *(high for _, high in spans), 0) * 1.05 or 1.0
    step = 10 ** math.floor(math.log10(most / 2))
    step *= 5 if most / step > 2 * _LABELS else 2 if most / step > _LABELS else 1
    dates = [date.fromisoformat(day["day"]).toordinal() for day in days]
    width = max(dates[-1] - dates[0], 1)

    def across(day: int) -> float:
        return round(_LEFT + (day - dates[0]) / width * (_RIGHT - _LEFT), 1)

    def up(number: float) -> float:
        return round(_BOTTOM - number / most * (_BOTTOM - _TOP), 1)

    def list_corners(heights: Sequence[float]) -> list[str]:
        return [f"{across(day)},{up(height)}" for day, height in zip(dates, heights, strict=True)]

    gaps = [place for place, (day, later) in enumerate(pairwise(dates), 1) if later - day > 1]
    runs = [slice(begin, end) for begin, end in pairwise((0, *gaps, len(days)))]
    line, low, high = map(list_corners, (numbers, *zip(*(spans or [(0, 0)] * len(days)), strict=True)))
    points = zip(dates, numbers, days, words or numbers, strict=True)
    labels = range(dates[0], dates[-1] + 1, -(-(width + 1) // _LABELS))
    return {
        "caption": caption,
        "verdict": "" if caption == "Jobs" else "low",
        "lines": [" ".join(line[run]) for run in runs],
        "bands": [" ".join(high[run] + low[run][::-1]) for run in runs if spans],
        "points": [(across(at), up(number), f"{day['day']}: {said}") for at, number, day, said in points],
        "scale": [(up(n * step), f"{n * step:.0%}" if spans else f"{n * step:g}") for n in range(int(most / step) + 1)],
        "days": [(across(day), date.fromordinal(day).isoformat()[5:]) for day in labels],
    }
