"""``ibstat`` and ``ibstatus``: state, rate and kind of link of each port of InfiniBand and RoCE cards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nccl_inspect.artifacts import machine
from nccl_inspect.artifacts.machine import Item, Line

KIND = "ibstat output"
NAMES = dict.fromkeys(
    ("Node GUID", "System image GUID", "Port GUID", "Base lid", "SM lid", "base lid", "sm lid"), "guid"
)
START = re.compile(rb"CA '[^'\n]+'\r?\n\s+CA type:|Infiniband device '[^'\n]+' port \d+ status:")
_CARD = re.compile(r"CA '([^']+)'")
_STATUS = re.compile(r"Infiniband device '([^']+)' port (\d+) status:")
_PORT = re.compile(r"\s+Port (\d+):\s*$")
_KEYS = {"state": "state", "physical state": "physical", "phys state": "physical", "rate": "rate", "ca type": "model"}
_LAYER = ("link layer", "link_layer")


def items(lines: list[Line]) -> Iterator[Item]:
    """Yield the ports."""
    card, model, ports = "", "", list[tuple[str, str, dict[str, object], list[Line]]]()
    for line, _, key, text in machine.pairs(lines):
        if match := _CARD.match(line.text):
            card, model = match[1], ""
        elif match := _STATUS.match(line.text):
            ports.append((match[1], match[2], {}, [line]))
        elif match := _PORT.match(line.text):
            ports.append((card, match[1], {"model": model}, [line]))
        elif key.lower() == "ca type":
            model = text
        elif ports and (ports[-1][0] == card or not card):
            _take(ports[-1][2], ports[-1][3], line, key.lower(), text)
    for card, port, values, at in ports:
        line = at[-1]
        yield Item("port", card, {"port": port, **values}, line.number, f"{card} port {port}: {line.text.strip()}")


def _take(values: dict[str, object], at: list[Line], line: Line, key: str, text: str) -> None:
    """Take in one line of a port; the line that shows what is wrong represents it."""
    if key in _LAYER:
        values["layer"] = text
    elif (name := _KEYS.get(key)) == "rate":
        values["rate"] = machine.number(text)
        if values.get("state") == "ACTIVE":
            at.append(line)
    elif name:
        values[name] = text.rpartition(":")[2].strip().upper()  # ibstatus numbers them: "4: ACTIVE"
        if name == "state" or (values[name] != "LINKUP" and values.get("state") == "ACTIVE"):
            at.append(line)
