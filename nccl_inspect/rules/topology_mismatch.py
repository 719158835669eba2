"""The ranks do not agree on the topology, or NCCL found no order for it."""

from nccl_inspect.judging.engine import Facts, Finding, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import as_shell, evidence_of_settings
from nccl_inspect.judging.hardware.topology_faults import COMPARE, Fault, fault_of, finished_init

RULE = Rule(
    name="topology-mismatch",
    category="environment",
    layer=Layer.RESOURCE,
    title="NCCL found no rings or trees for the topology that the ranks see",
    may_cause=("few-channels", "ring-crosses-nodes"),
    shows=("topology-differs",),
)
_RING_AND_TREES = range(1, 5)
"""Numbers of the patterns that every job needs; higher numbers are NVLS and CollNet."""
_OLD = "nccl/ring-search-old"
_OLD_ENDS = ("Could not find transport", "links mismatch", "Recursive P2P", "CUDA device")
_OLD_COSTS = ("falling back on simple ring", "Disabling other rings", "found in group")
"""Up to 2.4: messages that return an error, and those that lead to a slow order; others only limit numbers."""
_DIFFERENT = Fault(
    "the ranks' parts do not form a ring or a tree",
    "every rank computes its part separately, and the parts do not match: nodes with different NICs or GPUs, a "
    "different NCCL_TOPO_FILE or NCCL release on some of them, or different settings",
)
_NO_ORDER = Fault(
    "NCCL found no ring or tree for this machine and took a simple order with one channel",
    "no path between GPUs, or from GPUs to a NIC, satisfies the search: a topology file that does not match, hidden "
    "NICs, or a virtual machine that hides the PCI tree",
)
_FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")


def judge(facts: Facts) -> Results:
    """Judge faults that stop the job, first rings that do not close, and searches that found nothing."""
    broken = [*facts.with_role("rings-broken"), *_old(facts, _OLD_ENDS)]
    faults = [notice for notice in facts.errors_of_rule(RULE.name) if notice.production != _OLD]
    if broken:
        yield _finding(facts, [*broken, *faults], _DIFFERENT)
    elif faults:
        yield _finding(facts, faults, fault_of(faults[0]))
    elif simple := [*_without_order(facts), *_old(facts, _OLD_COSTS)]:
        yield RULE.finding(
            _NO_ORDER.what,
            cause=_NO_ORDER.cause,
            impact="one channel, and an order that ignores links: far below the hardware's performance",
            fix=COMPARE,
            severity="warning",
            confidence="likely",
            notices=simple,
        )


def _without_order(facts: Facts) -> list[Notice]:
    return [notice for notice in facts.notices("nccl/topology-no-path") if value(notice, "pattern") in _RING_AND_TREES]


def _old(facts: Facts, parts: tuple[str, ...]) -> list[Notice]:
    return [notice for notice in facts.notices(_OLD) if any(part in notice.message for part in parts)]


def _finding(facts: Facts, errors: list[Notice], fault: Fault) -> Finding:
    files = facts.settings(*_FILES)
    survived = finished_init(facts)
    return RULE.finding(
        f"{fault.what}: {errors[0].message}",
        cause=f"{fault.cause}. {as_shell(files)} is set here" if files else fault.cause,
        impact="none in this log: the ranks came up with it" if survived else "the initialization fails on all ranks",
        fix=[*(f"unset {setting.name}   # as a test: {setting.value}" for setting in files[:2]), *fault.fix, *COMPARE],
        severity="info" if survived else "error",
        confidence="likely",
        notices=errors,
        evidence=[*first_evidence(errors), *evidence_of_settings(files, 1)],
        fatal=not survived,
    )
