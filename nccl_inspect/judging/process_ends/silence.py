"""Who went away, as the silence of processes and the addresses of lost connections tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging.facts import Facts, global_ranks
from nccl_inspect.judging.statements import value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice

_NAME_PEERS = ("nccl/socket-closed-by-peer", "nccl/socket-recv-failed")
_ADDRESS = re.compile(r"[0-9A-Za-z_.:%\[\]-]+")
"""What may be an address or a name: some releases print bytes there that mean nothing."""
_NAME_RANKS = {
    "nccl/proxy-operation-failed": "peer_rank",
    "nccl/proxy-call-failed": "rank",
    "nccl/uds-call-failed": "peer_rank",
    "nccl/mem-manager-peer": "rank",
}
"""What survivors say of a rank that does not answer, with the field that names it."""
_NAME_LOCAL_RANKS = ("nccl/proxy-connection-closed", "nccl/proxy-type-not-received")


class Silence(NamedTuple):
    """Who may have gone away, by elimination."""

    gone: list[LastLine]
    """The processes that did: of one it is known, several went together or one of them did."""
    candidates: list[int]
    """Ranks of which one did, where no more is known."""


def fell_silent(facts: Facts, echoes: list[Notice]) -> list[LastLine]:
    """The processes that fell silent before the first echo and came to no end, if others did."""
    return silence_of(facts, echoes).gone


def silence_of(facts: Facts, echoes: list[Notice]) -> Silence:
    """Who went away: who has no line after the first echo, and whom else the survivors point at.

    Survivors may be silent, too: they wait. What their helper threads say of a local rank, the ranks that proxies name,
    the hosts to which connections were lost and the neighbors of the first victim tell them apart.
    """
    if facts.job.excerpt:
        return Silence([], [])  # what a process said last may be among the lines that were left out
    ended = _ended(facts)
    first = _first_lines(echoes)
    victims = {process for notice in echoes for process in notice.processes}
    alive = [last for last in facts.job.last_lines if last.process in victims or _is_later(facts, last, first)]
    done = [
        last
        for last in facts.job.last_lines
        if not all(ranks.isdisjoint(last.ranks) for ranks in ended.get(last.process.host, ()))
    ]
    known = {last.process for last in (*alive, *done)} | _ending(facts)
    silent = [last for last in facts.job.last_lines if last.ranks and last.process not in known]
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
    """The ranks of each communicator that came to an end, by host: runs in one log may have a rank 0 on other hosts."""
    found: dict[str, list[set[int]]] = {}
    for comm in facts.job.communicators:
        if ranks := global_ranks(comm, comm.ended):
            for host in comm.hosts:
                found.setdefault(host, []).append(ranks)
    return found


def _ending(facts: Facts) -> set[Process]:
    """The processes whose helper thread says that their own rank closed its connection: they end in order."""
    others = set(map(id, closed_by_others(facts)))
    own = (
        notice for notice in facts.notices("nccl/proxy-connection-closed") if notice.ranks and id(notice) not in others
    )
    return {process for notice in own for process in notice.processes}


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

    A host without an echo has the first one of the source, where its lines go on after that: hosts may also have been
    put one after the other.
    """
    own = first.get((last.source, last.process.host))
    if own is not None:
        return last.order > own
    of_source = first.get((last.source, ""))
    return of_source is not None and last.order > of_source and _begins_before(facts, last, of_source)


def _begins_before(facts: Facts, last: LastLine, order: int) -> bool:
    """Whether the lines of a host are mixed with those of others: it has some before a line of theirs, too."""
    return facts.once(_said_first).get((last.source, last.process.host), order) < order


def _said_first(facts: Facts) -> dict[tuple[str, str], int]:
    """Where each host says something for the first time in each source, as far as statements tell."""
    found: dict[tuple[str, str], int] = {}
    for notice in facts.job.notices:
        for process, line in zip(notice.processes, notice.evidence, strict=False):
            key = line.source, process.host
            found[key] = min(line.order, found.get(key, line.order))
    return found


def _pointed_at(facts: Facts, echoes: list[Notice], silent: list[LastLine]) -> tuple[list[LastLine], bool]:
    """Those of the silent processes at which survivors point, and whether that left one."""
    hosts = _hosts_lost(facts, echoes)
    left = [last for last in silent if not hosts or last.process.host in hosts]
    named = _named_ranks(facts)
    left = [last for last in left if named.intersection(last.ranks)] or left
    if len(silent) * 2 <= len(facts.job.last_lines):  # where few are left, one of these lost the first connection
        near = _neighbors(facts, echoes)
        left = [last for last in left if near.intersection(last.ranks)] or left
    return left, len(left) == 1 and bool(named.intersection(left[0].ranks))


def _named_ranks(facts: Facts) -> set[int]:
    """The ranks that helper threads and proxies of others name as gone or failed."""
    named = {value(notice, field) for name, field in _NAME_RANKS.items() for notice in facts.notices(name)}
    places = {(host.name, place): rank for host in facts.job.hosts for place, rank in enumerate(sorted(host.ranks))}
    for notice in closed_by_others(facts):
        named |= {places.get((host, value(notice, "local_rank"))) for host in notice.hosts}
    return {rank for rank in named if rank is not None}


def _neighbors(facts: Facts, echoes: list[Notice]) -> set[int]:
    """The ranks with which the first victim had a connection over the network; empty where none is known."""
    lost = [notice for notice in echoes if notice.production in _NAME_PEERS and notice.ranks]
    if not lost or len({notice.evidence[0].source for notice in lost}) > 1:
        return set()
    first = min(lost, key=lambda notice: notice.evidence[0].order)
    victims = {rank for last in facts.job.last_lines if last.process == first.processes[0] for rank in last.ranks}
    return {
        other
        for src, dst in facts.leaving().distinct("src", "dst")
        for one, other in ((src, dst), (dst, src))
        if one in victims
    }


def _missing(facts: Facts) -> set[int]:
    """Ranks without a line in this log: that of one that says nothing is then no proof against it."""
    return {
        rank
        for comm in facts.job.communicators
        for rank in global_ranks(comm, set(range(comm.nranks)) - set(comm.started))
    }


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
    names = {str(peer).partition("<")[0] for peer in peers if peer}
    return sorted(name for name in names if _ADDRESS.fullmatch(name))


def closed_by_others(facts: Facts) -> list[Notice]:
    """Connections to the helper thread of a rank that another one of its host closed; its own closes when it ends."""
    place = {rank: place for host in facts.job.hosts for place, rank in enumerate(sorted(host.ranks))}
    return [
        notice
        for notice in facts.notices(*_NAME_LOCAL_RANKS)
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
