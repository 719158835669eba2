"""What joins the GPUs and NICs of a machine, from files given with ``--topology`` and from the log itself.

One module for each format: ``recognises(text)`` says whether a file is of that format, ``read(text, name)`` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from importlib import import_module
from pathlib import Path

from nccl_inspect.errors import TopologyError
from nccl_inspect.util.discovery import instead_of, modules
from nccl_inspect.util.records import Frozen, frozen

P2P_CLASSES = ("NV", "PIX", "PXB")
"""Classes over which NCCL uses P2P by default on every platform (src/graph/paths.cc, 2.4 to 2.31)."""
_PARTS = ("detected", "xml_files")


@frozen
class Named(Frozen):
    """Holds how a log names a GPU: by nvmlDev, by PCI bus id, or by both."""

    nvml_dev: int | None
    bus_id: str | None


def named(bracket: str | None) -> Named:
    """Return what the bracket of a connection line (``0[19000]``, ``0[3]``) says: nvmlDev, before 2.18.3 the bus id.

    No GPU has a bus id of one digit, and no nvmlDev has two, except on rare machines with more than ten GPUs.
    """
    if bracket is None:
        return Named(None, None)
    return Named(int(bracket), None) if len(bracket) == 1 and bracket.isdigit() else Named(None, bracket)


def bus_number(bus_id: str) -> int | None:
    """A bus id as NCCL counts it: ``0000:19:00.0`` and ``19000`` are the same; None for what is none."""
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

    def between(self, src: int, dst: int) -> str | None:
        """The class of a pair of nvmlDev indices, None when it is not known."""
        return self.pair(Named(src, None), Named(dst, None))

    def pair(self, src: Named, dst: Named) -> str | None:
        """The class of a pair of GPUs, None when it is not known, or when the names fit several that differ."""
        ends = ((a, b) for a in self._places(src) for b in self._places(dst))
        kinds = {self.classes[pair] for pair in ends if pair in self.classes}
        return kinds.pop() if len(kinds) == 1 else None

    def gpu(self, gpu: Named) -> Gpu | None:
        """The GPU of that name, None when there is none or several."""
        places = self._places(gpu)
        return self.devices[places[0]] if len(places) == 1 else None

    def _places(self, gpu: Named) -> list[int]:
        """Return where a GPU may be in ``devices``: by its bus id where that is known here, else by its index."""
        if gpu.bus_id is not None:
            wanted = bus_number(gpu.bus_id)
            places = [
                i for i, device in enumerate(self.devices) if device.bus_id and bus_number(device.bus_id) == wanted
            ]
            if places and gpu.nvml_dev is None and gpu.bus_id.isdigit() and self._places(Named(int(gpu.bus_id), None)):
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
            f"{path}: {error.strerror}", instead_of(Path(path), "check the path given with --topology")
        ) from None
    return understood(text, path)


def understood(text: str, name: str) -> Topology:
    """Read a topology of any known format.

    Raises:
        TopologyError: it is damaged, or of no known format.
    """
    for module in modules(__file__, *_PARTS):
        reader = import_module(f"{__name__}.{module}")
        if reader.recognises(text):
            topology: Topology = reader.read(text, name)
            return topology
    raise TopologyError(
        f"{name}: not a topology that is understood",
        "give the output of 'nvidia-smi topo -m', or what NCCL wrote to NCCL_TOPO_DUMP_FILE or NCCL_GRAPH_DUMP_FILE",
    )
