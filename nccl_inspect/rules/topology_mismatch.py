"""The ranks do not agree on the topology, or NCCL found no order for it."""

from collections.abc import Iterator

from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranks_in

RULE = Rule(
    name="topology-mismatch",
    category="environment",
    severity="error",
    title="Rings or trees could not be built from what the ranks see",
    because=("topo-file-bad", "version-mismatch", "env-mismatch-across-ranks"),
)
_RING_AND_TREES = range(1, 5)
"""Numbers of the patterns that every job needs; higher ones are NVLS and CollNet."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge rings that do not close, which stop the job, and searches that found nothing, which slow it down."""
    broken = facts.notices("ring-broken", "tree-too-many-children")
    simple = [
        notice
        for notice in facts.notices("topology-no-path")
        if any(f"pattern {number}," in notice.message for number in _RING_AND_TREES)
    ]
    said = broken or simple
    if not said:
        return
    yield RULE.finding(
        f"the ranks' parts do not form a ring or a tree: {said[0].message}"
        if broken
        else "NCCL found no ring or tree for this machine and took the simple order with one channel",
        cause="every rank computes its part by itself, and the parts do not fit together: nodes with different NICs or "
        "GPUs, another NCCL_TOPO_FILE or NCCL release on some, or settings that differ"
        if broken
        else "no path between GPUs, or from GPUs to a NIC, satisfies the search: a topology file that does not fit, "
        "NICs that are not visible, or a virtual machine that hides the PCI tree",
        impact="the initialisation fails on all ranks"
        if broken
        else "one channel, and an order that ignores links: far below what the hardware can do",
        fix=[
            "NCCL_TOPO_DUMP_FILE=/tmp/topo.%h.xml   # on each node, then diff the files",
            "nvidia-smi topo -m; ibv_devinfo -l   # on each node: the same GPUs and NICs everywhere?",
            "unset NCCL_TOPO_FILE NCCL_GRAPH_FILE   # and one NCCL release on all nodes",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH   # on all ranks",
        ],
        severity="error" if broken else "warning",
        confidence="likely",
        ranks=ranks_in(said),
        hosts=hosts_in(said),
        evidence=first_said(said),
        fatal=bool(broken),
    )
