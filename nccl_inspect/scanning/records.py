"""JSON objects around lines, as collectors write them: the lines are read in columns, where they stand.

Objects that have the same around line and time are of one form: the envelope reads one of them, and the same one with
another line and time. Those of several pods are of several forms. This module needs numpy.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.envelope_fields import ISO, Inner, Stated
from nccl_inspect.ingest.lines.prefix import MARK, Origin
from nccl_inspect.ingest.lines.timestamps import Frame
from nccl_inspect.scanning.columns import Columns, Known, Spans, Split, origins_of, usual
from nccl_inspect.scanning.line_table import Heads, Printers
from nccl_inspect.scanning.spans import ZERO, Block, Column, Mask, Rows, number_of
from nccl_inspect.util.text import decode, encode

_TIME = re.compile(ISO)
_CLOCK = re.compile(rb"[\d:.,]+")
_DATE = len(b"2001-02-03T")
_NAME = MARK.lstrip()
_OTHER_LINE = b"a:1:1" + MARK + b"INFO b"
_OTHER_TIME = b"2001-02-03T04:05:06Z"
_QUOTE, _BACKSLASH, _BRACE = b'"\\{'
_BEHIND = 32
"""Bytes behind the beginning of a time of the day, at least: no time has as many."""
_LOOK = 1 << 16
"""Bytes of a block that show whether there are objects."""
_MAX_PLACES = 64
_MAX_TRIES = 20
"""Objects of a block in which a time is looked for."""
_MAX_FORMS = 10_000
_new = tuple.__new__
_LEAST = 2
"""Lines of a block for each new form: learning one takes as long as reading these."""


class RecordFrame(Frame):
    """Holds what lines of the same prefix have in common in objects of one form."""

    __slots__ = ()

    def with_time(self, time: bytes) -> Origin:
        """The origin of a line by the time of day of its object; more bytes may follow it."""
        if self.stamp is None:
            return self.origin
        head, process, tid, device, _, *others = self.origin
        return _new(Origin, (head, process, tid, device, self.stated(time[: len(self.time)]), *others))

    def stated(self, time: bytes) -> str | None:
        """The time that such an origin states: that of its object, but for lines that have their own."""
        return self.origin.time if self.stamp is None else self.stamp[0] + decode(time) + self.stamp[1]


class Form(NamedTuple):
    """Holds what an object states of its line, whatever line and time these are."""

    stated: Stated
    """With the time of the object that showed it."""
    begin: int
    """Where in that object its time begins."""


class _Place(NamedTuple):
    """Holds where objects have their time."""

    time: bytes
    """With its quotes, and with zeros for digits."""
    is_front: bool
    """Whether it is before the line."""
    is_near: bool
    """Whether it is found from the line; else from where the object begins or ends."""
    distance: int
    """From there to its quote."""


class _Clock(NamedTuple):
    """Holds where the times of day of objects are."""

    begin: Rows
    width: Rows
    """0 where none was found."""
    is_front: Mask
    """Whether it is before the line."""

    def at(self, rows: Rows) -> _Clock:
        """Return those of some objects."""
        return _Clock(self.begin[rows], self.width[rows], self.is_front[rows])


class Records:
    """Reads blocks of objects.

    Args:
        columns: reads the lines in them.
        known: what is known of the prefixes of these.
    """

    def __init__(self, columns: Columns, known: Known) -> None:
        self._columns = columns
        self._known = known
        self._places: dict[_Place, None] = {}
        """Where times were found."""
        self._forms: dict[bytes, Stated | None] = {}
        """By what is around line and time of day."""

    def split(self, data: bytes, first: int) -> Split | None:
        """Read a block of objects; None where they have no form, or nothing can be read so.

        Args:
            data: lines with a line end between each two.
            first: the number of the first one.
        """
        if not data.startswith(b"{") and data.find(b"\n{", 0, _LOOK) < 0:
            return None
        block = Block(data)
        spans = _quoted(block)
        clock = self._clock(block, spans)
        at = np.flatnonzero(clock.width)
        spans, clock = spans.at(at), clock.at(at)
        found = self._stated_in(block, spans, clock) if len(at) else None
        if found is None:
            return None
        form, stated = found
        at = np.flatnonzero(form >= 0)
        heads = self._heads(block, spans.at(at), clock.at(at), first, form[at], stated) if len(at) else None
        return None if heads is None else self._columns.read(spans.at(at), heads)

    def _clock(self, block: Block, spans: Spans) -> _Clock:
        """Return where the times are, as far as they look like those that were found."""
        clock = _Clock(np.zeros_like(spans.row), np.zeros_like(spans.row), np.zeros(len(spans.row), bool))
        left, places = np.arange(len(spans.row)), list(self._places)
        for _ in range(_MAX_TRIES):
            for place in places:
                left = left[~_fill(clock, block, spans, left, place)]
            if not len(left):
                break
            places = self._places_in(block, spans, int(left[0]))
            left = left if places else left[1:]
        return clock

    def _places_in(self, block: Block, spans: Spans, at: int) -> list[_Place]:
        """Return where the time of an object may be; nothing where it has no form."""
        line, begin, end = _object(block, spans, at)
        form = form_of(line, begin, end)
        if form is None:
            return []
        time = b'"%b"' % encode(form.stated.time or "").translate(ZERO)
        is_front = form.begin < begin
        anchors = (True, begin if is_front else end), (False, 0 if is_front else len(line))
        places = [_Place(time, is_front, is_near, form.begin - 1 - anchor) for is_near, anchor in anchors]
        if len(self._places) >= _MAX_PLACES:
            self._places.clear()
        self._places.update(dict.fromkeys(places))
        return places

    def _stated_in(self, block: Block, spans: Spans, clock: _Clock) -> tuple[Column, list[Stated]] | None:
        """Return what objects state: for each a number, -1 where it has no form.

        None where too many are of new forms.
        """
        row, begin, _, end = spans
        start, stop, until = block.begin[row], block.end[row], clock.begin + clock.width
        around = [
            (start, np.where(clock.is_front, clock.begin, begin)),
            (np.where(clock.is_front, until, end), np.where(clock.is_front, begin, clock.begin)),
            (np.where(clock.is_front, end, until), stop),
        ]
        number, where = number_of(block.alike(*around, also=clock.width))
        pieces = zip(*(block.pieces(since[where], to[where]) for since, to in around), strict=True)
        kinds = list(map(b"\n".join, pieces))
        if len({kind for kind in kinds if kind not in self._forms}) * _LEAST > len(number):
            return None
        forms = np.full(len(where), -1, np.int32)
        stated: list[Stated] = []
        for index, (at, kind) in enumerate(zip(where.tolist(), kinds, strict=True)):
            if (one := self._stated(block, spans, clock, at, kind)) is not None:
                forms[index] = len(stated)
                stated.append(one)
        return forms[number], stated

    def _heads(
        self, block: Block, spans: Spans, clock: _Clock, first: int, form: Column, stated: list[Stated]
    ) -> Heads | None:
        """The prefixes of lines in objects; None where one is news."""
        row, begin, mark, _ = spans
        number, where = number_of(block.alike((begin, mark), also=form))
        origins = origins_of(block.pieces(begin[where], mark[where]), self._known)
        if origins is None:
            return None
        printer = np.full(len(where), -1, np.int32)
        printing: list[Origin] = []
        frames: list[Frame] = []
        times = block.pieces(clock.begin[where], clock.begin[where] + clock.width[where])
        for index, (origin, one, time) in enumerate(zip(origins, form[where].tolist(), times, strict=True)):
            if origin is not None and not prefix.is_masked(origin.process):
                printer[index] = len(frames)
                frames.append(_frame(origin, stated[one], decode(time)))
                printing.append(frames[-1].origin)
        return Heads(block, begin, mark, row + first, printer[number], Printers(printing, frames), clock.begin)

    def _stated(self, block: Block, spans: Spans, clock: _Clock, at: int, around: bytes) -> Stated | None:
        """Return what objects state that have this around line and time; None where they have no form."""
        if around not in self._forms:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            line, begin, end = _object(block, spans, at)
            form = form_of(line, begin, end)
            place = int(clock.begin[at] - block.begin[spans.row[at]]) - _DATE
            self._forms[around] = None if form is None or form.begin != place else form.stated
        return self._forms[around]


def _quoted(block: Block) -> Spans:
    """Return where lines with a prefix are within objects.

    Between quotes, up to the line end in letters if there is one.
    """
    row, mark = block.first_in_lines(MARK)
    limits = np.flatnonzero((block.bytes == _QUOTE) | (block.bytes == _BACKSLASH))
    place = np.searchsorted(limits, mark)
    fits = (place > 0) & (place < len(limits))
    row, mark, place = row[fits], mark[fits], place[fits]
    spans = Spans(row, limits[place - 1] + 1, mark, limits[place])
    start, stop = block.begin[row], block.end[row]
    fits = (block.bytes[start] == _BRACE) & (spans.begin > start) & (spans.end < stop)
    fits &= (block.bytes[spans.begin - 1] == _QUOTE) & (stop + _BEHIND <= len(block.data))
    return usual(spans.at(fits))


def _fill(clock: _Clock, block: Block, spans: Spans, rows: Rows, place: _Place) -> Mask:
    """Put down which of some objects have their time in a place."""
    row, begin, _, end = spans.at(rows)
    start, stop = block.begin[row], block.end[row]
    least, most = (start, begin) if place.is_front else (end, stop)
    anchor = least if place.is_front != place.is_near else most
    at = anchor + place.distance
    fits = (at >= least) & (at + len(place.time) <= most)
    fits[fits] = block.has_form(at[fits], place.time)
    match = _CLOCK.match(place.time, 1 + _DATE)
    assert match is not None
    some = rows[fits]
    clock.begin[some], clock.width[some] = at[fits] + match.start(), match.end() - match.start()
    clock.is_front[some] = place.is_front
    return fits


def _object(block: Block, spans: Spans, at: int) -> tuple[bytes, int, int]:
    """An object, and where the line in it begins and ends."""
    row, begin, _, end = (int(column[at]) for column in spans)
    start = int(block.begin[row])
    return block.data[start : block.end[row]], begin - start, end - start


def _frame(origin: Origin, stated: Stated, time: str) -> RecordFrame:
    """Return what lines of a printer have in common in objects that state the same, with times of day like this one."""
    stamp = None
    if origin.time is None:  # else the one that a line states itself is nearer
        date, end = (stated.time or "")[:_DATE], _CLOCK.sub(b"", encode(stated.time or "")[_DATE:], count=1)
        stamp = date, decode(end)
    return RecordFrame(prefix.stated_by(origin, stated), time, 0, 0, stamp, is_proven=True)


def form_of(line: bytes, begin: int, end: int) -> Form | None:
    """The form of an object; None where it is not that plain.

    Args:
        line: the object.
        begin: where the line in it begins.
        end: where it ends, without its line end.
    """
    inners = envelopes.contents(line)
    if len(inners) != 1 or inners[0].stated.time is None or inners[0].stated.partial:
        return None
    (text, stated), shown = inners[0], line[begin:end]
    time = b'"%b"' % encode(stated.time or "")
    if not _TIME.fullmatch(time[1:-1]) or line.count(_NAME) != 1 or line.count(time) != 1:
        return None
    if text.rstrip(b"\r\n") != shown:
        return None
    other = (line[:begin] + _OTHER_LINE + line[end:]).replace(time, b'"%b"' % _OTHER_TIME)
    expected = Inner(_OTHER_LINE + text[len(shown) :], stated._replace(time=decode(_OTHER_TIME)))
    if envelopes.contents(other) != [expected]:
        return None
    return Form(stated, line.index(time) + 1)
