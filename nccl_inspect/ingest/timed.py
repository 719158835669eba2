"""Prefixes that differ in their time only: what collects logs puts another one before each line.

What stands around the time tells all the rest, as soon as two prefixes have shown that it does.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nccl_inspect.ingest.memory import Memory
from nccl_inspect.ingest.prefix import Origin

_TIME = re.compile(
    rb"(?:(?<=\d[T_])|(?<![\w.:-]))"
    rb"(?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d{1,9})?(?=Z?(?:[+-]\d\d:?\d\d)?(?:[^\w.:+-]|$))"
    rb"|\d{10}\.\d{1,9}(?![\w.:-]))"
)
"""The time of the day, or the seconds since 1970, set apart from all else; the date before it is mostly the same."""
_FORM = bytes.maketrans(b"123456789", b"000000000")


class _Frame(NamedTuple):
    """What prefixes that differ in their time have in common."""

    origin: Origin
    """Of one of them."""
    time: str
    """Its time."""
    stamp: tuple[str, str] | None
    """What the stamp has before and after the time; None where the origin states no time."""
    is_proven: bool
    """Whether one with another time had the same origin but for that."""

    def at(self, head: bytes, time: str) -> Origin:
        """The origin of a prefix with another time."""
        one = self.origin
        stamp = None if self.stamp is None else self.stamp[0] + time + self.stamp[1]
        lead = one.lead and head[: len(one.lead)]
        return Origin(
            head, one.process, one.tid, one.device, stamp, one.location, one.label, one.rank, one.wrapped, lead
        )


class Timed:
    """Tells the origin of a prefix by what stands around its time.

    Args:
        entries: so many different ones are remembered in a generation.
        size: and so many bytes.
    """

    def __init__(self, entries: int, size: int) -> None:
        self._known: Memory[_Frame] = Memory(entries, size)

    def known(self, head: bytes) -> Origin | None:
        """What :func:`nccl_inspect.ingest.prefix.parse` would give; None where that is not known yet."""
        if not (found := _TIME.search(head)):
            return None
        frame = _frame(head, found)
        known = self._known.young.get(frame) or self._known.recall(frame)
        return known.at(head, found[0].decode("ascii")) if known is not None and known.is_proven else None

    def learn(self, head: bytes, origin: Origin) -> None:
        """Remember the origin of a prefix."""
        found = _TIME.search(head)
        if found is None:
            return
        time = found[0].decode("ascii")
        stamp = None
        if origin.time is not None:
            before, among, after = origin.time.partition(time)
            if not among or time in after:
                return
            stamp = before, after
        frame = _frame(head, found)
        known = self._known.young.get(frame) or self._known.recall(frame)
        is_proven = known is not None and known.time != time and known.at(head, time) == origin
        self._known.keep(frame, _Frame(origin, time, stamp, is_proven))


def _frame(head: bytes, time: re.Match[bytes]) -> bytes:
    """What stands around a time, and how that is written."""
    start, end = time.span()
    return head[:start] + time[0].translate(_FORM) + head[end:]
