"""The IP interfaces that processes list, and which of them other hosts cannot reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import BootstrapInterface, NetDevices
from nccl_inspect.judging.facts import Facts, hosts_in, once
from nccl_inspect.judging.statements import error_of, value
from nccl_inspect.model.job import Notice, Setting
from nccl_inspect.model.versions import order
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen, frozen

_OF_ONE_MACHINE = compile_later(
    r"docker|br-[0-9a-f]{12}|veth[0-9a-f]{4}|cni|cbr|virbr|lxc|lxdbr|podman|nerdctl|flannel|cali[0-9a-f]|cilium|weave|"
    r"kube|nodelocaldns|vxlan|genev|azv[0-9a-f]|ip6tnl|ip6gre|tunl|sit\d|gre\d|gretap|tun\d|tap|wg|tailscale|zt|ppp|"
    r"vmnet|vboxnet|dummy"
)
"""Bridges, ends of container links, overlays and tunnels: mostly for traffic within one machine.

Names such as ``veth0`` are left out: containers use them for the interface that makes them reachable.
"""
_OVER_INFINIBAND = compile_later(r"ib(?:\d|[pP]\d|s\d|o\d|_|bond)|bond-?ib", re.IGNORECASE)
"""``ib0``, ``ibp12s0``, ``ibs1f0``, ``ibP257p0s0``: names of IPoIB interfaces."""
_FOR_RDMA = compile_later(r"rdma|roce|mlx|.*rdma\d", re.IGNORECASE)
"""Names that administrators give to interfaces of RoCE cards: ``rdma0``, ``gpu0rdma0``."""
_LINK_LOCAL = ("169.254.", "fe80:", "[fe80:")
_LOOPBACK = ("127.", "::1<", "[::1]")
_ZONE = compile_later(r"%([^\s<\]]+)")


@frozen
class Interface(Frozen):
    """An IP interface that a process lists."""

    name: str
    address: str
    """Empty if the line does not have it."""
    for_setup: bool
    """Whether it is the one for bootstrap; NET/Socket uses all of them for data."""
    notice: Notice

    @property
    def words(self) -> str:
        """Return the interface with its address, in words."""
        return f"{self.name} ({self.address or 'no address'})"

    @property
    def is_link_local(self) -> bool:
        """Return whether its address is valid on one link only."""
        return self.address.startswith(_LINK_LOCAL)

    @property
    def is_loopback(self) -> bool:
        """Return whether it is a loopback interface."""
        return self.name == "lo" or is_loopback(self.address)

    @property
    def is_of_one_machine(self) -> bool:
        """Return whether other hosts most likely cannot reach it."""
        return self.is_link_local or is_of_one_machine(self.name)

    @property
    def is_ipoib(self) -> bool:
        """Return whether it is IP over InfiniBand, which NCCL prefers."""
        return self.name.startswith("ib")


def is_of_one_machine(name: str) -> bool:
    """Return whether an interface of that name is mostly for traffic within one machine."""
    return bool(_OF_ONE_MACHINE.match(name))


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    return f"{address}<".startswith(_LOOPBACK)


def is_unreachable_elsewhere(address: str) -> bool:
    """Return whether an address that a process connected to cannot belong to another host."""
    zone = _ZONE.search(address)
    return address.startswith((*_LINK_LOCAL, *_LOOPBACK)) or bool(zone and is_of_one_machine(zone[1]))


def is_over_infiniband(name: str) -> bool:
    """Return whether an interface is IPoIB by its name, which implies an InfiniBand card."""
    return _OVER_INFINIBAND.match(name) is not None


def is_for_rdma(name: str) -> bool:
    """Return whether an interface is named after RoCE or its card."""
    return _FOR_RDMA.match(name) is not None


def notices_naming(facts: Facts, fits: Callable[[str], object]) -> list[Notice]:
    """Return the statements with an interface whose name matches."""
    return list(
        {
            id(interface.notice): interface.notice for interface in listed_interfaces(facts) if fits(interface.name)
        }.values()
    )


@once
def listed_interfaces(facts: Facts) -> list[Interface]:
    """Return all interfaces that processes list, for bootstrap and for NCCL's own TCP network."""
    interfaces: list[Interface] = []
    for notice in facts.with_event(BootstrapInterface):
        assert isinstance(notice.event, BootstrapInterface)
        interfaces.append(_make_interface(notice.event.interface, notice.event.address, True, notice))
        interfaces += [_make_interface(name, address, False, notice) for _, name, address, *_ in notice.event.devices]
    for notice in facts.with_event(NetDevices):
        assert isinstance(notice.event, NetDevices)
        if notice.event.net == "Socket":
            interfaces += [
                _make_interface(device[1], device[2], False, notice)
                for device in notice.event.devices
                if len(device) > 2
            ]
    begun: set[Process] = set()
    for notice in facts.notices("nccl/interface-found-old"):
        is_first = not begun.issuperset(notice.processes)
        interfaces.append(_make_interface(value(notice, "interface"), value(notice, "address"), is_first, notice))
        begun.update(notice.processes)
    return interfaces


def _make_interface(name: object, address: object, for_setup: bool, notice: Notice) -> Interface:
    return Interface(str(name), str(address or "").partition("<")[0], for_setup, notice)


def included_names(setting: Setting) -> list[str]:
    """Return the names, or prefixes of names, that a value of NCCL_SOCKET_IFNAME allows; none if it is an exclusion."""
    return [] if setting.value.startswith("^") else _names(setting.value.removeprefix("="))


def allows_loopback(setting: Setting) -> bool:
    """Return whether a list of interfaces to exclude omits the loopback, which comes first (src/misc/socket.cc).

    NCCL excludes ``lo`` and docker's interfaces by default, but only if the user sets no list.
    """
    excluded = _names(setting.value.removeprefix("^").removeprefix("="))
    return setting.value.startswith("^") and not any("lo".startswith(name) for name in excluded)


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip().partition(":")[0])]


def same_address(used: Iterable[Interface]) -> dict[str, set[str]]:
    """Addresses that several hosts have, with these hosts: each host has a private network there."""
    by_address: dict[str, set[str]] = {}
    for interface in used:
        if interface.address and not interface.is_loopback:
            by_address.setdefault(interface.address, set()).update(hosts_in([interface.notice]))
    return {address: hosts for address, hosts in by_address.items() if len(hosts) > 1}


_REPORTS_NO_INTERFACE = (2, 4, 8)
"""The first release that reports a missing interface (src/bootstrap.cc)."""
NO_FAMILY = "Address family not supported"


def without_family(facts: Facts) -> list[Notice]:
    """Sockets that the system refuses because no interface gave them an address: the only sign of it until 2.4.7.

    A process that lists an interface has an address of its own, and got one of another family from its peer.
    """
    chose = {process for interface in listed_interfaces(facts) for process in interface.notice.processes}
    notices = [notice for notice in facts.notices("nccl/socket-create-failed") if NO_FAMILY in error_of(notice)]
    old = not any(order(text) >= _REPORTS_NO_INTERFACE for text in facts.job.nccl_versions if "inferred" not in text)
    return [notice for notice in notices if old and chose.isdisjoint(notice.processes)]
