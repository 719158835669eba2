"""What a machine's topology allows: the class of the path between each two GPUs, from files given with ``--topology``.

One module for each format: ``recognises(text)`` tells whether a file is of that format, ``read(text, name)`` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from nccl_inspect.discovery import modules
from nccl_inspect.errors import TopologyError
from nccl_inspect.records import Record

P2P_CLASSES = ("NV", "PIX", "PXB")
"""Classes over which NCCL uses P2P by default on every platform (src/graph/paths.cc, 2.4 to 2.30)."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Topology(Record):
    """The GPUs of one machine and what joins them."""

    name: str
    """The file it came from."""
    gpus: int
    classes: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """``NV12``, ``PIX``, ``PXB``, ``PHB``, ``NODE`` or ``SYS`` for each directed pair of GPU indices (nvmlDev)."""

    def between(self, src: int, dst: int) -> str | None:
        """The class of a pair, None for a GPU that the file does not know."""
        return self.classes.get((src, dst))


def read(path: str) -> Topology:
    """Read a topology file of any known format.

    Raises:
        TopologyError: it cannot be read, or is of no known format.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TopologyError(f"{path}: {error.strerror}", "check the path given with --topology") from None
    for module in modules(__file__):
        reader = import_module(f"{__name__}.{module}")
        if reader.recognises(text):
            topology: Topology = reader.read(text, path)
            return topology
    raise TopologyError(f"{path}: not a topology that is understood", "give the output of 'nvidia-smi topo -m'")
