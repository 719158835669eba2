"""Ranks of one communicator print rings or trees that contradict each other."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import global_ranks
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find the first communicator whose ranks contradict each other; if it worked, the log is at fault."""
    odd = [comm for comm in facts.job.communicators if comm.inconsistent]
    for comm in odd[:1]:
        yield Hit(
            named={
                "comm": comm.id,
                "contradiction": comm.inconsistent[0],
                "more": comm.inconsistent[1:],
                "also": odd[1:],
                "worked": comm.state in ("connected", "destroyed") and not comm.unconnected,
            },
            ranks=global_ranks(comm, range(comm.nranks)),
            hosts=comm.hosts,
            evidence=[*comm.layout.contradiction()[:3], *comm.evidence[:2]],
        )
