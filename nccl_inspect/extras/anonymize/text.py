"""The table of names with what stands for each, and texts without them.

Replacements are numbered in the order of the names, and padded, so that what is sorted by name stays sorted. In a text,
the scrubber goes by the shape of what surrounds a name, the last pass by the names alone; both in linear time.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.grammar import engine
from nccl_inspect.judging.places import POD
from nccl_inspect.util import atomic_files, wording
from nccl_inspect.util.secrets import replace_secrets
from nccl_inspect.util.text import encode, read_parts

# Words that tell nothing

LISTS = {name: frozenset(text.split()) for name, text in read_parts(__file__, "words.txt").items()}
"""The lists of ``words.txt``, which says what each of them is, by their names."""
ACCOUNTS = LISTS["accounts"]
LIBRARIES = LISTS["libraries"]
PUBLIC_HOSTS = LISTS["public-hosts"]
PUBLIC_DOMAINS = LISTS["public-domains"]
KEPT_ROOTS = ("/proc/", "/sys/", "/dev/", "/opt/amazon/", "/opt/hpcx/", "/opt/rocm/")
"""Folders in which all is what a program brings along."""
PUBLIC_PLACES = re.compile(  # repositories of the programs that print to these logs
    r"(?:www\.)?github\.com/(?:NVIDIA|aws|pytorch|ROCm|Mellanox|ofiwg|openucx|google)(?:/|$)", re.I
)


@cache
def message_words() -> frozenset[str]:
    """Return the words of all messages that are known, in small letters."""
    return frozenset(engine.load_grammar().words())


def is_public(host: str) -> bool:
    """Return whether a host, or the domain of a key, is that of a program or of its documentation."""
    return host in PUBLIC_HOSTS or ".".join(host.rsplit(".", 2)[-2:]) in LISTS["key-domains"]


@lru_cache
def is_address(text: str) -> bool:
    """Return whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


_WORD_PIECE = re.compile(r"[A-Za-z]+|%[A-Za-z]|\d+")
_PROJECT = re.compile(r"(?<![A-Za-z%])[A-Za-z]\d{3}(?!\d*[a-z])", re.IGNORECASE)
"""``p123``: a project rather than a version."""
_LIBRARY = re.compile(r"lib[\w+-]+\.(?:so|a)[\d.]*|[\w-]+\.(?:cc|cpp|cu|cuh|h|hpp|c)")


def is_plain(word: str) -> bool:
    """Return whether a name has such words and numbers only: ``python3.11``, ``nccl.%h.%p.log``, ``trainer-0``."""
    if _LIBRARY.fullmatch(word):
        return True
    if _PROJECT.search(word):
        return False
    return all(
        piece.isdigit() or piece[0] == "%" or piece.lower() in LISTS["words"] for piece in _WORD_PIECE.findall(word)
    )


# The table

SCHEMA = "nccl-inspect-names/1"
_PATTERNS = {  # category and what its names become
    "host": "host-{}",
    "name": "name-{}",
    "user": "user-{}",
    "key": "key-{}",
    "domain": "domain-{}.invalid",
    "directory": "dir-{}",
    "file": "file-{}",
    "site": "site-{}.invalid",
    "email": "user-{}@mail.invalid",
    "secret": "redacted-{}",
}
_NUMBERED = ("ipv4", "ipv6", "mac", "uuid", "guid", "cloud", "hash")
CATEGORIES = (*_PATTERNS, *_NUMBERED)
_TELLING = ("169.254", "172.17")
"""Nets whose addresses tell nobody's network, and that rules know: one link, Docker's first bridge."""
_EC2 = re.compile(r"ip(?:-\d{1,3}){4}")
"""How EC2 names its machines, which tells rules of the cloud and nobody of the machine."""
_SEPARATORS = re.compile(r"[:.-]")
_HEXADECIMAL = re.compile(r"[0-9a-f]+")
_MIN_GUID = 12
_DIGITS = "0123456789abcdefABCDEF"


class Names:
    """Every name with its replacement, by category."""

    def __init__(self, table: dict[str, dict[str, str]] | None = None) -> None:
        self.table: dict[str, dict[str, str]] = {category: {} for category in CATEGORIES}
        for category, entries in (table or {}).items():
            self.table[category].update(entries)
        self._given = {category: set(entries.values()) for category, entries in self.table.items()}
        self._counts = {category: len(entries) for category, entries in self.table.items()}
        self._width = 1
        self._nets = {name.rpartition(".")[0]: new.rpartition(".")[0] for name, new in self.table["ipv4"].items()}
        self._prefixes = {_prefix(name): _prefix(new) for name, new in self.table["ipv6"].items()}
        self._guids = {digits: new for name, new in self.table["guid"].items() if (digits := _guid_digits(name))}

    def settle(self, category: str, names: Iterable[str]) -> None:
        """Give replacements to names that were gathered, in their order."""
        new = sorted(set(names) - self.table[category].keys())
        self._width = len(str(len(self.table[category]) + len(new)))
        for name in new:
            self.get(category, name)
        self._width = 1

    def get(self, category: str, name: str) -> str:
        """Return the replacement for a name; the same each time. That of a secret is none itself."""
        entries, given = self.table[category], self._given[category]
        if category == "secret" and name in given:
            return name
        if name not in entries:
            guid = _guid_digits(name) if category == "guid" else ""
            if guid in self._guids:
                new = _fill_digits(name, int(_guid_digits(self._guids[guid]) or "0", 16))
            else:
                new = self._new(category, name)
                while new in given:
                    new = self._new(category, name)
            given.add(new)
            entries[name] = new
            if guid:
                self._guids.setdefault(guid, new)
        return entries[name]

    def put(self, category: str, name: str, replacement: str) -> None:
        """Set the replacement for a name."""
        self._given[category].add(replacement)
        self.table[category][name] = replacement

    def _new(self, category: str, name: str) -> str:
        self._counts[category] += 1
        number = self._counts[category]
        match category:
            case "host" if _EC2.fullmatch(name):
                return f"ip-10-0-{number // 256:03}-{number % 256:03}"
            case "ipv4":
                return self._ipv4(name)
            case "ipv6":
                return self._ipv6(name, number)
            case "uuid":
                return f"00000000-0000-0000-0000-{number:012x}"
            case "mac":
                digits = f"{number:x}".zfill(2 * name.count(":"))
                return ":".join(["02", *(digits[at : at + 2] for at in range(0, len(digits), 2))])
            case "guid" | "cloud" | "hash":
                return _fill_digits(name, number)
        new = _PATTERNS[category].format(str(number).zfill(self._width))
        # What is not called as pods are must not be taken for one: advice names the object to look at.
        return new if category not in ("host", "name") or POD.fullmatch(name) else new.replace("-", "")

    def _ipv4(self, name: str) -> str:
        """Return an address in a net of its own for each /24; private, public and telling ones stay such."""
        address = ipaddress.IPv4Address(name)
        kept = next((net for net in _TELLING if name.startswith(f"{net}.")), None)
        first = kept or ("10" if address.is_private else "198")
        old, _, last = name.rpartition(".")
        net = self._nets.get(old)
        if net is None:
            number = 1 + sum(other.startswith(f"{first}.") for other in set(self._nets.values()))
            high, low = number >> 8, number & 255
            starts = {"10": f"{10 + (high >> 8)}.{high & 255}", "198": f"198.{18 + high}"}
            net = self._nets[old] = f"{kept or starts[first]}.{low}"
        if last in ("0", "255"):
            return f"{net}.{last}"
        self._counts[net] = self._counts.get(net, 0) + 1
        return f"{net}.{self._counts[net] & 255}"

    def _ipv6(self, name: str, number: int) -> str:
        """Return link-local addresses as such, those with an IPv4 address, too; others keep who shares a /64."""
        address = ipaddress.IPv6Address(name)
        if address.ipv4_mapped is not None:
            inner = self.get("ipv4", str(address.ipv4_mapped))
            return f"::ffff:{inner}" if "." in name else _write_like(name, ipaddress.IPv6Address(f"::ffff:{inner}"))
        if address.is_link_local:
            start = "fe80:0000:0000:0000"
        else:
            place = len(self._prefixes) + 1
            start = self._prefixes.setdefault(_prefix(name), f"fd00:0000:0000:{place & 65535:04x}")
        return _write_like(name, ipaddress.IPv6Address(f"{start}::{number:x}"))

    def save(self, target: str) -> None:
        """Write the table to a file that nobody else can read."""
        table = {category: entries for category, entries in self.table.items() if entries}
        text = json.dumps({"schema": SCHEMA, "names": table}, indent=1, ensure_ascii=True) + "\n"
        with atomic_files.open_replacement(target, "--map", 0o600) as file:
            file.write(text.encode())


def _prefix(address: str) -> str:
    return ipaddress.IPv6Address(address).exploded[:19]


def _write_like(name: str, new: ipaddress.IPv6Address) -> str:
    if "::" in name:
        return new.compressed
    if all(len(group) == 4 for group in name.split(":")):
        return new.exploded
    return ":".join(f"{int(group, 16):x}" for group in new.exploded.split(":"))


def _guid_digits(name: str) -> str:
    """Return the digits of a GUID, the same in each notation; empty where it is none: numbers of ports are short."""
    digits = _SEPARATORS.sub("", name.lower().removeprefix("0x"))
    return digits.lstrip("0") if len(digits) >= _MIN_GUID and _HEXADECIMAL.fullmatch(digits) else ""


def _fill_digits(name: str, number: int) -> str:
    """Write a number as the hexadecimal digits of a name: ``i-0f12`` becomes ``i-0001``, ``0x3c:4d`` ``0x00:01``."""
    start = name.find("-") + 1 or 2 * name.startswith("0x")
    places = [at for at in range(start, len(name)) if name[at] in _DIGITS]
    text = list(name)
    for at, digit in zip(places, f"{number:x}".zfill(len(places))[-len(places) :], strict=True):
        text[at] = digit
    return "".join(text)


def load_table(path: str) -> dict[str, dict[str, str]]:
    """Load a table that was written before; an empty one where there is no such file."""
    if not Path(path).exists():
        return {}
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        names: dict[str, dict[str, str]] = document["names"] if document["schema"] == SCHEMA else {}
        if not names.keys() <= set(CATEGORIES) or not all(isinstance(entries, dict) for entries in names.values()):
            raise ValueError(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise NcclInspectError(f"{path}: no table of names", "give --map another file name") from None
    return names


# Lists of hosts

EXPRESSION = r"[A-Za-z][\w.-]{0,100}+(?:\[\w[\w,/-]{0,2000}+\][\w.-]{0,60}+){1,4}+"
"""One expression in brackets: ``rack[1-2]-gpu[01-16,20]-ib``. The text before it must not be part of it."""
_WHOLE = re.compile(rf"{EXPRESSION}(?![\[])", re.ASCII)
_ITEM = re.compile(r"(?:\[[^\]]*\]|[^,\s\[\]])+")  # one of a list: the commas within brackets part numbers


def split_hosts(listed: str) -> Iterator[str]:
    """Yield the hosts of a list, without the numbers of slots behind them."""
    for item in _ITEM.findall(listed):
        name = item.partition(":")[0]
        if "[" in name:
            yield from expand(name)
        elif name[:1].isalpha() and len(name) > 1:
            yield name


def expand(expression: str) -> list[str]:
    """Return the hosts that an expression stands for; itself where it is none, or stands for more than any job has."""
    return wording.expand(expression) if _WHOLE.fullmatch(expression) else [expression]


# The scrubber

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
_NUMBERED_HOST = re.compile(r"(?=[A-Za-z]+\d)[A-Za-z0-9]{4,}")
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
        numbered = set(filter(_NUMBERED_HOST.fullmatch, table["host"])) - message_words()
        # A short name that never occurs as a word of a message is a name wherever it occurs.
        short = (name for name in self.known if len(name) > 2 and name.isalpha() and not is_plain(name))
        rare = {name for name in short if name.lower() not in message_words() | LISTS["common"]}
        self._distinct = {
            name: new for name, new in self.known.items() if name in numbered or name in rare or is_distinct(name)
        }
        self._token.cache_clear()

    def text(self, text: str, structural: bool = False) -> str:
        """Return the text with everything replaced; where it is structural, short common words count as names, too."""

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
        return ",".join(wording.fold_names(self.names.get("host", name) for name in listed))

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
        """Replace the longest known names in a word in which they are joined by dots, dashes or underscores."""
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
            else:  # with something before or behind it: ``libacme``, the interface ``zenith0``
                part, stem = parts[at], parts[at].rstrip("0123456789")
                if part.startswith("lib") and part[3:] in names:
                    part = f"lib{names[part[3:]]}"
                elif stem != part and stem in names and len(stem) >= _MIN_STEM and stem.isalpha():
                    part = f"{names[stem]}x{part[len(stem) :]}"
                out += part
            if at + 1 < len(parts):
                out += parts[at + 1]
            at += 2
        return out


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


# The names alone

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
    """Finds names of some categories in texts, whatever surrounds them, but for those that are replacements."""

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
    """Replaces what is left of names; those of one word without a digit may be words of a message, and stay."""

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
            self._finder = Finder(
                self._names,
                _REPORTED,
                lambda category, name: (
                    _is_telling(name)
                    if category == "secret"
                    else len(name) >= _MIN and not (category in _PLAIN_NAMES and is_plain(name))
                ),
            )
        if held := self._finder.find(block):
            self.left.setdefault(file, set()).update(held)


# Names of files

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
