"""Hosts between which transfers failed: the sender reports itself, its NIC and the address of the peer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nccl_inspect.event.types import BootstrapInterface, NetDevices
from nccl_inspect.judging.facts import Facts, hosts_in, once
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.util.records import Frozen, frozen


@frozen
class Transfer(Frozen):
    """A transfer that failed between two hosts."""

    host: str
    """The host that reports it."""
    peer: str
    nic: str | None
    """The NIC of the host."""

    @property
    def pair(self) -> frozenset[str]:
        """Return both hosts."""
        return frozenset((self.host, self.peer))


def failed_transfers(facts: Facts, notices: Iterable[Notice]) -> list[Transfer]:
    """Return the transfers that NICs report as failed, each once, as far as the log shows which host has an address."""
    reported = [notice for notice in notices if value(notice, "status") is not None and value(notice, "peer")]
    hosts = _hosts(facts) if reported else {}
    transfers = {
        Transfer(host, peer, value(notice, "device")): None
        for notice in reported
        if (peer := hosts.get(_address(str(value(notice, "peer")))))
        for host in notice.hosts
        if host != peer
    }
    return list(transfers)


def silent_peers(facts: Facts, failed: list[Notice]) -> set[str]:
    """Return the host that all of these transfers were meant for, if none of its ranks reports one."""
    peers = {transfer.peer for transfer in failed_transfers(facts, failed)}
    is_whole = len(peers) == 1 and all(value(notice, "peer") for notice in failed)
    return peers if is_whole and peers.isdisjoint(hosts_in(failed)) else set()


def healthy_pairs(facts: Facts, bad: Iterable[Transfer]) -> list[frozenset[str]]:
    """Pairs of hosts with connections and without failed transfers.

    Hosts of several bad pairs are skipped: their other pairs may be unused since, or their reports may be lost.
    """
    pairs = {transfer.pair for transfer in bad}
    times = Counter(host for pair in pairs for host in pair)
    hubs = {host for host, number in times.items() if number > 1}
    joined = {frozenset(pair) for pair in facts.inter_host_net_paths().distinct("src_host", "dst_host") if all(pair)}
    return sorted((pair for pair in joined - pairs if len(pair) > 1 and not pair & hubs), key=sorted)


@once
def _hosts(facts: Facts) -> dict[str, str]:
    """Hosts by the addresses that they print, without addresses that several hosts print."""
    by_address: dict[str, set[str]] = {}
    for notice in facts.with_event(BootstrapInterface):
        address = getattr(notice.event, "address", None)
        by_address.setdefault(_address(str(address)), set()).update(notice.hosts)
    for notice in facts.with_event(NetDevices):
        oob = str(getattr(notice.event, "oob", None) or "").partition(":")[2]
        by_address.setdefault(_address(oob), set()).update(notice.hosts)
    return {address: hosts.pop() for address, hosts in by_address.items() if address and len(hosts) == 1}


def _address(text: str) -> str:
    """Return an address without its port: NCCL writes ``10.0.0.2<40000>``."""
    return text.partition("<")[0]
