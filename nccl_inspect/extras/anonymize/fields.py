"""Replaces the values of evidence by the meaning that its kind gives their keys.

A kind (:class:`nccl_inspect.artifacts.Kind`) may state ``NAMES``: keys with one of :data:`MEANINGS`. A key is the last
one above a value, or the last ones, joined by dots; ``labels.*`` is any key of ``labels``. A value under a key that it
does not state is masked, unless it tells nothing: a number, a time, a word that every system has.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from nccl_inspect.artifacts import containers
from nccl_inspect.extras.anonymize import hostlists, vocabulary
from nccl_inspect.extras.anonymize.scalars import Place
from nccl_inspect.extras.anonymize.text import Scrubber
from nccl_inspect.util import secrets

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
_VARIABLES = vocabulary.LISTS["variables"]
_SECRET_OPTION = re.compile(r"--?[\w-]+")
_LISTED = re.compile(r"[\s,]+")
_PORT = re.compile(r"([^:]+)(:\d+)")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_MAX_REMEMBERED = 100_000


class Found:
    """Holds what one document names."""

    def __init__(self) -> None:
        self.by_meaning: dict[str, set[str]] = {meaning: set() for meaning in _LEARNED}
        self.texts: dict[str, None] = {}
        """What is read like a log, each once."""


class Fields:
    """Finds names in the values of a kind, and replaces them."""

    def __init__(self, stated: Mapping[str, str], scrubber: Scrubber) -> None:
        self._stated = stated
        self._scrubber = scrubber
        self._names = scrubber.names
        self._meanings: dict[tuple[str, ...], str] = {}
        self._option: tuple[tuple[str, ...], str] = ((), "")
        """The word before, of a command."""
        self._known: dict[tuple[str, str], str] = {}
        self._ways: dict[str, Callable[[str], str]] = {
            "kept": str,
            "secret": self._secret,
            "host": self._host_list,
            "user": lambda text: self._name("user", text),
            **dict.fromkeys(("name", "object"), self._label),
            **dict.fromkeys(("label", "text"), self._text),
            "path": self._path,
            "image": self._image,
            "id": self._id,
            "guid": self._guid,
            "mac": self._mac,
            "variable": lambda text: text if _is_common_variable(text) else self._name("name", text),
            "key": lambda text: self._key(text, is_own=True),
            "schema": lambda text: self._key(text, is_own=False),
        }

    def meaning(self, path: tuple[str, ...]) -> str:
        """Return what a value names, by the keys above it."""
        meaning = self._meanings.get(path)
        if meaning is None:
            ends = (".".join(path[-size:]) for size in (3, 2, 1))
            within = (f"{key}.*" for key in reversed(path[:-1]))
            stated = (self._stated[key] for key in (*ends, *within) if key in self._stated)
            meaning = next((word if word in MEANINGS else _MASKED for word in stated), _MASKED)
            if path and secrets.is_secret(path[-1]) and meaning == _MASKED:
                meaning = "secret"
            if len(self._meanings) < _MAX_REMEMBERED:
                self._meanings[path] = meaning
        return meaning

    # --- first reading ------------------------------------------------------------------------------------------

    def learn(self, place: Place, text: str, gathered: Found) -> None:
        """Take the names out of one value."""
        if place.is_key or not text:
            return
        meaning = self.meaning(place.path)
        if meaning == "setting":
            name, text = _setting(place, text)
            gathered.texts[f"{name}={text}"] = None
            meaning = "secret" if secrets.is_secret(name) else meaning
        elif meaning == "command":
            meaning = "secret" if self._is_secret_word(place) else meaning
            gathered.texts[f"{self._option[1]} {text}" if self._option[0] == place.path else text] = None
            self._option = place.path, text
        self.learn_as(meaning, text, gathered)

    @staticmethod
    def learn_as(meaning: str, text: str, gathered: Found) -> None:
        """Take the names out of a text of this meaning."""
        if meaning == "host":
            gathered.by_meaning["host"].update(_hosts(text))
        elif meaning in gathered.by_meaning:
            gathered.by_meaning[meaning].add(text if meaning == "secret" else text.strip("/-"))
        elif meaning in _TEXTS or (meaning == _MASKED and _JOINED.search(text)):
            gathered.texts[text] = None
        elif meaning == "image":
            gathered.texts[f"image: {text}"] = None

    def _is_secret_word(self, place: Place) -> bool:
        """Whether the word before is an option that names a secret."""
        path, option = self._option
        is_option = place.is_element and path == place.path and _SECRET_OPTION.fullmatch(option)
        return bool(is_option) and secrets.is_secret(option)

    # --- second reading -----------------------------------------------------------------------------------------

    def changed(self, place: Place, text: str) -> str:
        """The replacement for a value, or of a key."""
        if not text:
            return text
        if place.is_key:
            return self._remembered("key" if place.path[-1:] and place.path[-1] in _OWN_KEYS else "schema", text)
        meaning = self.meaning(place.path)
        if meaning == "setting":
            name, value = _setting(place, text)
            return text[: len(text) - len(value)] + self._setting(name, value)
        if meaning == "command":
            is_secret = self._is_secret_word(place)
            self._option = place.path, text
            meaning = "secret" if is_secret else "text"
        return self.of(meaning, text)

    def of(self, meaning: str, text: str) -> str:
        """The replacement for a text of this meaning."""
        return self._remembered(meaning, text) if text else text

    def _remembered(self, meaning: str, text: str) -> str:
        key = meaning, text
        if key not in self._known:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = self._ways.get(meaning, self._masked)(text)
        return self._known[key]

    def _secret(self, text: str) -> str:
        return text if text == secrets.MASK else self._names.get("secret", text)

    def _text(self, text: str) -> str:
        return "\n".join(map(self._scrubber.text, text.split("\n")))

    def _label(self, text: str) -> str:
        return text if text.lower() in vocabulary.message_words() else self._name("name", text)

    def _mac(self, text: str) -> str:
        return self._names.get("mac", text) if ":" in text else self._masked(text)

    def _host_list(self, text: str) -> str:
        if "[" in text:
            return self._scrubber.text(text)
        return ",".join(self._host(name) for name in _LISTED.split(text))

    def _host(self, text: str) -> str:
        name, port = text, ""
        if match := _PORT.fullmatch(text):
            name, port = match.groups()
        return self._bare_host(name) + port

    def _bare_host(self, name: str) -> str:
        if not name or _is_address(name) or self._scrubber.known(name):
            return self._scrubber.host(name)
        if _DIGITS.fullmatch(name) or name.lower() in _NO_HOSTS:
            return name
        new = self._scrubber.host(name)
        return new if new != name else self._names.get("host", name)

    def _name(self, category: str, text: str) -> str:
        name = text.strip("/-")
        front, _, end = text.partition(name) if name else (text, "", "")
        if replacement := self._scrubber.known(name):
            return front + replacement + end
        if _SERIAL.fullmatch(name):
            return front + self._names.get("hash", name) + end
        if not name or _DIGITS.fullmatch(name) or name.lower() in vocabulary.ACCOUNTS or _is_plain(name):
            return text
        if _UUID.fullmatch(name):
            return self._id(text)
        return front + self._names.get(category, name) + end

    def _path(self, text: str) -> str:
        if text.startswith("<"):
            return text
        if "://" in text:
            return self._scrubber.text(text)
        return (
            self._scrubber.path(text)
            if text.startswith(("/", "~", "./", "../"))
            else self._scrubber.path(f"/{text}")[1:]
        )

    def _setting(self, name: str, value: str) -> str:
        """The value of a variable."""
        if secrets.is_secret(name):
            return self.of("secret", value)
        return self.of("text" if containers.is_relevant(name) else _MASKED, value)

    def _image(self, text: str) -> str:
        """``registry/path/name:tag@digest``."""
        scheme, sign, rest = text.rpartition("://")
        rest, at, digest = rest.partition("@")
        *above, last = rest.split("/")
        last, colon, tag = last.partition(":")
        if last in ("sha256", "sha512"):
            return f"{scheme}{sign}{last}:{self._id(tag)}"
        parts = [self._registry(part) if "." in part else self._repository(part) for part in above]
        new_tag = tag if _VERSION.fullmatch(tag) else tag and self._names.get("name", tag)
        algorithm, second, digits = digest.partition(":")
        end = f"{at}{algorithm}{second}{self._id(digits)}" if at else ""
        return f"{scheme}{sign}{'/'.join([*parts, self._repository(last)])}{colon}{new_tag}{end}"

    def _registry(self, host: str) -> str:
        return host if host in vocabulary.PUBLIC_DOMAINS else self._names.get("site", host)

    def _repository(self, part: str) -> str:
        return part if part in vocabulary.LIBRARIES or part == "library" else self._name("name", part)

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
        return self._masked(text)

    def _guid(self, text: str) -> str:
        """A GUID, LID or serial number."""
        uuid = text.partition("-")[2]
        if not text.strip("0x:-") or _UUID.fullmatch(text) or _UUID.fullmatch(uuid):
            return self._id(text)
        return self._names.get("guid", text) if any(map(str.isdigit, text)) else text

    def _key(self, text: str, is_own: bool) -> str:
        domain, slash, name = text.rpartition("/")
        if slash:
            is_public = vocabulary.is_public(domain) or domain in vocabulary.PUBLIC_DOMAINS
            if is_public:
                return f"{domain}/{self._scrubber.text(name)}"
            front = self._names.get("site", domain) if "." in domain else self._name("key", domain)
            return f"{front}/{self._scrubber.text(name) if front == domain else self._name('key', name)}"
        if is_own:
            return self._name("key", text)
        return text if _KEY.fullmatch(text) or _is_harmless(text) else self._scrubber.text(text)

    def _masked(self, text: str) -> str:
        if replacement := self._scrubber.known(text):
            return replacement
        if _is_address(text):
            return self._scrubber.text(text)
        if _is_harmless(text):
            return text
        if _UUID.fullmatch(text):
            return self._id(text)
        return self._names.get("name" if _SIMPLE.fullmatch(text) else "secret", text)


def _setting(place: Place, text: str) -> tuple[str, str]:
    """Name and value of a variable: the name is before the value or in a sibling key."""
    assigned = _ASSIGNED.fullmatch(text) if place.is_element else None
    return (assigned[1], assigned[2]) if assigned else (place.name, text)


def _hosts(text: str) -> Iterable[str]:
    listed = hostlists.hosts(text) if "[" in text or "," in text else _LISTED.split(text)
    listed = (_PORT.sub(r"\1", name) for name in listed)
    return (name for name in listed if name and not _is_no_host(name))


def _is_no_host(name: str) -> bool:
    return _is_address(name) or _DIGITS.fullmatch(name) is not None or name.lower() in _NO_HOSTS


@cache
def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_plain(name: str) -> bool:
    """Whether a name tells nothing, and hides no address or number that does."""
    return vocabulary.is_plain(name) and not _is_address(name) and not _ACCOUNT.search(name)


def _is_harmless(text: str) -> bool:
    if _ACCOUNT.fullmatch(text):
        return False
    return _INNOCUOUS.fullmatch(text) is not None or (_SIMPLE.fullmatch(text) is not None and _is_plain(text))


def _is_common_variable(name: str) -> bool:
    return containers.is_relevant(name) or name.lower().partition("_")[0] in _VARIABLES or _is_plain(name)
