"""aws-ofi-nccl finds no EFA."""

from collections.abc import Iterator
from functools import partial

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ErrorCascade, OfiProvider
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.networks.fabrics import dies_here
from nccl_inspect.judging.remedies import EFA_CHECK, EFA_IN_POD, LOCKED_MEMORY_IN_POD
from nccl_inspect.model.finding import Finding, Needs, NotJudged
from nccl_inspect.model.job import Notice

RULE = Rule(
    name="efa-provider-missing",
    category="plugins",
    cloud="AWS",
    severity="error",
    title="aws-ofi-nccl finds no libfabric provider that it can use",
    causes=("mixed-networks", "socket-instead-of-efa", "socket-instead-of-rdma"),
    echoes=("network-not-found",),
    supersedes=("efa-init-failed",),
    folds=True,
    local=True,
)
_ONE_SEARCH_FAILED = "aws-ofi-nccl/ofi-no-eligible-providers"
_CONFIRM = (
    "Run 'lspci | grep -i elastic' on the node: does the machine have EFA? Images carry the plugin elsewhere, too."
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the end of the search: 'No eligible providers' alone is normal, as RDMA is tried before SENDRECV.

    On Slingshot nobody looks for EFA: socket-instead-of-rdma tells what is missing there.
    """
    if slingshot.signs(facts):
        return
    searched = facts.notices(_ONE_SEARCH_FAILED)
    missing = facts.with_role("searches-failed")
    failed = [n for n in facts.plugin("NET", "failed") if n.event and n.event.dialect == "aws-ofi-nccl"]
    chosen = facts.said(OfiProvider)
    if not (missing or (searched and failed)):
        if searched and not chosen and not _in_use(facts):
            yield RULE.undecided(
                "one search of aws-ofi-nccl for a provider failed; the log does not show how the next one ended",
                Needs("the lines up to 'Selected provider is' or 'initialization failed', and 'Using network'"),
            )
        return
    lucky = {rank for notice in chosen for rank in notice.ranks}
    hosts = {host for notice in chosen for host in notice.hosts}
    told = [*searched, *missing]
    unlucky = [
        n for n in told if not chosen or (n.ranks and set(n.ranks) - lucky) or (not n.ranks and set(n.hosts) - hosts)
    ]
    if not unlucky:
        return
    silent = not facts.job.paths and _is_last(facts, unlucky)
    stopped = silent and dies_here(facts)
    ranks = {rank for notice in unlucky for rank in notice.ranks} - lucky
    seen = partial(RULE.finding, fatal=stopped, confidence="likely" if stopped else "certain")
    stated = partial(RULE.clue, confirm=_CONFIRM, severity="warning")
    make = seen if stopped or _is_missed(facts) else stated
    yield make(
        "aws-ofi-nccl found no provider to use: no EFA device, or a libfabric without EFA",
        cause="no EFA device in the container (vpc.amazonaws.com/efa not asked for, /dev/infiniband not mounted), "
        "or a libfabric built without the efa provider",
        impact=_impact(stopped, silent),
        fix=[
            EFA_CHECK,
            EFA_IN_POD,
            LOCKED_MEMORY_IN_POD,
            "unset FI_PROVIDER   # and the libfabric of the EFA installer first on LD_LIBRARY_PATH",
        ],
        ranks=ranks,
        hosts={host for notice in unlucky for host in notice.hosts},
        evidence=[notice.evidence[0] for notice in (*unlucky[:3], *failed[:2])],
    )


def _impact(stopped: bool, silent: bool) -> str:
    if stopped:
        return (
            "the plugin does not come up; nothing of NCCL follows in this log: NCCL 2.28.9 was seen to die here "
            "without an error; a log that was cut here looks the same"
        )
    end = ", unless it ends here with this log" if silent else ""
    return f"the plugin does not come up; NCCL falls back to InfiniBand or TCP{end}"


def _is_missed(facts: Facts) -> bool:
    """Whether the machine is known to have EFA, or hosts talk without it: images elsewhere have the plugin, too."""
    on_efa = facts.platform is not None and facts.platform.network == "efa"
    return on_efa or bool(facts.paths(transport="NET")) or facts.job.failed


def _in_use(facts: Facts) -> bool:
    """Whether a connection over libfabric shows that a provider was found after all."""
    return any("Libfabric" in kind.detail for kind in facts.paths(transport="NET").kinds)


def _is_last(facts: Facts, unlucky: list[Notice]) -> bool:
    """Whether the processes that found no provider say nothing more than that the plugin failed."""
    who = {process for notice in unlucky for process in notice.processes}
    said: dict[Process, int] = {}
    for notice in (*unlucky, *facts.plugin("NET", "failed"), *facts.said(ErrorCascade)):
        for process, last in zip(notice.processes, notice.until, strict=True):
            said[process] = max(last, said.get(process, 0))
    return all(last.order <= said.get(last.process, 0) for last in facts.job.last_lines if last.process in who)
