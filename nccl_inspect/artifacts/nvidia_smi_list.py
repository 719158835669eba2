"""``nvidia-smi -L``, ``nvidia-smi nvlink -s`` and ``-e``: the GPUs, and state and errors of their NVLinks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nccl_inspect.artifacts.machine import Item, Line

KIND = "nvidia-smi list"
START = re.compile(rb"GPU \d+: [^\n]+ \(UUID: [\w-]+\)")
_GPU = re.compile(r"GPU (?P<index>\d+): (?P<model>.+?) \(UUID: (?P<uuid>[\w-]+)\)")
_MIG = re.compile(r"\s+(?P<model>MIG .+?)\s+\(UUID: MIG-")
_LINK = re.compile(r"\s+Link (?P<link>\d+): (?P<state><?inactive>?|[\d.]+ GB/s)", re.IGNORECASE)
_ERRORS = re.compile(r"\s+Link (?P<link>\d+): (?P<kind>\w+) Errors?: (?P<value>\d+)", re.IGNORECASE)


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield the GPUs and their links."""
    gpu = -1
    values: dict[str, Any]
    for line in lines:
        text = line.text.strip()
        if match := _GPU.match(line.text):
            gpu = int(match["index"])
            yield Item("gpu", match["index"], {"index": gpu, "model": match["model"]}, line.number, text)
        elif match := _MIG.match(line.text):
            yield Item("gpu", text, {"index": gpu, "model": match["model"]}, line.number, text)
        elif match := _LINK.match(line.text):
            values = {"index": gpu, "link": int(match["link"]), "active": "inactive" not in match["state"].lower()}
            yield Item("nvlink", f"GPU {gpu}", values, line.number, f"GPU {gpu}: {text}")
        elif match := _ERRORS.match(line.text):
            values = {"index": gpu, "link": int(match["link"]), "kind": match["kind"], "errors": int(match["value"])}
            yield Item("nvlink", f"GPU {gpu}", values, line.number, f"GPU {gpu}: {text}")
