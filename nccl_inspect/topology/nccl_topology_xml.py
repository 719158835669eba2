"""The XML that NCCL writes to NCCL_TOPO_DUMP_FILE and reads from NCCL_TOPO_FILE (src/graph/xml.cc, topo.cc).

::

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
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect.errors import TopologyError
from nccl_inspect.topology import P2P_CLASSES, Gpu, Nic, Topology, bus_number
from nccl_inspect.topology.xml_files import number, parsed

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element  # the type only: what reads the file is defusedxml

_ROOT = re.compile(r"\A\ufeff?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<system\b", re.DOTALL)
_MAX_DEVICES = 4096
_OTHER_FILE = "give the file that NCCL wrote to NCCL_TOPO_DUMP_FILE"
_GPU_CLASS, _NIC_CLASS, _SWITCH_CLASS = "0x03", "0x02", "0x068000"


class _Found(NamedTuple):
    """A GPU or a port of a NIC, and where it hangs."""

    device: Gpu | Nic
    above: tuple[Element, ...]
    """The CPU, then the PCI switches down to it."""
    host: str
    element: Element | None
    """Its ``gpu`` or ``net``; None where the file names the PCI device only."""


def recognises(text: str) -> bool:
    """Whether the root of the document is ``system``."""
    return _ROOT.match(text) is not None


def read(text: str, name: str) -> Topology:
    """Read the tree.

    Raises:
        TopologyError: it is not well-formed XML, or holds no GPU.
    """
    try:
        cpus = parsed(text, name).iter("cpu")
        places = [place for cpu in cpus for place in _below(cpu, (cpu,), cpu.get("host_hash", ""))]
    except RecursionError:
        raise TopologyError(f"{name}: more switches below each other than any machine has", _OTHER_FILE) from None
    gpus = [place for place in places if isinstance(place.device, Gpu)]
    nics = [place for place in places if isinstance(place.device, Nic)]
    if not gpus:
        raise TopologyError(f"{name}: no GPU in it", "dump again: NCCL_TOPO_DUMP_FILE=/tmp/topo.xml")
    if len(places) > _MAX_DEVICES:
        raise TopologyError(f"{name}: more than {_MAX_DEVICES:,} devices, which no machine has", _OTHER_FILE)
    links = [_links(place) for place in gpus]
    numbers = [bus_number(place.device.bus_id or "") for place in gpus]
    classes = {
        (a, b): kind
        for a in range(len(gpus))
        for b in range(len(gpus))
        if a != b and gpus[a].host == gpus[b].host and (kind := _class(gpus, links, numbers, a, b))
    }
    return Topology(
        name,
        tuple(place.device for place in gpus if isinstance(place.device, Gpu)),
        classes,
        tuple(_placed(nic, gpus) for nic in nics),
    )


def _below(parent: Element, above: tuple[Element, ...], host: str) -> Iterator[_Found]:
    for child in parent:
        if child.tag == "nic":
            yield from _ports(child, None, above, host)
        elif child.tag == "pci":
            yield from _pci(child, above, host)


def _pci(pci: Element, above: tuple[Element, ...], host: str) -> Iterator[_Found]:
    bus_id = pci.get("busid")
    kind = pci.get("class", "")
    gpus = pci.findall("gpu")
    nic = pci.find("nic")
    if gpus:
        for gpu in gpus:
            gdr = number(gpu, "gdr")
            device = Gpu(number(gpu, "dev"), bus_id, number(gpu, "sm"), None if gdr is None else bool(gdr))
            yield _Found(device, above, host, gpu)
    elif nic is not None:
        yield from _ports(nic, bus_id, above, host)
    elif kind.startswith(_GPU_CLASS):
        yield _Found(Gpu(bus_id=bus_id), above, host, None)
    elif kind.startswith(_NIC_CLASS):
        yield _Found(Nic(bus_id=bus_id), above, host, None)
    else:
        yield from _below(pci, (*above, pci), host)


def _ports(nic: Element, bus_id: str | None, above: tuple[Element, ...], host: str) -> Iterator[_Found]:
    for net in nic.findall("net"):
        speed, gdr = number(net, "speed"), number(net, "gdr")
        device = Nic(
            name=net.get("name"),
            index=number(net, "dev"),
            gbps=speed / 1000 if speed and speed > 0 else None,
            port=number(net, "port"),
            gdr=None if gdr is None else bool(gdr),
            bus_id=bus_id,
        )
        yield _Found(device, above, host, net)


def _placed(nic: _Found, gpus: list[_Found]) -> Nic:
    device = nic.device
    assert isinstance(device, Nic)
    classes = {place: _pci_class(gpu.above, nic.above) for place, gpu in enumerate(gpus) if gpu.host == nic.host}
    return Nic(device.name, device.index, device.gbps, device.port, device.gdr, device.bus_id, classes)


def _pci_class(way: tuple[Element, ...], other: tuple[Element, ...]) -> str:
    """PIX below one switch, PXB over several, PHB over the CPU (which may be NODE to nvidia-smi), SYS between CPUs."""
    if way[0] is not other[0]:
        return "SYS"
    if len(way) == 1 or len(other) == 1 or way[1] is not other[1]:
        return "PHB"
    return "PIX" if way[-1] is other[-1] else "PXB"


def _links(gpu: _Found) -> dict[object, int]:
    """Return how many NVLinks lead to each other GPU, by bus number, and to NVSwitches, by ``switch``."""
    links: dict[object, int] = {}
    for link in gpu.element.findall("nvlink") if gpu.element is not None else ():
        kind = link.get("tclass", "")
        target: object = "switch" if kind.startswith(_SWITCH_CLASS) and kind != "0x068001" else None
        if kind.startswith(_GPU_CLASS):
            target = bus_number(link.get("target", ""))
        if target is not None:
            links[target] = links.get(target, 0) + (number(link, "count") or 0)
    return links


def _class(gpus: list[_Found], links: list[dict[object, int]], numbers: list[int | None], a: int, b: int) -> str | None:
    """The class of two GPUs of one host; None where the file may leave out NVLinks that are there."""
    direct = links[a].get(numbers[b], 0)
    if not direct and "switch" in links[a] and "switch" in links[b]:
        direct = min(links[a]["switch"], links[b]["switch"])
    if direct:
        return f"NV{direct}"
    pci = _pci_class(gpus[a].above, gpus[b].above)
    if pci.startswith(P2P_CLASSES):
        return pci
    if any(n in numbers for n in links[a].keys() & links[b].keys() if n is not None):
        return "NVB"
    written_by_nccl = all(gpus[place].element is not None and _sm(gpus[place]) for place in (a, b))
    return pci if written_by_nccl else None


def _sm(gpu: _Found) -> int | None:
    return gpu.device.sm if isinstance(gpu.device, Gpu) else None
