"""``lsmod`` and ``/proc/modules``: the kernel modules that are loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.artifacts import machine
from nccl_inspect.artifacts.machine import Item, Line, Report

KIND = "lsmod output"
START = re.compile(rb"Module[ \t]+Size[ \t]+Used by|\w+ \d+ \d+ \S+ (?:Live|Loading|Unloading) 0x[0-9a-f]+")
_MODULE = re.compile(r"(?P<name>\w+)\s+(?P<size>\d+)\s+-?\d+(?:\s|$)")


def recognises(_name: str, head: bytes) -> bool:
    """Whether a file is such an output, by its first bytes."""
    return machine.begins(head, START)


def read(name: str, data: bytes) -> Report:
    """The modules."""
    return machine.report(name, data, START, _items)


def _items(lines: list[Line]) -> Iterator[Item]:
    rows = [(line, match) for line in lines if (match := _MODULE.match(line.text))]
    if rows:
        yield Item("list", "module", line=rows[0][0].number, text=f"{len(rows)} modules are loaded")
    for line, match in rows:
        yield Item("module", match["name"], line=line.number, text=" ".join(line.text.split()))
