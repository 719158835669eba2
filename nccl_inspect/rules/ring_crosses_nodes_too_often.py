"""A ring crosses between nodes more often than necessary."""

from collections.abc import Iterator

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.facts import first_lines, global_ranks
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.model.communicators.shapes import crossings, is_closed


def find(facts: Facts) -> Iterator[Hit]:
    """Find complete rings whose ranks all have a known host, if the hosts are NCCL's nodes."""
    if facts.job.rank_space != "global" or any(kind.detail == "P2P/MNNVL" for kind in facts.job.paths.kinds):
        return  # ranks of several numberings have no host; nodes connected by NVLink are one node to NCCL
    host_of = {rank: host.name for host in facts.job.hosts for rank in host.ranks}
    for comm in facts.job.communicators:
        least = len(comm.hosts)
        if comm.nnodes not in (None, least) or not 1 < least < comm.nranks or not all(map(is_named, comm.hosts)):
            continue
        rings = [  # NCCL cuts long lines
            (crossings(ring, host_of) or 0, place)
            for place, ring in enumerate(comm.rings)
            if is_closed(ring, comm.nranks)
        ]
        worst, place = max(rings, key=lambda ring: ring[0], default=(0, 0))
        if worst > least:
            crossing = facts.paths_of(comm).where(lambda kind: kind.scope == "inter")
            yield Hit(
                named={
                    "bad": sum(number > least for number, _ in rings),
                    "rings": rings,
                    "comm": comm.id,
                    "worst": worst,
                    "least": least,
                    "share": f"{least / worst:.0%}",
                },
                ranks=global_ranks(comm, range(comm.nranks)),
                hosts=comm.hosts,
                evidence=[*comm.layout.ring(place), *comm.evidence[:2], *first_lines(crossing)[:2]],
            )
            return  # other communicators of the job have the same order
