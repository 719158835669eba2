"""Network paths with GPUDirect RDMA at one end only, or on some hosts only."""

from collections.abc import Iterator
from functools import partial
from itertools import islice

from nccl_inspect.event.types import GdrDecision
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import HOSTS, RANKS, first_lines
from nccl_inspect.judging.hardware import distances
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.networks.gdr_use import hosts_without, one_sided
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.connection import SIDES
from nccl_inspect.model.job import PathKind, Selection
from nccl_inspect.util.wording import some_names


def find(facts: Facts) -> Iterator[Hit]:
    """Find which ends lack it: only senders (older GPUs never send directly), some hosts, or some ranks."""
    paths = one_sided(facts)
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
            "where": some_names(sorted(hosts)) or "the side that lacks it",
            "off": read_off,
            "normal": only_senders and not (read_off or reasons or is_capable),
            "google": google_plugins.fixes(daemon) if daemon else [],
            "distance": distances.words(far, facts) if far else "",
            "reason": reasons[0].message if reasons else "",
        },
        ranks=ranks or paths.ends(),
        hosts=hosts,
        evidence=[
            *first_lines(paths)[:1],
            *islice((line for side, some in at.items() for line in some.end_lines(side)), 2),
            *first_evidence(reasons[:2]),
        ],
        paths=paths,
    )


def _lacks(side: str, kind: PathKind) -> bool:
    return kind.gdr_at(side) is False


def _has_one_gpu_each(facts: Facts, paths: Selection) -> bool:
    """Whether the communicators have one GPU per host: then old GPUs also send directly (ncclTopoCheckGdr)."""
    names = {name for (names,) in paths.distinct("communicators") for name in names}
    comms = [comm for comm in facts.job.communicators if comm.id in names]
    return bool(comms) and all(comm.nnodes == comm.nranks for comm in comms)
