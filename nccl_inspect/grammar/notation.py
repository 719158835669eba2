"""The notation in which a message is written down: NCCL's printf format with names.

``Channel {channel:02}«/{conn}»? : {src}[{src_dev:id}] -> {dst}[{dst_dev:id}] via P2P/{mechanism:=IPC¦CUMEM}``

==================  ========================================================================================
``{x}``             integer, canonical decimal
``{x:02}``          integer padded with zeros (``%02d``), ``{x:3}`` with blanks (``%3d``); widths from 1 to 99
``{x:h}``           integer in hex without ``0x``; ``{x:hx}`` hex digits in capitals (``%lX``), kept as text
``{x:p}``           pointer or 0x number, kept as text: ``0x7f01`` or ``(nil)``
``{x:id}``          hex digits kept as text (a bracket that holds a bus id or a device index)
``{_x}``            read and written back, but no part of the event
``{x:.2f}``         decimal with two digits; ``{x:5.1f}`` blank padded; ``{x:num}`` any decimal, kept as text
``{x:i}``           integer kept as text (a setting's value); ``{x:v}`` a name: letters, digits, underscores
``{x:w}``           one or more characters without a blank
``{x:n}``           one or more characters without a slash (a network's name may hold a blank)
``{x:c}``           one or more characters without a blank, colon or bracket (a device's name before its port)
``{x:b}``           blanks, or nothing (indentation)
``{x:t}``           any text, may be empty
``{x:e}``           any text but the error "No such file", at least one character
``{x:=a¦b}``        one of the words
``{x:?word}``       true when the word is there
``{x:*frag}``       any number of the fragment ``frag``, as a tuple
``«a¦b»``           one of the alternatives; ``«a»?`` optional
``␣``               a blank that an editor might lose;  ``{{`` and ``}}`` are braces
==================  ========================================================================================

The guillemets were chosen because NCCL prints brackets, bars, parentheses and question marks, but never these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from nccl_inspect.errors import GrammarError
from nccl_inspect.util.patterns import later


class Literal(NamedTuple):
    """Literal text of the message."""

    text: str


class Field(NamedTuple):
    """A named, typed part of the message."""

    name: str
    spec: str


class Choice(NamedTuple):
    """One of several sequences; ``optional`` if it may be left out."""

    options: tuple[Sequence, ...]
    optional: bool


Node: TypeAlias = Literal | Field | Choice
Sequence: TypeAlias = tuple[Node, ...]

MAX_LEADS = 32
"""Literals with which one message can begin; with more of them it counts as beginning with anything."""
_PIECE = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[«¦␣]|»\??|[^{}«»¦␣]+")
_LETTERS = {"{{": "{", "}}": "}", "␣": " "}
_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>[a-z_][a-z0-9_]*)(?::(?P<spec>[^{}]*))?\}|«|¦|»\??|␣|[^{}«»¦␣]+|[{}]")


def parse(source: str) -> Sequence:
    """Read one line of the notation.

    Raises:
        GrammarError: the line is not well formed.
    """
    tokens = list(_TOKEN.finditer(source))
    nodes, used = _sequence(tokens, 0, source, depth=0)
    if used != len(tokens):
        raise GrammarError(f"'{tokens[used][0]}' has no partner in: {source}")
    return nodes


def _sequence(tokens: list[re.Match[str]], at: int, source: str, depth: int) -> tuple[Sequence, int]:
    nodes: list[Node] = []
    while at < len(tokens):
        token = tokens[at]
        text = token[0]
        if text == "¦" or text.startswith("»"):
            break
        if text == "«":
            choice, at = _choice(tokens, at + 1, source, depth + 1)
            nodes.append(choice)
            continue
        if token["name"]:
            nodes.append(Field(token["name"], token["spec"] or ""))
        elif text in "{}":
            raise GrammarError(f"a single '{text}' in: {source}")
        else:
            literal = _LETTERS.get(text, text)
            if nodes and isinstance(nodes[-1], Literal):
                nodes[-1] = Literal(nodes[-1].text + literal)
            else:
                nodes.append(Literal(literal))
        at += 1
    return tuple(nodes), at


def _choice(tokens: list[re.Match[str]], at: int, source: str, depth: int) -> tuple[Choice, int]:
    options: list[Sequence] = []
    while True:
        option, at = _sequence(tokens, at, source, depth)
        options.append(option)
        if at >= len(tokens):
            raise GrammarError(f"'«' is not closed in: {source}")
        end = tokens[at][0]
        at += 1
        if end.startswith("»"):
            return Choice(tuple(options), optional=end == "»?"), at


def fields(nodes: Sequence) -> Iterator[Field]:
    """Every field of a sequence, in order."""
    for node in nodes:
        if isinstance(node, Field):
            yield node
        elif isinstance(node, Choice):
            for option in node.options:
                yield from fields(option)


def leads(nodes: Sequence, limit: int = MAX_LEADS) -> list[str]:
    """The literal texts with which a message of this shape can begin; an empty one means 'with anything'."""
    return [text for text, _ in _starts(nodes, limit)]


def quick_leads(source: str, limit: int = MAX_LEADS) -> list[str]:
    """Return the same, of a line that is not parsed: most lines are only asked for their leads."""
    starts, ended, _ = _option(iter(_PIECE.findall(source)), limit, is_whole=True)
    return starts + ended


def _option(pieces: Iterator[str], limit: int, is_whole: bool = False) -> tuple[list[str], list[str], str]:
    """The leads of what precedes the next mark between options: those that it continues, and those that have ended."""
    starts: list[str] = [""]
    ended: list[str] = []
    for piece in pieces:
        if is_whole and not starts:
            break
        if piece[0] in "¦»":
            return starts, ended, piece
        if piece == "«":
            texts, stops = _options(pieces, limit)
        elif piece[0] == "{" and piece != "{{":
            words = _words(piece[1:-1].partition(":")[2])
            texts, stops = ([], [""]) if words is None else (words, [])
        else:
            text = _LETTERS.get(piece, piece)
            starts = [start + text for start in starts]
            continue
        if len(starts) * (len(texts) + len(stops)) + len(ended) > limit:
            texts, stops = [], [""]
        ended += [start + text for start in starts for text in stops]
        starts = [start + text for start in starts for text in texts]
        if not starts:
            return starts, ended, _end_of_option(pieces)
    return starts, ended, ""


def _end_of_option(pieces: Iterator[str]) -> str:
    """The next mark between options, past what can be no part of a lead."""
    depth = 0
    for piece in pieces:
        if piece == "«":
            depth += 1
        elif piece[0] in "¦»":
            if not depth:
                return piece
            depth -= piece[0] == "»"
    return ""


def _options(pieces: Iterator[str], limit: int) -> tuple[list[str], list[str]]:
    """Return the same of a choice, with all of its options."""
    starts: list[str] = []
    ended: list[str] = []
    mark = "¦"
    while mark == "¦":
        more, stops, mark = _option(pieces, limit)
        starts += more
        ended += stops
    return ([*starts, ""] if mark == "»?" else starts), ended


def past_word(nodes: Sequence) -> tuple[str, Sequence] | None:
    """The literal before a word that may be anything, and what follows the blank after that word.

    None where a message of this shape does not begin so. A program's own time stamp is such a word.
    """
    if len(nodes) < 3:
        return None
    lead, word, after = nodes[:3]
    if not (isinstance(lead, Literal) and isinstance(word, Field) and word.spec == "w" and isinstance(after, Literal)):
        return None
    _, blank, rest = after.text.partition(" ")
    return (lead.text, (Literal(rest), *nodes[3:])) if blank else None


def _starts(nodes: Sequence, limit: int) -> list[tuple[str, bool]]:
    """Return the same, each with whether it consists of literals only, so that the next node extends it."""
    open_starts = [""]
    ended: list[str] = []
    for node in nodes:
        texts = _next(node, limit)
        if len(open_starts) * len(texts) + len(ended) > limit:
            texts = [("", False)]
        starts = [(start + text, goes_on) for start in open_starts for text, goes_on in texts]
        ended += [text for text, goes_on in starts if not goes_on]
        open_starts = [text for text, goes_on in starts if goes_on]
    return [(text, True) for text in open_starts] + [(text, False) for text in ended]


def _next(node: Node, limit: int) -> list[tuple[str, bool]]:
    if isinstance(node, Literal):
        return [(node.text, True)]
    if isinstance(node, Field):
        words = _words(node.spec)
        return [("", False)] if words is None else [(word, True) for word in words]
    texts = [start for option in node.options for start in _starts(option, limit)]
    return [*texts, ("", True)] if node.optional else texts


def _words(spec: str) -> list[str] | None:
    if spec.startswith("="):
        return spec[1:].split("¦")
    if spec.startswith("?"):
        return [spec[1:], ""]
    return None


def needle(nodes: Sequence) -> str:
    """The longest literal in every message of this shape; empty if there is none."""
    return max((node.text for node in nodes if isinstance(node, Literal)), key=len, default="")


_CHOICE = re.compile("«[^«»]*»\\??")


def quick_needle(source: str) -> str:
    """The longest of the literals in every message of this shape."""
    return max(quick_needles(source), key=len)


_FIELD = later(r"\{[^{}]*\}")
_BRACKET = later(r"(«|»\??)")
_WORDS = later(r"([^{}]*)\{[a-z0-9_]+:=([^{}]*)\}(?=([^{}]*))")


def quick_signs(source: str, size: int) -> list[str]:
    """Literals one of which is in every message: of one choice, where no literal of that size is in all of them."""
    signs = [quick_needle(source)]
    if len(signs[0]) < size:
        signs = max([signs, *_alternatives(source)], key=lambda some: min(map(len, some)))
    return [sign.replace("␣", " ") for sign in signs]


def _alternatives(source: str) -> Iterator[list[str]]:
    """The literals of each choice that cannot be left out, one for each of its options, and of each field of words."""
    depth, inside = 0, ""
    for part in _BRACKET.split(source):
        if part == "«":
            depth += 1
            inside += "\n"
        elif part in ("»", "»?"):
            depth -= 1
            inside += "\n"
            if depth == 0:
                if part == "»":
                    yield [max(option.split("\n"), key=len) for option in inside.split("¦")]
                inside = ""
        elif depth == 0:
            for before, words, after in _WORDS.findall(part):
                yield [f"{before}{word}{after}" for word in words.split("¦")]
        elif depth == 1:
            inside += _FIELD.sub("\n", part)


def quick_needles(source: str) -> list[str]:
    """The literals in every message of this shape, without parsing the whole notation."""
    shorter = _CHOICE.sub("\n", source)
    while shorter != source:
        source, shorter = shorter, _CHOICE.sub("\n", shorter)
    return re.split(r"\n|\{[^{}]*\}|[{}]", source.replace("␣", " "))
