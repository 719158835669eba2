"""``lsmod`` and ``/proc/modules``: the kernel modules that are loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.artifacts.machine import Item, Line

KIND = "lsmod output"
START = re.compile(rb"Module[ \t]+Size[ \t]+Used by|\w+ \d+ \d+ \S+ (?:Live|Loading|Unloading) 0x[0-9a-f]+")
_MODULE = re.compile(r"(?P<name>\w+)\s+(?P<size>\d+)\s+-?\d+(?:\s|$)")


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield the modules."""
    rows = [(line, match) for line in lines if (match := _MODULE.match(line.text))]
    if rows:
        yield Item("list", "module", line=rows[0][0].number, text=f"{len(rows)} modules are loaded")
    for line, match in rows:
        yield Item("module", match["name"], line=line.number, text=" ".join(line.text.split()))
