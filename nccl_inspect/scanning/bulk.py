"""Reads whole blocks of lines: the same results as :class:`~nccl_inspect.scanning.scanner.Scanner`, in less time.

Nothing is recognised here. A line whose prefix and text were seen before, or whose text differs from a known one in the
number of the channel only, is looked up; lines of other programs are passed over by what they look like without
digits; a flood of the same lines is counted; objects of a known form are taken off lines. Everything else goes through
the scanner, line by line. First the means, in this order; :class:`BulkScanner` uses them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import compress, islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.envelopes import ISO, Inner, Stated
from nccl_inspect.ingest.lines import exceptions, prefix
from nccl_inspect.ingest.lines.prefix import MARK, Origin
from nccl_inspect.ingest.lines.timestamps import Frame, Late
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.scanning.found import TAIL, Counts, Found, Printed, Repeated, Template, Text, Thread
from nccl_inspect.scanning.scanner import Scanner
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import DIGITS, decode, encode

if TYPE_CHECKING:
    from nccl_inspect.scanning.grams import Grams

# Floods of the same lines

_LOOK = 1 << 16  # bytes of a block that show what most of it is
_SAMPLES = 64
_SAME = 4  # lines are a flood when at most one in this many is distinct


class Repeats(NamedTuple):
    """The lines of a block, by what they say."""

    numbers: Counter[bytes]  # how often each came
    size: int  # of them all
    cycle: list[bytes]  # the lines that come in turn, or all of them
    end: list[bytes]  # the last lines: at least as many

    def last_of(self, lines: Container[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield those of some kinds from the last one on, each with how many lines come after it."""
        if not lines:
            return
        back = 0
        while back < self.size:
            for line in reversed(self.end if back == 0 else self.cycle):
                if back < self.size and line in lines:
                    yield back, line
                back += 1


def find_repeats(block: Lines) -> Repeats | None:
    """Return what a block repeats; None when it does not."""
    text = block.text
    middle = max(0, len(text) - _LOOK) // 2  # a flood may begin after what a job prints first
    sample = text[middle : middle + _LOOK].split(b"\n")
    if len(sample) < _SAMPLES or len(set(sample)) * _SAME > len(sample):
        return None
    width = _cycle(text)
    if width:
        cycle, rest = text[: width - 1].split(b"\n"), text[len(text) // width * width :].split(b"\n")
        times = len(text) // width
        if rest == cycle[: len(rest)]:  # else the last line is a part of one
            numbers = Counter({line: number * times for line, number in Counter(cycle).items()})
            numbers.update(rest)
            return Repeats(numbers, times * len(cycle) + len(rest), cycle, [*cycle, *rest])
    lines = block.lines
    numbers = Counter(lines)
    return Repeats(numbers, len(lines), lines, lines) if len(numbers) * _SAME <= len(lines) else None


def _cycle(text: bytes) -> int:
    """Return the bytes of the lines that come in turn up to the end of a text; 0 when there are none."""
    first = text[: text.find(b"\n", _LOOK // 16) + 1]
    width = text.find(first, 1) if first else -1
    while 0 < width < _LOOK and text[width - 1 : width] != b"\n":
        width = text.find(first, width + 1)
    if not 0 < width < _LOOK:
        return 0
    # Each byte is the same as that so many before; compared in parts, which are not copied.
    some = text[: _LOOK // width * width]
    end = len(text) // len(some) * len(some)
    again = (text.startswith(some, at) for at in range(0, end, len(some)))
    return width if some.startswith(some[width:]) and all(again) and some.startswith(text[end:]) else 0


def find_first(lines: Iterable[bytes], wanted: Iterable[bytes]) -> dict[bytes, int]:
    """Return how many lines come before the first of each kind."""
    left = set(wanted)
    places = {}
    for place, line in enumerate(lines):
        if line in left:
            places[line] = place
            left.remove(line)
            if not left:
                break
    return places


# Lines of other programs

_NAME = b"NCCL "
_USUAL = b" NCCL INFO "
_MAX_SHAPES = 20_000
_SHAPE_WIDTH = 500
_LARGE = BLOCK // 2  # bytes of a block that are worth loading numpy, where letters do not tell
_WASTE = 1 << 12  # bytes of a block in which one line may be looked at for nothing


class Picked(NamedTuple):
    """Holds what is worth a look in a block."""

    size: int  # how many lines the block has
    lines: list[tuple[int, bytes]]  # those worth a look, with their places
    signs: bytes  # what they look like


class Sieve:
    """Passes over lines of other programs that mean nothing.

    They are compared by what they look like without their digits; from the second large block on, such a block is
    searched for all signs at once, with numpy.

    Args:
        signs: gives what makes lines worth a look, besides NCCL's name; logs of NCCL's lines do without.
    """

    def __init__(self, signs: Callable[[], Iterable[bytes]]) -> None:
        self._given = signs
        self._idle: set[bytes] = set()  # what lines look like that mean nothing
        self._worthy: set[bytes] = set()  # what single lines look like that mean something
        self._has_begun = False
        self._grams: Grams | None = None

    @cached_property
    def _signs(self) -> set[bytes]:
        return {*self._given(), exceptions.TRACEBACK, _NAME}

    @cached_property
    def _shapes(self) -> list[bytes]:
        """Return what the signs look like."""
        return sorted({sign.translate(None, DIGITS) for sign in self._signs})

    def pick_lines(self, text: bytes) -> Picked:
        """Return what is worth a look in a block."""
        found = self._by_grams(text) if self._has_begun and len(text) >= _LARGE else None
        self._has_begun = True
        if found:
            return found
        # Else what holds a sign, compared for each distinct look of lines only.
        shapes = text.translate(None, DIGITS).split(b"\n")
        worth = self._worth(set(shapes) - self._idle)
        places = list(compress(range(len(shapes)), map(worth.__contains__, shapes)))
        # Most are lines of NCCL's usual level, which are found faster.
        lines = _with(_USUAL, text) if places else []
        lines = _with(_NAME, text) if len(lines) < len(places) else lines
        if len(lines) < len(places):  # others were chosen as well, or digits stand in the name
            every = text.split(b"\n")
            lines = [every[place] for place in places]
        return Picked(len(shapes), list(zip(places, lines, strict=True)), b"\n".join(worth))

    def is_idle(self, line: bytes) -> bool:
        """Return whether a line means nothing."""
        shape = line.translate(None, DIGITS)
        if shape in self._worthy:
            return False
        if shape not in self._idle and self._worth({shape}):
            if len(self._worthy) > _MAX_SHAPES:
                self._worthy.clear()
            self._worthy.add(shape)
            return False
        return True

    def _by_grams(self, text: bytes) -> Picked | None:
        """Return what holds a sign, whatever the other lines look like; None without numpy."""
        try:
            from nccl_inspect.scanning.grams import Grams  # this loads numpy
        except ImportError:
            return None
        if self._grams is None:
            self._grams = Grams(self._signs, text[:BLOCK])
        size, found = self._grams.lines(text)
        picked = [(place, line) for place, line in found if line.find(_NAME) >= 0 or not self.is_idle(line)]
        if (len(found) - len(picked)) * _WASTE > len(text):
            self._grams = None  # what is common has changed
        return Picked(size, picked, b"\n".join([line for _, line in picked]).translate(None, DIGITS))

    def _worth(self, fresh: set[bytes]) -> set[bytes]:
        """Return those of some shapes that hold something that makes a line worth a look; the others are remembered."""
        together = b"\n".join(fresh)
        signs = [sign for sign in self._shapes if sign in together]
        worth = {shape for shape in fresh if any(sign in shape for sign in signs)} if signs else set()
        if len(self._idle) > _MAX_SHAPES:
            self._idle.clear()
        self._idle.update(shape for shape in fresh if shape not in worth and len(shape) < _SHAPE_WIDTH)
        return worth


def _with(name: bytes, text: bytes) -> list[bytes]:
    """Return the lines that hold a text; they are searched from the end, which takes a third of the time."""
    lines = []
    at = len(text)
    while (at := text.rfind(name, 0, at)) >= 0:
        end = text.find(b"\n", at)
        at = text.rfind(b"\n", 0, at) + 1
        lines.append(text[at : end if end >= 0 else len(text)])
    lines.reverse()
    return lines


def with_frames(
    text: bytes, picked: Sequence[tuple[int, bytes]], tracing: exceptions.Open
) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the picked lines, these, and all that follows while tracebacks have not ended."""
    lines = text.split(b"\n")
    taken = {index for index, _ in picked}
    begin = _begin_of_tail(len(lines), taken)
    at = 0
    for index in (*(index for index, _ in picked if index < begin), *range(begin, len(lines))):
        while tracing and at < index:
            yield at, lines[at], False
            at += 1
        yield index, lines[index], index in taken
        at = index + 1


def _begin_of_tail(size: int, taken: Container[int]) -> int:
    """Return from where on there are as many lines that were not taken as are kept."""
    begin, others = size, 0
    while begin and others < TAIL:
        begin -= 1
        others += begin not in taken
    return begin


# Objects around lines, as collectors write them

_TIME = compile_later(ISO)
_CLOCK = compile_later(rb"-\d\d[T ](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?![\d:.,])")
"""The time of day behind the date, with which the search begins: to try a look behind at each place takes four times as
long."""
_LINE = b"\0"  # what stands for the line in what is around it
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
        if (escape := line.find(b"\\", begin, end)) >= 0:
            end = escape
        if not 0 < begin < mark < end:
            return line
        around = line[:begin] + _LINE + line[end:]
        clock = _CLOCK.search(around)
        if clock is None:
            return line
        form = around[: clock.start(1)] + around[clock.end(1) :]
        if form not in self._forms:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            at = clock.start(1) if clock.start(1) < begin else clock.start(1) - 1 - begin + end
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
            stamp = time[: clock.start(1)], time[clock.end(1) :]
        return RecordFrame(prefix.stated_by(origin, stated), time, 0, 0, stamp, is_proven=True)


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


# Lines that were broken at the width of a terminal or a mail

MOST = 1 << 16  # bytes of a log that is looked through: what people paste is shorter
_NARROWEST = 40
_PIECES = 4  # of a line, at most
_GLUES = (b"", b" ")
"""A terminal breaks inside words and keeps blanks but the one at the edge; a mail breaks at a blank."""
_QUOTE = compile_later(rb"(?:> ?)+")
_OWN = compile_later(rb"NCCL (?:INFO|WARN|ATTN|TRACE) |^\s*$|:\d{1,10}:\d{1,10} \[")
"""Text that marks a line as not continuing the one before."""


def rejoin_block(lines: Lines, grammar: Grammar) -> Lines:
    """Return the first block of a source with broken lines put together; the same block where there are none."""
    if lines.mended is not None or len(lines.text) > MOST or MARK not in lines.text:
        return lines
    given = envelopes.clean_lines(lines.lines, lines.text)
    width = max(map(len, given))
    whole, numbers, at = list[bytes](), list[int](), 0
    while at < len(given):
        pieces, line = _rejoin_pieces(given, at, width, grammar) or (1, given[at])
        whole.append(line)
        numbers.append(at + 1)
        at += pieces
    return lines if len(whole) == len(given) else Lines(whole, lines.size, Mended(numbers, len(given)))


def _rejoin_pieces(lines: Sequence[bytes], place: int, width: int, grammar: Grammar) -> tuple[int, bytes] | None:
    """Return the number of lines and what they are together; None when that is not a message, or the first is one."""
    first, *below = lines[place : place + _PIECES]
    if not below or _USUAL in below[0] or len(first) < _NARROWEST or MARK not in first or _OWN.search(below[0]):
        return None
    if (own := prefix.split(first)) is None or _is_known(own[1], grammar):
        return None
    quote, tried = _QUOTE.match(first), [first]
    for size, (above, line) in enumerate(pairwise((first, *below)), 2):
        rest = _QUOTE.sub(b"", line, count=1) if quote else line
        if _OWN.search(rest) or len(above) + len(rest.split(maxsplit=1)[0]) + 1 < width:
            return None  # the word had had room
        tried = [candidate.rstrip() + glue + rest for candidate in tried for glue in _GLUES]
        for candidate in tried:
            if (parts := prefix.split(candidate)) and _is_known(parts[1], grammar):
                return size, candidate
    return None


def _is_known(rest: bytes, grammar: Grammar) -> bool:
    message = rest.partition(b" ")[2]
    return (grammar.parse(message) or grammar.parse_cut(message)) is not None


# The scanner


class _Printer(NamedTuple):
    """Holds who printed lines with a prefix."""

    origin: Origin
    frame: Frame | None  # what makes the origin of each line where the prefix is that of another time
    lines: Printed
    thread: Thread

    def at(self, line: bytes, size: int) -> Origin | Late:
        """Return who printed a line, by the size of its prefix."""
        if self.frame is None:
            return self.origin
        if not isinstance(self.frame, RecordFrame):
            return Late(self.frame, line[:size])
        mark = line.find(MARK)  # the time of day of an object is before or behind the line in it
        begin, end = line.rfind(b'"', 0, mark), line.find(b'"', mark)
        clock = _CLOCK.search(line, 0, begin) or _CLOCK.search(line, end)
        return Late(self.frame, clock[1] if clock else b"")


_CHANNEL = b"INFO Channel "
_CONNECTS = MARK + _CHANNEL
_DIGITS_END = len(_CHANNEL) + 2
_BITS = {b"%02d" % channel: 1 << channel for channel in range(100)}
_MAX_TEMPLATES = 50_000
_RANKS = re.compile(rb"INFO Channel (\d\d)((?:/\d)? : )(0|[1-9]\d{0,5})(\[\w+\] -> )(0|[1-9]\d{0,5})(\[.*)")
"""A connection line; the ranks are ones that can be."""
_SPARSE = 4  # a log is sparse when at most one line in this many is NCCL's


class BulkScanner(Scanner):
    """A scanner of blocks.

    Args:
        is_countable: returns whether of lines with a text only the number, the first and the last one matter.
        connects: returns whether a text is that of a connection.
    """

    def __init__(
        self, grammar: Grammar, is_countable: Callable[[Text], bool], connects: Callable[[Text], bool]
    ) -> None:
        super().__init__(grammar)
        self._is_countable, self._connects = is_countable, connects
        self._templates: dict[bytes, Template] = {}
        """Texts of connection lines by what follows the number of the channel."""
        self._siblings: dict[tuple[bytes, ...], Template] = {}  # the same by what is beside the ranks
        self._records = Records()
        self._sieve = Sieve(lambda: (*grammar.signs(), *envelopes.SIGNS_OF_PARTIALS, prefix.FATAL))

    def read(self, lines: Lines, counts: Counts) -> Found | list[Repeated]:
        """Read a block; of a flood give each line once, in the order of the first ones."""
        if not counts.lines:
            lines = rejoin_block(lines, self._grammar)
        text = lines.text
        if counts.pending or self.cut_width:
            return self._by_line(lines, counts)
        if lines.mended is None and text.count(MARK, 0, _LOOK) * _SPARSE < text.count(b"\n", 0, _LOOK):
            return self._sparse(lines, counts)
        repeats = None if lines.mended else find_repeats(lines)
        if repeats and (flood := self._flood(repeats, counts)) is not None:
            return flood
        if envelopes.has_partials(text):
            return self._by_line(lines, counts)
        block, cleaned = Found(), envelopes.clean_lines(lines.lines, text)
        self._lines, self._needles = cleaned, None
        self._each(counts.number(len(cleaned), lines.mended), cleaned, counts, block)
        return block

    def _by_line(self, lines: Lines, counts: Counts) -> Found:
        block = Found()
        self.scan(lines.lines, counts, block.keep, lines.mended)
        return block

    def _each(self, numbers: Sequence[int], cleaned: Sequence[bytes], counts: Counts, block: Found) -> None:
        """Read the lines of a source one by one; most are known."""
        printers: dict[bytes, _Printer] = {}
        threads: dict[bytes, Thread] = {}  # what the next connection lines with a prefix may continue
        lasts: dict[bytes, int] = {}  # by prefix the place of the last line that continued one
        scanned = unknown = 0  # lines that the scanner counts; others that no production knows
        texts, templates = self._texts.young, self._templates
        # Where most lines have a time, few have the same prefix: it is taken from them.
        if self.wrapped and cleaned and cleaned[len(cleaned) // 2].startswith(b"{"):
            without: Callable[[bytes], bytes] | None = self._records.strip_form
        else:
            without = self._timed.mask_time if self._timed.tells(cleaned) else None
        for at, line in enumerate(map(without, cleaned) if without else cleaned):
            head, is_connection, rest = line.partition(_CONNECTS)
            thread = threads.get(head) if is_connection else None
            if thread and (edge := thread.run.get(rest[2:])) and (bit := _BITS.get(rest[:2])):
                edge.channels |= bit
                edge.lines += 1
                lasts[head] = at
                continue
            printer = printers.get(head) if is_connection else None
            if (
                printer
                and printer.lines.rows
                and (template := templates.get(rest[2:]))
                and (bit := _BITS.get(rest[:2]))
            ):
                printed = printer.origin if printer.frame is None else printer.at(cleaned[at], len(head))
                printer.lines.connect(printer.thread, numbers[at], printed, bit, template)
                continue
            head, _, said = line.partition(MARK)
            printer = printers.get(head)
            if printer is None and said[:5] in prefix.BEGINNINGS:
                printer = self._printer(head, cleaned[at], block)
                texts = self._texts.young
                if printer is not None and (printer.frame is not None or not without):
                    printers[head] = printer
                    threads[head] = printer.thread
            if printer is not None:
                bit = _BITS.get(said[_DIGITS_END - 2 : _DIGITS_END]) if said.startswith(_CHANNEL) else None
                template = templates.get(said[_DIGITS_END:]) if bit else None
                text = template.text if template else texts.get(said)
                if text is None and said[:5] in prefix.BEGINNINGS:
                    template = self._adapt_template(said) if bit else None
                    text = template.text if template else self._text(said, printer.origin)
                    texts = self._texts.young
                    template = templates.get(said[_DIGITS_END:]) if bit else None
                if text is not None and not text.damaged:
                    number, lines = numbers[at], printer.lines
                    printed = printer.origin if printer.frame is None else printer.at(cleaned[at], len(head))
                    if not lines.rows:
                        block.by_process[printer.origin.process] = lines
                    if bit and template:
                        lines.connect(printer.thread, number, printed, bit, template)
                    else:
                        lines.keep(number, printed, text)
                        if text.parsed is None:
                            block.unknown.append((number, printed, text))
                            unknown += 1
                    continue
            self._line(numbers[at], cleaned[at], counts, block.keep)
            texts = self._texts.young
            scanned += 1
        for head, at in lasts.items():
            printer = printers[head]
            if printer.lines.last[0] < numbers[at]:
                printer.lines.last = numbers[at], printer.at(cleaned[at], len(head))
        counts.add(len(cleaned) - scanned, unknown)

    def _printer(self, head: bytes, line: bytes, block: Found) -> _Printer | None:
        """Return who printed a line with this head."""
        frame: Frame | None
        if line.startswith(b"{"):
            origin = self._origin_of(head.rpartition(b'"')[2])
            frame = self._records.frame_of(head, origin) if origin else None
            origin = frame and frame.origin
        else:
            own = line[: len(head)]
            tell = self._timed.proven  # what the line is known by is mostly a key
            frame = (tell(head) or tell(self._timed.key(own) or own)) if own != head else None
            origin = self._origin_of(own) if frame is None else frame.origin
        if origin is None:
            return None
        lines = block.lines_of(origin.process)
        return _Printer(origin, frame, lines, lines.threads.setdefault(origin.tid, Thread()))

    def _text(self, rest: bytes, origin: Origin) -> Text:
        text = super()._text(rest, origin)
        # A text stands for those of all channels if it has the number where connection lines have it.
        if (
            rest.startswith(_CHANNEL)
            and self._connects(text)
            and rest == b"INFO " + text.message
            and rest[_DIGITS_END - 2 : _DIGITS_END] in _BITS
            and rest[_DIGITS_END : _DIGITS_END + 1] in (b"/", b" ")
        ):
            assert text.parsed is not None and isinstance(text.parsed.event, ChannelConnect)
            template = self._keep_template(Template(rest[_DIGITS_END:], text, text.parsed.event))
            match = _RANKS.fullmatch(rest)
            if match and (b"%d" % template.event.src, b"%d" % (template.event.dst or 0)) == match.group(3, 5):
                self._siblings[match.group(2, 4, 6)] = template
        return text

    def _keep_template(self, template: Template) -> Template:
        if len(self._templates) >= _MAX_TEMPLATES:
            self._templates.clear()
            self._siblings.clear()
        self._templates[template.rest] = template
        return template

    def _adapt_template(self, rest: bytes) -> Template | None:
        """Return what stands for a text of which one is known that differs in the ranks only."""
        match = _RANKS.fullmatch(rest)
        if match is None or (sibling := self._siblings.get(match.group(2, 4, 6))) is None:
            return None
        channel, src, dst = map(int, match.group(1, 3, 5))
        event = sibling.event.with_fields(channel=channel, src=src, dst=dst, message=decode(rest[5:]))
        return self._keep_template(Template(rest[_DIGITS_END:], sibling.text, event))

    def _flood(self, repeats: Repeats, counts: Counts) -> list[Repeated] | None:
        """Count lines of which most are the same; None, and nothing happened, when they are not to be counted.

        What is remembered of a line is remembered of it without colours, as a whole one: no need to look for these.
        """
        if counts.awaited or counts.tracebacks:
            return None
        recognized: dict[bytes, tuple[Origin, Text]] = {}
        others: dict[bytes, bytes] = {}
        for line in repeats.numbers:
            head, mark, rest = line.partition(MARK)
            origin, text = self._origins.young.get(head), self._texts.young.get(rest)
            if origin is not None and text is not None and not text.damaged and self._is_countable(text):
                recognized[line] = origin, text
                continue
            cleaned = envelopes.clean_lines([line], line)
            if mark or len(cleaned) != 1 or not self._sieve.is_idle(cleaned[0]):
                return None
            others[line] = cleaned[0]
        numbers = counts.number(repeats.size)
        unknown = sum(repeats.numbers[line] for line, (_, text) in recognized.items() if text.parsed is None)
        counts.add(sum(repeats.numbers[line] for line in recognized), unknown)
        for back, line in reversed([*islice(repeats.last_of(others), TAIL)]):
            counts.add_other(numbers[-1 - back], others[line])
        begin = find_first(repeats.cycle, repeats.numbers)
        end = find_first(reversed(repeats.end), repeats.numbers)
        return [
            Repeated(numbers[begin[line]], numbers[-1 - end[line]], repeats.numbers[line], *recognized[line])
            for line in recognized
        ]

    def _sparse(self, lines: Lines, counts: Counts) -> Found:
        """Read a block of which few lines are NCCL's."""
        text = lines.text
        if counts.awaited:
            return self._by_line(lines, counts)
        if envelopes.needs_cleaning(text):
            text = b"\n".join(envelopes.clean_lines(lines.lines, text))
        size, picked, signs = self._sieve.pick_lines(text)
        partials = (sign.translate(None, DIGITS) for sign in envelopes.SIGNS_OF_PARTIALS)
        may_have_partials = b"{" in text[: envelopes.LOOK] or any(sign in signs for sign in partials)
        if exceptions.LAST_ERROR in signs or (may_have_partials and envelopes.has_partials(text)):
            return self._by_line(lines, counts)
        numbers = counts.number(size)
        block = Found()
        self._lines, self._needles = [line for _, line in picked], None
        if counts.tracebacks or exceptions.TRACEBACK in signs:
            wanted = with_frames(text, picked, counts.tracebacks)
        else:
            # The picked lines before the tail, and the tail with as many others as are kept.
            taken = {index for index, _ in picked}
            begin = _begin_of_tail(size, taken)
            early = [(index, line) for index, line in picked if index < begin]
            self._each([numbers[index] for index, _ in early], [line for _, line in early], counts, block)
            ending = enumerate(text.rsplit(b"\n", size - begin)[begin - size :], begin)
            wanted = ((index, line, index in taken) for index, line in ending)
        for index, line, is_picked in wanted:
            if is_picked or counts.tracebacks:
                self._line(numbers[index], line, counts, block.keep)
            else:
                counts.add_other(numbers[index], line)
        return block
