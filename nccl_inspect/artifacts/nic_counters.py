"""Counters of NICs: ``grep . /sys/class/infiniband/*/ports/*/{hw_,}counters/*``, ``rdma statistic``, ``ethtool -S``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.artifacts.machine import Item, Line

KIND = "NIC counter file"
START = re.compile(
    rb"(?:/sys/class/infiniband/)?[\w.-]+/ports/\d+/(?:hw_)?counters/\w+:\d"
    rb"|link \S+/\d+ (?:\w+ \d+ ){2}|NIC statistics:\r?\n\s+\S[^\n:]*: \d"
)
_FILE = re.compile(
    r"(?:/sys/class/infiniband/)?(?P<card>[\w.-]+)/ports/(?P<port>\d+)/(?:hw_)?counters/(?P<name>\w+):(?P<value>\d+)"
)
_LINK = re.compile(r"link (?P<card>\S+)/(?P<port>\d+) ")
_PAIR = re.compile(r"(\w+) (\d+)(?= |$)")
_ROW = re.compile(r"\s+(?P<name>\S[^:]*): (?P<value>\d+)\s*$")
_COMMAND = re.compile(r"ethtool\s+(?:-S|--statistics)\s+(\S+)")


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield the counters, each by the name of its card or network interface."""
    interface = ""
    for line in lines:
        text = line.text.strip()
        if match := _FILE.match(text):
            yield _item(line, match["card"], match["port"], match["name"], match["value"])
        elif match := _LINK.match(text):
            for name, value in _PAIR.findall(text[match.end() :]):
                yield _item(line, match["card"], match["port"], name, value)
        elif match := _COMMAND.search(text):
            interface = match[1]
        elif match := _ROW.match(line.text):
            yield _item(line, interface, "", match["name"], match["value"])


def _item(line: Line, card: str, port: str, name: str, value: str) -> Item:
    text = f"{card + ': ' if card else ''}{name} {value}"
    return Item("counter", card, {"port": port, "counter": name, "value": int(value)}, line.number, text)
