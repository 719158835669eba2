"""Files of evidence without names, as files of the same form: pickles, JSON, YAML and what tools print.

A kind (:class:`nccl_inspect.artifacts.Kind`) may state ``NAMES``: keys with one of :data:`MEANINGS`. A key is the last
one above a value, or the last ones, joined by dots; ``labels.*`` is any key of ``labels``. A value under a key that it
does not state is masked, unless it tells nothing: a number, a time, a word that every system has.
"""

from __future__ import annotations

import ipaddress
import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple

from nccl_inspect.artifacts import Kind, containers, machine
from nccl_inspect.artifacts.plain_pickle import loads
from nccl_inspect.extras.anonymize.anonymizer import Anonymizer
from nccl_inspect.extras.anonymize.names import (
    ACCOUNTS,
    LIBRARIES,
    LISTS,
    PUBLIC_DOMAINS,
    is_plain,
    is_public,
    message_words,
    split_hosts,
)
from nccl_inspect.extras.anonymize.text import Scrubber
from nccl_inspect.util import secrets
from nccl_inspect.util.text import decode, encode

# --- texts in JSON and YAML, where they stand ---------------------------------------------------------------------


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
    name: str = ""
    """The value of its sibling key ``name``."""
    is_key: bool = False
    is_element: bool = False
    """One of a sequence."""


Change = Callable[[Place, str], str]
"""Gives the replacement for a text."""


@dataclass(slots=True)
class _Open:
    """A mapping or sequence that is not at its end."""

    path: tuple[str, ...]
    is_mapping: bool
    number: int
    key: str | None = None

    def path_inside(self) -> tuple[str, ...]:
        """Return the path of what stands here."""
        return (*self.path, self.key or "") if self.is_mapping else self.path


class _Places:
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
        self._open.append(_Open(top.path_inside(), is_mapping, self._count))

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
        if top.key is None:
            top.key = text
            return Place(top.path, is_key=True)
        if top.key == "name":
            self._names[top.number] = text
        place = Place(top.path_inside(), self._names.get(top.number, ""))
        top.key = None
        return place


def change_document(text: str, form: str, change: Change, other: Callable[[str], str]) -> Iterator[str]:
    """Yield a document with its texts replaced, piece by piece.

    Args:
        form: ``json``, or ``yaml``, which loses its comments: they may say anything.
        other: gives the replacement for text around JSON, and for the name of an anchor in YAML.

    Raises:
        ValueError: it is not YAML.
    """
    pieces = _yaml_pieces if form == "yaml" else _json_pieces
    names: dict[int, str] = {}
    for _ in pieces(text, _Places(names), lambda _, old: old, str):
        pass
    yield from pieces(text, _Places(names), change, other)


def _json_pieces(text: str, places: _Places, change: Change, other: Callable[[str], str]) -> Iterator[str]:
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


def _yaml_pieces(text: str, places: _Places, change: Change, mark: Callable[[str], str]) -> Iterator[str]:
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


# --- meanings -----------------------------------------------------------------------------------------------------


MEANINGS = frozenset(
    (
        *("host", "user", "object", "name", "label", "secret", "path", "text", "command", "variable", "setting"),
        *("image", "id", "guid", "mac", "key", "kept"),
    )
)
"""Names: of hosts, users, objects (from whose names others are made), of anything, or of it unless it is a word of
messages. Of a variable, and its value, alone or behind its name. A command, or a word of one."""
_MASKED = "masked"
_LEARNED = ("host", "user", "object", "name", "label", "secret")
_TEXTS = ("text", "command", "path", "setting")
_NO_HOSTS = ("localhost", "none", "null", "(null)", "~")
"""What stands where a host would, and is none."""
_OWN_KEYS = ("labels", "annotations", "matchLabels", "nodeSelector", "Labels", "data", "stringData", "binaryData")
"""Mappings whose keys somebody chose."""
_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_INNOCUOUS = re.compile(
    r"[-+]?\d[\d.,:]*(?:[eE][-+]?\d+)?\s?(?:%|[A-Za-z]{1,3}(?:/s)?)?|0x[0-9a-fA-F]{1,4}|v\d[\w.]*|[\W_]*"
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?|(?i:true|false|yes|no|on|off|none|null|unknown|n/a)"
)
_JOINED = re.compile(r"[\s/@]")
_SIMPLE = re.compile(r"[A-Za-z0-9_-]+")
_DIGITS = re.compile(r"\d+")
_SERIAL = re.compile(r"\d{11,}")
"""A number that somebody gave: fewer digits may count seconds."""
_ACCOUNT = re.compile(r"\d{12}")
_VERSION = re.compile(r"v?\d[\d.]*(?:-?(?:py|cu|rc|post|dev|ubuntu|runtime|devel|cudnn)[\d.]*)*|latest")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F-]{6,}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VARIABLES = LISTS["variables"]
_SECRET_OPTION = re.compile(r"--?[\w-]+")
_LISTED = re.compile(r"[\s,]+")
_PORT = re.compile(r"([^:]+)(:\d+)")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_MAX_REMEMBERED = 100_000


class Found:
    """Names that one document states."""

    def __init__(self) -> None:
        self.by_meaning: dict[str, set[str]] = {meaning: set() for meaning in _LEARNED}
        self.texts: dict[str, None] = {}
        """What is read like a log, each once."""


class Fields:
    """Finds names in the values of a kind, and replaces them."""

    def __init__(self, stated: Mapping[str, str], scrubber: Scrubber) -> None:
        self._stated = stated
        keys = "|".join(re.escape(key) for key in sorted(stated, key=len, reverse=True))
        source = rf"""(?<![\w/:])(?P<key>{keys})(?:(?<=[ ])|[ \t]*[:=][ \t]*["']?)(?P<value>[^\s"'<>()]+)"""
        self.value_in_text = re.compile(source if keys else r"(?!)")
        """A value in text: after ``UserId=`` or ``Board ID : ``, or after a key that ends with a blank."""
        self._scrubber = scrubber
        self._names = scrubber.names
        self._option: tuple[tuple[str, ...], str] = ((), "")
        """The word before, of a command."""
        self._meaning = lru_cache(_MAX_REMEMBERED)(self._find_meaning)
        self._replace = lru_cache(_MAX_REMEMBERED)(lambda meaning, text: self._ways.get(meaning, self._mask)(text))
        self._ways: dict[str, Callable[[str], str]] = {
            "kept": str,
            "secret": lambda text: text if text == secrets.MASK else self._names.get("secret", text),
            "host": self._host_list,
            "user": lambda text: self._name("user", text),
            **dict.fromkeys(
                ("name", "object"), lambda text: text if text.lower() in message_words() else self._name("name", text)
            ),
            **dict.fromkeys(("label", "text"), lambda text: "\n".join(map(scrubber.text, text.split("\n")))),
            "path": self._path,
            "image": self._image,
            "id": self._id,
            "guid": self._guid,
            "mac": lambda text: self._names.get("mac", text) if ":" in text else self._mask(text),
            "variable": self._variable,
            "key": lambda text: self._key(text, is_own=True),
            "schema": lambda text: self._key(text, is_own=False),
        }

    def _find_meaning(self, path: tuple[str, ...]) -> str:
        """Return what a value names, by the keys above it."""
        ends = (".".join(path[-size:]) for size in (3, 2, 1))
        within = (f"{key}.*" for key in reversed(path[:-1]))
        stated = (self._stated[key] for key in (*ends, *within) if key in self._stated)
        meaning = next((word if word in MEANINGS else _MASKED for word in stated), _MASKED)
        return "secret" if path and secrets.is_secret(path[-1]) and meaning == _MASKED else meaning

    # --- first reading ------------------------------------------------------------------------------------------

    def learn(self, place: Place, text: str, gathered: Found) -> None:
        """Take the names out of one value."""
        if place.is_key or not text:
            return
        meaning = self._meaning(place.path)
        if meaning == "setting":
            name, text = _setting(place, text)
            gathered.texts[f"{name}={text}"] = None
            meaning = "secret" if secrets.is_secret(name) else meaning
        elif meaning == "command":
            meaning = "secret" if self._is_secret_word(place) else meaning
            gathered.texts[f"{self._option[1]} {text}" if self._option[0] == place.path else text] = None
            self._option = place.path, text
        if meaning == "host":
            listed = split_hosts(text) if "[" in text or "," in text else _LISTED.split(text)
            for name in (_PORT.sub(r"\1", name) for name in listed):
                if name and not _is_address(name) and not _DIGITS.fullmatch(name) and name.lower() not in _NO_HOSTS:
                    gathered.by_meaning["host"].add(name)
        elif meaning in gathered.by_meaning:
            gathered.by_meaning[meaning].add(text if meaning == "secret" else text.strip("/-"))
        elif meaning in _TEXTS or (meaning == _MASKED and _JOINED.search(text)):
            gathered.texts[text] = None
        elif meaning == "image":
            gathered.texts[f"image: {text}"] = None

    def _is_secret_word(self, place: Place) -> bool:
        """Return whether the word before is an option that names a secret."""
        path, option = self._option
        is_option = place.is_element and path == place.path and _SECRET_OPTION.fullmatch(option)
        return bool(is_option) and secrets.is_secret(option)

    # --- second reading -----------------------------------------------------------------------------------------

    def change_value(self, place: Place, text: str) -> str:
        """Return the replacement for a value, or for a key."""
        if not text:
            return text
        if place.is_key:
            return self._replace("key" if place.path and place.path[-1] in _OWN_KEYS else "schema", text)
        meaning = self._meaning(place.path)
        if meaning == "setting":
            name, value = _setting(place, text)
            meaning = "secret" if secrets.is_secret(name) else "text" if containers.is_relevant(name) else _MASKED
            return text[: len(text) - len(value)] + (value and self._replace(meaning, value))
        if meaning == "command":
            is_secret = self._is_secret_word(place)
            self._option = place.path, text
            meaning = "secret" if is_secret else "text"
        return self._replace(meaning, text)

    def _variable(self, text: str) -> str:
        is_common = containers.is_relevant(text) or text.lower().partition("_")[0] in _VARIABLES or _tells_nothing(text)
        return text if is_common else self._name("name", text)

    def _host_list(self, text: str) -> str:
        if "[" in text:
            return self._scrubber.text(text)
        return ",".join(self._host(name) for name in _LISTED.split(text))

    def _host(self, text: str) -> str:
        match = _PORT.fullmatch(text)
        name, port = match.groups() if match else (text, "")
        is_known = not name or _is_address(name) or self._scrubber.find_known(name)
        if not is_known and (_DIGITS.fullmatch(name) or name.lower() in _NO_HOSTS):
            return text
        new = self._scrubber.host(name)
        return (new if is_known or new != name else self._names.get("host", name)) + port

    def _name(self, category: str, text: str) -> str:
        name = text.strip("/-")
        front, _, end = text.partition(name) if name else (text, "", "")
        if replacement := self._scrubber.find_known(name):
            return front + replacement + end
        if _SERIAL.fullmatch(name):
            return front + self._names.get("hash", name) + end
        if not name or _DIGITS.fullmatch(name) or name.lower() in ACCOUNTS or _tells_nothing(name):
            return text
        if _UUID.fullmatch(name):
            return self._id(text)
        return front + self._names.get(category, name) + end

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
            if part in PUBLIC_DOMAINS
            else self._names.get("site", part)
            for part in above
        ]
        new_tag = tag if _VERSION.fullmatch(tag) else tag and self._names.get("name", tag)
        algorithm, second, digits = digest.partition(":")
        end = f"{at}{algorithm}{second}{self._id(digits)}" if at else ""
        return f"{scheme}{sign}{'/'.join([*parts, self._repository(last)])}{colon}{new_tag}{end}"

    def _repository(self, part: str) -> str:
        return part if part in LIBRARIES or part == "library" else self._name("name", part)

    def _id(self, text: str) -> str:
        scheme, sign, identifier = text.rpartition("://")
        if not identifier.removeprefix("GPU").strip("0x:-"):
            return text
        front, dash, uuid = identifier.partition("-")
        if _UUID.fullmatch(identifier):
            return scheme + sign + self._names.get("uuid", identifier)
        if dash and _UUID.fullmatch(uuid):
            return f"{scheme}{sign}{front}-{self._names.get('uuid', uuid)}"
        if _HEXADECIMAL.fullmatch(identifier):
            return scheme + sign + self._names.get("hash", identifier)
        return self._mask(text)

    def _guid(self, text: str) -> str:
        """Replace a GUID, LID or serial number."""
        uuid = text.partition("-")[2]
        if not text.strip("0x:-") or _UUID.fullmatch(text) or _UUID.fullmatch(uuid):
            return self._id(text)
        return self._names.get("guid", text) if any(map(str.isdigit, text)) else text

    def _key(self, text: str, is_own: bool) -> str:
        domain, slash, name = text.rpartition("/")
        if slash:
            if is_public(domain) or domain in PUBLIC_DOMAINS:
                return f"{domain}/{self._scrubber.text(name)}"
            front = self._names.get("site", domain) if "." in domain else self._name("key", domain)
            return f"{front}/{self._scrubber.text(name) if front == domain else self._name('key', name)}"
        if is_own:
            return self._name("key", text)
        return text if _KEY.fullmatch(text) or _is_harmless(text) else self._scrubber.text(text)

    def _mask(self, text: str) -> str:
        if replacement := self._scrubber.find_known(text):
            return replacement
        if _is_address(text):
            return self._scrubber.text(text)
        if _is_harmless(text):
            return text
        if _UUID.fullmatch(text):
            return self._id(text)
        return self._names.get("name" if _SIMPLE.fullmatch(text) else "secret", text)


def _setting(place: Place, text: str) -> tuple[str, str]:
    """Return name and value of a variable: the name is before the value or in a sibling key."""
    assigned = _ASSIGNED.fullmatch(text) if place.is_element else None
    return (assigned[1], assigned[2]) if assigned else (place.name, text)


@cache
def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _tells_nothing(name: str) -> bool:
    """Return whether a name tells nothing, and hides no address or number that does."""
    return is_plain(name) and not _is_address(name) and not _ACCOUNT.search(name)


def _is_harmless(text: str) -> bool:
    if _ACCOUNT.fullmatch(text):
        return False
    return _INNOCUOUS.fullmatch(text) is not None or (_SIMPLE.fullmatch(text) is not None and _tells_nothing(text))


# --- files --------------------------------------------------------------------------------------------------------


_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_WORDS_OF_LINE = re.compile(r"[^\r\n]+")
_PROTOCOL = 2
"""The one that PyTorch writes: lengths in four bytes, so that no letter precedes a text."""
_MAX_TEXTS = 20_000
_PER_BLOCK = 2_000
"""Lines that are looked over for names at once."""

Keys = tuple[str, ...]


class Evidence:
    """Learns names from files of evidence, and writes these without them."""

    def __init__(self, anonymizer: Anonymizer) -> None:
        self._anonymizer = anonymizer
        self._fields: dict[Kind, Fields] = {}

    def learn(self, kind: Kind, name: str, data: bytes) -> None:
        """Take the names out of a file.

        Raises:
            ValueError: it is damaged, so that it cannot be written either.
            NotOfKindError: it is a log.
        """
        gathered = Found()
        fields = self._fields_of(kind)

        def learn_value(place: Place, text: str) -> str:
            fields.learn(place, text, gathered)
            if len(gathered.texts) > _MAX_TEXTS:
                self._learn_texts(gathered)
            return text

        def learn_text(text: str) -> str:
            gathered.texts[text.strip("\r\n")] = None
            for match in fields.value_in_text.finditer(text):
                fields.learn(Place((match["key"],)), match["value"], gathered)
            if len(gathered.texts) > _MAX_TEXTS:
                self._learn_texts(gathered)
            return text

        if hasattr(kind, "START"):
            gathered.by_meaning["host"].update(machine.hosts(data, kind.START))
        for _ in _change_pieces(kind, data, learn_value, learn_text):
            pass
        self._learn_texts(gathered)
        for meaning, names in gathered.by_meaning.items():
            self._anonymizer.learned.names["label" if meaning == "name" else meaning] |= names

    def _fields_of(self, kind: Kind) -> Fields:
        if kind not in self._fields:
            self._fields[kind] = Fields(getattr(kind, "NAMES", {}), self._anonymizer.scrubber)
        return self._fields[kind]

    def _learn_texts(self, gathered: Found) -> None:
        lines = [*gathered.texts]
        gathered.texts.clear()
        for at in range(0, len(lines), _PER_BLOCK):
            self._anonymizer.learned.learn(encode("\n".join(lines[at : at + _PER_BLOCK]) + "\n"))

    def blocks(self, kind: Kind, data: bytes) -> Iterator[bytes]:
        """Yield the file with everything replaced.

        Raises:
            ValueError: it is damaged.
        """
        fields, remove_names = self._fields_of(kind), self._anonymizer.remove_names

        def change_value(place: Place, text: str) -> str:
            return remove_names(fields.change_value(place, text))

        def scrub(text: str) -> str:
            return _WORDS_OF_LINE.sub(lambda match: self._anonymizer.scrubber.text(match[0]), text)

        def change_text(text: str) -> str:
            pieces, at = [], 0
            for match in fields.value_in_text.finditer(text):
                start, end = match.span("value")
                pieces += [scrub(text[at:start]), fields.change_value(Place((match["key"],)), match["value"])]
                at = end
            return remove_names("".join([*pieces, scrub(text[at:])]))

        for text in _change_pieces(kind, data, change_value, change_text):
            yield text if isinstance(text, bytes) else encode(text)


def _change_pieces(
    kind: Kind, data: bytes, change: Change, other: Callable[[str], str]
) -> Iterator[bytes] | Iterator[str]:
    """Yield a file with changed texts, by its form."""
    if _PICKLE.match(data):
        return iter([pickle.dumps(_Walk(change).copy(loads(data), ()), _PROTOCOL)])
    text = decode(data.removeprefix(b"\xef\xbb\xbf"))
    if text.lstrip()[:1] in ("{", "[") and not hasattr(kind, "START"):
        return change_document(text, "json", change, other)
    if getattr(kind, "FORM", "") == "yaml":
        text = data.decode("utf-8-sig", "replace")
        return change_document(text, "yaml", change, lambda mark: change(Place(("name",)), mark))
    return (other(line[0]) for line in _LINE.finditer(text))


class _Walk:
    """Copies plain values with other texts; what shares parts shares them in the copy."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._copies: dict[tuple[int, Keys], Any] = {}
        self._texts: dict[tuple[Keys, str, bool], str] = {}
        """By the keys above them, and whether they are keys themselves: calls repeat each other."""
        self._originals: list[Any] = []
        """Kept, so that none of them gives its identity to another one."""

    def copy(self, value: Any, path: Keys, *, is_key: bool = False, is_element: bool = False) -> Any:
        """Return a copy of what a pickle holds; the path has the last keys above it."""
        if isinstance(value, str):
            text = path, value, is_key
            if text not in self._texts:
                self._texts[text] = self._change(Place(path, "", is_key, is_element), value)
            return self._texts[text]
        if isinstance(value, bytes | bytearray):
            return encode(self._change(Place(path), decode(bytes(value))))
        if not isinstance(value, dict | list | tuple | set | frozenset):
            return value
        one = id(value), path
        if one in self._copies:
            return self._copies[one]
        self._originals.append(value)
        if isinstance(value, dict):
            mapping = self._copies[one] = {}
            for key, entry in value.items():
                inner = (*path, str(key) if isinstance(key, str | int) else "")[-3:]
                mapping[self.copy(key, path, is_key=True)] = self.copy(entry, inner)
        elif isinstance(value, list):
            entries = self._copies[one] = []
            entries.extend(self.copy(entry, path, is_element=True) for entry in value)
        else:
            self._copies[one] = type(value)(self.copy(entry, path, is_element=True) for entry in value)
        return self._copies[one]
