"""The network that hosts communicate over, and the one that they have: interfaces, cards, plugins, clouds, GDR."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process, is_named
from nccl_inspect.event.types import BootstrapInterface, GdrDecision, NetDevices, OfiProvider
from nccl_inspect.judging.check import Hit
from nccl_inspect.judging.exceptions import frames
from nccl_inspect.judging.facts import Facts, evidence_of_settings, first_evidence, hosts_in, once, ranks_in
from nccl_inspect.judging.statements import error_of, list_table, value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import BUILT_IN
from nccl_inspect.model.job import Notice, Selection, Setting
from nccl_inspect.model.versions import order
from nccl_inspect.platforms import find_network
from nccl_inspect.util.grouping import group_sets
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.wording import count

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
FOR_RDMA = compile_later(r"rdma|roce|mlx|.*rdma\d", re.IGNORECASE)
"""Names that administrators give to interfaces of RoCE cards: ``rdma0``, ``gpu0rdma0``."""
_LINK_LOCAL = ("169.254.", "fe80:", "[fe80:")
_LOOPBACK = ("127.", "::1<", "[::1]")
_ZONE = compile_later(r"%([^\s<\]]+)")


class Interface(Frozen):
    """An IP interface that a process lists."""

    name: str
    address: str  # empty if the line does not have it
    for_setup: bool
    """Whether it is the one for bootstrap; NET/Socket uses all of them for data."""
    notice: Notice

    @property
    def is_loopback(self) -> bool:
        """Return whether it is a loopback interface."""
        return self.name == "lo" or is_loopback(self.address)

    @property
    def is_of_one_machine(self) -> bool:
        """Return whether other hosts most likely cannot reach it."""
        return is_link_local(self.address) or is_of_one_machine(self.name)


def is_of_one_machine(name: str) -> bool:
    """Return whether an interface of that name is mostly for traffic within one machine."""
    return bool(_OF_ONE_MACHINE.match(name))


def is_link_local(address: str) -> bool:
    """Return whether an address is valid on one link only."""
    return address.startswith(_LINK_LOCAL)


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    return f"{address}<".startswith(_LOOPBACK)


def is_unreachable_elsewhere(address: str) -> bool:
    """Return whether an address that a process connected to cannot belong to another host."""
    zone = _ZONE.search(address)
    return address.startswith((*_LINK_LOCAL, *_LOOPBACK)) or bool(zone and is_of_one_machine(zone[1]))


def notices_naming(facts: Facts, fits: Callable[[str], object]) -> list[Notice]:
    """Return the statements with an interface whose name matches."""
    notices = (interface.notice for interface in listed_interfaces(facts) if fits(interface.name))
    return list({id(notice): notice for notice in notices}.values())


@once
def listed_interfaces(facts: Facts) -> list[Interface]:
    """Return all interfaces that processes list, for bootstrap and for NCCL's own TCP network."""
    listed: list[tuple[object, object, bool, Notice]] = []
    for notice in facts.with_event(BootstrapInterface):
        listed.append((getattr(notice.event, "interface", ""), getattr(notice.event, "address", ""), True, notice))
        listed += [(name, address, False, notice) for _, name, address, *_ in getattr(notice.event, "devices", ())]
    for notice in facts.with_event(NetDevices, lambda event: event.net == "Socket"):
        devices = getattr(notice.event, "devices", ())
        listed += [(device[1], device[2], False, notice) for device in devices if len(device) > 2]
    begun: set[Process] = set()
    for notice in facts.notices("nccl/interface-found-old"):
        is_first = not begun.issuperset(notice.processes)
        listed.append((value(notice, "interface"), value(notice, "address"), is_first, notice))
        begun.update(notice.processes)
    return [
        Interface(str(name), str(address or "").partition("<")[0], for_setup, notice)
        for name, address, for_setup, notice in listed
    ]


def included_names(setting: Setting) -> list[str]:
    """Return the names, or prefixes of names, that a value of NCCL_SOCKET_IFNAME allows; none if it is an exclusion."""
    return [] if setting.value.startswith("^") else listed_names(setting.value)


def listed_names(text: str) -> list[str]:
    """Return the names in a list of interfaces."""
    listed = text.removeprefix("^").removeprefix("=")
    return [name for part in listed.split(",") if (name := part.strip().partition(":")[0])]


def same_address(used: Iterable[Interface]) -> dict[str, set[str]]:
    """Addresses that several hosts have, with these hosts: each host has a private network there."""
    named = [interface for interface in used if interface.address and not interface.is_loopback]
    by_address = group_sets((interface.address, host) for interface in named for host in interface.notice.hosts)
    return {address: hosts for address, hosts in by_address.items() if len(hosts) > 1}


def private_addresses(interfaces: Iterable[Interface]) -> dict[str, set[str]]:
    """Return addresses that several hosts have, each in a network of its own, with these hosts.

    Hosts whose ranks chose one address for the bootstrap may be containers, or names, of one machine.
    """
    chosen = {one.address for one in interfaces if one.for_setup and not one.is_of_one_machine}
    shared = same_address(interfaces)
    together = [hosts for address, hosts in shared.items() if address in chosen]
    return {address: hosts for address, hosts in shared.items() if not any(map(hosts.issubset, together))}


NO_FAMILY = "Address family not supported"


def without_family(facts: Facts) -> list[Notice]:
    """Sockets that the system refuses because no interface gave them an address: the only sign of it until 2.4.7.

    A process that lists an interface has an address of its own, and got one of another family from its peer.
    """
    chose = {process for interface in listed_interfaces(facts) for process in interface.notice.processes}
    notices = [notice for notice in facts.notices("nccl/socket-create-failed") if NO_FAMILY in error_of(notice)]
    # 2.4.8 and later report a missing interface (src/bootstrap.cc).
    old = not any(order(text) >= (2, 4, 8) for text in facts.job.nccl_versions if "inferred" not in text)
    return [notice for notice in notices if old and chose.isdisjoint(notice.processes)]


_SOCKET = "Socket"


class Fallback(Frozen):
    """A job whose hosts are left with TCP, as far as the log shows."""

    stated: list[Evidence]  # lines in which NCCL selects TCP; empty if it only reports what it did not find
    missing: list[Evidence]  # lines that report no card, or no library to look for one
    ranks: set[int]
    hosts: set[str]
    may_be_idle: bool  # whether no traffic in the log leaves the host, and no line shows another host


@once
def fallback(facts: Facts) -> Fallback | None:
    """Return TCP if no other network came up; None on one host only, or where connections show the network."""
    if facts.paths(transport="NET") or is_on_one_host(facts):
        return None
    # NCCL initializes networks in turn and stops at the first that works; TCP is the last (src/net.cc). Over Google's
    # own plugin TCP is intended.
    came_up, providers = facts.plugin("NET", "initialised", "assigned"), facts.with_event(events.OfiProvider)
    lists = facts.with_event(events.NetDevices)
    networks: set[str | None] = {net for comm in facts.job.communicators for net in comm.networks}
    networks |= {getattr(notice.event, "plugin", None) for notice in came_up}
    networks |= {getattr(notice.event, "net", None) for notice in lists if getattr(notice.event, "devices", ())}
    if networks - {_SOCKET} or not all(map(is_over_tcp, providers)) or facts.notices("nccl/net-ib-merged"):
        return None
    sockets = [notice for notice in lists if getattr(notice.event, "net", None) == _SOCKET]
    chosen = [notice for notice in came_up if getattr(notice.event, "plugin", None) == _SOCKET]
    over_tcp, missing = [*sockets, *chosen, *providers], facts.with_role("no-ib")
    comms = (comm for comm in facts.job.communicators if set(comm.networks) == {_SOCKET})
    stated = [*first_evidence(over_tcp), *(line for comm in comms for line in comm.network_lines[:1])]
    if not (stated or missing or failed_plugins(facts) or facts.with_role("no-provider")):
        return None
    notices = [*over_tcp, *missing]
    may_be_idle = bool(facts.paths("intra")) and not facts.spans_hosts()
    return Fallback(stated, first_evidence(missing), ranks_in(notices), hosts_in(notices), may_be_idle)


def failed_plugins(facts: Facts) -> list[Notice]:
    """Return failed initializations of network plugins; NCCL's own networks fail on many healthy machines."""
    return [n for n in facts.plugin("NET", "failed") if getattr(n.event, "plugin", None) not in BUILT_IN]


def is_over_tcp(notice: Notice) -> bool:
    """Return whether aws-ofi-nccl reports that it selected TCP, maybe with a layer above it: ``tcp;ofi_rxm``."""
    return str(getattr(notice.event, "provider", "")).partition(";")[0] in ("tcp", "sockets")


def is_of_libfabric(notice: Notice) -> bool:
    """Return whether a statement about a plugin is about aws-ofi-nccl, by the name of file, plugin or network."""
    name = str(getattr(notice.event, "plugin", "")).lower()
    return "ofi" in name or "libfabric" in name


def is_on_one_host(facts: Facts) -> bool:
    """Return whether all communicators are known to be on one host, so that NCCL needs no network."""
    comms = facts.job.communicators
    named = all(comm.nnodes == 1 or (len(comm.hosts) == 1 and is_named(comm.hosts[0])) for comm in comms)
    whole = all(comm.nnodes == 1 or len({*comm.started, *comm.completed}) == comm.nranks for comm in comms)
    return bool(comms) and not facts.spans_hosts() and named and whole


def suspect(
    tcp: Fallback, signs: Iterable[Evidence], named: Mapping[str, object], is_wanted: object, is_sure: object
) -> Hit:
    """Return a clue: signs of the better network, and NCCL's reports of no card and of selecting TCP."""
    lines = [*list(signs)[:3], *[*tcp.missing[:1], *tcp.stated, *tcp.missing[1:]][:2]]
    doubts = {"idle": tcp.may_be_idle or not is_wanted, "doubtful": tcp.may_be_idle or not is_sure}
    return Hit(named={**named, **doubts}, ranks=tcp.ranks, hosts=tcp.hosts, evidence=lines)


SLINGSHOT_PROVIDER = "cxi"
_SLINGSHOT_INTERFACE = re.compile(r"=?hsn\d*")


@once
def slingshot_signs(facts: Facts) -> list[Evidence]:
    """Return lines that show Slingshot: its provider, its interfaces, or a setting that names either."""
    warned = facts.notices("libfabric/libfabric-warning")
    stated = [
        *facts.with_event(events.OfiProvider, lambda event: event.provider == SLINGSHOT_PROVIDER),
        *(notice for notice in warned if value(notice, "provider") == SLINGSHOT_PROVIDER),
    ]
    notices = [*sorted(stated, key=lambda one: one.place), *notices_naming(facts, _SLINGSHOT_INTERFACE.fullmatch)]
    settings = [
        one
        for one in facts.job.environment
        if one.name.startswith("FI_CXI_")
        or (one.name == "FI_PROVIDER" and SLINGSHOT_PROVIDER in one.value.split(","))
        or (one.name == "NCCL_SOCKET_IFNAME" and any(map(_SLINGSHOT_INTERFACE.fullmatch, one.value.split(","))))
    ]
    return [*first_evidence(notices[:3]), *evidence_of_settings(settings, 1)[:2]]


def over_tcp_provider(facts: Facts) -> Selection:
    """Return paths between hosts over libfabric whose provider is TCP: the word Libfabric alone is not EFA."""
    is_tcp = any(map(is_over_tcp, facts.with_event(events.OfiProvider)))
    return libfabric_paths(facts) if is_tcp else facts.no_paths()


def slingshot_paths(facts: Facts) -> Selection:
    """Return paths between hosts over libfabric whose provider is that of Slingshot."""
    named = facts.with_event(events.OfiProvider, lambda event: event.provider == SLINGSHOT_PROVIDER)
    return libfabric_paths(facts) if named else facts.no_paths()


@once
def libfabric_paths(facts: Facts) -> Selection:
    """Return paths that aws-ofi-nccl carries between hosts, whatever the provider."""
    return facts.inter_host_net_paths().where(lambda kind: "Libfabric" in kind.detail)


def tcp_paths(facts: Facts) -> Selection:
    """Return paths over NCCL's own TCP network that leave a host, or may."""
    return facts.inter_host_net_paths().where(lambda kind: kind.net == "Socket")


def paths_in_words(paths: Selection) -> str:
    """Return the paths in words: a fragment of a log leaves open whether they leave the host."""
    sure = all(kind.scope == "inter" for kind in paths.kinds)
    return f"{count(len(paths), 'path')} between hosts" if sure else f"{count(len(paths), 'network path')}"


def without_cards(facts: Facts) -> list[Notice]:
    """Return the statements of hosts without an InfiniBand or RoCE card, if other hosts list theirs."""
    none = [*facts.notices("nccl/net-ib-none"), *lacking_verbs(facts)]
    listed_by = hosts_in(card_lists(facts))
    return none if listed_by and not listed_by & hosts_in(none) else []


def efa_hints(facts: Facts) -> list[Evidence]:
    """Return lines that show that EFA was intended: aws-ofi-nccl, its provider, or a setting that requests it.

    The plugin also supports Slingshot: if that is present, EFA is not intended.
    """
    if slingshot_signs(facts):
        return []
    settings = facts.settings("FI_PROVIDER", "NCCL_NET", "NCCL_NET_PLUGIN")
    asked = [one for one in settings if any(word in one.value.lower() for word in ("efa", "ofi", "aws"))]
    stated = [*ofi_lines(facts)[:3], *sought_plugin(facts)[:2], *unusable_efa(facts)[:2]]
    return [*first_evidence(stated), *evidence_of_settings(asked, 1)]


@once
def ofi_lines(facts: Facts) -> list[Notice]:
    """Return the statements of aws-ofi-nccl."""
    return [notice for notice in facts.job.notices if notice.event and notice.event.dialect == "aws-ofi-nccl"]


def unusable_efa(facts: Facts) -> list[Notice]:
    """Return EFA devices that NCCL's own code mistakes for InfiniBand cards: verbs has no name for their link layer."""
    devices = facts.notices("nccl/ib-device-not-usable")
    return [notice for notice in devices if str(value(notice, "device")).startswith(("rdmap", "efa_"))]


def sought_plugin(facts: Facts) -> list[Notice]:
    """Return lines that report a missing file with the name of aws-ofi-nccl."""
    return [notice for notice in facts.plugin("NET", "not-found") if is_of_libfabric(notice)]


def plugins_off(facts: Facts) -> list[Setting]:
    """Return the settings that keep NCCL from external network plugins."""
    return [setting for setting in facts.settings("NCCL_NET_PLUGIN") if setting.value.lower() == "none"]


def ib_hints(facts: Facts) -> list[Evidence]:
    """Return lines that indicate InfiniBand or RoCE: hardware, or a setting that names cards."""
    return [*ib_cards(facts), *evidence_of_settings(facts.settings("NCCL_IB_HCA"), 1)]


def ib_cards(facts: Facts) -> list[Evidence]:
    """Return lines that show InfiniBand or RoCE hardware: devices, including unusable ones, and IPoIB interfaces."""
    of_efa = set(map(id, unusable_efa(facts)))
    unusable = [notice for notice in facts.notices("nccl/ib-device-not-usable") if id(notice) not in of_efa]
    cards = [*card_lists(facts), *facts.notices("nccl/net-ib-merged"), *unusable]
    return first_evidence([*cards[:2], *notices_naming(facts, _OVER_INFINIBAND.match)[:2]])


def settings_without_ib(facts: Facts) -> list[Setting]:
    """Return the settings that disable NCCL's own InfiniBand and RoCE code; ib-disabled-by-env judges them."""
    forced = [setting for setting in facts.user_settings("NCCL_NET") if setting.value.lower() == "socket"]
    return [*facts.enabled_settings("NCCL_IB_DISABLE"), *forced]


def lacking_verbs(facts: Facts) -> list[Notice]:
    """NCCL's reports that the library for InfiniBand cards cannot be opened."""
    notices = facts.notices("nccl/verbs-library-missing", "nccl/verbs-library-not-opened")
    return [notice for notice in notices if "libibverbs" in str(value(notice, "library"))]


def dies_silently(facts: Facts) -> bool:
    """Return whether the release dies if a plugin's initialization fails: 2.28 calls it all the same."""
    return any(version.startswith("2.28.") for version in facts.job.nccl_versions)


NETWORK_TYPES = {3: "Socket", 4: "IB"}
"""The network that a connection belongs to, by its first bytes (src/include/socket.h); others are for bootstrap and
helpers."""


@once
def network_mismatches(facts: Facts) -> list[Notice]:
    """Return statements that a connection reached a listener of another network, or got an address of another kind."""
    typed = [  # the kinds of the connection that arrived and of the one that was expected
        notice
        for notice in facts.with_role("stranger")
        if {value(notice, "got_type"), value(notice, "expected_type")} == NETWORK_TYPES.keys()
    ]
    connecting = ("transport/net_socket.cc", "transport/net_ib.cc", "net_ib/connect.cc", "transport/net.cc")
    beside = {process for frame in frames(facts, files=connecting) for process in frame.processes}
    odd = facts.with_role("garbled-address")
    return [*typed, *(notice for notice in odd if beside & set(notice.processes))]


def card_lists(facts: Facts) -> list[Notice]:
    """NCCL's lists of InfiniBand and RoCE cards."""
    return facts.with_event(events.NetDevices, lambda event: event.net == "IB" and bool(event.devices))


def cards_of(notice: Notice) -> tuple[tuple[Any, ...], ...]:
    """Return the cards in such a list: index, name, port and kind of link, as far as the release prints them."""
    event = notice.event
    return event.devices if isinstance(event, NetDevices) and event.net == "IB" else ()


_A_PLUGIN = compile_later(r"ccl|plugin")  # matches file names of plugins, and of none of the libraries that they need


def unloadable_plugins(facts: Facts) -> list[Notice]:
    """Return statements that a network plugin is there and cannot be loaded; probes of older interfaces are none."""
    return [*facts.plugin("NET", "load-failed"), *filter(lacks_a_library, facts.plugin("NET", "not-found"))]


def lacks_a_library(notice: Notice) -> bool:
    """Return whether the missing file is a dependency and not the plugin: until 2.21 NCCL has one wording for both.

    Up to 2.11, and in 2.19 and 2.20, it does not name the plugin.
    """
    plugin, missing = getattr(notice.event, "plugin", None), getattr(notice.event, "detail", None)
    if not missing:
        return False
    return missing not in str(plugin).split() if plugin else _A_PLUGIN.search(str(missing)) is None


_DAEMONS = {"GPUDirectTCPX": "tcpx-daemon", "FasTrak": "tcpxo-daemon"}
"""The container that receives for the job beside it, by the prefix of the network's name."""


def google_daemon(paths: Selection) -> str | None:
    """Return the daemon of the plugin that carries these paths; None if one of them uses another network."""
    carried = {next((net for net in _DAEMONS if (kind.net or "").startswith(net)), "") for kind in paths.kinds}
    return _DAEMONS.get(carried.pop()) if len(carried) == 1 else None


def google_plugin_works(facts: Facts) -> bool:
    """Return whether ranks are connected over a plugin of Google."""
    return any((kind.net or "").startswith(tuple(_DAEMONS)) for kind in facts.inter_host_net_paths().kinds)


_WORDS = {
    "AWS": compile_later(r"\bEFA\b|\bEKS\b|\bEC2\b|amazonaws\.com|\baws ec2\b|-p efa\b|\bmodinfo efa\b|\bFI_EFA_"),
    "GCP": re.compile(r"\bGKE\b|\bGoogle\b|gke\.io"),
    "Azure": re.compile(r"\bAzure\b|\bAKS\b"),
    "OCI": re.compile(r"\bOCI\b|\bOKE\b"),
}
"""Words that only apply to one cloud, by vendor as platforms state it."""
_EC2 = re.compile(r"ip(?:-\d{1,3}){4}(?:\..*)?")  # host names of EC2
_EFA = re.compile(r"\b(?:efa|EFA)(?:\b|_)")
_GOOGLE = re.compile(r"\b(?:FasTrak|GPUDirectTCPX|gIB|FastSocket|tcpxo?)\b")


def is_ec2(host: str) -> bool:
    """Return whether a host has a name of EC2's pattern."""
    return _EC2.fullmatch(host) is not None


@once
def clouds_of(facts: Facts) -> set[str]:
    """Return the clouds that the log or the user indicates."""
    clouds = {facts.platform.vendor} if facts.platform and facts.platform.vendor else set[str]()
    shown = [notice.message for notice in facts.job.notices]
    shown += [setting.name for setting in facts.job.environment]
    shown += [kind.net or "" for kind in facts.job.paths.kinds]
    is_efa = any(map(_EFA.search, shown)) or any("Libfabric" in text for text in shown) or bool(efa_hints(facts))
    if any(map(is_ec2, facts.hosts())) or (is_efa and not slingshot_signs(facts)):
        clouds.add("AWS")
    if any(map(_GOOGLE.search, shown)):
        clouds.add("GCP")
    return clouds


def applicable(facts: Facts, steps: Iterable[str], cloud: str) -> list[str]:
    """Return the steps without those for clouds, other than this one, where the job, as far as known, does not run."""
    clouds = {cloud, *clouds_of(facts)}
    return [step for step in steps if all(name in clouds or not words.search(step) for name, words in _WORDS.items())]


def may_be_google_network(facts: Facts) -> bool:
    """Return whether the network in use is unknown: it may be one of :func:`is_google_network`."""
    return not (facts.platform or facts.job.network.name or facts.job.paths)


def is_google_network(facts: Facts) -> bool:
    """Return whether Google's plugins are in use: its guides set algorithm, protocol and channels for them."""
    network = find_network(facts.platform.network if facts.platform else None)
    return network.vendor == "GCP" or (facts.job.network.name or "").startswith(tuple(_DAEMONS))


_WEAK = "aws-ofi-nccl/ofi-gdr-not-supported"
"""The plugin reports this for every provider without it; EFA has it on some instance types."""
_WITHOUT = compile_later(r"roce(?:P2)?p1s0f[01]")
"""The NICs of DGX Spark (GB10) as Linux names them: that machine has no GPUDirect RDMA."""
_MAYBE_WITHOUT = compile_later(r"(?:rdmap|efa_).*")
"""EFA devices: some instance types have GPUDirect RDMA, others do not."""


def gdr_refusals(facts: Facts) -> list[Notice]:
    """Return NICs that cannot access GPU memory, according to their driver or the plugin."""
    on_efa = facts.with_event(OfiProvider, lambda event: event.provider == "efa")
    notices = [*facts.with_role("gdr-refused"), *(facts.notices(_WEAK) if on_efa else ())]
    notices = [notice for notice in notices if "NET/Socket" not in notice.message]
    return [notice for notice in notices if not _WITHOUT.fullmatch(str(getattr(notice.event, "nic", None)))]


def gpus_too_far(facts: Facts) -> list[Notice]:
    """GPUs that are too far from every measured NIC: to be far from some and near one is normal."""
    decisions = [(one, one.event) for one in facts.with_event(GdrDecision) if isinstance(one.event, GdrDecision)]
    measured = [(notice, event) for notice, event in decisions if event.distance is not None]
    near = {(host, event.gpu) for notice, event in measured if event.enabled for host in notice.hosts}
    far = [(notice, event) for notice, event in measured if not event.enabled]
    return [notice for notice, event in far if near.isdisjoint((host, event.gpu) for host in notice.hosts)]


def settings_without_gdr(facts: Facts) -> list[Setting]:
    """Settings that disable it, if there is a network that could use it."""
    if not (facts.with_event(OfiProvider) or card_lists(facts) or facts.inter_host_rdma_paths()):
        return []
    off = {"NCCL_NET_GDR_LEVEL": ("LOC", "0"), "FI_EFA_USE_DEVICE_RDMA": ("0",)}
    return [one for one in facts.job.environment if one.value.upper() in off.get(one.name, ())]


def is_sure(notices: Iterable[Notice]) -> bool:
    """Return whether the NICs are of a kind that supports it in nearly every machine."""
    notices = list(notices)
    is_weak = any(notice.production == _WEAK for notice in notices)
    return not is_weak and not any(map(_MAYBE_WITHOUT.fullmatch, named_nics(notices)))


def named_nics(notices: Iterable[Notice]) -> list[str]:
    """Return the NICs that statements name."""
    names = (getattr(notice.event, "nic", None) for notice in notices)
    return [str(name) for name in dict.fromkeys(names) if name is not None]


def first_too_far(reasons: Iterable[Notice]) -> GdrDecision | None:
    """Return the first distance that is too long; None if any reason is missing support."""
    decisions = [(notice.roles, notice.event) for notice in reasons if isinstance(notice.event, GdrDecision)]
    measured = all("gdr-too-far" in roles for roles, _ in decisions)
    return decisions[0][1] if decisions and measured else None


def distance_in_words(far: GdrDecision, facts: Facts) -> str:
    """Return the distance and its limit in words, with the names of the numbers if the releases agree about them."""
    classes = list_table("distance").items()
    names = {  # an inferred release may be any of a range
        "" if "inferred" in release else next((names for first, names in classes if order(release) >= order(first)), "")
        for release in facts.job.nccl_versions
    }
    words = []
    for number in (far.distance, far.limit):
        known = [some.split() for some in names if number is not None]
        labels = {own[number] if number < len(own) else "" for own in known if number is not None}
        label = labels.pop() if len(labels) == 1 else ""
        words.append(f"{number} ({label})" if label else f"{number}")
    apart = f"GPU {far.gpu} and NIC {far.nic} are farther apart than NCCL allows"
    return f"{apart}: distance {words[0]}, and the limit is {words[1]}"
