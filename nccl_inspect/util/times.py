"""Time stamps as NCCL, launchers and collectors print them, made comparable."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from re import Match
from typing import NamedTuple

from nccl_inspect.util.patterns import compile_later


class Moment(NamedTuple):
    """A point in time; only moments of one clock can be compared."""

    clock: str  # `utc`, `local` (a date without zone) or `day` (syslog: no year)
    seconds: float


def show_time(text: str) -> str:
    """Return a time stamp for people, to the second: ``2026-11-20 23:15:18Z``; ``47 s`` if it counts from a start."""
    text = text.strip("[]")
    when = moment(text) if text.replace(".", "", 1).isdigit() else None
    if when is not None and when.seconds < _LONGEST:
        return f"{when.seconds:.0f} s"
    if when is not None:
        return f"{datetime.fromtimestamp(when.seconds, UTC):%Y-%m-%d %H:%M:%S}Z"
    return _FRACTION.sub("", text).replace("T", " ", 1)


_LONGEST = 3.2e8  # seconds that may count from the start of a machine: ten years. More of them count from 1970.
_FRACTION = compile_later(r"(?<=:\d\d)[.,]\d+")
_FORMS = (  # forms of time stamps with their clocks; those without a year get 2000, which has all days
    ("day", "%Y %b %d %H:%M:%S"),
    ("day", "%Y %b %d %H:%M:%S.%f"),
    ("local", "%b %d, %Y @ %H:%M:%S.%f"),
    ("local", "%m/%d/%Y, %I:%M:%S.%f %p"),
    ("local", "%a %b %d %H:%M:%S %Y"),
)


def moment(text: str | None) -> Moment | None:
    """Return the moment that a time stamp names; None when it is none, or of a form that is not known.

    Known are ISO 8601 or nearly so (NCCL 2.26 and later, Kubernetes, Slurm), seconds since 1970 or thousandths,
    millionths or milliardths of them (CloudWatch, journald, Loki), ``Nov 20 23:13:07`` (syslog), ``Nov 20, 2026 @
    23:13:07.071`` (Kibana) and ``11/20/2026, 11:13:07.071 PM`` (Azure).
    """
    if not text:
        return None
    if text.replace(".", "", 1).isdigit():
        whole, seconds = text.partition(".")[0], float(text)
        for _ in range((len(whole) - 9) // 3):  # what would be after the year 5000 counts parts of seconds
            seconds /= 1000
        return Moment("utc", seconds)
    try:
        when = datetime.fromisoformat(text.replace(",", ".").replace("/", "-").strip())
    except ValueError:
        for clock, form in _FORMS:
            with suppress(ValueError):
                when = datetime.strptime(f"2000 {text}" if clock == "day" else text, form)
                return Moment(clock, when.replace(tzinfo=UTC).timestamp())
        return None
    if when.tzinfo is not None:
        return Moment("utc", when.timestamp())
    return Moment("local", when.replace(tzinfo=UTC).timestamp())


def are_in_order(*times: Moment | None) -> bool:
    """Return whether all of these moments are known and of one clock, so that they can be compared."""
    return len({time.clock if time else None for time in times}) == 1 and times[0] is not None


_GLOG = compile_later(r"\b[A-Z](\d\d)(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d{1,9})?)")
_DATED = compile_later(r"\d{4}-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d(?:[.,]\d{1,9})?)")
_BEGINNING = 200  # characters of a line in which its time is


def glog_seconds(line: str) -> float | None:
    """Return when PyTorch printed a line (``[E1121 23:33:28.969389427 …``), in seconds; None where it has no such time.

    It prints no year, so they count from any moment: whole days are what differs between two years.
    """
    return _seconds(_GLOG.search(line))


def line_seconds(line: str) -> float | None:
    """Return when a line was printed, as :func:`glog_seconds` does, by its date or by the time that PyTorch prints."""
    return _seconds(_DATED.search(line, 0, _BEGINNING) or _GLOG.search(line, 0, _BEGINNING))


def are_near(first: float | None, second: float | None) -> bool:
    """Return whether two times of :func:`line_seconds` are within a day, in any year."""
    gap = abs(first - second) if first is not None and second is not None else _LONGEST
    return min(gap, abs(_YEAR - gap)) <= _DAY


_DAY = 86_400.0
_YEAR = 12 * 31 * _DAY  # as `line_seconds` counts


def _seconds(match: Match[str] | None) -> float | None:
    if match is None:
        return None
    month, day, hour, minute = map(int, match.groups()[:4])
    return (((month * 31 + day) * 24 + hour) * 60 + minute) * 60 + float(match[5].replace(",", "."))
