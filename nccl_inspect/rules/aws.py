"""EFA and aws-ofi-nccl."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ErrorCascade, OfiPlatform, OfiProvider
from nccl_inspect.judging import networks, propagated_errors
from nccl_inspect.judging.check import Evidence, Facts, Hit, Notice, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings, hosts_in
from nccl_inspect.judging.impact import over_tcp
from nccl_inspect.judging.networks import (
    clue_evidence,
    dies_silently,
    failed_plugins,
    fallback,
    is_ec2,
    is_of_libfabric,
    is_over_tcp,
)
from nccl_inspect.judging.transfers import (
    EFA_UNREACHABLE,
    efa_code,
    efa_completions,
    is_connected_over_efa,
    is_peer_gone,
    never_connected,
    unreachable_peers,
)

if TYPE_CHECKING:
    from nccl_inspect.platforms import Platform

_SPECIFIC = (4, 5, 7, 10, 18, 4097, 4098, 4099, 4105, 4125)
"""Those whose cause is known."""


def efa_completion_error(facts: Facts) -> Iterator[Hit]:
    """Find codes other than those of a lost peer, which are echoes of peer-death; else the lines around them."""
    failed = [notice for notice in efa_completions(facts) if not is_peer_gone(notice)]
    if failed:
        specific = [notice for notice in failed if efa_code(notice) in _SPECIFIC]
        first = (specific or failed)[0]
        code = efa_code(first)
        named = {
            "peer": value(first, "peer_host"),
            "error": value(first, "error"),
            "code": "" if code is None else str(code),
            "specific": specific,
            "zero-copy": code == 4125,
        }
        yield Hit(failed, named, evidence=specific or failed)
        return
    notices = facts.with_role("beside-completion")
    providers = {getattr(notice.event, "provider", "") for notice in facts.with_event(OfiProvider)}
    if notices and not facts.with_role("efa-completion") and (not providers or "efa" in providers):
        yield Hit(notices, {"error": notices[0].message.removeprefix("NET/OFI "), "without code": True})


_NO_MEMORY = -12
_CONNECTING = ("transport/net.cc", "include/net.h")
"""Until 2.11 NCCL calls plugins through the second."""
_BUILT_IN = (None, "Socket", "IB")


def efa_init_failed(facts: Facts) -> Iterator[Hit]:
    """Find a failed initialization, and set-up errors if no network of the plugin came up."""
    unregistered = facts.with_role("memory-not-registered")  # for lack of locked memory, it explains later failures
    if networks.slingshot_signs(facts) or any(abs(value(notice, "rc") or 0) == -_NO_MEMORY for notice in unregistered):
        return  # the plugin also supports Slingshot
    failed = [n for n in facts.plugin("NET", "failed") if n.event and n.event.dialect == "aws-ofi-nccl"]
    stated = [*facts.notices("aws-ofi-nccl/ofi-gdr-disabled-on-capable"), *facts.errors_of_rule("efa-init-failed")]
    reasons = sorted(stated, key=attrgetter("place"))
    notices = [*reasons, *facts.notices("aws-ofi-nccl/ofi-protocol-failed"), *failed]
    broken = _find_broken(facts, reasons)
    if notices and (failed or facts.job.failed or broken or not _came_up(facts)):
        named = {
            "reason": reasons[0].message.removeprefix("NET/OFI ") if reasons else "",
            "broken": broken,
        }
        yield Hit(notices, named, evidence=[*reasons[:3], *notices[-2:], *broken[:1]])


def _came_up(facts: Facts) -> bool:
    return any(comm.network not in _BUILT_IN for comm in facts.job.communicators) or any(
        "Libfabric" in kind.detail for kind in facts.inter_host_net_paths().kinds
    )


def _find_broken(facts: Facts, reasons: list[Notice]) -> list[Notice]:
    """Find NCCL's frames of connections that then failed, after it had chosen the plugin.

    If the reason comes after the first connection, frames of other ranks may precede it.
    """
    if not reasons or not (facts.with_event(OfiProvider) or _came_up(facts)):
        return []
    used = facts.inter_host_net_paths().where(lambda kind: "Libfabric" in kind.detail)
    first = min((line.order for line in used.first_lines()), default=None)
    is_late = first is not None and reasons[0].evidence[0].order > first
    broken = propagated_errors.frames(facts, files=_CONNECTING)
    return [frame for frame in broken if is_late or frame.place > reasons[0].place]


_SEVERE = 4
"""Factor of missing devices from which it is an error."""


def efa_nics_missing(facts: Facts) -> Iterator[Hit]:
    """Find hosts that communicate over EFA with fewer devices than their machine has for these GPUs."""
    machine = facts.platform
    if machine is None or machine.network != "efa" or not (machine.nics and machine.gpus):
        return
    ranks = {host.name: len(host.ranks) for host in facts.job.hosts}
    short = []
    for notice in facts.with_event(OfiProvider) if facts.inter_host_rdma_paths() else ():
        gpus = min((ranks.get(host, 0) for host in notice.hosts), default=0)
        match notice.event:
            case OfiProvider(provider="efa", nics=int(nics)) if gpus and 0 < nics < _share(machine, gpus):
                short.append((gpus, nics, notice))
    if short:
        gpus, nics, _ = short[0]
        notices, expected = [notice for _, _, notice in short], _share(machine, gpus)
        named = {
            "nics": nics,
            "machine": machine.name,
            "expected": expected,
            "share": f"{nics}/{expected}",
            "gpus": gpus,
            "severe": expected >= _SEVERE * nics,
        }
        yield Hit(notices, named, evidence=[*facts.with_event(OfiPlatform)[:1], *notices[:2]])


def _share(machine: Platform, gpus: int) -> int:
    """Return the devices of a machine for this number of GPUs, rounded down: half of it may have half of them."""
    return max((machine.nics or 0) * min(gpus, machine.gpus or 1) // (machine.gpus or 1), 1)


def efa_not_supported_instance(facts: Facts) -> Iterator[Hit]:
    """Find a failed search for a provider if the machine has no EFA, or the whole job is on one host."""
    failed = facts.with_role("searches-failed")
    platform = facts.platform
    without = platform is not None and platform.network not in (None, "efa")
    comms = facts.job.communicators
    alone = bool(comms) and hosts_in(failed) <= {host for comm in comms for host in comm.hosts}
    for comm in comms:
        is_whole = len(comm.hosts) == 1 and len(comm.completed) == comm.nranks
        alone &= is_whole if comm.nnodes is None else comm.nnodes == 1
    if failed and not facts.job.failed and (without or alone):
        named = {"platform": platform.name, "network": str(platform.network)} if platform else {}
        yield Hit(failed, named | {"without EFA": without, "across hosts": without and facts.spans_hosts()})


_NOT_AWS = "Default"
"""What the plugin calls a machine that is not one of AWS."""


def efa_provider_missing(facts: Facts) -> Iterator[Hit]:
    """Find the end of the search: 'No eligible providers' alone is normal, as RDMA is tried before SENDRECV.

    Slingshot has no EFA: socket-instead-of-rdma reports what is missing there.
    """
    if networks.slingshot_signs(facts):
        return
    searched, missing = facts.notices("aws-ofi-nccl/ofi-no-eligible-providers"), facts.with_role("searches-failed")
    failed = [n for n in facts.plugin("NET", "failed") if n.event and n.event.dialect == "aws-ofi-nccl"]
    providers, net = facts.with_event(OfiProvider), facts.paths(transport="NET")
    if not (missing or (searched and failed)):
        if searched and not providers and not any("Libfabric" in kind.detail for kind in net.kinds):
            yield Hit(named={"open": True})
        return
    served = {rank for notice in providers for rank in notice.ranks}
    hosts = {host for notice in providers for host in notice.hosts}
    unserved = [
        n
        for n in (*searched, *missing)
        if not providers or (n.ranks and set(n.ranks) - served) or (not n.ranks and set(n.hosts) - hosts)
    ]
    if not unserved:
        return
    silent = not facts.job.paths and _is_last(facts, unserved)
    stopped = silent and dies_silently(facts)
    # Without hosts that communicate over another network, the machine may not have EFA: other images have the plugin.
    on_efa = facts.platform is not None and facts.platform.network == "efa"
    elsewhere = facts.with_event(OfiPlatform, lambda event: event.platform == _NOT_AWS)
    named = {
        "silent": silent,
        "stopped": stopped,
        "needed": stopped or on_efa or net or facts.job.failed,
        "elsewhere": [] if on_efa else elsewhere,
    }
    ranks = {rank for notice in unserved for rank in notice.ranks} - served
    yield Hit(unserved, named, ranks=ranks, evidence=[*unserved[:3], *failed[:2]])


def _is_last(facts: Facts, unserved: list[Notice]) -> bool:
    """Return whether the processes that found no provider print nothing after the failure of the plugin."""
    who = {process for notice in unserved for process in notice.processes}
    last_lines: dict[Process, int] = {}
    for notice in (*unserved, *facts.plugin("NET", "failed"), *facts.with_event(ErrorCascade)):
        for process, last in zip(notice.processes, notice.until, strict=True):
            last_lines[process] = max(last, last_lines.get(process, 0))
    return all(last.order <= last_lines.get(last.process, 0) for last in facts.job.last_lines if last.process in who)


def efa_security_group(facts: Facts) -> Iterator[Hit]:
    """Find failures of the first transfers, or addresses of peers that the device rejects.

    Failures after connections were made mean that the peer is gone. Before 1.16, libfabric prints the same text for all
    reasons.
    """
    rejected, apart = facts.errors_of_rule("efa-security-group"), never_connected(facts)
    unexplained = efa_completions(facts) if apart else []
    failed = unreachable_peers(facts) or (unexplained if all(map(_is_unknown, unexplained)) else [])
    if failed:
        banner = facts.notices("aws-ofi-nccl/ofi-security-group-banner")
        banner = [notice for notice in banner if "security group" in notice.message]
        named = {
            "error": value(failed[0], "error"),
            "banner": banner,
            "unknown": any(map(_is_unknown, failed)),
            "unreachable": apart and efa_code(failed[0]) == EFA_UNREACHABLE,
        }
        yield Hit(failed, named, evidence=[*failed[:3], *banner[:1]])
    elif rejected and not is_connected_over_efa(facts):
        yield Hit(rejected, {"rejected": rejected[0].message.removeprefix("NET/OFI ")})


def _is_unknown(notice: Notice) -> bool:
    return efa_code(notice) is None and value(notice, "error") == "unknown error"


_SEARCH_FAILED = "aws-ofi-nccl/ofi-no-eligible-providers"
_NAMES = ("efa", "libfabric", "aws libfabric")


def socket_instead_of_efa(facts: Facts) -> Iterator[Hit]:
    """Find TCP paths that aws-ofi-nccl, a setting or the platform shows EFA should carry, or signs before hosts talk.

    Another rule judges platforms with another network.
    """
    provider = networks.over_tcp_provider(facts)
    paths = networks.tcp_paths(facts) | provider
    network = facts.platform.network if facts.platform else None
    hints, lines = networks.efa_hints(facts), _plugin_lines(facts)
    providers = facts.settings("FI_PROVIDER")
    named = {
        "words": networks.paths_in_words(paths) if paths else "",
        "cost": over_tcp(facts.platform),
        "off": networks.plugins_off(facts),
        "other": next((one.value for one in providers if one.value and "efa" not in one.value), None),
        "sought": networks.sought_plugin(facts),
    }
    if network not in (None, "efa"):
        return
    if not paths:
        yield from _suspect(facts, named, lines)
    elif network or hints:
        named |= {"provider": provider, "tried": lines, "certain": network and lines}
        yield Hit(named=named, evidence=[*paths.first_lines()[:2], *hints[:3]], paths=paths)


def _suspect(facts: Facts, named: dict[str, object], lines: list[Notice]) -> Iterator[Hit]:
    """Find the signs before hosts talk: a plugin that did not come up or found TCP, or a platform with EFA."""
    tcp, expected = fallback(facts), bool(facts.platform and facts.platform.network)
    signs, hints, refused = _signs(facts), networks.efa_hints(facts), _refusals(facts)
    if not tcp or networks.ib_cards(facts) or networks.slingshot_signs(facts):
        return
    in_ec2 = tcp.is_spread and bool(tcp.stated) and any(map(is_ec2, tcp.hosts))
    points_at_efa = expected or signs or hints or refused
    gave_up = any(notice.production != _SEARCH_FAILED for notice in refused)
    if not points_at_efa and (not in_ec2 or networks.settings_without_ib(facts)):
        return
    if lines and not tcp.stated and (networks.dies_silently(facts) or not gave_up):
        return  # the log ends before the plugin has chosen a provider, or NCCL ends
    over_tcp_only = [notice for notice in facts.with_event(OfiProvider) if is_over_tcp(notice)]
    is_sure = bool(expected or signs or over_tcp_only or refused)
    yield Hit(
        named=named
        | {
            "provider": over_tcp_only,
            "tried": lines or refused,
            "idle": tcp.may_be_idle or not points_at_efa,
            "doubtful": tcp.may_be_idle or not is_sure,
        },
        ranks=tcp.ranks,
        hosts=tcp.hosts,
        evidence=clue_evidence([*first_evidence([*over_tcp_only, *refused]), *signs, *hints], tcp),
    )


def _signs(facts: Facts) -> list[Evidence]:
    """Signs stronger than the plugin's presence: images for all kinds of machines contain it."""
    requests = [s for s in facts.settings("FI_PROVIDER", "NCCL_NET") if s.value.lower() in _NAMES]
    own = [s for s in facts.job.environment if s.name.startswith("FI_EFA_") and s.source != "plugin"]
    of_efa = [n for n in facts.job.notices if isinstance(n.event, OfiPlatform) or _is_of_efa(n)]
    on_aws = [n for n in _refusals(facts) if any(map(is_ec2, n.hosts))]
    notices = [*of_efa[:2], *on_aws[:1], *networks.sought_plugin(facts)[:1], *networks.unusable_efa(facts)[:1]]
    return first_evidence(notices) + evidence_of_settings([*requests, *own], 1)


def _plugin_lines(facts: Facts) -> list[Notice]:
    """Return the lines of aws-ofi-nccl."""
    return [notice for notice in facts.job.notices if notice.event and notice.event.dialect == "aws-ofi-nccl"]


def _is_of_efa(notice: Notice) -> bool:
    """Return whether it is a message of libfabric about its EFA provider."""
    is_named = value(notice, "provider") == "efa" or "provider efa" in str(value(notice, "text"))
    return notice.production == "libfabric/libfabric-warning" and is_named


def _refusals(facts: Facts) -> list[Notice]:
    """Return the lines that show that aws-ofi-nccl does not come up, and why."""
    lines = _plugin_lines(facts)
    reasons = [n for n in lines if getattr(n.event, "tone", "") == "error" or n.production == _SEARCH_FAILED]
    broken = networks.unloadable_plugins(facts)
    without = [notice for notice in broken if "fabric" in str(getattr(notice.event, "detail", ""))]
    return [*reasons[:2], *[*filter(is_of_libfabric, failed_plugins(facts)), *without][:1]]
