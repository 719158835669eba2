"""Reduction inside the NVSwitch is not available although the GPUs support it."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Finding, Results, Rule
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, unset_steps
from nccl_inspect.judging.impact import WITHOUT_NVLS

RULE = Rule(
    name="nvls-unavailable",
    category="intra-node path",
    severity="info",
    title="Reduction inside the NVSwitch (NVLS) is not available",
)
_LEAST = 3
_HAVE_IT = ("H100", "H200", "GH200", "B200", "GB200", "B300", "GB300")


def judge(facts: Facts) -> Results:
    """Judge NCCL's line on machines that are known to have Hopper or newer GPUs behind an NVSwitch."""
    without = facts.notices("nccl/nvls-not-available")
    if not without:
        yield from _asked_for(facts)
        return
    if not _has_nvswitch(facts) or _is_too_small(facts):
        return
    yield RULE.finding(
        "NVLink SHARP (NVLS) is not available",
        cause="the driver does not offer multicast: it is older than CUDA 12.1, the fabric manager does not run or "
        "came up with errors, the GPUs are MIG slices, or the virtual machine has only part of the board",
        impact=WITHOUT_NVLS.after("large all-reduce, reduce-scatter and all-gather use rings: "),
        fix=[
            "nvidia-smi -q | grep -A4 Fabric   # State Completed, Status Success",
            "systemctl status nvidia-fabricmanager   # its version must match the driver",
            "NVLS needs a driver for CUDA 12.1 or later, MIG off, and all 8 GPUs in one virtual machine.",
        ],
        notices=without,
    )


def _asked_for(facts: Facts) -> Iterator[Finding]:
    """Judge '0 nvls channels' where a setting requests NVLS; otherwise it is normal on most machines."""
    asked = [
        setting
        for setting in facts.user_settings("NCCL_ALGO")
        if "NVLS" in setting.value.upper() and "^" not in setting.value
    ]
    asked += [setting for setting in facts.user_settings("NCCL_NVLS_ENABLE") if setting.value == "1"]
    if not asked or not (counted := facts.job.without_nvls) or _is_too_small(facts) or _is_known_without(facts):
        return
    yield RULE.finding(
        f"{as_shell(asked)} requests NVLink SHARP (NVLS), but no communicator has channels for it",
        cause="unknown from this log; likely: GPUs before Hopper, no NVSwitch, fewer than three ranks on a host, a "
        "release before 2.17, or a driver that does not offer multicast (older than CUDA 12.1, fabric manager, "
        "MIG, part of a board)",
        impact="collectives use rings and trees; where NVLS would work, large all-reduces are slower than necessary",
        fix=[
            "nvidia-smi -L; nvidia-smi -q | grep -A4 Fabric   # Hopper or later? State Completed, Status Success?",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NVLS   # says 'NVLS multicast support is (not) available'",
            *unset_steps(asked),
        ],
        confidence="likely",
        ranks=facts.ranks_with(asked),
        evidence=[*evidence_of_settings(asked, 1), *counted[:2]],
    )


def _is_known_without(facts: Facts) -> bool:
    """Whether the machine is known not to have it."""
    return facts.platform is not None and facts.platform.gpu is not None and not _has_nvswitch(facts)


def _is_too_small(facts: Facts) -> bool:
    """Whether every host has fewer than the three ranks that NVLS needs."""
    local = [comm.local_ranks for comm in facts.job.communicators if comm.local_ranks is not None]
    return bool(local) and max(local) < _LEAST


def _has_nvswitch(facts: Facts) -> bool:
    """Whether the machine type has one, or the GPUs report a fabric, as only those behind an NVSwitch do (2.20 on)."""
    platform = facts.platform
    has_model = platform is not None and bool(platform.nvlink) and platform.gpu in _HAVE_IT
    return has_model or bool(facts.notices("nccl/mnnvl-fabric"))
