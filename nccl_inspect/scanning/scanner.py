"""Lines of a log to recognised messages: the meeting point of ingest and grammar.

``vm:5599:5599 [4] NCCL INFO cudaDriverVersion 13000`` becomes its origin (host, pid, tid, device) and its parsed
message.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from sys import intern
from typing import TypeAlias

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect, Connected, ProcessEnded, join_lines
from nccl_inspect.grammar.engine import Grammar, Parsed
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.envelopes import NOTHING, Inner, Stated
from nccl_inspect.ingest.lines import exceptions, prefix
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Memory, Timed
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.ingest.sources.streams import BLOCK
from nccl_inspect.scanning.found import Counts, Known, Text
from nccl_inspect.util.patterns import compile_later

_GLUED = compile_later(rb":\d+:\d+ \[-?\d+\] (?:.{1,200}:\d+ )?NCCL (?:INFO|WARN|ATTN) |:\d+:\d+ \[-?\d+\]$", re.DOTALL)
"""The prefix of another line inside a message: two lines were run together."""
MAX_REMEMBERED = 8 << 20
"""Bytes of a generation of prefixes, and of one of messages: 50,000 of the usual length are less."""
_QUOTES = compile_later(rb"NCCL[ _-]{1,3}(?:WARN|INFO|ATTN)")  # what a line may hold that quotes one of NCCL
_ENTITY = compile_later(rb"&(?:lt|gt|amp|quot|#\d{1,5});")  # what pages of HTML and XML have for a character
_LAST_WORDS = compile_later(
    rb"(?:^|[\])>|:\dZFP\"] ?|\t)(?:  )?(?:\[rank\d{1,7}\]: )?"
    rb"(?:[A-Za-z_][\w.]{0,200}(?:(?:Error|Exception)(?:: |$|[\\\"])|Iteration$|Interrupt$)"
    rb"|Exception (?:in thread|ignored) )"
)  # where the last line of a Python traceback may begin: at the begin of a line, or behind an envelope
_MAX_ORIGINS = 50_000
MAX_TEXTS = 20_000
"""Distinct messages of a generation; some (collective calls, pointers) never repeat, so there is a limit."""
_TRAILED, _UNTRAILED = b"\0", b"\1"
"""What marks texts with what may be the trailer of an envelope: in lines that are in one, and in others."""
MAX_PENDING = 10_000  # streams of which the beginning of a line is kept; then the oldest one is given up


Sink: TypeAlias = Callable[[int, Origin, Text], None]  # gets the number, the origin and the text of a sound line


class Scanner:
    """Reads lines one after the other and calls ``sink(line number, origin, text)`` for each sound NCCL line."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._parse_torn = lru_cache(1 << 10)(grammar.parse_torn)  # warnings come again and again
        self._origins: Memory[Origin | None] = Memory(_MAX_ORIGINS, MAX_REMEMBERED)
        self._timed = Timed(_MAX_ORIGINS, MAX_REMEMBERED)
        self._texts: Memory[Text] = Memory(MAX_TEXTS, MAX_REMEMBERED)
        self._foreign: list[Production] = []
        self._general: list[Production] = []
        """Those of them that are general: asked where a line has the form of an exception and nothing else is in it."""
        self._lines: Sequence[bytes] = ()
        self._leads: dict[bytes, re.Pattern[bytes]] = {}
        """What unknown launchers put in front of NCCL's prefix, by its shape: they put it before other lines, too."""
        self.wrapped = False  # whether a line was in an envelope: then lines that continue its message are, too
        self.takes_leads = False  # whether it read a line from which what unknown launchers put in front is taken
        self.cut_width: int | None = None  # the length of the lines that were cut: what these state is not whole
        self._needles: list[bytes] | None = None
        """What occurs in the block and makes a line without NCCL's prefix worth a look; None until one comes."""
        self.productions: set[Production] = set()  # the productions that recognised a line

    @property
    def memory(self) -> Known:
        """Return what was learned; a scanner of later lines is given this before it reads."""
        return Known(self.wrapped, frozenset(self._leads))

    def know(self, known: Known) -> None:
        """Learn what earlier lines, or later ones, tell."""
        if known.wrapped:
            self.unwrap()
        for lead in sorted(known.leads):
            prefix.learn(lead, self._leads)

    def scan(self, lines: Sequence[bytes], counts: Counts, sink: Sink, mended: Mended | None = None) -> None:
        """Read lines."""
        block = b"\n".join(lines)
        self._lines, self._needles = lines, None
        partial = bool(counts.pending) or envelopes.has_partials(block)
        numbers = counts.number(len(lines), mended)
        for number, line in zip(numbers, envelopes.clean_lines(lines, block), strict=True):
            part = _find_part(line) if partial else None
            if part is None and partial and (counts.pending or envelopes.has_partials(line)):
                if self._open_envelope(number, Inner(line), counts, sink):
                    continue
            elif part and self._join_parts(number, part, counts, sink):
                continue
            self._line(number, line, counts, sink)

    def _line(self, number: int, line: bytes, counts: Counts, sink: Sink, stated: Stated | None = None) -> None:
        """Read a whole line, of which an envelope around it may state something."""
        parts = prefix.split(line)
        origin = self._origin_of(parts[0]) if parts else None
        if parts and origin is not None:
            origin = prefix.stated_by(origin, stated) if stated else origin
            self._take(number, origin, parts[1], line, counts, sink)
        elif parts and self._open_envelope(number, Inner(line, stated or NOTHING), counts, sink):
            return
        elif parts is None or not prefix.PREFIX_END.search(parts[0]):
            self._take_unprefixed(number, line, counts, sink, stated or NOTHING)
        else:
            self._text(parts[1], prefix.NOBODY)  # its message tells the release all the same
            counts.add_damaged(number, line)

    def _inner(self, number: int, inner: Inner, counts: Counts, sink: Sink) -> None:
        """Read what stood in a whole-line envelope: a line, or several."""
        for line in envelopes.clean_lines(inner.text.strip(b"\r\n").split(b"\n"), inner.text):
            self._line(number, line, counts, sink, inner.stated)

    def _take(self, number: int, origin: Origin, rest: bytes, line: bytes, counts: Counts, sink: Sink) -> None:
        """Read a line whose origin is known."""
        text = self._texts.young.get(rest) or self._text(rest, origin)
        if text.damaged:
            if not self._split(number, line, origin, counts, sink):
                counts.add_damaged(number, line)
            return
        if len(line) == self.cut_width:
            # A cut line states a warning, if it can be only one, a P2P connection, whose mode may be lost, and that all
            # are connected.
            parsed = text.parsed if text.level == "WARN" and not text.message[-1:].isdigit() else None
            event = text.parsed.event if text.parsed else None
            if isinstance(event, Connected) or (isinstance(event, ChannelConnect) and event.transport == "P2P"):
                parsed = text.parsed
            if parsed is None and text.level == "WARN":
                parsed = self._parse_torn(text.message)
            text = Text(text.level, text.message, parsed)
        counts.add(1, text.parsed is None)
        sink(number, origin, text)

    def _split(self, number: int, line: bytes, origin: Origin, counts: Counts, sink: Sink) -> bool:
        """Take lines apart that were run together; False when not each of them is whole and known."""
        pieces: list[tuple[Origin, Text]] = []
        for piece in prefix.pieces(line, origin):
            parts = prefix.split(piece)
            own = self._origin(parts[0]) if parts else None
            if parts is None or own is None:
                return False
            text = self._text(parts[1], own)
            if text.parsed is None:
                return False
            pieces.append((prefix.stated_by(own, Stated(origin.time, origin.label, origin.rank)), text))
        if len(pieces) < 2:
            return False
        counts.add_split(number, line, len(pieces))
        for own, text in pieces:
            sink(number, own, text)
        return True

    def _open_envelope(self, number: int, line: Inner, counts: Counts, sink: Sink) -> bool:
        """Take the lines out of a whole-line envelope; False when there is none."""
        for text, stated in envelopes.peel_all(*line):
            if inners := envelopes.contents(text):
                self.unwrap()
                for inner in inners:
                    inner = Inner(inner.text, inner.stated.add_outer(stated))
                    if counts.pending or inner.stated.partial or envelopes.has_partials(inner.text):
                        own = _find_part(inner.text)
                        part = Inner(own.text, own.stated.add_outer(inner.stated)) if own else inner
                        if self._join_parts(number, part, counts, sink):
                            continue
                    self._inner(number, inner, counts, sink)
                return True
        return False

    def _join_parts(self, number: int, part: Inner, counts: Counts, sink: Sink) -> bool:
        """Put a line together, or keep a part of it for later; False when it is a whole one."""
        key = part.stated.label, part.stated.stream
        before = counts.pending.pop(key, None)
        if part.stated.partial:
            first, text = before or (number, b"")
            counts.pending[key] = first, text if len(text) >= BLOCK else (text + part.text)[:BLOCK]
            if len(counts.pending) > MAX_PENDING:
                del counts.pending[next(iter(counts.pending))]
        elif before is not None:
            first, text = before
            self._inner(first, Inner(text + part.text, part.stated), counts, sink)
        else:
            return False
        return True

    def _take_unprefixed(self, number: int, line: bytes, counts: Counts, sink: Sink, stated: Stated = NOTHING) -> None:
        """Read a line without NCCL's prefix: some of NCCL's own have none, all others are counted and passed over."""
        parsed = None if len(line) == self.cut_width else self._grammar.parse_bare(line)
        if counts.awaited and self._retell(
            number, exceptions.read_announced_warning(line, number, stated, counts.awaited), sink
        ):
            counts.related_lines += 1
            counts.add_other(number, line)
            return
        needles = self._worth_a_look() if parsed is None else None
        retells = False
        worth = bool(needles) and any(needle in line for needle in needles or ())
        if parsed is None and not worth and self._general and (match := _LAST_WORDS.search(line)):
            self.takes_leads = True
            worth = match.start() > 0 and (self.wrapped or bool(self._leads) or b"[rank" in line)
            parsed = None if match.start() else self._grammar.parse_foreign(line, self._general)
        traces = bool(counts.tracebacks) or exceptions.TRACEBACK in line
        if worth or (traces and envelopes.is_whole(line)):
            retells = self._retell(number, exceptions.read_warnings(line, stated), sink)
            if exceptions.LAST_ERROR in line and not retells:  # it is to come
                exceptions.announce(line, number, stated, counts.awaited)
            if rest := prefix.read_unprefixed(line):
                self._take(number, prefix.stated_by(prefix.ALONE, stated), rest, line, counts, sink)
                return
            self.takes_leads = True
            layers = list(prefix.layers(line, self._leads.values()))
            parsed = next(filter(None, map(self._grammar.parse_bare, layers)), None)
            if parsed is None and self._open_envelope(number, Inner(line, stated), counts, sink):
                return
            layers = sorted(  # first what begins with a rank, then what most was taken from
                (line, *layers), key=lambda layer: (not layer.startswith(b"[rank"), line.endswith(layer), len(layer))
            )
            parsed = parsed or self._parse_foreign(layers)
            if parsed is None and _QUOTES.search(line) and self._take_quoted(number, line, counts, sink, stated):
                return
        parsed = self._find_exception(number, line, stated, counts.tracebacks, parsed) if traces else parsed
        if parsed is None or parsed.production.foreign:
            counts.add_other(number, line)
        if parsed is None:
            counts.related_lines += retells
            return
        if parsed.production.foreign:
            counts.related_lines += not (parsed.production.general or parsed.production.traced)
            level = "OTHER"
        else:
            counts.add(1)
            level = "INFO" if parsed.production.follows else "VERSION"
        if parsed.kind is ProcessEnded:
            assert isinstance(parsed.event, ProcessEnded)
            join_lines(number, parsed.event, counts.reports)
        self.productions.add(parsed.production)
        sink(number, prefix.NOBODY, Text(level, line, parsed))

    def _take_quoted(self, number: int, line: bytes, counts: Counts, sink: Sink, stated: Stated) -> bool:
        """Read a statement of NCCL that a logger, and no launcher, put something in front of; False without one."""
        from nccl_inspect.scanning.excerpts import find_quoted_statement  # few logs have such lines

        origin, text = find_quoted_statement(line, self._grammar, prose=False) or (None, None)
        if origin is None or text is None:
            return False
        if text.parsed:
            self.productions.add(text.parsed.production)
        counts.add(1, text.parsed is None)
        sink(number, origin if stated == NOTHING else prefix.stated_by(origin, stated), text)
        return True

    def _find_exception(
        self, number: int, line: bytes, stated: Stated, open_tracebacks: exceptions.Open, parsed: Parsed | None
    ) -> Parsed | None:
        """Return what a line is if a traceback ends with it and nobody knows it, else what is known of it."""
        inner = exceptions.end_traceback(line, number, stated, open_tracebacks)
        if inner is None or parsed is not None:
            return parsed
        front = b"" if inner.stated.rank is None else b"[rank%d]: " % inner.stated.rank
        text = front + inner.text if front + inner.text in line else inner.text
        return self._grammar.parse_foreign(text, self._grammar.traced)

    def _retell(self, number: int, warnings: Iterable[Inner], sink: Sink) -> bool:
        """Take what an exception says of NCCL's last warning; False when it is nothing of the kind."""
        for inner in warnings:
            parsed = self._grammar.parse(inner.text) if inner.text else None
            if parsed is not None and parsed.kind.kept:
                self.productions.add(parsed.production)
                # It is of no process that is known, but maybe of a known rank.
                time, label, rank, *_ = inner.stated
                nobody = Process("", 0 if rank is None else -1 - rank)
                origin = prefix.NOBODY._replace(process=nobody, time=time, label=label, rank=rank)
                sink(number, origin, Text("WARN", inner.text, parsed))
                return True
        return False

    def _worth_a_look(self) -> list[bytes]:
        if self._needles is None:
            others = b"\n".join([line for line in self._lines if line.find(b" NCCL INFO ") < 0])
            self._foreign = self._grammar.find_foreign(others)
            alone = [b"NCCL "] if b"NCCL " in others else []
            self._general = [production for production in self._foreign if production.general]
            self._needles = (
                alone
                + self._grammar.find_bare(others, self.wrapped)
                + [sign for production in self._foreign if not production.general for sign in production.signs]
            )
        return self._needles

    def _parse_foreign(self, layers: Sequence[bytes]) -> Parsed | None:
        """Parse a line of another program, by any of its layers: vague productions come after all others."""
        for rest in (False, True):
            among = [production for production in self._foreign if production.rest == rest]
            for layer in layers if among else ():
                if parsed := self._grammar.parse_foreign(layer, among):
                    return parsed
        return None

    def unwrap(self) -> None:
        """Know from here on that lines are in envelopes: known texts do not account for their trailers."""
        if not self.wrapped:
            self.wrapped, self._needles = True, None
            self._texts = Memory(MAX_TEXTS, MAX_REMEMBERED)

    def _origin_of(self, head: bytes) -> Origin | None:
        return self._origins.young[head] if head in self._origins.young else self._origin(head)

    def _origin(self, head: bytes) -> Origin | None:
        if (known := self._origins.recall(head) or self._timed.recall_origin(head)) is not None:
            return known
        origin = prefix.parse(head)
        if origin is not None:
            self._timed.learn(head, origin)
            if origin.wrapped:
                self.unwrap()
            if origin.lead:
                prefix.learn(origin.lead, self._leads)
        self._origins.keep(head, origin)
        return origin

    def _text(self, rest: bytes, origin: Origin) -> Text:
        if known := self._texts.recall(rest):
            return known
        key, (level, _, message) = rest, rest.partition(b" ")
        if self.wrapped and len(envelopes.without_trailer(message)) < len(message):
            key += _TRAILED if origin.wrapped else _UNTRAILED  # the printer decides what it means
        known = None if key == rest else self._texts.young.get(key) or self._texts.recall(key)
        if known is not None:
            return known
        if len(key) > len(rest) and key.endswith(_TRAILED):
            shorter = envelopes.without_trailer(message)
            if self._grammar.parse(shorter) or not self._grammar.parse(message):
                message = shorter  # else a table of NCCL's own, which ends like that of a collector
        if ord("&") in message and _ENTITY.search(message):
            message = envelopes.without_entities(message)
        glued = (message.find(b"NCCL ") >= 0 or message.endswith(b"]")) and _GLUED.search(message) is not None
        parsed = None if glued else self._grammar.parse(message) or self._grammar.parse_cut(message)
        if parsed is None and level == b"WARN" and not glued:
            parsed = self._grammar.parse_respaced(message)
        if parsed:
            self.productions.add(parsed.production)
        text = Text(intern(level.decode("ascii")), message, parsed, glued)
        self._texts.keep(key, text)
        return text


def _find_part(line: bytes) -> Inner | None:
    """Return what a line is of a stream, whole or a part, that a collector passes on."""
    return next((part for part in envelopes.peel_all(line) if part.stated.stream), None)
