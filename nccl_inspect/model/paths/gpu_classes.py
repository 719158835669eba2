"""The classes of GPU pairs as NCCL detected them (subsystem GRAPH): ``GPU/90 :GPU/80 (2/360.0/NVL) …``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nccl_inspect.event.types import Notice as Statement
from nccl_inspect.model.job import Notice, Path

Pair = tuple[str, str, str]
"""Host and the bus ids of two GPUs."""


def gpu_classes(notices: Iterable[Notice]) -> dict[Pair, str]:
    """The class of each pair, where all processes of a host that tell it tell the same."""
    found: dict[Pair, set[str]] = {}
    for notice in notices:
        if notice.production != "nccl/topology-paths" or not isinstance(notice.event, Statement):
            continue
        values = dict(notice.event.values)
        if values["node"] != "GPU":
            continue
        for node, other, _hops, _bandwidth, kind in values["paths"]:
            for host in notice.hosts if node == "GPU" else ():
                found.setdefault((host, _bus_id(values["id"]), _bus_id(other)), set()).add(kind)
    return {pair: kinds.pop() for pair, kinds in found.items() if len(kinds) == 1}


def _bus_id(name: str) -> str:
    """Since 2.21 the number of the system stands in front of the bus id: 0-60; until 2.20 letters are capitals."""
    return name.rpartition("-")[2].lower()


def name_classes(paths: Iterable[Path], classes: Mapping[Pair, str], bus_ids: Mapping[int, str]) -> None:
    """Give P2P paths their class; other pairs NCCL reroutes through the CPU, whatever joins them."""
    for path in paths:
        if path.transport != "P2P" or path.src_host is None or path.src_host != path.dst_host:
            continue
        ends = [
            bus_ids.get(rank, gpu or "").lower() for rank, gpu in ((path.src, path.src_gpu), (path.dst, path.dst_gpu))
        ]
        path.gpu_class = classes.get((path.src_host, ends[0], ends[1]))
