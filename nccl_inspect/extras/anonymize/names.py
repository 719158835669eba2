"""The table of names and their replacements.

Replacements are numbered in the order of the names, and padded, so that what is sorted by name stays sorted.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable
from pathlib import Path

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.util import atomic_files

SCHEMA = "nccl-inspect-names/1"
_PATTERNS = {
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
"""Category and what its names become."""
_NUMBERED = ("ipv4", "ipv6", "mac", "uuid", "guid", "cloud", "hash")
CATEGORIES = (*_PATTERNS, *_NUMBERED)
_TELLING = ("169.254", "172.17")
"""Nets whose addresses tell nobody's network, and that rules know: one link, Docker's first bridge."""
_EC2 = re.compile(r"ip(?:-\d{1,3}){4}")
"""How EC2 names its machines, which tells rules of the cloud and nobody of the machine."""
_BETWEEN = re.compile(r"[:.-]")
_HEXADECIMAL = re.compile(r"[0-9a-f]+")
_MIN_GUID = 12
_DIGITS = "0123456789abcdefABCDEF"


class Names:
    """Every name with its replacement, by category.

    Args:
        known: an earlier table to extend.
    """

    def __init__(self, table: dict[str, dict[str, str]] | None = None) -> None:
        self.table: dict[str, dict[str, str]] = {category: {} for category in CATEGORIES}
        for category, entries in (table or {}).items():
            self.table[category].update(entries)
        self._given = {category: set(entries.values()) for category, entries in self.table.items()}
        self._counts = {category: len(entries) for category, entries in self.table.items()}
        self._width = 1
        self._nets = {_net(name): _net(new) for name, new in self.table["ipv4"].items()}
        self._prefixes = {_prefix(name): _prefix(new) for name, new in self.table["ipv6"].items()}

        self._guids = {digits: new for name, new in self.table["guid"].items() if (digits := _digits(name))}

    def settle(self, category: str, names: Iterable[str]) -> None:
        """Give replacements to names that were gathered, in their order."""
        new = sorted(set(names) - self.table[category].keys())
        self._width = len(str(len(self.table[category]) + len(new)))
        for name in new:
            self.get(category, name)
        self._width = 1

    def get(self, category: str, name: str) -> str:
        """The replacement for a name; the same each time."""
        entries = self.table[category]
        if name not in entries and category == "guid" and (guid := self._guids.get(_digits(name))):
            entries[name] = _filled(name, int(_digits(guid) or "0", 16))
            self._given[category].add(entries[name])
        if name not in entries:
            replacement = self._new(category, name)
            while replacement in self._given[category]:
                replacement = self._new(category, name)
            self._given[category].add(replacement)
            entries[name] = replacement
            if category == "guid" and (digits := _digits(name)):
                self._guids[digits] = replacement
        return entries[name]

    def put(self, category: str, name: str, replacement: str) -> None:
        """Set the replacement for a name unless it has one."""
        self._given[category].add(self.table[category].setdefault(name, replacement))

    def extend(self, category: str, name: str, front: str) -> None:
        """Put a prefix in front of the replacement for a name."""
        replacement = front + self.table[category][name]
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
                return _filled(name, number)
        return _PATTERNS[category].format(str(number).zfill(self._width))

    def _ipv4(self, name: str) -> str:
        """An address in a net of its own for each /24; private, public and telling ones stay such."""
        address = ipaddress.IPv4Address(name)
        kept = next((net for net in _TELLING if name.startswith(f"{net}.")), None)
        first = kept or ("10" if address.is_private else "198")
        net = self._nets.get(_net(name))
        if net is None:
            number = 1 + sum(other.startswith(f"{first}.") for other in set(self._nets.values()))
            high, low = number >> 8, number & 255
            starts = {"10": f"{10 + (high >> 8)}.{high & 255}", "198": f"198.{18 + high}"}
            net = self._nets[_net(name)] = f"{kept or starts[first]}.{low}"
        if name.endswith((".0", ".255")):
            return f"{net}.{name.rpartition('.')[2]}"
        self._counts[net] = self._counts.get(net, 0) + 1
        return f"{net}.{self._counts[net] & 255}"

    def _ipv6(self, name: str, number: int) -> str:
        """Link-local addresses stay such, those that hold an IPv4 address, too; others keep who shares a /64."""
        address = ipaddress.IPv6Address(name)
        if address.ipv4_mapped is not None:
            inner = self.get("ipv4", str(address.ipv4_mapped))
            return f"::ffff:{inner}" if "." in name else _like(name, ipaddress.IPv6Address(f"::ffff:{inner}"))
        if address.is_link_local:
            start = "fe80:0000:0000:0000"
        else:
            place = len(self._prefixes) + 1
            start = self._prefixes.setdefault(_prefix(name), f"fd00:0000:0000:{place & 65535:04x}")
        return _like(name, ipaddress.IPv6Address(f"{start}::{number:x}"))

    def save(self, target: str) -> None:
        """Write the table to a file that nobody else can read.

        Raises:
            NcclInspectError: it cannot be written.
        """
        table = {category: entries for category, entries in self.table.items() if entries}
        text = json.dumps({"schema": SCHEMA, "names": table}, indent=1, ensure_ascii=True) + "\n"
        with atomic_files.replacing(target, "--map", 0o600) as file:
            file.write(text.encode())


def _net(address: str) -> str:
    return address.rpartition(".")[0]


def _prefix(address: str) -> str:
    return ipaddress.IPv6Address(address).exploded[:19]


def _like(name: str, new: ipaddress.IPv6Address) -> str:
    """An address written at full length where the old one was."""
    if "::" in name:
        return new.compressed
    if all(len(group) == 4 for group in name.split(":")):
        return new.exploded
    return ":".join(f"{int(group, 16):x}" for group in new.exploded.split(":"))


def _digits(name: str) -> str:
    """The digits of a GUID, the same in each notation; empty where it is none: numbers of ports are short."""
    digits = _BETWEEN.sub("", name.lower().removeprefix("0x"))
    return digits.lstrip("0") if len(digits) >= _MIN_GUID and _HEXADECIMAL.fullmatch(digits) else ""


def _filled(name: str, number: int) -> str:
    """The name with a number as its hexadecimal digits: ``i-0f12`` becomes ``i-0001``, ``0x3c:4d`` ``0x00:01``."""
    start = name.find("-") + 1 or 2 * name.startswith("0x")
    places = [at for at in range(start, len(name)) if name[at] in _DIGITS]
    text = list(name)
    for at, digit in zip(places, f"{number:x}".zfill(len(places))[-len(places) :], strict=True):
        text[at] = digit
    return "".join(text)


def load(path: str) -> dict[str, dict[str, str]]:
    """A table that was written before; an empty one where there is no such file.

    Raises:
        NcclInspectError: the file is something else.
    """
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
