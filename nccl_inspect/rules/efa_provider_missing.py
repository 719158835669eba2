"""aws-ofi-nccl finds no usable libfabric provider: no EFA device, or a libfabric without EFA."""

from functools import partial

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ErrorCascade, OfiProvider
from nccl_inspect.judging.engine import Facts, Needs, Notice, Results, Rule
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.networks.fabrics import dies_silently
from nccl_inspect.judging.remedies import EFA_CHECK, EFA_IN_POD, LOCKED_MEMORY_IN_POD

RULE = Rule(
    name="efa-provider-missing",
    category="plugins",
    cloud="AWS",
    title="aws-ofi-nccl finds no usable libfabric provider",
    may_cause=("mixed-networks", "no-efa", "no-network"),
    shows=("no-efa-device",),
    supersedes=("efa-init-failed",),
    nest_under_effect=True,
    local=True,
)
_ONE_SEARCH_FAILED = "aws-ofi-nccl/ofi-no-eligible-providers"
_CONFIRM = "Run 'lspci | grep -i elastic' on the node: does it have EFA? Images include the plugin without EFA as well."


def judge(facts: Facts) -> Results:
    """Judge the end of the search: 'No eligible providers' alone is normal, as RDMA is tried before SENDRECV.

    Slingshot has no EFA: socket-instead-of-rdma reports what is missing there.
    """
    if slingshot.signs(facts):
        return
    searched = facts.notices(_ONE_SEARCH_FAILED)
    missing = facts.with_role("searches-failed")
    failed = [n for n in facts.plugin("NET", "failed") if n.event and n.event.dialect == "aws-ofi-nccl"]
    providers = facts.with_event(OfiProvider)
    if not (missing or (searched and failed)):
        if searched and not providers and not _in_use(facts):
            yield RULE.undecided(
                "one search of aws-ofi-nccl for a provider failed; the log does not show how the next one ended",
                Needs("the lines up to 'Selected provider is' or 'initialization failed', and 'Using network'"),
            )
        return
    served = {rank for notice in providers for rank in notice.ranks}
    hosts = {host for notice in providers for host in notice.hosts}
    notices = [*searched, *missing]
    unserved = [
        n
        for n in notices
        if not providers or (n.ranks and set(n.ranks) - served) or (not n.ranks and set(n.hosts) - hosts)
    ]
    if not unserved:
        return
    silent = not facts.job.paths and _is_last(facts, unserved)
    stopped = silent and dies_silently(facts)
    ranks = {rank for notice in unserved for rank in notice.ranks} - served
    finding = partial(RULE.finding, fatal=stopped, confidence="likely" if stopped else "certain")
    clue = partial(RULE.clue, confirm=_CONFIRM, severity="warning")
    result = finding if stopped or _is_needed(facts) else clue
    yield result(
        "aws-ofi-nccl found no usable provider: no EFA device, or a libfabric without EFA",
        cause="no EFA device in the container (vpc.amazonaws.com/efa not requested, /dev/infiniband not mounted), or a "
        "libfabric built without the efa provider",
        impact=_impact(stopped, silent),
        fix=[
            EFA_CHECK,
            EFA_IN_POD,
            LOCKED_MEMORY_IN_POD,
            "unset FI_PROVIDER   # and put the libfabric of the EFA installer first on LD_LIBRARY_PATH",
        ],
        ranks=ranks,
        hosts={host for notice in unserved for host in notice.hosts},
        evidence=[notice.evidence[0] for notice in (*unserved[:3], *failed[:2])],
    )


def _impact(stopped: bool, silent: bool) -> str:
    if stopped:
        return (
            "the plugin does not initialize, and NCCL prints nothing more: NCCL 2.28.9 is known to die here without "
            "an error; a log cut off here looks the same"
        )
    end = ", unless it ended here like this log" if silent else ""
    return f"the plugin does not initialize; NCCL falls back to InfiniBand or TCP{end}"


def _is_needed(facts: Facts) -> bool:
    """Whether the machine should have EFA, or hosts communicate without it: other images also include the plugin."""
    on_efa = facts.platform is not None and facts.platform.network == "efa"
    return on_efa or bool(facts.paths(transport="NET")) or facts.job.failed


def _in_use(facts: Facts) -> bool:
    """Whether a connection over libfabric shows that a provider was found in the end."""
    return any("Libfabric" in kind.detail for kind in facts.paths(transport="NET").kinds)


def _is_last(facts: Facts, unserved: list[Notice]) -> bool:
    """Whether the processes that found no provider print nothing after the failure of the plugin."""
    who = {process for notice in unserved for process in notice.processes}
    last_lines: dict[Process, int] = {}
    for notice in (*unserved, *facts.plugin("NET", "failed"), *facts.with_event(ErrorCascade)):
        for process, last in zip(notice.processes, notice.until, strict=True):
            last_lines[process] = max(last, last_lines.get(process, 0))
    return all(last.order <= last_lines.get(last.process, 0) for last in facts.job.last_lines if last.process in who)
