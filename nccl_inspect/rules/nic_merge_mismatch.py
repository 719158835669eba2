"""Fused NICs have different numbers of ports at the two ends."""

from nccl_inspect.judging.engine import Facts, Finding, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import as_shell, evidence_of_settings, unset_steps
from nccl_inspect.judging.impact import Outcome
from nccl_inspect.model.job import Setting

RULE = Rule(
    name="nic-merge-mismatch",
    category="network",
    severity="warning",
    title="Fused NICs have different numbers of ports, or cannot be fused as requested",
)

_STOPS = Outcome("error", "NCCL stops", is_fatal=True)
_UNEVEN = Outcome(
    "warning", "the pair balances its traffic unevenly and has the bandwidth of the side with fewer ports"
)
_SEPARATE = Outcome("info", "none if nothing else fails: NCCL uses the ports separately")
_SAME_PORTS = (
    "NCCL_IB_HCA='=mlx5_0,mlx5_1'   # the same ports on all nodes",
    "ibstat | grep -E 'CA |State'   # on both hosts: which port is down?",
    "Expose either physical or virtual functions to NCCL, not both.",
)


def judge(facts: Facts) -> Results:
    """Judge the warnings; NCCL continues with the ports it has, unless it is forced to fuse them."""
    refused = facts.notices("nccl/ib-merge-disabled")
    if wrong := facts.notices("nccl/nic-fusion-invalid"):
        yield _not_fused(facts, wrong, refused)
        refused = []
    unequal = facts.notices("nccl/ib-device-count-mismatch")
    is_dead = bool(refused) and facts.job.failed and not facts.job.paths
    if unequal:
        yield _unequal(unequal, refused, _STOPS if is_dead else _UNEVEN)
    elif refused:
        yield _forbidden(refused, _STOPS if is_dead else _SEPARATE)


def _unequal(unequal: list[Notice], refused: list[Notice], outcome: Outcome) -> Finding:
    """Two hosts fuse different numbers of ports."""
    first = unequal[0]
    return RULE.finding(
        f"{value(first, 'device')} fuses {value(first, 'devices')} ports, its peer {value(first, 'peer_device')} "
        f"{value(first, 'peer_devices')}",
        cause="the hosts expose different ports of a card to NCCL: one port is down, or one side exposes both the "
        "physical function and a virtual function of the same port",
        impact=outcome.impact,
        fix=[
            *_SAME_PORTS,
            "NCCL_IB_MERGE_NICS=0   # on all nodes: uses every port separately. 2.24 and 2.25 stop without "
            "NCCL_NET_MERGE_LEVEL=LOC",
        ],
        severity=outcome.severity,
        confidence="likely" if outcome.is_fatal else "certain",
        notices=[*unequal, *refused],
        fatal=outcome.is_fatal,
    )


def _forbidden(refused: list[Notice], outcome: Outcome) -> Finding:
    """Fusing of ports is requested, and a setting forbids it."""
    return RULE.finding(
        "NIC fusion is requested, but NCCL_IB_MERGE_NICS=0 forbids it",
        cause="NCCL's default, a topology file or NCCL_NET_FORCE_MERGE fuses the ports of a card, while "
        "NCCL_IB_MERGE_NICS=0 is set",
        impact=outcome.impact,
        fix=[*_SAME_PORTS, "unset NCCL_IB_MERGE_NICS   # or unset NCCL_NET_FORCE_MERGE"],
        severity=outcome.severity,
        confidence="likely" if outcome.is_fatal else "certain",
        notices=refused,
        fatal=outcome.is_fatal,
    )


def _not_fused(facts: Facts, wrong: list[Notice], refused: list[Notice]) -> Finding:
    """Errors that end initialization (src/graph/topo.cc); 2.26 and later continue only where they chose the ports."""
    is_default = any(value(notice, "__step") for notice in wrong)
    asked = facts.user_settings("NCCL_NET_FORCE_MERGE", "NCCL_NET_MERGE_LEVEL")
    return RULE.finding(
        f"ports cannot be fused into one NIC: {wrong[0].message}",
        cause=_cause(asked, is_default=is_default, is_forbidden=bool(refused)),
        impact="the communicator is not built, and the job does not start",
        fix=[
            *unset_steps(asked),
            "NCCL_NET_MERGE_LEVEL=LOC   # on all ranks: NCCL fuses nothing and uses every port separately",
            *(["Use NCCL 2.26 or later: it continues without fusing such ports."] if is_default else []),
            "ibstat | grep -E 'CA |Link layer|Rate'   # which ports are alike?",
        ],
        severity="error",
        confidence="likely",
        notices=wrong,
        evidence=[*first_evidence([*refused, *wrong]), *evidence_of_settings(asked, 1)],
        fatal=facts.job.failed or not facts.job.paths,
    )


def _cause(asked: list[Setting], *, is_default: bool, is_forbidden: bool) -> str:
    if is_default:
        why = "NCCL_IB_MERGE_NICS=0 forbids it" if is_forbidden else "ports of different kinds, or a plugin that cannot"
        return f"NCCL 2.24 and 2.25 fuse the ports of a card by default, and stop where that is rejected: {why}"
    source = as_shell(asked) or "NCCL_NET_FORCE_MERGE, or a topology file,"
    return f"{source} fuses NICs that do not exist, are too many, or are incompatible"
