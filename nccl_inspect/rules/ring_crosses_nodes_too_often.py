"""A ring crosses between nodes more often than necessary."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.engine import Facts, Finding, Results, Rule
from nccl_inspect.judging.facts import first_lines, global_ranks
from nccl_inspect.model.communicators.shapes import crossings, is_closed
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.wording import count

RULE = Rule(
    name="ring-crosses-nodes-too-often",
    category="topology",
    severity="warning",
    title="Rings cross between nodes more often than necessary",
    shows=("ring-crosses-nodes",),
)


class _Ring(NamedTuple):
    place: int
    """Among the rings of its communicator."""
    crossings: int
    """How often it goes from one host to another; 0 where a host is not known."""


def judge(facts: Facts) -> Results:
    """Judge complete rings whose ranks all have a known host, if the hosts are NCCL's nodes."""
    if facts.job.rank_space != "global" or any(kind.detail == "P2P/MNNVL" for kind in facts.job.paths.kinds):
        return  # ranks of several numberings have no host; nodes connected by NVLink are one node to NCCL
    host_of = {rank: host.name for host in facts.job.hosts for rank in host.ranks}
    for comm in facts.job.communicators:
        if comm.nnodes not in (None, len(comm.hosts)) or not 1 < len(comm.hosts) < comm.nranks:
            continue
        if not all(map(is_named, comm.hosts)):
            continue
        rings = [
            _Ring(place, crossings(ring, host_of) or 0)
            for place, ring in enumerate(comm.rings)
            if is_closed(ring, comm.nranks)  # NCCL cuts long lines
        ]
        if any(ring.crossings > len(comm.hosts) for ring in rings):
            yield _finding(facts, comm, rings)
            return  # other communicators of the job have the same order


def _finding(facts: Facts, comm: CommunicatorInfo, rings: list[_Ring]) -> Finding:
    place, worst = max(rings, key=attrgetter("crossings"))
    bad = sum(ring.crossings > len(comm.hosts) for ring in rings)
    crossing = facts.paths_of(comm).where(lambda kind: kind.scope == "inter")
    return RULE.finding(
        f"{bad} of {count(len(rings), 'ring')} of communicator {comm.id} cross between hosts up to {worst} times; "
        f"{len(comm.hosts)} times are enough",
        cause="NCCL orders the ranks of a node one after the other, so this order comes from elsewhere: a topology "
        "that NCCL could not use (simple order), a graph file, or host ids (NCCL_HOSTID) that do not match the hosts",
        impact=f"each ring uses the network {worst} times instead of {len(comm.hosts)}: about "
        f"{len(comm.hosts) / worst:.0%} of the bandwidth that the NICs allow",
        fix=[
            "Place the ranks node by node: torchrun does, mpirun with --map-by slot, srun with --distribution=block.",
            "unset NCCL_GRAPH_FILE NCCL_TOPO_FILE NCCL_RINGS NCCL_HOSTID",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH   # shows how NCCL chose the order",
        ],
        confidence="likely",
        ranks=global_ranks(comm, range(comm.nranks)),
        hosts=comm.hosts,
        evidence=[*comm.layout.ring(place), *comm.evidence[:2], *first_lines(crossing)[:2]],
    )
