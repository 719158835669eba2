"""Texts of JSON, YAML and plain values, replaced where they stand: all else stays as it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from nccl_inspect.util.text import decode, encode

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


Keys = tuple[str, ...]


class Place(NamedTuple):
    """Holds where a text stands."""

    path: Keys  # the keys around it, without places in sequences; the last one is its own
    name: str = ""  # the value of its sibling key `name`
    is_key: bool = False
    is_element: bool = False  # one of a sequence


Change = Callable[[Place, str], str]  # gives the replacement for a text


@dataclass(slots=True)
class _Open:
    """A mapping or sequence that is not at its end."""

    path: tuple[str, ...]
    is_mapping: bool
    number: int
    key: str | None = None


class Places:
    """Knows where the next text stands.

    Args:
        names: the values of ``name`` by the numbers of the mappings, from a first reading, since a name may follow the
            thing that it names.
    """

    def __init__(self, names: dict[int, str]) -> None:
        self._open = [_Open((), is_mapping=False, number=0)]
        self._names = names
        self._count = 0

    def begin(self, is_mapping: bool) -> None:
        """Enter a mapping or sequence."""
        if len(self._open) > _MAX_DEPTH:
            raise ValueError(f"nested more than {_MAX_DEPTH} deep")
        top = self._open[-1]
        if top.is_mapping and top.key is None:
            top.key = ""  # YAML lets anything be a key
        self._count += 1
        self._open.append(_Open((*top.path, top.key or "") if top.is_mapping else top.path, is_mapping, self._count))

    def end(self) -> None:
        """Leave one; more ends than beginnings are damage, and none of ours."""
        if len(self._open) > 1:
            self._open.pop()
        self.next_entry()

    def next_entry(self) -> None:
        """Take what comes now as a key, in a mapping."""
        self._open[-1].key = None

    def take(self, text: str) -> Place:
        """Return where a text stands that comes now."""
        top = self._open[-1]
        if not top.is_mapping:
            return Place(top.path, is_element=True)
        key, top.key = top.key, text if top.key is None else None
        if key is None:
            return Place(top.path, is_key=True)
        if key == "name":
            self._names[top.number] = text
        return Place((*top.path, key), self._names.get(top.number, ""))


Pieces = Callable[[str, Places, Change, Callable[[str], str]], Iterator[str]]


def change_document(text: str, pieces: Pieces, change: Change, other: Callable[[str], str]) -> Iterator[str]:
    """Yield a document with its texts replaced, piece by piece.

    Args:
        pieces: :func:`json_pieces`, or :func:`yaml_pieces`.
        other: gives the replacement for text around JSON, and for the name of an anchor in YAML.

    Raises:
        ValueError: it is not YAML.
    """
    names: dict[int, str] = {}
    for _ in pieces(text, Places(names), lambda _, old: old, str):
        pass
    yield from pieces(text, Places(names), change, other)


def json_pieces(text: str, places: Places, change: Change, other: Callable[[str], str]) -> Iterator[str]:
    """Yield a JSON document with its texts replaced."""
    at = 0
    tokens: Iterator[re.Match[str] | None] = chain(_TOKEN.finditer(text), [None])
    for match in tokens:
        gap = text[at : match.start() if match else None]
        yield gap if _PLAIN_GAP.fullmatch(gap) else other(gap)
        if match is None:
            return
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
            try:
                old = json.loads(piece, strict=False)
            except ValueError:  # an escape that is none
                old = piece[1:-1]
            new = change(places.take(old), old)
            piece = piece if new == old else json.dumps(new)
        yield piece


def yaml_pieces(text: str, places: Places, change: Change, mark: Callable[[str], str]) -> Iterator[str]:
    """Yield a YAML document with its texts replaced, and without its comments: they may say anything."""
    import yaml  # takes some time to load

    def mark_comments(piece: str) -> str:
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
                places.take("")
            elif kind == "ScalarEvent":
                start, end = event.start_mark.index, event.end_mark.index
                if (event.anchor or event.tag) and (properties := _PROPERTIES.match(text, start)):
                    start = min(properties.end(), end)
                yield mark_comments(text[at:start])
                yield _yaml_scalar(text[start:end], event, change, places.take(event.value))
                at = end
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        raise ValueError(f"no YAML{f' in line {where.line + 1}' if where else ''}") from None
    yield mark_comments(text[at:])


def _yaml_scalar(source: str, event: Any, change: Change, place: Place) -> str:
    """Write a text; it takes as many lines as before, since findings name lines."""
    import yaml

    if event.style in _BLOCK:
        head, *lines = source.split("\n")
        for at, line in enumerate(lines):
            if words := line.strip():
                lines[at] = line[: len(line) - len(line.lstrip())] + change(place, words)
        return "\n".join([_COMMENT.sub("#", head), *lines])
    new = change(place, event.value)
    if new == event.value:
        return source
    if not event.style and not event.tag:  # what is not a text for a reader stays what it is
        kind = yaml.resolver.Resolver().resolve(yaml.ScalarNode, event.value, (True, False)).rpartition(":")[2]
        if kind in ("null", "bool"):
            return source
        if kind in ("int", "float"):
            digits = _LAST_NUMBER.search(new)  # that of its replacement, ``redacted-1``
            return f"{int(digits[0]) if digits else 0}{'.0' if kind == 'float' else ''}"
    lines = source.split("\n")
    if len(lines) == 1 and not event.style and _SAFE.fullmatch(new):
        return new
    blank = max((line[: len(line) - len(line.lstrip())] for line in lines[1:]), key=len, default="")
    return json.dumps(new, ensure_ascii=False)[:-1] + f"\\\n{blank}" * (len(lines) - 1) + '"'


def copy_values(value: Any, change: Change) -> Any:
    """Return plain values with other texts; what shares parts shares them in the copy."""
    copies: dict[tuple[int, Keys], Any] = {}
    texts: dict[tuple[Keys, str, bool], str] = {}  # by the keys above them: calls repeat each other
    originals: list[Any] = []  # kept, so that none of them gives its identity to another one

    def copy(value: Any, path: Keys, *, is_key: bool = False, is_element: bool = False) -> Any:
        if isinstance(value, str):
            text = path, value, is_key
            if text not in texts:
                texts[text] = change(Place(path, "", is_key, is_element), value)
            return texts[text]
        if isinstance(value, bytes | bytearray):
            return encode(change(Place(path), decode(bytes(value))))
        if not isinstance(value, dict | list | tuple | set | frozenset):
            return value
        one = id(value), path
        if one in copies:
            return copies[one]
        originals.append(value)
        if isinstance(value, dict):
            mapping = copies[one] = {}
            for key, entry in value.items():
                inner = (*path, str(key) if isinstance(key, str | int) else "")[-3:]
                mapping[copy(key, path, is_key=True)] = copy(entry, inner)
        elif isinstance(value, list):
            entries = copies[one] = []
            entries.extend(copy(entry, path, is_element=True) for entry in value)
        else:
            copies[one] = type(value)(copy(entry, path, is_element=True) for entry in value)
        return copies[one]

    return copy(value, ())
