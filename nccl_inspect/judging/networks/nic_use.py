"""Which NICs of a host carry its connections, which are idle, and which ranks share one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.facts import ENDS, HOSTS, Facts, ends_of, global_ranks, nics_used, once
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import Host
from nccl_inspect.model.job import CommunicatorInfo, Notice, Selection
from nccl_inspect.model.paths.path import SIDES
from nccl_inspect.util.records import Frozen, frozen

_ONE_EACH = 4
"""On hosts with at least this many GPUs and a NIC for each, every GPU is meant to use its own NIC."""

_Alike: TypeAlias = frozenset[tuple[int, int | None, int | None]]
"""The kinds of communicators that leave a host: hosts with the same kinds can be compared."""


@frozen
class Shared(Frozen):
    """Ranks that send, or receive, only through the same NIC."""

    nic: int
    ranks: set[int]
    side: str
    """Whether they do that with what they ``send`` or ``receive``."""


@frozen
class Idle(Frozen):
    """A host with NICs that nothing uses."""

    host: Host
    names: list[str]
    """The idle NICs."""
    absent: int
    """Number of the host's ranks that the log lacks: as many of these NICs may be theirs."""
    used: dict[int, set[int]]
    """The other NICs by index, with the ranks that use them."""
    meant: bool
    """Whether there is evidence that the idle ones are meant for NCCL."""
    shared: Shared | None
    """The largest group of ranks that shares a NIC."""
    shared_name: str
    evidence: Evidence


@frozen
class _Judged(Frozen):
    """A host whose connections with others are in the log."""

    host: Host
    ranks: set[int]
    """Those of its ranks that the log has."""
    absent: int
    comms: list[CommunicatorInfo]
    """The communicators that join it with others, in which all of them are connected."""


@once
def idle_nics(facts: Facts) -> list[Idle]:
    """Return the hosts with idle NICs, if all ranks of the host are connected with other hosts.

    Missing connections of other hosts or communicators prove nothing about the NICs of this one. Left out are devices
    of hosts with fewer ranks than NICs, devices with another kind of link (storage, management), merged ports, and
    hosts with more ranks than others: the others set the number of channels.
    """
    used, lists = nics_used(facts.inter_host_rdma_paths()), _lists(facts)
    results = (
        _find_idle(facts, candidate, lists.get(candidate.host.name, []), used.get(candidate.host.name, {}))
        for candidate in _judged_hosts(facts)
    )
    return [candidate for candidate in results if candidate]


@once
def _usual(facts: Facts) -> dict[_Alike, set[frozenset[int]]]:
    """Return the NICs that hosts use which are alike."""
    judged = {candidate.host.name: candidate for candidate in _judged_hosts(facts)}
    compared = {name: candidate.comms for name, candidate in judged.items() if not candidate.absent}
    usual: dict[_Alike, set[frozenset[int]]] = {}
    for name, nics in _nics_in(facts, compared).items():
        usual.setdefault(_alike(judged[name]), set()).add(frozenset(nics))
    return usual


@once
def _judged_hosts(facts: Facts) -> list[_Judged]:
    """Return the hosts whose ranks in the log are all connected with other hosts."""
    crossing = _by_host(facts)
    started = {comm.id: global_ranks(comm, comm.started) for comm in facts.job.communicators}
    done = {comm.id: global_ranks(comm, comm.connected) for comm in facts.job.communicators}
    begun = set().union(*started.values())
    sizes = {host.name: _size(facts, host, crossing.get(host.name, [])) for host in facts.job.hosts}
    fewest = min((size for size in sizes.values() if size), default=0)
    judged = []
    for host in facts.job.hosts:
        ranks = begun.intersection(host.ranks)
        comms = _connected_comms(ranks, crossing.get(host.name, []), started, done)
        if comms and sizes[host.name] == fewest >= len(ranks):
            judged.append(_Judged(host, ranks, fewest - len(ranks), comms))
    return judged


def _lists(facts: Facts) -> dict[str, list[Notice]]:
    """Return the lists of devices of each host."""
    lists: dict[str, list[Notice]] = {}
    for notice in facts.with_event(NetDevices, lambda event: bool(_devices(event))):
        for name in notice.hosts:
            lists.setdefault(name, []).append(notice)
    return lists


def _by_host(facts: Facts) -> dict[str, list[CommunicatorInfo]]:
    """Return the communicators of each host that include other hosts and have a connected rank anywhere."""
    by_host: dict[str, list[CommunicatorInfo]] = {}
    for comm in facts.job.communicators:
        if comm.connected and (len(comm.hosts) > 1 or (comm.nnodes or 1) > 1):
            for name in comm.hosts:
                by_host.setdefault(name, []).append(comm)
    return by_host


def _size(facts: Facts, host: Host, comms: Iterable[CommunicatorInfo]) -> int | None:
    """Return the number of the job's ranks on a host, in the log or not; None if unknown."""
    if len(facts.job.ranks_seen) == facts.job.world_size:
        return len(host.ranks)
    return max((comm.local_ranks for comm in comms if comm.local_ranks), default=None)


def _connected_comms(
    here: set[int], comms: Iterable[CommunicatorInfo], started: Mapping[str, set[int]], done: Mapping[str, set[int]]
) -> list[CommunicatorInfo]:
    """Return the communicators in which all ranks of a host are connected; none if these leave out some of its ranks.

    Args:
        here: the ranks of the host.
        comms: that include other hosts.
        started: the ranks that started each communicator.
        done: the ranks that are connected in it.
    """
    whole = [comm for comm in comms if here & done[comm.id] and here & started[comm.id] == here & done[comm.id]]
    return whole if here == {rank for comm in whole for rank in here & done[comm.id]} else []


def _alike(judged: _Judged) -> _Alike:
    return frozenset((comm.nranks, comm.nnodes, comm.channels) for comm in judged.comms)


def _nics_in(facts: Facts, compared: dict[str, list[CommunicatorInfo]]) -> dict[str, set[int]]:
    """Return the NICs that hosts use in these communicators."""
    names = {host: {comm.id for comm in comms} for host, comms in compared.items()}
    nics_of: dict[str, set[int]] = {}
    for side, column in HOSTS.items():
        for host, ends, comms in facts.inter_host_rdma_paths().distinct(column, ENDS[side], "communicators"):
            if host in names and not names[host].isdisjoint(comms):
                nics = {end.nic_index for end in ends if end.nic_index is not None}
                nics_of.setdefault(host, set()).update(nics)
    return nics_of


def _find_idle(facts: Facts, judged: _Judged, lists: list[Notice], used: dict[int, set[int]]) -> Idle | None:
    kinds = {_devices(notice.event) for notice in lists}
    if len(kinds) != 1 or not used:
        return None  # no list, or lists for single ranks
    devices = {device[0]: device for device in kinds.pop()}
    if not used.keys() <= devices.keys() or len(devices) > len(judged.ranks) + judged.absent:
        return None
    links, names = {devices[index][-1] for index in used}, {devices[index][1] for index in used}
    unused = {
        index: device[1]
        for index, device in devices.items()
        if index not in used and device[-1] in links and device[1] not in names
    }
    if len(unused) <= judged.absent:
        return None
    ports, shared = len(unused) + len(used), _shared_nics(facts).get(judged.host.name)
    # A comparable host uses these NICs, the machine type has that many for NCCL, or there is one for each GPU.
    meant = (
        any(unused.keys() <= nics for nics in _usual(facts).get(_alike(judged), ()))
        or _has_room(facts, judged, ports)
        or _has_one_each(judged, ports, shared)
    )
    name = devices[shared.nic][1] if shared else ""
    return Idle(judged.host, list(unused.values()), judged.absent, used, meant, shared, name, lists[0].evidence[0])


def _devices(event: object) -> tuple[tuple[int, str, str, str], ...]:
    """Return the devices in a list of IB or RoCE ports; empty for one virtual device, as subsystem NET prints it."""
    if not isinstance(event, NetDevices) or event.net != "IB":
        return ()
    return tuple(device for device in event.devices if len(device) > 3)


def _has_room(facts: Facts, judged: _Judged, nics: int) -> bool:
    platform = facts.platform
    return platform is not None and (platform.nics or 0) >= nics and platform.gpus == len(judged.ranks) + judged.absent


def _has_one_each(judged: _Judged, nics: int, shared: Shared | None) -> bool:
    """Return whether each GPU could have its own NIC, but all ranks in the log use the same one."""
    return (
        shared is not None and shared.ranks == judged.ranks and nics == len(judged.ranks) + judged.absent >= _ONE_EACH
    )


@once
def _shared_nics(facts: Facts) -> dict[str, Shared]:
    """Return for each host the largest group of ranks that send, or receive, only through the same NIC."""
    groups: dict[tuple[str, str, int], set[int]] = {}
    for (host, side, rank), nics in _nics_of_ranks(facts).items():
        if len(nics) == 1:
            groups.setdefault((host, side, min(nics)), set()).add(rank)
    largest: dict[str, Shared] = {}
    for (host, side, nic), ranks in groups.items():
        if len(ranks) > (len(largest[host].ranks) if host in largest else 1):
            largest[host] = Shared(nic, ranks, side)
    return largest


def _nics_of_ranks(facts: Facts) -> dict[tuple[str, str, int], set[int]]:
    """Return the NICs by host, side and rank, without those of other ranks that are used through PXN."""
    by_rank: dict[tuple[str, str, int], set[int]] = {}
    for side in SIDES:
        for host, rank, end in ends_of(facts.inter_host_rdma_paths(), side):
            if end.nic_index is not None and end.pxn_rank is None:
                by_rank.setdefault((host, side, rank), set()).add(end.nic_index)
    return by_rank


def crossing_paths(facts: Facts) -> Selection:
    """Paths that cross rails, between hosts that use several NICs each: with one NIC there are no rails.

    The networks behind libfabric (EFA, Slingshot) have no rails.
    """
    paths = facts.inter_host_rdma_paths().where(lambda kind: "Libfabric" not in (kind.net or ""))
    used = nics_used(paths)
    crossed = paths.where(lambda kind: any(link.crosses_rails for link in kind.links))
    rich = {host for host, nics in used.items() if len(nics) > 1}
    return crossed.filter_values(("src_host", "dst_host"), lambda *hosts: rich.issuperset(hosts))
