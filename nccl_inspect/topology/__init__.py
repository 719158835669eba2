"""What joins the GPUs and NICs of a machine, from files given with ``--topology`` and from the log itself.

One module for each format: ``recognises(text)`` says whether a file is of that format, ``read(text, name)`` reads it.

The log itself has the paths that NCCL prints with NCCL_DEBUG_SUBSYS=GRAPH. Only good news counts: NCCL prints the paths
as it will use them, and pairs that it may not join directly (P2P switched off, refused by the driver) are led over the
CPU, whatever joins them (src/graph/paths.cc). So NVL, PIX and PXB prove what the hardware has, PHB and SYS prove
nothing. Two GPUs that reach an NVSwitch over NVLink are joined by it. A matrix of ``nvidia-smi topo -m`` in the log
proves as much as one given with ``--topology``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from importlib import import_module
from pathlib import Path

from nccl_inspect.errors import TopologyError
from nccl_inspect.event.types import Notice
from nccl_inspect.model import inventory
from nccl_inspect.model.job import Job
from nccl_inspect.model.statements import nvidia_smi as shown
from nccl_inspect.util.discovery import modules, suggest_path
from nccl_inspect.util.records import Frozen, frozen


def bus_number(bus_id: str) -> int | None:
    """Return a bus id as NCCL counts it: ``0000:19:00.0`` and ``19000`` are the same; None for what is none."""
    digits = re.sub(r"[:.]", "", bus_id)
    return int(digits, 16) if re.fullmatch(r"[0-9A-Fa-f]{1,15}", digits) else None


@frozen
class Gpu(Frozen):
    """One GPU, as far as the source names it."""

    index: int | None = None
    """nvmlDev."""
    bus_id: str | None = None
    sm: int | None = None
    """Compute capability: 90 is Hopper."""
    gdr: bool | None = None
    """Whether its driver supports GPUDirect RDMA."""


@frozen
class Nic(Frozen):
    """One NIC, or one port of it."""

    name: str | None = None
    index: int | None = None
    """How NCCL counts it: the number in ``NET/IB/3``."""
    gbps: float | None = None
    """Gb/s, as the network plugin reports it; virtual NICs report what they like."""
    port: int | None = None
    gdr: bool | None = None
    """Whether the network plugin can use GPU memory with it."""
    bus_id: str | None = None
    classes: Mapping[int, str] = field(default_factory=dict)
    """``PIX``, ``PXB``, ``PHB``, ``NODE`` or ``SYS`` by the GPU's place in :attr:`Topology.devices`."""


@frozen
class Topology(Frozen):
    """The GPUs and NICs of a machine (with multi-node NVLink: of several) and what joins them."""

    name: str
    """The file it came from, or the host whose log it was."""
    devices: tuple[Gpu, ...] = ()
    classes: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """``NV12``, ``PIX``, ``PXB``, ``PHB``, ``NODE`` or ``SYS`` for each directed pair of places in ``devices``.

    Where the number of NVLinks is not stated, it is ``NVL``; ``NVB`` goes by NVLink over a third GPU.
    """
    nics: tuple[Nic, ...] = ()
    host: str | None = None
    """The only host that it is about; None for a file, which stands for all machines of its kind."""
    proven: bool = True
    """Whether it is known to be of the job's machines."""

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
        """Return where a GPU may be in ``devices``: by its bus id where that is known here, else by its index."""
        if gpu.bus_id is not None:
            wanted = bus_number(gpu.bus_id)
            places = [
                i for i, device in enumerate(self.devices) if device.bus_id and bus_number(device.bus_id) == wanted
            ]
            if (
                places
                and gpu.nvml_dev is None
                and gpu.bus_id.isdigit()
                and self._find_places(inventory.Gpu(int(gpu.bus_id), None))
            ):
                return []  # it may as well be an index
            if places:
                return places
        return [i for i, device in enumerate(self.devices) if gpu.nvml_dev is not None and device.index == gpu.nvml_dev]


def read(path: str) -> Topology:
    """Read a topology file of any known format.

    Raises:
        TopologyError: it cannot be read, or is of no known format.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TopologyError(
            f"{path}: {error.strerror}", suggest_path(Path(path), "check the path given with --topology")
        ) from None
    return read_any(text, path)


def read_any(text: str, name: str) -> Topology:
    """Read a topology of any known format.

    Raises:
        TopologyError: it is damaged, or of no known format.
    """
    for module in modules(__file__):
        reader = import_module(f"{__name__}.{module}")
        if reader.recognises(text):
            topology: Topology = reader.read(text, name)
            return topology
    raise TopologyError(
        f"{name}: not a topology that is understood",
        "give the output of 'nvidia-smi topo -m', or what NCCL wrote to NCCL_TOPO_DUMP_FILE or NCCL_GRAPH_DUMP_FILE",
    )


_PROVED = ("NVL", "NVB", "PIX", "PXB")
"""From near to far."""


def topologies(job: Job) -> list[Topology]:
    """Return a topology for each host whose log shows paths, and the matrix in the log."""
    lines_by_host: dict[str, list[_PathLine]] = {}
    for notice in job.notices:
        event = notice.event
        if notice.production == "nccl/topology-paths" and isinstance(event, Notice) and event.value("node") == "GPU":
            for host in notice.hosts:
                lines_by_host.setdefault(host, []).append(_PathLine(event.value("id"), event.value("paths")))
    topology = [topology for host, lines in lines_by_host.items() if (topology := _topology_of_host(host, lines))]
    return [*topology, *_read_matrix(job)]


def _read_matrix(job: Job) -> list[Topology]:
    """Return what ``nvidia-smi topo -m`` printed into the log, where it did so of one kind of machines and as a whole.

    Launchers and collectors put something before each line, and of several machines the lines may be mixed. A machine
    with fewer GPUs than the job uses on one host is none of the job.
    """
    rows = shown.on_hosts(job, "topology-matrix")
    if not rows.lines or len({row.split()[0] for row in rows.lines}) < len(rows.lines) - 1:
        return []  # none, or two that differ: the head begins with GPU0 as the first row does

    from nccl_inspect.topology import nvidia_smi  # few logs show the matrix

    try:
        matrix = nvidia_smi.read("\n".join(sorted(rows.lines)), next(iter(rows.lines.values())).evidence[0].source)
    except TopologyError:
        return []
    return [replace(matrix, proven=rows.proven)] if matrix.gpus >= shown.most_gpus(job) else []


@frozen
class _PathLine(Frozen):
    """One line: a GPU, and (node, id, hops, bandwidth, class) of each path from it."""

    gpu: str
    paths: tuple[tuple[str, str, int, object, str], ...]


def _topology_of_host(host: str, lines: Iterable[_PathLine]) -> Topology | None:
    lines = list(lines)
    if len({_split_id(line.gpu)[0] for line in lines}) > 1:
        return None  # multi-node NVLink: which of these hosts is this one is not told
    gpus = list(dict.fromkeys(line.gpu for line in lines))
    switched = {line.gpu for line in lines if any(end[0] == "NVS" and end[4] == "NVL" for end in line.paths)}
    classes: dict[tuple[int, int], str] = {}
    for line in lines:
        for node, other, _, _, kind in line.paths:
            if node != "GPU" or other not in gpus or other == line.gpu:
                continue
            pair = gpus.index(line.gpu), gpus.index(other)
            kinds = {kind, classes.get(pair), "NVL" if {line.gpu, other} <= switched else None}
            if best := next((kind for kind in _PROVED if kind in kinds), None):
                classes[pair] = best
    return Topology(host, tuple(Gpu(bus_id=_split_id(gpu)[1]) for gpu in gpus), classes, host=host) if classes else None


def _split_id(gpu: str) -> tuple[str, str]:
    """Return the number of the host and the bus id: ``0-60``, until 2.20 only ``60``."""
    system, _, bus_id = gpu.rpartition("-")
    return system, bus_id
