"""Time stamps as NCCL, launchers and collectors print them, made comparable."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple


class Moment(NamedTuple):
    """A point in time; only moments of one clock can be compared."""

    clock: str
    """``utc``, ``local`` (a date without zone) or ``day`` (syslog: no year)."""
    seconds: float


def moment(text: str | None) -> Moment | None:
    """The moment that a time stamp names; None when it is none, or of a form that is not known.

    Args:
        text: ISO 8601 or nearly so (NCCL 2.26 and later, Kubernetes, Slurm), seconds since 1970,
            or ``Nov 20 23:13:07``.
    """
    if not text:
        return None
    if text.replace(".", "", 1).isdigit():
        return Moment("utc", float(text))
    try:
        when = datetime.fromisoformat(text.replace(",", ".").replace("/", "-").strip())
    except ValueError:
        return _day(text)
    if when.tzinfo is not None:
        return Moment("utc", when.timestamp())
    return Moment("local", when.replace(tzinfo=UTC).timestamp())


def _day(text: str) -> Moment | None:
    try:
        when = datetime.strptime(f"2000 {text}", "%Y %b %d %H:%M:%S")
    except ValueError:
        return None
    return Moment("day", when.replace(tzinfo=UTC).timestamp())


def in_order(*times: Moment | None) -> bool:
    """Whether all of these moments are known and of one clock, so that they can be compared."""
    return len({time.clock if time else None for time in times}) == 1 and times[0] is not None
