"""Paths, algorithms and channels that are slower than they could be, and settings that forbid faster ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from operator import methodcaller

from nccl_inspect.event.types import GdrDecision, Message, P2pRefused
from nccl_inspect.judging import cuda, impact, networks
from nccl_inspect.judging.check import Facts, Hit, Notice, first_evidence, value
from nccl_inspect.judging.ends import is_last
from nccl_inspect.judging.facts import (
    ENDS,
    HOSTS,
    RANKS,
    evidence_of_settings,
    hosts_in,
    nics_used,
    once,
    ranks_in,
)
from nccl_inspect.judging.impact import Rate
from nccl_inspect.model.job import CommunicatorInfo, Selection, Setting
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


def p2p_disabled_by_env(facts: Facts) -> Iterator[Hit]:
    """Find local pairs that could use P2P and do not: numbers and names of levels are in src/graph/paths.cc."""
    settings, local = disabling_settings(facts), facts.paths("intra")
    on_nvlink = facts.platform and facts.platform.nvlink
    slow = local.where(lambda kind: kind.transport != "P2P" and facts.allows_p2p(kind) is not False)
    levels = limiting_levels(facts, slow)
    found = Hit(hosts=slow.hosts(), paths=slow)
    if slow and settings:
        nvlink = any((kind.pair_class or ("NV" if on_nvlink else "")).startswith("NV") for kind in slow.kinds)
        yield found.with_fields(settings=settings, evidence=evidence_of_settings(settings), named={"nvlink": nvlink})
    elif levels and len(slow) < len(local) and not facts.with_event(P2pRefused):  # other pairs of the machine use P2P
        yield found.with_fields(settings=levels, evidence=evidence_of_settings(levels), named={"limit": True})
    elif settings and not local and not facts.has_no_pairs() and not (facts.platform and facts.platform.p2p is False):
        yield Hit(settings=settings)


def p2p_disabled_driver(facts: Facts) -> Iterator[Hit]:
    """Find a refusal that counts: a local pair does not use P2P that the hardware may support."""
    refused, local = facts.with_event(P2pRefused), facts.paths("intra")
    slow = local.where(lambda kind: kind.transport != "P2P")
    if refused and (slow or not local) and not disabling_settings(facts):
        allowed = list(map(facts.allows_p2p, slow.kinds)) or [facts.platform.p2p if facts.platform else None]
        poor = all(can is False for can in allowed)
        named = {
            "refused": refused,
            "poor": poor,
            "doubtful": not slow or not (poor or any(allowed)),
            "reasons": [getattr(notice.event, "reason", "") for notice in refused],
        }
        lines = [*first_evidence(refused[:3]), *slow.first_lines()[:2]]
        yield Hit([], named, slow.ends() or ranks_in(refused), hosts_in(refused), lines, slow)


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
    refused = facts.with_event(P2pRefused)
    possible = all(map(facts.allows_p2p, rest.kinds))
    levels = [] if off or refused or fabric else limiting_levels(facts, rest)
    warned = [] if off or refused or levels else facts.notices(*_RCCL_WARNS)
    named = _hardware(facts, rest)
    twins = [] if off or refused or possible or fabric else _find_twins_with_p2p(facts, rest)
    fast = impact.p2p(facts.platform, bool(named["on NVLink"]) or fabric)
    named |= {
        "off": off,
        "levels": levels,
        "refused": refused,
        "possible": possible,
        "from a list": possible,
        "sure": possible and facts.hardware == "certain",
        "fabric": fabric,
        "twins": twins,
        "fast": fast,
        "unmeasured": fast is None,
        "unknown": fast is impact.P2P,
        "less": impact.compare_rates(impact.SHM, fast) if fast and fast is not impact.P2P else "",
    }
    named |= {_RCCL_WARNS[notice.production]: True for notice in warned}
    yield Hit(named=named, evidence=[*rest.first_lines()[:3], *refused[:2], *levels[:2], *warned], paths=rest)
    if not (possible or fabric or off or twins):
        yield Hit(named={"question": True})


_FEWEST_TWINS = 3  # hosts of one kind, of which a fault would hit fewer


def _find_twins_with_p2p(facts: Facts, pairs: Selection) -> list[str]:
    """Return hosts with GPUs at the same bus ids as those of these pairs, if they are the more, and use P2P only."""
    (slow, direct), ids = (_hosts_in(some) for some in (pairs, facts.paths("intra", "P2P"))), facts.bus_ids()
    kinds = {ids.get(host) for host in slow}
    twins = sorted(host for host in direct - _hosts_in(facts.paths("intra", "SHM")) if ids.get(host) in kinds)
    is_known = len(kinds) == 1 and not any(kind is None or None in kind for kind in kinds)
    return twins if is_known and len(twins) >= max(_FEWEST_TWINS, len(slow) + 1) else []


def _hosts_in(pairs: Selection) -> set[str]:
    return {host for (host,) in pairs.distinct("src_host")}


def _hardware(facts: Facts, pairs: Selection) -> dict[str, object]:
    """Return what is known of the links between these pairs: where they have NVLink, SHM is far slower."""
    machine = facts.platform
    kinds = {kind.pair_class for kind in pairs.kinds if kind.pair_class}
    on_nvlink = any(kind.startswith("NV") for kind in kinds) if kinds else machine is not None and bool(machine.nvlink)
    named = {"machine": machine.name if machine else "this machine", "on NVLink": on_nvlink}
    return named | {"sure": facts.hardware == "certain", "from a list": True}


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
    reasons, over_tcp = [*refused, *weak], networks.over_tcp_provider(facts)
    off = [] if over_tcp else networks.settings_without_gdr(facts)
    some = paths.where(lambda kind: kind.gdr == "partial")
    direct = impact.network(facts.platform)
    rails = len(facts.job.network.devices) if facts.job.network.name == "IB" else 0
    named = _steer(facts, paths, reasons) | {
        "partial": len(some),
        "only partial": len(some) == len(paths),
        "missing": any(kind.gdr is False for kind in paths.kinds),
        "direct": direct.what,
        "rate": direct,
        "reason": reasons[0].message if reasons else "",
        "capable": facts.platform and facts.platform.gdr,
        "usual": _should_have_it(facts, paths),
        "rails": rails if rails >= _RAILS else 0,
    }
    named["sure"] = named["capable"] or refused or off or (weak and over_tcp) or named["usual"]
    limits, shown = off or _limiting(facts, paths), paths.first_lines()[:3]
    return Hit([], named, paths.ends(), paths.hosts(), [*limits, *shown, *reasons[:2]], paths, settings=off)


def _find_signs(facts: Facts) -> Iterator[Hit]:
    """Find lines before hosts connect that suggest it: settings, else drivers, else distances."""
    off, refused = networks.settings_without_gdr(facts), networks.gdr_refusals(facts)
    far = [] if off or refused else networks.gpus_too_far(facts)
    notices = [*refused, *far]
    if not off and not notices:
        return
    is_partial = hosts_in(facts.with_event(GdrDecision, lambda event: event.enabled)) & hosts_in(refused)
    releases = [order(version) for version in facts.job.nccl_versions]
    hosts = some_names(sorted(hosts_in(notices)))
    named = _steer(facts, facts.no_paths(), notices) | {
        "sign": True,
        "near": facts.paths("intra") and not facts.spans_hosts(),
        "likely": off or (refused and not is_partial and networks.is_sure(refused)),
        "hosts": hosts if hosts.strip("?") else "",
        "gpus": sorted({str(getattr(notice.event, "gpu", "")) for notice in far}),
        "refused": refused,
        "nics": ", ".join(fold_names(networks.named_nics(refused))),
        "stated by plugin": any(notice.event and notice.event.dialect == "aws-ofi-nccl" for notice in refused),
        "refused by GPU": any(getattr(notice.event, "reason", None) == "not-by-gpu" for notice in refused),
        # 2.23 and later also look for the module in /sys/module (src/transport/net_ib.cc).
        "old": not facts.is_rccl() and (not releases or min(releases) < order("2.23")),
    }
    yield Hit(notices, named, settings=off, hosts=hosts_in(notices), evidence=[*off, *notices])


def _steer(facts: Facts, paths: Selection, reasons: list[Notice]) -> dict[str, object]:
    """Return what decides the cause and the steps."""
    machine, distance = facts.platform, networks.first_too_far(reasons)
    network = machine.network if machine else None
    # The link between chips (Grace), over which NCCL uses it by default from some release on.
    chip_off = [setting for setting in facts.settings("NCCL_NET_GDR_C2C") if setting.value == "0"]
    return {
        "tcp provider": networks.over_tcp_provider(facts),
        "daemon": networks.google_daemon(paths),
        "limits": _limiting(facts, paths),
        "distance": networks.distance_in_words(distance, facts) if distance else "",
        "chip": machine and machine.gdr_since is not None and (machine.gdr is None or chip_off),
        "chip_off": chip_off,
        "since": machine and machine.gdr_since,
        "releases": facts.job.nccl_versions,
        "EFA": network == "efa" or (network is None and any("Libfabric" in kind.detail for kind in paths.kinds)),
    }


def _limiting(facts: Facts, paths: Selection) -> list[Setting]:
    """Return levels that forbid most pairs of NIC and GPU; Google's guide sets one."""
    levels = [] if networks.google_daemon(paths) else facts.settings("NCCL_NET_GDR_LEVEL")
    return [one for one in levels if one.value.upper() in ("PIX", "1")]


def _should_have_it(facts: Facts, paths: Selection) -> bool:
    """Return whether GPUs behind an NVSwitch, or A100 on NVLink, are used with IB, RoCE or Slingshot cards.

    These support it. NCCL chooses P2P reads only between two A100 on NVLink.
    """
    has_platform = facts.platform is not None and facts.platform.gdr is not None
    of_ib = all((kind.net or "").startswith("IB") for kind in paths.kinds)
    if has_platform or not (of_ib or networks.slingshot_paths(facts)):
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
    is_capable = (facts.platform and facts.platform.gdr) or has_one_each
    far = networks.first_too_far(reasons)
    named = {
        "whole": whole,
        "lacking": ranks,
        "senders": only_senders,
        "side": hosts,
        "off": read_off,
        "normal": only_senders and not (read_off or reasons or is_capable),
        "distance": networks.distance_in_words(far, facts) if far else "",
        "daemon": networks.google_daemon(paths),
        "reason": reasons[0].message if reasons else "",
    }
    own = islice((line for side, some in at.items() for line in some.end_lines(side)), 2)
    yield Hit([], named, ranks or paths.ends(), hosts, [*paths.first_lines()[:1], *own, *reasons[:2]], paths)


_CHOICES = ("NCCL_ALGO", "NCCL_PROTO")
_OF_LL = Rate(150, 150, "all-reduce of 1 GiB on 4 H200, LL", impact.MEASURED)
_OF_ALL = Rate(354, 354, "the same by NCCL's own choice", impact.MEASURED)


def algo_proto_forced(facts: Facts) -> Iterator[Hit]:
    """Find settings of the user; a plugin needs its own, such as NCCL_PROTO=simple of aws-ofi-nccl."""
    if unsafe := facts.errors_of_rule("algo-proto-forced"):
        yield Hit(unsafe, {"unsafe": True}, evidence=[*unsafe, *facts.user_settings("NCCL_PROTO")])
        return
    settings = facts.user_settings(*_CHOICES, "NCCL_NTHREADS", "NCCL_BUFFSIZE")
    # What aws-ofi-nccl may have set, in a process whose log does not show the plugin's start.
    started = {process for notice in facts.plugin("NET", "loading") for process in notice.processes}
    simple = [one for one in settings if (one.name, one.value) == ("NCCL_PROTO", "simple")]
    may_be = "Libfabric" in (facts.job.network.name or "Libfabric")
    if unclear := [one for one in simple if may_be and not started.issuperset(one.processes)]:
        yield Hit(named={"unclear": unclear})
    if forced := [setting for setting in settings if setting not in unclear]:
        yield _find_override(facts, forced)


def _find_override(facts: Facts, settings: list[Setting]) -> Hit:
    chosen = [
        one for one in settings if one.name in _CHOICES and "," not in one.value and not one.value.startswith("^")
    ]
    # Those that leave only one choice; with EFA that is NCCL_PROTO=simple anyway.
    narrow = [
        one
        for one in chosen
        if not (one.name == "NCCL_PROTO" and one.value.lower() == "simple" and networks.efa_hints(facts))
    ]
    # Naming LL128 or only excluding others enables it, also on machines not known to have NVLink; by default NCCL does
    # so only where it was tested (src/graph/tuning.cc: 'may cause silent data corruption').
    has_nvlink = (facts.platform and facts.platform.nvlink) or facts.with_role("nvswitch")
    unchecked = [] if has_nvlink else [one for one in settings if any("LL128" in some for some in _protocols(one))]
    unsafe = unchecked if facts.paths("intra", "SHM") else []
    harmful: list[Setting] = []
    is_required = networks.is_google_network(facts)
    is_perhaps_required = not is_required and bool(narrow) and not unsafe and networks.may_be_google_network(facts)
    if is_required:
        narrow, unchecked = [], []
    elif is_perhaps_required:
        settings = narrow
    else:
        in_part = [setting for setting in narrow if setting.ranks is not None]
        harmful = [one for one in settings if one in unsafe or one in in_part or _leaves_only_ll(one)]
    named: dict[str, object] = {
        "chosen": settings,
        "narrow": narrow,
        "unchecked": unchecked,
        "shown": harmful or settings,
        "harmful": harmful,
        "LL alone": any(map(_leaves_only_ll, harmful)),
        "ll": _OF_LL,
        "own": _OF_ALL,
        "required": is_required,
        "perhaps required": is_perhaps_required,
    }
    return Hit([], named, evidence=evidence_of_settings(harmful or settings), settings=settings)


def _leaves_only_ll(setting: Setting) -> bool:
    return setting.name == "NCCL_PROTO" and all(protocols == {"LL"} for protocols in _protocols(setting))


def _protocols(setting: Setting) -> Iterator[set[str]]:
    """Yield the protocols that NCCL_PROTO allows, for each of its parts: ``allreduce:ll;^ll128``."""
    for entry in setting.value.split(";") if setting.name == "NCCL_PROTO" else ():
        words = entry.rpartition(":")[2].upper()
        named = set(words.removeprefix("^").split(","))
        yield {"LL", "LL128", "SIMPLE"} - named if words.startswith("^") else named


def channel_limit_by_env(facts: Facts) -> Iterator[Hit]:
    """Find limits by effect: a communicator has exactly as many channels as the setting allows."""
    limits = facts.user_settings("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS")
    limits = [setting for setting in limits if setting.value.isdigit() and int(setting.value) > 0]
    comms = [comm for comm in facts.job.communicators if comm.channels]
    if not limits or networks.is_google_network(facts):
        return
    limited = [(setting, comm) for setting in limits for comm in comms if comm.channels == int(setting.value)]
    short = [(setting, comm) for setting, comm in limited if not _has_enough(facts, comm)]
    if limited or not comms:
        named = {
            "comms": [comm.id for _, comm in short or limited],
            "perhaps required": networks.may_be_google_network(facts),
            "enough": limited and not short,
        }
        settings = [one for one in limits if not comms or any(one is setting for setting, _ in short or limited)]
        yield Hit([], named, settings=settings)


def _has_enough(facts: Facts, comm: CommunicatorInfo) -> bool:
    """Return whether a communicator has the channels that NVLink needs, or between hosts one for each NIC of a host."""
    nics = max((len(networks.cards_of(listed)) for listed in networks.card_lists(facts)), default=0)
    needed = 0 if _is_local(comm) else min(nics, comm.local_ranks or 0)
    return (comm.channels or 0) >= (needed or _USUAL)


_LIMITS = ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS", "Max CTAs")
"""Settings, and the limit that a program sets in ncclConfig_t."""
_FEW, _USUAL = 4, 24  # NCCL's numbers over shared memory, and between GPUs on an NVSwitch: any number of A100 to H200
_RAILS = 4  # this many cards for RDMA tell that a machine is built for traffic of GPUs
_BOARD = 8  # this many GPUs that are all connected to each other have an NVSwitch
_LINKS = 12  # links of an A100; a GPU with all its links to every other GPU is on an NVSwitch


def few_channels(facts: Facts) -> Iterator[Hit]:
    """Find communicators on one host by their NVLinks, those over whole nodes by the number of NICs."""
    if facts.user_settings(*_LIMITS):
        return  # channel-limit-by-env judges settings, and the program's own limit is intended
    unknown: list[Hit] = []
    for comm in facts.job.communicators:
        paths = facts.paths_of(comm)
        if comm.channels is None or comm.nranks < 2 or not paths:
            continue
        named = {"channels": comm.channels, "comm": comm.id}
        is_local = _is_local(comm)
        switched = is_local and _is_on_nvswitch(facts, comm, paths)
        if switched is None:
            unknown.append(Hit(named={**named, "unknown link": True}))
        elif switched or (nics := None if is_local else _nics(facts, comm, paths)):
            lines = [*comm.layout.channels(), *comm.evidence[:2], *paths.first_lines()[:2]]
            ranks = comm.known_ranks
            named |= {"nics": 0 if switched else nics, "counted": not switched and not _known_nics(facts)}
            yield Hit([], named, ranks, comm.hosts, lines, paths)
            return
    yield from unknown[:1]


def _is_local(comm: CommunicatorInfo) -> bool:
    return len(comm.hosts) == 1 and comm.nnodes in (None, 1)


def _is_on_nvswitch(facts: Facts, comm: CommunicatorInfo, paths: Selection) -> bool | None:
    """Return whether the few channels of a communicator on one host join GPUs on an NVSwitch; None if unknown."""
    if (comm.channels or 0) > _FEW or any(kind.transport != "P2P" for kind in paths.kinds):
        return False
    classes = [kind.pair_class for kind in paths.kinds]
    if all(classes):
        return all(name is not None and name[2:].isdigit() and int(name[2:]) >= _LINKS for name in classes)
    machine = facts.platform
    if machine is None or (machine.nvlink is None and machine.nvlink_pairs is None):
        return None
    if not machine.nvlink:
        return False
    return None if machine.gpus is None else machine.gpus >= _BOARD


def _nics(facts: Facts, comm: CommunicatorInfo, paths: Selection) -> int | None:
    """Return the network devices of a node, if whole nodes have fewer channels than that.

    Plugins merge the NICs of one GPU into one device, so there are at most as many devices as GPUs. Of a machine that
    is not known those count that hosts use, if other communicators have as many channels.
    """
    gpus, devices = facts.platform and facts.platform.gpus, _known_nics(facts)
    if not devices:
        gpus, used, most = _shown_nics(facts)
        devices = min(gpus, *(used.get(host, 0) for host in comm.hosts))
        devices = devices if devices <= most else 0
    net = paths.where(lambda kind: kind.transport == "NET")
    slow = any(kind.net == "Socket" or kind.transport == "SHM" for kind in paths.kinds)
    return devices if comm.local_ranks == gpus and net and not slow and (comm.channels or devices) < devices else None


@once
def _shown_nics(facts: Facts) -> tuple[int, dict[str, int], int]:
    """Return the most ranks of a host, the number of NICs that each uses, and the most channels."""
    used = {host: len(nics) for host, nics in nics_used(facts.inter_host_rdma_paths()).items()}
    channels = (comm.channels or 0 for comm in facts.job.communicators)
    return max((len(host.ranks) for host in facts.job.hosts), default=0), used, max(channels, default=0)


def _known_nics(facts: Facts) -> int:
    """Return the network devices for the GPUs of a node of the platform; 0 where they are not known."""
    machine = facts.platform
    return min(machine.nics or 0, machine.gpus or 0) if machine else 0


def mnnvl_imex_not_working(facts: Facts) -> Iterator[Hit]:
    """Find NCCL's own statement, CUDA's refusal to import, GPUs that have not joined, and NET inside one domain."""
    stated = facts.notices("nccl/mnnvl-not-working", "rccl/rccl-mnnvl-not-working", "nccl/mnnvl-unsupported")
    # Hosts by NVLink domain: fabric UUID and clique; a UUID of zeros means none.
    domains: dict[tuple[object, ...], set[str]] = {}
    for notice in facts.notices("nccl/mnnvl-fabric"):
        uuid = value(notice, "uuid_high"), value(notice, "uuid_low")
        if any(str(half).strip("0") for half in uuid):
            domains.setdefault((*uuid, value(notice, "clique")), set()).update(notice.hosts)
    calls = cuda.failures(facts) if domains or facts.notices("nccl/mnnvl-clique") else []
    refused = [
        call for call in calls if call.code == cuda.NOT_PERMITTED and str(call.file).endswith("transport/p2p.cc")
    ]
    failed = [*stated, *(call.notice for call in refused)]
    service = facts.errors_of_rule("mnnvl-imex-not-working")
    over_net = facts.paths("inter", "NET")
    slow = over_net.where(lambda kind: bool(domains) and not kind.has_p2p)
    slow = slow.filter_values(
        ("src_host", "dst_host"), lambda *joined: any(hosts.issuperset(joined) for hosts in domains.values())
    )
    machine = facts.platform
    on_rack = machine is not None and (machine.nvlink_domain or 0) > (machine.gpus or 0)
    if failed:
        asked = facts.user_settings("NCCL_MNNVL_ENABLE", "NCCL_MNNVL")
        yield Hit(failed, {"refused": not stated, "asked": asked})
    elif service:
        yield Hit(service, {"service": True})
    elif unready := [one for one in facts.notices("nccl/mnnvl-fabric") if domains and value(one, "state") in (1, 2)]:
        yield Hit(
            unready, {"unready": hosts_in(unready), "state": value(unready[0], "state")}
        )  # not begun, in progress
    elif slow:
        off = [one for one in facts.settings("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE") if one.value == "0"]
        named = {"slow": True, "off": off, "nvlink": impact.NVLINK[5], "refused": True}
        yield Hit(named=named, evidence=[*slow.first_lines()[:3], *off], paths=slow)
    elif machine and on_rack and over_net and not facts.notices("nccl/mnnvl-fabric"):
        yield Hit(named={"domain": machine.nvlink_domain, "pairs": len(over_net)})


def nvls_fabric_manager(facts: Facts) -> Iterator[Hit]:
    """Find failed multicast calls: 2.27 and 2.28 continue without NVLS, other releases stop.

    Also a log that ends where memory is bound to the multicast group, which waits for all ranks (transport/nvls.cc).
    """
    calls = [failure.notice for failure in cuda.failures(facts) if cuda.is_of_fabric(failure)]
    failed = [*calls, *facts.notices("nccl/nvls-bind-failed"), *facts.notices("nccl/multicast-fault")]
    given_up = facts.notices("nccl/nvls-bind-given-up")
    if notices := [*failed, *given_up]:
        without = ranks_in(given_up)
        beside = {rank for host in facts.job.hosts if without & {*host.ranks} for rank in host.ranks}
        alone = set() if failed else beside.intersection(facts.job.ranks_seen) - without
        full = {value(notice, "code") for notice in notices} == {cuda.OUT_OF_MEMORY}
        first = notices[0].message.splitlines()[0]
        yield Hit(notices, {"first_line": first, "out of memory": full, "alone": alone})
    elif not (facts.job.going_on or facts.job.failed or facts.errors(forced_ends=False)):
        bound = facts.notices("nccl/nvls-bind")
        if last := [notice for notice in bound if any(is_last(facts, line) for line in notice.evidence)]:
            yield Hit(last, {"open": True})
