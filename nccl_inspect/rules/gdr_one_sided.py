"""Network paths with GPUDirect RDMA at one end only, or on some hosts only."""

from __future__ import annotations

from functools import partial
from itertools import islice

from nccl_inspect.event.types import GdrDecision
from nccl_inspect.judging.engine import Facts, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import HOSTS, RANKS, first_lines, ranks_of_paths, unset_steps
from nccl_inspect.judging.hardware import distances
from nccl_inspect.judging.networks import google_plugins
from nccl_inspect.judging.networks.gdr_use import hosts_without, one_sided
from nccl_inspect.model.connection import SIDES
from nccl_inspect.model.job import PathKind, Selection, Setting
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import count, ranks_word, some_names

RULE = Rule(
    name="gdr-one-sided",
    category="gpudirect",
    severity="warning",
    title="GPUDirect RDMA at one end of network paths only: the other end stages data in host memory",
)


@frozen
class _Lack(Frozen):
    """The ends that lack GPUDirect RDMA, and what the log shows of the reason."""

    paths: Selection
    at: dict[str, Selection]
    """Those of the paths that lack it at their ``send`` or ``receive`` side."""
    whole_hosts: set[str]
    """Hosts on which no end has it."""
    read_off: list[Setting]
    """NCCL_NET_GDR_READ=0: GPUs do not send directly."""
    reasons: list[Notice]
    is_capable: bool
    """Whether these GPUs can send directly as well."""

    @property
    def ends(self) -> set[tuple[int, str | None]]:
        """Rank and host of each end that lacks it."""
        return {end for side, paths in self.at.items() for end in paths.distinct(RANKS[side], HOSTS[side])}

    @property
    def ranks(self) -> set[int]:
        """The ranks at these ends."""
        return {rank for rank, _ in self.ends}

    @property
    def hosts(self) -> set[str]:
        """Their hosts, as far as they are known."""
        return {host for _, host in self.ends if host}

    @property
    def only_senders(self) -> bool:
        """Whether all hosts receive with it, and only some ends that send lack it."""
        return not self.whole_hosts and not self.at["receive"]

    @property
    def is_set(self) -> bool:
        """Whether a setting explains it."""
        return self.only_senders and bool(self.read_off)

    @property
    def is_normal(self) -> bool:
        """Whether older GPUs explain it."""
        return self.only_senders and not (self.read_off or self.reasons or self.is_capable)

    @property
    def too_far(self) -> GdrDecision | None:
        """The distance between GPU and NIC if that is the reason."""
        return distances.too_far(self.reasons)


def judge(facts: Facts) -> Results:
    """Report which ends lack it: only senders (older GPUs never send directly), some hosts, or some ranks."""
    if not (paths := one_sided(facts)):
        return
    lack = _lack(facts, paths)
    yield RULE.finding(
        _summary(lack),
        cause=_cause(facts, lack),
        impact="two extra copies through host memory and PCIe at that end for every byte; the slower end sets the pace",
        fix=_fixes(lack),
        severity="info" if lack.is_normal else "warning",
        confidence="certain" if lack.is_set or (lack.reasons and not lack.only_senders) else "likely",
        ranks=lack.ranks or ranks_of_paths(paths),
        hosts=lack.hosts,
        evidence=[
            *first_lines(paths)[:1],
            *islice((line for side, some in lack.at.items() for line in some.end_lines(side)), 2),
            *first_evidence(lack.reasons[:2]),
        ],
        paths=paths,
    )


def _lack(facts: Facts, paths: Selection) -> _Lack:
    lack = _Lack(
        paths,
        at={side: paths.where(partial(_lacks, side)) for side in SIDES},
        whole_hosts=hosts_without(facts.inter_host_rdma_paths()),
        read_off=[setting for setting in facts.settings("NCCL_NET_GDR_READ") if setting.value == "0"],
        reasons=[],
        is_capable=bool(facts.platform and facts.platform.gdr) or _one_gpu_each(facts, paths),
    )
    return lack.with_fields(reasons=_refused(facts, lack.hosts))


def _summary(lack: _Lack) -> str:
    if lack.whole_hosts:
        what = "host" if len(lack.whole_hosts) == 1 else "hosts"
        who = f"on {what} {some_names(sorted(lack.whole_hosts))}"
    else:
        who = f"of {ranks_word(lack.ranks)}" + " at the sending end" * lack.only_senders
    return f"{count(len(lack.paths), 'network path')} with GPUDirect RDMA at one end only: none {who}"


def _cause(facts: Facts, lack: _Lack) -> str:
    if lack.is_set:
        return "NCCL_NET_GDR_READ=0: GPUs do not send directly"
    if lack.is_normal:
        return (
            "NCCL lets GPUs before Ampere without NVLink receive with GPUDirect RDMA, but not send "
            "(NCCL_NET_GDR_READ); the log does not name the GPUs"
        )
    if lack.too_far:
        return distances.words(lack.too_far, facts)
    if lack.reasons:
        return f"NCCL reports: {lack.reasons[0].message}"
    where = some_names(sorted(lack.hosts)) or "the side that lacks it"
    return (
        f"unknown from this log; likely: on {where} "
        "nvidia-peermem or DMA-BUF is missing, or the NIC is too far from the GPU"
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
    decisions = facts.with_event(GdrDecision, lambda event: not event.enabled)
    return [notice for notice in decisions if hosts & set(notice.hosts) and "NET/Socket" not in notice.message]


def _fixes(lack: _Lack) -> list[str]:
    if lack.is_normal:
        return ["NCCL_NET_GDR_READ=1   # optional, measure it; on such GPUs there is nothing to fix"]
    if daemon := google_plugins.daemon(lack.paths):
        return google_plugins.fixes(daemon)
    if lack.is_set:
        return unset_steps(lack.read_off)
    where = f"on {some_names(sorted(lack.hosts))}" if lack.hosts else "on the side that lacks it"
    peermem = f"modprobe nvidia-peermem; lsmod | grep peermem   # {where}; not needed with an open driver and DMA-BUF"
    return [
        *([] if lack.too_far else [peermem]),  # NCCL measures the distance only where the drivers support it
        "nvidia-smi topo -m   # do NIC and GPU share a switch? Compare with a host that has it",
        "Keep GPU and NIC close: whole nodes for pods, or topologyManagerPolicy single-numa-node in the kubelet.",
        "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH   # prints the reason for each NIC and GPU",
    ]
