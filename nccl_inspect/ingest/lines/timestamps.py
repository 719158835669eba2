"""Prefixes that differ in their times only: what collects logs puts another one before each line.

What stands around the time tells all the rest, as soon as two prefixes have shown that it does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from nccl_inspect.event.base import Process
from nccl_inspect.ingest.lines.prefix import MARK, Origin
from nccl_inspect.util.patterns import compile_later

Seen = TypeVar("Seen")


class Memory(Generic[Seen]):
    """Bytes that were seen, with what they mean: what comes again and again stays, what does not is forgotten.

    There are two generations. When the younger one is full the older one is given up and the younger becomes the older;
    what is recalled from the older one is young again.
    """

    def __init__(self, entries: int, size: int) -> None:
        self.young: dict[bytes, Seen] = {}  # to look up what was seen lately; what is not there may be recalled
        self._old: dict[bytes, Seen] = {}
        self._entries = entries
        self._most = size
        self._taken = 0

    def recall(self, seen: bytes) -> Seen | None:
        """Return what the older generation knows; None when it knows nothing."""
        entry = self._old.pop(seen, None)
        if entry is not None:
            self.keep(seen, entry)
        return entry

    def keep(self, seen: bytes, meaning: Seen) -> None:
        """Remember something."""
        self._taken += len(seen)
        if len(self.young) >= self._entries or self._taken > self._most:
            self._old, self.young = self.young, {}
            self._taken = len(seen)
        self.young[seen] = meaning


_OF_DAY = rb"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:[.,]\d{1,9})?(?=Z?(?:[+-]\d\d:?\d\d)?(?:[^\w.:+-]|$))"
_CLOCK = compile_later(_OF_DAY)
_TIME = re.compile(rb"(?:(?<=\d[T_])|(?<![\w.:-]))(?:" + _OF_DAY + rb"|\d{10}\.\d{1,9}(?![\w.:-]))")
"""The time of the day, or the seconds since 1970, set apart from all else; the date before it is mostly the same."""
_PRINTER = compile_later(rb"(?<= )(?!\d\d:)([A-Za-z0-9_][\w.-]*):(\d{1,10}):(\d{1,10}) \[(\d{1,10})\]\Z", re.ASCII)
"""What ends a prefix that is as NCCL prints it: the rest of it is what collects logs.

A host of two digits may be taken for the hours of a time, others are not.
"""
_MAX_BEGINNINGS = 10_000
_MAX_ENDS = 4
_WIDTH = 500  # bytes behind which no time is looked for
SAMPLE = 128  # lines looked at to see whether most have a time
_new = tuple.__new__
_FORM = bytes.maketrans(b"123456789", b"000000000")


class Frame(NamedTuple):
    """Holds what prefixes that differ in their time have in common."""

    origin: Origin  # of one of them
    time: str  # its time
    begin: int  # bytes before the time
    rest: int  # bytes after the time
    stamp: tuple[str, str] | None  # what the stamp has before and after the time; None where the origin states no time
    is_proven: bool  # whether one with another time had the same origin but for that

    def at(self, text: bytes) -> Origin:
        """Return the origin of a prefix with another time."""
        _, process, tid, device, _, location, label, rank, wrapped, lead = self.origin
        lead = lead and text[: len(lead)]
        # Each line with a time has its own: this takes a third of what calling the class takes.
        return _new(Origin, (text, process, tid, device, self.read_time(text), location, label, rank, wrapped, lead))

    def read_time(self, text: bytes) -> str | None:
        """Return the time that such an origin states."""
        if self.stamp is None:
            return None
        return self.stamp[0] + text[self.begin : len(text) - self.rest].decode("ascii") + self.stamp[1]


class Late(NamedTuple):
    """Holds who printed a line with a time of its own: its origin is made when somebody asks."""

    frame: Frame
    text: bytes  # the prefix, or what else has the time

    @property
    def time(self) -> str | None:
        """Return that of the origin, as the next does."""
        return self.frame.origin.time if self.frame.stamp is None else self.frame.read_time(self.text)

    @property
    def tid(self) -> int:
        """Return the thread."""
        return self.frame.origin.tid

    @property
    def process(self) -> Process:
        """Return the process."""
        return self.frame.origin.process

    @property
    def location(self) -> str | None:
        """Return the place in NCCL's source."""
        return self.frame.origin.location

    @property
    def origin(self) -> Origin:
        """Return the origin of the line."""
        return self.frame.at(self.text)


class Timed:
    """Tells the origin of a prefix by what stands around its time."""

    def __init__(self, entries: int, size: int) -> None:
        self._known: Memory[Frame] = Memory(entries, size)
        self._siblings: dict[bytes, Frame] = {}
        """Proven frames by what their keys have before host and numbers: others that have the same there are proven."""
        self._beginnings: set[bytes] = set()  # what prefixes have before the time of the day
        self._ends: tuple[int, ...] = ()  # how long the last ones were

    def tells(self, lines: Sequence[bytes]) -> bool:
        """Return whether most lines have a time, and few the same."""
        heads = {line.partition(MARK)[0] for line in lines[:SAMPLE] if MARK in line}
        few = min(len(lines), SAMPLE) // 2
        return len(heads) > few and sum(self.key(head) is not None for head in heads) > few

    def mask_time(self, line: bytes) -> bytes:
        """Return a line with zeros for the time, if that is seen at once; then its head is a key (:meth:`key`)."""
        for end in self._ends:
            if (begin := line[:end]) in self._beginnings and (clock := _CLOCK.match(line, end)):
                return begin + clock[0].translate(_FORM) + line[clock.end() :]
        return line

    def key(self, head: bytes) -> bytes | None:
        """Return a prefix with zeros for its times; None where there is none."""
        match = _TIME.search(head)
        if match is None:
            return None
        end = match.start()
        if match[0][2:3] == b":" and end < _WIDTH:  # remember how the prefix begins
            if end not in self._ends:
                self._ends = (end, *self._ends)[:_MAX_ENDS]
            if len(self._beginnings) >= _MAX_BEGINNINGS:
                self._beginnings.clear()
            self._beginnings.add(head[:end])
        return _TIME.sub(_zeros, head)

    def proven(self, key: bytes) -> Frame | None:
        """Return what prefixes with a key have in common, as soon as it tells their origin."""
        frame = self._known.young.get(key) or self._known.recall(key)
        if (
            frame is None
            and (printer := _PRINTER.search(key))
            and (sibling := self._siblings.get(key[: printer.start()]))
        ):  # it differs from a proven one in host and numbers only
            own = sibling.origin
            host, pid, tid, device = printer.groups()
            process = Process(host.decode("ascii"), int(pid), own.process.apart)
            origin = own._replace(head=key, process=process, tid=int(tid), device=int(device))
            rest = len(key) - sibling.begin - len(sibling.time)
            frame = Frame(origin, sibling.time, sibling.begin, rest, sibling.stamp, is_proven=True)
            self._known.keep(key, frame)
        return frame if frame is not None and frame.is_proven else None

    def recall_origin(self, head: bytes) -> Origin | None:
        """Return what :func:`nccl_inspect.ingest.lines.prefix.parse` would give; None where that is not known yet."""
        key = self.key(head)
        frame = None if key is None else self.proven(key)
        return None if frame is None else frame.at(head)

    def learn(self, head: bytes, origin: Origin) -> None:
        """Remember the origin of a prefix."""
        times = list(_TIME.finditer(head))
        if origin.time is not None:
            times = [match for match in times if origin.time.count(match[0].decode("ascii")) == 1]
        if not times or (origin.time is not None and len(times) > 1):
            return
        match, stamp = times[0], None
        time = match[0].decode("ascii")
        if origin.time is not None:
            before, _, after = origin.time.partition(time)
            stamp = before, after
        key = _TIME.sub(_zeros, head)
        frame = self._known.young.get(key) or self._known.recall(key)
        is_proven = frame is not None and frame.origin.head != head and frame.at(head) == origin
        frame = Frame(origin, time, match.start(), len(head) - match.end(), stamp, is_proven)
        self._known.keep(key, frame)
        if is_proven and (printer := _PRINTER.search(key)) and match.end() <= printer.start():
            if len(self._siblings) >= _MAX_BEGINNINGS:
                self._siblings.clear()
            self._siblings[key[: printer.start()]] = frame


def _zeros(time: re.Match[bytes]) -> bytes:
    return time[0].translate(_FORM)
