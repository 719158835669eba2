"""Says whether the grammar recognises any message that a printf format can make.

Where the sample of a production has the shape of the format, its values are the filling. Else the format is filled
from the left, with the words below and those that the production knows; a filling is given up as soon as the
production cannot go on from there, so that many can be tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import regex
from source_calls import CONVERSION

from nccl_inspect.grammar import engine, notation
from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.grammar.production import Production

_MOST_STEPS = 1500
_LONG_WORD = re.compile(r"[A-Za-z]{4,}")
_NUMBERS = ("3", "0", "-1", "12", "1048576")
_HEX = ("1f", "b7000", "0", "3")
_POINTERS = ("0x7f01a0", "(nil)")
_DECIMAL = r"-?(?:\d[\d.]*(?:e[+-]\d+)?|inf|nan) *"
_PATTERNS = {
    **dict.fromkeys("diu", r"-?\d+ *"),
    **dict.fromkeys("xX", r"(?:0x)?[0-9a-fA-F]+ *"),
    **dict.fromkeys("fFeEgG", _DECIMAL),
    "p": r"(?:\(nil\)|0x[0-9a-f]+)",
    "c": ".",
}
_WORDS = (
    "",
    "3",
    "-1",
    "1.5",
    "1f",
    "0x7f01a0",
    "0000:b7:00.0",
    "abc",
    "IB",
    "eth0",
    "mlx5_0",
    "GPU/0-b7000",
    "ncclCommInitRank",
    "init.cc",
    "NCCL_IB_HCA",
    "libnccl-net.so",
    "/usr/lib/libnccl-net.so",
    "10.0.0.1<40000>",
    "fe80::1",
    "No such device",
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    " 3 4",
    " ",
)
"""Fillings of ``%s``: a number, a device, a function, a file, a path, an address, an error text, nothing."""


class Recogniser:
    """Fills formats and asks the grammar.

    Args:
        formats: all formats that will be asked for: a sample fits only the one with which it shares most.
        dialects: whose productions may recognise a message.
        grammar: what recognises messages.
    """

    def __init__(self, formats: Iterable[str], dialects: set[str], grammar: Grammar | None = None) -> None:
        self._grammar = grammar or engine.load_grammar()
        self._productions = [p for p in self._grammar.productions if p.dialect in dialects and not p.foreign]
        self._leads = [(lead, p) for p in self._productions for lead in _leads(p)]
        lines = [_lines(text) for text in formats]
        self._samples = {
            False: self._share({first for first, *_ in lines}, bare=False),
            True: self._share({line for _, *more in lines for line in more}, bare=True),
        }

    def _share(self, lines: set[str], bare: bool) -> dict[str, str]:
        """Return a sample for each line of a format, if there is one that no other format fits better."""
        shapes = [_Shape(line) for line in lines]
        found: dict[str, str] = {}
        for production in self._list_wanted(bare):
            for sample in production.samples:
                fits = [shape for shape in shapes if shape.longest in sample and shape.is_known_to(production, sample)]
                most = max((shape.weight for shape in fits), default=0)
                found.update({shape.line: sample for shape in fits if shape.weight == most})
        return found

    def _list_wanted(self, bare: bool) -> list[Production]:
        return [p for p in self._productions if (p.bare if bare else not p.follows)]

    def message(self, text: str) -> str | None:
        """Return a message of this format that the grammar recognises; None when there is none.

        In a format of several lines each line has to be recognised: only the first has NCCL's prefix.
        """
        first, *more = _lines(text)
        lines = [self._fill_line(first, False), *(self._fill_line(line, True) for line in more)]
        return None if None in lines else "\n".join(line for line in lines if line is not None)

    def _fill_line(self, line: str, bare: bool) -> str | None:
        return self._samples[bare].get(line) or self._try_values(line, bare)

    def _try_values(self, line: str, bare: bool) -> str | None:
        parts = list(_parts(line))
        shape = _Shape(line)
        start = parts[0][0]
        parse = self._grammar.parse_bare if bare else self._grammar.parse
        literals = " ".join(literal for literal, _ in parts)
        tried = set()
        wanted = set(self._list_wanted(bare))
        for lead, production in self._leads:
            fits = start.startswith(lead) or lead.startswith(start)
            if not fits or production in tried or production not in wanted:
                continue
            if not lead and not any(word in literals for word in _LONG_WORD.findall(_needle(production)) or [""]):
                continue
            tried.add(production)
            words = list(dict.fromkeys([*_known_words(production), *_WORDS]))
            fillings = _fill("", parts, _partial_pattern(production), words, [_MOST_STEPS])
            for text in fillings:
                parsed = parse(text.encode())
                if parsed and shape.is_known_to(parsed.production, text):
                    return text
        return None


class _Shape:
    """One line of a format as a pattern of what it prints."""

    def __init__(self, line: str) -> None:
        parts = list(_parts(line))
        self.line = line
        self.longest = max((literal for literal, _ in parts), key=len)
        self.weight = sum(len(literal) for literal, _ in parts)
        text = "".join(re.escape(literal) + _pattern(conversion) for literal, conversion in parts)
        self.pattern = re.compile(text, re.DOTALL)

    def is_known_to(self, production: Production, message: str) -> bool:
        """Return whether the message has this shape and the production knows its words: they are not any text to it."""
        mine = self.pattern.fullmatch(message)
        theirs = production.match(message.encode())
        if not mine or not theirs:
            return False
        values = {at for number in range(1, len(mine.groups()) + 1) for at in range(*mine.span(number))}
        free = {at for start, end in production.shape.open_spans(theirs, words=False) for at in range(start, end)}
        return not any(message[at].isalpha() for at in free - values if at < len(message))


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()] or [""]


def _fill(
    head: str,
    parts: Sequence[tuple[str, re.Match[str] | None]],
    pattern: regex.Pattern[bytes],
    words: list[str],
    steps: list[int],
) -> Iterator[str]:
    """Yield every message that begins like ``head`` and may still become the pattern, until the steps are used up."""
    literal, conversion = parts[0]
    head += literal
    steps[0] -= 1
    if steps[0] < 0 or not pattern.fullmatch(head.encode(), partial=True):
        return
    if conversion is None:
        yield head
        return
    for value in dict.fromkeys(_values(conversion, words)):
        yield from _fill(head + value, parts[1:], pattern, words, steps)


def _parts(text: str) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Yield the literals of a format, each with the conversion behind it."""
    at, literal = 0, ""
    for found in CONVERSION.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        if found["kind"] == "%":
            literal += "%"
            continue
        yield literal, found
        literal = ""
    yield literal + text[at:], None


def _pattern(conversion: re.Match[str] | None) -> str:
    """Return what a conversion can print, as a regular expression."""
    if conversion is None:
        return ""
    return "( *" + _PATTERNS.get(conversion["kind"], ".*") + ")"


def _values(conversion: re.Match[str], words: list[str]) -> Iterator[str]:
    kind, flags, digits = conversion["kind"], conversion["flags"], conversion["digits"]
    width = int(conversion["width"]) if (conversion["width"] or "*") != "*" else 0
    if kind in "diu":
        values = [f"{int(number):0{width}d}" if "0" in flags else number for number in _NUMBERS]
    elif kind in "xX":
        sharp = "0x" if "#" in flags else ""
        values = [sharp + (value.upper() if kind == "X" else value) for value in _HEX]
        values = [value.zfill(width) if "0" in flags else value for value in values]
    elif kind == "p":
        values = list(_POINTERS)
    elif kind in "fFeEgG":
        places = int(digits) if (digits or "*") != "*" else 6
        values = [f"{number:.{places}{kind}}" for number in (1.5, 0.0)]
    elif kind == "c":
        values = ["x", "R", "1", " "]
    elif kind == "m":
        values = ["No such device"]
    else:
        values = words
    yield from (value.ljust(width) if "-" in flags else value.rjust(width) for value in values)


def _leads(production: Production) -> list[str]:
    return notation.leads(notation.parse(production.line))


@cache
def _partial_pattern(production: Production) -> regex.Pattern[bytes]:
    return regex.compile(production.shape.pattern.encode(), regex.DOTALL)


@cache
def _needle(production: Production) -> str:
    return notation.quick_needle(production.line)


@cache
def _known_words(production: Production) -> list[str]:
    """Return what the fixed choices of a production can be."""
    return [*_constant_words(notation.parse(production.line))]


def _constant_words(nodes: notation.Sequence) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, notation.Field) and node.spec[:1] in ("=", "?"):
            yield from node.spec[1:].split("¦")
        elif isinstance(node, notation.Choice):
            for option in node.options:
                if all(isinstance(part, notation.Literal) for part in option):
                    yield "".join(part.text for part in option if isinstance(part, notation.Literal))
                yield from _constant_words(option)
