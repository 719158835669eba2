"""Ranks of one communicator use different networks."""

from collections.abc import Iterator

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import CommunicatorInfo, Path
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import (
    Facts,
    ends,
    first_lines,
    first_said,
    global_ranks,
    hosts_of,
    ranks_word,
)
from nccl_inspect.rules.socket_instead_of_rdma import no_cards_on, without_cards
from nccl_inspect.rules.statements import value

RULE = Rule(
    name="mixed-networks",
    category="network",
    severity="error",
    title="Ranks of one communicator use different networks",
    because=("ib-bad-device", "plugin-load-failed", "plugin-not-found", "efa-provider-missing"),
    local=True,
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what ranks say they use, and connections whose two ends name different networks."""
    mixed = sorted((comm for comm in facts.job.communicators if len(comm.networks) > 1), key=lambda comm: -comm.nranks)
    crossed = [path for path in facts.paths(transport="NET") if _is_crossed(path)]
    if not mixed and not crossed:
        return
    facts.mark(crossed, RULE.name)
    refused = _refused(facts)
    names = {comm.id for comm in mixed}
    idle = not crossed and all(comm.nnodes == 1 or len(comm.hosts) == 1 for comm in mixed)
    works = not facts.job.failed and any(names & set(path.communicators) for path in facts.leaving())
    dead = bool(crossed or refused or facts.job.failed) and not idle
    stuck = bool(mixed) and not idle and not works and facts.unfinished(mixed)  # or the log was cut there
    odd = _odd_ranks(mixed)
    where = {host.name for host in facts.job.hosts if odd & set(host.ranks)}
    without = [notice for notice in without_cards(facts) if set(notice.hosts) <= where]
    lines = [line for comm in mixed[:1] for line in comm.network_lines]
    yield RULE.finding(
        f"communicator {mixed[0].id} mixes networks: {_who(mixed[0])}"
        if mixed
        else f"the two ends of a connection use different networks: {' and '.join(_both(crossed[0]))} between ranks "
        f"{crossed[0].src} and {crossed[0].dst}",
        cause=no_cards_on(without)
        if without
        else "a network plugin, a card or a setting (NCCL_NET, NCCL_IB_DISABLE, NCCL_IB_HCA) is there on some ranks "
        "only",
        impact="none as long as no path of this communicator uses the network"
        if idle
        else "ranks of different networks cannot connect: NCCL stops or waits for ever"
        if dead or not works
        else "connections between these ranks fail; those that this log shows happen to join ranks of one network",
        fix=[
            *([f"Repair {ranks_word(odd)}: the lines before 'Using network' say what failed there."] if odd else []),
            "NCCL_NET=IB   # (or Libfabric, …) makes every rank fail early instead of falling back",
            "env | grep NCCL_; ls /dev/infiniband   # in each pod: same image, device resources and variables?",
        ],
        severity="info" if idle else "error" if dead or not works else "warning",
        confidence="certain" if mixed and (dead or idle) else "likely",
        ranks=odd or ends(crossed),
        hosts=where or {host for comm in mixed[:1] for host in comm.hosts} or hosts_of(crossed),
        evidence=[*first_said(without)[:1], *lines, *first_lines(crossed)[:2], *refused[:2]],
        fatal=dead or stuck,
    )


def _is_crossed(path: Path) -> bool:
    """Whether one communicator shows two networks for one pair: each end prints its own."""
    return not path.guessed and any(
        other.transport == "NET" and other.detail != path.detail and set(other.communicators) & set(path.communicators)
        for other in path.also
    )


def _both(path: Path) -> list[str]:
    return [path.detail, *(other.detail for other in path.also if other.transport == "NET")]


def _refused(facts: Facts) -> list[Evidence]:
    """What NCCL prints where a connection of one network meets a listener of another."""
    wrong_type = [n for n in facts.notices("socket-wrong-magic") if value(n, "got_type") is not None]
    return first_said([*wrong_type, *facts.notices("socket-address-family", "socket-address-family-init")])


def _odd_ranks(mixed: list[CommunicatorInfo]) -> set[int]:
    """The ranks that are not of the largest group; of equally large ones Socket, what is left when all else fails."""
    for comm in mixed:
        (_, most), *rest = sorted(comm.networks.items(), key=lambda group: (-len(group[1]), group[0] == "Socket"))
        if len(most) > len(rest[0][1]) or rest[0][0] == "Socket":
            return {rank for _, ranks in rest for rank in global_ranks(comm, ranks)}
    return set()


def _who(comm: CommunicatorInfo) -> str:
    return "; ".join(f"{net} on {ranks_word(global_ranks(comm, ranks))}" for net, ranks in comm.networks.items())
