"""Which ranks went away, from the silence of processes and the addresses of lost connections."""

from __future__ import annotations

from collections.abc import Mapping

from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging.facts import Facts, global_ranks, once
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice
from nccl_inspect.util.patterns import later
from nccl_inspect.util.records import Frozen, frozen

_NAME_PEERS = ("nccl/socket-closed-by-peer", "nccl/socket-recv-failed")
_ADDRESS = later(r"[0-9A-Za-z_.:%\[\]-]+")
"""Plausible addresses and names: some releases print garbage there."""
_NAME_RANKS = {
    "nccl/proxy-operation-failed": "peer_rank",
    "nccl/proxy-call-failed": "rank",
    "nccl/uds-call-failed": "peer_rank",
    "nccl/mem-manager-peer": "rank",
}
"""Statements of survivors about an unresponsive rank, with the field that names it."""
_NAME_LOCAL_RANKS = ("nccl/proxy-connection-closed", "nccl/proxy-type-not-received")


@frozen
class Silence(Frozen):
    """The ranks that may have gone away, by elimination."""

    gone: list[LastLine]
    """The processes that did: a single one is certain; of several, one or all did."""
    candidates: list[int]
    """Ranks of which one did, if no more is known."""


def silence_of(facts: Facts, echoes: list[Notice]) -> Silence:
    """Return which ranks went away: those without a line after the first echo, and those that the survivors point at.

    Survivors may also be silent while they wait. Local ranks named by helper threads, ranks named by proxies and the
    hosts to which connections were lost distinguish them.
    """
    if facts.job.excerpt:
        return Silence([], [])  # the last line of a process may have been left out
    ended = _ended(facts)
    first = _first_lines(echoes)
    victims = {process for notice in echoes for process in notice.processes}
    alive = [last for last in facts.job.last_lines if last.process in victims or _is_later(facts, last, first)]
    done = [
        last
        for last in facts.job.last_lines
        if not all(ranks.isdisjoint(last.ranks) for ranks in ended.get(last.process.host, ()))
    ]
    others = {last.process for last in (*alive, *done)}
    silent = [last for last in facts.job.last_lines if last.ranks and last.process not in others]
    left, is_pointed_at = _pointed_at(facts, echoes, silent)
    if ended or is_pointed_at:
        return Silence(left, [])
    missing = _missing(facts)
    if len(left) == 1 and not missing:
        return Silence(left, [])
    if missing and peers_lost(echoes) and not _hosts_lost(facts, echoes):
        left = []  # connections to a host that is not in the log were lost
    return Silence([], sorted({rank for last in left for rank in last.ranks} | missing))


def _ended(facts: Facts) -> dict[str, list[set[int]]]:
    """The ranks of finalized communicators, by host: several runs in a log may have a rank 0 on different hosts."""
    by_host: dict[str, list[set[int]]] = {}
    for comm in facts.job.communicators:
        if ranks := global_ranks(comm, comm.ended):
            for host in comm.hosts:
                by_host.setdefault(host, []).append(ranks)
    return by_host


def _first_lines(echoes: list[Notice]) -> dict[tuple[str, str], int]:
    """The first echo of each host in each source, and of each source."""
    first: dict[tuple[str, str], int] = {}
    for notice in echoes:
        for process, line in zip(notice.processes, notice.evidence, strict=False):  # evidence is of the first ones
            for key in ((line.source, process.host), (line.source, "")):
                first[key] = min(line.order, first.get(key, line.order))
    return first


def _is_later(facts: Facts, last: LastLine, first: Mapping[tuple[str, str], int]) -> bool:
    """Whether a process has a line after the first echo of its host.

    For a host without an echo the first one of the source counts, if its lines start before it: the logs of hosts may
    also have been concatenated.
    """
    own = first.get((last.source, last.process.host))
    if own is not None:
        return last.order > own
    of_source = first.get((last.source, ""))
    return of_source is not None and last.order > of_source and _begins_before(facts, last, of_source)


def _begins_before(facts: Facts, last: LastLine, order: int) -> bool:
    """Whether the lines of a host are interleaved with those of others: it has some before this line."""
    return _first_statements(facts).get((last.source, last.process.host), order) < order


@once
def _first_statements(facts: Facts) -> dict[tuple[str, str], int]:
    """The first statement of each host in each source."""
    first: dict[tuple[str, str], int] = {}
    for notice in facts.job.notices:
        for process, line in zip(notice.processes, notice.evidence, strict=False):
            key = line.source, process.host
            first[key] = min(line.order, first.get(key, line.order))
    return first


def _pointed_at(facts: Facts, echoes: list[Notice], silent: list[LastLine]) -> tuple[list[LastLine], bool]:
    """The silent processes that survivors point at, and whether they name a single one."""
    hosts = _hosts_lost(facts, echoes)
    left = [last for last in silent if not hosts or last.process.host in hosts]
    named = _named_ranks(facts)
    left = [last for last in left if named.intersection(last.ranks)] or left
    return left, len(left) == 1 and bool(named.intersection(left[0].ranks))


def _named_ranks(facts: Facts) -> set[int]:
    """The ranks that helper threads and proxies of others name as gone or failed."""
    named = {value(notice, field) for name, field in _NAME_RANKS.items() for notice in facts.notices(name)}
    places = {(host.name, place): rank for host in facts.job.hosts for place, rank in enumerate(sorted(host.ranks))}
    for notice in closed_by_others(facts):
        named |= {places.get((host, value(notice, "local_rank"))) for host in notice.hosts}
    return {rank for rank in named if rank is not None}


def _missing(facts: Facts) -> set[int]:
    """Ranks without a line in this log: then the silence of another rank proves nothing."""
    return {
        rank
        for comm in facts.job.communicators
        for rank in global_ranks(comm, set(range(comm.nranks)) - set(comm.started))
    }


def _hosts_lost(facts: Facts, echoes: list[Notice]) -> set[str]:
    """The hosts to which connections were lost, if all are known by address or name."""
    by_address = {host.name: {host.name} for host in facts.job.hosts}
    for notice in facts.with_event(BootstrapInterface):
        assert isinstance(notice.event, BootstrapInterface)
        by_address.setdefault(str(notice.event.address).partition("<")[0], set()).update(notice.hosts)
    lost = peers_lost(echoes)
    return {host for peer in lost for host in by_address[peer]} if all(peer in by_address for peer in lost) else set()


def peers_lost(echoes: list[Notice]) -> list[str]:
    """The addresses or names to which connections were lost."""
    peers = (value(notice, "peer") for notice in echoes if notice.production in _NAME_PEERS)
    names = {str(peer).partition("<")[0] for peer in peers if peer}
    return sorted(name for name in names if _ADDRESS.fullmatch(name))


def closed_by_others(facts: Facts) -> list[Notice]:
    """Connections to a rank's helper thread closed by another rank of its host; its own closes when it ends."""
    place = {rank: place for host in facts.job.hosts for place, rank in enumerate(sorted(host.ranks))}
    return [
        notice
        for notice in facts.notices(*_NAME_LOCAL_RANKS)
        if not notice.ranks or any(place.get(rank) != value(notice, "local_rank") for rank in notice.ranks)
    ]


def is_last(facts: Facts, line: Evidence) -> bool:
    """Whether only lines of launchers and schedulers follow a line in its source."""
    last = next(source.lines for source in facts.job.sources if source.name == line.source)
    if last - line.order > _NEAR_THE_END:
        return False
    lines = [*(entry for notice in facts.job.notices for entry in notice.evidence), *facts.job.ended_by]
    orders = {entry.order for entry in lines if entry.source == line.source}
    return orders.issuperset(range(line.order + 1, last + 1))


_NEAR_THE_END = 3
"""Lines that launchers and schedulers may print after the last one of a program."""
