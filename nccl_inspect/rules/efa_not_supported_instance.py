"""aws-ofi-nccl is loaded, finds no EFA, and none is needed."""

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.judging.facts import hosts_in
from nccl_inspect.model.job import CommunicatorInfo

RULE = Rule(
    name="efa-not-supported-instance",
    category="plugins",
    cloud="AWS",
    severity="info",
    title="aws-ofi-nccl is loaded on a machine without EFA, or for a single host",
    supersedes=("efa-init-failed", "efa-provider-missing"),
)


def judge(facts: Facts) -> Results:
    """Judge a failed search for a provider if the machine has no EFA, or the whole job is on one host."""
    failed = facts.with_role("searches-failed")
    network = facts.platform.network if facts.platform else None
    without = network not in (None, "efa")
    alone = bool(facts.job.communicators) and all(map(_is_on_one_host, facts.job.communicators))
    alone = alone and hosts_in(failed) <= {host for comm in facts.job.communicators for host in comm.hosts}
    if not failed or facts.job.failed or not (without or alone):
        return
    yield RULE.finding(
        "aws-ofi-nccl finds no EFA, and none is needed",
        cause=f"{facts.platform.name if facts.platform else ''} has no EFA; its network is {network}"
        if without
        else "all ranks are on one host, where NCCL uses no network",
        impact="none: NCCL continues without the plugin"
        + (", over the network of the machine" if without and facts.spans_hosts() else ""),
        fix=["NCCL_NET_PLUGIN=none   # skips the plugin and its warnings"],
        confidence="certain" if without else "likely",
        notices=failed,
    )


def _is_on_one_host(comm: CommunicatorInfo) -> bool:
    if comm.nnodes is not None:
        return comm.nnodes == 1
    return len(comm.hosts) == 1 and len(comm.completed) == comm.nranks
