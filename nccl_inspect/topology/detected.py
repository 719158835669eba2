"""What the log itself proves of the machines: the paths that NCCL prints with NCCL_DEBUG_SUBSYS=GRAPH.

Only good news counts. NCCL prints the paths as it will use them: pairs that it may not join directly (P2P switched
off, refused by the driver) are then led over the CPU, whatever joins them (src/graph/paths.cc). So NVL, PIX and PXB
prove what the hardware has, PHB and SYS prove nothing. Two GPUs that reach an NVSwitch over NVLink are joined by it.

A matrix of ``nvidia-smi topo -m`` in the log proves as much as one given with ``--topology``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nccl_inspect.errors import TopologyError
from nccl_inspect.event.types import Notice
from nccl_inspect.model.job import Job
from nccl_inspect.model.statements import nvidia_smi as shown
from nccl_inspect.topology import Gpu, Topology
from nccl_inspect.util.records import Frozen, frozen

_PROVED = ("NVL", "NVB", "PIX", "PXB")
"""From near to far."""


def topologies(job: Job) -> list[Topology]:
    """One for each host whose log shows paths, and the matrix in the log."""
    lines_by_host: dict[str, list[_Said]] = {}
    for notice in job.notices:
        event = notice.event
        if notice.production == "nccl/topology-paths" and isinstance(event, Notice) and event.value("node") == "GPU":
            for host in notice.hosts:
                lines_by_host.setdefault(host, []).append(_Said(event.value("id"), event.value("paths")))
    topology = [topology for host, lines in lines_by_host.items() if (topology := _of_host(host, lines))]
    return [*topology, *_matrix(job)]


def _matrix(job: Job) -> list[Topology]:
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
class _Said(Frozen):
    """One line: a GPU, and (node, id, hops, bandwidth, class) of each path from it."""

    gpu: str
    paths: tuple[tuple[str, str, int, object, str], ...]


def _of_host(host: str, lines: Iterable[_Said]) -> Topology | None:
    lines = list(lines)
    if len({_split(line.gpu)[0] for line in lines}) > 1:
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
    return Topology(host, tuple(Gpu(bus_id=_split(gpu)[1]) for gpu in gpus), classes, host=host) if classes else None


def _split(gpu: str) -> tuple[str, str]:
    """The number of the host and the bus id: ``0-60``, until 2.20 only ``60``."""
    system, _, bus_id = gpu.rpartition("-")
    return system, bus_id
