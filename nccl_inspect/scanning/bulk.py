"""Reads whole blocks of lines: the same results as :class:`~nccl_inspect.scanning.scanner.Scanner`, in less time.

Nothing is recognised here. A line whose prefix and text were seen before, or whose text differs from a known one in the
number of the channel only, is looked up; lines of other programs are passed over by what they look like without
digits; a flood of the same lines is counted. Everything else goes through the scanner, line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import last_error, prefix, tracebacks
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import SAMPLE, Frame, Late, in_most
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.ingest.sources.streams import BLOCK, HEAD
from nccl_inspect.scanning import sparse
from nccl_inspect.scanning.counts import TAIL, Counts, Text
from nccl_inspect.scanning.found import Found, Repeated, Row
from nccl_inspect.scanning.scanner import MAX_TEXTS, Scanner
from nccl_inspect.util.patterns import compile_later

if TYPE_CHECKING:
    from nccl_inspect.scanning.columns import Columns, Records, Split
    from nccl_inspect.scanning.found import Collector


MOST = 1 << 16
"""Bytes of a log that is looked through: what people paste is shorter."""
_NARROWEST = 40
_PIECES = 4
"""Of a line, at most."""
_GLUES = (b"", b" ")
"""A terminal breaks inside words and keeps blanks but the one at the edge; a mail breaks at a blank."""
_QUOTE = compile_later(rb"(?:> ?)+")
_OWN = re.compile(rb"NCCL (?:INFO|WARN|ATTN|TRACE) |^\s*$|:\d{1,10}:\d{1,10} \[")
"""Text that marks a line as not continuing the one before."""
_USUAL = b"NCCL INFO "
"""What most such lines hold."""


def rejoined(lines: Lines, grammar: Grammar) -> Lines:
    """Return the first block of a source with broken lines put together; the same block where there are none.

    Args:
        lines: of a source, from its first one.
        grammar: knows whole messages.
    """
    if lines.mended is not None or len(lines.text) > MOST or prefix.MARK not in lines.text:
        return lines
    given = envelopes.cleaned(lines.lines, lines.text)
    broken = dict(_broken(given, grammar))
    if not broken:
        return lines
    whole, numbers, at = list[bytes](), list[int](), 0
    while at < len(given):
        pieces, line = broken.get(at, (1, given[at]))
        whole.append(line)
        numbers.append(at + 1)
        at += pieces
    return Lines(whole, lines.size, Mended(numbers, len(given)))


def _broken(lines: Sequence[bytes], grammar: Grammar) -> Iterator[tuple[int, tuple[int, bytes]]]:
    """Yield where a broken line begins, how many lines it takes, and what it was."""
    width = max(map(len, lines))
    others = [place for place, line in enumerate(lines[1:]) if _USUAL not in line]
    for place, line in zip(others, map(lines.__getitem__, others), strict=True):
        if prefix.MARK in line and _OWN.search(lines[place + 1]) is None and len(line) >= _NARROWEST:
            parts = prefix.split(line)
            if parts and not _is_known(parts[1], grammar) and (made := _made(lines, place, width, grammar)):
                yield place, made


def _made(lines: Sequence[bytes], place: int, width: int, grammar: Grammar) -> tuple[int, bytes] | None:
    """Return the number of lines and what they are together; None when that is not a message."""
    quote = _QUOTE.match(lines[place])
    tried = [lines[place]]
    for size, (above, line) in enumerate(zip(lines[place:], lines[place + 1 : place + _PIECES], strict=False), 2):
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


_Printer: TypeAlias = tuple[Origin, list[Row], Frame | None]
"""Who printed lines, which, and what makes the origin of each where this is that of another time."""

_CHANNEL = b"INFO Channel "
_DIGITS_END = len(_CHANNEL) + 2
_CHANNELS = {b"%02d" % channel: channel for channel in range(100)}
LARGE = BLOCK - HEAD
"""Bytes after which a log is large: its first block is a whole one. Loading numpy takes as long as reading that."""
_LOOK = 1 << 16
"""Bytes of a block that show what most of it is."""
_SPARSE = 4
"""A log is sparse when at most one line in this many is NCCL's."""
_SMALL = 1 << 16
"""Bytes of a block below which columns cost more than they gain: each of many files."""


class BulkScanner(Scanner):
    """A scanner of blocks.

    The lines of a large log are read in columns, where numpy is there.

    Args:
        grammar: what to recognise messages with.
        collector: gets the lines.
        large: bytes after which a log is large.
    """

    def __init__(self, grammar: Grammar, collector: Collector, large: float = LARGE) -> None:
        super().__init__(grammar)
        self._collector = collector
        self._large = large
        self._templates: dict[bytes, Text] = {}
        """Texts of connection lines by what follows the number of the channel."""
        self._sieve = sparse.Sieve(lambda: (*grammar.signs(), *envelopes.signs_of_partials(), prefix.FATAL))
        self._seen = 0
        """Bytes that were read."""
        self._columns: Columns | None = None
        self._records: Records | None = None

    def read(self, lines: Lines, counts: Counts) -> None:
        """Read a block.

        Args:
            lines: of a source.
            counts: of this source.
        """
        if not counts.lines:
            lines = rejoined(lines, self._grammar)
        text = lines.text
        if counts.pending or self.cut_width:
            self._by_line(lines, counts)
        elif lines.mended is None and _is_sparse(text):
            self._sparse(lines, counts)
        elif (repeats := None if lines.mended else sparse.found(lines)) and self._flood(repeats, counts):
            pass
        elif envelopes.has_partials(text):
            self._by_line(lines, counts)
        else:
            # The next block of a flood is counted: for one alone numpy is not loaded.
            self._dense(lines, counts, in_columns=repeats is None or self._columns is not None)

    def _by_line(self, lines: Lines, counts: Counts) -> None:
        block = Found()
        self.scan(lines.lines, counts, block.keep, lines.mended)
        self._collector.take(block)

    def _dense(self, lines: Lines, counts: Counts, in_columns: bool) -> None:
        block = Found()
        columns = self._columns_of(len(lines.text)) if in_columns and lines.mended is None else None
        self._seen += len(lines.text)
        numbers, cleaned = self._without_columns(lines, counts, block, columns)
        self._begin(cleaned)
        self._each(numbers, cleaned, counts, block)
        self._collector.take(block)

    def _each(self, numbers: Sequence[int], cleaned: Sequence[bytes], counts: Counts, block: Found) -> None:
        """Lines of a source one by one; most are known."""
        printers: dict[bytes, _Printer] = {}
        quick = unknown = 0
        texts = self._texts.young
        is_timed = self._timed.tells(cleaned)
        shown = map(self._timed.without, cleaned) if is_timed else cleaned
        for number, line, timeless in zip(numbers, cleaned, shown, strict=True):
            head, _, rest = timeless.partition(prefix.MARK)
            printer = printers.get(head)
            if printer is None and rest[:5] in prefix.BEGINNINGS:
                printer = self._printer(head, line, block)
                texts = self._texts.young
                if printer is not None and (printer[2] is not None or not is_timed):
                    printers[head] = printer
            if printer is not None:
                origin, rows, frame = printer
                text, channel = texts.get(rest), None
                if text is None and rest.startswith(_CHANNEL):
                    channel = _CHANNELS.get(rest[_DIGITS_END - 2 : _DIGITS_END])
                    text = None if channel is None else self._templates.get(rest[_DIGITS_END:])
                if text is None and rest[:5] in prefix.BEGINNINGS:
                    text, channel = self._text(rest, origin), None
                    texts = self._texts.young
                if text is not None and not text.damaged:
                    printed = origin if frame is None else Late(frame, line[frame.begin : len(head) - frame.rest])
                    if rows and text.parsed is not None:
                        rows.append((number, printed, text, channel))
                    else:
                        block.keep(number, printed, text, channel)
                        unknown += text.parsed is None
                    quick += 1
                    continue
            self._line(number, line, counts, block.keep)
            texts = self._texts.young
        counts.add(quick, unknown)

    def _without_columns(
        self, lines: Lines, counts: Counts, block: Found, columns: Columns | None
    ) -> tuple[Sequence[int], Sequence[bytes]]:
        """Return the numbers and the lines that are left when those of a large log were read in columns."""
        text = lines.text
        if columns is None:
            cleaned = envelopes.cleaned(lines.lines, text)
            return counts.number(len(cleaned), lines.mended), cleaned
        if envelopes.needs_cleaning(text):
            text = b"\n".join(envelopes.cleaned(lines.lines, text))
        known, is_object = self.known, not self.wrapped and text.startswith(b"{")
        split = None if is_object else self._in_columns(columns, text, counts.lines + 1)
        if split is None:
            text = self._after_first(text, counts, block)
            if is_object or self.known != known:
                split = self._in_columns(columns, text, counts.lines + 1)
        first = counts.lines + 1
        if split is None:
            cleaned = text.split(b"\n")
            return counts.number(len(cleaned)), cleaned
        counts.number(split.size)
        block.lines, block.connections = split.lines, split.connections
        unknown = split.lines.count([text.parsed is None for text in split.lines.texts])
        size = len(split.lines) + (0 if split.connections is None else len(split.connections))
        counts.add(size, unknown)
        return (split.others + first).tolist(), split.left

    def _after_first(self, text: bytes, counts: Counts, block: Found) -> bytes:
        """Read the lines up to the first one of NCCL, which may show what all are in; gives the others."""
        end = text.find(b"\n", max(0, text.find(prefix.MARK)))
        if end < 0:
            return text
        lines = text[:end].split(b"\n")
        self._begin(lines)
        for number, line in zip(counts.number(len(lines)), lines, strict=True):
            self._line(number, line, counts, block.keep)
        return text[end + 1 :]

    def _in_columns(self, columns: Columns, text: bytes, first: int) -> Split | None:
        """Return a block read in columns; None where nothing can be read so."""
        split = self._records.split(text, first) if self.wrapped and self._records else None
        return split or columns.split(text, first, in_most(text[:_LOOK].split(b"\n")[:SAMPLE]))

    def _columns_of(self, size: int) -> Columns | None:
        """Return what reads a block of some bytes in columns.

        None where log or block are not that large, or without numpy.
        """
        if size < min(_SMALL, self._large):
            return None
        if self._columns is None and self._seen + size > self._large:
            try:
                from nccl_inspect.scanning import columns  # these load numpy
            except ImportError:
                self._large = inf
                return None
            known = columns.Known(self._seen_origins, self._origin_of, self._timed.proven, self._is_news)
            self._columns = columns.Columns(self._grammar, self._sound_text, known)
            self._records = columns.Records(self._columns, known)
        return self._columns

    def _seen_origins(self, heads: Iterable[bytes]) -> Iterable[Origin | None]:
        """Return who printed lines with these prefixes, as far as they were seen lately."""
        return map(self._origins.young.get, heads)

    def _sound_text(self, rest: bytes, origin: Origin) -> Text | None:
        """Return what level and message of a line mean, if they are sound and mean the same wherever they stand."""
        text = self._texts.young.get(rest)
        if text is None and rest[:5] in prefix.BEGINNINGS:
            text = self._text(rest, origin)
            if self.wrapped:  # else it means the same wherever it stands
                text = self._texts.young.get(rest)
        return None if text is None or text.damaged else text

    def unwrap(self) -> None:
        """Know from here on that lines are in envelopes."""
        if self._columns is not None and not self.wrapped:
            self._columns.forget()
        super().unwrap()

    def _is_news(self, head: bytes) -> bool:
        """Return whether the prefix changes how the lines after it are read."""
        origin = None if head in self._origins.young else prefix.parse(head)
        if origin is None:
            return False
        if (origin.wrapped and not self.wrapped) or (origin.lead and prefix.is_news(origin.lead, self._leads)):
            return True
        self._remembered(head, origin)
        return False

    def _printer(self, head: bytes, line: bytes, block: Found) -> _Printer | None:
        """Return who printed a line with this head.

        Args:
            head: that of the line, maybe without its time.
            line: as it is.
            block: where the others of the same process are.
        """
        own = line[: len(head)]
        frame = self._timed.proven(head) if own != head else None
        origin = self._origin_of(own) if frame is None else frame.origin
        return None if origin is None else (origin, block.rows_of(origin.process), frame)

    def _new_text(self, rest: bytes, origin: Origin | None) -> Text:
        text = super()._new_text(rest, origin)
        if _is_template(rest, text):
            if len(self._templates) >= MAX_TEXTS:
                self._templates.clear()
            self._templates[rest[_DIGITS_END:]] = text
        return text

    def _flood(self, repeats: sparse.Repeats, counts: Counts) -> bool:
        """Count lines of which most are the same; False, and nothing happened, when they are not to be counted.

        What is remembered of a line is remembered of it without colours, as a whole one: no need to look for these.
        """
        if counts.awaited or counts.tracebacks:
            return False
        recognized: dict[bytes, tuple[Origin, Text]] = {}
        others: dict[bytes, bytes] = {}
        for line in repeats.numbers:
            head, mark, rest = line.partition(prefix.MARK)
            origin, text = self._origins.young.get(head), self._texts.young.get(rest)
            if origin is not None and text is not None and not text.damaged and self._collector.is_countable(text):
                recognized[line] = origin, text
                continue
            cleaned = envelopes.cleaned([line], line)
            if mark or len(cleaned) != 1 or not self._sieve.is_idle(cleaned[0]):
                return False
            others[line] = cleaned[0]
        numbers = counts.number(repeats.size)
        unknown = sum(repeats.numbers[line] for line, (_, text) in recognized.items() if text.parsed is None)
        counts.add(sum(repeats.numbers[line] for line in recognized), unknown)
        for back, line in reversed([*islice(repeats.last_of(others), TAIL)]):
            counts.add_other(numbers[-1 - back], others[line])
        begin, end = repeats.places()
        self._collector.take_repeated(
            [
                Repeated(numbers[begin[line]], numbers[-1 - end[line]], repeats.numbers[line], *recognized[line])
                for line in recognized
            ]
        )
        return True

    def _sparse(self, lines: Lines, counts: Counts) -> None:
        """A block of which few lines are NCCL's."""
        text = lines.text
        if counts.awaited:
            self._by_line(lines, counts)
            return
        if envelopes.needs_cleaning(text):
            text = b"\n".join(envelopes.cleaned(lines.lines, text))
        size, picked, signs = self._sieve.picked(text)
        if last_error.MARK in signs or (_may_have_partials(text, signs) and envelopes.has_partials(text)):
            self._by_line(lines, counts)
            return
        numbers = counts.number(size)
        block = Found()
        self._begin([line for _, line in picked])
        if counts.tracebacks or tracebacks.MARK in signs:
            wanted = sparse.with_frames(text, picked, counts.tracebacks)
        else:
            early, wanted = sparse.with_tail(text, size, picked)
            self._each([numbers[index] for index, _ in early], [line for _, line in early], counts, block)
        for index, line, is_picked in wanted:
            if is_picked or counts.tracebacks:
                self._line(numbers[index], line, counts, block.keep)
            else:
                counts.add_other(numbers[index], line)
        self._collector.take(block)


def _is_sparse(text: bytes) -> bool:
    """Return whether few lines of a block are NCCL's."""
    return text.count(prefix.MARK, 0, _LOOK) * _SPARSE < text.count(b"\n", 0, _LOOK)


def _may_have_partials(text: bytes, signs: bytes) -> bool:
    """Return whether lines may continue in the next one, by what the lines worth a look look like."""
    partials = (sign.translate(None, sparse.DIGITS) for sign in envelopes.signs_of_partials())
    return b"{" in text[: envelopes.LOOK] or any(sign in signs for sign in partials)


def _is_template(rest: bytes, text: Text) -> bool:
    """Return whether a text stands for those of all channels: it has the number where connection lines have it."""
    return (
        text.parsed is not None
        and text.parsed.kind is ChannelConnect
        and rest == b"INFO " + text.message
        and rest.startswith(_CHANNEL)
        and rest[_DIGITS_END - 2 : _DIGITS_END] in _CHANNELS
        and rest[_DIGITS_END : _DIGITS_END + 1] in (b"/", b" ")
    )
