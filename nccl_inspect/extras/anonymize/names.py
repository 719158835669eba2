"""Names: the words that are none, the table of replacements, and lists of hosts.

Replacements are numbered in the order of the names, and padded, so that what is sorted by name stays sorted.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.grammar import engine
from nccl_inspect.judging.places import POD
from nccl_inspect.util import atomic_files, wording
from nccl_inspect.util.text import read_parts

# --- words that tell nothing --------------------------------------------------------------------------------------


LISTS = {name: frozenset(text.split()) for name, text in read_parts(__file__, "words.txt").items()}
"""The lists of ``words.txt``, which says what each of them is, by their names."""
WORDS = LISTS["words"]
ACCOUNTS = LISTS["accounts"]
LIBRARIES = LISTS["libraries"]
PUBLIC_HOSTS = LISTS["public-hosts"]
PUBLIC_DOMAINS = LISTS["public-domains"]
KEY_DOMAINS = LISTS["key-domains"]
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
    return host in PUBLIC_HOSTS or ".".join(host.rsplit(".", 2)[-2:]) in KEY_DOMAINS


def is_rare(name: str) -> bool:
    """Return whether a short name never occurs as a word of a message, so that it is a name wherever it occurs."""
    return (
        len(name) > 2
        and name.isalpha()
        and not is_plain(name)
        and name.lower() not in message_words()
        and name.lower() not in LISTS["common"]
    )


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
    return all(piece.isdigit() or piece[0] == "%" or piece.lower() in WORDS for piece in _WORD_PIECE.findall(word))


# --- the table ----------------------------------------------------------------------------------------------------


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
        """Write the table to a file that nobody else can read.

        Raises:
            NcclInspectError: it cannot be written.
        """
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


# --- lists of hosts -----------------------------------------------------------------------------------------------


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
