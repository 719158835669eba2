"""Text without names: the scrubber goes by the shape of what surrounds a name, the last pass by the names alone.

Both are linear in the length of the text.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from nccl_inspect.extras.anonymize.names import (
    ACCOUNTS,
    EXPRESSION,
    KEPT_ROOTS,
    LIBRARIES,
    LISTS,
    PUBLIC_PLACES,
    Names,
    expand,
    is_address,
    is_plain,
    is_public,
    is_rare,
    message_words,
)
from nccl_inspect.util.secrets import replace_secrets
from nccl_inspect.util.text import encode, read_parts
from nccl_inspect.util.wording import fold_names

# --- the scrubber -------------------------------------------------------------------------------------------------


_MAX_REMEMBERED = 200_000
_SHAPES = read_parts(__file__, "shapes.txt")
OF_WORD = {  # what a whole word may be
    name[3:]: re.compile(pattern, re.VERBOSE | re.ASCII) for name, pattern in _SHAPES.items() if name[:3] == "of-"
}
_ANY = "|".join(f"(?P<{name}>{pattern})" for name, pattern in _SHAPES.items() if name[:3] != "of-")
_FINDERS = re.compile(rf"(?P<hosts>(?<![\w.-]){EXPRESSION})|(?=[\w/~:\".\\])(?:{_ANY})", re.VERBOSE | re.ASCII)
_IPV6 = re.compile(r"(?i)(?:[0-9a-f]+:){7}[0-9a-f]+$|[0-9a-f]{4}:|::ffff:")
"""What is an address for sure: ``12:34:56`` and ``a::b`` are not."""
_PARTS = re.compile(r"([._-]+)")
_LINE_OF_SECRET = re.compile(r"\S[^\r\n]*")
_NUMBERED = re.compile(r"(?=[A-Za-z]+\d)[A-Za-z0-9]{4,}")
"""``gpu17``, ``r1i0n1``: a host that is called so is one wherever it stands, though ``gpu`` is a word."""
_MIN_STEM = 4  # letters of a name that is known with a number behind it, too
_MAX_PARTS = 60


class Scrubber:
    """Puts replacements into texts."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.known: dict[str, str] = {}  # the names of the table, in capitals or not, with what stands for them
        self._distinct: dict[str, str] = {}
        self._token = lru_cache(_MAX_REMEMBERED)(self._new_token)  # the same ones come again and again
        get = names.get
        self._ways: dict[str, Callable[[re.Match[str], bool], str]] = {
            "hosts": lambda found, structural: self._hosts(found[0], structural),
            "dashes": lambda found, _: get("guid", found[0]),
            "identifier": lambda found, _: found["stated"] + get("guid", found["guid"]),
            "number": lambda found, _: names.table["cloud"].get(found[0], found[0]),
            "escape": lambda found, _: found[0],
            "printer": lambda found, _: f"{self._printer(found['host'])}:",
            "url": lambda found, _: found["scheme"] + self._url(found["target"]),
            "email": lambda found, _: get("email", found[0]),
            "path": lambda found, _: self.path(found[0]),
            "colons": lambda found, structural: self._colons(found[0], structural),
            "behind": lambda found, structural: (
                f"{self._token(found['interface'][:-1], structural)}:{self._colons(found['there'], structural)}"
            ),
            "address": lambda found, _: self._ipv4(found[0]) or found[0],
            "arn": lambda found, _: found["service"] + get("cloud", found["account"]),
            "quoted": lambda found, structural: (
                f'"{self.known.get(found["inner"]) or self.text(found["inner"], structural)}"'
            ),
            "placed": lambda found, _: (
                found["before"] + (self._ipv4(found["name"]) or self._token(found["name"], True))
            ),
            "inside": lambda found, _: self._inside(found),
        }
        self.refresh()

    def refresh(self) -> None:
        """Take over what the table holds by now."""
        table = self.names.table
        for category in ("domain", "name", "user", "host"):
            self.known.update(table[category])
        for name, new in [*self.known.items()]:
            forms: tuple[str, ...] = ()
            if name.isalpha() and len(name) > 2:
                forms = name.lower(), name.upper(), name.capitalize()
            elif name in table["host"] and is_distinct(name):
                forms = name.lower(), name.upper()
            for form in forms:
                self.known.setdefault(form, new)
        numbered = set(filter(_NUMBERED.fullmatch, table["host"])) - message_words()
        self._distinct = {
            name: new for name, new in self.known.items() if name in numbered or is_distinct(name) or is_rare(name)
        }
        self._token.cache_clear()

    def text(self, text: str, structural: bool = False) -> str:
        """Return the text with everything replaced.

        Args:
            structural: whether short common words count as names, too: in what precedes a message.
        """

        def replace(found: re.Match[str]) -> str:
            way = self._ways.get(found.lastgroup or "")
            return way(found, structural) if way else self._token(found[0], structural)

        return _FINDERS.sub(replace, self.hide_secrets(text))

    def hide_secrets(self, text: str) -> str:
        """Return the text with the secrets replaced that a name announces; lines stay lines."""
        return replace_secrets(
            text, lambda found: _LINE_OF_SECRET.sub(lambda line: self.names.get("secret", line[0]), found)
        )

    def host(self, name: str) -> str:
        """Return the replacement for a host under any of its names."""
        return self.known.get(name) or self.text(name, structural=True)

    def _hosts(self, text: str, structural: bool) -> str:
        """Replace a list of hosts in brackets, or what only looks like that."""
        listed = expand(text)
        if self.names.table["host"].keys().isdisjoint(listed):
            return re.sub(r"[\w.-]+", lambda match: self._token(match[0], structural), text)
        return ",".join(fold_names(self.names.get("host", name) for name in listed))

    def _printer(self, host: str) -> str:
        """Replace the host of a prefix; where a line was torn before it, the end of the text there."""
        for start in range(len(host)):
            if new := self.names.table["host"].get(host[start:]):
                return self.text(host[:start]) + new
        return self.text(host, structural=True)

    def _inside(self, found: re.Match[str]) -> str:
        if is_public(found["site"]) or PUBLIC_PLACES.match(found["inside"]):
            return found["inside"]
        return self.host(found["site"]) + found["port"] + self.path(found["below"])

    def _url(self, rest: str) -> str:
        place, slash, path = rest.partition("/")
        login, at, place = place.rpartition("@")
        host, colon, port = place.partition(":")
        if not host or is_public(host) or PUBLIC_PLACES.match(rest):
            return rest
        new = self.host(host)
        if new == host and not (is_address(host) or is_plain(host)):
            new = self.names.get("site", host)
        login = f"{self.names.get('secret', login.rpartition(':')[2])}@" if at else ""
        return f"{login}{new}{colon}{port}" + (self.path(slash + path) if slash else "")

    def path(self, path: str) -> str:
        """Replace a path: directories that every system has stay, others are replaced one by one."""
        if path.startswith(KEPT_ROOTS):
            return "/".join(self._token(part, False) for part in path.split("/"))
        parts = re.split(r"(\\?/)", path)
        last = max((index for index, part in enumerate(parts) if part and index % 2 == 0), default=0)
        for index in range(0, len(parts), 2):
            before = parts[index - 2] if index >= 2 else ""
            if before in ("site-packages", "dist-packages") and parts[index] in LIBRARIES:
                break
            if parts[index]:
                parts[index] = self._part(parts[index], before, index == last)
        return "".join(parts)

    def _part(self, part: str, before: str, is_last: bool) -> str:
        if part.startswith("~") and part != "~":
            return "~" + self.names.get("user", part[1:])
        replacement = self._token(part, False)
        if replacement != part:
            return replacement
        if before in ("home", "Users", "users") and part not in ACCOUNTS:
            return self.known.get(part) or self.names.get("user", part)
        if is_plain(part):
            return part
        stem, dot, suffix = part.rpartition(".")
        if is_last and stem and suffix.isalnum() and not suffix.isdigit():
            return self.names.get("file", stem) + dot + suffix
        return self.names.get("directory", part)

    def _colons(self, text: str, structural: bool) -> str:
        if OF_WORD["mac"].fullmatch(text):
            groups = set(text.split(":"))
            return text if groups <= {"00"} or groups <= {"ff"} else self.names.get("mac", text)
        if OF_WORD["guid"].fullmatch(text):
            return self.names.get("guid", text)
        if _IPV6.match(text) and is_address(text):
            return text if _is_kept(text) else self.names.get("ipv6", text)
        return re.sub(r"[\w.]+", lambda match: self._token(match[0], structural), text)

    def _ipv4(self, text: str) -> str:
        """Return the replacement for an address; nothing for what is none."""
        return "" if not is_address(text) else text if _is_kept(text) else self.names.get("ipv4", text)

    def _new_token(self, token: str, structural: bool) -> str:
        names = self.known if structural else self._distinct
        if token in names:
            return names[token]
        for category in ("secret", "cloud", "hash", "host"):
            if category == "host" and token.partition(".")[0] in self.known:
                break
            if OF_WORD[category].fullmatch(token):
                return self.names.get(category, token)
        token = OF_WORD["uuid"].sub(
            lambda match: self.names.get("uuid", match[0]) if match[0].strip("0-") else match[0], token
        )
        is_known = token.partition(".")[0] in self.known
        if OF_WORD["site"].fullmatch(token) and not is_public(token) and not is_known:
            return token if PUBLIC_PLACES.match(f"{token}/") else self.names.get("site", token)
        return self.replace_in_parts(token, self._distinct)

    def replace_in_parts(self, token: str, known: dict[str, str] | None = None) -> str:
        """Replace the longest names in a word in which they are joined by dots, dashes or underscores.

        Args:
            known: names with what stands for them; all when left out.
        """
        names, parts = self.known if known is None else known, _PARTS.split(token)
        if len(parts) > _MAX_PARTS:
            return token
        out, at = "", 0
        while at < len(parts):
            for end in range(len(parts), at, -2):
                name = "".join(parts[at:end])
                if name in names:
                    out += names[name]
                    rest, words = parts[end:], parts[end + 1 :: 2]  # a domain, not the suffix of a file?
                    is_domain = rest[:1] == ["."] and not any(map(str.isdigit, words))
                    if is_domain and words[-1] not in LISTS["suffixes"] and name in self.names.table["host"]:
                        return out + "." + self.names.get("domain", "".join(rest[1:]))
                    at = end - 1
                    break
            else:
                out += _replace_affixed(parts[at], names)
            if at + 1 < len(parts):
                out += parts[at + 1]
            at += 2
        return out


def _replace_affixed(part: str, names: dict[str, str]) -> str:
    """Replace a name with something before or behind it: ``libacme``, the interface ``zenith0``."""
    library = part[3:] if part.startswith("lib") else ""
    if library in names:
        return f"lib{names[library]}"
    stem = part.rstrip("0123456789")
    if stem == part or len(stem) < _MIN_STEM or not stem.isalpha() or stem not in names:
        return part
    return f"{names[stem]}x{part[len(stem) :]}"


def _is_kept(text: str) -> bool:
    """Return whether an address is the same everywhere, a mask, or rather a version."""
    address = ipaddress.ip_address(text)
    address = getattr(address, "ipv4_mapped", None) or address
    is_mask = address.version == 4 and address.packed[0] in (0, 255)
    return is_mask or address.is_loopback or address.is_unspecified or address.is_multicast


def is_distinct(name: str) -> bool:
    """Return whether a name is one wherever it stands, and no common word."""
    has_digit = any(map(str.isdigit, name))
    if name.isdigit() or is_plain(name):
        return has_digit and any(map(str.isalpha, name)) and "-" in name
    return len(name) >= 5 or has_digit or "-" in name


# --- the names alone ----------------------------------------------------------------------------------------------


_WORD = re.compile(rb"[A-Za-z0-9]+(?:[._@:/+-]+[A-Za-z0-9]+)*")
_NAME_PART = re.compile(r"[A-Za-z0-9]+")
_LONG = 6  # minimum length of a secret: a shorter one occurs in many words
_PLAIN_NAMES = ("host", "user", "name")
_REPORTED = (*_PLAIN_NAMES, "secret", "email", "site", "uuid", "mac", "ipv4", "ipv6", "cloud")
_MIN = 3


def _is_telling(secret: str) -> bool:
    """Return whether a secret is too long to be part of an ordinary word, and none itself."""
    return len(secret) >= _LONG and not is_plain(secret) and secret.lower() not in message_words()


class Finder:
    """Finds names in texts, whatever surrounds them.

    Args:
        names: the table; a name that is a replacement itself is not looked for.
        categories: of the names that are looked for.
        is_wanted: decides by category and name.
    """

    def __init__(self, names: Names, categories: Iterable[str], is_wanted: Callable[[str, str], bool]) -> None:
        given = {new for entries in names.table.values() for new in entries.values()}
        self._starts: dict[str, list[tuple[str, str]]] = {}  # by their first parts, names with what stands for them
        self._harmless: set[bytes] = set()  # words that hold no name
        for category in categories:
            for name, new in names.table[category].items():
                if name not in given and is_wanted(category, name) and (first := _NAME_PART.search(name)):
                    self._starts.setdefault(first[0], []).append((name[first.start() :], new))

    def find(self, text: bytes) -> dict[str, str]:
        """Return the names that a text holds, with what stands for them."""
        found: dict[str, str] = {}
        for encoded in set(_WORD.findall(text)) - self._harmless:
            word = encoded.decode()
            held = {
                name: new
                for part in _NAME_PART.finditer(word)
                for name, new in self._starts.get(part[0], ())
                if word.startswith(name, part.start()) and not word[part.start() + len(name) :][:1].isalnum()
            }
            found |= held
            if not held and len(self._harmless) < _MAX_REMEMBERED:
                self._harmless.add(encoded)
        return found


class Remains:
    """Replaces what is left of names.

    Args:
        names: the table; names of one word without a digit may be words of a message, and stay.
    """

    def __init__(self, names: Names) -> None:
        self._finder = Finder(
            names,
            _PLAIN_NAMES,
            lambda _, name: len(name) >= 4 and is_distinct(name) and ("-" in name or any(map(str.isdigit, name))),
        )
        self._secrets = {encode(name): encode(new) for name, new in names.table["secret"].items() if _is_telling(name)}
        either = b"|".join(map(re.escape, sorted(self._secrets, key=len, reverse=True)))
        self._secret = re.compile(either) if either else None
        """Whatever stands around them: a password may begin and end with anything."""

    def replace_names(self, text: bytes) -> bytes:
        """Return the text without any of the names."""
        if self._secret:
            text = self._secret.sub(lambda match: self._secrets[match[0]], text)
        left = self._finder.find(text)
        for name in sorted(left, key=len, reverse=True):
            whole = rb"(?<![A-Za-z0-9])" + re.escape(encode(name)) + rb"(?![A-Za-z0-9])"
            text = re.sub(whole, encode(left[name]), text)
        return text


class Leaks:
    """Looks for names that are left in what is written."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known = -1
        self.left: dict[str, set[str]] = {}  # the names that are left, by the files

    def look(self, file: str, block: bytes) -> None:
        """Look for the names in whole lines of a file."""
        if self._known != (known := sum(map(len, self._names.table.values()))):
            self._known = known
            self._finder = Finder(self._names, _REPORTED, _is_reported)
        if held := self._finder.find(block):
            self.left.setdefault(file, set()).update(held)


def _is_reported(category: str, name: str) -> bool:
    if category == "secret":
        return _is_telling(name)
    return len(name) >= _MIN and not (category in _PLAIN_NAMES and is_plain(name))


# --- names of files -----------------------------------------------------------------------------------------------


_ADDRESS = re.compile(r"((?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|(?<![A-Za-z0-9])ip(?:-\d{1,3}){4}(?!\d))")


def rename_file(name: str, scrubber: Scrubber) -> str:
    """Return the new name of a file within a folder: known names in it are replaced, and all that is not plain."""
    *above, last = name.split("/")
    stem, dot, suffix = last.rpartition(".")
    if not stem or not suffix.isalnum() or suffix.isdigit() or scrubber.known.get(last):
        stem, dot, suffix = last, "", ""
    folders = [_rename_part(part, "directory", scrubber) for part in above]
    return "/".join([*folders, _rename_part(stem, "file", scrubber)]) + dot + suffix


def _rename_part(part: str, category: str, scrubber: Scrubber) -> str:
    if known := scrubber.known.get(part):
        return known
    new = scrubber.replace_in_parts(_ADDRESS.sub(lambda match: scrubber.host(match[0]), part))
    words = _PARTS.split(new)
    if len(words) > _MAX_PARTS:
        return scrubber.names.get(category, part)
    is_kept = (word.lower() in LISTS["gathered"] or is_plain(word) for word in words)
    return "".join(
        word if kept else scrubber.names.get(category, word) for word, kept in zip(words, is_kept, strict=True)
    )
