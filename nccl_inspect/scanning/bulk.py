"""Reads whole blocks of lines: the same results as :class:`~nccl_inspect.scanning.scanner.Scanner`, in less time.

Nothing is recognised here. A line whose prefix and text were seen before, or whose text differs from a known one in the
number of the channel only, is looked up; lines of other programs are passed over by what they look like without
digits; a flood of the same lines is counted. Everything else goes through the scanner, line by line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import last_error, prefix, tracebacks
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Frame, Late
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.scanning import sparse
from nccl_inspect.scanning.counts import TAIL, Counts, Text
from nccl_inspect.scanning.found import Collector, Edge, Found, Printed, Repeated, Template, Thread
from nccl_inspect.scanning.records import RecordFrame, Records, clock_of
from nccl_inspect.scanning.scanner import Scanner
from nccl_inspect.util.patterns import compile_later

MOST = 1 << 16  # bytes of a log that is looked through: what people paste is shorter
_NARROWEST = 40
_PIECES = 4  # of a line, at most
_GLUES = (b"", b" ")
"""A terminal breaks inside words and keeps blanks but the one at the edge; a mail breaks at a blank."""
_QUOTE = compile_later(rb"(?:> ?)+")
_OWN = compile_later(rb"NCCL (?:INFO|WARN|ATTN|TRACE) |^\s*$|:\d{1,10}:\d{1,10} \[")
"""Text that marks a line as not continuing the one before."""
_USUAL = b"NCCL INFO "  # what most such lines hold


def rejoin_block(lines: Lines, grammar: Grammar) -> Lines:
    """Return the first block of a source with broken lines put together; the same block where there are none."""
    if lines.mended is not None or len(lines.text) > MOST or prefix.MARK not in lines.text:
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
    if not below or _USUAL in below[0] or len(first) < _NARROWEST or prefix.MARK not in first or _OWN.search(below[0]):
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
        return Late(self.frame, clock_of(line) if isinstance(self.frame, RecordFrame) else line[:size])


_CHANNEL = b"INFO Channel "
_CONNECTS = prefix.MARK + _CHANNEL
_DIGITS_END = len(_CHANNEL) + 2
_BITS = {b"%02d" % channel: 1 << channel for channel in range(100)}
_MAX_TEMPLATES = 50_000
_LOOK = 1 << 16  # bytes of a block that show what most of it is
_SPARSE = 4  # a log is sparse when at most one line in this many is NCCL's


class BulkScanner(Scanner):
    """A scanner of blocks."""

    def __init__(self, grammar: Grammar, collector: Collector) -> None:
        super().__init__(grammar)
        self._collector = collector
        self._templates: dict[bytes, Template] = {}
        """Texts of connection lines by what follows the number of the channel."""
        self._records = Records()
        self._sieve = sparse.Sieve(lambda: (*grammar.signs(), *envelopes.SIGNS_OF_PARTIALS, prefix.FATAL))

    def read(self, lines: Lines, counts: Counts) -> None:
        """Read a block."""
        if not counts.lines:
            lines = rejoin_block(lines, self._grammar)
        text = lines.text
        if counts.pending or self.cut_width:
            self._by_line(lines, counts)
        elif lines.mended is None and text.count(prefix.MARK, 0, _LOOK) * _SPARSE < text.count(b"\n", 0, _LOOK):
            self._sparse(lines, counts)
        elif not lines.mended and (repeats := sparse.find_repeats(lines)) and self._flood(repeats, counts):
            pass
        elif envelopes.has_partials(text):
            self._by_line(lines, counts)
        else:
            block = Found()
            cleaned = envelopes.clean_lines(lines.lines, text)
            self._lines, self._needles = cleaned, None
            self._each(counts.number(len(cleaned), lines.mended), cleaned, counts, block)
            self._collector.take(block)

    def _by_line(self, lines: Lines, counts: Counts) -> None:
        block = Found()
        self.scan(lines.lines, counts, block.keep, lines.mended)
        self._collector.take(block)

    def _each(self, numbers: Sequence[int], cleaned: Sequence[bytes], counts: Counts, block: Found) -> None:
        """Read the lines of a source one by one; most are known."""
        printers: dict[bytes, _Printer] = {}
        edges_of: dict[bytes, dict[bytes, Edge]] = {}  # what the next connection lines with a prefix may continue
        last_of: dict[bytes, int] = {}  # the last line with a prefix, as far as it continued an edge
        scanned = unknown = 0  # lines that the scanner counts; others that no production knows
        texts, templates = self._texts.young, self._templates
        without = self._choose_masking(cleaned)
        for at, line in enumerate(map(without, cleaned) if without else cleaned):
            head, is_connection, rest = line.partition(_CONNECTS)
            edges = edges_of.get(head) if is_connection else None
            if edges and (edge := edges.get(rest[2:])) and (bit := _BITS.get(rest[:2])):
                edge.channels |= bit
                edge.lines += 1
                last_of[head] = at
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
            head, _, said = line.partition(prefix.MARK)
            printer = printers.get(head)
            if printer is None and said[:5] in prefix.BEGINNINGS:
                printer = self._printer(head, cleaned[at], block)
                texts = self._texts.young
                if printer is not None and (printer.frame is not None or not without):
                    printers[head] = printer
                    edges_of[head] = printer.thread.edges
            if printer is not None:
                bit = _BITS.get(said[_DIGITS_END - 2 : _DIGITS_END]) if said.startswith(_CHANNEL) else None
                template = templates.get(said[_DIGITS_END:]) if bit else None
                text = template.text if template else texts.get(said)
                if text is None and said[:5] in prefix.BEGINNINGS:
                    text = self._text(said, printer.origin)
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
        for head, at in last_of.items():
            printer = printers[head]
            if printer.lines.last[0] < numbers[at]:
                printer.lines.last = numbers[at], printer.at(cleaned[at], len(head))
        counts.add(len(cleaned) - scanned, unknown)

    def _choose_masking(self, lines: Sequence[bytes]) -> Callable[[bytes], bytes] | None:
        """Return what takes the time from lines, where most have one: then few have the same prefix."""
        if self.wrapped and lines and lines[len(lines) // 2].startswith(b"{"):
            return self._records.strip_form
        return self._timed.mask_time if self._timed.tells(lines) else None

    def _printer(self, head: bytes, line: bytes, block: Found) -> _Printer | None:
        """Return who printed a line with this head."""
        frame: Frame | None
        if line.startswith(b"{"):
            origin = self._origin_of(head.rpartition(b'"')[2])
            frame = self._records.frame_of(head, origin) if origin else None
            origin = frame and frame.origin
        else:
            own = line[: len(head)]
            frame = self._timed.proven(self._timed.key(own) or own) if own != head else None
            origin = self._origin_of(own) if frame is None else frame.origin
        if origin is None:
            return None
        lines = block.lines_of(origin.process)
        return _Printer(origin, frame, lines, lines.threads.setdefault(origin.tid, Thread()))

    def _text(self, rest: bytes, origin: Origin) -> Text:
        text = super()._text(rest, origin)
        # A text stands for those of all channels if it has the number where connection lines have it.
        if (
            text.parsed is not None
            and text.parsed.kind is ChannelConnect
            and rest == b"INFO " + text.message
            and rest.startswith(_CHANNEL)
            and rest[_DIGITS_END - 2 : _DIGITS_END] in _BITS
            and rest[_DIGITS_END : _DIGITS_END + 1] in (b"/", b" ")
        ):
            if len(self._templates) >= _MAX_TEMPLATES:
                self._templates.clear()
            self._templates[rest[_DIGITS_END:]] = Template(rest[_DIGITS_END:], text)
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
            cleaned = envelopes.clean_lines([line], line)
            if mark or len(cleaned) != 1 or not self._sieve.is_idle(cleaned[0]):
                return False
            others[line] = cleaned[0]
        numbers = counts.number(repeats.size)
        unknown = sum(repeats.numbers[line] for line, (_, text) in recognized.items() if text.parsed is None)
        counts.add(sum(repeats.numbers[line] for line in recognized), unknown)
        for back, line in reversed([*islice(repeats.last_of(others), TAIL)]):
            counts.add_other(numbers[-1 - back], others[line])
        begin = sparse.find_first(repeats.cycle, repeats.numbers)
        end = sparse.find_first(reversed(repeats.end), repeats.numbers)
        self._collector.take_repeated(
            [
                Repeated(numbers[begin[line]], numbers[-1 - end[line]], repeats.numbers[line], *recognized[line])
                for line in recognized
            ]
        )
        return True

    def _sparse(self, lines: Lines, counts: Counts) -> None:
        """Read a block of which few lines are NCCL's."""
        text = lines.text
        if counts.awaited:
            self._by_line(lines, counts)
            return
        if envelopes.needs_cleaning(text):
            text = b"\n".join(envelopes.clean_lines(lines.lines, text))
        size, picked, signs = self._sieve.pick_lines(text)
        partials = (sign.translate(None, sparse.DIGITS) for sign in envelopes.SIGNS_OF_PARTIALS)
        may_have_partials = b"{" in text[: envelopes.LOOK] or any(sign in signs for sign in partials)
        if last_error.MARK in signs or (may_have_partials and envelopes.has_partials(text)):
            self._by_line(lines, counts)
            return
        numbers = counts.number(size)
        block = Found()
        self._lines, self._needles = [line for _, line in picked], None
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
