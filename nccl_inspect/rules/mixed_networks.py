"""Ranks of one communicator use different networks."""

from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import (
    Facts,
    ends,
    first_lines,
    first_said,
    global_ranks,
    hosts_in,
    hosts_of,
    hosts_with,
)
from nccl_inspect.judging.networks.fabrics import NETWORK_TYPES, meetings, no_cards_on, without_cards
from nccl_inspect.judging.remedies import RDMA_IN_DOCKER, RDMA_IN_POD
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import CommunicatorInfo, Notice, Path, PathKind, Selection
from nccl_inspect.util.wording import ranks_word, some_names

RULE = Rule(
    name="mixed-networks",
    category="network",
    severity="error",
    title="Ranks of one communicator use different networks",
    echoes=("hang-after-init", "hang-in-init", "socket-instead-of-*", "watchdog-*"),
    local=True,
)

_EARLY = "NCCL_NET=IB   # (or Libfabric, …) makes every rank fail early instead of falling back"
_ALIKE = "env | grep NCCL_; ls /dev/infiniband   # in each pod: same image, device resources and variables?"
_SOME_ONLY = (
    "a network plugin, a card or a setting (NCCL_NET, NCCL_IB_DISABLE, NCCL_IB_HCA) is there on some ranks only"
)
_NEVER = "ranks of different networks cannot connect: NCCL stops or waits for ever"
_BY_CHANCE = "connections between these ranks fail; those that this log shows happen to join ranks of one network"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what ranks say they use, and connections whose two ends name different networks.

    Where neither is in the log, a connection that a rank refuses shows it, or hosts of which only some have cards.
    """
    mixed = sorted((comm for comm in facts.job.communicators if len(comm.networks) > 1), key=lambda comm: -comm.nranks)
    crossed = facts.paths(transport="NET").where(lambda kind: kind.also).only(("kind", "communicators"), _is_crossed)
    if not mixed and not crossed:
        yield from _met(facts) if meetings(facts) else _clue(facts)
        return
    refused, odd = _refused(facts), _odd_ranks(mixed)
    outcome = _outcome(facts, mixed, crossed, bool(refused))
    where = set(hosts_with(facts.job, odd))
    without = [notice for notice in without_cards(facts) if set(notice.hosts) <= where]
    lines = [line for comm in mixed[:1] for line in comm.network_lines]
    yield RULE.finding(
        _summary(mixed, crossed),
        cause=no_cards_on(without) if without else _SOME_ONLY,
        impact=outcome.impact,
        fix=[
            *([f"Repair {ranks_word(odd)}: the lines before 'Using network' say what failed there."] if odd else []),
            _EARLY,
            _ALIKE,
        ],
        severity=outcome.severity,
        confidence="certain" if mixed and outcome.is_shown else "likely",
        ranks=odd or ends(crossed),
        hosts=where or {host for comm in mixed[:1] for host in comm.hosts} or hosts_of(crossed),
        evidence=[*first_said(without)[:1], *lines, *first_lines(crossed)[:2], *refused[:2]],
        fatal=outcome.is_fatal,
        paths=crossed,
    )


class _Outcome(NamedTuple):
    """What became of communicators with several networks."""

    severity: str
    impact: str
    is_shown: bool = True
    is_fatal: bool = False


def _outcome(facts: Facts, mixed: list[CommunicatorInfo], crossed: Selection, is_refused: bool) -> _Outcome:
    if not crossed and all(comm.nnodes == 1 or len(comm.hosts) == 1 for comm in mixed):
        return _Outcome("info", "none as long as no path of this communicator uses the network")
    names = {comm.id for comm in mixed}
    works = not facts.job.failed and any(
        names.intersection(comms) for (comms,) in facts.leaving().distinct("communicators")
    )
    is_dead = bool(crossed) or is_refused or facts.job.failed
    if works and not is_dead:
        return _Outcome("warning", _BY_CHANCE, is_shown=False)
    is_stuck = bool(mixed) and not works and facts.unfinished(mixed)  # or the log was cut there
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
    """Judge refused connections alone: a rank passes its address on as its own network writes it."""
    said = meetings(facts)
    typed = [notice for notice in said if value(notice, "got_type") is not None]
    peer, own = (NETWORK_TYPES[value(typed[0], name)] for name in ("got_type", "expected_type")) if typed else ("", "")
    failed = [notice for notice in facts.plugin("NET", "failed") if not set(notice.processes) & set(said[0].processes)]
    yield RULE.finding(
        f"a rank that uses {peer} connects to one that uses {own}"
        if typed
        else "a rank got an address that is none of its own network",
        cause=_SOME_ONLY + ("" if typed else "; more seldom the ranks run different releases of NCCL"),
        impact="ranks of different networks cannot connect: NCCL stops",
        fix=[_ALIKE, _EARLY],
        confidence="likely" if typed or failed or facts.plugin("NET", "failed") else "possible",
        notices=said,
        evidence=first_said([*said[:3], *failed[:1]]),
        fatal=True,
    )


def _clue(facts: Facts) -> Iterator[Finding]:
    """Before hosts talk: some of them have cards that NCCL can use, and others have none."""
    without = without_cards(facts)
    known = any(comm.networks for comm in facts.job.communicators)
    if not without or known or facts.paths(transport="NET"):
        return
    others = [notice for notice in facts.said(NetDevices) if _lists_cards(notice)]
    yield RULE.clue(
        f"InfiniBand or RoCE cards that NCCL can use are on {some_names(sorted(hosts_in(others)))}, and none on "
        f"{some_names(sorted(hosts_in(without)))}",
        cause=no_cards_on(without),
        impact=_NEVER,
        fix=[_ALIKE, RDMA_IN_DOCKER, RDMA_IN_POD, _EARLY],
        confirm="Compare 'Using network' on these hosts: all must name the same network.",
        severity="warning",
        notices=without,
        evidence=first_said([*without[:2], *others[:2]]),
    )


def _lists_cards(notice: Notice) -> bool:
    return isinstance(notice.event, NetDevices) and notice.event.net == "IB" and bool(notice.event.devices)


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
    """What NCCL prints where a connection of one network meets a listener of another."""
    wrong_type = [n for n in facts.with_role("stranger") if value(n, "got_type") is not None]
    return first_said([*wrong_type, *facts.with_role("garbled-address")])


def _odd_ranks(mixed: list[CommunicatorInfo]) -> set[int]:
    """The ranks that are not of the largest group; of equally large ones Socket, what is left when all else fails."""
    for comm in mixed:
        (_, most), *rest = sorted(comm.networks.items(), key=lambda group: (-len(group[1]), group[0] == "Socket"))
        if len(most) > len(rest[0][1]) or rest[0][0] == "Socket":
            return {rank for _, ranks in rest for rank in global_ranks(comm, ranks)}
    return set()


def _who(comm: CommunicatorInfo) -> str:
    return "; ".join(f"{net} on {ranks_word(global_ranks(comm, ranks))}" for net, ranks in comm.networks.items())
