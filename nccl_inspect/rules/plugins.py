"""Network plugins that do not load or do not fit, and the networks behind them: EFA, GPUDirect-TCPX and TCPXO."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from nccl_inspect.event.types import ErrorCascade, NetDevices, OfiPlatform, OfiProvider
from nccl_inspect.judging import exceptions, networks
from nccl_inspect.judging.check import Effects, Facts, Hit, Notice, first_evidence, value
from nccl_inspect.judging.facts import evidence_of_settings, hosts_in
from nccl_inspect.judging.statements import message_of
from nccl_inspect.model.inventory import BUILT_IN
from nccl_inspect.platforms import find_network
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.wording import some_names

if TYPE_CHECKING:
    from nccl_inspect.platforms import Platform


_SEARCH_FAILED = "aws-ofi-nccl/ofi-no-eligible-providers"
_DEFAULTS = {"libnccl-net.so", "librccl-net.so", "none", "libnccl-net-none.so"}
"""Files that NCCL and RCCL look for by default, or with ``NCCL_NET_PLUGIN=none``; 2.27 prints 'set by env' although
nothing is set."""


def plugin_not_found(facts: Facts) -> Iterator[Hit]:
    """Find a plugin that was requested by name or that the platform's network needs; it is normal that none is there.

    Up to 2.27 NCCL looks for plugins that a setting disables, and reports them missing (src/plugin/net.cc).
    """
    missing = [notice for notice in facts.plugin("NET", "not-found") if not networks.lacks_a_library(notice)]
    machine, off = facts.platform, networks.plugins_off(facts)
    needed = machine is not None and bool(find_network(machine.network).plugin)
    is_on_one_host = bool(facts.job.communicators) and not facts.spans_hosts()  # a fragment may be part of a larger job
    named = {"tcp": networks.tcp_paths(facts), "needed": needed}
    if off:
        if not is_on_one_host and not facts.inter_host_rdma_paths() and (machine is None or needed):
            yield Hit(named=named, settings=off, hosts=(), evidence=evidence_of_settings(off))
    elif missing and not facts.plugin("NET", "loaded"):
        requested = any(setting.value not in BUILT_IN for setting in facts.settings("NCCL_NET"))
        is_named = requested or any(set(_files(notice)) - _DEFAULTS for notice in missing)
        tcp, verbs = networks.fallback(facts), networks.lacking_verbs(facts)
        if is_named or (needed and not is_on_one_host):
            files = [name for notice in missing for name in _files(notice) or [notice.message]]
            named |= {"files": files, "named": is_named}
            yield Hit(missing, named, evidence=[*facts.plugin("NET", "requested")[:1], *missing[:3]])
        elif tcp and verbs and not facts.paths("intra"):
            shown = [*missing[:2], *verbs[:1]]
            yield Hit(named={"without verbs": True}, ranks=tcp.ranks, hosts=tcp.hosts, evidence=shown)


def _files(notice: Notice) -> list[str]:
    """Return the files that NCCL tried: NCCL_NET_PLUGIN=foo makes it look for ``foo`` and ``libnccl-net-foo.so``."""
    return str(getattr(notice.event, "plugin", None) or "").split()


def socket_instead_of_rdma(facts: Facts) -> Iterator[Hit]:
    """Find TCP paths between hosts of an unknown machine type, or an available network that did not come up."""
    signs = networks.slingshot_signs(facts)
    verbs = networks.lacking_verbs(facts)
    machine = facts.platform
    network = find_network(machine.network if machine else None)
    google = network.plugin if network.vendor == "GCP" else ""
    paths = networks.tcp_paths(facts) | networks.over_tcp_provider(facts).where(lambda _: bool(signs))
    sure = paths.where(lambda kind: kind.scope == "inter")
    shown, better = sure or paths, google or ("Slingshot" if signs else "")
    named = {
        "better": better,
        "google": google,
        "verbs": verbs,
        "unsought": not verbs and not facts.notices("nccl/net-ib-none") and _is_not_sought(facts),
    }
    if signs and not google:
        named |= {
            "slingshot": True,
            "tried": networks.ofi_lines(facts),
            "other provider": networks.over_tcp_provider(facts) or facts.with_event(OfiProvider),
            "without provider": facts.notices(_SEARCH_FAILED) or facts.with_role("no-provider"),
        }
    if paths:
        searches = [*facts.notices("nccl/net-ib-none"), *verbs][:1]
        yield Hit(
            named=named | {"poor": machine is not None and not network.rdma, "doubtful": not sure},
            evidence=[*shown.first_lines()[:3], *searches, *signs[:1]],
            paths=shown,
            open_paths=paths.exclude(sure).where(lambda _: bool(sure)),
        )
        return
    tcp = networks.fallback(facts)
    failed = [one for one in networks.failed_plugins(facts) if not networks.is_of_libfabric(one)]
    if tcp and network.rdma and (better or failed) and not networks.settings_without_ib(facts):
        names = [str(getattr(notice.event, "plugin", "")) for notice in failed]
        named |= {"names": names, "plugins": failed and not better}
        lines = [*signs, *first_evidence(failed), *first_evidence(verbs)]
        yield networks.suspect(tcp, lines, named, True, better)


def _is_not_sought(facts: Facts) -> bool:
    """Return whether NCCL lists its sockets without a search for NICs, which comes first (src/plugin/net.cc)."""
    sockets = facts.with_event(NetDevices, lambda event: event.net == "Socket")
    if not sockets or facts.plugin("NET", "loaded") or facts.is_rccl():
        return False
    searches = (notice for notice in facts.job.notices if "NET/IB" in notice.message or "NET/OFI" in notice.message)
    return not any(searches) and not facts.settings("NCCL_IB_DISABLE", "NCCL_NET")


def efa_init_failed(facts: Facts) -> Iterator[Hit]:
    """Find a failed initialization, and set-up errors if no network of the plugin came up."""
    unregistered = facts.with_role("memory-not-registered")  # for lack of locked memory, it explains later failures
    if networks.slingshot_signs(facts) or any(abs(value(notice, "rc") or 0) == 12 for notice in unregistered):
        return  # the plugin also supports Slingshot
    failed = [one for one in networks.ofi_lines(facts) if getattr(one.event, "status", "") == "failed"]
    stated = [*facts.notices("aws-ofi-nccl/ofi-gdr-disabled-on-capable"), *facts.errors_of_rule("efa-init-failed")]
    reasons = sorted(stated, key=attrgetter("place"))
    notices = [*reasons, *facts.notices("aws-ofi-nccl/ofi-protocol-failed"), *failed]
    # NCCL's frames of connections that then failed, after it had chosen the plugin; the second file until 2.11. If the
    # reason comes after the first connection, frames of other ranks may precede it.
    is_chosen = reasons and (facts.with_event(OfiProvider) or _came_up(facts))
    frames = exceptions.frames(facts, files=("transport/net.cc", "include/net.h")) if is_chosen else []
    first = min((line.order for line in networks.libfabric_paths(facts).first_lines()), default=None)
    is_late = bool(reasons) and first is not None and reasons[0].evidence[0].order > first
    broken = [frame for frame in frames if is_late or frame.place > reasons[0].place]
    if notices and (failed or facts.job.failed or broken or not _came_up(facts)):
        named = {"broken": broken, "reason": reasons[0].message.removeprefix("NET/OFI ") if reasons else ""}
        yield Hit(notices, named, evidence=[*reasons[:3], *notices[-2:], *broken[:1]])


def _came_up(facts: Facts) -> bool:
    is_named = any(comm.network not in (None, "Socket", "IB") for comm in facts.job.communicators)
    return is_named or bool(networks.libfabric_paths(facts))


def efa_nics_missing(facts: Facts) -> Iterator[Hit]:
    """Find hosts that communicate over EFA with fewer devices than their machine has for these GPUs.

    Where the log ends before any connection, there is at least one GPU, and the devices may still be meant to be used.
    """
    machine = facts.platform
    if machine is None or machine.network != "efa" or not (machine.nics and machine.gpus):
        return
    ranks = {host.name: len(host.ranks) for host in facts.job.hosts}
    short = []
    is_open = not facts.job.paths and not networks.is_on_one_host(facts)
    for notice in facts.with_event(OfiProvider) if is_open or facts.inter_host_rdma_paths() else ():
        gpus = min((ranks.get(host, 0) for host in notice.hosts), default=0) or int(is_open)
        match notice.event:
            case OfiProvider(provider="efa", nics=int(nics)) if gpus and 0 < nics < _share(machine, gpus):
                short.append((gpus, nics, notice))
    if short:
        gpus, nics, _ = short[0]
        notices, expected = [notice for _, _, notice in short], _share(machine, gpus)
        named = {
            "nics": nics,
            "expected": expected,
            "share": f"{nics}/{expected}",
            "gpus": gpus,
            "severe": not is_open and expected >= 4 * nics,
            "open": is_open,
        }
        yield Hit(notices, named, evidence=[*facts.with_event(OfiPlatform)[:1], *notices[:2]])


def _share(machine: Platform, gpus: int) -> int:
    """Return the devices of a machine for this number of GPUs, rounded down: half of it may have half of them."""
    return max((machine.nics or 0) * min(gpus, machine.gpus or 1) // (machine.gpus or 1), 1)


def efa_provider_missing(facts: Facts) -> Iterator[Hit]:
    """Find the end of the search: 'No eligible providers' alone is normal, as RDMA is tried before SENDRECV.

    Slingshot has no EFA: socket-instead-of-rdma reports what is missing there.
    """
    if networks.slingshot_signs(facts):
        return
    searched, missing = facts.notices(_SEARCH_FAILED), facts.with_role("searches-failed")
    failed = [one for one in networks.ofi_lines(facts) if getattr(one.event, "status", "") == "failed"]
    providers, net = facts.with_event(OfiProvider), facts.paths(transport="NET")
    if not (missing or (searched and failed)):
        if searched and not providers and not any("Libfabric" in kind.detail for kind in net.kinds):
            yield Hit(named={"open": True})
        return
    served = {rank for notice in providers for rank in notice.ranks}
    hosts = hosts_in(providers)
    unserved = [*searched, *missing]
    if providers:
        unserved = [n for n in unserved if (set(n.ranks) - served if n.ranks else set(n.hosts) - hosts)]
    if not unserved:
        return
    silent = not facts.job.paths and _is_last(facts, unserved)
    stopped = silent and networks.dies_silently(facts)
    # Without hosts that communicate over another network, the machine may not have EFA: other images have the plugin.
    on_efa = facts.platform is not None and facts.platform.network == "efa"
    elsewhere = facts.with_event(OfiPlatform, lambda event: event.platform == "Default")  # not a machine of AWS
    named: dict[str, object] = {
        "silent": silent,
        "stopped": stopped,
        "needed": stopped or on_efa or net or facts.job.failed,
        "FI_PROVIDER": facts.settings("FI_PROVIDER"),
        "elsewhere": [] if on_efa else elsewhere,
    }
    ranks = {rank for notice in unserved for rank in notice.ranks} - served
    yield Hit(unserved, named, ranks=ranks, evidence=[*unserved[:3], *failed[:2]])


def _is_last(facts: Facts, unserved: list[Notice]) -> bool:
    """Return whether the processes that found no provider print nothing after the failure of the plugin."""
    who = {process for notice in unserved for process in notice.processes}
    failures = (*unserved, *facts.plugin("NET", "failed"), *facts.with_event(ErrorCascade))
    pairs = [pair for notice in failures for pair in zip(notice.processes, notice.until, strict=True)]
    lasts = dict(sorted(pairs, key=itemgetter(1)))
    return all(last.order <= lasts.get(last.process, 0) for last in facts.job.last_lines if last.process in who)


def socket_instead_of_efa(facts: Facts) -> Iterator[Hit]:
    """Find TCP paths that aws-ofi-nccl, a setting or the platform shows EFA should carry, or signs before hosts talk.

    Another rule judges platforms with another network.
    """
    provider = networks.over_tcp_provider(facts)
    paths = networks.tcp_paths(facts) | provider
    network = facts.platform.network if facts.platform else None
    hints, lines = networks.efa_hints(facts), networks.ofi_lines(facts)
    providers = facts.settings("FI_PROVIDER")
    named: dict[str, object] = {
        "off": networks.plugins_off(facts),
        "other": next((one.value for one in providers if one.value and "efa" not in one.value), None),
        "sought": networks.sought_plugin(facts),
    }
    if network not in (None, "efa"):
        return
    if not paths and (tcp := networks.fallback(facts)):
        yield from _suspect(facts, tcp, named, lines)
    elif paths and (network or hints):
        named |= {"provider": provider, "tried": lines, "certain": network and lines}
        yield Hit(named=named, evidence=[*paths.first_lines()[:2], *hints[:3]], paths=paths)


def _suspect(facts: Facts, tcp: networks.Fallback, named: dict[str, object], lines: list[Notice]) -> Iterator[Hit]:
    """Find the signs before hosts talk: a plugin that did not come up or found TCP, or a platform with EFA."""
    if networks.ib_cards(facts) or networks.slingshot_signs(facts):
        return
    expected = bool(facts.platform and facts.platform.network)
    # The lines that show that aws-ofi-nccl does not come up, and why.
    reasons = [n for n in lines if getattr(n.event, "tone", "") == "error" or n.production == _SEARCH_FAILED]
    broken = networks.unloadable_plugins(facts)
    without = [notice for notice in broken if "fabric" in str(getattr(notice.event, "detail", ""))]
    failed = filter(networks.is_of_libfabric, networks.failed_plugins(facts))
    hints, refused = networks.efa_hints(facts), [*reasons[:2], *[*failed, *without][:1]]
    # Stronger than the plugin's presence: images for all kinds of machines contain it.
    asked = ("efa", "libfabric", "aws libfabric")
    requests = [one for one in facts.settings("FI_PROVIDER", "NCCL_NET") if one.value.lower() in asked]
    warned = facts.notices("libfabric/libfabric-warning")
    warned = [n for n in warned if value(n, "provider") == "efa" or "provider efa" in str(value(n, "text"))]
    shown = [*facts.with_event(OfiPlatform), *warned]
    on_aws = [notice for notice in refused if any(map(networks.is_ec2, notice.hosts))]
    signs = first_evidence([*shown[:2], *on_aws[:1]]) + evidence_of_settings(requests, 1)
    in_ec2 = facts.spans_hosts() and bool(tcp.stated) and any(map(networks.is_ec2, tcp.hosts))
    points_at_efa = expected or signs or hints or refused
    gave_up = any(notice.production != _SEARCH_FAILED for notice in refused)
    if not points_at_efa and (not in_ec2 or networks.settings_without_ib(facts)):
        return
    if lines and not tcp.stated and (networks.dies_silently(facts) or not gave_up):
        return  # the log ends before the plugin has chosen a provider, or NCCL ends
    over_tcp = [notice for notice in facts.with_event(OfiProvider) if networks.is_over_tcp(notice)]
    evidence = [*first_evidence([*over_tcp, *refused]), *signs, *hints]
    named |= {"provider": over_tcp, "tried": lines or refused}
    yield networks.suspect(tcp, evidence, named, points_at_efa, expected or signs or over_tcp or refused)


_WAITS, _ABORTED = "tcpxo/fastrak-rxdm-not-ready", "tcpxo/fastrak-init-failed"
_ABORTS_OF_WAITS = ("DEADLINE_EXCEEDED: ", "connect() error", "receive() error")


def tcpx_timeout(facts: Facts) -> Iterator[Hit | Effects]:
    """Find a daemon that does not become ready or ends, and warnings about timeouts.

    The TCPX plugin is recognized by its texts only: its WARN about a timeout counts.
    """
    own = facts.with_role("daemon-ends")
    aborted = [(one, str(value(one, "status"))) for one in facts.notices(_ABORTED)]
    aborted = [(one, status) for one, status in aborted if any(text in status for text in _ABORTS_OF_WAITS)]
    gone = [*facts.with_role("daemon-gone"), *(one for one, _ in aborted)]
    late = [notice for notice in facts.job.notices if _is_timeout(notice)]
    ready = {process for notice in facts.notices("tcpxo/fastrak-rxdm-ready") for process in notice.processes}
    waiting = [one for one in facts.notices(_WAITS) if not one.processes or set(one.processes) - ready]
    works, is_failure = networks.google_plugin_works(facts), bool(own or gone or late)
    ended = facts.job.failed or bool(facts.job.ended_by)
    if facts.is_over():
        yield Effects(gone)  # the daemon may end before the job
    if works and not facts.job.failed and (facts.is_over() or not is_failure):
        return
    if waiting and not is_failure and not ended:
        yield Hit(named={"open": True})
    elif notices := [*own, *gone, *late, *waiting]:
        where = {str(value(notice, "host")) for notice in gone if value(notice, "host")} or hosts_in(gone)
        nanos = value(late[0], "nanos") if late else None
        texts = [message_of(notice) for notice in gone]
        named: dict[str, object] = {
            "own": _text(own[0]) if own else "",
            "gone": own or gone,
            "where": sorted(where),
            "late": _text(late[0]) if late else "",
            "waiting": waiting,
            "nanos": nanos and int(nanos) // 10**9,
            "seconds": max((int(value(notice, "seconds") or 0) for notice in waiting), default=0),
            "refused": any("111" in text or "refused" in text for text in texts) and not own,
            "certain": own or facts.notices("tcpxo/fastrak-rxdm-timeout"),
            "works": works and not ended,
            "fatal": ended or (is_failure and not works),
        }
        yield Hit(notices, named)


def _is_timeout(notice: Notice) -> bool:
    """Return whether a peer does not answer; messages about the daemon or the machine do not count."""
    own = notice.message.startswith(("NET/FasTrak", "NET/GPUDirectTCPX")) or notice.rule == "tcpx-timeout"
    # TCPX prints the signature of a function where other warnings have their source location.
    own = own or (notice.location or "").startswith("tcpxResult_t")
    if notice.level != "WARN" or not own or notice.rule not in ("", "tcpx-timeout"):
        return False
    if not notice.roles.isdisjoint(("daemon-ends", "daemon-gone")) or notice.production in (_WAITS, _ABORTED):
        return False
    return any(phrase in notice.message.lower() for phrase in ("timed out", "timeout", "deadline exceeded"))


def _text(notice: Notice) -> str:
    """Return the message without its head: the plugin's name and time, or the prefix of a line of the daemon."""
    mark = "] " if notice.production.startswith("tcpxo/rxdm-") else ": "
    return message_of(notice).partition(mark)[2].strip() or notice.message


def tcpxo_version_mismatch(facts: Facts) -> Iterator[Hit]:
    """Find the plugin's errors about releases, and plugins of several releases in a job that did not connect."""
    peers = facts.errors_of_rule("tcpxo-version-mismatch")
    failed = facts.notices("tcpxo/fastrak-dxs-failed")
    texts = ("Server version is unsupported", "kUnsupportedClientVersion")
    refused = [notice for notice in failed if any(text in message_of(notice) for text in texts)]
    loading = [notice for notice in facts.plugin("NET", "loading") if notice.production == "tcpxo/fastrak-initializing"]
    releases = group_values((str(getattr(n.event, "detail", None) or ""), host) for n in loading for host in n.hosts)
    releases.pop("", None)
    if errors := [*peers, *refused]:
        yield Hit(errors, {"peers": peers})
    elif len(releases) > 1 and not networks.google_plugin_works(facts):
        nodes = (f"{release} on {some_names(sorted({*releases[release]}))}" for release in sorted(releases))
        yield Hit(loading, {"releases": sorted(releases), "nodes": "; ".join(nodes)})
