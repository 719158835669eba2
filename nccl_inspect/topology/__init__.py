"""What joins the GPUs and NICs of a machine, from files given with ``--topology`` and from the log itself.

A file holds the matrix that ``nvidia-smi topo -m`` prints, or the XML that NCCL writes (``nccl_xml.py``).

The log itself has the paths that NCCL prints with NCCL_DEBUG_SUBSYS=GRAPH. Only good news counts: NCCL prints the paths
as it will use them, and pairs that it may not join directly (P2P switched off, refused by the driver) are led over the
CPU, whatever joins them (src/graph/paths.cc). So NVL, PIX and PXB prove what the hardware has, PHB and SYS prove
nothing. Two GPUs that reach an NVSwitch over NVLink are joined by it. A matrix of ``nvidia-smi topo -m`` in the log
proves as much as one given with ``--topology``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TypeAlias

from nccl_inspect.errors import TopologyError
from nccl_inspect.event.types import Notice
from nccl_inspect.model import inventory
from nccl_inspect.model.job import Job
from nccl_inspect.model.statements import nvidia_smi
from nccl_inspect.util.discovery import suggest_path
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen


def bus_number(bus_id: str) -> int | None:
    """Return a bus id as NCCL counts it: ``0000:19:00.0`` and ``19000`` are the same; None for what is none."""
    digits = re.sub(r"[:.]", "", bus_id)
    return int(digits, 16) if re.fullmatch(r"[0-9A-Fa-f]{1,15}", digits) else None


class Gpu(Frozen):
    """One GPU, as far as the source names it."""

    index: int | None = None  # nvmlDev
    bus_id: str | None = None
    sm: int | None = None  # compute capability: 90 is Hopper
    gdr: bool | None = None  # whether its driver supports GPUDirect RDMA


class Nic(Frozen):
    """One NIC, or one port of it."""

    name: str | None = None
    index: int | None = None  # how NCCL counts it: the number in `NET/IB/3`
    gbps: float | None = None  # Gb/s, as the network plugin reports it; virtual NICs report what they like
    port: int | None = None
    gdr: bool | None = None  # whether the network plugin can use GPU memory with it
    bus_id: str | None = None
    classes: Mapping[int, str] = field(default_factory=dict)
    """``PIX``, ``PXB``, ``PHB``, ``NODE`` or ``SYS`` by the GPU's place in :attr:`Topology.devices`."""


class Topology(Frozen):
    """The GPUs and NICs of a machine (with multi-node NVLink: of several) and what joins them."""

    name: str  # the file it came from, or the host whose log it was
    devices: tuple[Gpu, ...] = ()
    classes: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """``NV12``, ``PIX``, ``PXB``, ``PHB``, ``NODE`` or ``SYS`` for each directed pair of places in ``devices``.

    Where the number of NVLinks is not stated, it is ``NVL``; ``NVB`` goes by NVLink over a third GPU.
    """
    nics: tuple[Nic, ...] = ()
    host: str | None = None
    """The only host that it is about; None for a file, which stands for all machines of its kind."""
    proven: bool = True  # whether it is known to be of the job's machines

    @property
    def gpus(self) -> int:
        """Return how many GPUs there are."""
        return len(self.devices)

    def pair(self, src: inventory.Gpu, dst: inventory.Gpu) -> str | None:
        """Return the class of a pair of GPUs, None when it is not known, or when the names fit several that differ."""
        ends = ((a, b) for a in self._find_places(src) for b in self._find_places(dst))
        kinds = {self.classes[pair] for pair in ends if pair in self.classes}
        return kinds.pop() if len(kinds) == 1 else None

    def _find_places(self, gpu: inventory.Gpu) -> list[int]:
        by_index: dict[int | None, list[int]] = group_values((gpu.index, i) for i, gpu in enumerate(self.devices))
        if gpu.bus_id is not None and (wanted := bus_number(gpu.bus_id)) is not None:
            places = [i for i, one in enumerate(self.devices) if one.bus_id and bus_number(one.bus_id) == wanted]
            if places and gpu.nvml_dev is None and gpu.bus_id.isdigit() and int(gpu.bus_id) in by_index:
                return []  # it may as well be an index
            if places:
                return places
        return by_index.get(gpu.nvml_dev, []) if gpu.nvml_dev is not None else []


def read(path: str) -> Topology:
    """Read a topology file of any known format; a TopologyError says that it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TopologyError(
            f"{path}: {error.strerror}", suggest_path(Path(path), "check the path given with --topology")
        ) from None
    return read_any(text, path)


def read_any(text: str, name: str) -> Topology:
    """Read a topology of any known format; a TopologyError says that it is damaged, or of none."""
    plain = _ANSI.sub("", text)
    if _HEAD.search(plain) and _FIRST_ROW.search(plain):
        return _read_matrix(plain, name)

    from nccl_inspect.topology import nccl_xml  # few jobs have such a file

    if nccl_xml.recognises(text):
        return nccl_xml.read(text, name)
    raise TopologyError(
        f"{name}: not a topology that is understood",
        "give the output of 'nvidia-smi topo -m', or what NCCL wrote to NCCL_TOPO_DUMP_FILE or NCCL_GRAPH_DUMP_FILE",
    )


_HEAD = compile_later(r"^[\s\x1b\[4m]*GPU0\b.*$", re.MULTILINE)
_ANSI = compile_later(r"\x1b\[[0-9;]*m")
_AGAIN = "copy the whole output of nvidia-smi topo -m"
_CLASS = compile_later(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")
_LEGEND = compile_later(r"^\s*(NIC\d+):\s*(\S+)", re.MULTILINE)
_FIRST_ROW = compile_later(r"^GPU0\s+X\b", re.MULTILINE)


def _read_matrix(plain: str, name: str) -> Topology:
    """Return what ``nvidia-smi topo -m`` prints.

    ::

                GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
        GPU0     X      NV12    PXB     0-23,48-71      0               N/A
        GPU1    NV12     X      SYS     0-23,48-71      0               N/A
        NIC0    PXB     SYS      X

        NIC Legend:

          NIC0: mlx5_0
    """
    lines = plain.splitlines()
    heads = (line for line in lines if line.split()[:1] == ["GPU0"] and "X" not in line.split())
    head = next(heads, "")
    columns = [word for word in head.split() if re.fullmatch(r"(?:GPU|NIC|mlx5_)\w*", word)]
    columns = columns[: columns.index("GPU")] if "GPU" in columns else columns  # of "GPU NUMA ID"
    gpus = [word for word in columns if re.fullmatch(r"GPU\d{1,3}", word)]
    if not gpus:
        raise TopologyError(f"{name}: the row with the names of the GPUs is damaged", _AGAIN)
    rows = {line.split()[0]: line.split() for line in reversed(lines) if line.strip() and line != head}
    classes: dict[tuple[int, int], str] = {}
    distances: dict[str, dict[int, str]] = {word: {} for word in columns if word not in gpus}
    for place, gpu in enumerate(gpus):
        row = rows.get(gpu)
        if row is None or len(row) <= len(gpus) or not all(map(_CLASS.fullmatch, row[1 : len(gpus) + 1])):
            raise TopologyError(f"{name}: the row of {gpu} is damaged", _AGAIN)
        for column, cell in zip(columns, row[1:], strict=False):
            if column in distances and _CLASS.fullmatch(cell):
                distances[column][place] = cell
            elif column in gpus and column != gpu:
                classes[place, gpus.index(column)] = cell
    names = dict(_LEGEND.findall(plain))
    nics = tuple(Nic(names.get(column, column), classes=kinds) for column, kinds in distances.items())
    return Topology(name, tuple(Gpu(int(gpu[3:])) for gpu in gpus), classes, nics)


_PROVED = ("NVL", "NVB", "PIX", "PXB")  # from near to far


def topologies(job: Job) -> list[Topology]:
    """Return a topology for each host whose log shows paths, and the matrix in the log."""
    lines_by_host = group_values(
        (host, (event.value("id"), event.value("paths")))
        for notice in job.notices
        if notice.production == "nccl/topology-paths"
        and isinstance(event := notice.event, Notice)
        and event.value("node") == "GPU"
        for host in notice.hosts
    )
    found = [topology for host, lines in lines_by_host.items() if (topology := _topology_of_host(host, lines))]
    # Launchers and collectors put something before each line of the matrix, and those of several machines may be mixed.
    rows = nvidia_smi.on_hosts(job, "topology-matrix")
    if rows.lines and len({row.split()[0] for row in rows.lines}) >= len(rows.lines) - 1:
        # It is whole, and of one kind of machines: the head begins with GPU0 as the first row does.
        plain, source = _ANSI.sub("", "\n".join(sorted(rows.lines))), next(iter(rows.lines.values())).evidence[0].source
        with suppress(TopologyError):
            matrix = _read_matrix(plain, source)
            if matrix.gpus >= nvidia_smi.most_gpus(job):  # one with fewer is none of the job
                found.append(replace(matrix, proven=rows.proven))
    return found


_Path: TypeAlias = tuple[str, str, int, object, str]  # node, id, hops, bandwidth and class


def _topology_of_host(host: str, lines: list[tuple[str, tuple[_Path, ...]]]) -> Topology | None:
    ids = {gpu: gpu.rpartition("-") for gpu, _ in lines}  # number of the host and bus id: 0-60, until 2.20 only 60
    if len({system for system, _, _ in ids.values()}) > 1:
        return None  # multi-node NVLink: which of these hosts is this one is not told
    places = {gpu: place for place, gpu in enumerate(ids)}
    switched = {gpu for gpu, paths in lines if any(end[0] == "NVS" and end[4] == "NVL" for end in paths)}
    classes: dict[tuple[int, int], str] = {}
    for gpu, paths in lines:
        for node, other, _, _, kind in paths:
            if node != "GPU" or other not in places or other == gpu:
                continue
            pair = places[gpu], places[other]
            kinds = {kind, classes.get(pair), "NVL" if {gpu, other} <= switched else None}
            if best := next((kind for kind in _PROVED if kind in kinds), None):
                classes[pair] = best
    gpus = tuple(Gpu(bus_id=bus_id) for _, _, bus_id in ids.values())
    return Topology(host, gpus, classes, host=host) if classes else None
