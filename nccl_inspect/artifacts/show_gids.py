"""``show_gids`` of MLNX_OFED: the GID table of each port."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.artifacts.machine import Item, Line

KIND = "show_gids table"
START = re.compile(rb"DEV[ \t]+PORT[ \t]+INDEX[ \t]+GID\b")
_ROW = re.compile(
    r"\s*(?P<card>\S+)\s+(?P<port>\d+)\s+(?P<index>\d+)\s+(?P<gid>[0-9a-fA-F:]{15,39})\s+"
    r"(?:(?P<ipv4>\d+\.\d+\.\d+\.\d+)\s+)?(?P<version>v[12](?:\.\d)?)?(?:\s+(?P<netdev>\S+))?\s*$"
)


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield the rows of the tables."""
    if lines:
        yield Item("list", "gid", line=lines[0].number, text=lines[0].text.strip())
    for line in lines:
        if match := _ROW.match(line.text):
            values = {**match.groupdict(), "index": int(match["index"])}
            yield Item("gid", match["card"], values, line.number, " ".join(line.text.split()))
