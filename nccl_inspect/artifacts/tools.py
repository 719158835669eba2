"""Reads what tools print of a machine, line by line: each is an entry of :data:`TOOLS`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nccl_inspect.artifacts.machine import Item, Line, Tool, number, pairs


def _matches(lines: list[Line], form: re.Pattern[str]) -> Iterator[tuple[Line, re.Match[str]]]:
    return ((line, match) for line in lines if (match := form.match(line.text.strip())))


def _words(line: Line) -> str:
    return " ".join(line.text.split())


# Limits, modules and file systems of a host

_VALUE = r"\s+(?P<value>unlimited|\d+)\b"
_LIMITS = tuple(
    (limit, unit, re.compile(rf"\s*(?:{words}){_VALUE}", re.IGNORECASE))
    for limit, unit, words in (
        ("memlock", 1024, r"max locked memory\s+\(.*?-l\)|-l: locked-in-memory size.*?\)|locked memory\(kbytes\)"),
        ("memlock", 1, r"Max locked memory|MEMLOCK\s+max locked-in-memory address space"),
        ("nofile", 1, r"open files\s+\(-n\)|-n: file descriptors|nofiles(?:\(descriptors\))?|Max open files"),
        ("nofile", 1, r"NOFILE\s+max number of open files"),
        ("nproc", 1, r"max user processes\s+\(-u\)|-u: processes|process(?:es)?(?:\(.*?\))?|Max processes"),
        ("nproc", 1, r"NPROC\s+max number of processes"),
    )
)
"""Of bash, zsh, sh, /proc and prlimit."""


def _limits(lines: list[Line]) -> Iterator[Item]:
    """Yield the limits; a size in bytes, None where there is no limit."""
    for line in lines:
        for limit, unit, form in _LIMITS:
            if match := form.match(line.text):
                value = None if match["value"] == "unlimited" else int(match["value"]) * unit
                yield Item("limit", limit, {"value": value}, line.number, _words(line))
                break


_MODULE = re.compile(r"(\w+)\s+\d+\s+-?\d+(?:\s|$)")


def _lsmod(lines: list[Line]) -> Iterator[Item]:
    rows = list(_matches(lines, _MODULE))
    if rows:
        yield Item("list", "module", line=rows[0][0].number, text=f"{len(rows)} modules are loaded")
    for line, match in rows:
        yield Item("module", match[1], line=line.number, text=_words(line))


_FILE_SYSTEM = re.compile(
    r"\S.*?\s+(?P<size>[\d.]+[kKMGTPE]?)i?\s+(?P<used>[\d.]+[kKMGTPE]?)i?\s+(?P<free>[\d.]+[kKMGTPE]?)i?\s+"
    r"(?:\d+%|-)\s+(?P<mount>/.*)$"
)
_INODES = re.compile(r"Filesystem +(?:Type +)?Inodes\b")
_BLOCKS = {"1K-blocks": 1024, "1024-blocks": 1024, "1M-blocks": 1 << 20, "512-blocks": 512}
_UNITS = {unit: 1024**power for power, unit in enumerate("KMGTPE", 1)}


def _df(lines: list[Line]) -> Iterator[Item]:
    """Yield the file systems, sizes in bytes and in inodes."""
    block, part = 1, "filesystem"
    for line in lines:
        if line.text.startswith("Filesystem"):
            part = "inodes" if _INODES.match(line.text) else "filesystem"
            block = next((size for word, size in _BLOCKS.items() if word in line.text), 1)
        elif match := _FILE_SYSTEM.match(line.text):
            values = {key: _bytes(match[key], block) for key in ("size", "used", "free")}
            yield Item(part, match["mount"].strip(), values, line.number, _words(line))


def _bytes(text: str, block: int) -> int:
    unit = _UNITS.get(text[-1].upper())  # --si has a small k
    return int(float(text[:-1]) * unit) if unit else int(float(text) * block)


# Cards: ports, GIDs, providers and counters

_CARD = re.compile(r"CA '([^']+)'")
_STATUS = re.compile(r"Infiniband device '([^']+)' port (\d+) status:")
_PORT = re.compile(r"\s+Port (\d+):\s*$")
_STATES = {"state": "state", "physical state": "physical", "phys state": "physical"}


def _ibstat(lines: list[Line]) -> Iterator[Item]:
    """Yield the ports, each with the line that shows what is wrong with it."""
    card, model, ports = "", "", list[tuple[str, dict[str, Any], Line]]()
    for line, _, key, text in pairs(lines):
        key = key.lower()
        if match := _CARD.match(line.text):
            card, model = match[1], ""
        elif match := _STATUS.match(line.text):
            ports.append((match[1], {"port": match[2]}, line))
        elif match := _PORT.match(line.text):
            ports.append((card, {"port": match[1], "model": model}, line))
        elif key == "ca type":
            model = text
        elif ports and (ports[-1][0] == card or not card):
            name, values, _ = ports[-1]
            is_up, shows = values.get("state") == "ACTIVE", key == "state"
            if key in ("link layer", "link_layer"):
                values["layer"] = text
            elif key == "rate":
                values["rate"], shows = number(text), is_up
            elif key in _STATES:
                state = values[_STATES[key]] = text.rpartition(":")[2].strip().upper()  # ibstatus has "4: ACTIVE"
                shows |= is_up and state != "LINKUP"
            ports[-1] = (name, values, line) if shows else ports[-1]
    for card, values, line in ports:
        yield Item("port", card, values, line.number, f"{card} port {values['port']}: {line.text.strip()}")


_LANES = re.compile(r"(\d+)X?")


def _ibv_devinfo(lines: list[Line]) -> Iterator[Item]:
    """Yield the ports; their rate in Gb/s is the speed of a lane times their number."""
    card, ports = "", list[tuple[str, dict[str, str], Line]]()
    for line, _, key, text in pairs(lines):
        if key == "hca_id":
            card = text
        elif key == "port":
            ports.append((card, {"port": text}, line))
        elif ports and ports[-1][0] == card:
            name, values, at = ports[-1]
            values[key] = text
            ports[-1] = (name, values, line if key == "state" else at)
    for name, values, at in ports:
        state = values.get("state", "").partition(" ")[0]
        lanes, speed = _LANES.match(values.get("active_width", "")), number(values.get("active_speed", ""))
        fields = {
            "port": values["port"],
            "state": state.removeprefix("PORT_") if state.startswith("PORT_") else "",
            "physical": values.get("phys_state", "").partition(" ")[0].replace("_", "").upper(),
            "layer": values.get("link_layer", ""),
            "rate": int(lanes[1]) * speed if lanes and speed else None,
        }
        yield Item("port", name, fields, at.number, f"{name} port {values['port']}: {at.text.strip()}")


_LINK_OF_CARD = re.compile(
    r"(?:link |\d+/\d+: )(?P<card>[^\s/]+)/(?P<port>\d+):? .*?\bstate (?P<state>\w+) physical_state (?P<physical>\w+)"
    r"(?:.*?\bnetdev (?P<netdev>\S+))?"
)


def _rdma_link(lines: list[Line]) -> Iterator[Item]:
    for line, match in _matches(lines, _LINK_OF_CARD):
        values = {**match.groupdict(), "physical": match["physical"].replace("_", "")}
        yield Item("port", match["card"], values, line.number, line.text.strip())


_GID = re.compile(
    r"(?P<card>\S+)\s+(?P<port>\d+)\s+(?P<index>\d+)\s+(?P<gid>[0-9a-fA-F:]{15,39})"
    r"(?:\s+(?P<ipv4>\d+\.\d+\.\d+\.\d+))?(?:\s+(?P<version>v[12](?:\.\d)?))?(?:\s+(?P<netdev>\S+))?$"
)


def _show_gids(lines: list[Line]) -> Iterator[Item]:
    if lines:
        yield Item("list", "gid", line=lines[0].number, text=lines[0].text.strip())
    for line, match in _matches(lines, _GID):
        values = {**match.groupdict(), "index": int(match["index"])}
        yield Item("gid", match["card"], values, line.number, _words(line))


_PROVIDER = re.compile(r"(?:provider:|prov_name:)\s+(\S+)|fi_getinfo: -?\d+(?: \(|$)")
"""That there is none has no name; libfabric 1.17 prints its number only."""


def _fi_info(lines: list[Line]) -> Iterator[Item]:
    rows = list(_matches(lines, _PROVIDER))
    if rows:
        yield Item("list", "provider", line=rows[0][0].number, text=rows[0][0].text.strip())
    for name, line in {match[1]: line for line, match in reversed(rows) if match[1]}.items():
        yield Item("provider", name, line=line.number, text=line.text.strip())


_COUNTER = re.compile(
    r"(?:/sys/class/infiniband/)?(?P<card>[\w.-]+)/ports/(?P<port>\d+)/(?:hw_)?counters/(?P<name>\w+):(?P<value>\d+)"
)
_STATISTIC = re.compile(r"link (?P<card>\S+)/(?P<port>\d+) ")
_PAIR = re.compile(r"(\w+) (\d+)(?= |$)")
_OF_INTERFACE = re.compile(r"\s+(?P<name>\S[^:]*): (?P<value>\d+)\s*$")
_ETHTOOL = re.compile(r"ethtool\s+(?:-S|--statistics)\s+(\S+)")


def _nic_counters(lines: list[Line]) -> Iterator[Item]:
    """Yield the counters, each by the name of its card or network interface."""
    interface = ""
    for line in lines:
        text, card, port = line.text.strip(), interface, ""
        found: list[tuple[str, str]] = []
        if match := _COUNTER.match(text):
            card, port, found = match["card"], match["port"], [(match["name"], match["value"])]
        elif match := _STATISTIC.match(text):
            card, port, found = match["card"], match["port"], _PAIR.findall(text[match.end() :])
        elif match := _ETHTOOL.search(text):
            interface = match[1]
        elif match := _OF_INTERFACE.match(line.text):
            found = [(match["name"], match["value"])]
        for name, value in found:
            shown = f"{card + ': ' if card else ''}{name} {value}"
            yield Item("counter", card, {"port": port, "counter": name, "value": int(value)}, line.number, shown)


# GPUs

_GPU = re.compile(r"GPU (?P<index>\d+): (?P<model>.+?) \(UUID: (?P<uuid>[\w-]+)\)")
_MIG = re.compile(r"\s+(?P<model>MIG .+?)\s+\(UUID: MIG-")
_NVLINK = re.compile(
    r"\s+Link (?P<link>\d+): (?:(?P<state><?inactive>?|[\d.]+ GB/s)|(?P<kind>\w+) Errors?: (?P<errors>\d+))",
    re.IGNORECASE,
)


def _nvidia_smi_list(lines: list[Line]) -> Iterator[Item]:
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
        elif match := _NVLINK.match(line.text):
            values = {"index": gpu, "link": int(match["link"])}
            if match["state"]:
                values["active"] = "inactive" not in match["state"].lower()
            else:
                values |= {"kind": match["kind"], "errors": int(match["errors"])}
            yield Item("nvlink", f"GPU {gpu}", values, line.number, f"GPU {gpu}: {text}")


_BUS_ID = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_WANTED = re.compile(
    r"ECC Errors/|Remapped Rows/|Retired Pages/|Clocks (?:Throttle|Event) Reasons/|Fabric/|GPU Link Info/Link Width/"
)
"""All else is nothing that rules ask for."""


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


_SERIALS = ("Serial Number", "Chassis Serial Number", "GPU UUID", "ClusterUUID", "Cluster UUID", "GUID")
_IBSTAT = ("Node GUID", "System image GUID", "Port GUID", "Base lid", "SM lid", "base lid", "sm lid")

TOOLS = (
    # df, df -h and df -i
    Tool(
        "df",
        "df output",
        rb"Filesystem +(?:Type +)?(?:Size|1K-blocks|1024-blocks|1M-blocks|512-blocks|1B-blocks|Inodes)\b",
        _df,
    ),
    # short (-p efa), in full (-v), or that it finds none
    Tool(
        "fi_info",
        "fi_info output",
        rb"provider: \w[^\n]*\n\s+fabric:|---\r?\nfi_info:|fi_getinfo: -?\d+(?: \(|\s*\Z)",
        _fi_info,
    ),
    # ibstat and ibstatus
    Tool(
        "ibstat",
        "ibstat output",
        rb"CA '[^'\n]+'\r?\n\s+CA type:|Infiniband device '[^'\n]+' port \d+ status:",
        _ibstat,
        _IBSTAT,
    ),
    # with and without -v
    Tool(
        "ibv_devinfo",
        "ibv_devinfo output",
        rb"hca_id:[ \t]+\S+\r?\n[ \t]+transport:",
        _ibv_devinfo,
        ("node_guid", "sys_image_guid", "port_lid", "sm_lid"),
    ),
    # ulimit -a of bash, zsh and sh; /proc/PID/limits; prlimit
    Tool(
        "limits",
        "ulimit output",
        rb"(?:core file size|real-time non-blocking time|socket buffer size) +\([^)\n]*-\w\) "
        rb"|-t: cpu time|time\((?:cpu-)?seconds\) |Limit +Soft Limit +Hard Limit|RESOURCE +DESCRIPTION +SOFT",
        _limits,
    ),
    # lsmod and /proc/modules
    Tool(
        "lsmod",
        "lsmod output",
        rb"Module[ \t]+Size[ \t]+Used by|\w+ \d+ \d+ \S+ (?:Live|Loading|Unloading) 0x[0-9a-f]+",
        _lsmod,
    ),
    # grep . /sys/class/infiniband/*/ports/*/{hw_,}counters/*; rdma statistic; ethtool -S
    Tool(
        "nic_counters",
        "NIC counter file",
        rb"(?:/sys/class/infiniband/)?[\w.-]+/ports/\d+/(?:hw_)?counters/\w+:\d"
        rb"|link \S+/\d+ (?:\w+ \d+ ){2}|NIC statistics:\r?\n\s+\S[^\n:]*: \d",
        _nic_counters,
    ),
    # nvidia-smi -L, nvidia-smi nvlink -s and -e
    Tool("nvidia_smi_list", "nvidia-smi list", rb"GPU \d+: [^\n]+ \(UUID: [\w-]+\)", _nvidia_smi_list),
    # nvidia-smi -q
    Tool("nvidia_smi_query", "nvidia-smi -q output", rb"=+NVSMI LOG=+", _nvidia_smi_query, _SERIALS),
    Tool(
        "rdma_link",
        "rdma link output",
        rb"(?:link |\d+/\d+: )\S+/\d+:? [^\n]*\bstate \w+ physical_state \w+",
        _rdma_link,
        ("lid ", "sm_lid ", "node_guid ", "sys_image_guid "),
    ),
    # of MLNX_OFED
    Tool("show_gids", "show_gids table", rb"DEV[ \t]+PORT[ \t]+INDEX[ \t]+GID\b", _show_gids),
)
