"""``df``, ``df -h`` and ``df -i``: the file systems and the room that they have, in bytes and in inodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.artifacts.machine import Item, Line

KIND = "df output"
START = re.compile(rb"Filesystem +(?:Type +)?(?:Size|1K-blocks|1024-blocks|1M-blocks|512-blocks|1B-blocks|Inodes)\b")
_ROW = re.compile(
    r"\S.*?\s+(?P<size>[\d.]+[kKMGTPE]?)i?\s+(?P<used>[\d.]+[kKMGTPE]?)i?\s+(?P<free>[\d.]+[kKMGTPE]?)i?\s+"
    r"(?P<share>\d+%|-)\s+(?P<mount>/.*)$"
)
_INODES = re.compile(r"Filesystem +(?:Type +)?Inodes\b")
_BLOCKS = {"1K-blocks": 1024, "1024-blocks": 1024, "1M-blocks": 1 << 20, "512-blocks": 512}
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGTPE", 1)}


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield the file systems, sizes in bytes and in inodes."""
    block, part = 1, "filesystem"
    for line in lines:
        if line.text.startswith("Filesystem"):
            part = "inodes" if _INODES.match(line.text) else "filesystem"
            block = next((size for word, size in _BLOCKS.items() if word in line.text), 1)
        elif match := _ROW.match(line.text):
            values = {key: _bytes(match[key], block) for key in ("size", "used", "free")}
            yield Item(part, match["mount"].strip(), values, line.number, " ".join(line.text.split()))


def _bytes(text: str, block: int) -> int:
    unit = _UNITS.get(text[-1].upper())  # --si has a small k
    return int(float(text[:-1]) * unit) if unit else int(float(text) * block)
