"""Paths that are slower than they could be: without peer-to-peer access, shared memory or GPUDirect RDMA."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from operator import methodcaller

from nccl_inspect.event.types import GdrDecision, Message, P2pRefused
from nccl_inspect.judging import cuda, exceptions, gdr, networks
from nccl_inspect.judging.check import Facts, Hit, Notice, value
from nccl_inspect.judging.facts import ENDS, HOSTS, RANKS, evidence_of_settings, hosts_in, once, ranks_in
from nccl_inspect.judging.impact import P2P, SHM, against_nvlink, compare_rates, current_rate, p2p
from nccl_inspect.judging.impact import network as network_of
from nccl_inspect.judging.networks import over_tcp_provider, paths_in_words
from nccl_inspect.judging.statements import error_of
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.model.paths.path import SIDES
from nccl_inspect.model.versions import order
from nccl_inspect.platforms import find_nic_family
from nccl_inspect.util.wording import fold_names, some_names

_ALLOWED_BY = {**dict.fromkeys(("NVL", "NVB", "C2C"), ("NV",)), **dict.fromkeys(("PIX", "1"), ("NV", "PIX"))}
"""Levels below NCCL's own choice, PXB, with the classes of pairs that they allow to use P2P."""


def disabling_settings(facts: Facts) -> list[Setting]:
    """Return the settings that disable P2P altogether."""
    return [
        one
        for one in facts.settings("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL")
        if (one.value.upper() in ("LOC", "0") if one.name == "NCCL_P2P_LEVEL" else one.value not in ("0", ""))
    ]


def limiting_levels(facts: Facts, pairs: Selection) -> list[Setting]:
    """Return the levels that may keep these pairs from P2P that NCCL would otherwise use."""
    on_nvlink = bool(facts.platform and facts.platform.nvlink)
    kinds = [kind.pair_class or ("NV" if on_nvlink else "") for kind in pairs.kinds]
    levels = [(setting, _ALLOWED_BY.get(setting.value.upper())) for setting in facts.settings("NCCL_P2P_LEVEL")]
    return [setting for setting, allowed in levels if allowed and not all(kind.startswith(allowed) for kind in kinds)]


def has_no_pairs(facts: Facts) -> bool:
    """Return whether the log shows that each host has one rank."""
    comms = facts.job.communicators
    whole = all(len(comm.started) == comm.nranks or comm.local_ranks == 1 for comm in comms)
    return bool(comms) and whole and all(len(host.ranks) == 1 for host in facts.job.hosts)


def local_over_net(facts: Facts) -> Selection:
    """Pairs of one host that use only the network, and are identified by more than the order of use."""
    return facts.paths("intra", "NET").where(
        lambda kind: not kind.doubtful and not any(also.transport == "P2P" for also in kind.also)
    )


def net_instead_of_p2p(facts: Facts) -> Iterator[Hit]:
    """Find NET paths between ranks of one host name."""
    if doubtful := facts.paths("intra", "NET").where(lambda kind: kind.doubtful):
        yield Hit(named={"doubtful": True}, paths=doubtful)
    if pairs := local_over_net(facts):
        shm_off = facts.enabled_settings("NCCL_SHM_DISABLE")
        settings = [*disabling_settings(facts), *shm_off]
        nvlink = facts.platform is not None and bool(facts.platform.nvlink)
        named = {
            "set": settings,
            "net": current_rate(pairs, facts.platform),
            "without shm": shm_off,
            "chosen": all(kind.gdr is True for kind in pairs.kinds) and not settings and not nvlink,
        }
        yield Hit(named=named, evidence=[*pairs.first_lines()[:3], *settings], paths=pairs)


def nvlink_not_used(facts: Facts) -> Iterator[Hit]:
    """Find pairs that are known to have NVLink; otherwise ``shm-instead-of-p2p`` asks for the topology."""
    machine = facts.platform
    on_all = machine is not None and bool(machine.nvlink and machine.p2p)
    idle = facts.paths("intra").where(
        lambda kind: kind.transport != "P2P" and (kind.pair_class.startswith("NV") if kind.pair_class else on_all)
    )
    if idle:
        named = {
            "kinds": sorted({kind.pair_class for kind in idle.kinds if kind.pair_class}),
            "machine": machine.name if machine else "the machine",
            "cost": against_nvlink(idle, machine),
            "off": [*disabling_settings(facts), *facts.enabled_settings("NCCL_SHM_DISABLE")],
            "refused": facts.with_event(P2pRefused),
            "from a list": facts.hardware == "likely",
        }
        yield Hit(named=named, paths=idle)


def p2p_disabled_by_env(facts: Facts) -> Iterator[Hit]:
    """Find local pairs that could use P2P and do not: numbers and names of levels are in src/graph/paths.cc."""
    settings, local = disabling_settings(facts), facts.paths("intra")
    on_nvlink = facts.platform and facts.platform.nvlink
    slow = local.where(lambda kind: kind.transport != "P2P" and facts.allows_p2p(kind) is not False)
    levels = limiting_levels(facts, slow)
    found = Hit(hosts=slow.hosts(), paths=slow)
    if slow and settings:
        nvlink = any((kind.pair_class or ("NV" if on_nvlink else "")).startswith("NV") for kind in slow.kinds)
        shown = evidence_of_settings(settings)
        yield found.with_fields(
            settings=settings, ranks=facts.ranks_with(settings), evidence=shown, named={"nvlink": nvlink}
        )
    elif levels and len(slow) < len(local) and not facts.with_event(P2pRefused):  # other pairs of the machine use P2P
        shown = evidence_of_settings(levels)
        yield found.with_fields(settings=levels, evidence=shown, named={"limit": True})
    elif settings and not local and not has_no_pairs(facts) and not (facts.platform and facts.platform.p2p is False):
        yield Hit(settings=settings)


def p2p_disabled_driver(facts: Facts) -> Iterator[Hit]:
    """Find a refusal that counts: a local pair does not use P2P that the hardware may support."""
    refused, local = facts.with_event(P2pRefused), facts.paths("intra")
    slow = local.where(lambda kind: kind.transport != "P2P")
    if refused and (slow or not local) and not disabling_settings(facts):
        allowed = list(map(facts.allows_p2p, slow.kinds)) or [facts.platform.p2p if facts.platform else None]
        poor = all(can is False for can in allowed)
        yield Hit(
            named={
                "refused": refused,
                "reasons": [getattr(notice.event, "reason", "") for notice in refused],
                "poor": poor,
                "doubtful": not slow or not (poor or any(allowed)),
                "from a list": facts.hardware == "likely",
            },
            ranks=slow.ends() or ranks_in(refused),
            hosts=hosts_in(refused),
            evidence=[*refused[:3], *slow.first_lines()[:2]],
            paths=slow,
        )


def shm_cumem_host_failed(facts: Facts) -> Iterator[Hit]:
    """Find failed calls in shm.cc, and those in the allocator that shm.cc propagates; or NCCL's automatic fallback."""
    propagated = exceptions.frames(facts, 1, "transport/shm.cc")  # ncclUnhandledCudaError
    processes = {process for frame in propagated for process in frame.processes}
    calls = [
        *cuda.failed_calls(facts, "transport/shm.cc"),
        *(
            call
            for call in cuda.failed_calls(facts, "include/alloc.h")
            if processes & set(call.processes) or "(ncclCuMemHostAlloc" in (call.location or "")
        ),
    ]
    failed = [call for call in calls if cuda.code_of(call) in cuda.NO_HOST_MEMORY]
    if notices := failed or facts.notices("nccl/cumem-host-fallback"):
        yield Hit(notices)


def shm_disabled_by_env(facts: Facts) -> Iterator[Hit]:
    """Find its effect: local pairs with P2P lose nothing; the others can only use the network."""
    settings, off = facts.enabled_settings("NCCL_SHM_DISABLE"), disabling_settings(facts)
    lacks_p2p = bool(off) or bool(facts.platform and facts.platform.p2p is False)
    if settings and lacks_p2p and not facts.paths("intra") and not has_no_pairs(facts):
        both = [*settings, *off]
        yield Hit(settings=settings, named={"both": both, "several": len(both) > 1}, evidence=both)
    elif settings:
        slow = local_over_net(facts)
        yield Hit(
            settings=settings,
            named={"slow": bool(slow), "net": current_rate(slow, facts.platform)},
            hosts=slow.hosts() or None,
            evidence=evidence_of_settings(settings),
            paths=slow,
        )


_RCCL_WARNS = {
    "rccl/rccl-fine-grain-missing": "without fine grain",
    "rccl/rccl-host-setting-missing": "without iommu",
    "rccl/rccl-numa-balancing": "NUMA balancing",
}
"""RCCL's warnings, by what they say of the host."""


def shm_instead_of_p2p(facts: Facts) -> Iterator[Hit]:
    """Find local SHM pairs, by what the hardware supports, if known.

    Hopper and later behind an NVSwitch report a fabric; PCIe cards do not (src/graph/topo.cc, 2.20 and later).
    """
    pairs, off = facts.paths("intra", "SHM"), disabling_settings(facts)
    poor = pairs.where(lambda kind: facts.allows_p2p(kind) is False)
    rest = pairs.where(lambda kind: facts.allows_p2p(kind) is not False)
    if not rest:
        if poor:
            # With NCCL_P2P_DISABLE, NCCL does not read NCCL_P2P_LEVEL: ncclGetLevel in src/graph/paths.cc, 2.30.7.
            hiding = [setting for setting in off if "NCCL_P2P_DISABLE" in setting.names]
            named = _hardware(facts, poor) | {"poor": True, "off": off, "hiding": hiding}
            yield Hit(named=named, evidence=[*poor.first_lines()[:3], *off[:2]], paths=poor)
        return
    fabric = any(isinstance(notice.event, Message) for notice in facts.with_role("nvswitch"))
    refused, possible = facts.with_event(P2pRefused), all(map(facts.allows_p2p, rest.kinds))
    levels = [] if off or refused or fabric else limiting_levels(facts, rest)
    warned = [] if off or refused or levels else facts.notices(*_RCCL_WARNS)
    named = _hardware(facts, rest)
    fast = p2p(facts.platform, bool(named["on NVLink"]) or fabric)
    named |= {
        "off": off,
        "levels": levels,
        "refused": refused,
        "possible": possible,
        "sure": possible and facts.hardware == "certain",
        "from a list": possible,
        "fabric": fabric,
        **{_RCCL_WARNS[notice.production]: True for notice in warned},
        "AMD": facts.is_rccl(),
        "unmeasured": fast is None,
        "unknown": fast is P2P,
        "fast": fast,
        "less": compare_rates(SHM, fast) if fast and fast is not P2P else "",
    }
    yield Hit(named=named, evidence=[*rest.first_lines()[:3], *refused[:2], *levels[:2], *warned], paths=rest)
    if not possible and not fabric and not off:
        yield Hit(named={"question": True})


def _hardware(facts: Facts, pairs: Selection) -> dict[str, object]:
    """Return what is known of the links between these pairs: where they have NVLink, SHM is far slower."""
    machine, kinds = facts.platform, {kind.pair_class for kind in pairs.kinds if kind.pair_class}
    on_nvlink = any(kind.startswith("NV") for kind in kinds) if kinds else machine is not None and bool(machine.nvlink)
    named = {"kinds": sorted(kinds), "machine": machine.name if machine else "this machine", "on NVLink": on_nvlink}
    return named | {"sure": facts.hardware == "certain", "from a list": True}


def shm_segment_failed(facts: Facts) -> Iterator[Hit]:
    """Find warnings about creating a segment; one about attaching to it alone is the echo of a failure elsewhere."""
    failed = [
        *facts.errors_of_rule("shm-segment-failed"),
        *(notice for notice in facts.notices("nccl/shm-segment-failed") if value(notice, "what") == "creating"),
        *(notice for notice in facts.notices("nccl/shm-open-failed-old") if value(notice, "size") is not None),
    ]
    full = [  # no room for a file: up to 2.11 the call that creates the segment reports it
        one
        for one in facts.notices("nccl/system-call-failed", "nccl/shm-open-failed-old")
        if error_of(one) == "No space left on device"
        and (value(one, "size") is not None or "allocate" in str(value(one, "call")))
    ]
    if failed := failed or full:
        codes = {code for notice in failed if (code := value(notice, "errno")) is not None}
        size = max((size for notice in failed if (size := value(notice, "size")) is not None), default=0)
        named = {
            "size": f"{size / 1e6:.1f}" if size else "",
            "errors": ", ".join(
                sorted({str(value(n, "error")) for n in failed if value(n, "errno") in codes - {errno.ENOSPC}})
            ),
            "full": full or errno.ENOSPC in codes,
            "reason": full or codes,
        }
        yield Hit(failed, named, evidence=[*full, *failed])


@once
def _one_sided_paths(facts: Facts) -> Selection:
    """Return paths with GPUDirect at one end only, and those of the only hosts that lack it."""
    paths = facts.inter_host_rdma_paths()
    without = _hosts_without(paths)
    differing = paths.where(lambda kind: {kind.gdr_at(side) for side in SIDES} == {True, False})
    lacking = paths.where(lambda kind: kind.gdr is False)
    return differing | lacking.filter_values(
        (*ENDS.values(), *HOSTS.values()),
        lambda send, receive, src, dst: (not send or src in without) and (not receive or dst in without),
    )


def _hosts_without(paths: Selection) -> set[str]:
    """Return hosts whose ends all lack GPUDirect, including receiving ones, if on other hosts all ends have it."""
    by_host: dict[str, set[object]] = {}
    receiving = set()
    for side, column in HOSTS.items():
        for host, direct in paths.distinct(column, methodcaller("gdr_at", side)):
            if host is not None and direct is not None:
                by_host.setdefault(host, set()).add(direct)
                if side == "receive" and direct is False:
                    receiving.add(host)
    having = [host for host, kinds in by_host.items() if kinds == {True}]
    lacking = {host for host, kinds in by_host.items() if kinds == {False} and host in receiving}
    return lacking if having and len(having) + len(lacking) == len(by_host) else set()


def _paths_without_gdr(facts: Facts) -> Selection:
    """Return paths between hosts over an RDMA network that do not use GPUDirect in all their lines.

    Where it is missing at one end only, or on some hosts only, gdr-one-sided tells it.
    """
    return facts.inter_host_rdma_paths().where(lambda kind: kind.gdr is not True).exclude(_one_sided_paths(facts))


def _find_unable(facts: Facts) -> tuple[str, str] | None:
    """Return the machine type or the NICs with which GPUDirect RDMA does not work, and where that is stated."""
    if facts.platform and facts.platform.gdr is False:
        return facts.platform.name, facts.platform.source("gdr")
    family = find_nic_family(facts.job.network.devices) if facts.job.network.name == "IB" else None
    return (family.name, family.source) if family and not family.gdr else None


def gdr_disabled(facts: Facts) -> Iterator[Hit]:
    """Find paths that stage data in host memory; before hosts connect, what NCCL or settings say of NICs and GPUs."""
    # Rings that report an edge without GPUDirect, if every edge in the log has it.
    paths = facts.inter_host_net_paths()
    comms = [comm.id for comm in facts.job.communicators if comm.ring_gdr is False]
    if paths and comms and all(kind.gdr is True for kind in paths.kinds):
        sides = {side: paths.filter_values(("kind",), lambda kind, side=side: not kind.ends(side)) for side in SIDES}
        unseen = {rank for side, some in sides.items() for (rank,) in some.distinct(RANKS[side])}
        yield Hit(named={"contradiction": comms[0], "unseen": unseen})
    paths = _paths_without_gdr(facts)
    if paths and not _find_unable(facts):
        staged = _find_staged(facts, paths)
        if not staged.named["sure"]:
            yield replace(staged, named={**staged.named, "open": True})
        yield staged
    else:  # before hosts connect, or where lines are missing
        over_tcp = {net for comm in facts.job.communicators for net in comm.networks} == {"Socket"}
        shown = bool(facts.inter_host_rdma_paths()) or any(kind.gdr for kind in facts.job.paths.kinds)
        without = facts.platform is not None and facts.platform.gdr is False
        if not (shown or over_tcp or without or networks.is_on_one_host(facts)):
            yield from _find_signs(facts)


def _find_staged(facts: Facts, paths: Selection) -> Hit:
    refused = facts.with_event(GdrDecision, lambda event: not event.enabled)
    refused = [notice for notice in refused if "NET/Socket" not in notice.message]
    refused = refused or facts.with_role("dmabuf-missing")
    weak = facts.notices("aws-ofi-nccl/ofi-gdr-not-supported")
    reasons, over_tcp = [*refused, *weak], over_tcp_provider(facts)
    off = [] if over_tcp else gdr.settings_without_gdr(facts)
    some, direct = paths.where(lambda kind: kind.gdr == "partial"), network_of(facts.platform)
    named = _steer(facts, paths, reasons) | {
        "who": paths_in_words(paths),
        "partial": len(some),
        "only partial": len(some) == len(paths),
        "missing": any(kind.gdr is False for kind in paths.kinds),
        "direct": direct.what,
        "rate": direct,
        "reason": reasons[0].message if reasons else "",
        "capable": facts.platform and facts.platform.gdr,
        "usual": _should_have_it(facts, paths),
    }
    named["sure"] = named["capable"] or refused or off or (weak and over_tcp) or named["usual"]
    settings = off or [
        setting for setting in facts.settings("NCCL_NET_GDR_LEVEL") if named["limits"] and _limits(setting.value)
    ]
    return Hit(
        [],
        named,
        evidence=[*settings, *paths.first_lines()[:3], *reasons[:2]],
        paths=paths,
        settings=off,
        ranks=paths.ends(),
        hosts=paths.hosts(),
    )


def _find_signs(facts: Facts) -> Iterator[Hit]:
    """Find lines before hosts connect that suggest it: settings, else drivers, else distances."""
    off, refused = gdr.settings_without_gdr(facts), gdr.gdr_refusals(facts)
    far = [] if off or refused else gdr.gpus_too_far(facts)
    notices = [*refused, *far]
    if not off and not notices:
        return
    is_partial = hosts_in(facts.with_event(GdrDecision, lambda event: event.enabled)) & hosts_in(refused)
    releases = [order(version) for version in facts.job.nccl_versions]
    hosts = some_names(sorted(hosts_in(notices)))
    named = _steer(facts, facts.no_paths(), notices) | {
        "sign": True,
        "near": facts.paths("intra") and not facts.spans_hosts(),
        "likely": off or (refused and not is_partial and gdr.is_sure(refused)),
        "hosts": hosts if hosts.strip("?") else "",
        "gpus": sorted({str(getattr(notice.event, "gpu", "")) for notice in far}),
        "refused": refused,
        "nics": ", ".join(fold_names(gdr.named_nics(refused))),
        "stated by plugin": any(notice.event and notice.event.dialect == "aws-ofi-nccl" for notice in refused),
        "refused by GPU": any(getattr(notice.event, "reason", None) == "not-by-gpu" for notice in refused),
        # 2.23 and later also look for the module in /sys/module (src/transport/net_ib.cc).
        "old": not facts.is_rccl() and (not releases or min(releases) < order("2.23")),
    }
    yield Hit(notices, named, settings=off, hosts=hosts_in(notices), evidence=[*off, *notices])


def _steer(facts: Facts, paths: Selection, reasons: list[Notice]) -> dict[str, object]:
    """Return what decides the cause and the steps."""
    daemon, distance = networks.google_daemon(paths), gdr.first_too_far(reasons)
    machine = facts.platform
    network = machine.network if machine else None
    # The link between chips (Grace), over which NCCL uses it by default from some release on.
    chip_off = [setting for setting in facts.settings("NCCL_NET_GDR_C2C") if setting.value == "0"]
    return {
        "tcp provider": over_tcp_provider(facts),
        "daemon": daemon,
        "limits": [] if daemon else [one for one in facts.settings("NCCL_NET_GDR_LEVEL") if _limits(one.value)],
        "distance": gdr.distance_in_words(distance, facts) if distance else "",
        "chip": machine and machine.gdr_since is not None and (machine.gdr is None or chip_off),
        "chip_off": chip_off,
        "machine": machine and machine.name,
        "since": machine and machine.gdr_since,
        "releases": facts.job.nccl_versions,
        "EFA": network == "efa" or (network is None and any("Libfabric" in kind.detail for kind in paths.kinds)),
        "AMD": facts.is_rccl(),
    }


def _limits(level: str) -> bool:
    """Return whether a level forbids most pairs of NIC and GPU; Google's guide sets it."""
    return level.upper() in ("PIX", "1")


def _should_have_it(facts: Facts, paths: Selection) -> bool:
    """Return whether GPUs behind an NVSwitch, or A100 on NVLink, are used with IB or RoCE cards, which support it.

    NCCL chooses P2P reads only between two A100 on NVLink.
    """
    has_platform = facts.platform is not None and facts.platform.gdr is not None
    if has_platform or not all((kind.net or "").startswith("IB") for kind in paths.kinds):
        return False
    forced = facts.enabled_settings("NCCL_P2P_READ_ENABLE")
    reading = facts.paths(transport="P2P").where(lambda kind: "/read" in kind.detail and not forced)
    return bool(facts.with_role("nvswitch") or reading)


def gdr_not_possible(facts: Facts) -> Iterator[Hit]:
    """Find what other libraries say of peer memory, and paths of a machine that lacks it."""
    if stated := facts.errors_of_rule("gdr-not-possible"):
        yield Hit(stated, {"stated": True})
    paths = _paths_without_gdr(facts)
    if paths and (lacks := _find_unable(facts)):
        yield Hit([], {"machine": lacks[0], "source": lacks[1]}, paths=paths)


def gdr_one_sided(facts: Facts) -> Iterator[Hit]:
    """Find which ends lack it: only senders (older GPUs never send directly), some hosts, or some ranks."""
    paths = _one_sided_paths(facts)
    if not paths:
        return
    at = {side: paths.filter_values(("kind",), lambda kind, side=side: kind.gdr_at(side) is False) for side in SIDES}
    ends = {end for side, some in at.items() for end in some.distinct(RANKS[side], HOSTS[side])}
    ranks, hosts = {rank for rank, _ in ends}, {host for _, host in ends if host}
    whole = _hosts_without(facts.inter_host_rdma_paths())
    only_senders = not whole and not at["receive"]
    read_off = [setting for setting in facts.settings("NCCL_NET_GDR_READ") if setting.value == "0" and only_senders]
    refused = facts.with_event(GdrDecision, lambda event: not event.enabled)
    reasons = [one for one in refused if hosts & set(one.hosts) and "NET/Socket" not in one.message]
    # With one GPU per host, old GPUs also send directly (ncclTopoCheckGdr).
    names = {name for (names,) in paths.distinct("communicators") for name in names}
    sizes = [(comm.nnodes, comm.nranks) for comm in facts.job.communicators if comm.id in names]
    has_one_each = bool(sizes) and all(nnodes == nranks for nnodes, nranks in sizes)
    is_capable = bool(facts.platform and facts.platform.gdr) or has_one_each
    daemon, far = networks.google_daemon(paths), gdr.first_too_far(reasons)
    yield Hit(
        named={
            "whole": some_names(sorted(whole)),
            "several": "host" if len(whole) == 1 else "hosts",
            "lacking": ranks,
            "senders": only_senders,
            "side": hosts,
            "off": read_off,
            "normal": only_senders and not (read_off or reasons or is_capable),
            "daemon": daemon,
            "distance": gdr.distance_in_words(far, facts) if far else "",
            "reason": reasons[0].message if reasons else "",
        },
        ranks=ranks or paths.ends(),
        hosts=hosts,
        evidence=[
            *paths.first_lines()[:1],
            *islice((line for side, some in at.items() for line in some.end_lines(side)), 2),
            *reasons[:2],
        ],
        paths=paths,
    )
