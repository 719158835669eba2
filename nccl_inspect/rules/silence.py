"""Who went away, as the silence of processes and the addresses of lost connections tell."""

from __future__ import annotations

from nccl_inspect.event_types import BootstrapInterface
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.facts import Facts, global_ranks
from nccl_inspect.rules.statements import value

_NAME_PEERS = ("socket-closed-by-peer", "socket-recv-failed")


def fell_silent(facts: Facts, echoes: list[Notice]) -> list[LastLine]:
    """The processes that fell silent before the first echo and came to no end, if others did."""
    if facts.job.excerpt:
        return []  # what a process said last may be among the lines that were left out
    # The order of lines says something within a host only: hosts may have been put one after the other.
    first: dict[tuple[str, str], int] = {}
    for notice in echoes:
        for process, line in zip(notice.processes, notice.evidence, strict=False):  # evidence is of the first ones
            key = line.source, process.host
            first[key] = min(line.order, first.get(key, line.order))
    victims = {process for notice in echoes for process in notice.processes}
    # Several jobs in one log each have a rank 0: only what stands on the same host is about the same process.
    ended = {
        (host, rank)
        for comm in facts.job.communicators
        for host in comm.hosts
        for rank in global_ranks(comm, comm.ended)
    }
    silent = [
        last
        for last in facts.job.last_lines
        if last.ranks
        and last.process not in victims
        and not any((last.process.host, rank) in ended for rank in last.ranks)
        and last.order <= first.get((last.source, last.process.host), last.order)
    ]
    if not ended and (len(silent) != 1 or _some_are_missing(facts)):
        return []
    hosts = _hosts_lost(facts, echoes)
    return [last for last in silent if not hosts or last.process.host in hosts]


def _some_are_missing(facts: Facts) -> bool:
    """Whether ranks have no line in this log: that of one that says nothing is then no proof against it."""
    return any(len(comm.started) < comm.nranks for comm in facts.job.communicators)


def _hosts_lost(facts: Facts, echoes: list[Notice]) -> set[str]:
    """The hosts to which connections were lost, where all of these are known by their address or name."""
    known = {host.name: {host.name} for host in facts.job.hosts}
    for notice in facts.said(BootstrapInterface):
        assert isinstance(notice.event, BootstrapInterface)
        known.setdefault(str(notice.event.address).partition("<")[0], set()).update(notice.hosts)
    lost = peers_lost(echoes)
    return {host for peer in lost for host in known[peer]} if all(peer in known for peer in lost) else set()


def peers_lost(echoes: list[Notice]) -> list[str]:
    """The addresses or names to which connections were lost."""
    peers = (value(notice, "peer") for notice in echoes if notice.production in _NAME_PEERS)
    return sorted({str(peer).partition("<")[0] for peer in peers if peer})


def closed_by_others(facts: Facts) -> list[Notice]:
    """Connections to the helper thread of a rank that another one of its host closed; its own closes when it ends."""
    place = {rank: place for host in facts.job.hosts for place, rank in enumerate(sorted(host.ranks))}
    return [
        notice
        for notice in facts.notices("proxy-connection-closed")
        if not notice.ranks or any(place.get(rank) != value(notice, "local_rank") for rank in notice.ranks)
    ]


def is_last(facts: Facts, line: Evidence) -> bool:
    """Whether nothing but what launchers and schedulers say follows a line in its source."""
    last = next(source.lines for source in facts.job.sources if source.name == line.source)
    if last - line.order > _NEAR_THE_END:
        return False
    said = [*(one for notice in facts.job.notices for one in notice.evidence), *facts.job.ended_by]
    known = {one.order for one in said if one.source == line.source}
    return known.issuperset(range(line.order + 1, last + 1))


_NEAR_THE_END = 3
"""Lines that launchers and schedulers may put behind the last one of a program."""
