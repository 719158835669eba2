"""The XML that NCCL writes: the tree of a machine (NCCL_TOPO_DUMP_FILE) and what its search found in it.

The tree, which NCCL also reads from NCCL_TOPO_FILE (src/graph/xml.cc, topo.cc)::

    <system version="1">
      <cpu numaid="0" …>
        <pci busid="0000:16:00.0" class="0x060400" …>
          <pci busid="0000:18:00.0" class="0x030200" …>
            <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:a9:00.0" count="4" tclass="0x068000"/></gpu>
          </pci>
          <pci busid="0000:17:00.0" class="0x020000" …>
            <nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x…" gdr="1"/></nic>

Nesting is meaning: what shares a ``pci`` is joined by that switch, what shares the ``cpu`` only by the CPU. A file of
a cloud vendor may name GPUs and NICs by their PCI class only; then it says nothing of NVLink. With multi-node NVLink
the file holds several hosts, distinguished by ``host_hash``.

The rings and trees that the search found inside a node (NCCL_GRAPH_DUMP_FILE)::

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
from dataclasses import replace
from itertools import pairwise, permutations
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect.errors import TopologyError
from nccl_inspect.model.paths.path import P2P_CLASSES
from nccl_inspect.topology import Gpu, Nic, Topology, bus_number

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element  # the type only: what reads the file is defusedxml

_ROOT = re.compile(r"\A\ufeff?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<(?:system|graphs)\b", re.DOTALL)
_MAX_DEVICES = 4096
_OTHER_FILE = "give the file that NCCL wrote to NCCL_TOPO_DUMP_FILE"
_GPU_CLASS, _NIC_CLASS, _SWITCH_CLASS = "0x03", "0x02", "0x068000"
_RING = 4
_CHAINS = (1, 2, 3, _RING)
"""Patterns of a graph whose channels name the GPUs in their order: balanced tree, split tree, tree, ring."""
_DEVICE = (1 << 56) - 1  # since 2.22 the number of the host is in the upper bits


def recognises(text: str) -> bool:
    """Return whether the root of the document is ``system`` or ``graphs``."""
    return _ROOT.match(text) is not None


def read(text: str, name: str) -> Topology:
    """Read the tree, or the graphs; without entities, which could blow up."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        root: Element = fromstring(text.lstrip("\ufeff").strip(), forbid_dtd=True)
    except DefusedXmlException:
        raise TopologyError(
            f"{name}: a document type or an entity, which NCCL never writes", "give the file as NCCL wrote it"
        ) from None
    except (ParseError, ValueError) as error:
        raise TopologyError(f"{name}: damaged XML ({error})", "copy the whole file that NCCL wrote") from None
    return _read_tree(root, name) if root.tag == "system" else _read_graphs(root, name)


def number(element: Element, name: str) -> int | None:
    """Return a whole number of 64 bits, decimal or hexadecimal (``0x2``); None when it is absent or something else."""
    try:
        value = int(element.get(name, ""), 0)
    except ValueError:
        return None
    return value if abs(value) < 1 << 63 else None


class _Found(NamedTuple):
    device: Gpu | Nic
    above: tuple[Element, ...]  # the CPU, then the PCI switches down to it
    host: str
    links: dict[object, int] = {}  # noqa: RUF012 - nobody changes it
    """How many NVLinks lead to each other GPU, by bus number, and to NVSwitches, by ``switch``."""


def _read_tree(root: Element, name: str) -> Topology:
    try:
        places = [place for cpu in root.iter("cpu") for place in _find_below(cpu, (cpu,), cpu.get("host_hash", ""))]
    except RecursionError:
        raise TopologyError(f"{name}: more switches below each other than any machine has", _OTHER_FILE) from None
    gpus = [place for place in places if isinstance(place.device, Gpu)]
    if not gpus:
        raise TopologyError(f"{name}: no GPU in it", "dump again: NCCL_TOPO_DUMP_FILE=/tmp/topo.xml")
    if len(places) > _MAX_DEVICES:
        raise TopologyError(f"{name}: more than {_MAX_DEVICES:,} devices, which no machine has", _OTHER_FILE)
    numbers = [bus_number(place.device.bus_id or "") for place in gpus]
    classes = {
        (a, b): kind
        for a, b in permutations(range(len(gpus)), 2)
        if gpus[a].host == gpus[b].host and (kind := _class(gpus[a], gpus[b], numbers, numbers[b]))
    }
    nics = []
    for nic in places:
        if isinstance(nic.device, Nic):
            ways = {place: _pci_class(gpu.above, nic.above) for place, gpu in enumerate(gpus) if gpu.host == nic.host}
            nics.append(replace(nic.device, classes=ways))
    return Topology(name, tuple(gpu.device for gpu in gpus if isinstance(gpu.device, Gpu)), classes, tuple(nics))


def _find_below(parent: Element, above: tuple[Element, ...], host: str) -> Iterator[_Found]:
    for child in parent:
        if child.tag not in ("pci", "nic"):
            continue
        bus_id, kind = child.get("busid"), child.get("class", "")
        nic = child if child.tag == "nic" else child.find("nic")
        if gpus := child.findall("gpu"):
            for gpu in gpus:
                device = Gpu(number(gpu, "dev"), bus_id, number(gpu, "sm"), _flag(gpu))
                yield _Found(device, above, host, _links(gpu))
        elif nic is not None:
            for net in nic.findall("net"):
                speed = number(net, "speed")
                gbps = speed / 1000 if speed and speed > 0 else None
                ids = net.get("name"), number(net, "dev"), gbps, number(net, "port")
                yield _Found(Nic(*ids, _flag(net), None if nic is child else bus_id), above, host)
        elif kind.startswith(_GPU_CLASS):
            yield _Found(Gpu(bus_id=bus_id), above, host)
        elif kind.startswith(_NIC_CLASS):
            yield _Found(Nic(bus_id=bus_id), above, host)
        else:
            yield from _find_below(child, (*above, child), host)


def _flag(element: Element) -> bool | None:
    value = number(element, "gdr")  # GPUDirect RDMA
    return None if value is None else bool(value)


def _pci_class(way: tuple[Element, ...], other: tuple[Element, ...]) -> str:
    """Return PIX below one switch, PXB over several, PHB over the CPU (NODE to nvidia-smi), SYS between CPUs."""
    if way[0] is not other[0]:
        return "SYS"
    if len(way) == 1 or len(other) == 1 or way[1] is not other[1]:
        return "PHB"
    return "PIX" if way[-1] is other[-1] else "PXB"


def _links(gpu: Element) -> dict[object, int]:
    links: dict[object, int] = {}
    for link in gpu.findall("nvlink"):
        kind = link.get("tclass", "")
        target: object = "switch" if kind.startswith(_SWITCH_CLASS) and kind != "0x068001" else None
        if kind.startswith(_GPU_CLASS):
            target = bus_number(link.get("target", ""))
        if target is not None:
            links[target] = links.get(target, 0) + (number(link, "count") or 0)
    return links


def _class(gpu: _Found, other: _Found, numbers: list[int | None], number_of_other: int | None) -> str | None:
    """Return the class of two GPUs of one host; None where the file may leave out NVLinks that are there."""
    direct = gpu.links.get(number_of_other, 0) or min(gpu.links.get("switch", 0), other.links.get("switch", 0))
    if direct:
        return f"NV{direct}"
    pci = _pci_class(gpu.above, other.above)
    if pci.startswith(P2P_CLASSES):
        return pci
    if any(n in numbers for n in gpu.links.keys() & other.links.keys() if n is not None):
        return "NVB"
    is_by_nccl = all(isinstance(end.device, Gpu) and end.device.sm for end in (gpu, other))
    return pci if is_by_nccl else None


def _read_graphs(root: Element, name: str) -> Topology:
    graphs = [graph for graph in root.iter("graph") if number(graph, "pattern") in _CHAINS]
    channels = [
        (graph, _numbers(channel, "gpu"), _numbers(channel, "net"))
        for graph in graphs
        for channel in graph.findall("channel")
    ]
    devices = list(dict.fromkeys(gpu for _, gpus, _ in channels for gpu in gpus))
    if len(devices) > _MAX_DEVICES:
        raise TopologyError(f"{name}: more GPUs than any machine has", "give what NCCL wrote to NCCL_GRAPH_DUMP_FILE")
    if not devices:
        raise TopologyError(f"{name}: no ring or tree in it", "dump again: NCCL_GRAPH_DUMP_FILE=/tmp/graph.xml")
    places = {device: place for place, device in enumerate(devices)}
    classes: dict[tuple[int, int], str] = {}
    near: dict[int, dict[int, str]] = {}
    for graph, gpus, nets in channels:
        kind = graph.get("typeintra", "")
        is_closed = number(graph, "pattern") == _RING and len(gpus) > 2 and not nets
        for a, b in pairwise([*gpus, *gpus[: 1 if is_closed else 0]]):
            for pair in ((places[a], places[b]), (places[b], places[a])) if kind.startswith(P2P_CLASSES) else ():
                classes[pair] = min(kind, classes.get(pair, kind), key=_distance)
        if nets and gpus:  # data comes in at the first NIC and leaves at the last
            nearest, kind = near.setdefault(nets[0], {}), graph.get("typeinter", "")
            if kind in ("PIX", "PXB"):
                nearest[places[gpus[0]]] = min(kind, nearest.get(places[gpus[0]], kind), key=_distance)
    nics = tuple(Nic(index=net & _DEVICE, classes=nearest) for net, nearest in sorted(near.items()))
    return Topology(name, tuple(Gpu(device & _DEVICE) for device in devices), classes, nics)


def _distance(kind: str) -> int:
    kinds = ("NVL", "NVB", "PIX", "PXB")
    return kinds.index(kind) if kind in kinds else len(kinds)


def _numbers(channel: Element, tag: str) -> list[int]:
    return [value for element in channel.findall(tag) if (value := number(element, "dev")) is not None]
