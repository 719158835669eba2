"""Ranks of a host share one NIC while others are idle."""

from collections.abc import Iterator
from itertools import islice

from nccl_inspect.judging.engine import Evidence, Facts
from nccl_inspect.judging.facts import HOSTS, RANKS, evidence_of_settings
from nccl_inspect.judging.impact import nic
from nccl_inspect.judging.networks.nic_use import Shared, idle
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import be, some_names

_QUOTED = 2
"""Ranks and hosts that the evidence shows."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find hosts with idle NICs for NCCL, where several ranks use the same single NIC."""
    hosts = [(one, one.shared) for one in idle(facts) if one.meant and one.shared]
    if hosts:
        hosts.sort(key=lambda pair: -len(pair[1].ranks))
        first, shared = hosts[0]
        policy = facts.user_settings("NCCL_NETDEVS_POLICY", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
        yield Hit(
            named={
                "ranks": shared.ranks,
                "host": first.host.name,
                "nic": first.shared_name,
                "idle": f"{some_names(first.names)} {be(len(first.names))}",
                "absent": first.absent,
                "others": hosts[1:],
                "rate": nic(100),
                "policy": policy,
            },
            ranks=[rank for _, shared in hosts for rank in shared.ranks],
            hosts=[one.host.name for one, _ in hosts],
            evidence=[
                *(one.evidence for one, _ in hosts[:_QUOTED]),
                *_connections(facts, first.host.name, shared),
                *evidence_of_settings(policy, 1)[:1],
            ],
        )


def _connections(facts: Facts, host: str, shared: Shared) -> Iterator[Evidence]:
    """A line of each of some of these ranks that names the NIC which they share."""
    paths = facts.inter_host_rdma_paths()
    for rank in sorted(shared.ranks)[:_QUOTED]:
        own = paths.only((HOSTS[shared.side], RANKS[shared.side]), lambda *end, rank=rank: end == (host, rank))
        yield from islice(own.end_lines(shared.side), 1)
