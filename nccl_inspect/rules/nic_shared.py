"""Ranks of a host share one NIC while others are idle."""

from collections.abc import Iterator
from itertools import islice

from nccl_inspect.judging.engine import Evidence, Facts, Results, Rule
from nccl_inspect.judging.facts import HOSTS, RANKS, as_shell, evidence_of_settings
from nccl_inspect.judging.impact import estimate, nic
from nccl_inspect.judging.networks.nic_use import Idle, Shared, idle
from nccl_inspect.util.wording import be, count, ranks_word, some_names

RULE = Rule(
    name="nic-shared",
    category="topology",
    severity="warning",
    title="GPUs of a host share a NIC while others are idle",
    shows=("shared-nic",),
    supersedes=("nic-unused",),
)
_QUOTED = 2
"""Ranks and hosts that the evidence shows."""


def judge(facts: Facts) -> Results:
    """Judge hosts with idle NICs for NCCL, where several ranks use the same single NIC."""
    hosts = [(idle_host, idle_host.shared) for idle_host in idle(facts) if idle_host.meant and idle_host.shared]
    if not hosts:
        return
    hosts.sort(key=lambda idle_host: -len(idle_host[1].ranks))
    first, shared = hosts[0]
    policy = facts.user_settings("NCCL_NETDEVS_POLICY", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
    others = f" (the same on {count(len(hosts) - 1, 'other host')})" if len(hosts) > 1 else ""
    yield RULE.finding(
        f"{ranks_word(shared.ranks)} of {first.host.name} share {first.shared_name} while {some_names(first.names)} "
        f"{be(len(first.names))} idle{_absent(first)}{others}",
        cause=f"{as_shell(policy)} may limit the choice"
        if policy
        else "unknown from this log; likely: "
        "NCCL does not see that an idle NIC is close to a GPU (virtual machine without a topology "
        "file, NIC on another PCIe switch)",
        impact=estimate(
            f"{count(len(shared.ranks), 'rank')} share the bandwidth of one NIC, {nic(100)} at 100 Gb/s", nic(100)
        ),
        fix=[
            "NCCL_TOPO_DUMP_FILE=/tmp/topo.xml   # with nvidia-smi topo -m: which NIC is close to which GPU?",
            "Virtual machines: give NCCL the provider's topology file (NCCL_TOPO_FILE).",
            "NCCL_NETDEVS_POLICY=ALL   # 2.28 and later: each GPU uses all NICs closest to it",
        ],
        confidence="likely",
        ranks=[rank for _, shared in hosts for rank in shared.ranks],
        hosts=[idle_host.host.name for idle_host, _ in hosts],
        evidence=[
            *(idle_host.evidence for idle_host, _ in hosts[:_QUOTED]),
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


def _absent(idle_host: Idle) -> str:
    """A note on ranks of the host whose lines the log lacks: each may use one of the idle NICs."""
    return f", except for {count(idle_host.absent, 'rank')} not in the log" if idle_host.absent else ""
