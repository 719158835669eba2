"""One HTML file: suspects with their evidence, nodes to drain, and trends; in the look of the report on a job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nccl_inspect._version import __version__
from nccl_inspect.extras.fleet.formats import text
from nccl_inspect.report import Style, html

SUFFIXES = ("htm",)
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 700, 10, 210
_LABELS, _MOST_CAUSES = 8, 4
_Days = Sequence[dict[str, Any]]
_Spans = Sequence[tuple[float, float]]


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
    """Return the page; it needs no other file, no script and no network."""
    pages = html.environment(Path(__file__).parent)
    pages.filters["attrs"] = lambda row, *names: [row[name] for name in names]
    days, trends = document["days"], []
    if days:
        spans = [(day["low"], day["high"]) for day in days]
        said = [f"{text.rate(day)}, {day['bad']} of {day['jobs']}" for day in days]
        caption = "Part of the jobs that are bad, with its interval (95 %)"
        trends.append(_trend(caption, days, [day["rate"] for day in days], said, spans))
        trends.append(_trend("Jobs", days, [day["jobs"] for day in days]))
    for cause in document["causes"][:_MOST_CAUSES]:
        own = {one["day"]: one["bad"] for one in cause["days"]}
        trends.append(_trend(f"Bad by {cause['rule']}", days, [own.get(day["day"], 0) for day in days]))
    worst = "failed" if document["suspects"] else "degraded" if document["bad"]["bad"] else "ok"
    template = pages.get_template("page.html.j2")
    return template.render(text.context(document), trends=trends, version=__version__, **html.page_look(worst)) + "\n"


def _trend(caption: str, days: _Days, numbers: Sequence[float], said: Any = (), spans: _Spans = ()) -> _Trend:
    """Return a picture of a number of each day."""
    most = max(*numbers, *(high for _, high in spans), 0) * 1.05 or 1.0
    across = [round(_LEFT + place / max(len(days) - 1, 1) * (_RIGHT - _LEFT), 1) for place in range(len(days))]

    def up(number: float) -> float:
        return round(_BOTTOM - number / most * (_BOTTOM - _TOP), 1)

    step = 10 ** math.floor(math.log10(most / 2))
    step *= 5 if most / step > 2 * _LABELS else 2 if most / step > _LABELS else 1
    heights = list(map(up, numbers))
    band = [(x, up(high)) for x, (_, high) in zip(across, spans, strict=False)]
    band += [(x, up(low)) for x, (low, _) in reversed(list(zip(across, spans, strict=False)))]
    words = [f"{day['day']}: {one}" for day, one in zip(days, said or numbers, strict=True)]
    return _Trend(
        caption=caption,
        verdict="" if caption == "Jobs" else "low",
        line=" ".join(f"{x},{y}" for x, y in zip(across, heights, strict=True)),
        band=" ".join(f"{x},{y}" for x, y in band),
        points=list(zip(across, heights, words, strict=True)),
        scale=[(up(n * step), f"{n * step:.0%}" if spans else f"{n * step:g}") for n in range(int(most / step) + 1)],
        days=[(across[place], days[place]["day"][5:]) for place in range(0, len(days), -(-len(days) // _LABELS))],
    )
