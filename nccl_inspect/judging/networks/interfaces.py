"""The IP interfaces that processes say they may use, and which of them other hosts cannot reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import BootstrapInterface, NetDevices
from nccl_inspect.judging.facts import Facts, hosts_in
from nccl_inspect.judging.statements import error_of, value
from nccl_inspect.model.job import Notice, Setting
from nccl_inspect.model.versions import order

_OF_ONE_MACHINE = re.compile(
    r"docker|br-[0-9a-f]{12}|veth[0-9a-f]{4}|cni|cbr|virbr|lxc|lxdbr|podman|nerdctl|flannel|cali[0-9a-f]|cilium|weave|"
    r"kube|nodelocaldns|vxlan|genev|azv[0-9a-f]|ip6tnl|ip6gre|tunl|sit\d|gre\d|gretap|tun\d|tap|wg|tailscale|zt|ppp|"
    r"vmnet|vboxnet|dummy"
)
"""Bridges, ends of container links, overlays and tunnels: mostly made for traffic within one machine.

A name such as ``veth0`` is left out: containers have it for the interface that they are reached by.
"""
_OVER_INFINIBAND = re.compile(r"ib(?:\d|[pP]\d|s\d|o\d|_|bond)|bond-?ib", re.IGNORECASE)
"""``ib0``, ``ibp12s0``, ``ibs1f0``, ``ibP257p0s0``: what the kernel and people call IPoIB."""
_FOR_RDMA = re.compile(r"rdma|roce|mlx|.*rdma\d", re.IGNORECASE)
"""Names that people give interfaces of RoCE cards: ``rdma0``, ``gpu0rdma0``."""
_LINK_LOCAL = ("169.254.", "fe80:", "[fe80:")
_LOOPBACK = ("127.", "::1<", "[::1]")
_ZONE = re.compile(r"%([^\s<\]]+)")


class Interface(NamedTuple):
    """An IP interface that processes say they may use."""

    name: str
    address: str
    """Empty where the line does not tell it."""
    for_setup: bool
    """Whether it is the one for set-up; NET/Socket uses all of them for data."""
    said: Notice

    @property
    def words(self) -> str:
        """The interface with its address, for people."""
        return f"{self.name} ({self.address or 'no address'})"

    @property
    def is_link_local(self) -> bool:
        """Whether its address holds on one link only."""
        return self.address.startswith(_LINK_LOCAL)

    @property
    def is_loopback(self) -> bool:
        """Whether it leads back to the same host."""
        return self.name == "lo" or is_loopback(self.address)

    @property
    def is_of_one_machine(self) -> bool:
        """Whether other hosts most likely cannot reach it."""
        return self.is_link_local or is_of_one_machine(self.name)

    @property
    def is_ipoib(self) -> bool:
        """Whether it is IP over InfiniBand, which NCCL takes first."""
        return self.name.startswith("ib")


def is_of_one_machine(name: str) -> bool:
    """Whether an interface of that name is mostly made for traffic within one machine."""
    return bool(_OF_ONE_MACHINE.match(name))


def is_loopback(address: str) -> bool:
    """Whether an address leads back to the same host."""
    return f"{address}<".startswith(_LOOPBACK)


def leads_nowhere(address: str) -> bool:
    """Whether an address that somebody connected to can hold on another host."""
    zone = _ZONE.search(address)
    return address.startswith((*_LINK_LOCAL, *_LOOPBACK)) or bool(zone and is_of_one_machine(zone[1]))


def is_over_infiniband(name: str) -> bool:
    """Whether an interface is IPoIB by its name: then the host has an InfiniBand card."""
    return _OVER_INFINIBAND.match(name) is not None


def is_for_rdma(name: str) -> bool:
    """Whether somebody named an interface after RoCE or its card."""
    return _FOR_RDMA.match(name) is not None


def naming(facts: Facts, fits: Callable[[str], object]) -> list[Notice]:
    """The lines with an interface whose name fits."""
    return list({id(one.said): one.said for one in offered(facts) if fits(one.name)}.values())


def offered(facts: Facts) -> list[Interface]:
    """All interfaces that processes list, for set-up and for NCCL's own TCP network."""
    return facts.once(_offered)


def _offered(facts: Facts) -> list[Interface]:
    found: list[Interface] = []
    for notice in facts.said(BootstrapInterface):
        assert isinstance(notice.event, BootstrapInterface)
        found.append(_made(notice.event.interface, notice.event.address, True, notice))
        found += [_made(name, address, False, notice) for _, name, address, *_ in notice.event.devices]
    for notice in facts.said(NetDevices):
        assert isinstance(notice.event, NetDevices)
        if notice.event.net == "Socket":
            found += [_made(device[1], device[2], False, notice) for device in notice.event.devices if len(device) > 2]
    begun: set[Process] = set()
    for notice in facts.notices("nccl/interface-found-old"):
        is_first = not begun.issuperset(notice.processes)
        found.append(_made(value(notice, "interface"), value(notice, "address"), is_first, notice))
        begun.update(notice.processes)
    return found


def _made(name: object, address: object, for_setup: bool, said: Notice) -> Interface:
    return Interface(str(name), str(address or "").partition("<")[0], for_setup, said)


def included(setting: Setting) -> list[str]:
    """The names, or beginnings of names, that a value of NCCL_SOCKET_IFNAME allows; none where it excludes."""
    return [] if setting.value.startswith("^") else _names(setting.value.removeprefix("="))


def lets_loopback_in(setting: Setting) -> bool:
    """Whether a list of interfaces to exclude forgets the loopback, which comes first (src/misc/socket.cc).

    NCCL leaves ``lo`` and docker's out by itself only where the user gives no list.
    """
    excluded = _names(setting.value.removeprefix("^").removeprefix("="))
    return setting.value.startswith("^") and not any("lo".startswith(name) for name in excluded)


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip().partition(":")[0])]


def same_address(used: Iterable[Interface]) -> dict[str, set[str]]:
    """Addresses that several hosts have for themselves, with these hosts: each host has a network of its own there."""
    known: dict[str, set[str]] = {}
    for one in used:
        if one.address and not one.is_loopback:
            known.setdefault(one.address, set()).update(hosts_in([one.said]))
    return {address: hosts for address, hosts in known.items() if len(hosts) > 1}


_TELLS = (2, 4, 8)
"""The first release that says that there is no interface (src/bootstrap.cc)."""


NO_FAMILY = "Address family not supported"


def without_family(facts: Facts) -> list[Notice]:
    """Sockets that the system refuses because no interface gave them an address: until 2.4.7 nothing else says so.

    A process that lists an interface has an address of its own, and was given that of another family by its peer.
    """
    chose = {process for one in offered(facts) for process in one.said.processes}
    said = [notice for notice in facts.notices("nccl/socket-create-failed") if NO_FAMILY in error_of(notice)]
    old = not any(order(text) >= _TELLS for text in facts.job.nccl_versions if "inferred" not in text)
    return [notice for notice in said if old and chose.isdisjoint(notice.processes)]
