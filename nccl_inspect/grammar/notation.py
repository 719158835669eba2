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
``{x:e}``           any text without "No such file" or "End of sequence", at least one character
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
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from sys import intern
from typing import NamedTuple, TypeAlias

from nccl_inspect.errors import GrammarError
from nccl_inspect.util import signals
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import decode


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

MAX_LEADS = 32  # literals with which one message can begin; with more of them it counts as beginning with anything
_PIECE = re.compile(r"\{\{|\}\}|\{[^{}]*\}|»\?|[{}«¦␣»]|[^{}«»¦␣]+")
_LETTERS = {"{{": "{", "}}": "}", "␣": " "}
_NAMED = re.compile(r"\{[a-z_][a-z0-9_]*[:}]")


def parse(source: str, is_for_leads: bool = False) -> Sequence:
    """Read one line of the notation, or as much of it as its leads depend on.

    A GrammarError says that it is not well formed.
    """
    nodes, mark = _sequence(iter(_PIECE.findall(source)), source, is_for_leads)
    if mark:
        raise GrammarError(f"'{mark}' has no partner in: {source}")
    return nodes


def _sequence(pieces: Iterator[str], source: str, is_for_leads: bool = False) -> tuple[Sequence, str]:
    """Return the nodes before the next mark between options, and that mark; empty at the end."""
    nodes: list[Node] = []
    text = mark = ""
    for piece in pieces:
        if piece in _LETTERS or piece[0] not in "{}«¦»":
            text += _LETTERS.get(piece, piece)
            continue
        if text:
            nodes.append(Literal(text))
            text = ""
        if piece[0] in "¦»":
            mark = piece
            break
        if piece == "«":
            options, end = list[Sequence](), "¦"
            while end == "¦":
                option, end = _sequence(pieces, source)
                options.append(option)
            if not end:
                raise GrammarError(f"'«' is not closed in: {source}")
            nodes.append(Choice(tuple(options), optional=end == "»?"))
        elif _NAMED.match(piece):
            name, _, spec = piece[1:-1].partition(":")
            nodes.append(Field(name, spec))
            if is_for_leads and spec[:1] not in ("=", "?"):
                break
        else:
            raise GrammarError(f"a single '{piece[0]}' in: {source}")
    if text:
        nodes.append(Literal(text))
    return tuple(nodes), mark


def fields(nodes: Sequence) -> Iterator[Field]:
    """Yield every field of a sequence, in order."""
    for node in nodes:
        if isinstance(node, Field):
            yield node
        elif isinstance(node, Choice):
            for option in node.options:
                yield from fields(option)


def leads(nodes: Sequence, limit: int = MAX_LEADS) -> list[str]:
    """Return the literal texts with which a message of this shape can begin; an empty one means 'with anything'."""
    starts, ended = _starts(nodes, limit)
    return starts + ended


def _starts(nodes: Sequence, limit: int) -> tuple[list[str], list[str]]:
    """Return the same: those of literals only, which the next node extends, and those that have ended."""
    starts, ended = [""], list[str]()
    for node in nodes:
        if isinstance(node, Literal):
            starts = [start + node.text for start in starts]
            continue
        if isinstance(node, Field):
            words = _words(node.spec)
            texts, stops = (words, []) if words else ([], [""])
        else:
            options = [_starts(option, limit) for option in node.options]
            texts = [*(text for option, _ in options for text in option), *([""] if node.optional else [])]
            stops = [text for _, option in options for text in option]
        if len(starts) * (len(texts) + len(stops)) + len(ended) > limit:
            texts, stops = [], [""]
        ended += [start + text for start in starts for text in stops]
        starts = [start + text for start in starts for text in texts]
        if not starts:
            break
    return starts, ended


def _words(spec: str) -> list[str]:
    """Return what a field of words may hold; nothing of any other."""
    return spec[1:].split("¦") if spec[:1] == "=" else [spec[1:], ""] if spec[:1] == "?" else []


_CHOICE = re.compile("«[^«»]*»\\??")


def quick_needle(source: str) -> str:
    """Return the longest of the literals in every message of this shape."""
    return max(quick_needles(source), key=len)


def signs(source: str, size: int) -> list[str]:
    """Return literals one of which is in every message: of one choice, if no literal of that size is in all."""
    sets = [[quick_needle(source)]]
    nodes = parse(source) if len(sets[0][0]) < size else ()
    texts = [node.text if isinstance(node, Literal) else "" for node in nodes]
    for before, node, after in zip(["", *texts], nodes, [*texts[1:], ""], strict=False):
        if isinstance(node, Field) and node.spec[:1] == "=":
            sets.append([f"{before}{word}{after}" for word in _words(node.spec)])
        elif isinstance(node, Choice) and not node.optional:
            options = [[part.text for part in option if isinstance(part, Literal)] for option in node.options]
            sets.append([max(literals, key=len, default="") for literals in options])
    return max(sets, key=lambda some: min(map(len, some)))


def quick_needles(source: str) -> list[str]:
    """Return the literals in every message of this shape, without parsing the whole notation."""
    shorter = _CHOICE.sub("\n", source)
    while shorter != source:
        source, shorter = shorter, _CHOICE.sub("\n", shorter)
    return re.split(r"\n|\{[^{}]*\}|[{}]", source.replace("␣", " "))


Value: TypeAlias = int | float | str | bool | tuple[object, ...] | None


class FieldType(Frozen):
    """The type of a field: its pattern (without groups), the reader of the matched bytes and the writer of the value.

    A pattern accepts only what printf would print, so that a value always gives its text back and a torn or foreign
    text is refused. Digits are limited so that hostile input can neither overflow a 64-bit column nor cost time.
    """

    pattern: str
    read: Callable[[bytes], Value]
    write: Callable[[object], str]
    python: type
    free: bool = False  # whether it is text that may hold anything
    run: str = ""  # the class of characters that may repeat at its end; empty if their number is limited


_INT = r"0|-?[1-9]\d{0,17}"
_PADDED_INT = re.compile(r"(0?)([2-9]|[1-9]\d)$")
_FIXED = re.compile(r"(\d*)\.(\d)f$")
_FLOAT_DIGITS = 15  # decimal digits that a 64-bit float always gives back


@lru_cache(maxsize=256)
def field_type(spec: str) -> FieldType:
    """Return the type that a field's specification names; a GrammarError says that there is none."""
    if plain := _PLAIN.get(spec):
        return plain
    if spec.startswith("="):
        words = "|".join(sorted(map(re.escape, spec[1:].split("¦")), key=len, reverse=True))
        return FieldType(words, decode, str, str)
    if spec.startswith("?"):
        word = spec[1:]
        return FieldType(f"(?:{re.escape(word)})?", bool, lambda value: word if value else "", bool)
    if padded := _PADDED_INT.match(spec):
        return _make_padded(zero=bool(padded[1]), width=int(padded[2]))
    if fixed := _FIXED.match(spec):
        return _make_fixed(width=int(fixed[1] or 0), digits=int(fixed[2]))
    raise GrammarError(f"no such field type: '{spec}'")


def _make_padded(zero: bool, width: int) -> FieldType:
    if zero:
        shapes = [rf"[1-9]\d{{{width},17}}", rf"\d{{{width}}}"]  # the longer first: in a list nothing follows an item
        return FieldType("|".join(shapes), int, lambda value: f"{value:0{width}d}", int)
    shapes = [" " * (width - 1) + r"\d"]
    for size in range(2, width + 1):
        more = f"{size - 1}" if size < width else f"{size - 1},17"
        signed = f"{max(size - 2, 0)}" if size < width else f"{max(size - 2, 0)},17"
        shapes.append(" " * (width - size) + rf"(?:[1-9]\d{{{more}}}|-[1-9]\d{{{signed}}})")
    return FieldType("|".join(shapes), int, lambda value: f"{value:{width}d}", int)


def _make_fixed(width: int, digits: int) -> FieldType:
    longest = _FLOAT_DIGITS - digits
    shapes = []
    for sign in ("", "-"):
        whole = 1
        while (size := len(sign) + whole + 1 + digits) < width:
            number = rf"[1-9]\d{{{whole - 1}}}" if whole > 1 else r"\d"
            shapes.append(" " * (width - size) + rf"{sign}{number}\.\d{{{digits}}}")
            whole += 1
        number = rf"[1-9]\d{{{whole - 1},{longest - 1}}}" if whole > 1 else rf"(?:0|[1-9]\d{{0,{longest - 1}}})"
        shapes.append(rf"{sign}{number}\.\d{{{digits}}}")
    return FieldType("|".join(shapes), float, lambda value: f"{value:{width or ''}.{digits}f}", float)


def _word(data: bytes) -> str:
    """Return a text that many lines have, which is kept once."""
    return intern(decode(data))


_PLAIN = {
    "": FieldType(_INT, int, str, int),
    "h": FieldType(r"0|[1-9a-f][0-9a-f]{0,15}", lambda data: int(data, 16), lambda value: f"{value:x}", int),
    "p": FieldType(r"\(nil\)|0x[0-9a-f]{1,16}", _word, str, str),
    "id": FieldType(r"[0-9a-f]{1,16}", _word, str, str),
    "num": FieldType(r"-?(?:\d{1,18}(?:\.\d{1,12})?(?:e[+-]\d{2,3})?|inf|nan)", decode, str, str),
    "i": FieldType(r"-?\d{1,20}", decode, str, str),
    "v": FieldType(r"[A-Za-z_][A-Za-z0-9_]*", _word, str, str, run="[A-Za-z0-9_]"),
    "w": FieldType(r"[^ ]+", _word, str, str, run="[^ ]"),
    "n": FieldType(r"[^/]+", decode, str, str, run="[^/]"),
    "c": FieldType(r"[^ :\[\]]+", decode, str, str, run=r"[^ :\[\]]"),
    "e": FieldType(r"(?:(?!No such file|End of sequence).)+", decode, str, str, free=True),
    "hx": FieldType(r"[0-9A-F]{1,16}", _word, str, str),
    "b": FieldType(r" *", decode, str, str, run=" "),
    "sig": FieldType("|".join((r"\d{1,2}", r"(?:Signals\.)?SIG[A-Z0-9]{2,9}", *signals.WORDS)), decode, str, str),
    "t": FieldType(r".*", decode, str, str, free=True),
}


_MAX_RUN = 512  # characters of a name whose end depends on the rest of the message


class ListType(Frozen):
    """``{x:*frag}``: any number of a fragment, read as a tuple of its value or of the tuple of its values."""

    fragment: Shape

    @property
    def pattern(self) -> str:
        """Return the pattern of the list as a whole: groups of the fragment would only cost time."""
        without_groups = re.sub(r"(?<!\\)\((?!\?)", "(?:", self.fragment.pattern)
        return f"(?:{without_groups})*"

    def read(self, data: bytes) -> Value:
        """Return the items of a matched list."""
        if self.fragment.is_numbers:
            items = self.fragment.regex.findall(data)
            if not items or not isinstance(items[0], tuple):
                return tuple(map(int, items))
            known: dict[tuple[bytes, ...], tuple[int, ...]] = {}
            for item in items:  # most differ only in the first number, the channel
                if item[1:] not in known:
                    known[item[1:]] = tuple(map(int, item[1:]))
            return tuple((int(item[0]), *known[item[1:]]) for item in items)
        rows = []
        for match in self.fragment.regex.finditer(data):
            values = tuple(self.fragment.values(match).values())
            rows.append(values[0] if len(values) == 1 else values)
        return tuple(rows)

    def write(self, value: object) -> str:
        """Return the list as printed."""
        assert isinstance(value, tuple)
        names = self.fragment.names
        items = (dict(zip(names, item if len(names) > 1 else (item,), strict=True)) for item in value)
        return "".join(self.fragment.write(item, tuple(_options_taken(self.fragment.nodes, item))) for item in items)


class Shape:
    """Compiled notation: a pattern with one group for each field and for each option of each choice.

    Matching takes time in proportion to the length of the message, whatever it holds, though Python's matcher tries
    again wherever it can. Three things see to it. What ends at the first place where the next free text can begin is
    never tried again (an atomic group), as with wildcards of a shell: if the rest fits after a later place, it fits
    after the first. A run of characters that what follows cannot begin with is never given back (possessive). Any other
    run is limited in length.

    Args:
        nodes: the result of :func:`nccl_inspect.grammar.notation.parse`.
        fragments: shapes that may repeat, by name.
        whole: whether nothing follows: False for a fragment.
    """

    def __init__(self, nodes: Sequence, fragments: Mapping[str, Shape] | None = None, whole: bool = True) -> None:
        self.nodes = nodes
        self.fragments = fragments or {}
        self._whole = whole
        self._searching = False  # whether free text precedes: then each position is tried for what follows
        self.fields: list[tuple[str, FieldType | ListType, int]] = []
        """The name, type and group of each field; options may share a name."""
        self._options: list[int] = []
        self._groups = 0
        self.pattern = self._compile(nodes, last=True)
        self.regex = re.compile(self.pattern.encode(), re.DOTALL)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the fields, each once, in order."""
        return tuple(dict.fromkeys(name for name, _, _ in self.fields))

    @cached_property
    def is_numbers(self) -> bool:
        """Return whether all fields are numbers with different names, none of them optional."""
        kinds = [isinstance(kind, FieldType) and kind.read is int for _, kind, _ in self.fields]
        return all(kinds) and len(kinds) == self._groups == len(self.names)

    def _group(self) -> int:
        self._groups += 1
        return self._groups

    def _compile(self, nodes: Sequence, last: bool) -> str:
        parts: list[str] = []
        free: int | None = None  # the position in ``parts`` of the free text whose end is open
        for index, node in enumerate(nodes):
            rest = nodes[index + 1 :]
            if _has_free(node):
                if free is not None and (ahead := _list_beginnings(nodes[index:], last and self._whole)):
                    parts[free:] = [f"(?>{''.join(parts[free:])}(?={'|'.join(ahead)}))"]
                free = len(parts) if isinstance(node, Field) else None
            match node:
                case Literal(text):
                    parts.append(re.escape(text))
                case Field(name, spec):
                    kind = self._type(spec)
                    self.fields.append((name, kind, self._group()))
                    parts.append(f"({self._field_pattern(kind, rest, last)})")
                    self._searching |= _has_free(node)
                case Choice(options, optional):
                    branches = []
                    for option in options:
                        self._options.append(self._group())
                        branches.append(f"({self._compile(option, last and not rest)})")
                    parts.append(f"(?:{'|'.join(branches)})" + ("?" if optional else ""))
        return "".join(parts)

    def _field_pattern(self, kind: FieldType | ListType, rest: Sequence, last: bool) -> str:
        """Return the pattern of a field that ``rest`` follows."""
        final = last and not rest and self._whole
        if isinstance(kind, ListType):
            return kind.pattern
        if kind.free:
            return kind.pattern if final else f"{kind.pattern}?"
        if not kind.run:
            return kind.pattern
        start, least = kind.pattern[: -len(kind.run) - 1], int(kind.pattern.endswith("+"))
        run, item = kind.run, list[str]()  # how an item of a list begins, if one may follow
        if rest and isinstance(rest[0], Field) and rest[0].spec.startswith("*"):
            item = leads(self.fragments[rest[0].spec[1:]].nodes)
        elif not rest and last and not self._whole:
            item = leads(self.nodes)
        if item := [text for text in item if re.match(kind.run, text)]:
            run = f"(?:(?!{'|'.join(map(re.escape, item))}){run})"  # it ends where an item of the list begins
        following = leads(rest) if rest else [""]
        if final or not any(text == "" or re.match(kind.run, text) for text in following):
            return f"{start}{run}{{{least},{_MAX_RUN}}}+" if self._searching else f"{start}{run}{'*+'[least]}+"
        return f"{start}{run}{{{least},{_MAX_RUN}}}"

    def _type(self, spec: str) -> FieldType | ListType:
        if not spec.startswith("*"):
            return field_type(spec)
        try:
            return ListType(self.fragments[spec[1:]])
        except KeyError:
            raise GrammarError(f"no such fragment: '{spec[1:]}'") from None

    def values(self, match: re.Match[bytes]) -> dict[str, Value]:
        """Return the named values of a match; fields of options not taken are None."""
        groups = match.groups()
        values: dict[str, Value] = {}
        for name, kind, group in self.fields:
            data = groups[group - 1]
            if data is not None:
                values[name] = kind.read(data)
            elif name not in values:
                values[name] = None
        return values

    def options_taken(self, match: re.Match[bytes]) -> tuple[bool, ...]:
        """Return whether the message took each option of each choice: :meth:`write` needs it besides the values."""
        return tuple(match[group] is not None for group in self._options)

    def open_spans(self, match: re.Match[bytes], words: bool = True) -> list[tuple[int, int]]:
        """Return the spans of the free texts of a match, and of its words, in order."""
        kinds = ((kind, group) for _, kind, group in self.fields if isinstance(kind, FieldType))
        spans = [match.span(group) for kind, group in kinds if kind.free or (words and kind.run)]
        return sorted(span for span in spans if span[0] >= 0)

    def write(self, values: Mapping[str, Value], taken: tuple[bool, ...]) -> str:
        """Return the text with these values and options."""
        options = iter(taken)
        text = self._write(self.nodes, values, options, wanted=True)
        assert next(options, None) is None
        return text

    def _write(self, nodes: Sequence, values: Mapping[str, Value], taken: Iterator[bool], wanted: bool) -> str:
        text = ""
        for node in nodes:
            if isinstance(node, Literal):
                text += node.text
            elif isinstance(node, Field):
                text += self._type(node.spec).write(values[node.name]) if wanted else ""
            else:
                for option in node.options:  # those not taken have their own options
                    chosen = next(taken)
                    inside = self._write(option, values, taken, wanted and chosen)
                    text += inside if chosen else ""
        return text


def _has_free(node: Node) -> bool:
    return any(field.spec in ("t", "e") for field in fields((node,)))


def _list_beginnings(nodes: Sequence, last: bool) -> list[str] | None:
    """Return the possible beginnings of nodes, as patterns; None if unknown."""
    if not nodes:
        return [r"\Z"] if last else None
    first = nodes[0]
    if isinstance(first, Field):
        return [""]
    if isinstance(first, Choice) and first.optional:
        after = _list_beginnings(nodes[1:], last)
        texts = [text for option in first.options for text in leads(option)]
        return None if after is None or "" in texts else [*map(re.escape, texts), *after]
    texts = leads(nodes)
    return None if "" in texts else list(map(re.escape, texts))


def _options_taken(nodes: Sequence, values: Mapping[str, Value]) -> Iterator[bool]:
    """Yield the options of an item of a list: those whose fields have a value."""
    for node in nodes:
        for option in node.options if isinstance(node, Choice) else ():
            yield any(values[field.name] is not None for field in fields(option))
            yield from _options_taken(option, values)


_PATTERN_TOKEN = compile_later(
    rb"(?P<open>\((?:\?[:>=!])?)|(?P<close>\)(?:(?:[*+?]|\{[\d,]*\})[?+]?)?)|\||\\Z"
    rb"|(?P<atom>\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|.)(?:(?P<times>[*+?]|\{(?P<least>\d*)(?:,\d*)?\})[?+]?)?",
    re.DOTALL,
)  # the parts of what :class:`Shape` writes
_NEVER = b"(?!"  # opens a negative lookahead, which a message that ends there satisfies


_SPACING = compile_later(r"(?:\\ )*(?<!\?):\\ |(?:\\ )+|['\"`]")  # in what :class:`Shape` writes


def loosen(pattern: str) -> str:
    """Return the pattern of messages with single blanks that differ in those before a colon, and in quotes only."""
    return _SPACING.sub(lambda sign: r" ?: " if ":" in sign[0] else " " if " " in sign[0] else "['\"`]", pattern)


@lru_cache(maxsize=256)
def beginning(pattern: bytes) -> Callable[[bytes, int], bool]:
    """Return a test whether bytes up to a place can begin a message that a pattern matches: ``re`` has no such matches.

    The package ``regex`` has them. It is compiled, and where Python runs without compiled packages, as in a browser,
    the pattern of a shape is rewritten instead: at the end of the message everything that is still to come counts as
    matched.
    """
    try:
        import regex  # only diagnostics need partial matches; `re` compiles and matches faster
    except ImportError:
        own = re.compile(rewrite_for_beginnings(pattern), re.DOTALL)
        return lambda message, end: own.fullmatch(message, 0, end) is not None
    made = regex.compile(pattern, regex.DOTALL)
    return lambda message, end: made.fullmatch(message, endpos=end, partial=True) is not None


def rewrite_for_beginnings(pattern: bytes) -> bytes:
    """Return the pattern of all beginnings of the messages that a pattern matches."""
    made, depth, closes = list[bytes](), 0, 0
    for token in _PATTERN_TOKEN.finditer(pattern):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if token["open"] == _NEVER and not closes:  # what may not follow stays as it is
            closes = depth
        atom, times = token["atom"], token["times"] or b"+"
        least = int(token["least"] or 0) if times[:1] == b"{" else times == b"+"
        if closes or atom is None or least == 0:
            made.append(token[0])
        else:
            fewer = b"%s{0,%d}" % (atom, least - 1) if least > 1 else b""
            made.append(b"(?:%s|%s\\Z)" % (token[0], fewer))
        closes = 0 if depth < closes else closes
    return b"".join(made)
