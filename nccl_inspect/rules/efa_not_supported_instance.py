"""aws-ofi-nccl is loaded, finds no EFA, and none is needed."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import hosts_in
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import CommunicatorInfo


def find(facts: Facts) -> Iterator[Hit]:
    """Find a failed search for a provider if the machine has no EFA, or the whole job is on one host."""
    failed = facts.with_role("searches-failed")
    platform = facts.platform
    without = platform is not None and platform.network not in (None, "efa")
    alone = bool(facts.job.communicators) and all(map(_is_on_one_host, facts.job.communicators))
    alone = alone and hosts_in(failed) <= {host for comm in facts.job.communicators for host in comm.hosts}
    if failed and not facts.job.failed and (without or alone):
        known = ("without EFA", *(("across hosts",) if facts.spans_hosts() else ())) if without else ()
        named = {"platform": platform.name, "network": str(platform.network)} if platform else {}
        yield Hit(failed, named, known)


def _is_on_one_host(comm: CommunicatorInfo) -> bool:
    if comm.nnodes is not None:
        return comm.nnodes == 1
    return len(comm.hosts) == 1 and len(comm.completed) == comm.nranks
