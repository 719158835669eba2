"""Files of evidence without names, as files of the same form: pickles, JSON, YAML and what tools print.

Texts are replaced where they stand: all else stays as it is written.

``artifacts/names.toml`` states for a kind (:class:`nccl_inspect.artifacts.Kind`) keys with one of :data:`MEANINGS`. A
value under a key that it does not state is masked, unless it tells nothing: a number, a time, a word that every system
has.
"""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from nccl_inspect.artifacts import Kind, NotOfKindError, containers, tools
from nccl_inspect.artifacts.plain_pickle import loads
from nccl_inspect.extras.anonymize import text as texts
from nccl_inspect.extras.anonymize.anonymizer import Anonymizer
from nccl_inspect.util import secrets
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
    """Knows where the next text stands, with the values of ``name`` by the numbers of the mappings.

    These come from a first reading, since a name may follow the thing that it names.
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


def json_pieces(text: str, places: Places, change: Change, other: Callable[[str], str]) -> Iterator[str]:
    """Yield a JSON document with its texts replaced, and text around it."""
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
    """Yield a YAML document with texts and names of anchors replaced, without comments: they may say anything."""
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
    changed: dict[tuple[Keys, str, bool], str] = {}  # by the keys above them: calls repeat each other
    originals: list[Any] = []  # kept, so that none of them gives its identity to another one

    def copy(value: Any, path: Keys, *, is_key: bool = False, is_element: bool = False) -> Any:
        if isinstance(value, str):
            text = path, value, is_key
            if text not in changed:
                changed[text] = change(Place(path, "", is_key, is_element), value)
            return changed[text]
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


# Files of one kind

MEANINGS = texts.LISTS["meanings"]
_MASKED = "masked"
_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_JOINED = re.compile(r"[\s/@]")
_SIMPLE = re.compile(r"[A-Za-z0-9_-]+")
_DIGITS = re.compile(r"\d+")
_SERIAL = re.compile(r"\d{11,}")  # a number that somebody gave: fewer digits may count seconds
_ACCOUNT = re.compile(r"\d{12}")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F-]{6,}")
_OPTION = re.compile(r"--?[\w-]+")
_LISTED = re.compile(r"[\s,]+")
_PORT = re.compile(r"([^:]+)(:\d+)")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*=)(.*)", re.DOTALL)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_PROTOCOL = 2  # the one that PyTorch writes: lengths in four bytes, so that no letter precedes a text
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_WORDS_OF_LINE = re.compile(r"[^\r\n]+")
_MAX_REMEMBERED = 100_000
_PER_BLOCK = 2_000  # texts that are looked over for names at once


def stated_names(kind: str) -> dict[str, str]:
    """Return the keys that are known of a kind of evidence, with their meanings."""
    import tomllib

    table = tomllib.loads(Path(tools.__file__).with_name("names.toml").read_text(encoding="utf-8"))
    meanings: dict[str, list[str]] = table.get(kind, {})
    return {key: meaning for meaning, keys in meanings.items() for key in keys}


class Evidence:
    """Learns names from files of one kind, and writes these without them."""

    def __init__(self, kind: Kind, anonymizer: Anonymizer) -> None:
        self._kind, self._anonymizer, self._scrubber = kind, anonymizer, anonymizer.scrubber
        self._names = anonymizer.names
        self._stated: dict[str, str] = stated_names(kind.name)
        keys = "|".join(re.escape(key) for key in sorted(self._stated, key=len, reverse=True))
        source = rf"""(?<![\w/:])(?P<key>{keys})(?:(?<=[ ])|[ \t]*[:=][ \t]*["']?)(?P<value>[^\s"'<>()]+)"""
        self._value_in_text = re.compile(source if keys else r"(?!)")
        """A value in text: after ``UserId=`` or ``Board ID : ``, or after a key that ends with a blank."""
        self._option: tuple[tuple[str, ...], str] = ((), "")  # the word before, of a command
        self._texts: dict[str, None] = {}  # what is read like a log, each once
        self._meaning = lru_cache(_MAX_REMEMBERED)(self._find_meaning)
        self._replace = lru_cache(_MAX_REMEMBERED)(lambda meaning, text: self._ways.get(meaning, self._mask)(text))
        self._ways: dict[str, Callable[[str], str]] = {
            "kept": str,
            "secret": lambda text: text if text == secrets.MASK else self._names.get("secret", text),
            "host": self._hosts,
            "user": lambda text: self._name("user", text),
            **dict.fromkeys(
                ("name", "object"),
                lambda text: text if text.lower() in texts.message_words() else self._name("name", text),
            ),
            **dict.fromkeys(("label", "text"), self._scrub),
            "path": self._path,
            "image": self._image,
            "id": self._id,
            "guid": lambda text: self._id(text, "guid"),
            "mac": lambda text: self._names.get("mac", text) if ":" in text else self._mask(text),
            "variable": self._variable,
            "key": lambda text: self._key(text, is_own=True),
            "schema": lambda text: self._key(text, is_own=False),
        }

    def _change(self, data: bytes, change: Change, other: Callable[[str], str]) -> Iterator[bytes]:
        if _PICKLE.match(data):
            yield pickle.dumps(copy_values(loads(data), change), _PROTOCOL)
            return
        text = decode(data.removeprefix(b"\xef\xbb\xbf"))
        pieces: Pieces
        if text.lstrip()[:1] in ("{", "[") and not self._kind.start:
            pieces = json_pieces
        elif self._kind.is_yaml:
            text = data.decode("utf-8-sig", "replace")
            pieces, other = yaml_pieces, lambda mark: change(Place(("name",)), mark)
        else:
            yield from (encode(other(line[0])) for line in _LINE.finditer(text))
            return
        names: dict[int, str] = {}
        for _ in pieces(text, Places(names), lambda _, old: old, str):
            pass
        yield from map(encode, pieces(text, Places(names), change, other))

    def _find_meaning(self, path: tuple[str, ...]) -> str:
        ends = (".".join(path[-size:]) for size in (3, 2, 1))
        within = (f"{key}.*" for key in reversed(path[:-1]))
        stated = (self._stated[key] for key in (*ends, *within) if key in self._stated)
        meaning = next((word if word in MEANINGS else _MASKED for word in stated), _MASKED)
        return "secret" if path and secrets.is_secret(path[-1]) and meaning == _MASKED else meaning

    def _interpret(self, place: Place, text: str) -> tuple[str, str, str]:
        """Return what a value names, the value alone, and with what tells more of it: its variable or option."""
        meaning = self._meaning(place.path)
        if meaning == "setting":
            assigned = _ASSIGNED.fullmatch(text) if place.is_element else None
            name, text = assigned.groups() if assigned else (f"{place.name}=", text)
            is_relevant = containers.is_relevant(name[:-1])
            meaning = "secret" if secrets.is_secret(name[:-1]) else "text" if is_relevant else _MASKED
            return meaning, text, name + text
        if meaning == "command":
            path, option = self._option
            self._option = place.path, text
            if path == place.path:
                is_secret = place.is_element and _OPTION.fullmatch(option) and secrets.is_secret(option)
                return "secret" if is_secret else "text", text, f"{option} {text}"
            meaning = "text"
        return meaning, text, ""

    # First reading

    def learn(self, data: bytes) -> None:
        """Take the names out of a file; a ValueError says that it is damaged, so that it cannot be written either."""
        if self._kind.start:
            if tools.is_of_job(data):
                raise NotOfKindError
            self._anonymizer.learned.names["host"] |= tools.hosts(data, self._kind.start)
        for _ in self._change(data, self._learn_value, self._learn_text):
            pass
        self._learn_texts()

    def _learn_value(self, place: Place, text: str) -> str:
        if place.is_key or not text:
            return text
        meaning, value, whole = self._interpret(place, text)
        learned, inside = self._anonymizer.learned.names, [whole]
        if meaning == "host":
            listed = texts.split_hosts(value) if "[" in value or "," in value else value.split()
            names = (_PORT.sub(r"\1", name) for name in listed)
            learned["host"].update(
                name for name in names if name and not texts.is_address(name) and not _is_no_host(name)
            )
        elif meaning == "secret":
            learned["secret"].add(value)
        elif meaning in ("user", "object", "name", "label"):
            learned["label" if meaning == "name" else meaning].add(value.strip("/-"))
        elif meaning == "image":
            inside.append(f"image: {value}")
        elif whole or meaning in ("text", "path") or (meaning == _MASKED and _JOINED.search(value)):
            inside.append(value)
        self._keep_texts(inside)
        return text

    def _learn_text(self, text: str) -> str:
        self._keep_texts([text.strip("\r\n")])
        for match in self._value_in_text.finditer(text):
            self._learn_value(Place((match["key"],)), match["value"])
        return text

    def _keep_texts(self, some: list[str]) -> None:
        self._texts.update(dict.fromkeys(filter(None, some)))
        if len(self._texts) > _PER_BLOCK:
            self._learn_texts()

    def _learn_texts(self) -> None:
        self._anonymizer.learned.learn(encode("\n".join(self._texts) + "\n"))
        self._texts.clear()

    # Second reading

    def blocks(self, data: bytes) -> Iterator[bytes]:
        """Yield the file with everything replaced; a ValueError says that it is damaged."""
        remove_names = self._anonymizer.remove_names

        def change_text(text: str) -> str:
            pieces, at = [], 0
            for match in self._value_in_text.finditer(text):
                start, end = match.span("value")
                pieces += [self._scrub(text[at:start]), self._change_value(Place((match["key"],)), match["value"])]
                at = end
            return remove_names("".join([*pieces, self._scrub(text[at:])]))

        return self._change(data, lambda place, text: remove_names(self._change_value(place, text)), change_text)

    def _change_value(self, place: Place, text: str) -> str:
        if not text:
            return text
        if place.is_key:
            return self._replace("key" if place.path and place.path[-1] in texts.LISTS["own-keys"] else "schema", text)
        meaning, value, _ = self._interpret(place, text)
        return text[: len(text) - len(value)] + (value and self._replace(meaning, value))

    def _scrub(self, text: str) -> str:
        return _WORDS_OF_LINE.sub(lambda match: self._scrubber.text(match[0]), text)

    def _hosts(self, text: str) -> str:
        if "[" in text:
            return self._scrubber.text(text)
        hosts = []
        for listed in _LISTED.split(text):
            match = _PORT.fullmatch(listed)
            name, port = match.groups() if match else (listed, "")
            is_known = not name or texts.is_address(name) or self._scrubber.known.get(name)
            if is_known or not _is_no_host(name):
                new = self._scrubber.host(name)
                listed = (new if is_known or new != name else self._names.get("host", name)) + port
            hosts.append(listed)
        return ",".join(hosts)

    def _name(self, category: str, text: str) -> str:
        name = text.strip("/-")
        if known := self._scrubber.known.get(name):
            new = known
        elif _SERIAL.fullmatch(name):
            new = self._names.get("hash", name)
        elif not name or _DIGITS.fullmatch(name) or name.lower() in texts.ACCOUNTS or _tells_nothing(name):
            return text
        elif texts.OF_WORD["uuid"].fullmatch(name):
            return self._id(text)
        else:
            new = self._names.get(category, name)
        return text.replace(name, new, 1)

    def _path(self, text: str) -> str:
        if text.startswith("<"):
            return text
        if "://" in text:
            return self._scrubber.text(text)
        is_path = text.startswith(("/", "~", "./", "../"))
        return self._scrubber.path(text) if is_path else self._scrubber.path(f"/{text}")[1:]

    def _image(self, text: str) -> str:
        """Replace ``registry/path/name:tag@digest``."""
        scheme, sign, rest = text.rpartition("://")
        rest, at, digest = rest.partition("@")
        *above, last = rest.split("/")
        last, colon, tag = last.partition(":")
        if last in ("sha256", "sha512"):
            return f"{scheme}{sign}{last}:{self._id(tag)}"
        parts = [
            self._repository(part)
            if "." not in part
            else part
            if part in texts.PUBLIC_DOMAINS
            else self._names.get("site", part)
            for part in above
        ]
        new_tag = tag if texts.OF_WORD["version"].fullmatch(tag) else tag and self._names.get("name", tag)
        algorithm, second, digits = digest.partition(":")
        end = f"{at}{algorithm}{second}{self._id(digits)}" if at else ""
        return f"{scheme}{sign}{'/'.join([*parts, self._repository(last)])}{colon}{new_tag}{end}"

    def _repository(self, part: str) -> str:
        return part if part in texts.LIBRARIES or part == "library" else self._name("name", part)

    def _id(self, text: str, category: str = "hash") -> str:
        scheme, sign, identifier = text.rpartition("://")
        if not identifier.removeprefix("GPU").strip("0x:-"):
            return text
        front, dash, uuid = identifier.partition("-")
        if texts.OF_WORD["uuid"].fullmatch(identifier):
            return scheme + sign + self._names.get("uuid", identifier)
        if dash and texts.OF_WORD["uuid"].fullmatch(uuid):
            return f"{scheme}{sign}{front}-{self._names.get('uuid', uuid)}"
        if category == "guid":
            return self._names.get("guid", text) if any(map(str.isdigit, text)) else text
        if _HEXADECIMAL.fullmatch(identifier):
            return scheme + sign + self._names.get("hash", identifier)
        return self._mask(text)

    def _variable(self, text: str) -> str:
        is_of_all = containers.is_relevant(text) or text.lower().partition("_")[0] in texts.LISTS["variables"]
        return text if is_of_all or _tells_nothing(text) else self._name("name", text)

    def _key(self, text: str, is_own: bool) -> str:
        domain, slash, name = text.rpartition("/")
        if slash:
            if texts.is_public(domain) or domain in texts.PUBLIC_DOMAINS:
                return f"{domain}/{self._scrubber.text(name)}"
            front = self._names.get("site", domain) if "." in domain else self._name("key", domain)
            return f"{front}/{self._scrubber.text(name) if front == domain else self._name('key', name)}"
        if is_own:
            return self._name("key", text)
        return text if _KEY.fullmatch(text) or _is_harmless(text) else self._scrubber.text(text)

    def _mask(self, text: str) -> str:
        if replacement := self._scrubber.known.get(text):
            return replacement
        if texts.is_address(text):
            return self._scrubber.text(text)
        if _is_harmless(text):
            return text
        if texts.OF_WORD["uuid"].fullmatch(text):
            return self._id(text)
        return self._names.get("name" if _SIMPLE.fullmatch(text) else "secret", text)


def _is_no_host(name: str) -> bool:
    return _DIGITS.fullmatch(name) is not None or name.lower() in texts.LISTS["no-hosts"]


def _tells_nothing(name: str) -> bool:
    return texts.is_plain(name) and not texts.is_address(name) and not _ACCOUNT.search(name)


def _is_harmless(text: str) -> bool:
    if _ACCOUNT.fullmatch(text):
        return False
    return texts.OF_WORD["innocuous"].fullmatch(text) is not None or (
        _SIMPLE.fullmatch(text) is not None and _tells_nothing(text)
    )
