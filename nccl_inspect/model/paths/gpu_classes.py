"""The classes of GPU pairs as NCCL detected them (subsystem GRAPH): ``GPU/90 :GPU/80 (2/360.0/NVL) …``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nccl_inspect.event.types import Notice as Statement
from nccl_inspect.model.job import Notice, PathKind, Paths
from nccl_inspect.model.paths.table import refined

Pair = tuple[str, str, str]
"""Host and the bus ids of two GPUs."""


def gpu_classes(notices: Iterable[Notice]) -> dict[Pair, str]:
    """The class of each pair, where all processes of a host that state it agree."""
    by_pair: dict[Pair, set[str]] = {}
    for notice in notices:
        if notice.production != "nccl/topology-paths" or not isinstance(notice.event, Statement):
            continue
        values = dict(notice.event.values)
        if values["node"] != "GPU":
            continue
        for node, other, _hops, _bandwidth, kind in values["paths"]:
            for host in notice.hosts if node == "GPU" else ():
                by_pair.setdefault((host, _bus_id(values["id"]), _bus_id(other)), set()).add(kind)
    return {pair: kinds.pop() for pair, kinds in by_pair.items() if len(kinds) == 1}


def _bus_id(name: str) -> str:
    """Since 2.21 the number of the system precedes the bus id: 0-60; until 2.20 letters are capitals."""
    return name.rpartition("-")[2].lower()


def name_classes(paths: Paths, classes: Mapping[Pair, str], bus_ids: Mapping[int, str]) -> Paths:
    """Give P2P paths their class; other pairs NCCL reroutes through the CPU, whatever joins them."""
    names: list[str | None] = [None, *dict.fromkeys(classes.values())]
    number = {name: place for place, name in enumerate(names)}

    def class_of(kind: PathKind, hosts: tuple[str | None, str | None], *ends: tuple[int, str | None]) -> str | None:
        if kind.transport != "P2P" or hosts[0] is None or hosts[0] != hosts[1]:
            return None
        first, second = [bus_ids.get(rank, gpu or "").lower() for rank, gpu in ends]
        return classes.get((hosts[0], first, second))

    ways = paths.values(lambda kind: kind, "src_host", "dst_host", "src", "src_gpu", "dst", "dst_gpu")
    marking = [
        number[class_of(kind, (src_host, dst_host), (src, src_gpu), (dst, dst_gpu))]
        for kind, src_host, dst_host, src, src_gpu, dst, dst_gpu in ways
    ]
    return refined(paths, marking, lambda kind, mark: kind.with_fields(gpu_class=names[mark]))
