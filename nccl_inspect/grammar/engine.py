"""Finds the production of a message and makes its event.

A message is dispatched on its first bytes to the few productions that can fit; those that begin with a field are
found by a literal inside. Distinct messages are remembered by the scanner, so that each is parsed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import chain, repeat

from nccl_inspect.event import types as events
from nccl_inspect.grammar import files, notation
from nccl_inspect.grammar.layers import Layer
from nccl_inspect.grammar.production import Details, Production
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Record
from nccl_inspect.util.text import DIGITS, decode, spell

_LEAD_SIZES = (16, 8, 4)
_BARE_LEAD = 8
_SHORT_LEAD = 4
_CUT_FROM = 900  # bytes of the shortest message that NCCL may have cut at 1,024 bytes, prefix included
_TORN_FROM = 12  # bytes of the shortest beginning that shows which message it is of
_CUT_TO = 4096  # and of the longest one


class Parsed(Record):
    """A recognized message: its production and, made on first use, its event (without source and line)."""

    production: Production
    message: bytes
    kind: type[events.Event]
    _event: events.Event | None = None
    _match: re.Match[bytes] | None = None

    @property
    def event(self) -> events.Event:
        """Return the event, without source and line."""
        if self._event is None:
            match = self._match or self.production.match(self.message)
            assert match is not None
            self._match = None
            self._event = self.production.make_event(match, self.message)
        return self._event


_WORD = compile_later(r"[A-Za-z]{3,}")
_QUOTES = compile_later(rb"[^{]{0,80}?\b(?:INFO|DEBUG)\b.*\b(?:is|are|if|when|you|see|which|that|because|example)\b")
"""What is before a message that a program only quotes: a sentence at the level of a note."""


class Grammar:
    """All productions of all dialects, ready to parse messages."""

    def __init__(self, productions: Iterable[Production]) -> None:
        self.productions = list(productions)
        self._by_lead: dict[bytes, list[tuple[bytes, Production]]] = {}
        self._needled: dict[bytes, list[tuple[bytes, str, Production]]] = {}
        """The same with needles, as far as they have been needed."""
        self._named: dict[tuple[str, str], Production] = {}  # by dialect and name, made on first use
        self._loose: list[Production] = []
        self._searched: list[tuple[str, Production]] = []  # the same with their needles; made on first use
        self._squeezed: dict[str, list[tuple[str, str, Production]]] = {}
        """By the first bytes, with leads and needles, all without blanks and quotation marks; made on first use."""
        self._bare: dict[bytes, list[Production]] = {}
        self._foreign: list[Production] = []
        self.traced: list[Production] = []  # productions of other programs that only match the end of a traceback
        self.last: list[Production] = []  # productions of other programs that only match the last lines of a log
        for production in self.productions:
            if production.traced or production.last:
                (self.traced if production.traced else self.last).append(production)
                continue
            if production.foreign:
                self._foreign.append(production)
                continue
            if production.bare:
                for begin in notation.leads(notation.parse(production.line, is_for_leads=True)):
                    self._bare.setdefault(begin.encode()[:_BARE_LEAD], []).append(production)
            for lead in _leads(production.line) if not production.follows else ():
                size = next((size for size in _LEAD_SIZES if len(lead) >= size), None)
                if size is None:
                    self._loose.append(production)
                else:
                    self._by_lead.setdefault(lead[:size], []).append((lead, production))
        self._foreign.sort(key=lambda production: (production.general, production.rest))

    def find(self, dialect: str, name: str) -> Production | None:
        """Return the production of that name, if any."""
        if not self._named:
            self._named = {production.key: production for production in self.productions}
        return self._named.get((dialect, name))

    def parse_bare(self, line: bytes) -> Parsed | None:
        """Return the parsed line without a prefix: a version line, or one that continues a message of several lines."""
        among = self._bare.get(line[:_BARE_LEAD])
        if among is None:
            return None
        for text in _texts(line):
            for production in among:
                if production.match(text):
                    return Parsed(production, text, events.KINDS[production.event])
        return None

    def continuing_leads(self) -> list[bytes]:
        """Return the beginnings of lines that continue a message of several lines."""
        return [
            lead
            for lead, productions in self._bare.items()
            if lead.strip() and all(production.follows for production in productions)
        ]

    def find_bare(self, block: bytes, following: bool) -> list[bytes]:
        """Return beginnings of lines without a prefix that occur in many lines at once, whatever precedes them."""
        return [
            lead
            for lead, productions in self._bare.items()
            if lead in block and (following or not all(production.follows for production in productions))
        ]

    def find_foreign(self, block: bytes) -> list[Production]:
        """Return the productions of other programs with a fixed text that may occur in a block; most have none.

        Of lines that differ in digits only, one is searched.
        """
        shapes = spell(b"\n".join(set(block.translate(None, DIGITS).split(b"\n"))))
        return [p for p in self._foreign if any(spell(sign.translate(None, DIGITS)) in shapes for sign in p.signs)]

    def words(self) -> set[str]:
        """Return the words of all messages, in lower case."""
        return {word.lower() for production in self.productions for word in _WORD.findall(production.line)}

    def signs(self) -> set[bytes]:
        """Return literals one of which is in every recognizable line without a prefix."""
        return {*self._bare, *(sign for production in self._foreign for sign in production.signs)}

    def parse_foreign(self, line: bytes, among: Iterable[Production] | None = None) -> Parsed | None:
        """Return the parsed line of another program, if it matters for the job; None for any other line."""
        for production in self._foreign if among is None else among:
            if production.needle not in line:
                continue
            for text in _texts(line):
                if production.match(text) and not _QUOTES.match(text[: text.find(production.needle)]):
                    return Parsed(production, text, events.KINDS[production.event])
        return None

    def parse(self, message: bytes) -> Parsed | None:
        """Return the parsed message; None if no production matches.

        What was copied from a terminal or a table is filled up with blanks, which are not part of the message.
        """
        if not message[-1:].isspace():
            return self._parse(message)
        return next(filter(None, map(self._parse, _texts(message))), None)

    def _parse(self, message: bytes) -> Parsed | None:
        text = spell(message)
        is_open = message.rstrip()[-1:] == b":"  # what it says may be in the next line
        for size in _LEAD_SIZES:
            begins = message[:size]
            if begins in self._by_lead:
                needled = self._needled.get(begins)
                if needled is None:  # a short run needs few
                    needled = [(lead, spell(one.needle), one) for lead, one in self._by_lead[begins]]
                    # Those whose needle is in the lead come last: they fit most messages with it, and few are theirs.
                    needled.sort(key=lambda entry: entry[1] in spell(entry[0]))
                    self._needled[begins] = needled
                for lead, needle, production in needled:
                    match = production.fit(message) if needle in text and message.startswith(lead) else None
                    if match and not (is_open and production.lacks_end(match)):
                        return _make_parsed(production, message, match)
        if not self._searched:
            self._searched = [(spell(production.needle), production) for production in self._loose]
        for production in [production for needle, production in self._searched if needle in text]:
            if match := production.fit(message):
                return _make_parsed(production, message, match)
        return None

    def parse_respaced(self, message: bytes) -> Parsed | None:
        """Return what a text is but for blanks and quotation marks that somebody changed on the way."""
        if not self._squeezed:
            entries = [entry for among in self._by_lead.values() for entry in among] + [(b"", p) for p in self._loose]
            for lead, needle, production in ((_squeeze(lead), _squeeze(p.needle), p) for lead, p in entries):
                begins = lead[:_SHORT_LEAD] if len(lead) >= _SHORT_LEAD else ""
                self._squeezed.setdefault(begins, []).append((lead, needle, production))
        message = b" ".join(message.split())
        squeezed = _squeeze(message)
        among = chain(*map(self._squeezed.get, (squeezed[:_SHORT_LEAD], ""), repeat([])))
        for production in [p for lead, needle, p in among if needle in squeezed and squeezed.startswith(lead)]:
            text = production.respace(message)
            if text and (match := production.match(text)) and not (text.endswith(b":") and production.lacks_end(match)):
                return _make_parsed(production, text, match)
        return None

    def beginnings(self, message: bytes) -> Iterable[Production]:
        """Yield the productions whose beginning a message may be."""
        for size in _LEAD_SIZES:
            for lead, production in self._by_lead.get(message[:size], ()):
                if message.startswith(lead):
                    yield production

    def parse_cut(self, message: bytes) -> Parsed | None:
        """Return the beginning of a message that NCCL cut: recognized, without values.

        Until 2.28 prefix and message share 1,024 bytes (src/debug.cc); RCCL allows 4,096.
        """
        if not _CUT_FROM <= len(message) <= _CUT_TO:
            return None
        for production in self.beginnings(message):
            if production.is_cut(message):
                event = events.Message(
                    dialect=production.dialect, production=production.name, message=decode(message), cut=True
                )
                return Parsed(production, message, events.Message, event)
        return None

    def parse_torn(self, message: bytes) -> Parsed | None:
        """Return the only statement that a text begins, without values; wordings of the same count as one."""
        begun = {
            production.key: production
            for among in self._by_lead.values()
            for lead, production in among
            if lead.startswith(message) or message.startswith(lead)
        }
        fits = [p for p in begun.values() if p.event == events.Notice.__name__ and p.is_cut(message)]
        if len(message) < _TORN_FROM or len({(p.rule or p.roles or p.key, p.constants.get("tone")) for p in fits}) != 1:
            return None
        first, tone = fits[0], fits[0].constants.get("tone", "info")
        event = events.Notice(
            dialect=first.dialect, production=first.name, message=decode(message), cut=True, tone=tone
        )
        return Parsed(first, message, events.Notice, event)


def _make_parsed(production: Production, message: bytes, match: re.Match[bytes]) -> Parsed:
    kind = events.KINDS[production.event]
    is_asked = kind.kept or kind is events.Collective  # for its event, by who keeps or counts it
    return Parsed(production, message, kind, None, match if is_asked else None)


def _texts(line: bytes) -> tuple[bytes, ...]:
    """Return a text, also without trailing blanks: some NCCL messages end with one."""
    if not line[-1:].isspace():
        return (line,)
    text = line.rstrip()
    return (line, text) if len(line) - len(text) == 1 else (text, text + b" ", line)


def _squeeze(text: bytes) -> str:
    return spell(text.translate(None, b" \t\r\n'\"`"))


def _leads(line: str) -> set[bytes]:
    """Return the literals with which a message can begin; for most lines a part of the notation suffices."""
    match = _PLAIN_LEAD.match(line)
    if match and match.end() >= _LEAD_SIZES[-1]:
        return {match[0].encode()}
    if line.startswith("{") and not line.split(":", 1)[-1].startswith(("=", "?")):
        return {b""}
    return {lead.encode() for lead in notation.leads(notation.parse(line, is_for_leads=True))}


_PLAIN_LEAD = re.compile("[^{}«␣]+")


@cache
def load_grammar() -> Grammar:
    """Return the grammar of the package."""
    productions: list[Production] = []
    for file in files.list_files():
        productions.extend(files.index(file.read_bytes().decode("utf-8"), file.name))
    return Grammar(productions)


@cache
def find_details(dialect: str, name: str) -> Details:
    """Return what the grammar says of a production; nothing of an unknown one."""
    production = load_grammar().find(dialect, name)
    return production.details if production else Details()


def find_roles(event: events.Event) -> frozenset[str]:
    """Return the roles of a message (``role:`` in the grammar)."""
    return find_details(event.dialect, event.production).roles


@cache
def find_layer(dialect: str, name: str) -> Layer:
    """Return how near to a cause a production is (``layer:`` in the grammar, else by its roles and its tone)."""
    production = load_grammar().find(dialect, name)
    return production.layer if production else Layer.RESOURCE
