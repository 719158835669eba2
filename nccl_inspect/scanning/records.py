"""JSON objects of a collector, one for each line: what is around line and time is read once where it is the same."""

from __future__ import annotations

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.envelopes import ISO, Inner, Stated
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.prefix import MARK, Origin
from nccl_inspect.ingest.lines.timestamps import Frame
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import decode, encode

_TIME = compile_later(ISO)
_CLOCK = compile_later(rb"(?<=-\d\d[T ])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?![\d:.,])")
_LINE = b"\0"  # what stands for the line in what is around it
_NAME = MARK.lstrip()
_OTHER_LINE = b"a:1:1" + MARK + b"INFO b"
_OTHER_TIME = b"2001-02-03T04:05:06Z"
_MAX_FORMS = 10_000


class RecordFrame(Frame):
    """Holds what lines of the same prefix have in common in objects of one form; they differ in the time of day."""

    __slots__ = ()

    def at(self, text: bytes) -> Origin:
        """Return the origin of a line by the time of day of its object."""
        return self.origin if self.stamp is None else self.origin._replace(time=self.read_time(text))


class Records:
    """Takes lines out of objects whose form was seen."""

    def __init__(self) -> None:
        self._forms: dict[bytes, Stated | None] = {}
        """What objects state, by what is around line and time of day; None where that depends on these."""

    def strip_form(self, line: bytes) -> bytes:
        """Return the line in an object, behind what is the same in all objects of its form; else the line as it is."""
        mark = line.find(MARK)
        begin, end = line.rfind(b'"', 0, max(mark, 0)) + 1, line.find(b'"', mark)
        end = line.find(b"\\", begin, end) if b"\\" in line[begin:end] else end
        if not 0 < begin < mark < end:
            return line
        around = line[:begin] + _LINE + line[end:]
        clock = _CLOCK.search(around)
        if clock is None:
            return line
        form = around[: clock.start()] + around[clock.end() :]
        if form not in self._forms:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            at = clock.start() if clock.start() < begin else clock.start() - 1 - begin + end
            self._forms[form] = _read_form(line, begin, end, at)
        return line if self._forms[form] is None else form + line[begin - 1 : end]

    def frame_of(self, head: bytes, origin: Origin) -> RecordFrame | None:
        """Return what lines have in common that begin like this without their times; None for no object."""
        stated = self._forms.get(head.rpartition(b'"')[0])
        if stated is None or prefix.is_masked(origin.process):
            return None
        time, stamp = stated.time or "", None
        if origin.time is None:  # else the one that a line states itself is nearer
            clock = _CLOCK.search(encode(time))
            assert clock is not None
            stamp = time[: clock.start()], time[clock.end() :]
        return RecordFrame(prefix.stated_by(origin, stated), time, 0, 0, stamp, is_proven=True)


def clock_of(line: bytes) -> bytes:
    """Return the time of day of an object, which is before or behind the line in it."""
    mark = line.find(MARK)
    begin, end = line.rfind(b'"', 0, mark), line.find(b'"', mark)
    clock = _CLOCK.search(line[:begin]) or _CLOCK.search(line, end)
    return clock[0] if clock else b""


def _read_form(line: bytes, begin: int, end: int, clock: int) -> Stated | None:
    """Return what an object states, if that is the same whatever line and time of day it has."""
    inners = envelopes.contents(line)
    if len(inners) != 1 or inners[0].stated.time is None or inners[0].stated.partial:
        return None
    (text, stated), shown = inners[0], line[begin:end]
    time = b'"%b"' % encode(stated.time or "")
    if not _TIME.fullmatch(time[1:-1]) or line.count(_NAME) != 1 or line.count(time) != 1:
        return None
    if text.rstrip(b"\r\n") != shown or not 0 < clock - line.index(time) < len(time):
        return None
    other = (line[:begin] + _OTHER_LINE + line[end:]).replace(time, b'"%b"' % _OTHER_TIME)
    expected = Inner(_OTHER_LINE + text[len(shown) :], stated._replace(time=decode(_OTHER_TIME)))
    return stated if envelopes.contents(other) == [expected] else None
