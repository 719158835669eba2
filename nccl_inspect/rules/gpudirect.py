"""GPUDirect RDMA: paths that lack it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import methodcaller

from nccl_inspect.event.types import GdrDecision
from nccl_inspect.judging import gdr, networks
from nccl_inspect.judging.check import Facts, Hit, Notice, first_evidence
from nccl_inspect.judging.facts import ENDS, HOSTS, RANKS, evidence_of_settings, hosts_in, once
from nccl_inspect.judging.impact import network as network_of
from nccl_inspect.judging.networks import over_tcp_provider, paths_in_words
from nccl_inspect.model.job import PathKind, Selection
from nccl_inspect.model.paths.path import SIDES
from nccl_inspect.model.versions import order
from nccl_inspect.platforms import find_nic_family
from nccl_inspect.util.wording import some_names


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


_OTHER_PATH = order("2.23")
"""Since then NCCL also looks for the module in /sys/module (src/transport/net_ib.cc)."""


def gdr_disabled(facts: Facts) -> Iterator[Hit]:
    """Find paths that stage data in host memory; before hosts connect, what NCCL or settings say of NICs and GPUs."""
    yield from _find_contradiction(facts)
    paths = _paths_without_gdr(facts)
    if paths and not _find_unable(facts):
        staged = _find_staged(facts, paths)
        if not staged.named["sure"]:
            yield replace(staged, named={**staged.named, "open": True})
        yield staged
    elif gdr.is_undecided(facts):
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
    evidence = [*evidence_of_settings(settings, 1), *paths.first_lines()[:3], *first_evidence(reasons[:2])]
    return Hit(
        [],
        named,
        evidence=evidence,
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
    is_partial = gdr.hosts_with_gdr(facts) & hosts_in(refused)
    releases = [order(version) for version in facts.job.nccl_versions]
    hosts = some_names(sorted(hosts_in(notices)))
    named = _steer(facts, facts.no_paths(), notices) | {
        "sign": True,
        "near": facts.paths("intra") and not facts.spans_hosts(),
        "likely": off or (refused and not is_partial and gdr.is_sure(refused)),
        "hosts": hosts if hosts.strip("?") else "",
        "gpus": sorted({str(getattr(notice.event, "gpu", "")) for notice in far}),
        "refused": refused,
        "nics": gdr.join_in_ranges(gdr.named_nics(refused)),
        "stated by plugin": any(notice.event and notice.event.dialect == "aws-ofi-nccl" for notice in refused),
        "refused by GPU": any(getattr(notice.event, "reason", None) == "not-by-gpu" for notice in refused),
        "old": not facts.is_rccl() and (not releases or min(releases) < _OTHER_PATH),
    }
    evidence = [*evidence_of_settings(off, 1), *first_evidence(notices)]
    yield Hit(notices, named, settings=off, hosts=hosts_in(notices), evidence=evidence)


def _steer(facts: Facts, paths: Selection, reasons: list[Notice]) -> dict[str, object]:
    """Return what decides the cause and the steps."""
    daemon, distance = networks.google_daemon(paths), gdr.first_too_far(reasons)
    machine = facts.platform
    network = machine.network if machine else None
    # The link between chips (Grace), over which NCCL uses it by default from some release on.
    chip_off = [setting for setting in facts.settings("NCCL_NET_GDR_C2C") if setting.value == "0"]
    return {
        "tcp provider": over_tcp_provider(facts),
        "google": networks.list_google_fixes(daemon) if daemon else [],
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


def _find_contradiction(facts: Facts) -> Iterator[Hit]:
    """Find rings that report an edge without GPUDirect, if every edge in the log has it."""
    paths = facts.inter_host_net_paths()
    comms = [comm.id for comm in facts.job.communicators if comm.ring_gdr is False]
    if paths and comms and all(kind.gdr is True for kind in paths.kinds):
        sides = {side: paths.where(partial(_lacks_end, side)) for side in SIDES}
        unseen = {rank for side, some in sides.items() for (rank,) in some.distinct(RANKS[side])}
        yield Hit(named={"contradiction": comms[0], "unseen": unseen})


def _lacks_end(side: str, kind: PathKind) -> bool:
    return not kind.ends(side)


def _lacks(side: str, kind: PathKind) -> bool:
    return kind.gdr_at(side) is False


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
    at = {side: paths.where(partial(_lacks, side)) for side in SIDES}
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
            "side": some_names(sorted(hosts)) or "the side that lacks it",
            "off": read_off,
            "normal": only_senders and not (read_off or reasons or is_capable),
            "google": networks.list_google_fixes(daemon) if daemon else [],
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
