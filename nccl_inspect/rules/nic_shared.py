"""Ranks of a host use one NIC together while others are idle."""

from collections.abc import Iterator

from nccl_inspect.impact import estimate, nic
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, count, lines_of, listed, ranks_word, words_of
from nccl_inspect.rules.nic_unused import idle

RULE = Rule(
    name="nic-shared",
    category="topology",
    severity="warning",
    title="GPUs of a host share a NIC while others are idle",
    echo_of=("nic-asymmetry",),
    because=("channel-limit-by-env",),
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge hosts with idle NICs that are meant for NCCL, where several ranks have one and the same NIC only."""
    meant = [one for one in idle(facts) if one.meant]
    sharing = _sharing(_nics_of_ranks(facts)) if meant else {}
    found = [(one, sharing[one.host.name]) for one in meant if one.host.name in sharing]
    if not found:
        return
    first, ranks = found[0]
    policy = facts.chosen("NCCL_NETDEVS_POLICY", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
    others = f" (the same on {count(len(found) - 1, 'other host')})" if len(found) > 1 else ""
    yield RULE.finding(
        f"{ranks_word(ranks)} of {first.host.name} share a NIC while {listed(first.names)} is idle{others}",
        cause=f"{words_of(policy)} may limit the choice"
        if policy
        else "unknown from this log; likely: "
        "NCCL does not see that the idle NIC is near a GPU (virtual machine without a topology "
        "file, NIC on another PCIe switch)",
        impact=estimate(
            f"{count(len(ranks), 'rank')} divide the bandwidth of one NIC, {nic(100)} at 100 Gb/s", nic(100)
        ),
        fix=[
            "NCCL_TOPO_DUMP_FILE=/tmp/topo.xml   # with nvidia-smi topo -m: which NIC is near which GPU?",
            "Virtual machines: give NCCL the provider's topology file (NCCL_TOPO_FILE).",
            "NCCL_NETDEVS_POLICY=ALL   # 2.28 and later: each GPU uses all NICs that are nearest to it",
        ],
        confidence="likely",
        ranks=[rank for _, ranks in found for rank in ranks],
        hosts=[one.host.name for one, _ in found],
        evidence=[*(one.evidence for one, _ in found), *lines_of(policy, 1)],
    )


def _sharing(by_rank: dict[tuple[str, str, int], set[int]]) -> dict[str, set[int]]:
    """For each host the largest group of ranks that send, or receive, by one and the same NIC only."""
    groups: dict[tuple[str, str, int], set[int]] = {}
    for (host, side, rank), nics in by_rank.items():
        if len(nics) == 1:
            groups.setdefault((host, side, min(nics)), set()).add(rank)
    largest: dict[str, set[int]] = {}
    for (host, _side, _nic), ranks in groups.items():
        if len(ranks) > max(1, len(largest.get(host, ()))):
            largest[host] = ranks
    return largest


def _nics_of_ranks(facts: Facts) -> dict[tuple[str, str, int], set[int]]:
    """The NICs by host, side and rank; what a rank sends by another one's NIC (PXN) is not its own."""
    found: dict[tuple[str, str, int], set[int]] = {}
    for path in facts.rdma():
        for side, host, rank in (("send", path.src_host, path.src), ("receive", path.dst_host, path.dst)):
            for end in path.ends(side) if host else ():
                if end.nic_index is not None and end.pxn_rank is None:
                    found.setdefault((host or "", side, rank), set()).add(end.nic_index)
    return found
