"""Which ranks went away where nobody reports it, by the silence of processes and the connections that others lost."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging import exceptions, watchdog
from nccl_inspect.judging.actors import actors_of
from nccl_inspect.judging.exceptions import absent_ranks
from nccl_inspect.judging.facts import Facts, first_of_each, global_ranks, once
from nccl_inspect.judging.statements import FLUSHED, value
from nccl_inspect.judging.transfers import NO_ANSWER, echoes_of_another, is_building, lost_peers, unanswered_connections
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.times import line_seconds

_RESETS = ("reset by peer", "Broken pipe", *NO_ANSWER)
"""Errors of a call that failed only because the other side is gone."""
_NAME_PEERS = ("nccl/socket-closed-by-peer", "nccl/socket-recv-failed")
_ADDRESS = compile_later(r"[0-9A-Za-z_.:%\[\]-]+")  # plausible addresses and names: some releases print garbage there
_NAME_RANKS = {
    "nccl/proxy-operation-failed": "peer_rank",
    "nccl/proxy-call-failed": "rank",
    "nccl/uds-call-failed": "peer_rank",
    "nccl/mem-manager-peer": "rank",
}
"""Statements of survivors about an unresponsive rank, with the field that names it."""
_NAME_LOCAL_RANKS = ("nccl/proxy-connection-closed", "nccl/proxy-type-not-received")


# What shows that others are gone


@once
def closed_connections(facts: Facts) -> list[Notice]:
    """Return connections to ranks or the store that closed for no known reason."""
    failed = facts.notices("nccl/socket-recv-failed")
    resets = [notice for notice in failed if any(words in notice.message for words in _RESETS)]
    closed = [*facts.notices("nccl/socket-closed-by-peer"), *resets, *lost_peers(facts)]
    closed += exceptions.remote(facts)
    if facts.job.communicators and not any(comm.ended for comm in facts.job.communicators):
        closed += facts.notices("torch/store-lost")  # torchrun lost the agent with the store
    # A helper of old releases serves strangers, too, and who asked it for memory and left is no rank.
    helpers = tuple(one.evidence[0].text.partition(" ")[0] for one in facts.notices("nccl/remote-allocator-failed"))
    return [notice for notice in closed if notice.evidence[0].text.partition(" ")[0] not in helpers]


def loss_exceptions(facts: Facts) -> list[Notice]:
    """Return exceptions with which processes report that they lost another one."""
    echoes = exceptions.exceptions_of(facts).echoes
    return [trace.begin for trace in echoes if trace.last and not trace.last.is_termination]


@once
def given_up(facts: Facts) -> list[Notice]:
    """Return transfers that failed because of another process."""
    return [*echoes_of_another(facts), *facts.completions(FLUSHED)]


@once
def echoes_of(facts: Facts) -> list[Notice]:
    """Return all that shows that another process is gone."""
    closed = [*closed_connections(facts), *loss_exceptions(facts)]
    return [*closed, *given_up(facts), *closed_by_others(facts)]


# Who is gone


@once
def sources_in_blocks(facts: Facts) -> set[str]:
    """Return the sources in which each host has its lines together: between hosts their order says nothing."""
    spans: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for last in facts.job.last_lines:
        host = last.process.host
        first, end = spans[last.source].get(host, (last.first or last.order, 0))
        spans[last.source][host] = min(first, last.first or last.order), max(end, last.order)
    several = {source: sorted(by_host.values()) for source, by_host in spans.items() if len(by_host) > 1}
    return {source for source, here in several.items() if all(one[1] < other[0] for one, other in pairwise(here))}


class Silence(Frozen):
    """The ranks that may have gone away, by elimination."""

    gone: list[LastLine]  # the processes that did: a single one is certain; of several, one or all did
    candidates: list[int]  # ranks of which one did, if no more is known
    has_aborted: bool = False  # whether these gave up a communicator, before any other lost a connection
    has_left: bool = False  # whether these ended a communicator in order, while others still worked in it


@once
def silence_of(facts: Facts) -> Silence:
    """Return which ranks went away: those without a line after the first echo, and those that the survivors point at.

    Survivors may also be silent while they wait. Local ranks named by helper threads, ranks named by proxies and the
    hosts to which connections were lost distinguish them.
    """
    if facts.job.excerpt or watchdog.begins_late(facts):
        return Silence([], [])  # the last line of a process may have been left out
    if unanswered_connections(facts) and is_building(facts):
        return Silence([], [])  # the network failed, and those that wait are silent
    echoes = echoes_of(facts)
    if not absent_ranks(facts) and (aborted := find_early_aborts(facts)):
        return Silence(aborted, [], has_aborted=True)
    if left := _find_early_leavers(facts, echoes):
        return Silence(left, [], has_left=not exceptions.exceptions_of(facts).loose)
    # Several communicators may have a rank 0 on different hosts.
    finished = ((comm, global_ranks(comm, comm.ended)) for comm in facts.job.communicators if comm.ended)
    ended = group_values((host, ranks) for comm, ranks in finished for host in comm.hosts)
    present = _present(facts, echoes)
    silent = [
        last
        for last in facts.job.last_lines
        if last.ranks
        and last.process not in present
        and all(ranks.isdisjoint(last.ranks) for ranks in ended.get(last.process.host, ()))
    ]
    hosts, named = _hosts_lost(facts, echoes), _named_ranks(facts)
    partners = _common_partners(facts)
    left = [last for last in silent if last.process in partners] or silent
    left = [last for last in left if not hosts or last.process.host in hosts]
    left = [last for last in left if named.intersection(last.ranks)] or left
    comms = facts.job.communicators
    missing = {rank for comm in comms for rank in global_ranks(comm, comm.absent)}
    if (ended and not missing) or (len(left) == 1 and named.intersection(left[0].ranks)):
        return Silence(left, [])
    gone = {rank for last in left for rank in last.ranks}
    is_host = len(facts.job.hosts) > 1 and any(set(host.ranks) == gone for host in facts.job.hosts)
    if (len(left) == 1 or is_host) and not missing:  # else the silence of another rank proves nothing
        return Silence(left, [])
    if missing and peers_lost(echoes) and not hosts:
        gone = set()  # connections to a host that is not in the log were lost
    return Silence([], sorted(gone | missing))


def find_early_aborts(facts: Facts) -> list[LastLine]:
    """Return the processes that aborted a communicator before the first echo of their source, where they are few.

    An exception of the program ends a rank like that: the others lose it, or time out. Those abort as well, and later.
    Where a source, or the lines of a host in it that stand together, has no echo, the connections that others lost to
    its host are; if these name no host, that it lost none itself and all who first lost one can have lost it.
    """
    echoes = echoes_of(facts)
    partners = _common_partners(facts)
    lost, of_host, blocks = _hosts_lost(facts, echoes), _first_lines(echoes), sources_in_blocks(facts)
    of_source = first_of_each(line for notice in echoes for line in notice.evidence)

    def is_early(process: Process, line: Evidence) -> bool:
        here = (line.source, process.host) if line.source in blocks else None
        first = of_host.get(here) if here else of_source.get(line.source)
        if first is not None or not of_source:
            return first is None or line.order < first
        return process.host in lost or (not lost and process in partners)

    begun = (notice for notice in facts.notices("nccl/comm-start-28") if value(notice, "how") == "Abort")
    lines = [(process, line) for notice in begun for process, line in zip(notice.processes, notice.lines, strict=False)]
    hosts = {process.host for process, _ in lines if process in partners}
    if not hosts.issuperset(process.host for process in partners):
        partners = set()  # a host of which all are silent may be gone as well; on the others a launcher ended the rest
    early = {process for process, line in lines if is_early(process, line)}
    early = set() if watchdog.begins_late(facts) else early
    found = [last for last in facts.job.last_lines if last.process in early]
    return found if len(found) * 2 <= len(facts.job.last_lines) else []


@once
def _common_partners(facts: Facts) -> set[Process]:
    """Return the processes that share a communicator with each one that lost a connection first.

    They lost none themselves, and did not time out. The first ones are those of the earliest second; what comes later
    may follow from these.
    """
    lost = [
        (line_seconds(line.text), process)
        for notice in echoes_of(facts)
        for process, line in zip(notice.processes, notice.lines, strict=False)
    ]
    known = [when for when, _ in lost if when is not None]
    if not known:
        return set()
    first = {process for when, process in lost if when is not None and when < int(min(known)) + 1}
    comms_of = group_sets((begin.process, comm.id) for comm in facts.job.communicators for begin in comm.begins)
    members = {comm.id: {begin.process for begin in comm.begins} for comm in facts.job.communicators}
    common: set[Process] | None = None
    for comms in {frozenset(comms_of.get(process, ())) for process in first}:
        partners = set[Process]().union(*(members[comm] for comm in comms))
        common = partners if common is None else common & partners
    waited = watchdog.waiting_ranks(facts) | {wait.rank for wait in watchdog.waits(facts)}
    gone = (common or set()) - {process for _, process in lost}
    return {process for process in gone if actors_of(facts).actor_by_process(process) not in waited}


def _find_early_leavers(facts: Facts, echoes: Iterable[Notice]) -> list[LastLine]:
    """Return the processes that ended a communicator in order of which the others lost a connection in a call.

    They made fewer calls than those. Where most left, one made more; an exception explains more.
    """
    raised = exceptions.exceptions_of(facts)
    if raised.traces or any(one.rank is not None for one in raised.loose) or facts.with_role("succeeded"):
        return []
    lost = {process for notice in echoes for process in notice.processes}
    lost -= {process for notice in facts.notices("nccl/comm-end-steps") for process in notice.processes}
    left: set[Process] = set()
    works: set[Process] = set()  # in any communicator
    for comm in facts.job.communicators:
        gone = {begin.process for begin in comm.begins if begin.member in comm.ended and comm.state != "aborted"}
        still = {begin.process for begin in comm.begins} - gone
        is_whole = len(comm.begins) == comm.nranks
        # Without PyTorch's lines those that only wait are silent.
        has_lost = still <= lost if facts.with_role("watchdog-status") else 2 * len(still & lost) > len(still)
        if is_whole and still and has_lost and 2 * len(gone) <= comm.nranks:
            left |= gone
        works |= still
    left -= works | lost
    return [last for last in facts.job.last_lines if last.process in left and last.ranks]


def _present(facts: Facts, echoes: list[Notice]) -> set[object]:
    """Return the processes with an echo or a failed transfer, or a line or time-out after the first echo of their host.

    For a host without an echo the first one of the source counts, if its lines start before it: the logs of hosts may
    also have been concatenated. In a source without an echo the time of a time-out counts.
    """
    said = [*echoes, *facts.with_role("completion-error")]
    present: set[object] = {process for notice in said for process in notice.processes}
    first = _first_lines(echoes)
    of_source = dict(sorted(((source, order) for (source, _), order in first.items()), reverse=True))
    begins = _first_lines(facts.job.notices) if echoes else {}
    reports = _list_waits(facts)
    later = {rank for rank, line in reports if line.order > of_source.get(line.source, line.order)}
    times = (when for notice in echoes for line in notice.lines if (when := line_seconds(line.text)) is not None)
    since = min(times, default=math.inf)
    later |= {rank for rank, line in reports if line.source not in of_source and _is_after(line, since)}
    for last in facts.job.last_lines:
        place, other = (last.source, last.process.host), of_source.get(last.source)
        is_later = not later.isdisjoint(last.ranks)
        if other is not None and last.order > first.get(place, other):
            is_later |= place in first or begins.get(place, other) < other
        present |= {last.process} if is_later else set()
    return present


def _list_waits(facts: Facts) -> list[tuple[int | None, Evidence]]:
    """Return the ranks that report a time-out, or how far they came by then, each with its line."""
    waits = [(wait.rank, wait.notice.evidence[0]) for wait in watchdog.waits(facts)]
    return [*waits, *((status.rank, status.notice.evidence[0]) for status in watchdog.statuses(facts))]


def _is_after(line: Evidence, seconds: float) -> bool:
    """Return whether a line was printed after a time, as far as it shows its own."""
    when = line_seconds(line.text)
    return when is not None and when > seconds


def _first_lines(notices: Iterable[Notice]) -> dict[tuple[str, str], int]:
    first: dict[tuple[str, str], int] = {}
    for notice in notices:
        for process, line in zip(notice.processes, notice.evidence, strict=False):  # evidence is of the first ones
            key = line.source, process.host
            first[key] = min(line.order, first.get(key, line.order))
    return first


def _named_ranks(facts: Facts) -> set[int]:
    """Return the ranks that helper threads and proxies of others name as gone or failed."""
    named = {value(notice, field) for name, field in _NAME_RANKS.items() for notice in facts.notices(name)}
    named = named.union(*(local_ranks(facts, notice) for notice in closed_by_others(facts)))
    return named - {None}


def local_ranks(facts: Facts, notice: Notice) -> set[int | None]:
    """Return the ranks that have the local rank that a statement names, on the hosts of those who made it."""
    return {_ranks_by_number(facts).get((host, value(notice, "local_rank"))) for host in notice.hosts}


@once
def _ranks_by_number(facts: Facts) -> dict[tuple[str, int], int]:
    """Return the ranks of each host by their number there, as helper threads name them."""
    return {(host.name, number): rank for host in facts.job.hosts for number, rank in enumerate(sorted(host.ranks))}


def _hosts_lost(facts: Facts, echoes: list[Notice]) -> set[str]:
    """Return the hosts to which connections were lost, if all are known by address or name."""
    by_address = {host.name: {host.name} for host in facts.job.hosts}
    for notice in facts.with_event(BootstrapInterface):
        by_address.setdefault(str(getattr(notice.event, "address", None)).partition("<")[0], set()).update(notice.hosts)
    lost = peers_lost(echoes)
    return {host for peer in lost for host in by_address[peer]} if all(peer in by_address for peer in lost) else set()


def peers_lost(echoes: list[Notice]) -> list[str]:
    """Return the addresses or names to which connections were lost."""
    peers = (value(notice, "peer") for notice in echoes if notice.production in _NAME_PEERS)
    names = {str(peer).partition("<")[0] for peer in peers if peer}
    return sorted(name for name in names if _ADDRESS.fullmatch(name))


@once
def closed_by_others(facts: Facts) -> list[Notice]:
    """Return connections to a rank's helper thread closed by another rank of its host; its own closes when it ends."""
    notices = facts.notices(*_NAME_LOCAL_RANKS)
    return [one for one in notices if not one.ranks or not local_ranks(facts, one).issuperset(one.ranks)]
