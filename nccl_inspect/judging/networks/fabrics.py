"""Which network hosts communicate over, and which one the machines have, from what NCCL and plugins list."""

from __future__ import annotations

from nccl_inspect.event import types as events
from nccl_inspect.judging.facts import Facts, first_evidence, hosts_in, once
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.networks.fallback import (
    is_of_libfabric,
    is_over_tcp,
)
from nccl_inspect.judging.networks.interfaces import is_over_infiniband, notices_naming
from nccl_inspect.judging.propagated_errors import frames
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice, Selection, Setting
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import count, some_names


def over_tcp_provider(facts: Facts) -> Selection:
    """Paths between hosts over libfabric whose provider is TCP: the word Libfabric alone is not EFA."""
    is_tcp = any(map(is_over_tcp, facts.with_event(events.OfiProvider)))
    return facts.inter_host_net_paths().where(lambda kind: is_tcp and "Libfabric" in kind.detail)


def tcp_paths(facts: Facts) -> Selection:
    """Paths over NCCL's own TCP network that leave a host, or may."""
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


def no_cards_on(notices: list[Notice]) -> str:
    """Return what the hosts of :func:`without_cards` lack, in words."""
    return (
        f"on {some_names(sorted(hosts_in(notices)))} NCCL found no InfiniBand or RoCE card, though others have one: "
        "device nodes or verbs libraries are missing in the container, the card is down, or the host has none"
    )


def efa_hints(facts: Facts) -> list[Evidence]:
    """Lines that show that EFA was intended: aws-ofi-nccl, its provider, or a setting that requests it.

    The plugin also supports Slingshot: if that is present, EFA is not intended.
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
    return [*first_evidence((*plugin[:3], *sought[:2], *unusable_efa(facts)[:2])), *asked]


def unusable_efa(facts: Facts) -> list[Notice]:
    """EFA devices that NCCL's own code cannot open: it mistakes them for InfiniBand cards."""
    return [notice for notice in facts.notices("nccl/ib-device-not-usable") if _is_efa(notice)]


def sought_plugin(facts: Facts) -> list[Notice]:
    """Lines that report a missing file with the name of aws-ofi-nccl."""
    return [notice for notice in facts.plugin("NET", "not-found") if is_of_libfabric(notice)]


def plugins_off(facts: Facts) -> list[Setting]:
    """Settings that keep NCCL from external network plugins."""
    return [setting for setting in facts.settings("NCCL_NET_PLUGIN") if setting.value.lower() == "none"]


def _is_efa(notice: Notice) -> bool:
    """Return whether a device that cannot be opened is an EFA device: verbs has no name for its link layer."""
    return str(value(notice, "device")).startswith(("rdmap", "efa_"))


def ib_hints(facts: Facts) -> list[Evidence]:
    """Lines that indicate InfiniBand or RoCE: hardware, or a setting that names cards."""
    return [*ib_cards(facts), *(line for setting in facts.settings("NCCL_IB_HCA") for line in setting.evidence[:1])]


def ib_cards(facts: Facts) -> list[Evidence]:
    """Lines that show InfiniBand or RoCE hardware: devices, including unusable ones, and IPoIB interfaces."""
    cards = [
        *card_lists(facts),
        *facts.notices("nccl/net-ib-merged"),
        *(notice for notice in facts.notices("nccl/ib-device-not-usable") if not _is_efa(notice)),
    ]
    return first_evidence([*cards[:2], *over_infiniband(facts)[:2]])


def over_infiniband(facts: Facts) -> list[Notice]:
    """Lines that name an IPoIB interface, which implies an InfiniBand card."""
    return notices_naming(facts, is_over_infiniband)


def disabling_settings(facts: Facts) -> list[Setting]:
    """Return the settings that disable NCCL's own InfiniBand and RoCE code; ib-disabled-by-env judges them."""
    forced = [setting for setting in facts.user_settings("NCCL_NET") if setting.value.lower() == "socket"]
    return [*facts.enabled_settings("NCCL_IB_DISABLE"), *forced]


def lacking_verbs(facts: Facts) -> list[Notice]:
    """NCCL's reports that the library for InfiniBand cards cannot be opened."""
    notices = facts.notices("nccl/verbs-library-missing", "nccl/verbs-library-not-opened")
    return [notice for notice in notices if "libibverbs" in str(value(notice, "library"))]


_DIES = "2.28."
"""This release calls a plugin whose initialization failed; other releases continue without it."""


def dies_silently(facts: Facts) -> bool:
    """Return whether the release is known to die without a message if the plugin's initialization fails."""
    return any(version.startswith(_DIES) for version in facts.job.nccl_versions)


NETWORK_TYPES = {3: "Socket", 4: "IB"}
"""The network that a connection belongs to, by its first bytes (src/include/socket.h); others are for bootstrap and
helpers."""


_CONNECTING = ("transport/net_socket.cc", "transport/net_ib.cc", "net_ib/connect.cc", "transport/net.cc")


@once
def network_mismatches(facts: Facts) -> list[Notice]:
    """Statements that a connection of one network reached a listener of another, or got an address of another kind."""
    typed = [notice for notice in facts.with_role("stranger") if network_types(notice) == NETWORK_TYPES.keys()]
    beside = {process for frame in frames(facts, files=_CONNECTING) for process in frame.processes}
    odd = facts.with_role("garbled-address")
    return [*typed, *(notice for notice in odd if beside & set(notice.processes))]


def network_types(notice: Notice) -> set[int | None]:
    """Return the kinds of connection: the one that arrived and the one that was expected."""
    return {value(notice, "got_type"), value(notice, "expected_type")}


def card_lists(facts: Facts) -> list[Notice]:
    """NCCL's lists of InfiniBand and RoCE cards."""
    return facts.with_event(events.NetDevices, lambda event: event.net == "IB" and bool(event.devices))


_A_PLUGIN = compile_later(r"ccl|plugin")
"""Matches file names of plugins, and of none of the libraries that they need."""


def lacks_a_library(notice: Notice) -> bool:
    """Return whether the missing file is a dependency and not the plugin: until 2.21 NCCL has one wording for both.

    Up to 2.11, and in 2.19 and 2.20, it does not name the plugin.
    """
    plugin, missing = getattr(notice.event, "plugin", None), getattr(notice.event, "detail", None)
    if not missing:
        return False
    return missing not in str(plugin).split() if plugin else _A_PLUGIN.search(str(missing)) is None
