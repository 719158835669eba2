"""``fi_info``: the providers that libfabric finds, short (``-p efa``), in full (``-v``), or that it finds none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.artifacts.machine import Item, Line

KIND = "fi_info output"
START = re.compile(rb"provider: \w[^\n]*\n\s+fabric:|---\r?\nfi_info:|fi_getinfo: -?\d+(?: \(|\s*\Z)")
_PROVIDER = re.compile(r"(?:provider:|\s+prov_name:)\s+(\S+)")
_NONE = re.compile(r"fi_getinfo: (-?\d+)(?: \(|\s*$)")
"""libfabric 1.17 prints the number only."""


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield the providers."""
    first = next((line for line in lines if _PROVIDER.match(line.text) or _NONE.match(line.text)), None)
    if first:
        yield Item("list", "provider", line=first.number, text=first.text.strip())
    providers: set[str] = set()
    for line in lines:
        if (match := _PROVIDER.match(line.text)) and match[1] not in providers:
            providers.add(match[1])
            yield Item("provider", match[1], line=line.number, text=line.text.strip())
