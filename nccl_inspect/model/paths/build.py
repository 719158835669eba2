"""Connection lines to paths: one for each directed pair of global ranks, both ends and all channels joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from nccl_inspect.event.base import Process
from nccl_inspect.ingest.lines.prefix import Origin, is_masked
from nccl_inspect.model.communicators.attribution import Attribution
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import Member
from nccl_inspect.model.connection import AlsoPath
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.fold import Burst, ProcessLog
from nccl_inspect.model.job import Path
from nccl_inspect.model.paths import ends as links
from nccl_inspect.model.paths.ends import Line, NicName
from nccl_inspect.model.paths.scope import Scope
from nccl_inspect.util.records import Record

_SPEED = {"P2P": 0, "SHM": 1, "NET": 2}
_MAX_CHANNELS = 4096
_MAX_FRAGMENTS = 256
"""Communicators told apart by their connection lines only; each line is held against all of them."""


@dataclass(slots=True, eq=False, repr=False)
class Fragment(Record):
    """A communicator known by its connection lines only: a few lines cut out of a log."""

    name: str
    processes: dict[int, Process] = field(default_factory=dict)
    """The process of each rank that printed."""
    ranks: dict[Process, int] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    """The host of each rank that printed, or that shares memory with one that did."""
    devices: dict[int, str] = field(default_factory=dict)
    """The GPU of each rank, as brackets name it."""

    def admits(self, log: ProcessLog, burst: Burst) -> bool:
        """Whether nothing that is known contradicts that this burst is of this communicator."""
        rank = burst.key.rank
        if self.processes.get(rank, log.process) != log.process or self.ranks.get(log.process, rank) != rank:
            return False
        return not any(self._contradicts(*said) for said in _told(log, burst))

    def _contradicts(self, rank: int, host: str | None, device: str) -> bool:
        other_host = host is not None and self.hosts.get(rank, host) != host
        return other_host or self.devices.get(rank, device) != device

    def take(self, log: ProcessLog, burst: Burst) -> None:
        """Remember what a burst says of hosts and GPUs."""
        self.processes[burst.key.rank] = log.process
        self.ranks[log.process] = burst.key.rank
        for who, host, device in _told(log, burst):
            self.devices[who] = device
            if host:
                self.hosts[who] = host


def _told(log: ProcessLog, burst: Burst) -> Iterator[tuple[int, str | None, str]]:
    """Each rank that a burst names, its host where that is proved, and its GPU."""
    for edge in burst.edges.values():
        event = edge.event
        for rank, device in ((event.src, event.src_dev), (event.dst, event.dst_dev)):
            if rank is not None:
                here = rank == burst.key.rank or event.is_local
                yield rank, log.process[0] if here and not is_masked(log.process) else None, device or ""


@dataclass(slots=True, eq=False, repr=False)
class Lines(Record):
    """All connection lines that could be placed, with what they and the communicators say of hosts."""

    lines: list[Line] = field(default_factory=list)
    hosts: dict[tuple[str, int], str] = field(default_factory=dict)
    unplaced: int = 0
    guessed: set[int] = field(default_factory=set)
    """The ids of bursts whose communicator only the order of use told."""
    paired: set[int] = field(default_factory=set)
    """The ids of those whose ranks are known nevertheless."""
    fragments: list[Fragment] = field(default_factory=list)

    def name_host(self, rank: tuple[str, int], log: ProcessLog) -> None:
        """Note the host of a rank, unless it was taken out of the log."""
        if not is_masked(log.process):
            self.hosts[rank] = log.process[0]


def place(
    communicators: Sequence[Communicator],
    world: Communicator | None,
    found_by: Attribution,
) -> Lines:
    """Translate the ranks of all connection lines.

    Args:
        communicators: with their members and bursts.
        world: whose ranks are the global ones; None when the log does not show it.
        found_by: how the bursts came to their communicators, and which came to none.
    """
    found = Lines(guessed=found_by.guessed, paired=found_by.paired, unplaced=found_by.given_up)
    for comm in communicators:
        space = "global" if world else comm.name
        for rank, member in comm.members.items():
            own = _known(comm.global_ranks, rank)
            if own is not None:
                found.name_host((space, own), member.log)
            for burst in member.bursts:
                _translate(found, space, comm.global_ranks, burst, comm.name, member.log)
    for log, burst, home in _homes(communicators, world, found_by.homeless):
        _adopt(found, home, world, log, burst)
    _spread_hosts(found)
    return found


def _translate(found: Lines, space: str, ranks: Sequence[int | None], burst: Burst, name: str, log: ProcessLog) -> None:
    for edge in burst.edges.values():
        event = edge.event
        if event.transport == "COLLNET":
            continue  # its other end is the network: no path between ranks
        src, dst = _known(ranks, event.src), _known(ranks, event.dst)
        if src is None or dst is None:
            found.unplaced += edge.lines
            continue
        pxn_rank = _known(ranks, event.pxn_rank)
        guessed = id(burst) in found.guessed
        doubtful = guessed and id(burst) not in found.paired
        found.lines.append(Line(space, src, dst, event, edge, name, log, guessed, doubtful, pxn_rank))


def _known(ranks: Sequence[int | None], rank: int | None) -> int | None:
    """The global rank; None for a rank beyond the communicator."""
    return ranks[rank] if rank is not None and rank < len(ranks) else None


def _homes(
    communicators: Sequence[Communicator], world: Communicator | None, homeless: Iterable[tuple[ProcessLog, Burst]]
) -> Iterator[tuple[ProcessLog, Burst, Communicator | None]]:
    """Bursts whose START is missing, with the only communicator that has room for it, if there is one.

    One that has room for several processes as the same rank has it for none: at most one of them is that rank.
    """
    rooms = _Rooms(communicators, world)
    found = [(log, burst, rooms.home(log, burst)) for log, burst in homeless]
    claims: dict[tuple[str, int], set[Process]] = {}
    for log, burst, home in found:
        if home is not None:
            claims.setdefault((home.name, burst.key.rank), set()).add(log.process)
    for log, burst, home in found:
        disputed = home is not None and len(claims[home.name, burst.key.rank]) > 1
        yield log, burst, None if disputed else home


class _Rooms:
    """Finds the communicator that a burst whose START is missing belongs to, among thousands as fast as among a few."""

    def __init__(self, communicators: Sequence[Communicator], world: Communicator | None) -> None:
        self._by_size = sorted(communicators, key=lambda comm: -comm.nranks)
        self._without: dict[int, list[Communicator]] = {}
        self._global_ranks: dict[int, set[int]] = {}
        for member in world.members.values() if world else ():
            self._global_ranks.setdefault(id(member.log), set()).add(member.rank)

    def home(self, log: ProcessLog, burst: Burst) -> Communicator | None:
        """The only communicator with room for a burst that does not contradict it."""
        highest = _highest(burst)
        with_room = [comm for comm in self._largest_without(burst.key.rank) if highest < comm.nranks]
        return with_room[0] if len(with_room) == 1 and self._agrees(with_room[0], log, burst) else None

    def _largest_without(self, rank: int) -> list[Communicator]:
        """The two largest in which nobody is that rank: where the second has no room, no other has."""
        if rank not in self._without:
            self._without[rank] = list(islice((comm for comm in self._by_size if rank not in comm.members), 2))
        return self._without[rank]

    def _agrees(self, comm: Communicator, log: ProcessLog, burst: Burst) -> bool:
        """Whether what the world knows of the ranks of a communicator does not speak against a burst."""
        mine = self._global_ranks.get(id(log))
        if mine and _known(comm.global_ranks, burst.key.rank) not in mine:
            return False
        for rank, host, device in _told(log, burst):
            member = comm.mate(rank)
            if member is not None and (host not in (None, member.log.process.host) or not member.is_called(device)):
                return False
        return True


def _highest(burst: Burst) -> int:
    """The highest rank that a burst names."""
    return max(max(edge.event.src, edge.event.dst or 0) for edge in burst.edges.values())


def _adopt(found: Lines, home: Communicator | None, world: Communicator | None, log: ProcessLog, burst: Burst) -> None:
    """Place a burst whose START is missing: in the communicator that has room for it, or in a fragment."""
    if home is not None:
        space, own = ("global" if world else home.name), _known(home.global_ranks, burst.key.rank)
        if own is not None and (space, own) not in found.hosts:
            found.name_host((space, own), log)
        _translate(found, space, home.global_ranks, burst, home.name, log)
    elif world is None and (fragment := _fragment(found, log, burst)):
        fragment.take(log, burst)
        for who, host, _ in _told(log, burst):
            if host:
                found.hosts[fragment.name, who] = host
        _translate(found, fragment.name, range(_highest(burst) + 1), burst, fragment.name, log)
    else:
        found.unplaced += sum(edge.lines for edge in burst.edges.values() if edge.event.transport != "COLLNET")


def _fragment(found: Lines, log: ProcessLog, burst: Burst) -> Fragment | None:
    """The communicator that a burst is of, perhaps a new one; None when there are too many."""
    known = next((one for one in found.fragments if one.admits(log, burst)), None)
    if known is None and len(found.fragments) < _MAX_FRAGMENTS:
        known = Fragment(f"fragment {len(found.fragments) + 1}")
        found.fragments.append(known)
    return known


def _spread_hosts(found: Lines) -> None:
    """Ranks joined by SHM or P2P are on one host, even where only one of them printed."""
    local = [line for line in found.lines if line.event.is_local]
    changed = True
    while changed:
        changed = False
        for line in local:
            ends = (line.space, line.src), (line.space, line.dst)
            for here, there in (ends, ends[::-1]):
                if here in found.hosts and there not in found.hosts:
                    found.hosts[there] = found.hosts[here]
                    changed = True


def build(
    found: Lines,
    communicators: Sequence[Communicator],
    evidence: Callable[[int, Origin, str, str], Evidence],
    nic_name: NicName,
    nodes_are_hosts: bool,
) -> list[Path]:
    """The paths, ordered by rank.

    Args:
        found: the placed lines.
        communicators: for what NCCL says of nodes.
        evidence: makes evidence of (place, origin, level, message).
        nic_name: the name of a NIC by process, network and index, where the log lists it.
        nodes_are_hosts: False when shared memory is switched off: then NCCL counts ranks of one host as several nodes.
    """
    scope = Scope(found.lines, found.hosts, communicators, nodes_are_hosts)
    pairs: dict[tuple[str, int, int], list[Line]] = {}
    for line in found.lines:
        pairs.setdefault((line.space, line.src, line.dst), []).append(line)
    paths = []
    for (space, src, dst), lines in sorted(pairs.items(), key=lambda pair: (pair[0][1:], pair[0][0])):
        ways = sorted(_ways(lines), key=_slowness, reverse=True)
        path = _path(src, dst, ways[0], scope, evidence, nic_name)
        path.src_host, path.dst_host = found.hosts.get((space, src)), found.hosts.get((space, dst))
        path.also = [_also(way) for way in ways[1:]]
        paths.append(path)
    return paths


def _ways(lines: Iterable[Line]) -> Iterator[list[Line]]:
    by_detail: dict[str, list[Line]] = {}
    for line in lines:
        by_detail.setdefault(line.event.detail, []).append(line)
    return iter(by_detail.values())


def _slowness(way: list[Line]) -> tuple[int, bool, bool]:
    event = way[0].event
    return _SPEED.get(event.transport, 3), event.net == "Socket", not all(line.event.gdr for line in way)


def _path(
    src: int,
    dst: int,
    way: list[Line],
    scope: Scope,
    evidence: Callable[[int, Origin, str, str], Evidence],
    nic_name: NicName,
) -> Path:
    first = min(way, key=lambda line: line.edge.place)
    event = first.event
    # The NIC and the proxy of a path are those of its sending end; its links have both ends.
    sender = next((line for line in way if line.event.direction != "receive"), way[0])
    index = sender.event.nic_index
    net = sender.event.net
    return Path(
        src=src,
        dst=dst,
        src_host=None,
        dst_host=None,
        scope=scope.of_way(way),
        transport=event.transport,
        detail=event.detail,
        gdr=_gdr(way),
        nic=nic_name(sender.log, net, index) if net is not None and index is not None else None,
        nic_index=index,
        pxn_rank=sender.pxn_rank,
        shared=any(line.event.shared for line in way),
        channels=_channels(way),
        communicators=list(dict.fromkeys(line.communicator for line in way)),
        evidence=[
            evidence(line.edge.place, line.edge.origin, line.edge.level, line.event.message)
            for line in (first, *_other_end(way, first))
        ],
        guessed=all(line.guessed for line in way),
        doubtful=all(line.doubtful for line in way),
        net=net,
        src_gpu=event.src_dev,
        dst_gpu=event.dst_dev,
        links=links.of(way, nic_name) if event.transport == "NET" else [],
    )


def _other_end(way: list[Line], first: Line) -> Iterator[Line]:
    """The first line of the other end, where its NIC or its GPUDirect differs."""
    there = (line for line in way if line.event.direction != first.event.direction)
    other = min(there, key=lambda line: line.edge.place, default=first)
    if (other.event.nic_index, other.event.gdr) != (first.event.nic_index, first.event.gdr):
        yield other


def _gdr(way: list[Line]) -> bool | str | None:
    if way[0].event.transport != "NET":
        return None
    said = {line.event.gdr for line in way}
    return said.pop() if len(said) == 1 else "partial"


def _channels(way: list[Line]) -> list[int]:
    bits = 0
    for line in way:
        bits |= line.edge.channels
    return [channel for channel in range(min(bits.bit_length(), _MAX_CHANNELS)) if bits >> channel & 1]


def _also(way: list[Line]) -> AlsoPath:
    event = way[0].event
    return AlsoPath(
        transport=event.transport,
        detail=event.detail,
        gdr=_gdr(way),
        communicators=list(dict.fromkeys(line.communicator for line in way)),
    )


def ranks_of(members: Iterable[Member], global_rank: Callable[[Member], int | None]) -> list[int]:
    """The global ranks of some members, each once, in order."""
    return sorted({rank for member in members if (rank := global_rank(member)) is not None})
