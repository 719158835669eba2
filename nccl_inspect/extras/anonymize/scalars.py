"""The texts in JSON and YAML, where they stand: only they change, so that lines, order and layout stay as they are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*+"|[{}\[\],:]')
_PLAIN_GAP = re.compile(r"(?:[\s\d.eE+-]|true|false|null|NaN|Infinity)*+")
_COMMENT = re.compile(r"(?:(?<=\s)|^)#[^\n]*", re.MULTILINE)
_MARK = re.compile(r"([&*])([^\s,\[\]{}]+)|!<[^>\n]*>|(?<![\w!])!(?!!)[^\s,\[\]{}]+")
"""Anchors and aliases, and tags that a program made up."""
_MAX_DEPTH = 100
_COLON = re.compile(r"\s*:")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_SAFE = re.compile(r"(?!(?i:null|true|false|yes|no|on|off|y|n)$)[A-Za-z][\w.@/-]*")
"""What means the same without quotes."""
_LAST_NUMBER = re.compile(r"\d+$")
_BLOCK = ("|", ">")


class Place(NamedTuple):
    """Holds where a text stands."""

    path: tuple[str, ...]
    """The keys around it, without places in sequences; the last one is its own."""
    name: str
    """The value of its sibling key ``name``."""
    is_key: bool = False
    is_element: bool = False
    """One of a sequence."""


Change = Callable[[Place, str], str]
"""Gives the replacement for a text."""


class _Open:
    """A mapping or sequence that is not at its end."""

    def __init__(self, path: tuple[str, ...], is_mapping: bool, number: int, name: str = "") -> None:
        self.path = path
        self.is_mapping = is_mapping
        self.number = number
        self.key: str | None = None
        self.name = name

    def inner(self) -> tuple[str, ...]:
        """The path of what stands here."""
        return (*self.path, self.key or "") if self.is_mapping else self.path


class _Places:
    """Knows where the next text stands.

    Args:
        names: from a first reading, since a name may follow the thing that it names.
    """

    def __init__(self, names: Mapping[int, str] = MappingProxyType({})) -> None:
        self._open = [_Open((), is_mapping=False, number=0)]
        self._known = names
        self._count = 0
        self.names: dict[int, str] = {}
        """The values of ``name``, by the number of the mapping."""

    def begin(self, is_mapping: bool) -> None:
        """A mapping or sequence begins."""
        if len(self._open) > _MAX_DEPTH:
            raise ValueError(f"nested more than {_MAX_DEPTH} deep")
        top = self._open[-1]
        if top.is_mapping and top.key is None:
            top.key = ""  # YAML lets anything be a key
        self._count += 1
        self._open.append(_Open(top.inner(), is_mapping, self._count, self._known.get(self._count, "")))

    def end(self) -> None:
        """One ends; more ends than beginnings are damage, and none of ours."""
        if len(self._open) > 1:
            self._open.pop()
        self._open[-1].key = None

    def next_entry(self) -> None:
        """Take what comes now as a key, in a mapping."""
        self._open[-1].key = None

    def of(self, text: str) -> Place:
        """Return where a text stands that comes now."""
        top = self._open[-1]
        if top.is_mapping and top.key is None:
            top.key = text
            return Place(top.path, "", is_key=True)
        place = Place(top.inner(), top.name if top.is_mapping else "", is_element=not top.is_mapping)
        if top.is_mapping:
            if top.key == "name":
                top.name = self.names[top.number] = text
            top.key = None
        return place


def of_json(text: str, change: Change, other: Callable[[str], str]) -> Iterator[str]:
    """JSON with its texts replaced, piece by piece; anything before or after it that is not JSON is plain text.

    Args:
        text: of the file.
        change: gives the new texts.
        other: gives the replacement for a text that is not JSON.
    """
    before = _Places()
    for _ in _json(text, before, lambda _, old: old, str):
        pass
    yield from _json(text, _Places(before.names), change, other)


def _json(text: str, places: _Places, change: Change, other: Callable[[str], str]) -> Iterator[str]:
    at = 0
    for match in _TOKEN.finditer(text):
        gap = text[at : match.start()]
        yield gap if _PLAIN_GAP.fullmatch(gap) else other(gap)
        piece, at = match[0], match.end()
        if piece in "{[":
            places.begin(piece == "{")
        elif piece in "}]":
            places.end()
        elif piece == ",":
            places.next_entry()
        elif piece != ":":
            if _COLON.match(text, at):
                places.next_entry()  # RAS of 2.28 leaves commas out
            piece = _json_string(piece, places, change)
        yield piece
    gap = text[at:]
    yield gap if _PLAIN_GAP.fullmatch(gap) else other(gap)


def _json_string(token: str, places: _Places, change: Change) -> str:
    try:
        old = json.loads(token, strict=False)
    except ValueError:  # an escape that is none
        old = token[1:-1]
    new = change(places.of(old), old)
    return token if new == old else json.dumps(new)


def of_yaml(text: str, change: Change, mark: Callable[[str], str]) -> Iterator[str]:
    """YAML with other texts, piece by piece; without its comments, which may say anything.

    Args:
        text: of the file.
        change: gives the new texts.
        mark: gives the new name of an anchor.

    Raises:
        ValueError: it is not YAML.
    """
    before = _Places()
    for _ in _yaml(text, before, lambda _, old: old, str):
        pass
    yield from _yaml(text, _Places(before.names), change, mark)


def _yaml(text: str, places: _Places, change: Change, mark: Callable[[str], str]) -> Iterator[str]:
    import yaml  # takes some time to load

    def between(piece: str) -> str:
        return _MARK.sub(lambda match: match[1] + mark(match[2]) if match[1] else "", _COMMENT.sub("#", piece))

    at = 0
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            kind = type(event).__name__
            if kind in ("MappingStartEvent", "SequenceStartEvent"):
                places.begin(kind.startswith("M"))
            elif kind in ("MappingEndEvent", "SequenceEndEvent"):
                places.end()
            elif kind == "AliasEvent":
                places.of("")
            elif kind == "ScalarEvent":
                start, end = event.start_mark.index, event.end_mark.index
                if event.anchor or event.tag:
                    start = min(_end(_PROPERTIES, text, start), end)
                yield between(text[at:start])
                yield _yaml_scalar(text[start:end], event, change, places.of(event.value))
                at = end
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        raise ValueError(f"no YAML{f' in line {where.line + 1}' if where else ''}") from None
    yield between(text[at:])


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _yaml_scalar(source: str, event: Any, change: Change, place: Place) -> str:
    """A text as it is written; it takes as many lines as before, since findings name lines."""
    if event.style in _BLOCK:
        head, *lines = source.split("\n")
        return "\n".join([_COMMENT.sub("#", head), *(_block_line(line, change, place) for line in lines)])
    new = change(place, event.value)
    if new == event.value:
        return source
    if not event.style and not event.tag and (kind := _kind(event.value)) in ("null", "bool", "int", "float"):
        return source if kind in ("null", "bool") else _number(new, is_float=kind == "float")
    lines = source.split("\n")
    if len(lines) == 1 and not event.style and _SAFE.fullmatch(new):
        return new
    blank = max((line[: len(line) - len(line.lstrip())] for line in lines[1:]), key=len, default="")
    return json.dumps(new, ensure_ascii=False)[:-1] + f"\\\n{blank}" * (len(lines) - 1) + '"'


def _kind(text: str) -> str:
    """Return what a reader of YAML takes a text without quotes for: ``str``, ``int``, ``null``."""
    import yaml

    tag: str = yaml.resolver.Resolver().resolve(yaml.ScalarNode, text, (True, False))
    return tag.rpartition(":")[2]


def _number(new: str, is_float: bool) -> str:
    """Return a number in the place of one: that of its replacement, ``redacted-1``."""
    digits = _LAST_NUMBER.search(new)
    return f"{int(digits[0]) if digits else 0}{'.0' if is_float else ''}"


def _block_line(line: str, change: Change, place: Place) -> str:
    text = line.strip()
    return line if not text else line[: len(line) - len(line.lstrip())] + change(place, text)
