"""Reduction inside the NVSwitch is not available although the GPUs have it."""

from collections.abc import Iterator

from nccl_inspect.impact import WITHOUT_NVLS
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranks_in

RULE = Rule(
    name="nvls-unavailable",
    category="intra-node path",
    severity="info",
    title="Reduction inside the NVSwitch (NVLS) is not available",
    specific=("nvls-fabric-manager", "fabric-manager-down"),
)
_LEAST = 3
_HAVE_IT = ("H100", "H200", "GH200", "B200", "GB200", "B300", "GB300")


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge NCCL's statement on machines that are known to have Hopper or later behind an NVSwitch."""
    without = facts.notices("nvls-not-available")
    if not without or not _has_nvswitch(facts) or _is_too_small(facts):
        return
    yield RULE.finding(
        "NVLink SHARP (NVLS) is not available",
        cause="the driver does not offer multicast: it is older than CUDA 12.1, the fabric manager does not run or "
        "came up with errors, the GPUs are MIG slices, or the virtual machine holds a part of the board only",
        impact=f"large all-reduce, reduce-scatter and all-gather take rings: {WITHOUT_NVLS}",
        fix=[
            "nvidia-smi -q | grep -A4 Fabric   # State Completed, Status Success",
            "systemctl status nvidia-fabricmanager   # its version must be that of the driver",
            "NVLS needs a driver for CUDA 12.1 or later, MIG off, and all 8 GPUs in one virtual machine.",
        ],
        ranks=ranks_in(without),
        hosts=hosts_in(without),
        evidence=first_said(without),
    )


def _is_too_small(facts: Facts) -> bool:
    """Whether no host has the three ranks from which on NCCL uses NVLS."""
    local = [comm.local_ranks for comm in facts.job.communicators if comm.local_ranks is not None]
    return bool(local) and max(local) < _LEAST


def _has_nvswitch(facts: Facts) -> bool:
    """A known machine type, or a fabric that the GPUs report: only those behind an NVSwitch do (2.20 and later)."""
    platform = facts.platform
    known = platform is not None and bool(platform.nvlink) and platform.gpu in _HAVE_IT
    return known or bool(facts.notices("mnnvl-fabric"))
