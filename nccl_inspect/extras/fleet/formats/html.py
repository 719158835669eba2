"""One HTML file: suspects with their evidence, nodes to drain, and trends; in the look of the report on a job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nccl_inspect._version import __version__
from nccl_inspect.extras.fleet.formats import text
from nccl_inspect.extras.fleet.report import drained
from nccl_inspect.report import Style, html

SUFFIXES = ("htm",)
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 700, 10, 210
_LABELS, _MOST_CAUSES = 8, 4


class _Trend(NamedTuple):
    """A number of each day, in the units of its picture."""

    caption: str
    verdict: str
    line: str
    band: str
    """The corners of what lies between the bounds of the intervals; empty where there are none."""
    points: list[tuple[float, float, str]]
    scale: list[tuple[float, str]]
    days: list[tuple[float, str]]


def render(document: dict[str, Any], style: Style) -> str:
    """The page; it needs no other file, no script and no network."""
    pages = html.environment(Path(__file__).parent)
    pages.filters["attrs"] = lambda row, *names: [row[name] for name in names]
    template = pages.get_template("page.html.j2")
    days = document["days"]
    bad = [
        (day["day"], day["rate"], day["low"], day["high"], f"{text.rate(day)}, {day['bad']} of {day['jobs']}")
        for day in days
    ]
    trends = [_trend("Part of the jobs that are bad, with its interval (95 %)", "low", bad, True)] if days else []
    jobs = [(day["day"], day["jobs"], 0, 0, f"{day['jobs']} jobs") for day in days]
    trends += [_trend("Jobs", "", jobs)] if days else []
    for cause in document["causes"][:_MOST_CAUSES]:
        own = {one["day"]: one["bad"] for one in cause["days"]}
        rows = [(day["day"], own.get(day["day"], 0), 0, 0, f"{own.get(day['day'], 0)} jobs") for day in days]
        trends.append(_trend(f"Bad by {cause['rule']}", "low", rows))
    worst = "failed" if document["suspects"] else "degraded" if document["bad"]["bad"] else "ok"
    context = {"trends": trends, "drained": drained(document), "rate": text.rate, "chance": text.chance}
    return template.render(document=document, version=__version__, **context, **html.page_look(worst)) + "\n"


def _trend(
    caption: str, verdict: str, rows: Sequence[tuple[str, float, float, float, str]], is_rate: bool = False
) -> _Trend:
    """A picture.

    Args:
        caption: what it shows.
        verdict: ``low`` for what is bad.
        rows: days with their numbers, bounds and words.
        is_rate: whether these are parts of one.
    """
    most = max(max(number, high) for _, number, _, high, _ in rows) * 1.05 or 1.0

    def across(place: int) -> float:
        return round(_LEFT + place / max(len(rows) - 1, 1) * (_RIGHT - _LEFT), 1)

    def up(number: float) -> float:
        return round(_BOTTOM - number / most * (_BOTTOM - _TOP), 1)

    step = 10 ** math.floor(math.log10(most / 2))
    step *= 5 if most / step > 2 * _LABELS else 2 if most / step > _LABELS else 1
    points = [(across(place), up(number), f"{day}: {words}") for place, (day, number, _, _, words) in enumerate(rows)]
    upper = [f"{across(place)},{up(high)}" for place, (*_, high, _) in enumerate(rows)]
    lower = [f"{across(place)},{up(low)}" for place, (_, _, low, *_) in enumerate(rows)]
    every = -(-len(rows) // _LABELS)
    return _Trend(
        caption=caption,
        verdict=verdict,
        line=" ".join(f"{x},{y}" for x, y, _ in points),
        band=" ".join([*upper, *reversed(lower)]) if is_rate else "",
        points=points,
        scale=[(up(n * step), f"{n * step:.0%}" if is_rate else f"{n * step:g}") for n in range(int(most / step) + 1)],
        days=[(across(place), rows[place][0][5:]) for place in range(0, len(rows), every)],
    )
