"""Which network hosts talk over, and which one the machines have by what NCCL and plugins list."""

from __future__ import annotations

import re

from nccl_inspect.event import types as events
from nccl_inspect.event.types import ErrorCascade, Event
from nccl_inspect.judging.facts import (
    Facts,
    first_said,
    hosts_in,
)
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.networks.fallback import (
    is_of_libfabric,
    is_over_tcp,
)
from nccl_inspect.judging.networks.interfaces import is_over_infiniband, naming
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice, Selection, Setting
from nccl_inspect.util.wording import count, some_names


def over_tcp_provider(facts: Facts) -> Selection:
    """Paths between hosts over libfabric whose provider is TCP: the word Libfabric alone is not EFA."""
    said = any(map(is_over_tcp, facts.said(events.OfiProvider)))
    return facts.leaving().where(lambda kind: said and "Libfabric" in kind.detail)


def tcp_paths(facts: Facts) -> Selection:
    """Paths over NCCL's own TCP network that leave a host, or may."""
    return facts.leaving().where(lambda kind: kind.net == "Socket")


VERBS = "apt install libibverbs1 ibverbs-providers   # in the image (rdma-core on other systems); then ibv_devices"


def wording(paths: Selection) -> str:
    """How the paths are told: only a fragment of a log leaves open whether they leave the host."""
    sure = all(kind.scope == "inter" for kind in paths.kinds)
    return f"{count(len(paths), 'path')} between hosts" if sure else f"{count(len(paths), 'network path')}"


def without_cards(facts: Facts) -> list[Notice]:
    """What hosts say that have no InfiniBand or RoCE card, where only they say so and others list theirs."""
    none = [*facts.notices("nccl/net-ib-none"), *lacking_verbs(facts)]
    listed_by = hosts_in(
        facts.said(events.NetDevices, lambda e: isinstance(e, events.NetDevices) and e.net == "IB" and bool(e.devices))
    )
    return none if listed_by and not listed_by & hosts_in(none) else []


def no_cards_on(said: list[Notice]) -> str:
    """What is missing on the hosts of :func:`without_cards`, in words."""
    return (
        f"on {some_names(sorted(hosts_in(said)))} NCCL found no InfiniBand or RoCE card, and others have one: device "
        "nodes or verbs libraries are missing in the container, the card is down, or the host has none"
    )


def efa_hints(facts: Facts) -> list[Evidence]:
    """Lines that show that EFA was meant: aws-ofi-nccl, its provider, or a setting that asks for it.

    The plugin carries Slingshot, too: where that is there, nobody means EFA.
    """
    if slingshot.signs(facts):
        return []
    plugin = [notice for notice in facts.job.notices if notice.event and notice.event.dialect == "aws-ofi-nccl"]
    asked = [
        line
        for setting in facts.settings("FI_PROVIDER", "NCCL_NET", "NCCL_NET_PLUGIN")
        if any(word in setting.value.lower() for word in ("efa", "ofi", "aws"))
        for line in setting.evidence[:1]
    ]
    sought = sought_plugin(facts)
    return [*first_said((*plugin[:3], *sought[:2], *unusable_efa(facts)[:2])), *asked]


def unusable_efa(facts: Facts) -> list[Notice]:
    """EFA devices that NCCL's own code cannot open: it takes them for InfiniBand cards."""
    return [notice for notice in facts.notices("nccl/ib-device-not-usable") if _is_efa(notice)]


def sought_plugin(facts: Facts) -> list[Notice]:
    """Lines that say that the file of aws-ofi-nccl, by its name, is not there."""
    return [notice for notice in facts.plugin("NET", "not-found") if is_of_libfabric(notice)]


def plugins_off(facts: Facts) -> list[Setting]:
    """Settings by which NCCL shall use no external network plugin."""
    return [setting for setting in facts.settings("NCCL_NET_PLUGIN") if setting.value.lower() == "none"]


def _is_efa(notice: Notice) -> bool:
    """Whether a device that cannot be opened is an EFA one: verbs has no name for its kind of link."""
    return str(value(notice, "device")).startswith(("rdmap", "efa_"))


def ib_hints(facts: Facts) -> list[Evidence]:
    """Lines that speak of InfiniBand or RoCE: of hardware, or a setting that names cards."""
    return [*ib_cards(facts), *(line for setting in facts.settings("NCCL_IB_HCA") for line in setting.evidence[:1])]


def ib_cards(facts: Facts) -> list[Evidence]:
    """Lines that show InfiniBand or RoCE hardware: devices, also unusable ones, an IPoIB interface."""
    cards = [
        *facts.said(
            events.NetDevices, lambda e: isinstance(e, events.NetDevices) and e.net == "IB" and bool(e.devices)
        ),
        *facts.notices("nccl/net-ib-merged"),
        *(notice for notice in facts.notices("nccl/ib-device-not-usable") if not _is_efa(notice)),
    ]
    return first_said([*cards[:2], *over_infiniband(facts)[:2]])


def over_infiniband(facts: Facts) -> list[Notice]:
    """Lines that name an IPoIB interface: behind it is an InfiniBand card."""
    return naming(facts, is_over_infiniband)


def switched_off(facts: Facts) -> list[Setting]:
    """The settings that keep NCCL from its own InfiniBand and RoCE code; ib-disabled-by-env judges them."""
    forced = [setting for setting in facts.chosen("NCCL_NET") if setting.value.lower() == "socket"]
    return [*facts.switched_on("NCCL_IB_DISABLE"), *forced]


def lacking_verbs(facts: Facts) -> list[Notice]:
    """What NCCL says where the library for InfiniBand cards cannot be opened."""
    said = facts.notices("nccl/verbs-library-missing", "nccl/verbs-library-not-opened")
    return [notice for notice in said if "libibverbs" in str(value(notice, "library"))]


_DIES = "2.28."
"""This release calls the plugin that did not come up; other releases go on without it."""


def dies_here(facts: Facts) -> bool:
    """Whether a release is known to end without a word where the plugin does not come up."""
    return any(version.startswith(_DIES) for version in facts.job.nccl_versions)


NETWORK_TYPES = {3: "Socket", 4: "IB"}
"""Whom a connection is for, as its first bytes say (src/include/socket.h); others are of set-up and helpers."""


_CONNECTING = ("transport/net_socket.cc", "transport/net_ib.cc", "net_ib/connect.cc", "transport/net.cc")


def meetings(facts: Facts) -> list[Notice]:
    """Where a connection of one network met a listener of another, or got an address that is none of its kind."""
    return facts.once(_meetings)


def _meetings(facts: Facts) -> list[Notice]:
    typed = [notice for notice in facts.with_role("stranger") if network_types(notice) == NETWORK_TYPES.keys()]
    frames = facts.said(ErrorCascade, _is_connecting)
    beside = {process for frame in frames for process in frame.processes}
    odd = facts.with_role("garbled-address")
    return [*typed, *(notice for notice in odd if beside & set(notice.processes))]


def network_types(notice: Notice) -> set[int | None]:
    """The kinds of connection that met: the one that came and the one that was expected."""
    return {value(notice, "got_type"), value(notice, "expected_type")}


def _is_connecting(event: Event) -> bool:
    return isinstance(event, ErrorCascade) and event.file.endswith(_CONNECTING)


_A_PLUGIN = re.compile(r"ccl|plugin")
"""What stands in the file name of a plugin, and of no library that one needs."""


def lacks_a_library(notice: Notice) -> bool:
    """Whether another file than the plugin is what was not found: until 2.21 NCCL words both alike.

    Up to 2.11, and in 2.19 and 2.20, it does not name the plugin.
    """
    plugin, missing = getattr(notice.event, "plugin", None), getattr(notice.event, "detail", None)
    if not missing:
        return False
    return missing not in str(plugin).split() if plugin else _A_PLUGIN.search(str(missing)) is None
