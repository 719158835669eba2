"""Network paths with GPUDirect RDMA at one end only, or on some hosts only."""

from collections.abc import Iterator
from functools import partial

from nccl_inspect.culprits.traits import SIDES
from nccl_inspect.event.types import GdrDecision
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_lines, ranks_of_paths, unset_steps
from nccl_inspect.judging.hardware import distances
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.networks.gdr_use import hosts_without, one_sided
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice, PathKind, Selection
from nccl_inspect.util.wording import count, ranks_word, some_names

RULE = Rule(
    name="gdr-one-sided",
    category="gpudirect",
    severity="warning",
    title="GPUDirect RDMA at one end of network paths only: the other end stages data in host memory",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Report which ends lack it: only senders (older GPUs never send directly), some hosts, or some ranks."""
    paths = one_sided(facts)
    if not paths:
        return
    columns = {"send": ("src", "src_host"), "receive": ("dst", "dst_host")}
    lacking = {side: paths.where(partial(_lacks, side)) for side in SIDES}
    ends_lacking = {end for side, some in lacking.items() for end in some.distinct(*columns[side])}
    ranks = {rank for rank, _ in ends_lacking}
    hosts = {host for _, host in ends_lacking if host}
    whole = hosts_without(facts.inter_host_rdma_paths())
    senders = not whole and not lacking["receive"]
    reading = [setting for setting in facts.settings("NCCL_NET_GDR_READ") if setting.value == "0"]
    reasons = _refused(facts, hosts)
    far = distances.too_far(reasons)
    capable = bool(facts.platform and facts.platform.gdr) or _one_gpu_each(facts, paths)
    normal = senders and not reading and not reasons and not capable
    who = (
        f"on {'host' if len(whole) == 1 else 'hosts'} {some_names(sorted(whole))}"
        if whole
        else f"of {ranks_word(ranks)}"
    )
    where = "" if whole else " at the sending end" if senders else ""
    yield RULE.finding(
        f"{count(len(paths), 'network path')} with GPUDirect RDMA at one end only: none {who}{where}",
        cause="NCCL_NET_GDR_READ=0: GPUs do not send directly"
        if senders and reading
        else "NCCL lets GPUs before Ampere without NVLink receive with GPUDirect RDMA, but not send "
        "(NCCL_NET_GDR_READ); the log does not name the GPUs"
        if normal
        else distances.words(far, facts)
        if far
        else f"NCCL reports: {reasons[0].message}"
        if reasons
        else f"unknown from this log; likely: on {some_names(sorted(hosts)) or 'the side that lacks it'} "
        "nvidia-peermem or DMA-BUF is missing, or the NIC is too far from the GPU",
        impact="two extra copies through host memory and PCIe at that end for every byte; the slower end sets the pace",
        fix=google_plugins.fixes(daemon)
        if not normal and (daemon := google_plugins.daemon(paths))
        else _fixes(hosts, normal, reading=unset_steps(reading) if senders else [], far=far is not None),
        severity="info" if normal else "warning",
        confidence="certain" if (senders and reading) or (reasons and not senders) else "likely",
        ranks=ranks or ranks_of_paths(paths),
        hosts=hosts,
        evidence=[*first_lines(paths)[:3], *(notice.evidence[0] for notice in reasons[:2])],
        paths=paths,
    )


def _lacks(side: str, kind: PathKind) -> bool:
    return kind.gdr_at(side) is False


def _one_gpu_each(facts: Facts, paths: Selection) -> bool:
    """Whether the communicators have one GPU per host: then old GPUs also send directly (ncclTopoCheckGdr)."""
    names = {name for (names,) in paths.distinct("communicators") for name in names}
    comms = [comm for comm in facts.job.communicators if comm.id in names]
    return bool(comms) and all(comm.nnodes == comm.nranks for comm in comms)


def _refused(facts: Facts, hosts: set[str]) -> list[Notice]:
    """NCCL's messages on these hosts about NICs and GPUs that cannot reach each other."""
    decisions = facts.with_event(GdrDecision, lambda event: isinstance(event, GdrDecision) and not event.enabled)
    return [notice for notice in decisions if hosts & set(notice.hosts) and "NET/Socket" not in notice.message]


def _fixes(hosts: set[str], normal: bool, reading: list[str], far: bool) -> list[str]:
    if normal:
        return ["NCCL_NET_GDR_READ=1   # optional, measure it; on such GPUs there is nothing to fix"]
    if reading:
        return reading
    where = f"on {some_names(sorted(hosts))}" if hosts else "on the side that lacks it"
    return [
        *(
            []
            if far  # NCCL measures the distance only where the drivers support it
            else [
                f"modprobe nvidia-peermem; lsmod | grep peermem   # {where}; not needed with an open driver and DMA-BUF"
            ]
        ),
        "nvidia-smi topo -m   # do NIC and GPU share a switch? Compare with a host that has it",
        "Keep GPU and NIC close: whole nodes for pods, or topologyManagerPolicy single-numa-node in the kubelet.",
        "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH   # prints the reason for each NIC and GPU",
    ]
