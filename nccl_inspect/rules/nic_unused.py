"""A NIC that NCCL lists and that carries none of the connections of its host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nccl_inspect.event_types import NetDevices
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.inventory import Host
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, count, listed, nics_used

RULE = Rule(
    name="nic-unused",
    category="topology",
    severity="warning",
    title="A NIC of a host carries no traffic of NCCL",
    echo_of=("nic-asymmetry",),
    because=("channel-limit-by-env",),
    specific=("nic-shared",),
)


class Idle(NamedTuple):
    """A host with NICs that nothing uses."""

    host: Host
    names: list[str]
    """The idle NICs."""
    used: dict[int, set[int]]
    """The others by index, with the ranks that use them."""
    meant: bool
    """Whether something shows that the idle ones are meant for NCCL."""
    evidence: Evidence


def idle(facts: Facts) -> list[Idle]:
    """The hosts with idle NICs, where the log has all ranks and their connections.

    Devices that fewer ranks than NICs cannot all use, of another kind of link (storage, management), and merged ports
    are left out, and so are hosts with more ranks than others: the others set the number of channels.
    """
    if not _is_whole(facts):
        return []
    used = nics_used(facts.rdma())
    fewest = min((len(host.ranks) for host in facts.job.hosts), default=0)
    lists: dict[str, list[Notice]] = {}
    for notice in facts.said(NetDevices, lambda event: bool(_devices(event))):
        for name in notice.hosts:
            lists.setdefault(name, []).append(notice)
    usual: dict[int, set[frozenset[int]]] = {}
    for host in facts.job.hosts:
        usual.setdefault(len(host.ranks), set()).add(frozenset(used.get(host.name, ())))
    found = (
        _idle(facts, host, lists.get(host.name, []), used.get(host.name, {}), usual)
        for host in facts.job.hosts
        if len(host.ranks) == fewest
    )
    return [one for one in found if one]


def _is_whole(facts: Facts) -> bool:
    """Whether every rank is in the log and the rings of the world are connected."""
    job = facts.job
    world = [comm for comm in job.communicators if comm.nranks == job.world_size]
    both = all(link.send and link.receive for path in facts.rdma() for link in path.links)
    return both and len(job.ranks_seen) == job.world_size and any(len(c.connected) == c.nranks for c in world)


def _idle(
    facts: Facts, host: Host, lists: list[Notice], mine: dict[int, set[int]], usual: dict[int, set[frozenset[int]]]
) -> Idle | None:
    kinds = {_devices(notice.event) for notice in lists}
    if len(kinds) != 1 or not mine:
        return None  # no list, or lists for single ranks
    devices = {device[0]: device for device in kinds.pop()}
    if not mine.keys() <= devices.keys() or len(devices) > len(host.ranks):
        return None
    links, names = {devices[index][-1] for index in mine}, {devices[index][1] for index in mine}
    left = {
        index: device[1]
        for index, device in devices.items()
        if index not in mine and device[-1] in links and device[1] not in names
    }
    if not left:
        return None
    # An equal host uses these NICs, or the machine type has that many for NCCL and all its GPUs work here.
    meant = any(left.keys() <= nics for nics in usual[len(host.ranks)]) or _has_room(facts, host, len(left) + len(mine))
    return Idle(host, list(left.values()), mine, meant, lists[0].evidence[0])


def _devices(event: object) -> tuple[tuple[int, str, str, str], ...]:
    """The devices of a list of IB or RoCE ports; a single virtual device, as the subsystem NET shows it, is no list."""
    if not isinstance(event, NetDevices) or event.net != "IB":
        return ()
    return tuple(device for device in event.devices if len(device) > 3)


def _has_room(facts: Facts, host: Host, nics: int) -> bool:
    platform = facts.platform
    return platform is not None and (platform.nics or 0) >= nics and platform.gpus == len(host.ranks)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge hosts where the idle NIC is meant for NCCL; else say that this is open."""
    found = idle(facts)
    sure = [one for one in found if one.meant]
    if sure:
        yield _finding(sure)
    elif found:
        yield RULE.undecided(
            f"{listed(found[0].names)} of {found[0].host.name} carries no connection; whether it is meant for NCCL is "
            "not in the log",
            "--platform NAME; NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH shows speed and place of each NIC; ibstat on the host",
        )


def _finding(found: list[Idle]) -> Finding:
    first = found[0]
    total = len(first.used) + len(first.names)
    return RULE.finding(
        f"{listed(first.names)} of {first.host.name} carries no connection: {len(first.used)} of "
        f"{count(total, 'NIC')} work{_more(found)}",
        cause="unknown from this log; likely: "
        "fewer channels than NICs, a NIC that is far from every GPU in the topology, or a filter "
        "on other hosts",
        impact=f"at most {len(first.used)}/{total} of the network bandwidth of the host",
        fix=[
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH   # the lines 'NET/… GPU/… NET/…' show which NIC "
            "each channel takes",
            "NCCL_TOPO_DUMP_FILE=/tmp/topo.xml   # does every NIC stand under the same PCIe switch as a GPU?",
            "unset NCCL_MAX_NCHANNELS NCCL_MAX_CTAS NCCL_TOPO_FILE   # and the same NCCL_IB_HCA on all hosts",
        ],
        confidence="likely",
        ranks=[rank for one in found for rank in one.host.ranks],
        hosts=[one.host.name for one in found],
        evidence=[one.evidence for one in found],
    )


def _more(found: list[Idle]) -> str:
    return f" (the same on {count(len(found) - 1, 'other host')})" if len(found) > 1 else ""
