"""Reads the lines of large blocks in columns: whatever repeats is looked at once, by numpy.

Lines are distinguished by their bytes, eight at a time: lines with the same prefix have the same printer, and lines
with the same text after the channel number are one template. Whatever is not proved to be a connection line is left to
the scanner, line by line. JSON records of collectors are read so where they stand. Only large logs load numpy and this
module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.grammar.notation import field_type
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import prefix, timestamps
from nccl_inspect.ingest.lines.envelope_fields import ISO, Inner, Stated
from nccl_inspect.ingest.lines.prefix import MARK, Origin
from nccl_inspect.ingest.lines.timestamps import Frame
from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.line_table import MAX_CHANNEL, NONE, ConnectionTable, Heads, LineTable, Part, Printers, Way
from nccl_inspect.scanning.spans import ZERO, Block, Column, Mask, Rows, number_of, weights_of
from nccl_inspect.util.records import slots
from nccl_inspect.util.text import decode, encode

_MAX_HEADS = 64
"""Of times in one block, by place and width; prefixes with further ones are compared as they are."""


class Known(NamedTuple):
    """Holds what a scanner knows of prefixes."""

    seen: Callable[[Iterable[bytes]], Iterable[Origin | None]]
    """Who printed lines with these prefixes, as far as they were seen lately."""
    parsed: Callable[[bytes], Origin | None]
    """Who printed a line with this prefix."""
    proven: Callable[[bytes], Frame | None]
    """What prefixes have in common that differ in their time."""
    is_news: Callable[[bytes], bool]
    """Whether the prefix changes how other lines are read."""


class Spans(NamedTuple):
    """Holds where lines with a prefix are in a block."""

    row: Rows
    """Which lines of the block these are."""
    begin: Rows
    mark: Rows
    """Where the prefix of each ends."""
    end: Rows

    def at(self, chosen: Mask | Rows) -> Spans:
        """Return some of them."""
        return Spans(*(column[chosen] for column in self))


def heads_of(block: Block, spans: Spans, first: int, is_timed: bool, known: Known) -> Heads | None:
    """Return the prefixes of some lines; None where one is news.

    Args:
        block: where the lines stand.
        spans: where in it.
        first: the number of the first line of the block.
        is_timed: whether most prefixes have a time.
        known: what is known of prefixes.
    """
    row, begin, mark, _ = spans
    framed = _framed(block, begin, mark, known) if is_timed else _Framed(np.full(len(row), -1, np.int32), [])
    if framed is None:
        return None
    printer, frames = framed
    origins = [frame.origin for frame in frames]
    left = np.flatnonzero(printer < 0)
    number, where = number_of(block.alike((begin[left], mark[left])))
    numbers = np.full(len(where), -1, np.int32)
    found = origins_of(block.pieces(begin[left[where]], mark[left[where]]), known)
    if found is None:
        return None
    for index, origin in enumerate(found):
        if origin is not None:
            numbers[index] = len(origins)
            origins.append(origin)
    printer[left] = numbers[number]
    more: list[Frame | None] = [None] * (len(origins) - len(frames))
    return Heads(block, begin, mark, row + first, printer, Printers(origins, frames and frames + more))


def origins_of(heads: Sequence[bytes], known: Known) -> list[Origin | None] | None:
    """Return who printed lines with these prefixes; None where one is news."""
    origins = list(known.seen(heads))
    for index, head in enumerate(heads):
        if origins[index] is None:
            if known.is_news(head):
                return None
            origins[index] = known.parsed(head)
    return origins


class _Framed(NamedTuple):
    """Prefixes that differ in their time only."""

    frame: Column
    """By prefixes: an index into the frames; -1 for those that are compared as they are."""
    frames: list[Frame]


def _framed(block: Block, begin: Rows, mark: Rows, known: Known) -> _Framed | None:
    """Return what prefixes have in common but for their times; None where one is news."""
    start, stop = _times(block, begin, mark)
    frame_of = np.full(len(begin), -1, np.int32)
    rows = np.flatnonzero(stop > start)
    begin, mark, start, stop = begin[rows], mark[rows], start[rows], stop[rows]
    number, where = number_of(block.alike((begin, start), (stop, mark), also=stop - start))
    last = np.zeros(len(where), np.int64)
    last[number] = np.arange(len(rows))
    numbers = np.full(len(where), -1, np.int32)
    frames: list[Frame] = []
    spans = start[where] - begin[where], stop[where] - begin[where]
    firsts = zip(block.pieces(begin[where], mark[where]), *(span.tolist() for span in spans), strict=True)
    for index, (head, since, until) in enumerate(firsts):
        key = head[:since] + head[since:until].translate(ZERO) + head[until:]
        frame = known.proven(key)
        if frame is None:
            if known.is_news(head):
                return None
            at = last[index]
            for one in (head, block.data[begin[at] : mark[at]]):
                known.parsed(one)
            frame = known.proven(key)
        if frame is not None and frame.begin == since and frame.rest == len(head) - until:
            numbers[index] = len(frames)
            frames.append(frame)
    frame_of[rows] = numbers[number]
    return _Framed(frame_of, frames)


def _times(block: Block, begin: Rows, mark: Rows) -> tuple[Rows, Rows]:
    """Return where the times in prefixes begin and end, if they look like those in others; else both is the same.

    Whether that is the time of a prefix, its frame proves.
    """
    start, stop = begin.copy(), begin.copy()
    left = np.arange(len(begin))
    for _ in range(_MAX_HEADS):
        if not len(left):
            break
        head = block.data[begin[left[0]] : mark[left[0]]]
        form = head.translate(ZERO)
        since, until = timestamps.place(form)
        at = begin[left] + since
        fits = mark[left] - begin[left] >= until
        if since < until:
            fits[fits] = _are_times(block, at[fits], form[since:until])
        else:  # others of this width may have one: they are told apart as they stand
            fits = mark[left] - begin[left] == len(head)
        rows = left[fits]
        start[rows] += since
        stop[rows] += until
        fits[0] = True
        left = left[~fits]
    return start, stop


def _are_times(block: Block, at: Rows, form: bytes) -> Mask:
    """Return whether times of this form are at some places."""
    fits = block.has_form(at, form)
    after = block.bytes[at + len(form)]
    fits &= (after < ord("0")) | (after > ord("9"))
    if form[2:3] == b":":
        hour, tens, minute, second = (block.bytes[at + place] for place in (0, 1, 3, 6))
        fits &= (hour < ord("2")) | ((hour == ord("2")) & (tens < ord("4")))
        fits &= (minute < ord("6")) & (second < ord("6"))
    return fits


CHANNEL = b"INFO Channel "
TAIL = len(CHANNEL) + 2
"""Bytes of level and text up to the end of the channel's number, which has two digits."""
_LEVEL = len(b"INFO ")
_FIELDS = ("conn", "src", "dst", "src_dev", "dst_dev", "nic_index", "pxn_rank", "via_rank", "_via_dev")
_NUMBER_WIDTH = 6
"""Digits of a number that is read so: no rank has more."""
_NAME_WIDTH = 9
_MAX_FORMS = 10_000
_DEVICE = field_type("id")


class _Field(NamedTuple):
    name: str
    begin: int
    """Bytes behind the number of the channel."""
    digits: Sequence[int]
    """The same of its digits."""
    width: int
    is_text: bool


class _Form(NamedTuple):
    """Texts that differ in digits only; places are bytes behind the number of the channel."""

    way: int
    width: int
    fields: Sequence[_Field]
    digits: list[int]
    """The places of their digits."""
    weights: NDArray[np.int64]
    """What each digit counts in each field."""
    firsts: list[int]
    """Those of the digits that are not zero."""
    fixed: list[int]
    """The places of other digits: others there may make another message of it."""
    same: NDArray[np.uint8]
    """These digits."""


class Read(NamedTuple):
    """Texts in columns: the way of each, an index; -1 where it is to be read line by line."""

    way: Column
    columns: dict[str, Column]


class Forms:
    """Forms of connection lines.

    Args:
        grammar: what recognises a text.
        text_of: what level and message of a line mean to its reader; None where that depends on the line.
    """

    def __init__(self, grammar: Grammar, text_of: Callable[[bytes, Origin], Text | None]) -> None:
        self._grammar = grammar
        self._text_of = text_of
        self._forms: dict[bytes, _Form | None] = {}
        self.ways: list[Way] = []
        self.texts: list[str] = []
        self._text_numbers: dict[str, int] = {}

    def forget(self) -> None:
        """Forget what was learned: from here on texts may mean something else."""
        self._forms.clear()

    def read(self, block: Block, begin: Rows, end: Rows, origin_of: Callable[[int], Origin]) -> Read:
        """Read texts.

        Args:
            block: where they stand.
            begin: where each continues after the number of the channel.
            end: where it ends.
            origin_of: who printed it.
        """
        columns = {name: np.full(len(begin), NONE, np.int32) for name in _FIELDS}
        way = np.full(len(begin), NONE, np.int32)
        number, where = number_of(block.shaped(begin, end))
        order = np.argsort(number, kind="stable")
        rows = np.split(order, np.cumsum(np.bincount(number, minlength=len(where)))[:-1])
        for at, of_shape in zip(where.tolist(), rows, strict=False):  # of nothing, numpy makes one part
            text = block.data[begin[at] - TAIL : end[at]]
            shape = text[TAIL:].translate(ZERO)
            form = self._forms[shape] if shape in self._forms else self._learn(shape, text, origin_of(at))
            if form is not None:
                self._fill(form, of_shape, block, begin, way, columns)
        return Read(way, columns)

    def _fill(
        self, form: _Form, rows: Rows, block: Block, begin: Rows, way: Column, columns: dict[str, Column]
    ) -> None:
        """Read texts of one form."""
        start = begin[rows]
        letters = block.windows(start, form.width)
        is_sound = (letters[:, form.fixed] == form.same).all(axis=1) & (letters[:, form.firsts] != ord("0")).all(axis=1)
        values = (letters[:, form.digits].astype(np.int64) - ord("0")) @ form.weights
        for field, value in zip(form.fields, values.T, strict=True):
            if field.is_text:
                _, first, number = np.unique(value, return_index=True, return_inverse=True)
                begins = (start[first] + field.begin).tolist()
                value = np.array([self._text(block.data[at : at + field.width]) for at in begins], np.int32)[number]
            columns[field.name][rows] = value
        way[rows] = np.where(is_sound, form.way, NONE)

    def _text(self, text: bytes) -> int:
        number = self._text_numbers.setdefault(decode(text), len(self.texts))
        if number == len(self.texts):
            self.texts.append(decode(text))
        return number

    def _learn(self, shape: bytes, rest: bytes, origin: Origin) -> _Form | None:
        if len(self._forms) >= _MAX_FORMS:
            self._forms.clear()
        form = self._forms[shape] = self._form(rest, origin)
        return form

    def _form(self, rest: bytes, origin: Origin) -> _Form | None:
        """Return the form of the text of a line; None where it has none."""
        text = self._text_of(rest, origin)
        parsed = text.parsed if text else None
        if text is None or parsed is None or parsed.kind is not ChannelConnect or rest[_LEVEL:] != text.message:
            return None
        spans = self._spans(text.message)
        if spans is None:
            return None
        begin, end = TAIL - _LEVEL - 2, TAIL - _LEVEL
        parts: list[str | Part] = []
        fields: list[_Field] = []
        at = 0
        free = set[int]()
        for start, stop, part in spans:
            digits = [place for place in range(start, stop) if rest[_LEVEL + place : _LEVEL + place + 1].isdigit()]
            is_channel = part.name == "channel"
            if is_channel != ((start, stop) == (begin, end)):
                return None
            if not is_channel:
                if part.name not in _FIELDS or len(digits) > (_NAME_WIDTH if part.is_text else _NUMBER_WIDTH):
                    return None
                if not part.is_text and len(digits) < stop - start:
                    return None
                fields.append(_Field(part.name, start - end, [one - end for one in digits], stop - start, part.is_text))
            free.update(digits)
            parts += [decode(text.message[at:start]), part]
            at = stop
        parts.append(decode(text.message[at:]))
        if not self._is_general(text.message, free):
            return None
        fixed = [
            place for place, byte in enumerate(text.message) if 48 <= byte < 58 and place not in free and place >= end
        ]
        event = parsed.event
        assert isinstance(event, ChannelConnect)
        names = slots(ChannelConnect)
        numbers = tuple(part.name for _, _, part in spans if part.name in names)
        self.ways.append(Way(event, text.level, parts, numbers))
        digits = [place for field in fields for place in field.digits]
        return _Form(
            way=len(self.ways) - 1,
            width=len(text.message) - end,
            fields=fields,
            digits=digits,
            weights=weights_of([len(field.digits) for field in fields]),
            firsts=[field.begin for field in fields if field.width > 1 and not field.is_text],
            fixed=[place - end for place in fixed],
            same=np.frombuffer(text.message, np.uint8)[fixed],
        )

    def _spans(self, message: bytes) -> list[tuple[int, int, Part]] | None:
        """Return the places of the numbers and device names in a message, in their order; None for no known one."""
        parsed = self._grammar.parse(message)
        match = parsed.production.match(message) if parsed else None
        if parsed is None or match is None:
            return None
        spans = []
        for name, kind, group in parsed.production.shape.fields:
            if match[group] is not None and (kind.read is int or kind is _DEVICE):
                spans.append((*match.span(group), Part(name, len(kind.write(0)), kind is _DEVICE)))
        return sorted(spans, key=lambda span: span[:2])

    def _is_general(self, message: bytes, free: set[int]) -> bool:
        """Return whether the message means the same with other digits in these places."""
        own = self._grammar.parse(message)
        spans = [span[:2] for span in self._spans(message) or ()]
        for digit in b"19":
            other = bytes(digit if place in free else byte for place, byte in enumerate(message))
            parsed = self._grammar.parse(other)
            if own is None or parsed is None or parsed.production is not own.production:
                return False
            if [span[:2] for span in self._spans(other) or ()] != spans:
                return False
        return True


_WIDEST = 256
"""Bytes of a prefix, or of a text, that is read in columns."""
_LEAST = 8
"""The same: there are eight in a word."""


class Split(NamedTuple):
    """A block: what was read in columns, and the other lines."""

    size: int
    """How many lines there are."""
    lines: LineTable
    connections: ConnectionTable | None
    others: Rows
    """Places of lines, from 0."""
    left: list[bytes]
    """The same as they are."""


class Columns:
    """Reads lines that have NCCL's prefix.

    Args:
        grammar: what recognises them.
        text_of: what level and message of a line mean to its reader; None where that depends on the line.
        known: what is known of prefixes.
    """

    def __init__(self, grammar: Grammar, text_of: Callable[[bytes, Origin], Text | None], known: Known) -> None:
        self._forms = Forms(grammar, text_of)
        self._text_of = text_of
        self._known = known

    def forget(self) -> None:
        """Forget what was learned of texts: from here on they may mean something else."""
        self._forms.forget()

    def split(self, data: bytes, first: int, is_timed: bool) -> Split | None:
        """Read a block.

        Args:
            data: lines with a line end between each two.
            first: the number of the first one.
            is_timed: whether most prefixes have a time.

        Returns:
            None where nothing can be read so.
        """
        block = Block(data)
        spans = prefixed(block)
        heads = heads_of(block, spans, first, is_timed, self._known) if len(spans.row) else None
        return None if heads is None else self.read(spans, heads)

    def read(self, spans: Spans, heads: Heads) -> Split:
        """Read lines of a block.

        Args:
            spans: where they stand.
            heads: who printed them.
        """
        block, row = heads.block, spans.row
        at = np.flatnonzero(heads.printer >= 0)
        is_left = np.ones(len(block.begin), bool)
        connections, of = self._connections(at, spans, heads)
        is_left[row[of]] = False
        at = at[is_left[row[at]]]
        lines, of = self._lines(at, spans, heads)
        is_left[row[of]] = False
        others = np.flatnonzero(is_left)
        return Split(len(block.begin), lines, connections, others, block.pieces(block.begin[others], block.end[others]))

    def _connections(self, at: Rows, spans: Spans, heads: Heads) -> tuple[ConnectionTable | None, Rows]:
        """Return the connection lines among some lines, and which of them these are."""
        block = heads.block
        at = at[_may_connect(block, spans.mark[at] + len(MARK), spans.end[at])]
        begin, end = spans.mark[at] + len(MARK) + TAIL, spans.end[at]
        number, where = number_of(block.alike((begin, end)))
        read = self._forms.read(block, begin[where], end[where], lambda one: heads.origin(int(at[where[one]])))
        tens, ones = (block.bytes[begin - place].astype(np.int32) - ord("0") for place in (2, 1))
        channel = 10 * tens + ones
        kept = np.flatnonzero(read.way[number] >= 0)
        if not len(kept) or channel[kept].max() >= MAX_CHANNEL:
            return None, at[:0]
        of = at[kept]
        return (
            ConnectionTable(
                heads=heads,
                at=of,
                ways=self._forms.ways,
                texts=self._forms.texts,
                channel=channel[kept],
                template=number[kept],
                way=read.way,
                columns=read.columns,
            ),
            of,
        )

    def _lines(self, at: Rows, spans: Spans, heads: Heads) -> tuple[LineTable, Rows]:
        """Other lines among some that are sound, and which of them these are."""
        block = heads.block
        begin, end = spans.mark[at] + len(MARK), spans.end[at]
        is_wide = end - begin > _WIDEST
        narrow, wide = np.flatnonzero(~is_wide), np.flatnonzero(is_wide)
        first_alike = np.arange(len(at))
        first_alike[narrow] = narrow[block.alike((begin[narrow], end[narrow]))]
        same: dict[bytes, int] = {}
        for one, text in zip(wide.tolist(), block.pieces(begin[wide], end[wide]), strict=True):
            first_alike[one] = same.setdefault(text, one)
        number, where = number_of(first_alike)
        texts: list[Text] = []
        numbers = np.full(len(where), -1, np.int32)
        origins, printers = heads.printers.origins, heads.printer[at[where]].tolist()
        for index, text in enumerate(block.pieces(begin[where], end[where])):
            meaning = self._text_of(text, origins[printers[index]])
            if meaning is not None:
                numbers[index] = len(texts)
                texts.append(meaning)
        text_number = numbers[number]
        kept = np.flatnonzero(text_number >= 0)
        of = at[kept]
        return LineTable(heads=heads, at=of, text=text_number[kept], texts=texts), of


def prefixed(block: Block) -> Spans:
    """Return the lines with a prefix and a text of usual width."""
    row, mark = block.first_in_lines(MARK)
    return usual(Spans(row, block.begin[row], mark, block.end[row]))


def usual(spans: Spans) -> Spans:
    """Return those with a prefix and a text of usual width."""
    head = spans.mark - spans.begin
    return spans.at((head >= _LEAST) & (head <= _WIDEST) & (spans.end - spans.mark >= len(MARK) + _LEAST))


def _may_connect(block: Block, begin: Rows, end: Rows) -> Mask:
    """Return which texts look like those about channels."""
    width = end - begin - TAIL
    at = np.flatnonzero((width >= _LEAST) & (width <= _WIDEST))
    fits = np.zeros(len(begin), bool)
    for mark in b"/", b" ":
        fits[at] = are_so = block.has_form(begin[at], CHANNEL + b"00" + mark)
        at = at[~are_so]
    return fits


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
_MAX_RECORD_FORMS = 10_000
_new = tuple.__new__
_LEAST_RECORDS = 2
"""Lines of a block for each new form: learning one takes as long as reading these."""


class RecordFrame(Frame):
    """Holds what lines of the same prefix have in common in objects of one form."""

    __slots__ = ()

    def with_time(self, time: bytes) -> Origin:
        """Return the origin of a line by the time of day of its object; more bytes may follow it."""
        if self.stamp is None:
            return self.origin
        head, process, tid, device, _, *others = self.origin
        return _new(Origin, (head, process, tid, device, self.stated(time[: len(self.time)]), *others))

    def stated(self, time: bytes) -> str | None:
        """Return the time that such an origin states: that of its object, but for lines that have their own."""
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
        if len({kind for kind in kinds if kind not in self._forms}) * _LEAST_RECORDS > len(number):
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
        """Return the prefixes of lines in objects; None where one is news."""
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
            if len(self._forms) >= _MAX_RECORD_FORMS:
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
    """Return an object, and where the line in it begins and ends."""
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
    """Return the form of an object; None where it is not that plain.

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
