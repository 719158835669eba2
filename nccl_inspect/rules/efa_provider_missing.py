"""aws-ofi-nccl finds no EFA."""

from collections.abc import Iterator

from nccl_inspect.event_types import OfiProvider
from nccl_inspect.model.job import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts

RULE = Rule(
    name="efa-provider-missing",
    category="plugins",
    severity="error",
    title="aws-ofi-nccl finds no libfabric provider that it can use",
)
_NONE_FOUND = ("ofi-no-eligible-providers", "ofi-no-protocol", "ofi-no-optimal-provider")


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """'No eligible providers' is normal when a provider is selected afterwards: the RDMA protocol is tried before SENDRECV."""
    missing = facts.notices(*_NONE_FOUND)
    failed = facts.plugin("NET", "failed")
    chosen = facts.said(OfiProvider)
    lucky = {rank for notice in chosen for rank in notice.ranks}
    hosts = {host for notice in chosen for host in notice.hosts}
    unlucky = [
        n for n in missing if not chosen or (n.ranks and set(n.ranks) - lucky) or (not n.ranks and set(n.hosts) - hosts)
    ]
    if not unlucky:
        return
    stopped = not facts.job.paths
    ranks = {rank for notice in unlucky for rank in notice.ranks} - lucky
    yield RULE.finding(
        "aws-ofi-nccl found no provider to use: no EFA device, or a libfabric without EFA",
        cause="no EFA device in the container (vpc.amazonaws.com/efa not asked for, /dev/infiniband not mounted), "
        "or a libfabric built without the efa provider",
        impact="the plugin does not come up; "
        + ("no connection follows in this log" if stopped else "NCCL falls back to InfiniBand or TCP"),
        fix=[
            "fi_info -p efa -t FI_EP_RDM; ls /dev/infiniband   # inside the container",
            "pod 'resources.limits: {vpc.amazonaws.com/efa: \"<NICs of the node>\"}', 'capabilities.add: [IPC_LOCK]'",
            "libfabric of the EFA installer first on LD_LIBRARY_PATH; unset FI_PROVIDER",
        ],
        ranks=ranks,
        hosts={host for notice in unlucky for host in notice.hosts},
        evidence=[notice.evidence[0] for notice in (*unlucky[:3], *failed[:2])],
        fatal=stopped,
        confidence="certain",
    )
