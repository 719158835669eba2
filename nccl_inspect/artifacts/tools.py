"""Reads what tools print of a machine, line by line: ``tools.toml`` has them, and what their lines say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from nccl_inspect.artifacts.machine import Item, Line, Tool, number, pairs
from nccl_inspect.util.patterns import compile_later

_NUMBERS = ("index", "link", "errors", "value")


def _read_forms(forms: Iterable[Mapping[str, Any]], lines: list[Line]) -> Iterator[Item]:
    patterns = [(re.compile(form["line"]), form) for form in forms]
    above: dict[str, Any] = {}
    said: set[tuple[str, str]] = set()
    for line in lines:
        text = line.text.strip()
        for pattern, form in patterns:
            if not (match := pattern.match(text)):
                continue
            values = {**above, **match.groupdict(), **form.get("values", {})}
            for key in values.keys() & _NUMBERS:  # what has no limit is no number
                values[key] = int(values[key]) * form.get("unit", 1) if str(values[key]).isdecimal() else None
            if form.get("is_above"):
                above = values
            name, has_once = form["name"].format(**values, line=text), form.get("once", False)
            if has_once and (form["part"], name) in said:
                continue
            said.add((form["part"], name))
            count = sum(pattern.match(other.text.strip()) is not None for other in lines) if has_once else 0
            shown = form.get("text", "{words}").format(**values, line=text, words=" ".join(text.split()), count=count)
            if "physical" in values:
                values["physical"] = values["physical"].replace("_", "")
            yield Item(form["part"], name, values, line.number, shown)


_FILE_SYSTEM = compile_later(
    r"\S.*?\s+(?P<size>[\d.]+[kKMGTPE]?)i?\s+(?P<used>[\d.]+[kKMGTPE]?)i?\s+(?P<free>[\d.]+[kKMGTPE]?)i?\s+"
    r"(?:\d+%|-)\s+(?P<mount>/.*)$"
)
_BLOCKS = {"1K-blocks": 1024, "1024-blocks": 1024, "1M-blocks": 1 << 20, "512-blocks": 512}
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGTPE", 1)}


def _df(lines: list[Line]) -> Iterator[Item]:
    block, part = 1, "filesystem"
    for line in lines:
        if line.text.startswith("Filesystem"):
            part = "inodes" if re.match(r"Filesystem +(?:Type +)?Inodes\b", line.text) else "filesystem"
            block = next((size for word, size in _BLOCKS.items() if word in line.text), 1)
        elif match := _FILE_SYSTEM.match(line.text):
            values = {}
            for key in ("size", "used", "free"):
                unit = _UNITS.get(match[key][-1].upper())  # --si has a small k
                values[key] = int(float(match[key][:-1]) * unit) if unit else int(float(match[key]) * block)
            yield Item(part, match["mount"].strip(), values, line.number, " ".join(line.text.split()))


_CARD = compile_later(r"CA '([^']+)'|hca_id:\s+(\S+)")
_PORT = compile_later(r"\s+[Pp]ort(?: (\d+):\s*$|:\s+(\d+))|Infiniband device '([^']+)' port (\d+) status:")
_STATES = {"state": "state", "physical state": "physical", "phys state": "physical", "phys_state": "physical"}


def _ports(lines: list[Line]) -> Iterator[Item]:
    card, model, ports = "", "", list[tuple[str, dict[str, Any], Line]]()
    for line, _, key, text in pairs(lines):
        key = key.lower()
        if match := _CARD.match(line.text):
            card, model = match[1] or match[2], ""
        elif match := _PORT.match(line.text):
            ports.append((match[3] or card, {"port": match[1] or match[2] or match[4], "model": model}, line))
        elif key == "ca type":
            model = text
        elif ports and (ports[-1][0] == card or not card):
            name, values, _ = ports[-1]
            is_up, shows = values.get("state") == "ACTIVE", key == "state"
            if key in ("link layer", "link_layer"):
                values["layer"] = text
            elif key == "rate":
                values["rate"], shows = number(text), is_up
            elif key in ("active_width", "active_speed"):  # lanes, and Gb/s of each: 4X (2), 25.0 Gbps (32)
                values[key] = number(text)
                if values.get("active_width") and values.get("active_speed"):
                    values["rate"] = values["active_width"] * values["active_speed"]
            elif key in _STATES:  # Active, 4: ACTIVE, PORT_ACTIVE (4)
                state = text.rpartition(":")[2].strip().partition(" (")[0].upper()
                values[_STATES[key]] = state = state.removeprefix("PORT_").replace("_", "")
                shows |= is_up and state != "LINKUP"
            ports[-1] = (name, values, line) if shows else ports[-1]
    for card, values, line in ports:
        yield Item("port", card, values, line.number, f"{card} port {values['port']}: {line.text.strip()}")


_COUNTER = compile_later(
    r"(?:/sys/class/infiniband/)?(?P<card>[\w.-]+)/ports/(?P<port>\d+)/(?:hw_)?counters/(?P<name>\w+):(?P<value>\d+)"
)
_STATISTIC = compile_later(r"link (?P<card>\S+)/(?P<port>\d+) ")
_OF_INTERFACE = compile_later(r"\s+(?P<name>\S[^:]*): (?P<value>\d+)\s*$")
_ETHTOOL = compile_later(r"ethtool\s+(?:-S|--statistics)\s+(\S+)")


def _nic_counters(lines: list[Line]) -> Iterator[Item]:
    interface = ""
    for line in lines:
        text, card, port = line.text.strip(), interface, ""
        found: list[tuple[str, str]] = []
        if match := _COUNTER.match(text):
            card, port, found = match["card"], match["port"], [(match["name"], match["value"])]
        elif match := _STATISTIC.match(text):
            card, port, found = match["card"], match["port"], re.findall(r"(\w+) (\d+)(?= |$)", text[match.end() :])
        elif match := _ETHTOOL.search(text):
            interface = match[1]
        elif match := _OF_INTERFACE.match(line.text):
            found = [(match["name"], match["value"])]
        for name, value in found:
            shown = f"{card + ': ' if card else ''}{name} {value}"
            yield Item("counter", card, {"port": port, "counter": name, "value": int(value)}, line.number, shown)


_BUS_ID = compile_later(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_WANTED = compile_later(  # all else is nothing that rules ask for
    r"ECC Errors/|Remapped Rows/|Retired Pages/|Clocks (?:Throttle|Event) Reasons/|Fabric/|GPU Link Info/Link Width/"
)


def _nvidia_smi_query(lines: list[Line]) -> Iterator[Item]:
    """Yield what stands of each GPU, by the headings above it: ``ECC Errors/Volatile/DRAM Uncorrectable``."""
    bus_id, index = "", -1
    above: list[tuple[int, str]] = []
    for line, indent, key, text in pairs(lines, " :"):
        if match := _BUS_ID.match(line.text.strip()):
            bus_id, index, above = match[1], index + 1, []
            continue
        if not bus_id:
            continue
        while above and above[-1][0] >= indent:
            above.pop()
        above.append((indent, key))
        path = "/".join(name for _, name in above)
        values: dict[str, Any] = {"index": index, "bus_id": bus_id}
        if path == "Product Name":
            yield Item("gpu", bus_id, {**values, "model": text}, line.number, f"GPU {bus_id}: {text}")
        elif text and _WANTED.search(path):
            shown = f"GPU {bus_id}: {path}: {text}"
            yield Item(f"gpu {path}", bus_id, {**values, "value": text}, line.number, shown)


_FUNCTIONS = {
    "df": _df,
    "ibstat": _ports,
    "ibv_devinfo": _ports,
    "nic_counters": _nic_counters,
    "nvidia_smi_query": _nvidia_smi_query,
}


def load_tools() -> list[Tool]:
    """Return the kinds of evidence that tools print."""
    import tomllib  # most runs need none of the kinds

    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["tools"]
    return [
        Tool(
            entry["name"],
            entry["kind"],
            entry["start"].encode(),
            partial(_read_forms, entry["forms"]) if "forms" in entry else _FUNCTIONS[entry["name"]],
        )
        for entry in entries
    ]
