"""NICs that NCCL uses as one have different numbers of ports at the two ends."""

from collections.abc import Iterator

from nccl_inspect.model.job import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranks_in
from nccl_inspect.rules.statements import value

RULE = Rule(
    name="nic-merge-mismatch",
    category="network",
    severity="warning",
    title="Fused NICs have different numbers of ports, or cannot be fused as asked",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the warnings; NCCL goes on with the ports it has, unless it is forced to fuse them."""
    unequal = facts.notices("ib-device-count-mismatch")
    refused = facts.notices("ib-merge-disabled")
    said = [*unequal, *refused]
    if not said:
        return
    dead = bool(refused) and facts.job.failed and not facts.job.paths
    first = unequal[0] if unequal else None
    yield RULE.finding(
        f"{value(first, 'device')} fuses {value(first, 'devices')} ports, its peer {value(first, 'peer_device')} "
        f"{value(first, 'peer_devices')}"
        if first
        else "fusing of NICs is asked for, and NCCL_IB_MERGE_NICS=0 forbids it",
        cause="the hosts show NCCL different ports of a card: one port is down, or one side shows the physical "
        "function and a virtual one of the same port"
        if first
        else "a topology or NCCL_NET_FORCE_MERGE wants ports of a card as one, while NCCL_IB_MERGE_NICS=0 is set",
        impact="NCCL stops"
        if dead
        else "the pair shares out its traffic unevenly and has the bandwidth of the side with fewer ports"
        if first
        else "none if nothing else fails: NCCL uses the ports one by one",
        fix=[
            "NCCL_IB_HCA==mlx5_0,mlx5_1   # the same ports on all nodes",
            "ibstat | grep -E 'CA |State'   # on both hosts: which port is down?",
            "Show physical or virtual functions to NCCL, not both.",
            "NCCL_IB_MERGE_NICS=0   # on all nodes: uses every port by itself"
            if first
            else "unset NCCL_IB_MERGE_NICS   # or unset NCCL_NET_FORCE_MERGE",
        ],
        severity="error" if dead else "warning" if first else "info",
        confidence="likely" if dead else "certain",
        ranks=ranks_in(said),
        hosts=hosts_in(said),
        evidence=first_said(said),
        fatal=dead,
    )
