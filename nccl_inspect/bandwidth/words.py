"""A measurement in words, for reports, findings and tables."""

from __future__ import annotations

from datetime import timedelta

from nccl_inspect.model.measured import IN_ALL, Measured, Speed
from nccl_inspect.util.wording import count, listed

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_ASKS = "(--platform)"
"""What reasons end with that a machine type would remove."""


def size(number: int) -> str:
    """Return a number of bytes: ``512 MiB``; with four digits at most."""
    value, unit = float(number), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{value:.4g} {_UNITS[unit]}"


def rate(value: float) -> str:
    """Return a bandwidth with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def band(entry: Measured) -> str:
    """Return what is expected, in GB/s."""
    if entry.expected_low is None or entry.expected_high is None:
        return ""
    low, high = rate(entry.expected_low), rate(entry.expected_high)
    return low if low == high else f"{low} to {high}"


def of_what(entry: Measured) -> str:
    """Return what was measured: ``all_reduce, 32 ranks``."""
    who = f", {count(entry.ranks, 'rank')}" if entry.ranks else ""
    return entry.operation + who


def sentence(entry: Measured, unit: str = "GB/s bus bandwidth") -> str:
    """Return a measurement with what was expected: ``116 GB/s at 1 GiB; …: 347 to 390 expected: 33 %``."""
    at = f" at {size(entry.size)}" if entry.size else ", the slowest pair"
    text = f"{of_what(entry)}: measured {rate(entry.measured_gbps)} {unit}{at}"
    if entry.falls:
        text += f", {rate(entry.sizes[-1].gbps)} GB/s at {size(entry.sizes[-1].size)}"
    if entry.verdict == "ok":
        return f"{text}; as expected ({band(entry)}: {entry.what})"
    if entry.what:
        text += f"; {entry.what}: {band(entry)} expected"
    if entry.is_below and entry.ratio is not None:
        text += f": {percent(entry.ratio)}"
    if entry.verdict != "unknown":
        return text
    return text + ("; not judged without --platform" if _ASKS in entry.reason else f"; not judged: {entry.reason}")


def peak(entry: Measured) -> str:
    """Return the best bandwidth: ``116 GB/s at 1 GiB``."""
    return f"{rate(entry.measured_gbps)} GB/s" + (f" at {size(entry.size)}" if entry.size else "")


def percent(ratio: float) -> str:
    """Return a part of the least that is expected."""
    return f"{100 * ratio:.0f} %" if ratio >= 0.1 else f"{100 * ratio:.1f} %"


def dips(entry: Measured) -> str:
    """Return the sizes at which it is far behind smaller ones."""
    return listed([f"{rate(dip.gbps)} GB/s at {size(dip.size)}" for dip in entry.dips])


def speed(entry: Speed) -> str:
    """Return how fast a training runs: ``0.42 seconds per step (median of 120)``, ``0:16:21 in all``."""
    if entry.what == IN_ALL and entry.median >= 60:
        return f"{timedelta(seconds=round(entry.median))} in all"
    value = f"{entry.median:,.0f}" if entry.median >= 1000 else f"{entry.median:.3g}"
    return f"{value} {entry.what}" + (f" (median of {entry.count})" if entry.count > 1 else "")
