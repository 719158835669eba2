"""Which NICs of a host carry its connections, which are idle, and which ranks share one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from nccl_inspect.culprits.traits import SIDES
from nccl_inspect.event.types import NetDevices
from nccl_inspect.judging.facts import ENDS, HOSTS, Facts, ends_of, global_ranks, nics_used
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import Host
from nccl_inspect.model.job import CommunicatorInfo, Notice, Selection

_ONE_EACH = 4
"""Hosts with at least so many GPUs, and a NIC for each of them, are built so that each GPU uses its own."""

_Alike: TypeAlias = frozenset[tuple[int, int | None, int | None]]
"""The kinds of communicators that leave a host: where they are the same, the NICs of hosts can be compared."""


class Shared(NamedTuple):
    """Ranks that send, or receive, by one and the same NIC only."""

    nic: int
    ranks: set[int]


class Idle(NamedTuple):
    """A host with NICs that nothing uses."""

    host: Host
    names: list[str]
    """The idle NICs."""
    absent: int
    """How many ranks of the host are not in the log: so many of these NICs may be theirs."""
    used: dict[int, set[int]]
    """The others by index, with the ranks that use them."""
    meant: bool
    """Whether something shows that the idle ones are meant for NCCL."""
    shared: Shared | None
    """The largest group of ranks that shares one."""
    shared_name: str
    evidence: Evidence


class _Judged(NamedTuple):
    """A host whose connections with others are in the log."""

    host: Host
    ranks: set[int]
    """Those of its ranks that the log has."""
    absent: int
    comms: list[CommunicatorInfo]
    """The communicators that join it with others, in which all of them are connected."""


def idle(facts: Facts) -> list[Idle]:
    """The hosts with idle NICs, where all ranks of the host are connected with other hosts.

    What other hosts or other communicators lack says nothing about the NICs of this one. Devices that fewer ranks than
    NICs cannot all use, of another kind of link (storage, management), and merged ports are left out, and so are hosts
    with more ranks than others: the others set the number of channels.
    """
    return facts.once(_idle)


def _idle(facts: Facts) -> list[Idle]:
    judged = {one.host.name: one for one in _judged(facts)}
    used, shared, lists = nics_used(facts.rdma()), _shared(facts), _lists(facts)
    usual: dict[_Alike, set[frozenset[int]]] = {}
    for name, nics in _nics_in(facts, {name: one.comms for name, one in judged.items() if not one.absent}).items():
        usual.setdefault(_alike(judged[name]), set()).add(frozenset(nics))
    found = (
        _of_host(facts, one, lists.get(name, []), used.get(name, {}), shared.get(name), usual.get(_alike(one), set()))
        for name, one in judged.items()
    )
    return [one for one in found if one]


def _judged(facts: Facts) -> list[_Judged]:
    """The hosts whose ranks in the log are all connected with other hosts."""
    crossing = _by_host(facts)
    started = {comm.id: global_ranks(comm, comm.started) for comm in facts.job.communicators}
    done = {comm.id: global_ranks(comm, comm.connected) for comm in facts.job.communicators}
    begun = set().union(*started.values())
    sizes = {host.name: _size(facts, host, crossing.get(host.name, [])) for host in facts.job.hosts}
    fewest = min((size for size in sizes.values() if size), default=0)
    found = []
    for host in facts.job.hosts:
        ranks = begun.intersection(host.ranks)
        comms = _connected(ranks, crossing.get(host.name, []), started, done)
        if comms and sizes[host.name] == fewest:
            found.append(_Judged(host, ranks, fewest - len(ranks), comms))
    return found


def _lists(facts: Facts) -> dict[str, list[Notice]]:
    """What each host says of its devices."""
    lists: dict[str, list[Notice]] = {}
    for notice in facts.said(NetDevices, lambda event: bool(_devices(event))):
        for name in notice.hosts:
            lists.setdefault(name, []).append(notice)
    return lists


def _by_host(facts: Facts) -> dict[str, list[CommunicatorInfo]]:
    """The communicators of each host that join it with others and that some rank is connected in, anywhere."""
    found: dict[str, list[CommunicatorInfo]] = {}
    for comm in facts.job.communicators:
        if comm.connected and (len(comm.hosts) > 1 or (comm.nnodes or 1) > 1):
            for name in comm.hosts:
                found.setdefault(name, []).append(comm)
    return found


def _size(facts: Facts, host: Host, comms: Iterable[CommunicatorInfo]) -> int | None:
    """The ranks of the job on a host, in the log or not; None where that is not known."""
    if len(facts.job.ranks_seen) == facts.job.world_size:
        return len(host.ranks)
    return max((comm.local_ranks for comm in comms if comm.local_ranks), default=None)


def _connected(
    here: set[int], comms: Iterable[CommunicatorInfo], started: Mapping[str, set[int]], done: Mapping[str, set[int]]
) -> list[CommunicatorInfo]:
    """The communicators in which all ranks of a host are connected; nothing where these leave out some of its ranks.

    Args:
        here: the ranks of the host.
        comms: that join it with others.
        started: the ranks that began each communicator.
        done: those that are connected in it.
    """
    whole = [comm for comm in comms if here & done[comm.id] and here & started[comm.id] == here & done[comm.id]]
    return whole if here == {rank for comm in whole for rank in here & done[comm.id]} else []


def _alike(one: _Judged) -> _Alike:
    return frozenset((comm.nranks, comm.nnodes, comm.channels) for comm in one.comms)


def _nics_in(facts: Facts, compared: dict[str, list[CommunicatorInfo]]) -> dict[str, set[int]]:
    """The NICs that hosts use in these communicators."""
    names = {host: {comm.id for comm in comms} for host, comms in compared.items()}
    found: dict[str, set[int]] = {}
    for side, column in HOSTS.items():
        for host, ends, comms in facts.rdma().distinct(column, ENDS[side], "communicators"):
            if host in names and not names[host].isdisjoint(comms):
                nics = {end.nic_index for end in ends if end.nic_index is not None}
                found.setdefault(host, set()).update(nics)
    return found


def _of_host(
    facts: Facts,
    one: _Judged,
    lists: list[Notice],
    mine: dict[int, set[int]],
    shared: Shared | None,
    usual: set[frozenset[int]],
) -> Idle | None:
    kinds = {_devices(notice.event) for notice in lists}
    if len(kinds) != 1 or not mine:
        return None  # no list, or lists for single ranks
    devices = {device[0]: device for device in kinds.pop()}
    if not mine.keys() <= devices.keys() or len(devices) > len(one.ranks) + one.absent:
        return None
    links, names = {devices[index][-1] for index in mine}, {devices[index][1] for index in mine}
    left = {
        index: device[1]
        for index, device in devices.items()
        if index not in mine and device[-1] in links and device[1] not in names
    }
    if len(left) <= one.absent:
        return None
    ports = len(left) + len(mine)
    # An equal host uses these NICs, the machine type has that many for NCCL, or there is one for each GPU.
    meant = (
        any(left.keys() <= nics for nics in usual) or _has_room(facts, one, ports) or _has_one_each(one, ports, shared)
    )
    name = devices[shared.nic][1] if shared else ""
    return Idle(one.host, list(left.values()), one.absent, mine, meant, shared, name, lists[0].evidence[0])


def _devices(event: object) -> tuple[tuple[int, str, str, str], ...]:
    """The devices of a list of IB or RoCE ports; a single virtual device, as the subsystem NET shows it, is no list."""
    if not isinstance(event, NetDevices) or event.net != "IB":
        return ()
    return tuple(device for device in event.devices if len(device) > 3)


def _has_room(facts: Facts, one: _Judged, nics: int) -> bool:
    platform = facts.platform
    return platform is not None and (platform.nics or 0) >= nics and platform.gpus == len(one.ranks) + one.absent


def _has_one_each(one: _Judged, nics: int, shared: Shared | None) -> bool:
    """Whether each GPU could have a NIC of its own, and all its ranks in the log take the same one."""
    return shared is not None and shared.ranks == one.ranks and nics == len(one.ranks) + one.absent >= _ONE_EACH


def _shared(facts: Facts) -> dict[str, Shared]:
    """For each host the largest group of ranks that send, or receive, by one and the same NIC only."""
    groups: dict[tuple[str, str, int], set[int]] = {}
    for (host, side, rank), nics in _nics_of_ranks(facts).items():
        if len(nics) == 1:
            groups.setdefault((host, side, min(nics)), set()).add(rank)
    largest: dict[str, Shared] = {}
    for (host, _side, nic), ranks in groups.items():
        if len(ranks) > (len(largest[host].ranks) if host in largest else 1):
            largest[host] = Shared(nic, ranks)
    return largest


def _nics_of_ranks(facts: Facts) -> dict[tuple[str, str, int], set[int]]:
    """The NICs by host, side and rank; what a rank sends by another one's NIC (PXN) is not its own."""
    found: dict[tuple[str, str, int], set[int]] = {}
    for side in SIDES:
        for host, rank, end in ends_of(facts.rdma(), side):
            if end.nic_index is not None and end.pxn_rank is None:
                found.setdefault((host, side, rank), set()).add(end.nic_index)
    return found


def crossing(facts: Facts) -> Selection:
    """Paths that leave a rail, between hosts that use several NICs each: with one NIC there is no rail to keep to.

    The networks behind libfabric (EFA, Slingshot) have no rails.
    """
    paths = facts.rdma().where(lambda kind: "Libfabric" not in (kind.net or ""))
    used = nics_used(paths)
    crossed = paths.where(lambda kind: any(link.crosses_rails for link in kind.links))
    rich = {host for host, nics in used.items() if len(nics) > 1}
    return crossed.only(("src_host", "dst_host"), lambda *hosts: rich.issuperset(hosts))
