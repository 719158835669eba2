"""Network paths without GPUDirect RDMA that might have it."""

from __future__ import annotations

from typing import NamedTuple

from nccl_inspect.event.types import GdrDecision
from nccl_inspect.judging.engine import Facts, Finding, Needs, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, first_lines, hosts_in, ranks_in, unset_steps
from nccl_inspect.judging.hardware import chip_link, distances
from nccl_inspect.judging.impact import estimate
from nccl_inspect.judging.impact import network as network_of
from nccl_inspect.judging.networks import gdr_statements, google_plugins
from nccl_inspect.judging.networks.fabrics import over_tcp_provider, paths_in_words
from nccl_inspect.judging.networks.gdr_use import lacking, paths_without_gdr
from nccl_inspect.judging.remedies import EFA_CHECK, EFA_IN_POD, LOCKED_MEMORY_IN_POD
from nccl_inspect.model.job import Selection, Setting
from nccl_inspect.model.versions import order
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import count, does, listed, ranks_word, some_names

RULE = Rule(
    name="gdr-disabled",
    category="gpudirect",
    severity="warning",
    title="Network traffic is staged through host memory: no GPUDirect RDMA",
    shows=("no-gdr", "setting"),
)
_CAPTURE = Needs(platform=True, subsystems=("INIT", "ENV", "NET", "GRAPH"), shows="why NCCL does not use it")
_OTHER_RANKS = "the logs of the other ranks: NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log on all of them"
_PEER_MEMORY_OF_AMD = (
    "ls /sys/kernel/mm/memory_peers; grep ib_register_peer_memory_client /proc/kallsyms   # on every node: neither "
    "exists until amdgpu-dkms and ib_peer_mem, or an OFED with peer memory, are loaded"
)
_OTHER_PATH = order("2.23")
"""Since then NCCL also looks for the module in /sys/module (src/transport/net_ib.cc)."""
_NEWER = "Try NCCL 2.23 or later, which finds nvidia-peermem even if the NIC driver does not list it in memory_peers."
_LIST_NICS = "NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH   # then shows what NCCL decides for each NIC and GPU"
_NEAR = "Keep GPU and NIC close: whole nodes for pods, or topologyManagerPolicy single-numa-node in the kubelet."


@frozen
class _Staged(Frozen):
    """Paths that stage data in host memory, and what the log shows of the reason."""

    paths: Selection
    reasons: list[Notice]
    """What NCCL or the plugin reports of NICs and GPUs."""
    off: list[Setting]
    """Settings that disable it."""
    is_capable: bool
    """Whether the machine type supports GPUDirect RDMA."""
    is_sure: bool
    """Whether anything shows that it could be used."""

    @property
    def severity(self) -> str:
        """By what the machine could do."""
        if self.is_capable and any(kind.gdr is False for kind in self.paths.kinds):
            return "error"
        return "warning" if self.is_sure else "info"

    @property
    def confidence(self) -> str:
        """In the reason."""
        return "certain" if self.is_capable and (self.reasons or self.off) else "likely" if self.is_sure else "possible"

    @property
    def over(self) -> str:
        """The connections in words."""
        return listed(kind.detail for kind in self.paths.kinds)


def judge(facts: Facts) -> Results:
    """Judge by the platform, else by the messages of the plugin or NCCL; else leave it undecided.

    Without connections between hosts in the log, messages about NICs and GPUs give a clue.
    """
    paths = paths_without_gdr(facts)
    if contradiction := _contradiction(facts):
        yield RULE.undecided(contradiction, Needs(_OTHER_RANKS, all_ranks=True))
    if not paths or lacking(facts):
        if signs := _signs(facts):
            yield _clue(facts, signs)
        return
    staged = _staged(facts, paths)
    if not staged.is_sure:
        yield RULE.undecided(
            f"{count(len(paths), 'path')} over {staged.over} {does(len(paths), 'stage')} data in host memory (no "
            "GDRDMA); the log does not show whether this machine could do better",
            _CAPTURE,
            paths=paths,
        )
    yield _finding(facts, staged)


def _staged(facts: Facts, paths: Selection) -> _Staged:
    is_capable = bool(facts.platform and facts.platform.gdr)
    refused, weak = _refused(facts), facts.notices("aws-ofi-nccl/ofi-gdr-not-supported")
    refused = refused or facts.with_role("dmabuf-missing")
    off = [] if over_tcp_provider(facts) else gdr_statements.disabling_settings(facts)
    is_sure = is_capable or bool(refused or off or (weak and over_tcp_provider(facts))) or _should_have_it(facts, paths)
    return _Staged(paths, [*refused, *weak], off, is_capable, is_sure)


def _finding(facts: Facts, staged: _Staged) -> Finding:
    direct = network_of(facts.platform)
    return RULE.finding(
        f"{paths_in_words(staged.paths)} over {staged.over} {_missing(staged.paths)}",
        cause=_cause(facts, staged),
        impact=estimate(
            "two extra copies through host memory and PCIe for every byte; with GPUDirect "
            f"{direct.what} gives {direct}",
            direct,
        ),
        fix=[*unset_steps(staged.off), *_fixes(facts, staged.paths, staged.reasons)],
        severity=staged.severity,
        confidence=staged.confidence,
        evidence=[
            *evidence_of_settings(staged.off or _limits(facts, staged.paths), 1),
            *first_lines(staged.paths)[:3],
            *first_evidence(staged.reasons[:2]),
        ],
        paths=staged.paths,
    )


class _Signs(NamedTuple):
    """Lines before hosts connect that suggest it: settings, else drivers, else distances."""

    off: list[Setting]
    refused: list[Notice]
    """NICs whose drivers do not support it."""
    far: list[Notice]

    @property
    def notices(self) -> list[Notice]:
        """Return what NCCL and plugins report."""
        return [*self.refused, *self.far]


def _signs(facts: Facts) -> _Signs | None:
    if not gdr_statements.is_undecided(facts):
        return None
    off, refused = gdr_statements.disabling_settings(facts), gdr_statements.refusals(facts)
    far = [] if off or refused else gdr_statements.too_far(facts)
    return _Signs(off, refused, far) if off or refused or far else None


def _clue(facts: Facts, signs: _Signs) -> Finding:
    off, refused, far = signs
    is_partial = bool(gdr_statements.hosts_with_gdr(facts) & hosts_in(refused))
    is_likely = off or (refused and not is_partial and gdr_statements.is_sure(refused))
    is_near = bool(facts.paths("intra")) and not facts.spans_hosts()
    return RULE.clue(
        _clue_summary(signs),
        cause=_cause_of_clue(facts, signs),
        impact="if so, every byte between hosts takes two extra copies through host memory and PCIe",
        fix=_fixes_of_clue(facts, signs),
        confirm="Check the 'via NET/…' lines once hosts connect: those without /GDRDMA do not use it."
        + ("" if off or far else " On the host, run: lsmod | grep nvidia_peermem"),
        severity="info" if is_near else "warning",
        confidence="likely" if is_likely else "possible",
        ranks=ranks_in(signs.notices) or facts.ranks_with(off),
        hosts=hosts_in(signs.notices),
        evidence=[*evidence_of_settings(off, 1), *first_evidence(signs.notices)],
    )


def _fixes_of_clue(facts: Facts, signs: _Signs) -> list[str]:
    if signs.off:
        return [*unset_steps(signs.off), _LIST_NICS]
    newer = [_NEWER] if signs.refused and _may_look_elsewhere(facts) else []
    return [*_fixes(facts, facts.no_paths(), signs.notices), *newer]


def _clue_summary(signs: _Signs) -> str:
    if signs.off:
        return f"GPUDirect RDMA is disabled: {as_shell(signs.off)}"
    hosts = some_names(sorted(hosts_in(signs.notices)))
    where = f" on {hosts}" if hosts.strip("?") else ""
    if signs.far:
        gpus = sorted({str(getattr(notice.event, "gpu", "")) for notice in signs.far})
        return f"GPUDirect RDMA is off for GPU {listed(gpus)}{where}: too far from every NIC that NCCL measured"
    names = gdr_statements.in_ranges(gdr_statements.nics(signs.refused))
    return f"GPUDirect RDMA is off{' for ' + names if names else ''}{where}"


def _cause_of_clue(facts: Facts, signs: _Signs) -> str:
    refused = signs.refused
    if signs.off:
        return f"{as_shell(signs.off)} disables it"
    if distance := distances.too_far(signs.far):
        return distances.words(distance, facts)
    if any(notice.event and notice.event.dialect == "aws-ofi-nccl" for notice in refused):
        return f"the plugin reports: {refused[0].message}"
    if any(getattr(notice.event, "reason", None) == "not-by-gpu" for notice in refused):
        return "nv_peer_mem is loaded, but memory of this GPU could not be registered: GeForce has no GPUDirect RDMA"
    if facts.is_rccl():
        return "the GPU driver provides no peer memory to the NICs, or the NIC driver does not use it"
    return "neither nvidia-peermem nor DMA-BUF works for these NICs, as far as NCCL sees" + (
        "; 2.22 and earlier look for the module only in /sys/kernel/mm/memory_peers, which some NIC drivers lack"
        if _may_look_elsewhere(facts)
        else ""
    )


def _may_look_elsewhere(facts: Facts) -> bool:
    """Whether the release may be one that overlooks a loaded module."""
    releases = [order(version) for version in facts.job.nccl_versions]
    return not facts.is_rccl() and (not releases or min(releases) < _OTHER_PATH)


def _should_have_it(facts: Facts, pairs: Selection) -> bool:
    """Whether GPUs behind an NVSwitch, or A100 on NVLink, are used with InfiniBand or RoCE cards, which support it.

    NCCL chooses P2P reads only between two A100 on NVLink.
    """
    has_platform = facts.platform is not None and facts.platform.gdr is not None
    if has_platform or not all((kind.net or "").startswith("IB") for kind in pairs.kinds):
        return False
    forced = facts.enabled_settings("NCCL_P2P_READ_ENABLE")
    reading = facts.paths(transport="P2P").where(lambda kind: "/read" in kind.detail and not forced)
    return bool(facts.with_role("nvswitch") or reading)


def _contradiction(facts: Facts) -> str:
    """The contradiction if the rings report an edge without GPUDirect, and every edge in the log has it; else empty."""
    direct = all(kind.gdr is True for kind in facts.inter_host_net_paths().kinds) and bool(facts.inter_host_net_paths())
    comms = [comm.id for comm in facts.job.communicators if comm.ring_gdr is False]
    if not direct or not comms:
        return ""
    unseen = {
        rank for (rank,) in facts.inter_host_net_paths().where(lambda kind: not kind.ends("send")).distinct("src")
    }
    unseen |= {
        rank for (rank,) in facts.inter_host_net_paths().where(lambda kind: not kind.ends("receive")).distinct("dst")
    }
    who = f"{ranks_word(unseen)}, whose lines are" if unseen else "a rank whose log is"
    return (
        f"communicator {comms[0]} reports 'use ring … GDR 0', but every NET path in this log shows GDRDMA: "
        f"{who} missing here, may lack it"
    )


def _refused(facts: Facts) -> list[Notice]:
    """Messages of NCCL or a plugin about individual NICs and GPUs."""
    refused = facts.with_event(GdrDecision, lambda event: not event.enabled)
    return [notice for notice in refused if "NET/Socket" not in notice.message]


def _missing(pairs: Selection) -> str:
    """Return what is missing: GPUDirect altogether, or on some channels."""
    partial = pairs.where(lambda kind: kind.gdr == "partial")
    if len(partial) == len(pairs):
        return "with GPUDirect RDMA on some of their channels only"
    return "without GPUDirect RDMA" + (f" ({len(partial)} of them on some channels)" if partial else "")


def _limits(facts: Facts, pairs: Selection) -> list[Setting]:
    """Settings that forbid most pairs of NIC and GPU; Google's guide sets them."""
    if google_plugins.daemon(pairs):
        return []
    return [setting for setting in facts.settings("NCCL_NET_GDR_LEVEL") if setting.value.upper() in ("PIX", "1")]


def _fixes(facts: Facts, pairs: Selection, reasons: list[Notice]) -> list[str]:
    if over_tcp_provider(facts):
        return [EFA_CHECK, EFA_IN_POD, LOCKED_MEMORY_IN_POD]
    if daemon := google_plugins.daemon(pairs):
        return google_plugins.fixes(daemon)
    if distances.too_far(reasons):
        return [
            *(f"unset {setting.name}" for setting in _limits(facts, pairs)),
            "nvidia-smi topo -m   # is a NIC behind the same switch as the GPU (PIX, PXB)? Give that NIC to the job",
            _NEAR,
            "NCCL_NET_GDR_LEVEL=SYS   # allows every distance; measure it: through the CPU it may be slower than "
            "without",
            "NCCL_TOPO_FILE=<file>   # for a virtual machine that hides its PCIe switches: the provider's file",
        ]
    if chip_link.decides(facts):
        return [chip_link.FIX, *(f"unset {setting.name}" for setting in _limits(facts, pairs)), _NEAR]
    network = facts.platform.network if facts.platform else None
    on_efa = network == "efa" or (network is None and any("Libfabric" in kind.detail for kind in pairs.kinds))
    return [
        *(f"unset {setting.name}" for setting in _limits(facts, pairs)),
        "fi_info -p efa -c FI_HMEM   # must list the NICs; use kernel module, libfabric and plugin of one EFA installer"
        if on_efa
        else _PEER_MEMORY_OF_AMD
        if facts.is_rccl()
        else "modprobe nvidia-peermem   # on every node; an open driver with DMA-BUF does not need it",
        "NCCL_NET_GDR_LEVEL=SYS   # a test: does NCCL consider the NIC too far from the GPU?",
        _NEAR,
    ]


def _cause(facts: Facts, staged: _Staged) -> str:
    paths, reasons = staged.paths, staged.reasons
    if over_tcp_provider(facts):
        return (
            "libfabric uses its tcp provider, which has no GPUDirect RDMA: despite the name Libfabric, EFA is not used"
        )
    if staged.off:
        return f"{as_shell(staged.off)} disables it"
    if limits := _limits(facts, paths):
        return f"{as_shell(limits[:1])} allows GPUDirect RDMA only between a NIC and a GPU behind one PCIe switch"
    if far := distances.too_far(reasons):
        return f"{distances.words(far, facts)}. Both drivers support it, or NCCL would not have measured the distance"
    if reasons:
        return f"NCCL or its plugin reports: {reasons[0].message}"
    if google_plugins.daemon(paths):
        return (
            "unknown from this log: these plugins support GPU memory, and NCCL decides by the distance between GPU and "
            "NIC; the pod may not have all GPUs and NICs of the node"
        )
    if chip_link.decides(facts):
        return chip_link.words(facts)
    if staged.is_capable:
        return (
            "unknown from this log; likely: nvidia-peermem or DMA-BUF is missing, a NIC is too far from the GPU, or "
            "libfabric lacks FI_HMEM"
        )
    if _should_have_it(facts, paths):
        return (
            "unknown from this log: such GPUs on NVLink support it with these NICs; nvidia-peermem or DMA-BUF is "
            "missing, or the NIC is too far from the GPU"
        )
    return "not proved: the machine may not support it (g5, g6, g6e and p3dn do not), or its kernel module is missing"
