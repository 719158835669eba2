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
    SIGN,
    Names,
    expand,
    is_plain,
    is_public,
    is_rare,
    message_words,
)
from nccl_inspect.util.secrets import may_hide, replace_secrets
from nccl_inspect.util.text import decode, encode
from nccl_inspect.util.wording import fold_names

# --- the scrubber -------------------------------------------------------------------------------------------------


_MAX_REMEMBERED = 200_000
_FINDERS = re.compile(
    rf"(?:(?P<hosts>(?<![\w.-]){EXPRESSION})|"
    r"""
    (?=[\w/~:".\\])(?:
    (?P<dashes>(?<![\w.-])(?:(?:[0-9a-fA-F]{2}-){5}[0-9a-fA-F]{2}|(?:[0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4})(?![\w.-]))
    |(?=[bcdfgilnpsBCDFGILNPS])(?P<stated>\b(?:
      (?i:(?:port\ |node\ |image\ |sys\ )?_?guid|(?:board_?)?serial(?:[_\ ]number)?)\s{0,2}[:=]?\s{0,4}(?=\w{5})
      |(?i:(?:base\ |sm\ |[sdf])?lid)\s{0,2}[:=]?\s{0,4}))
      (?P<identifier>(?=[0-9A-Za-z]*\d)(?:0x)?[0-9A-Za-z]{1,40}(?![\w:]))
    |(?P<number>\d++(?:\.\d++)?+(?=[\s,;)]|$))
    |(?P<word>(?!(?:on|ON|node|host(?:name)?|for|user|USER|LOGNAME)\b)[A-Za-z_][\w-]*+(?:\.[\w-]++)*+(?=[\s,;)]|$))
    |(?P<escape>\\(?:[nrtbf"\\]|u[0-9a-fA-F]{4}))
    |(?P<printer>[A-Za-z0-9_][^\s:\[\]<>(){},"'|\\]{0,255}+):(?=\d{1,10}:\d{1,10}(?:\ \[-?\d|\ NCCL\ |$))
    |(?P<scheme>[a-z][a-z0-9+.-]{1,20}+://)(?P<url>[^\s"'<>\\,;()\[\]{}]+)
    |(?P<email>[\w.+-]{1,64}+@[A-Za-z0-9-]{1,63}+(?:\.[A-Za-z0-9-]{1,63}+)+)
    |(?P<path>(?!(?<=<)/[\w.-]+>)(?:(?<![\w.>\]])|(?<=\\[nrt]))(?:~[\w.-]*+|\.{1,2})?/[\w.+@%=~#-]++(?:\\?/[\w.+@%=~#-]++)*+/?)
    |(?P<colons>(?:(?<![\w.:])|(?<=\\[nrt]))(?:[0-9a-fA-F]{0,4}+:){2,19}[0-9a-fA-F]{0,4}(?:\.\d{1,3}){0,3}(?![\w:]))
    |(?P<interface>[A-Za-z][\w.-]{0,30}+:)(?P<behind>(?:[0-9a-fA-F]{0,4}+:){2,7}[0-9a-fA-F]{0,4}(?:\.\d{1,3}){0,3}(?![\w:]))
    |(?P<ipv4>(?<!version\ )(?:(?<![\w.])|(?<=\\[nrt]))\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d))
    |(?P<arn>arn:aws[\w-]{0,10}:[\w-]{0,40}:[\w-]{0,20}:)(?P<account>\d{12})
    |"(?P<quoted>[^"\\\s/:]{1,100}+)"
    |(?P<place>\b(?:on\ node|on|host(?:name)?|node|ON|for|user|USER|LOGNAME)[\ :=]{1,8})
     (?P<placed>(?![\w.-]+\[)(?![\w.+-]{1,64}+@[A-Za-z0-9-]{1,63}+\.\w)[A-Za-z0-9][\w.-]*+)
    |(?P<site>(?:[A-Za-z0-9-]{1,63}+\.){1,8}
      (?:com|org|net|edu|gov|io|ai|cloud|dev|internal|local|corp|lan|intra))
     (?P<port>(?::\d{1,5}+)?+)(?P<inside>(?:/[\w.+%=~#-]++)+/?)
    |(?P<token>[A-Za-z0-9_][\w.-]*+)
    ))
    """,
    re.VERBOSE | re.ASCII,
)
_PLAIN = re.compile(
    r"(?:(?:[A-Za-z_][\w-]*+(?:\.[\w-]++)*+(?:/[A-Za-z]\w{0,20}+|:\d{1,6}+)?+|\d\d:\d\d:\d\d|\d{4}-\d\d-\d\d|\d++(?:\.\d++)?+%?)(?![^\s,;()\[\]|])"
    r"|[\s,;()\[\]|#*+!?<>-]++)*+",
    re.ASCII,
)
"""A text of words and numbers only, in which nothing but words can be names."""
_WORDS = re.compile(r"[A-Za-z_][\w.-]*+", re.ASCII)
_MAC = re.compile(r"(?:[0-9a-fA-F]{2}:){5,19}[0-9a-fA-F]{2}")
_GUID = re.compile(r"(?:[0-9a-fA-F]{4}:){3}[0-9a-fA-F]{4}")
_UUID = re.compile(r"(?i)(?<![0-9A-Za-z])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9A-Za-z])")
_CLOUD = re.compile(r"(?:i|eni|vpc|subnet|sg|vol|ami|fs|lt|rtb|igw|cr|pg)-[0-9a-f]{8,17}")
_HASH = re.compile(r"[0-9a-f]{64}|sha256-[0-9a-f]{64}")
_SECRET = re.compile(
    r"hf_(?=\w*[A-Z0-9])\w{4,}|gh[pousr]_\w{4,}|github_pat_\w{4,}|(?:AKIA|ASIA)[A-Z0-9]{4,}|sk-(?=[\w-]*\d)[\w-]{4,}|"
    r"glpat-[\w-]{2,}|xox[abprs]-[\w-]{4,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*|nvapi-[\w-]{4,}|dapi[0-9a-f]{16,}",
    re.ASCII,
)
_CLOUD_HOST = re.compile(
    r"ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[\w.-]+)?|[\w-]+(?:\.[\w-]+)*\.(?:internal|local|corp|lan|intra)"
)
_PUBLIC_NAME = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\.(?:com|org|net|edu|gov|io|ai|cloud)")
_BEHIND = {"identifier": ("stated", "guid"), "account": ("arn", "cloud")}
"""What stays in front of a find, and what kind of name it is."""
_PARTS = re.compile(r"([._-]+)")
_LINE_OF_SECRET = re.compile(r"\S[^\r\n]*")
_SUFFIXES = LISTS["suffixes"]
_NUMBERED = re.compile(r"(?=[A-Za-z]+\d)[A-Za-z0-9]{4,}")
"""``gpu17``, ``r1i0n1``: a host that is called so is one wherever it stands, though ``gpu`` is a word."""
_MIN_STEM = 4
"""Letters of a name that is known with a number behind it, too."""
_HOMES = ("home", "Users", "users")


class Scrubber:
    """Puts replacements into texts."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._all: dict[str, str] = {}
        self._distinct: dict[str, str] = {}
        self._harmless: set[str] = set()
        """Words that are not names."""
        self._token = lru_cache(_MAX_REMEMBERED)(self._new_token)  # the same ones come again and again
        self.refresh()

    def refresh(self) -> None:
        """Take over what the table holds by now."""
        for category in ("domain", "name", "user", "host"):
            self._all.update(self.names.table[category])
        for name, new in [*self._all.items()]:
            if name.isalpha() and len(name) > 2:
                for other in (name.lower(), name.upper(), name.capitalize()):
                    self._all.setdefault(other, new)
            elif name in self.names.table["host"] and is_distinct(name):
                for other in (name.lower(), name.upper()):
                    self._all.setdefault(other, new)
        numbered = set(filter(_NUMBERED.fullmatch, self.names.table["host"])) - message_words()
        self._distinct = {
            name: new for name, new in self._all.items() if name in numbered or is_distinct(name) or is_rare(name)
        }
        self._token.cache_clear()
        self._harmless.clear()

    def text(self, text: str, structural: bool = False) -> str:
        """Return the text with everything replaced.

        Args:
            structural: whether short common words count as names, too: in what precedes a message.
        """
        is_simple = _PLAIN.fullmatch(text) and not may_hide(text) and not SIGN.search(text)
        words = _WORDS.findall(text) if is_simple else None
        if words is not None and self._harmless.issuperset(words):
            return text
        new = _FINDERS.sub(lambda match: self._replace_match(match, structural), self.hide_secrets(text))
        if words is not None and new == text and len(self._harmless) < _MAX_REMEMBERED:
            self._harmless.update(word for word in words if word not in self._all)
        return new

    def hide_secrets(self, text: str) -> str:
        """Return the text with the secrets replaced that a name announces; lines stay lines."""
        return replace_secrets(
            text, lambda found: _LINE_OF_SECRET.sub(lambda line: self.names.get("secret", line[0]), found)
        )

    def find_known(self, name: str) -> str | None:
        """Return the replacement for a name that the table holds; None where it does not."""
        return self._all.get(name)

    def replace_known(self, text: str) -> str:
        """Return words that are joined by dots and the like, with all known names in them replaced."""
        return self._replace_in_parts(text, self._all)

    def host(self, name: str) -> str:
        """Return the replacement for a host under any of its names."""
        if name in self._all:
            return self._all[name]
        if _is_ipv4(name):
            return self._ipv4(name)
        return self.text(name, structural=True)

    def _replace_match(self, match: re.Match[str], structural: bool) -> str:
        """Return the replacement for a match; the last group that took part names its kind."""
        whole = match[0]
        match match.lastgroup:
            case "number":
                return self.names.table["cloud"].get(whole, whole)
            case "escape":
                return whole
            case "hosts":
                return self._hosts(whole, structural)
            case "dashes":
                return self.names.get("guid", whole)
            case "path":
                return self.path(whole)
            case "colons":
                return self._colons(whole, structural)
            case "ipv4":
                return self._ipv4(whole)
            case "word" | "token":
                return self._token(whole, structural)
        return self._replace_parts(match, structural)

    def _replace_parts(self, match: re.Match[str], structural: bool) -> str:
        """Return the same for what has a part that stays."""
        match match.lastgroup:
            case "printer":
                return f"{self._printer(match['printer'])}:"
            case "url":
                return match["scheme"] + self._url(match["url"])
            case "identifier" | "account" as kind:
                front, category = _BEHIND[kind]
                return match[front] + self.names.get(category, match[kind])
            case "behind":
                interface = self._token(match["interface"][:-1], structural)
                return f"{interface}:{self._colons(match['behind'], structural)}"
            case "quoted":
                return f'"{self._all.get(match["quoted"]) or self.text(match["quoted"], structural)}"'
            case "placed":
                name = match["placed"]
                return match["place"] + (self._ipv4(name) if _is_ipv4(name) else self._token(name, structural=True))
            case "inside":
                if is_public(match["site"]) or PUBLIC_PLACES.match(match[0]):
                    return match[0]
                return self.host(match["site"]) + match["port"] + self.path(match["inside"])
        return self.names.get("email", match[0])

    def _hosts(self, text: str, structural: bool) -> str:
        """Replace a list of hosts in brackets, or what only looks like that."""
        hosts = self.names.table["host"]
        listed = expand(text)
        if hosts.keys().isdisjoint(listed):
            return re.sub(r"[\w.-]+", lambda match: self._token(match[0], structural), text)
        return ",".join(fold_names(self.names.get("host", name) for name in listed))

    def _printer(self, host: str) -> str:
        """Replace the host of a prefix; where a line was torn before it, the end of the text there."""
        for start in range(len(host)):
            if host[start:] in self.names.table["host"]:
                return self.text(host[:start]) + self.names.table["host"][host[start:]]
        return self.text(host, structural=True)

    def _url(self, rest: str) -> str:
        place, slash, path = rest.partition("/")
        login, at, place = place.rpartition("@")
        host, colon, port = place.partition(":")
        if not host or is_public(host) or PUBLIC_PLACES.match(rest):
            return rest
        new = self.host(host)
        if new == host and not (_is_ipv4(host) or is_plain(host)):
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
        if before in _HOMES and part not in ACCOUNTS:
            return self._all.get(part) or self.names.get("user", part)
        if is_plain(part):
            return part
        stem, dot, suffix = part.rpartition(".")
        if is_last and stem and suffix.isalnum() and not suffix.isdigit():
            return self.names.get("file", stem) + dot + suffix
        return self.names.get("directory", part)

    def _colons(self, text: str, structural: bool) -> str:
        if _MAC.fullmatch(text):
            groups = set(text.split(":"))
            return text if groups <= {"00"} or groups <= {"ff"} else self.names.get("mac", text)
        if _GUID.fullmatch(text):
            return self.names.get("guid", text)
        if not _is_ipv6(text):
            return re.sub(r"[\w.]+", lambda match: self._token(match[0], structural), text)
        address = ipaddress.IPv6Address(text)
        inner = address.ipv4_mapped
        if address.is_loopback or address.is_unspecified or address.is_multicast or (inner and _is_kept(inner)):
            return text
        return self.names.get("ipv6", text)

    def _ipv4(self, text: str) -> str:
        is_kept = not _is_ipv4(text) or _is_kept(ipaddress.IPv4Address(text))
        return text if is_kept else self.names.get("ipv4", text)

    def _new_token(self, token: str, structural: bool) -> str:
        names = self._all if structural else self._distinct
        if token in names:
            return names[token]
        for pattern, category in ((_SECRET, "secret"), (_CLOUD, "cloud"), (_HASH, "hash"), (_CLOUD_HOST, "host")):
            if pattern.fullmatch(token) and not (category == "host" and self._knows_start(token)):
                return self.names.get(category, token)
        token = _UUID.sub(lambda match: self.names.get("uuid", match[0]) if match[0].strip("0-") else match[0], token)
        if _PUBLIC_NAME.fullmatch(token) and not is_public(token) and not self._knows_start(token):
            return token if PUBLIC_PLACES.match(f"{token}/") else self.names.get("site", token)
        return self._replace_in_parts(token, self._distinct)

    def _knows_start(self, token: str) -> bool:
        return token.partition(".")[0] in self._all

    def _replace_in_parts(self, token: str, names: dict[str, str]) -> str:
        """Replace the longest names in a word in which they are joined by dots, dashes or underscores."""
        parts = _PARTS.split(token)
        if len(parts) > 60:
            return token
        out, at = "", 0
        while at < len(parts):
            for end in range(len(parts), at, -2):
                name = "".join(parts[at:end])
                if name in names:
                    out += names[name]
                    rest, words = parts[end:], parts[end + 1 :: 2]  # a domain, not the suffix of a file?
                    is_domain = rest[:1] == ["."] and not any(map(str.isdigit, words)) and words[-1] not in _SUFFIXES
                    if is_domain and name in self.names.table["host"]:
                        return out + "." + self.names.get("domain", "".join(rest[1:]))
                    at = end - 1
                    break
            else:
                out += self._replace_affixed(parts[at], names)
            if at + 1 < len(parts):
                out += parts[at + 1]
            at += 2
        return out

    @staticmethod
    def _replace_affixed(part: str, names: dict[str, str]) -> str:
        """Replace a name with something before or behind it: ``libacme``, the interface ``zenith0``."""
        library = part[3:] if part.startswith("lib") else ""
        if library in names:
            return f"lib{names[library]}"
        stem = part.rstrip("0123456789")
        if stem == part or len(stem) < _MIN_STEM or not stem.isalpha() or stem not in names:
            return part
        return f"{names[stem]}x{part[len(stem) :]}"


def _is_kept(address: ipaddress.IPv4Address) -> bool:
    """Return whether an address is the same everywhere, a mask, or rather a version."""
    first = address.packed[0]
    return address.is_loopback or address.is_unspecified or address.is_multicast or first in (0, 255)


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _is_ipv6(text: str) -> bool:
    """Return whether this is an address for sure: ``12:34:56`` and ``a::b`` are not."""
    groups = text.split(":")
    if not (len(groups) == 8 and "" not in groups) and not re.match(r"(?i)[0-9a-f]{4}:|::ffff:", text):
        return False
    if "::" not in text and len(groups) != 8 and "." not in text:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def is_distinct(name: str) -> bool:
    """Return whether a name is one wherever it stands, and no common word."""
    if name.isdigit() or is_plain(name):
        return any(char.isdigit() for char in name) and any(char.isalpha() for char in name) and "-" in name
    return len(name) >= 5 or any(char.isdigit() for char in name) or "-" in name


# --- the names alone ----------------------------------------------------------------------------------------------


_Starts = dict[str, list[tuple[str, str]]]
"""By their first parts, names with what stands for them."""
_JOINED_WORD = re.compile(rb"[A-Za-z0-9]+(?:[._@-]+[A-Za-z0-9]+)*")
_WRITTEN_WORD = re.compile(rb"[A-Za-z0-9]+(?:[._@:/+-]+[A-Za-z0-9]+)*")
_NAME_PART = re.compile(r"[A-Za-z0-9]+")
_FEW = 50
_LONG = 6
"""Minimum length of a secret: a shorter one occurs in many words."""
_PLAIN_NAMES = ("host", "user", "name")
_REPORTED = ("email", "site", "uuid", "mac", "ipv4", "ipv6", "cloud")
_MIN = 3


def _is_word(secret: str) -> bool:
    """Return whether a secret is a word of messages, so that it is one only where a name announces it."""
    return is_plain(secret) or secret.lower() in message_words()


def _index_names(names: Names, categories: Iterable[str], is_wanted: Callable[[str, str], bool]) -> _Starts:
    """Return the wanted names of the table, but for those that are replacements themselves."""
    given = {new for entries in names.table.values() for new in entries.values()}
    starts: _Starts = {}
    for category in categories:
        for name, new in names.table[category].items():
            if name not in given and is_wanted(category, name) and (first := _NAME_PART.search(name)):
                starts.setdefault(first[0], []).append((name[first.start() :], new))
    return starts


def _find_names(word: str, starts: _Starts) -> list[tuple[str, str]]:
    """Return the names that a word holds, with what stands for them."""
    return [
        (name, new)
        for part in _NAME_PART.finditer(word)
        for name, new in starts.get(part[0], ())
        if word.startswith(name, part.start()) and not word[part.start() + len(name) :][:1].isalnum()
    ]


class Remains:
    """Replaces what is left of names.

    Args:
        names: the table; names of one word without a digit may be words of a message, and stay.
    """

    def __init__(self, names: Names) -> None:
        self._starts = _index_names(
            names,
            ("name", "user", "host"),
            lambda _, name: (
                len(name) >= 4 and is_distinct(name) and ("-" in name or any(char.isdigit() for char in name))
            ),
        )
        every = [encode(name) for pairs in self._starts.values() for name, _ in pairs]
        self._few = every if len(every) <= _FEW else None
        """All of them where there are so few that a look for each takes less time than one at every word."""
        # One that is long enough cannot be part of an ordinary word.
        secrets = [(name, new) for name, new in names.table["secret"].items() if len(name) >= _LONG]
        self._secrets = {encode(name): encode(new) for name, new in secrets if not _is_word(name)}
        either = b"|".join(map(re.escape, sorted(self._secrets, key=len, reverse=True)))
        self._secret = re.compile(either) if either else None
        """Whatever stands around them: a password may begin and end with anything."""
        self._harmless: set[bytes] = set()
        """Words that hold no name."""

    def replace_names(self, text: bytes) -> bytes:
        """Return the text without any of the names."""
        if self._secret:
            text = self._secret.sub(lambda match: self._secrets[match[0]], text)
        if self._few is not None and not any(name in text for name in self._few):
            return text
        words = set(_JOINED_WORD.findall(text)) - self._harmless
        left = {name: new for word in words for name, new in _find_names(decode(word), self._starts)}
        for name in sorted(left, key=len, reverse=True):
            whole = rb"(?<![A-Za-z0-9])" + re.escape(encode(name)) + rb"(?![A-Za-z0-9])"
            text = re.sub(whole, encode(left[name]), text)
        if len(self._harmless) > _MAX_REMEMBERED:
            self._harmless.clear()
        if not left:
            self._harmless |= words
        return text


class Leaks:
    """Looks for names that are left in what is written."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known = 0
        self._starts: _Starts = {}
        self._harmless: set[bytes] = set()
        self.left: dict[str, set[str]] = {}
        """The names that are left, by the files."""

    def look(self, file: str, block: bytes) -> None:
        """Look for the names in whole lines of a file."""
        if self._known != (known := sum(map(len, self._names.table.values()))):
            self._known = known
            self._starts = _index_names(self._names, (*_PLAIN_NAMES, "secret", *_REPORTED), _is_reported)
            self._harmless.clear()
        for word in set(_WRITTEN_WORD.findall(block)) - self._harmless:
            if held := {name for name, _ in _find_names(decode(word), self._starts)}:
                self.left.setdefault(file, set()).update(held)
            elif len(self._harmless) < _MAX_REMEMBERED:
                self._harmless.add(word)


def _is_reported(category: str, name: str) -> bool:
    if category == "secret":
        return len(name) >= _LONG and not _is_word(name)
    return len(name) >= _MIN and not (category in _PLAIN_NAMES and is_plain(name))


# --- names of files -----------------------------------------------------------------------------------------------


_PLAIN_FILES = LISTS["gathered"]
_ADDRESS = re.compile(r"((?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|(?<![A-Za-z0-9])ip(?:-\d{1,3}){4}(?!\d))")
_MAX_PARTS = 60


def rename_file(name: str, scrubber: Scrubber) -> str:
    """Return the new name of a file within a folder: known names in it are replaced, and all that is not plain."""
    *above, last = name.split("/")
    stem, dot, suffix = last.rpartition(".")
    if not stem or not suffix.isalnum() or suffix.isdigit() or scrubber.find_known(last):
        stem, dot, suffix = last, "", ""
    folders = [_rename_part(part, "directory", scrubber) for part in above]
    return "/".join([*folders, _rename_part(stem, "file", scrubber)]) + dot + suffix


def _rename_part(part: str, category: str, scrubber: Scrubber) -> str:
    if known := scrubber.find_known(part):
        return known
    new = scrubber.replace_known(_ADDRESS.sub(lambda match: scrubber.host(match[0]), part))
    words = _PARTS.split(new)
    if len(words) > _MAX_PARTS:
        return scrubber.names.get(category, part)
    is_kept = (word.lower() in _PLAIN_FILES or is_plain(word) for word in words)
    return "".join(
        word if kept else scrubber.names.get(category, word) for word, kept in zip(words, is_kept, strict=True)
    )
