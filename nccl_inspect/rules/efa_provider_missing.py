"""aws-ofi-nccl finds no usable libfabric provider: no EFA device, or a libfabric without EFA."""

from collections.abc import Iterator

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ErrorCascade, OfiPlatform, OfiProvider
from nccl_inspect.judging.engine import Facts, Notice, first_evidence
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.networks.fabrics import dies_silently
from nccl_inspect.judging.page_words import Hit

_NOT_AWS = "Default"
"""What the plugin calls a machine that is not one of AWS."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find the end of the search: 'No eligible providers' alone is normal, as RDMA is tried before SENDRECV.

    Slingshot has no EFA: socket-instead-of-rdma reports what is missing there.
    """
    if slingshot.signs(facts):
        return
    searched, missing = facts.notices("aws-ofi-nccl/ofi-no-eligible-providers"), facts.with_role("searches-failed")
    failed = [n for n in facts.plugin("NET", "failed") if n.event and n.event.dialect == "aws-ofi-nccl"]
    providers, net = facts.with_event(OfiProvider), facts.paths(transport="NET")
    if not (missing or (searched and failed)):
        if searched and not providers and not any("Libfabric" in kind.detail for kind in net.kinds):
            yield Hit(known=("open",))
        return
    served = {rank for notice in providers for rank in notice.ranks}
    hosts = {host for notice in providers for host in notice.hosts}
    unserved = [
        n
        for n in (*searched, *missing)
        if not providers or (n.ranks and set(n.ranks) - served) or (not n.ranks and set(n.hosts) - hosts)
    ]
    if not unserved:
        return
    silent = not facts.job.paths and _is_last(facts, unserved)
    stopped = silent and dies_silently(facts)
    # Without hosts that communicate over another network, the machine may not have EFA: other images have the plugin.
    on_efa = facts.platform is not None and facts.platform.network == "efa"
    elsewhere = facts.with_event(OfiPlatform, lambda event: event.platform == _NOT_AWS)
    named = {
        "silent": silent,
        "stopped": stopped,
        "needed": stopped or on_efa or net or facts.job.failed,
        "elsewhere": [] if on_efa else elsewhere,
    }
    ranks = {rank for notice in unserved for rank in notice.ranks} - served
    yield Hit(unserved, named, ranks=ranks, evidence=first_evidence([*unserved[:3], *failed[:2]]))


def _is_last(facts: Facts, unserved: list[Notice]) -> bool:
    """Whether the processes that found no provider print nothing after the failure of the plugin."""
    who = {process for notice in unserved for process in notice.processes}
    last_lines: dict[Process, int] = {}
    for notice in (*unserved, *facts.plugin("NET", "failed"), *facts.with_event(ErrorCascade)):
        for process, last in zip(notice.processes, notice.until, strict=True):
            last_lines[process] = max(last, last_lines.get(process, 0))
    return all(last.order <= last_lines.get(last.process, 0) for last in facts.job.last_lines if last.process in who)
