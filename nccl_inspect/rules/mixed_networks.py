"""Ranks of one communicator use different networks."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging.engine import Evidence, Facts, Finding, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import first_lines, global_ranks, hosts_in, hosts_of_paths, hosts_with, ranks_of_paths
from nccl_inspect.judging.networks import fabrics
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER, RDMA_IN_POD
from nccl_inspect.model.job import CommunicatorInfo, Path, PathKind, Selection
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import ranks_word, some_names

RULE = Rule(
    name="mixed-networks",
    category="network",
    title="Ranks of one communicator use different networks",
    may_cause=("stage", "wait", "no-efa", "no-ib"),
    shows=("mixed-networks",),
    local=True,
)

_EARLY = "NCCL_NET=IB   # (or Libfabric, …) every rank fails early instead of falling back"
_ALIKE = "env | grep NCCL_; ls /dev/infiniband   # in each pod: same image, device resources and variables?"
_SOME_ONLY = "a network plugin, a card or a setting (NCCL_NET, NCCL_IB_DISABLE, NCCL_IB_HCA) exists on some ranks only"
_NEVER = "ranks on different networks cannot connect: NCCL stops or waits forever"
_BY_CHANCE = "connections between these ranks fail; those in this log happen to connect ranks on the same network"


def judge(facts: Facts) -> Results:
    """Judge the networks that ranks use, and connections whose two ends name different networks.

    Where neither is in the log, a refused connection shows it, or hosts of which only some have cards.
    """
    mixed = sorted((comm for comm in facts.job.communicators if len(comm.networks) > 1), key=lambda comm: -comm.nranks)
    crossed = facts.paths(transport="NET").where(lambda kind: kind.also).only(("kind", "communicators"), _is_crossed)
    if not mixed and not crossed:
        yield from _met(facts) if fabrics.network_mismatches(facts) else _clue(facts)
        return
    refused, odd = _refused(facts), _odd_ranks(mixed)
    outcome = _outcome(facts, mixed, crossed, bool(refused))
    where = set(hosts_with(facts.job, odd))
    without = [notice for notice in fabrics.without_cards(facts) if set(notice.hosts) <= where]
    lines = [line for comm in mixed[:1] for line in comm.network_lines]
    yield RULE.finding(
        _summary(mixed, crossed),
        cause=fabrics.no_cards_on(without) if without else _SOME_ONLY,
        impact=outcome.impact,
        fix=[
            *([f"Repair {ranks_word(odd)}: see what failed in the lines before 'Using network'."] if odd else []),
            _EARLY,
            _ALIKE,
        ],
        severity=outcome.severity,
        confidence="certain" if mixed and outcome.is_shown else "likely",
        ranks=odd or ranks_of_paths(crossed),
        hosts=where or {host for comm in mixed[:1] for host in comm.hosts} or hosts_of_paths(crossed),
        evidence=[*first_evidence(without)[:1], *lines, *first_lines(crossed)[:2], *refused[:2]],
        fatal=outcome.is_fatal,
        paths=crossed,
    )


@frozen
class _Outcome(Frozen):
    """Holds what happened to communicators with several networks."""

    severity: str
    impact: str
    is_shown: bool = True
    is_fatal: bool = False


def _outcome(facts: Facts, mixed: list[CommunicatorInfo], crossed: Selection, is_refused: bool) -> _Outcome:
    if not crossed and all(comm.nnodes == 1 or len(comm.hosts) == 1 for comm in mixed):
        return _Outcome("info", "none while no path of this communicator uses the network")
    names = {comm.id for comm in mixed}
    works = not facts.job.failed and any(
        names.intersection(comms) for (comms,) in facts.inter_host_net_paths().distinct("communicators")
    )
    is_dead = bool(crossed) or is_refused or facts.job.failed
    if works and not is_dead:
        return _Outcome("warning", _BY_CHANCE, is_shown=False)
    is_stuck = bool(mixed) and not works and facts.none_initialized(mixed) and not facts.job.excerpt  # or it was cut
    return _Outcome("error", _NEVER, is_shown=is_dead, is_fatal=is_dead or is_stuck)


def _summary(mixed: list[CommunicatorInfo], crossed: Selection) -> str:
    if mixed:
        return f"communicator {mixed[0].id} mixes networks: {_who(mixed[0])}"
    networks = " and ".join(_both(crossed[0]))
    return (
        f"the two ends of a connection use different networks: {networks} between ranks "
        f"{crossed[0].src} and {crossed[0].dst}"
    )


def _met(facts: Facts) -> Iterator[Finding]:
    """Judge refused connections alone: a rank passes on its address in the format of its own network."""
    notices = fabrics.network_mismatches(facts)
    typed = [notice for notice in notices if value(notice, "got_type") is not None]
    peer, own = (
        (fabrics.NETWORK_TYPES[value(typed[0], name)] for name in ("got_type", "expected_type")) if typed else ("", "")
    )
    failed = [
        notice for notice in facts.plugin("NET", "failed") if not set(notice.processes) & set(notices[0].processes)
    ]
    yield RULE.finding(
        f"a rank that uses {peer} connects to one that uses {own}"
        if typed
        else "a rank received an address of another network",
        cause=_SOME_ONLY + ("" if typed else "; less often the ranks run different NCCL releases"),
        impact="ranks on different networks cannot connect: NCCL stops",
        fix=[_ALIKE, _EARLY],
        confidence="likely" if typed or failed or facts.plugin("NET", "failed") else "possible",
        notices=notices,
        evidence=first_evidence([*notices[:3], *failed[:1]]),
        fatal=True,
    )


def _clue(facts: Facts) -> Iterator[Finding]:
    """Before hosts connect: some have cards that NCCL can use, and others have none."""
    without = fabrics.without_cards(facts)
    is_stated = any(comm.networks for comm in facts.job.communicators)
    if not without or is_stated or facts.paths(transport="NET"):
        return
    others = fabrics.card_lists(facts)
    yield RULE.clue(
        f"NCCL can use InfiniBand or RoCE cards on {some_names(sorted(hosts_in(others)))}, but none on "
        f"{some_names(sorted(hosts_in(without)))}",
        cause=fabrics.no_cards_on(without),
        impact=_NEVER,
        fix=[_ALIKE, RDMA_IN_DOCKER, RDMA_IN_POD, _EARLY],
        confirm="Compare 'Using network' on these hosts: all must name the same network.",
        notices=without,
        evidence=first_evidence([*without[:2], *others[:2]]),
    )


def _is_crossed(kind: PathKind, communicators: tuple[str, ...]) -> bool:
    """Whether one communicator shows two networks for one pair: each end prints its own."""
    return not kind.guessed and any(
        other.transport == "NET"
        and other.detail != kind.detail
        and not set(other.communicators).isdisjoint(communicators)
        for other in kind.also
    )


def _both(path: Path) -> list[str]:
    return [path.detail, *(other.detail for other in path.also if other.transport == "NET")]


def _refused(facts: Facts) -> list[Evidence]:
    """NCCL's lines where a connection of one network reaches a listener of another."""
    wrong_type = [n for n in facts.with_role("stranger") if value(n, "got_type") is not None]
    return first_evidence([*wrong_type, *facts.with_role("garbled-address")])


def _odd_ranks(mixed: list[CommunicatorInfo]) -> set[int]:
    """The ranks outside the largest group; among equally large ones those on Socket, the last resort."""
    for comm in mixed:
        (_, most), *rest = sorted(comm.networks.items(), key=lambda group: (-len(group[1]), group[0] == "Socket"))
        if len(most) > len(rest[0][1]) or rest[0][0] == "Socket":
            return {rank for _, ranks in rest for rank in global_ranks(comm, ranks)}
    return set()


def _who(comm: CommunicatorInfo) -> str:
    return "; ".join(f"{net} on {ranks_word(global_ranks(comm, ranks))}" for net, ranks in comm.networks.items())
