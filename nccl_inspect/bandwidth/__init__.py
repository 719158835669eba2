"""Measured bandwidth against expected: result tables in logs, published figures, and a verdict with a number.

``lines`` keeps what looks like a result while a log is read, ``tables`` makes rows of it, ``measured`` compares it with
what the paths of the job should give (``figures/*.toml`` hold what is published, each with its source). Here is how
reports, findings and tables word it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_inspect.model.inventory import IN_ALL, Measured, Speed
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import count

if TYPE_CHECKING:
    from nccl_inspect.judging.facts import Facts

LOW, VERY_LOW = 0.8, 0.5  # parts of the least that is expected, below which there is a warning, and an error


def measure(facts: Facts) -> list[Measured]:
    """Return what :mod:`nccl_inspect.bandwidth.measured` finds; a log without results does not load it."""
    if not facts.job.benchmarks:
        return []
    from nccl_inspect.bandwidth.measured import judge_benchmarks

    return judge_benchmarks(facts)


@cache
def load_figures(name: str) -> dict[str, Any]:
    """Return what a file of ``figures`` holds."""
    import tomllib  # a log without results does not need it

    return tomllib.loads((Path(__file__).parent / "figures" / f"{name}.toml").read_text(encoding="utf-8"))


def compile_line(line: str, **parts: str) -> re.Pattern[str]:
    """Return the pattern of a line in which parts have names: ``«number»``; compiled when it is first used."""
    return compile_later(re.sub("«(\\w+)»", lambda match: parts[match[1]], line))


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_ASKS = "(--platform)"  # what reasons end with that a machine type would remove


def size_text(number: int) -> str:
    """Return a number of bytes: ``512 MiB``; with four digits at most."""
    value, unit = float(number), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.4g} {_UNITS[unit]}"


def rate_text(value: float) -> str:
    """Return a bandwidth with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def expected_range(entry: Measured) -> str:
    """Return what is expected, in GB/s."""
    if entry.expected_low is None or entry.expected_high is None:
        return ""
    low, high = rate_text(entry.expected_low), rate_text(entry.expected_high)
    return low if low == high else f"{low} to {high}"


def measurement_name(entry: Measured) -> str:
    """Return what was measured: ``all_reduce, 32 ranks``."""
    who = f", {count(entry.ranks, 'rank')}" if entry.ranks else ""
    return entry.operation + who


def describe_measurement(entry: Measured, unit: str = "GB/s bus bandwidth") -> str:
    """Return a measurement with what was expected: ``116 GB/s at 1 GiB; …: 347 to 390 expected: 33 %``."""
    at = f" at {size_text(entry.size)}" if entry.size else ", the slowest pair"
    text = f"{measurement_name(entry)}: measured {rate_text(entry.measured_gbps)} {unit}{at}"
    if entry.falls:
        text += f", {rate_text(entry.sizes[-1].gbps)} GB/s at {size_text(entry.sizes[-1].size)}"
    if entry.verdict == "ok":
        return f"{text}; as expected ({expected_range(entry)}: {entry.what})"
    if entry.what:
        text += f"; {entry.what}: {expected_range(entry)} expected"
    if entry.is_below and entry.ratio is not None:
        text += f": {percent_text(entry.ratio)}"
    if entry.verdict != "unknown":
        return text
    return text + ("; not judged without --platform" if _ASKS in entry.reason else f"; not judged: {entry.reason}")


def describe_peak(entry: Measured) -> str:
    """Return the best bandwidth: ``116 GB/s at 1 GiB``."""
    return f"{rate_text(entry.measured_gbps)} GB/s" + (f" at {size_text(entry.size)}" if entry.size else "")


def percent_text(ratio: float | None) -> str:
    """Return a part of the least that is expected; empty where nothing is."""
    if ratio is None:
        return ""
    return f"{100 * ratio:.0f} %" if ratio >= 0.1 else f"{100 * ratio:.1f} %"


def describe_speed(entry: Speed) -> str:
    """Return how fast a training runs: ``0.42 seconds per step (median of 120)``, ``0:16:21 in all``."""
    if entry.what == IN_ALL and entry.median >= 60:
        return f"{timedelta(seconds=round(entry.median))} in all"
    value = f"{entry.median:,.0f}" if entry.median >= 1000 else f"{entry.median:.3g}"
    return f"{value} {entry.what}" + (f" (median of {entry.count})" if entry.count > 1 else "")
