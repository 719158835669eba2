"""``ibv_devinfo``, with and without ``-v``: state, width and speed of each port."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.artifacts import machine
from nccl_inspect.artifacts.machine import Item, Line

KIND = "ibv_devinfo output"
NAMES = dict.fromkeys(("node_guid", "sys_image_guid", "port_lid", "sm_lid"), "guid")
START = re.compile(rb"hca_id:[ \t]+\S+\r?\n[ \t]+transport:")
_STATE = re.compile(r"PORT_(\w+)")
_LANES = re.compile(r"(\d+)X?")


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield the ports."""
    card, ports = "", list[tuple[str, dict[str, str], Line]]()
    for line, _, key, text in machine.pairs(lines):
        if key == "hca_id":
            card = text
        elif key == "port":
            ports.append((card, {"port": text}, line))
        elif ports and ports[-1][0] == card:
            name, values, at = ports[-1]
            values[key] = text
            ports[-1] = (name, values, line if key == "state" else at)
    for name, values, at in ports:
        state = _STATE.match(values.get("state", ""))
        fields = {
            "port": values["port"],
            "state": state[1] if state else "",
            "physical": values.get("phys_state", "").partition(" ")[0].replace("_", "").upper(),
            "layer": values.get("link_layer", ""),
            "rate": _rate(values),
        }
        yield Item("port", name, fields, at.number, f"{name} port {values['port']}: {at.text.strip()}")


def _rate(values: dict[str, str]) -> float | None:
    """Gb/s: the speed of a lane times their number."""
    lanes, speed = _LANES.match(values.get("active_width", "")), machine.number(values.get("active_speed", ""))
    return int(lanes[1]) * speed if lanes and speed else None
