"""Reads what tools print of a machine, one line after the other, on one host or on several.

Each tool is an entry of ``tools.toml``, which has what its lines say or names the function here that reads them.
``pdsh`` and ``clush`` put the host in front of each line; otherwise the file name gives it
(:mod:`nccl_inspect.artifacts.joining`). What joins the GPUs and NICs of a machine is read by
:mod:`nccl_inspect.topology`: ``nvidia-smi topo -m``, and the XML that NCCL writes of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from nccl_inspect import topology
from nccl_inspect.artifacts import Kind
from nccl_inspect.errors import TopologyError
from nccl_inspect.topology import Topology
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen

_LEAD = re.compile(  # what a terminal shows before the output: blank lines, and the command behind a prompt
    rb"[ \t\r\n]*\n|Defaulted container [^\n]*\n|(?:[^\n]{0,120}[$#%>]|\+{1,3})[ \t][^\n]{0,300}\n|\xef\xbb\xbf"
)
_MAX_LEADS = 8
_MAX_HEAD = 1 << 14
_LABEL = re.compile(rb"([A-Za-z0-9][\w.-]{0,252}): ?")
_LABELED = re.compile(r"([A-Za-z0-9][\w.-]{0,252}): ?(.*)")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_OF_JOB = re.compile(rb"NCCL (?:INFO|WARN|VERSION|TRACE|ABORT|ERROR|version)|ProcessGroupNCCL")


class Line(NamedTuple):
    """One line of a tool."""

    number: int
    text: str


class Item(Frozen):
    """Holds what a tool says of one part of a machine."""

    part: str
    """What it is: ``port``, ``gid``, ``gpu``, ``nvlink``, ``module``, ``limit``, ``filesystem``, ``inodes``,
    ``provider``, ``counter`` or ``list`` (that all of a kind were listed)."""
    name: str  # such as `mlx5_0`, `0000:18:00.0`, `nvidia_peermem`
    values: Mapping[str, Any] = field(default_factory=dict)
    line: int = 1
    text: str = ""
    host: str | None = None


class Report(Frozen):
    """Holds what one file says."""

    name: str
    items: tuple[Item, ...]


def _read_report(
    start: re.Pattern[bytes], read: Callable[[list[Line]], Iterable[Item]], name: str, data: bytes
) -> Report:
    by_host = _by_host(data, start)
    items = [replace(item, host=host) for host, lines in by_host.items() for item in read(lines)]
    if not items:
        raise ValueError("nothing in it is understood")
    return Report(name, tuple(items))


def begins(head: bytes, start: re.Pattern[bytes]) -> bool:
    """Return whether a file begins as a tool's output does, maybe behind a prompt or with the host in front."""
    return _beginning(head, start) is not None and not is_of_job(head)


def _beginning(data: bytes, start: re.Pattern[bytes]) -> bool | None:
    """Return whether the output has the host in front of its lines; None where it does not begin so."""
    at = 0
    for _ in range(_MAX_LEADS):
        if start.match(data, at):
            return False
        if label := _LABEL.match(data, at):  # the lines of one host may be mixed with those of others
            lines = (line for line in data[at : at + _MAX_HEAD].split(b"\n") if line.startswith(label[1] + b":"))
            if start.match(b"\n".join(line[len(label[1]) + 1 :].removeprefix(b" ") for line in lines)):
                return True
        lead = _LEAD.match(data, at)
        if lead is None:
            return None
        at = lead.end()
    return None


def sections(data: bytes, tools: Iterable[Kind]) -> list[tuple[Kind, bytes]]:
    """Return the outputs of several tools in one file, each with its tool and preceded by that many lines."""
    begins: list[tuple[int, str, Kind]] = []
    for tool in tools:
        if tool.start:
            line = re.compile(rb"^(?:" + tool.start.pattern + rb")", tool.start.flags | re.MULTILINE)
            begins += [(match.start(), tool.name, tool) for match in line.finditer(data)]
    firsts = [next(group) for _, group in groupby(sorted(begins, key=itemgetter(0)), key=itemgetter(1))]
    ends = [*(at for at, _, _ in firsts[1:]), len(data)]
    return [
        (tool, b"\n" * data.count(b"\n", 0, at) + data[at:end])
        for (at, _, tool), end in zip(firsts, ends, strict=False)
    ]


def is_of_job(data: bytes) -> bool:
    """Return whether there are lines of NCCL or PyTorch, which no tool prints: scripts may run one first."""
    return _OF_JOB.search(data) is not None


def _by_host(data: bytes, start: re.Pattern[bytes]) -> dict[str | None, list[Line]]:
    """Return the lines by the hosts in front of them, which all lines have or none."""
    text = _ANSI.sub("", data.decode("utf-8-sig", "replace"))
    lines = [Line(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), 1)]
    if not _beginning(data, start):
        return {None: lines}
    by_host: dict[str | None, list[Line]] = {}
    for line in lines:
        if match := _LABELED.match(line.text):
            by_host.setdefault(match[1], []).append(Line(line.number, match[2]))
    return by_host


def hosts(data: bytes, start: re.Pattern[bytes]) -> set[str]:
    """Return the hosts in front of the lines of a file."""
    return {host for host in _by_host(data, start) if host}


def number(text: str) -> float | None:
    """Return the number that a value begins with; None where it is ``N/A`` or the like."""
    return float(match[1]) if (match := re.match(r"\s*(\d+(?:\.\d+)?)", text)) else None


def pairs(lines: Iterable[Line], separator: str = ":") -> Iterator[tuple[Line, int, str, str]]:
    """Yield lines of the form ``key: value`` with their indentation; a line without a separator has an empty value."""
    for line in lines:
        text = line.text.expandtabs(8)
        key, _, value = text.partition(separator)
        if key.strip():
            yield line, len(text) - len(text.lstrip()), key.strip(), value.strip()


_NUMBERS = ("index", "link", "errors", "value", "size", "used", "free")
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGTPE", 1)}


def _read_number(text: str, unit: int) -> int | None:
    """Return a number in single units; what has no limit is none."""
    if text.isdecimal():
        return int(text) * unit
    match = re.fullmatch(r"([\d.]+)([kKMGTPE]?)", text)  # df --si has a small k
    return int(float(match[1]) * _UNITS.get(match[2].upper(), unit)) if match else None


def _read_forms(forms: Iterable[Mapping[str, Any]], lines: list[Line]) -> Iterator[Item]:
    patterns = [(re.compile(form["line"]), form) for form in forms]
    above: dict[str, Any] = {}
    said: set[tuple[str, str]] = set()
    for line in lines:
        text = line.text.strip()
        for pattern, form in patterns:
            if not (match := pattern.match(text)):
                continue
            given = form.get("values", {})
            if form.get("is_above"):
                above = {**given, **match.groupdict()}
            for part in re.finditer(form["each"], text[match.end() :]) if "each" in form else [match]:
                values = {**given, **above, **match.groupdict(), **part.groupdict()}
                unit = form.get("unit", values.get("block", 1))
                values |= {key: _read_number(str(values[key]), unit) for key in values.keys() & _NUMBERS}
                if "part" not in form:
                    continue
                kind, name = (form[key].format(**values, line=text) for key in ("part", "name"))
                has_once = form.get("once", False)
                if has_once and (kind, name) in said:
                    continue
                said.add((kind, name))
                count = sum(pattern.match(other.text.strip()) is not None for other in lines) if has_once else 0
                words = " ".join(text.split())
                shown = form.get("text", "{words}").format(**values, line=text, words=words, count=count)
                shown = shown.removeprefix(": ")  # of a card that nothing names
                if "physical" in values:
                    values["physical"] = values["physical"].replace("_", "")
                yield Item(kind, name, values, line.number, shown)


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


_TOPOLOGY = compile_later(rb"(?:\x1b\[4m)?[ \t]+(?:\x1b\[4m)?GPU0\b[^\n]*\n(?:\x1b\[0m)?GPU0[ \t]+X\b")
_XML = compile_later(rb"(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<(?:system|graphs) [^>]*\bversion=", re.DOTALL)


def _read_topology(name: str, data: bytes) -> Topology:
    try:
        return topology.read_any(data.decode("utf-8", "replace"), name)
    except TopologyError as error:
        raise ValueError(str(error).removeprefix(f"{name}: ")) from None


def list_kinds() -> Iterator[Kind]:
    """Yield the kinds of evidence that tools print."""
    import tomllib  # most runs need none of the kinds

    title, has_one = "topology file", lambda head: begins(head, _TOPOLOGY) or begins(head, _XML)
    yield Kind("topology_file", title, has_one, _read_topology, _TOPOLOGY)
    for entry in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["tools"]:
        start = re.compile(entry["start"].encode())
        read = partial(_read_forms, entry["forms"]) if "forms" in entry else globals()[entry["function"]]
        of_tool = partial(begins, start=start)
        yield Kind(entry["name"], entry["kind"], of_tool, partial(_read_report, start, read), start)
