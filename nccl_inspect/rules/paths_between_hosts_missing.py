"""The log shows only connections within hosts of a communicator that spans several hosts."""

from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import global_ranks
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.job import CommunicatorInfo


def find(facts: Facts) -> Iterator[Hit]:
    """Find communicators with ranks of several hosts in the log: their rings cross hosts."""
    if comms := [comm for comm in facts.job.communicators if _is_cut_short(facts, comm)]:
        hosts = sorted({host for comm in comms for host in comm.hosts})
        unseen = next((comm for comm in comms if len(comm.started) < comm.nranks), None)
        yield Hit(
            named={
                "hosts": hosts,
                "names": [comm.id for comm in comms],
                "nets": sorted({net for comm in comms for net in comm.networks}),
                "unseen": unseen and unseen.id,
                "seen": unseen and len(unseen.started),
                "nranks": unseen and unseen.nranks,
            },
            ranks=[rank for comm in comms for rank in global_ranks(comm, comm.started)],
            hosts=hosts,
            evidence=[line for comm in comms for line in (comm.network_lines or comm.evidence)[:1]],
        )


def _is_cut_short(facts: Facts, comm: CommunicatorInfo) -> bool:
    """Whether it has paths within hosts only, and these cannot all be another communicator's."""
    if len(comm.hosts) < 2 or comm.guessed or not all(map(is_named, comm.hosts)):
        return False
    paths = facts.paths_of(comm)
    return bool(paths) and all(kind.scope == "intra" for kind in paths.kinds)
