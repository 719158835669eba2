"""GPUDirect RDMA: paths that lack it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from nccl_inspect.event.types import GdrDecision
from nccl_inspect.judging.check import Facts, Hit, Notice, first_evidence
from nccl_inspect.judging.facts import HOSTS, RANKS, evidence_of_settings, hosts_in
from nccl_inspect.judging.hardware import chip_link, distances
from nccl_inspect.judging.impact import network as network_of
from nccl_inspect.judging.networks import gdr_statements, google_plugins
from nccl_inspect.judging.networks.fabrics import over_tcp_provider, paths_in_words
from nccl_inspect.judging.networks.gdr_use import hosts_without, lacking, one_sided_paths, paths_without_gdr
from nccl_inspect.model.job import PathKind, Selection
from nccl_inspect.model.paths.path import SIDES
from nccl_inspect.model.versions import order
from nccl_inspect.util.wording import some_names

_OTHER_PATH = order("2.23")
"""Since then NCCL also looks for the module in /sys/module (src/transport/net_ib.cc)."""


def gdr_disabled(facts: Facts) -> Iterator[Hit]:
    """Find paths that stage data in host memory; before hosts connect, what NCCL or settings say of NICs and GPUs."""
    yield from _find_contradiction(facts)
    paths = paths_without_gdr(facts)
    if paths and not lacking(facts):
        staged = _find_staged(facts, paths)
        if "sure" not in staged.known:
            yield replace(staged, known=("open",))
        yield staged
    elif gdr_statements.is_undecided(facts):
        yield from _find_signs(facts)


def _find_staged(facts: Facts, paths: Selection) -> Hit:
    refused = facts.with_event(GdrDecision, lambda event: not event.enabled)
    refused = [notice for notice in refused if "NET/Socket" not in notice.message]
    refused = refused or facts.with_role("dmabuf-missing")
    weak = facts.notices("aws-ofi-nccl/ofi-gdr-not-supported")
    reasons, over_tcp = [*refused, *weak], over_tcp_provider(facts)
    off = [] if over_tcp else gdr_statements.disabling_settings(facts)
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
    is_sure = named["capable"] or refused or off or (weak and over_tcp) or named["usual"]
    settings = off or [
        setting for setting in facts.settings("NCCL_NET_GDR_LEVEL") if named["limits"] and _limits(setting.value)
    ]
    evidence = [*evidence_of_settings(settings, 1), *paths.first_lines()[:3], *first_evidence(reasons[:2])]
    return Hit(
        [],
        named,
        ("sure",) if is_sure else (),
        evidence=evidence,
        paths=paths,
        settings=off,
        ranks=paths.ends(),
        hosts=paths.hosts(),
    )


def _find_signs(facts: Facts) -> Iterator[Hit]:
    """Find lines before hosts connect that suggest it: settings, else drivers, else distances."""
    off, refused = gdr_statements.disabling_settings(facts), gdr_statements.refusals(facts)
    far = [] if off or refused else gdr_statements.too_far(facts)
    notices = [*refused, *far]
    if not off and not notices:
        return
    is_partial = gdr_statements.hosts_with_gdr(facts) & hosts_in(refused)
    releases = [order(version) for version in facts.job.nccl_versions]
    hosts = some_names(sorted(hosts_in(notices)))
    named = _steer(facts, facts.no_paths(), notices) | {
        "sign": True,
        "near": facts.paths("intra") and not facts.spans_hosts(),
        "likely": off or (refused and not is_partial and gdr_statements.is_sure(refused)),
        "hosts": hosts if hosts.strip("?") else "",
        "gpus": sorted({str(getattr(notice.event, "gpu", "")) for notice in far}),
        "refused": refused,
        "nics": gdr_statements.join_in_ranges(gdr_statements.nics(refused)),
        "stated by plugin": any(notice.event and notice.event.dialect == "aws-ofi-nccl" for notice in refused),
        "refused by GPU": any(getattr(notice.event, "reason", None) == "not-by-gpu" for notice in refused),
        "old": not facts.is_rccl() and (not releases or min(releases) < _OTHER_PATH),
    }
    evidence = [*evidence_of_settings(off, 1), *first_evidence(notices)]
    yield Hit(notices, named, settings=off, hosts=hosts_in(notices), evidence=evidence)


def _steer(facts: Facts, paths: Selection, reasons: list[Notice]) -> dict[str, object]:
    """Return what decides the cause and the steps."""
    daemon, distance = google_plugins.daemon(paths), distances.too_far(reasons)
    network = facts.platform.network if facts.platform else None
    return {
        "tcp provider": over_tcp_provider(facts),
        "google": google_plugins.fixes(daemon) if daemon else [],
        "limits": [] if daemon else [one for one in facts.settings("NCCL_NET_GDR_LEVEL") if _limits(one.value)],
        "distance": distances.words(distance, facts) if distance else "",
        "chip": chip_link.words(facts) if chip_link.decides(facts) else "",
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


def gdr_not_possible(facts: Facts) -> Iterator[Hit]:
    """Find what other libraries say of peer memory, and paths of a machine that lacks it."""
    if stated := facts.errors_of_rule("gdr-not-possible"):
        yield Hit(stated, known=("stated",))
    paths = paths_without_gdr(facts)
    if paths and (lacks := lacking(facts)):
        yield Hit([], {"machine": lacks[0], "source": lacks[1]}, paths=paths)


def gdr_one_sided(facts: Facts) -> Iterator[Hit]:
    """Find which ends lack it: only senders (older GPUs never send directly), some hosts, or some ranks."""
    paths = one_sided_paths(facts)
    if not paths:
        return
    at = {side: paths.where(partial(_lacks, side)) for side in SIDES}
    ends = {end for side, some in at.items() for end in some.distinct(RANKS[side], HOSTS[side])}
    ranks, hosts = {rank for rank, _ in ends}, {host for _, host in ends if host}
    whole = hosts_without(facts.inter_host_rdma_paths())
    only_senders = not whole and not at["receive"]
    read_off = [setting for setting in facts.settings("NCCL_NET_GDR_READ") if setting.value == "0" and only_senders]
    refused = facts.with_event(GdrDecision, lambda event: not event.enabled)
    reasons = [one for one in refused if hosts & set(one.hosts) and "NET/Socket" not in one.message]
    is_capable = bool(facts.platform and facts.platform.gdr) or _has_one_gpu_each(facts, paths)
    daemon, far = google_plugins.daemon(paths), distances.too_far(reasons)
    yield Hit(
        named={
            "whole": some_names(sorted(whole)),
            "several": "host" if len(whole) == 1 else "hosts",
            "lacking": ranks,
            "senders": only_senders,
            "side": some_names(sorted(hosts)) or "the side that lacks it",
            "off": read_off,
            "normal": only_senders and not (read_off or reasons or is_capable),
            "google": google_plugins.fixes(daemon) if daemon else [],
            "distance": distances.words(far, facts) if far else "",
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


def _lacks(side: str, kind: PathKind) -> bool:
    return kind.gdr_at(side) is False


def _has_one_gpu_each(facts: Facts, paths: Selection) -> bool:
    """Return whether the communicators have one GPU per host: then old GPUs also send directly (ncclTopoCheckGdr)."""
    names = {name for (names,) in paths.distinct("communicators") for name in names}
    comms = [comm for comm in facts.job.communicators if comm.id in names]
    return bool(comms) and all(comm.nnodes == comm.nranks for comm in comms)
