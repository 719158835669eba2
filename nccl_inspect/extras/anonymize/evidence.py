"""Files of evidence without names, as files of the same form: pickles, JSON, YAML and what tools print.

``artifacts/names.toml`` states for a kind (:class:`nccl_inspect.artifacts.Kind`) keys with one of :data:`MEANINGS`. A
value under a key that it does not state is masked, unless it tells nothing: a number, a time, a word that every system
has.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from nccl_inspect.artifacts import Kind, NotOfKindError, containers, tools
from nccl_inspect.artifacts.plain_pickle import loads
from nccl_inspect.extras.anonymize.anonymizer import Anonymizer
from nccl_inspect.extras.anonymize.forms import Change, Place, change_document, copy_values, json_pieces, yaml_pieces
from nccl_inspect.extras.anonymize.names import (
    ACCOUNTS,
    LIBRARIES,
    LISTS,
    PUBLIC_DOMAINS,
    is_address,
    is_plain,
    is_public,
    message_words,
    split_hosts,
)
from nccl_inspect.extras.anonymize.text import OF_WORD
from nccl_inspect.util import secrets
from nccl_inspect.util.text import decode, encode

MEANINGS = LISTS["meanings"]
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
                ("name", "object"), lambda text: text if text.lower() in message_words() else self._name("name", text)
            ),
            **dict.fromkeys(("label", "text"), self._scrub),
            "path": self._path,
            "image": self._image,
            "id": self._id,
            "guid": self._guid,
            "mac": lambda text: self._names.get("mac", text) if ":" in text else self._mask(text),
            "variable": lambda text: text if _is_common(text) else self._name("name", text),
            "key": lambda text: self._key(text, is_own=True),
            "schema": lambda text: self._key(text, is_own=False),
        }

    def _change(self, data: bytes, change: Change, other: Callable[[str], str]) -> Iterator[bytes]:
        if _PICKLE.match(data):
            yield pickle.dumps(copy_values(loads(data), change), _PROTOCOL)
            return
        text = decode(data.removeprefix(b"\xef\xbb\xbf"))
        if text.lstrip()[:1] in ("{", "[") and not self._kind.start:
            pieces = change_document(text, json_pieces, change, other)
        elif self._kind.is_yaml:
            text = data.decode("utf-8-sig", "replace")
            pieces = change_document(text, yaml_pieces, change, lambda mark: change(Place(("name",)), mark))
        else:
            pieces = (other(line[0]) for line in _LINE.finditer(text))
        yield from map(encode, pieces)

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

    # --- first reading ------------------------------------------------------------------------------------------

    def learn(self, data: bytes) -> None:
        """Take the names out of a file.

        Raises:
            ValueError: it is damaged, so that it cannot be written either.
            NotOfKindError: it is a log.
        """
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
        learned, texts = self._anonymizer.learned.names, [whole]
        if meaning == "host":
            listed = split_hosts(value) if "[" in value or "," in value else value.split()
            names = (_PORT.sub(r"\1", name) for name in listed)
            learned["host"].update(name for name in names if name and not is_address(name) and not _is_no_host(name))
        elif meaning == "secret":
            learned["secret"].add(value)
        elif meaning in ("user", "object", "name", "label"):
            learned["label" if meaning == "name" else meaning].add(value.strip("/-"))
        elif meaning == "image":
            texts.append(f"image: {value}")
        elif whole or meaning in ("text", "path") or (meaning == _MASKED and _JOINED.search(value)):
            texts.append(value)
        self._keep_texts(texts)
        return text

    def _learn_text(self, text: str) -> str:
        self._keep_texts([text.strip("\r\n")])
        for match in self._value_in_text.finditer(text):
            self._learn_value(Place((match["key"],)), match["value"])
        return text

    def _keep_texts(self, texts: list[str]) -> None:
        self._texts.update(dict.fromkeys(filter(None, texts)))
        if len(self._texts) > _PER_BLOCK:
            self._learn_texts()

    def _learn_texts(self) -> None:
        self._anonymizer.learned.learn(encode("\n".join(self._texts) + "\n"))
        self._texts.clear()

    # --- second reading -----------------------------------------------------------------------------------------

    def blocks(self, data: bytes) -> Iterator[bytes]:
        """Yield the file with everything replaced.

        Raises:
            ValueError: it is damaged.
        """
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
            return self._replace("key" if place.path and place.path[-1] in LISTS["own-keys"] else "schema", text)
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
            is_known = not name or is_address(name) or self._scrubber.known.get(name)
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
        elif not name or _DIGITS.fullmatch(name) or name.lower() in ACCOUNTS or _tells_nothing(name):
            return text
        elif OF_WORD["uuid"].fullmatch(name):
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
            if part in PUBLIC_DOMAINS
            else self._names.get("site", part)
            for part in above
        ]
        new_tag = tag if OF_WORD["version"].fullmatch(tag) else tag and self._names.get("name", tag)
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
        if OF_WORD["uuid"].fullmatch(identifier):
            return scheme + sign + self._names.get("uuid", identifier)
        if dash and OF_WORD["uuid"].fullmatch(uuid):
            return f"{scheme}{sign}{front}-{self._names.get('uuid', uuid)}"
        if _HEXADECIMAL.fullmatch(identifier):
            return scheme + sign + self._names.get("hash", identifier)
        return self._mask(text)

    def _guid(self, text: str) -> str:
        uuid = text.partition("-")[2]
        if not text.strip("0x:-") or OF_WORD["uuid"].fullmatch(text) or OF_WORD["uuid"].fullmatch(uuid):
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
        if replacement := self._scrubber.known.get(text):
            return replacement
        if is_address(text):
            return self._scrubber.text(text)
        if _is_harmless(text):
            return text
        if OF_WORD["uuid"].fullmatch(text):
            return self._id(text)
        return self._names.get("name" if _SIMPLE.fullmatch(text) else "secret", text)


def _is_no_host(name: str) -> bool:
    return _DIGITS.fullmatch(name) is not None or name.lower() in LISTS["no-hosts"]


def _is_common(variable: str) -> bool:
    is_of_all = containers.is_relevant(variable) or variable.lower().partition("_")[0] in LISTS["variables"]
    return is_of_all or _tells_nothing(variable)


def _tells_nothing(name: str) -> bool:
    return is_plain(name) and not is_address(name) and not _ACCOUNT.search(name)


def _is_harmless(text: str) -> bool:
    if _ACCOUNT.fullmatch(text):
        return False
    return OF_WORD["innocuous"].fullmatch(text) is not None or (
        _SIMPLE.fullmatch(text) is not None and _tells_nothing(text)
    )
