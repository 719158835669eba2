"""The order of files that one log was spread over: rotated files are older than the current one.

logrotate (``job.log.1``, ``job.log-20261120.gz``), kubelet (``0.log.20261120-231307.gz``), and what people call the
output of ``kubectl logs --previous`` (``llama-0.previous.log``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nccl_inspect.util.patterns import later

_PACKED = r"(?:\.(?:gz|zst|xz|bz2))?"
_NUMBERED = later(rf"(?P<base>.+)\.(?P<number>\d{{1,3}}){_PACKED}")
_DATED = later(rf"(?P<base>.+)[.-](?P<date>\d{{4}}-?\d\d-?\d\d(?:[-_T]?\d\d[:-]?\d\d(?:[:-]?\d\d)?)?){_PACKED}")
_PREVIOUS = later(rf"(?P<stem>.+)[._-](?:previous|prev|old)(?P<suffix>\.[A-Za-z]+)?{_PACKED}")


def order(names: Sequence[str]) -> list[int]:
    """The places of files in the order to read them: rotated files come before the current one.

    Args:
        names: of the files, in the order in which they were given; of those that belong together only that changes.
    """
    if len(names) == 1:
        return [0]
    places = {name: place for place, name in enumerate(names)}

    def key(place: int) -> tuple[int, bool, int, str]:
        base, number, date = _put_aside(names[place])
        if base in places:
            return places[base], False, -number, date
        return place, True, 0, ""

    return sorted(range(len(names)), key=key)


def _put_aside(name: str) -> tuple[str, int, str]:
    """From which file it was put aside, how many came after it, and when; as far as its name shows."""
    if match := _NUMBERED.fullmatch(name):
        return match["base"], int(match["number"]), ""
    if match := _DATED.fullmatch(name):
        return match["base"], 0, re.sub(r"\D", "", match["date"])
    if match := _PREVIOUS.fullmatch(name):
        return match["stem"] + (match["suffix"] or ""), 0, ""
    return "", 0, ""
