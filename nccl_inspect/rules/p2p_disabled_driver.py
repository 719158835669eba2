"""The driver refuses peer access between GPUs of one host."""

from nccl_inspect.event.types import P2pRefused
from nccl_inspect.judging.engine import Facts, Notice, Results, Rule, first_evidence
from nccl_inspect.judging.facts import first_lines, hosts_in, ranks_in, ranks_of_paths, usage_of
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings
from nccl_inspect.judging.impact import SHM, estimate
from nccl_inspect.util.wording import count

RULE = Rule(
    name="p2p-disabled-driver",
    category="intra-node path",
    severity="warning",
    title="The driver refuses peer access between GPUs of one host",
    may_cause=("net-path", "idle-nvlink", "shm-path", "no-shm", "slow"),
    nest_under_effect=True,
)
_CONFIRM = "Check the 'via' lines between ranks of one host once they connect: SHM or NET there means no P2P."
_REASONS = {
    "p2p-disabled": "NVML reports that the pair may not read or write each other's memory",
    "peer-query-failed": "CUDA could not determine whether the GPUs can access each other's memory",
    "enable-failed": "CUDA reports that the GPUs cannot access each other's memory",
    "legacy-ipc-unsupported": "CUDA IPC does not work in this process",
    "no-p2p": "CUDA reports that the GPUs cannot access each other's memory",
}


def judge(facts: Facts) -> Results:
    """Judge by effect: the refusal counts if a local pair does not use P2P that the hardware may support."""
    refused = facts.with_event(P2pRefused)
    local = facts.paths("intra")
    slow = local.where(lambda kind: kind.transport != "P2P")
    if not refused or (local and not slow) or disabling_settings(facts):
        return
    allowed = list(map(facts.allows_p2p, slow.kinds)) or [facts.platform.p2p if facts.platform else None]
    poor = all(can is False for can in allowed)
    yield RULE.finding(
        f"the driver refuses peer access between GPUs of one host ({count(len(refused), 'statement')})",
        cause="; ".join(dict.fromkeys(map(_reason, refused)))
        + (": this hardware does not support P2P" if poor else ": a virtual machine, IOMMU or ACS, or the GPU model"),
        impact=estimate(f"{count(len(slow), 'pair')} of one host {usage_of(slow)}, {SHM} through host memory", SHM)
        if slow
        else "no local connection is in the log yet; it would use SHM or the network",
        fix=[
            "nvidia-smi topo -p2p r; nvidia-smi topo -p2p w   # OK, or why not (CNS chipset, GNS GPU, NS)",
            "sudo lspci -vvv | grep ACSCtl   # bare metal: ACS and IOMMU off, or iommu=pt; virtual machines need ATS",
            "NCCL_CUMEM_ENABLE=1   # for 'Legacy IPC not supported': shares memory another way (2.18 and later)",
            "GeForce, T4, A10G, L4 and many virtual machines do not support P2P: there is nothing to fix "
            "(NCCL_IGNORE_DISABLED_P2P=1 only hides the line).",
        ],
        confirm="" if slow else _CONFIRM,
        severity="info" if poor else "warning",
        confidence=facts.hardware if slow and (poor or any(allowed)) else "possible",
        ranks=ranks_of_paths(slow) or ranks_in(refused),
        hosts=hosts_in(refused),
        evidence=[*first_evidence(refused)[:3], *first_lines(slow)[:2]],
        paths=slow,
    )


def _reason(notice: Notice) -> str:
    assert isinstance(notice.event, P2pRefused)
    return _REASONS[notice.event.reason]
