"""The driver refuses peer access between GPUs of one host."""

from collections.abc import Iterator

from nccl_inspect.event.types import P2pRefused
from nccl_inspect.judging.engine import Facts, first_evidence
from nccl_inspect.judging.facts import first_lines, hosts_in, ranks_in, ranks_of_paths
from nccl_inspect.judging.hardware.peer_to_peer import disabling_settings
from nccl_inspect.judging.page_words import Hit

_REASONS = {
    "p2p-disabled": "NVML reports that the pair may not read or write each other's memory",
    "peer-query-failed": "CUDA could not determine whether the GPUs can access each other's memory",
    "enable-failed": "CUDA reports that the GPUs cannot access each other's memory",
    "legacy-ipc-unsupported": "CUDA IPC does not work in this process",
    "no-p2p": "CUDA reports that the GPUs cannot access each other's memory",
}


def find(facts: Facts) -> Iterator[Hit]:
    """Find a refusal that counts: a local pair does not use P2P that the hardware may support."""
    refused, local = facts.with_event(P2pRefused), facts.paths("intra")
    slow = local.where(lambda kind: kind.transport != "P2P")
    if refused and (slow or not local) and not disabling_settings(facts):
        allowed = list(map(facts.allows_p2p, slow.kinds)) or [facts.platform.p2p if facts.platform else None]
        poor = all(can is False for can in allowed)
        reasons = (_REASONS[getattr(notice.event, "reason", "")] for notice in refused)
        yield Hit(
            named={
                "refused": refused,
                "reasons": "; ".join(dict.fromkeys(reasons)),
                "poor": poor,
                "doubtful": not slow or not (poor or any(allowed)),
                "from a list": facts.hardware == "likely",
            },
            ranks=ranks_of_paths(slow) or ranks_in(refused),
            hosts=hosts_in(refused),
            evidence=[*first_evidence(refused)[:3], *first_lines(slow)[:2]],
            paths=slow,
        )
