"""Reads what people pass on of a log: lines without prefix, with a bullet or a name before them, broken by hand.

The reading of logs knows a line by its prefix. Here it is known by its message alone, which is right only for what is
short and holds no whole log: prose speaks of the same things. So a message must be there as a whole, and what the
grammar takes as free text must not be a sentence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from functools import cache
from itertools import islice, pairwise, takewhile
from typing import NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.grammar import notation
from nccl_inspect.grammar.engine import Grammar, Parsed
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines import decoration, prefix
from nccl_inspect.ingest.lines.decoration import PASTE, strip_decoration
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.sources import log_detection
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.scanning.found import Counts, Text
from nccl_inspect.scanning.scanner import Scanner, Sink
from nccl_inspect.util.levels import ANY, STATEMENTS
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.text import decode

_LETTER, _SIGN = re.compile(rb"[A-Za-z]"), re.compile(rb"\S")
_FEW_LETTERS, _FEW_SIGNS, _MANY_SIGNS = 4, 10, 30
_PLAIN_WORD = re.compile(rb"(?<!\S)[A-Za-z]+[.,;]?(?!\S)")
_MANY_WORDS = 6
_OPENING = (b"'", b'"', b"(")  # the text before a quotation of NCCL, which may be a sentence
_SENTENCE = re.compile(
    rb"\b(?:is|are|was|were|be|been|the|a|an|you|your|we|our|I|it|its|this|that|these|which|when|where|what|should|"
    rb"would|can|will|may|must|and|or|but|because|so|with|in|of|for|to|from|by|has|have|had|if|then|not)\b"
)  # words that make a sentence of what stands where the grammar takes any text
NUMBERED = frozenset((events.CommInit, events.CommSplit, events.ChannelConnect, events.RingOrder, events.TreeLinks))
"""Events that are about numbers: where one was left out, or torn off, nothing is left."""
MARK = b"NCCL"
_QUOTED_LEVEL = re.compile(MARK + rb"[ _-]{1,3}(?P<level>" + ANY + rb")(?:ING)?\b[\]:*_]{0,4} *(?=[\w\[(</])")
"""What is before a message, as loggers and people write it."""
_LED = re.compile(rb"(?:^|[\])>|:`'\"*\x80-\xff-]|:\d+|\.(?:cc|cu|h)) *\[?$")
"""How a line begins before that, unless it is a sentence."""
_TORN = re.compile(rb":\d+ ?\[|\[-?\d{0,10}\] *$")
"""What is left of NCCL's own prefix where it was torn: then the message may be, too."""
_HEAD = re.compile(rb":\d+:\d+ \[")
_MOST_HEADS = 1  # where a line has more of them, two were glued together, and nobody knows whose the statement is
_IN_LOG = re.compile(rb"(?:[\]|>-]|:\d+) *$")  # what is before it in a log


def find_quoted_statement(line: bytes, grammar: Grammar, *, prose: bool = True) -> tuple[Origin, Text] | None:
    """Return the statement of NCCL in a line that has anything before it; None where it is not there as a whole.

    A warning that nobody knows is one where a logger, or a colon, and no sentence is before it.

    Args:
        line: one whose prefix is not that of NCCL.
        grammar: what to recognise messages with.
        prose: whether a sentence may be before it: people quote messages, and write about them.
    """
    unknown = None
    for match in _QUOTED_LEVEL.finditer(line):
        head = line[: match.start()]
        origin = prefix.nearest(head)
        if origin is None or (is_sentence(head) and not prose):
            return None
        is_statement = decode(match["level"]) in STATEMENTS
        if not is_statement and (_TORN.search(head) or not _LED.search(head)):
            continue
        found = None
        texts = decoration.endings(strip_decoration(line[match.end() :]))
        found = next(filter(None, (_telling(text, grammar) for text in texts)), None)
        if prose and is_statement:
            beginnings = filter(None, (_telling(text, grammar) for text in decoration.beginnings(texts[0])))
            found = max((one for one in beginnings if _level(one) in STATEMENTS), key=_own_signs, default=found)
        if found:
            return origin, Text(decode(match["level"]), found.message, found)
        is_glued = len(_HEAD.findall(head)) > _MOST_HEADS
        if is_statement and not is_glued and _LED.search(head) and (_IN_LOG.search(head) or not is_sentence(texts[-1])):
            unknown = origin, Text(decode(match["level"]), texts[-1], None)
    return unknown


def _telling(text: bytes, grammar: Grammar) -> Parsed | None:
    """Return what a text says that follows ``NCCL`` and a level, if it is a whole message."""
    parsed = grammar.parse(text)
    is_known = parsed is not None and parsed.kind not in NUMBERED and is_telling(parsed, marked=True)
    return parsed if is_known else None


def _own_signs(parsed: Parsed | None) -> int:
    """Return how much of a message is NCCL's, and no free text."""
    return len(_SIGN.findall(_split_free_texts(parsed)[0])) if parsed else 0


def is_telling(parsed: Parsed, *, marked: bool = False) -> bool:
    """Return whether a message is one without a prefix: enough of it is NCCL's, and the rest is not a sentence.

    Args:
        parsed: the message.
        marked: whether ``NCCL`` and a level are before it: then it may be short.
    """
    if parsed.kind is events.ErrorCascade:
        return True
    own, free = _split_free_texts(parsed)
    signs = len(_SIGN.findall(own))
    if not marked and (signs < _FEW_SIGNS or len(_LETTER.findall(own)) < _FEW_LETTERS):
        return False
    if marked:
        return all(len(_PLAIN_WORD.findall(text)) <= _MANY_WORDS for text in free)
    return signs >= _MANY_SIGNS or not any(map(is_sentence, free))


def _split_free_texts(parsed: Parsed) -> tuple[bytes, list[bytes]]:
    """Return what of a message is NCCL's, and the free texts in it of several words."""
    production, message = parsed.production, parsed.message
    match = production.match(message)
    assert match is not None
    own, free, end = b"", list[bytes](), 0
    for start, stop in production.shape.open_spans(match):
        own += message[end:start]
        end = stop
        if b" " in message[start:stop] and message[start - 1 : start] not in _OPENING:
            free.append(_SYSTEM_ERROR.sub(b"", message[start:stop]))
    return own + message[end:], free


def is_sentence(text: bytes) -> bool:
    """Return whether a text is one that people write."""
    return _SENTENCE.search(text) is not None or len(_PLAIN_WORD.findall(text)) > _MANY_WORDS


_SYSTEM_ERROR = compile_later(b"|".join(re.escape(os.strerror(number).encode()) for number in range(1, 134)))
"""What the system says of a failed call."""
_PIECES = 5  # lines into which one was broken by hand, at most
_LEVEL = re.compile(rb"(?P<head>.{0,300}?)(?<![^\s:\]])(?P<level>" + ANY + rb")(?::? )(?P<text>\S.*)", re.DOTALL)
"""A line of NCCL 2.1 to 2.3, which had no ``NCCL`` before the level, or one of which that was cut off."""
_PLUGIN = re.compile(rb"(?P<level>INFO|WARN|TRACE): Function: \S+ Line: \d+: (?P<text>.+)", re.DOTALL)
"""What aws-ofi-nccl prints where it does not run within NCCL (its tests): ``WARN: Function: f Line: 1: NET/OFI …``."""
_FORMAT = re.compile(rb"%-?\d*(?:l|ll|z|h)?[sdxupc]")  # placeholders of source code where a line has a value
_PRINTED = re.compile(
    rb"NCCL |\[-?\d+\] (?:\S+:\d+ )?(?:" + ANY + rb") |\.(?:cc|cu|cpp|h):\d+ (?:" + ANY + rb") | Line: \d+: "
)  # what a line may hold that has something of a prefix
_SIGN_SIZE = 4
_FEW_LINES = 3
_WORD, _FAR = re.compile(rb"(?:(?<!\S)|(?<=[\"'`(]))[^\s\"'`(]"), 80
"""Where a message may begin, and how many bytes before what is its own."""
_SUPPOSED = re.compile(
    rb"\b(?:if|when|whenever|unless|until|no longer|instead of|e\.g\.|such as|fix(?:es|ed)?)\b", re.I
)  # words with which people write of an error that they need not have
_LEFT_OUT = re.compile(rb"(0x)?(?:\.{2,}|\xe2\x80\xa6|\b[Xx*]{2,}\b|(?<=0x)[Xx*]+)")
"""Numbers as NCCL's manual and those who pass lines on leave them out."""
STAND_IN = b"e11ded"


class Short:
    """The lines of a source, as long as it may be an excerpt: one that is read once only may have to be read again."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []  # none where there were too many, or a collector wrote them
        self._size = 0

    def add(self, lines: Lines) -> None:
        """Keep the next lines."""
        self._size += PASTE + 1 if lines.mended else lines.size
        if self._size <= PASTE:
            self.lines += lines.lines
        else:
            self.lines.clear()

    def read(self, name: str, counts: Counts, grammar: Grammar) -> list[tuple[int, Origin, Text]]:
        """Return what the lines say as those of an excerpt; nothing where something was known of them before."""
        if not self.lines or counts.typed_lines or counts.related_lines or log_detection.is_program(name):
            return []
        rows: list[tuple[int, Origin, Text]] = []
        excerpt, again = Excerpt(grammar), Counts()
        excerpt.scan(self.lines, again, lambda *row: rows.append(row))
        if excerpt.read:
            for entry in fields(counts):
                setattr(counts, entry.name, getattr(again, entry.name))
        return rows if excerpt.read else []


class Reading(NamedTuple):
    """Holds what a line says, or several lines that were one."""

    place: int  # of the first of them
    pieces: int
    messages: list[tuple[Origin, Text]]


class Excerpt:
    """Reads the lines of a short text."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._scanner = Scanner(grammar)
        self.productions = self._scanner.productions
        self._foreign: list[Production] = []
        self._possible: list[tuple[bytes, Production]] = []
        """The productions that may have a message in the text, by what it would hold."""
        self._near: list[tuple[bytes, Production]] = []
        """Those of them that may have one in the line that is looked at, or in those below."""
        self._among: list[Production] = []  # those that may have one in the text that is looked at
        self._seen: dict[bytes, tuple[Origin, Text] | None] = {}
        """The message that a text is as a whole: programs print the same lines again and again."""
        self.read = 0  # lines that only this reading knows

    def scan(self, lines: Sequence[bytes], counts: Counts, sink: Sink) -> None:
        """Read lines as those of a log are read, and what tells nothing then without what stands around it."""
        if envelopes.has_partials(b"\n".join(lines)):  # a collector wrote them, and their parts were put together
            self._scanner.scan(lines, counts, sink)
            return
        block = b"\n".join(lines)
        if (narrow := decoration.narrow(block)) is not block:
            lines, self.read = narrow.split(b"\n"), self.read + 1
        rows: list[tuple[int, Origin, Text]] = []
        self._scanner.scan(lines, counts, lambda *row: rows.append(row))
        plain = [self._strip_decoration(text) for *_, text in rows]
        self.read += sum(text is not less for (*_, text), less in zip(rows, plain, strict=True))
        rows = [(number, origin, text) for (number, origin, _), text in zip(rows, plain, strict=True)]
        torn = _torn_off(lines)
        begun = {
            number: whole for number, _, text in rows if number in torn and (whole := self._read_begun_warning(text))
        }
        recognized = {
            number
            for number, _, text in rows
            if (one := text.parsed) and not (one.production.general or one.production.rest)
        }
        unknown = {number for number, _, text in rows if text.parsed is None}
        begins = {number for number, _, text in rows if text.parsed}
        anew: set[int] = set()
        better: list[tuple[int, Origin, Text]] = []
        for reading in [*self.readings(lines, recognized, begins)] or ([] if rows else self._mentions(lines)):
            numbers = set(range(reading.place + 1, reading.place + reading.pieces + 1))
            if numbers <= unknown and not any(text.parsed for _, text in reading.messages):
                continue
            if numbers <= begun.keys():  # a shorter message in a line that is the beginning of a longer one
                continue
            _count(reading, counts, len(unknown & numbers))
            better.extend((reading.place + 1, *row) for row in reading.messages)
            anew |= numbers
        self.read += len(better)
        rows = [row for row in rows if row[0] not in anew]
        for number, origin, text in sorted([*rows, *better], key=lambda row: row[0]):
            whole = (
                begun.get(number) if number not in anew else self._read_begun_warning(text) if number in torn else None
            )
            if text.parsed is None and (respaced := self._grammar.parse_respaced(text.message)):
                whole = Text(text.level, text.message, respaced)
            if whole:
                text = whole
                counts.typed_lines += 1
                counts.unrecognised_lines -= 1
                self.read += 1
            if text.parsed:
                self.productions.add(text.parsed.production)
            sink(number, origin, text)

    def _read_begun_warning(self, text: Text) -> Text | None:
        """Return the warning that a text is the beginning of, if nothing is known of it otherwise."""
        if text.parsed or text.level not in STATEMENTS:
            return None
        message = strip_decoration(text.message)
        parsed = self._grammar.parse_torn(message)
        return Text(text.level, message, parsed) if parsed else None

    def _strip_decoration(self, text: Text) -> Text:
        """Return a text without what follows the quoted line, where the last field of its message took that."""
        less = strip_decoration(text.message)
        if text.parsed is None or len(less) == len(text.message):
            return text
        production = text.parsed.production
        if production.foreign and text.message.endswith(b"..."):  # programs end lines so that they wait below
            return text
        parse = self._grammar.parse_foreign if production.foreign else self._grammar.parse
        parsed = parse(less)
        return Text(text.level, less, parsed) if parsed and parsed.production.dialect == production.dialect else text

    def readings(
        self, lines: Sequence[bytes], recognized: Collection[int] = (), begins: Collection[int] = ()
    ) -> Iterator[Reading]:
        """Yield what lines say that have no prefix, or one that is not whole."""
        plain = list(map(decoration.normal, lines))
        block = b"\n".join(plain)
        inner = [
            decoration.MARGIN.sub(b"", line) for line in plain
        ]  # what is broken by hand may be broken within a sign
        ways = (way for line in plain for way in islice(decoration.plainer(line), 1, None))
        together = b"\n".join((block, b" ".join(inner), b"".join(inner), *ways))
        self._seen.clear()
        self._foreign = [p for p in self._grammar.find_foreign(together) if not (p.general or p.rest)]
        self._possible = [
            (sign, production)
            for sign, candidates in _index_signs(self._grammar)
            if sign in together
            for production in candidates
        ]
        may_be = decoration.mark_code(plain)
        wanted = [
            line if may and place not in recognized else b""
            for place, (line, may) in enumerate(zip(plain, may_be, strict=True), 1)
        ]
        rests = [b"" if place in begins else line for place, line in enumerate(wanted, 1)]
        place = 0
        while place < len(wanted):
            reading = self._reading(place, wanted[place], rests[place + 1 : place + _PIECES]) if wanted[place] else None
            if reading:
                yield reading
            place += reading.pieces if reading else 1

    def _reading(self, place: int, line: bytes, rests: Sequence[bytes]) -> Reading | None:
        """Return the reading of a line; if it has none alone, that with the lines below."""
        if self._look_near(*decoration.plainer(line)) and (messages := self._messages(line)):
            return Reading(place, 1, messages)
        below = list(takewhile(_may_continue, rests))
        if below and self._look_near(line, *below):
            ways = decoration.join_ways([line, *below])
            wholes = [Reading(place, size, [message]) for size, text in ways if (message := self._read_message(text))]
            if wholes:  # of equal ones the shortest
                return max(wholes, key=lambda one: _own_signs(one.messages[0][1].parsed))
        for text in decoration.plainer(line) if MARK in line else ():
            if message := find_quoted_statement(text, self._grammar):
                return Reading(place, 1, [message])
        for text in decoration.layers(line) if _PRINTED.search(line) else ():
            # A line of NCCL before 2.4 is known by its prefix: its message is not.
            old = None if prefix.MARK in text or _FORMAT.search(text) else _LEVEL.match(text)
            if old and (origin := _origin(old)):
                return Reading(place, 1, [(origin, Text(decode(old["level"]), old["text"], None))])
        return None

    def _mentions(self, lines: Sequence[bytes]) -> Iterator[Reading]:
        """Yield the errors that a question of few lines mentions, if it tells nothing else."""
        plain = list(map(decoration.normal, lines))
        if sum(map(bool, plain)) > _FEW_LINES:
            return
        for place, line in enumerate(plain):
            signs = [line.find(sign) for sign, _ in self._possible if len(sign) >= _SIGN_SIZE and sign in line]
            words = [
                match.start() for match in _WORD.finditer(line) if any(0 <= at - match.start() < _FAR for at in signs)
            ]
            texts = [text for start in words for text in decoration.beginnings(line[start:])]
            found = max(filter(None, (_telling(text, self._grammar) for text in texts)), key=_own_signs, default=None)
            if found and is_telling(found) and _level(found) in STATEMENTS and not _SUPPOSED.search(line):
                yield Reading(place, 1, [(prefix.ALONE, Text(_level(found), found.message, found))])

    def _messages(self, line: bytes) -> list[tuple[Origin, Text]]:
        """Return the messages in a line."""
        for text in decoration.plainer(line):
            if message := self._read_message(text):
                return [message]
        parts = decoration.parts(line)
        # The lines of a multi-line message may be in one.
        if begins := sorted(at for lead in self._grammar.continuing_leads() if (at := line.find(lead)) > 0):
            parts += (line[a:b].strip() for a, b in pairwise((0, *begins, len(line))))
        return list(filter(None, map(self._read_message, parts))) if parts != [line] else []

    def _read_message(self, line: bytes) -> tuple[Origin, Text] | None:
        """Return the message that a line near here is, without what stands around it."""
        if line not in self._seen:
            self._among = [production for sign, production in self._near if sign in line]
            may_hold = self._among or _PRINTED.search(line) or self._holds_foreign(line)
            found = next(filter(None, map(self._message, decoration.layers(line))), None) if may_hold else None
            self._seen[line] = found and (found[0], self._strip_decoration(found[1]))
        return self._seen[line]

    def _look_near(self, *lines: bytes) -> bool:
        """Return whether there may be a message in a line, or in lines that were one."""
        inner = [decoration.MARGIN.sub(b"", line) for line in lines]
        texts = {b" ".join(inner), b"".join(inner)}
        self._near = [(sign, production) for sign, production in self._possible if any(sign in text for text in texts)]
        return bool(self._near or _PRINTED.search(lines[0]) or any(map(self._holds_foreign, texts)))

    def _holds_foreign(self, text: bytes) -> bool:
        """Return whether a text may hold a message of another program."""
        return any(sign in text for production in self._foreign for sign in production.signs)

    def _message(self, text: bytes) -> tuple[Origin, Text] | None:
        """Return the message that a text is as it stands."""
        if parsed := self._grammar.parse_foreign(text, self._foreign):
            return prefix.NOBODY, Text("OTHER", text, parsed)
        if parsed := self._grammar.parse_bare(text):
            return prefix.NOBODY, Text("INFO" if parsed.production.follows else "VERSION", text, parsed)
        parts = prefix.split(text) or ((b"", rest) if (rest := prefix.read_unprefixed(text)) else None)
        if parts:
            level, _, message = parts[1].partition(b" ")
            origin = prefix.parse(parts[0]) if parts[0] else prefix.ALONE
            parsed = self._parse_message(message)
            return (origin, Text(decode(level), message, parsed)) if origin and parsed else None
        if (found_level := _PLUGIN.match(text) or _LEVEL.match(text)) and (
            parsed := self._parse_message(found_level["text"])
        ):
            origin = _origin(found_level)
            if origin or (not found_level.groupdict().get("head") and is_telling(parsed)):
                return origin or prefix.ALONE, Text(decode(found_level["level"]), found_level["text"], parsed)
        parsed = self._parse_message(text)
        return (prefix.ALONE, Text(_level(parsed), text, parsed)) if parsed and is_telling(parsed) else None

    def _parse_message(self, message: bytes) -> Parsed | None:
        """Return a message that may have lost its full stop, or got one; numbers may be left out."""
        for text in (message, message + b".", message.rstrip(b".:;!")):
            if any(production.fit(text) for production in self._among if production.needle in text):
                return self._grammar.parse(text)
        parsed = without_numbers(message, self._grammar) if self._among else None
        return None if parsed is None or parsed.kind in NUMBERED else parsed


def _torn_off(lines: Sequence[bytes]) -> set[int]:
    """Return the numbers of lines that may be cut: the last, those that say so, and those of the width of a screen."""
    width = max(map(len, lines), default=0)
    full = sum(len(line) == width for line in lines) > 1
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=0)
    return {
        number
        for number, line in enumerate(lines, 1)
        if number == last or (full and len(line) == width) or line.rstrip().endswith((b"...", b"\xe2\x80\xa6"))
    }


def _may_continue(line: bytes) -> bool:
    """Return whether a line may be the rest of the one above: it is none with a whole prefix."""
    parts = prefix.split(line)
    return bool(line) and (parts is None or not parts[0] or prefix.parse(parts[0]) is None)


@cache
def _index_signs(grammar: Grammar) -> list[tuple[bytes, list[Production]]]:
    """Return the productions whose messages are known without a prefix, by a text that they hold."""
    by_sign: dict[bytes, list[Production]] = {}
    for production in grammar.productions:
        if production.foreign:
            continue
        signs = [production.needle]
        if len(production.needle) < _SIGN_SIZE:
            signs = [lead.encode() for lead in notation.leads(notation.parse(production.line), limit=256)]
        if all(len(sign) >= _SIGN_SIZE for sign in signs):
            for sign in signs:
                by_sign.setdefault(sign.rstrip(b"."), []).append(production)
    return list(by_sign.items())


def without_numbers(message: bytes, grammar: Grammar) -> Parsed | None:
    """Return the parsed message with stand-ins for what was left out; some numbers are printed without ``0x``."""
    if not _LEFT_OUT.search(message):
        return None
    filled = (_LEFT_OUT.sub(stand_in, message) for stand_in in (rb"\g<1>" + STAND_IN, STAND_IN))
    parsed = next(filter(None, map(grammar.parse, filled)), None)
    if parsed is None:
        return None
    event = parsed.event.with_fields(message=decode(message))
    return Parsed(parsed.production, parsed.message, parsed.kind, event)


def _count(reading: Reading, counts: Counts, unknown: int) -> None:
    """Count lines anew that were counted as something else."""
    number = reading.place + 1
    texts = [text for _, text in reading.messages]
    foreign = sum(text.level == "OTHER" for text in texts)
    typed = sum(text.parsed is not None for text in texts) - foreign
    broken = [line for line in counts.broken if number <= line[0] < number + reading.pieces]
    counts.broken = [line for line in counts.broken if line not in broken]
    counts.related_lines += foreign
    counts.typed_lines += typed
    counts.nccl_lines += len(texts) - foreign - unknown - len(broken)
    counts.unrecognised_lines += len(texts) - foreign - typed - unknown
    counts.damaged_lines -= len(broken)


def _origin(match: re.Match[bytes]) -> Origin | None:
    """Return who printed a line without ``NCCL``.

    Only a prefix of NCCL tells, not what a program puts before its level.
    """
    if match.re is _PLUGIN:
        return prefix.ALONE
    origin = prefix.parse(match["head"].rstrip()) if match["head"] else None
    return origin if origin and (origin.device is not None or origin.location) else None


def _level(parsed: Parsed) -> str:
    """Return the level of a message that came without one."""
    failed = parsed.kind in (events.CudaFailure,) or parsed.production.constants.get("tone") == "error"
    return "WARN" if failed or parsed.production.family.startswith("warnings") else "INFO"
