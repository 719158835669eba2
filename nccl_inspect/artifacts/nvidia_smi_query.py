"""``nvidia-smi -q``: state of each GPU, its memory, clocks, PCIe link and fabric."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nccl_inspect.artifacts import machine
from nccl_inspect.artifacts.machine import Item, Line

KIND = "nvidia-smi -q output"
NAMES = dict.fromkeys(
    ("Serial Number", "Chassis Serial Number", "GPU UUID", "ClusterUUID", "Cluster UUID", "GUID"), "guid"
)
START = re.compile(rb"=+NVSMI LOG=+")
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_WANTED = re.compile(
    r"ECC Errors/|Remapped Rows/|Retired Pages/|Clocks (?:Throttle|Event) Reasons/|Fabric/|GPU Link Info/Link Width/"
)
"""All else is nothing that rules ask for."""
_MODEL = "Product Name"


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield what stands of each GPU, by the headings above it: ``ECC Errors/Volatile/DRAM Uncorrectable``."""
    bus_id, index = "", -1
    above: list[tuple[int, str]] = []
    values: dict[str, Any]
    for line, indent, key, text in machine.pairs(lines, " :"):
        if match := _GPU.match(line.text.strip()):
            bus_id, index, above = match[1], index + 1, []
            continue
        if not bus_id:
            continue
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, key))
        path = "/".join(name for _, name in above)
        if path == _MODEL:
            values = {"index": index, "bus_id": bus_id, "model": text}
            yield Item("gpu", bus_id, values, line.number, f"GPU {bus_id}: {text}")
        elif text and _WANTED.search(path):
            values = {"index": index, "bus_id": bus_id, "value": text}
            yield Item(f"gpu {path}", bus_id, values, line.number, f"GPU {bus_id}: {path}: {text}")
