"""The XML that NCCL writes to NCCL_GRAPH_DUMP_FILE: the rings and trees that its search found inside a node.

::

    <graphs version="1">
      <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="20" speedinter="20" typeintra="NVL"
             typeinter="PIX" samechannels="1">
        <channel><net dev="0"/><gpu dev="0"/><gpu dev="0x1"/><net dev="0"/></channel>

``typeintra`` is the farthest class between neighbours that the search allowed itself. So it proves that neighbours are
at least that close, and nothing where it is farther than PXB: where P2P is switched off, NCCL itself counts all pairs
as joined by the CPU (src/graph/search.cc, paths.cc).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from nccl_inspect.errors import TopologyError
from nccl_inspect.topology import P2P_CLASSES, Gpu, Nic, Topology
from nccl_inspect.topology.xml_files import number, parsed

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element  # the type only: what reads the file is defusedxml

_ROOT = re.compile(r"\A\ufeff?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<graphs\b", re.DOTALL)
_CHAINS = (1, 2, 3, 4)
"""Patterns whose channels name the GPUs in their order: balanced tree, split tree, tree, ring."""
_MAX_DEVICES = 4096
_DEVICE = (1 << 56) - 1
"""Since 2.22 the number of the host is in the upper bits."""


def recognises(text: str) -> bool:
    """Whether the root of the document is ``graphs``."""
    return _ROOT.match(text) is not None


def read(text: str, name: str) -> Topology:
    """Read the graphs.

    Raises:
        TopologyError: it is not well-formed XML, or holds no channel.
    """
    graphs = [graph for graph in parsed(text, name).iter("graph") if number(graph, "pattern") in _CHAINS]
    channels = [(graph, channel) for graph in graphs for channel in graph.findall("channel")]
    devices = list(dict.fromkeys(gpu for _, channel in channels for gpu in _numbers(channel, "gpu")))
    if len(devices) > _MAX_DEVICES:
        raise TopologyError(f"{name}: more GPUs than any machine has", "give what NCCL wrote to NCCL_GRAPH_DUMP_FILE")
    if not devices:
        raise TopologyError(f"{name}: no ring or tree in it", "dump again: NCCL_GRAPH_DUMP_FILE=/tmp/graph.xml")
    classes: dict[tuple[int, int], str] = {}
    near: dict[int, dict[int, str]] = {}
    for graph, channel in channels:
        for a, b in _neighbours(graph, channel):
            kind = graph.get("typeintra", "")
            if kind.startswith(P2P_CLASSES):
                for pair in ((devices.index(a), devices.index(b)), (devices.index(b), devices.index(a))):
                    classes[pair] = min(kind, classes.get(pair, kind), key=_farness)
        for net, gpu in _entries(channel):
            kind = graph.get("typeinter", "")
            nearest = near.setdefault(net, {})
            if kind in ("PIX", "PXB"):
                place = devices.index(gpu)
                nearest[place] = min(kind, nearest.get(place, kind), key=_farness)
    nics = tuple(Nic(index=net & _DEVICE, classes=nearest) for net, nearest in sorted(near.items()))
    return Topology(name, tuple(Gpu(device & _DEVICE) for device in devices), classes, nics)


def _farness(kind: str) -> int:
    return ("NVL", "NVB", "PIX", "PXB").index(kind) if kind in ("NVL", "NVB", "PIX", "PXB") else 4


def _numbers(channel: Element, tag: str) -> list[int]:
    return [value for element in channel.findall(tag) if (value := number(element, "dev")) is not None]


def _neighbours(graph: Element, channel: Element) -> Iterator[tuple[int, int]]:
    gpus = _numbers(channel, "gpu")
    yield from pairwise(gpus)
    if number(graph, "pattern") == 4 and len(gpus) > 2 and not channel.findall("net"):
        yield gpus[-1], gpus[0]


def _entries(channel: Element) -> Iterator[tuple[int, int]]:
    """The NICs of a channel with the GPUs beside them: data comes in at the first and leaves at the last."""
    nets, gpus = _numbers(channel, "net"), _numbers(channel, "gpu")
    if nets and gpus:
        yield nets[0], gpus[0]
