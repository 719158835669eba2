"""Connections and transfers between hosts that failed, and whether the ranks connected all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nccl_inspect.event.types import NetDevices, OfiProvider
from nccl_inspect.judging.facts import Facts, hosts_in, once, precedes
from nccl_inspect.judging.networks import libfabric_paths, listed_interfaces, slingshot_signs
from nccl_inspect.judging.statements import error_of, list_table, value
from nccl_inspect.model.job import Notice
from nccl_inspect.util.grouping import group_sets
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.wording import list_words


class Transfer(Frozen):
    """A transfer that failed between two hosts."""

    host: str  # the host that reports it
    peer: str
    nic: str | None  # the NIC of the host


def failed_transfers(facts: Facts, notices: Iterable[Notice]) -> list[Transfer]:
    """Return the transfers that NICs report as failed, or that got no answer over TCP.

    Each is there once, as far as the log shows which host has an address.
    """
    reported = [
        notice
        for notice in notices
        if value(notice, "peer") and (value(notice, "status") is not None or has_error(notice, NO_ANSWER))
    ]
    hosts = hosts_by_address(facts) if reported else {}
    transfers = (
        Transfer(host, peer, value(notice, "device"))
        for notice in reported
        if (peer := hosts.get(peer_address(notice)))
        for host in notice.hosts
        if host != peer
    )
    return list(dict.fromkeys(transfers))


def silent_peers(facts: Facts, failed: list[Notice]) -> set[str]:
    """Return the hosts that all of these transfers were meant for, if their ranks report nothing, then or later."""
    peers = {transfer.peer for transfer in failed_transfers(facts, failed)}
    if not peers or not all(peer_address(notice) in hosts_by_address(facts) for notice in failed):
        return set()
    since = failed[0].evidence[0]
    closed = facts.notices("nccl/socket-closed-by-peer")
    reports = [*facts.errors(), *facts.with_role("completion-error"), *closed]
    ranks = {rank for notice in reports for rank in (*notice.ranks, value(notice, "global_rank"))}
    later = (last for last in facts.job.last_lines if last.source == since.source and last.first < since.order)
    heard = hosts_in(reports).union(last.process.host for last in later if last.order > since.order)
    heard.update(host.name for host in facts.job.hosts if not ranks.isdisjoint(host.ranks))
    return peers if peers.isdisjoint(heard) else set()


def find_hub(facts: Facts, failed: list[Notice]) -> str | None:
    """Return the only host that transfers between several pairs of hosts have in common; None where there is none."""
    pairs = {frozenset((transfer.host, transfer.peer)) for transfer in failed_transfers(facts, failed)}
    common = frozenset.intersection(*pairs) if len(pairs) > 1 else frozenset()
    return next(iter(common)) if len(common) == 1 else None


def healthy_pairs(facts: Facts, bad: Iterable[Transfer]) -> list[frozenset[str]]:
    """Pairs of hosts with connections and without failed transfers.

    Hosts of several bad pairs are skipped: their other pairs may be unused since, or their reports may be lost.
    """
    pairs = {frozenset((transfer.host, transfer.peer)) for transfer in bad}
    times = Counter(host for pair in pairs for host in pair)
    hubs = {host for host, number in times.items() if number > 1}
    joined = {frozenset(pair) for pair in facts.inter_host_net_paths().distinct("src_host", "dst_host") if all(pair)}
    return sorted((pair for pair in joined - pairs if len(pair) > 1 and not pair & hubs), key=sorted)


@once
def hosts_by_address(facts: Facts) -> dict[str, str]:
    """Return hosts by the addresses that they print, without addresses that several hosts print."""
    stated = [(one.address, one.notice) for one in listed_interfaces(facts)]
    lists = facts.with_event(NetDevices)
    stated += [(str(getattr(notice.event, "oob", None) or "").partition(":")[2], notice) for notice in lists]
    # NCCL writes a port behind an address: 10.0.0.2<40000>
    by_address = group_sets((address.partition("<")[0], host) for address, notice in stated for host in notice.hosts)
    return {address: hosts.pop() for address, hosts in by_address.items() if address and len(hosts) == 1}


REFUSED_CALLS = ("No such device", "Operation not permitted")
UNANSWERED = 12
OTHER_ROOTS = (9, 10, 11, 13)
"""Statuses of a NIC that refused; its connection is then dead, and the other end may report status 12."""


def echoes_of_another(facts: Facts) -> list[Notice]:
    """Transfers without an answer after a peer was gone or a NIC refused a transfer: echoes of that."""
    before = [*facts.notices("nccl/socket-closed-by-peer"), *facts.completions(*OTHER_ROOTS)]
    return [late for late in facts.completions(UNANSWERED) if any(precedes(notice, late) for notice in before)]


EFA_UNREACHABLE = 15  # EFA: the remote device never answered
EFA_UNRESPONSIVE = 13
"""EFA: no answer. Until libfabric 1.22 even if it never answered; from 2.0 on only if it answered before."""
_HOST_UNREACHABLE = 113
_GONE = (1, 8, 9, EFA_UNRESPONSIVE, 14, EFA_UNREACHABLE, 4124, 4126, 4127)
"""Codes of EFA that mean that the process or the machine at the other end is gone."""
_KNOWN = (4, 5, 7, 10, 18, 4097, 4098, 4099, 4105, 4125)  # those whose cause is known


def efa_completions(facts: Facts) -> list[Notice]:
    """Return failed transfers of aws-ofi-nccl; none with a provider other than efa, whose codes differ."""
    providers = {getattr(notice.event, "provider", "") for notice in facts.with_event(OfiProvider)}
    is_other = slingshot_signs(facts) if not providers else "efa" not in providers
    return [] if is_other else facts.with_role("efa-completion")


def efa_code(notice: Notice) -> int | None:
    """EFA's code of a failed transfer, derived from its text if the number is not printed."""
    if (code := value(notice, "prov_errno")) is not None:
        return int(code)
    text = str(value(notice, "error")).lower()
    return next((int(code) for beginning, code in list_table("efa").items() if text.startswith(beginning)), None)


def unreachable_peers(facts: Facts) -> list[Notice]:
    """Return failed transfers to a peer that never answered.

    If connections were made before, the peer is gone; likewise if an old libfabric does not distinguish the two and
    the log does not show that connections were never made.
    """
    if is_connected_over_efa(facts):
        return []
    unanswered = []
    for notice in efa_completions(facts):
        code = efa_code(notice)
        never = code == EFA_UNREACHABLE or (code is None and value(notice, "err") == _HOST_UNREACHABLE)
        perhaps = code == EFA_UNRESPONSIVE and "previously responsive" not in str(value(notice, "error"))
        if never or (perhaps and never_connected(facts)):
            unanswered.append(notice)
    return unanswered


def find_unreachable(facts: Facts) -> list[Notice]:
    """Return failed transfers to peers that never answered; before 1.16, libfabric prints one text for all reasons."""
    failed = efa_completions(facts) if never_connected(facts) else []
    is_vague = all(efa_code(notice) is None and value(notice, "error") == "unknown error" for notice in failed)
    return unreachable_peers(facts) or (failed if is_vague else [])


def never_connected(facts: Facts) -> bool:
    """Return whether the log shows that a communicator started to connect and did not finish."""
    return not is_connected_over_efa(facts) and any(comm.unconnected for comm in facts.job.communicators)


def is_connected_over_efa(facts: Facts) -> bool:
    """Return whether a communicator has all its connections over libfabric: making them takes messages through EFA."""
    done = {comm.id for comm in facts.job.communicators if not comm.unconnected}
    return any(done.intersection(comms) for (comms,) in libfabric_paths(facts).distinct("communicators"))


def lost_peers(facts: Facts) -> list[Notice]:
    """Return failed transfers that only report a gone peer, if there are no others."""
    failed = efa_completions(facts)
    if unreachable_peers(facts) or not all(map(is_peer_gone, failed)):
        return []
    return [*failed, *facts.with_role("beside-completion")] if failed else []


def failed_by_cause(facts: Facts) -> list[Notice]:
    """Return failed transfers with other codes than those of a lost peer, first those whose cause is known."""
    failed = [notice for notice in efa_completions(facts) if not is_peer_gone(notice)]
    return sorted(failed, key=lambda notice: efa_code(notice) not in _KNOWN)


def is_peer_gone(notice: Notice) -> bool:
    """Return whether the provider reports that the peer is no longer reachable."""
    return efa_code(notice) in _GONE or value(notice, "err") == _HOST_UNREACHABLE


REFUSED = ("Connection refused", "exceeded retries")
"""The error as printed; up to 2.23 NCCL prints the number of retries only."""
TIMED_OUT = ("Connection timed out", "exceeded timeouts")
FORBIDDEN = ("Permission denied", "Operation not permitted", "Invalid argument")
"""Answers of the system to a route that prohibits the way (EACCES), or swallows packets (EINVAL), and to a filter."""
NO_ANSWER = ("No route to host", "Network is unreachable", *TIMED_OUT)
"""Errors of a connection that no process closed: a lost machine does not."""
NO_ROUTE = (*NO_ANSWER, "Software caused connection abort", *FORBIDDEN)


def failed_connections(facts: Facts, *errors: str) -> list[Notice]:
    """Return connections that failed for good with one of these errors, or with any if none is given."""
    # Releases until 2.4 report it without the address.
    calls = facts.notices("nccl/system-call-failed", "nccl/system-call-timeout")
    calls = [notice for notice in calls if value(notice, "call") == "connect"]
    notices = [*facts.with_role("connection-failed"), *calls]
    return [notice for notice in notices if not errors or has_error(notice, errors)]


def unanswered_connections(facts: Facts) -> list[Notice]:
    """Return connections that were up and then got no answer."""
    return [notice for notice in facts.notices("nccl/socket-recv-failed") if has_error(notice, NO_ANSWER)]


def retried_connections(facts: Facts, *errors: str) -> list[Notice]:
    """Return connections that failed with one of these errors and were retried."""
    notices = facts.with_role("connection-retry")
    return [notice for notice in notices if error_of(notice).startswith(errors)]


def find_stuck(facts: Facts, retried: Iterable[Notice]) -> list[Notice]:
    """Return those of these connections whose processes retried them last of all, and not only as peers start late."""
    lasts = {(last.process, last.source, last.order) for last in facts.job.last_lines}
    return [
        notice
        for notice in filter(is_late, retried)
        if any(
            (process, line.source, last) in lasts
            for process, line, last in zip(notice.processes, notice.lines, notice.until, strict=True)
        )
    ]


def is_late(retried: Notice) -> bool:
    """Return whether a connection is retried more often than a rank needs while rank 0 starts.

    That is five times, or 1.5 s, since 2.24; earlier releases print every thousandth.
    """
    return int(value(retried, "attempt") or 6) > 5


def has_error(notice: Notice, errors: tuple[str, ...]) -> bool:
    """Return whether a connection failed with one of these errors."""
    return any(error in reason(notice) for error in errors)


def reason(notice: Notice) -> str:
    """Why a connection failed; until 2.23 some lines only say which limit was exceeded."""
    exceeded = next((name for name in ("retries", "timeouts") if value(notice, name) is not None), "")
    # The result of the connection; errno beside it is that of the wait.
    result = str(value(notice, "result_text") or "")
    return result or error_of(notice) or (f"exceeded {exceeded}" if exceeded else "")


def peer(notice: Notice) -> str:
    """Return the address that a connection went to; empty if the line does not have it."""
    return str(value(notice, "peer") or value(notice, "address") or "")


def peer_address(notice: Notice) -> str:
    """Return the address that a connection went to, without its port."""
    return peer(notice).partition("<")[0]


def addresses(notices: Iterable[Notice]) -> str:
    """Return the addresses that these connections went to, in words; several ports of one are not listed."""
    ports = group_sets((peer_address(notice), peer(notice)) for notice in notices if peer(notice))
    return list_words(address if len(peers) > 1 else next(iter(peers)) for address, peers in ports.items())


def has_built_communicator(facts: Facts) -> bool:
    """Return whether a communicator was built after all: NCCL retries, and some failures mean that peers start late."""
    return bool(facts.job.paths) or any(len(comm.completed) == comm.nranks for comm in facts.job.communicators)


def is_connected(facts: Facts) -> bool:
    """Return whether ranks completed a step that needs connections; the line of a path precedes its connection."""
    return any(comm.completed or comm.connected for comm in facts.job.communicators if comm.nranks > 1)


def is_building(facts: Facts) -> bool:
    """Return whether the log ends while ranks build a communicator: they are silent while they wait."""
    return any(set(comm.started) - set(comm.completed) and not comm.connected for comm in facts.job.communicators)
