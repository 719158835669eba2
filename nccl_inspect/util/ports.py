"""Merged ports of NICs, as NCCL 2.20 to 2.23 prints them: ``[0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [1]mlx5_2:1/IB``."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_DEVICE = r"\[(?P<index>\d+)\](?:=\{(?P<ports>[^}]*)\}|(?P<name>[^\s:]+):(?P<port>\d+)/(?P<link>\w+))"
_PORT = r"\] (?P<name>[^\s:]+):(?P<port>\d+)/(?P<link>\w+)"


def with_merged(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a message with the devices of the text from its first brace on added to its list of devices."""
    merged = _devices(f"[{values['_first']}]={{{values['_merged']}")
    return {**values, "devices": (*values.get("devices", ()), *merged)}


def _devices(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Index, name, port and kind of link of each device; a merged one is named as later releases name it."""
    for match in re.finditer(_DEVICE, text):
        ports = [match] if match["ports"] is None else list(re.finditer(_PORT, match["ports"]))
        if ports:
            name, port = ("+".join(entry[part] for entry in ports) for part in ("name", "port"))
            yield int(match["index"]), name, port, ports[0]["link"]
