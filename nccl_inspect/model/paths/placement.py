"""Places connection lines: which ranks of which space they join, and which hosts these ranks are on."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.ingest.lines.prefix import is_masked
from nccl_inspect.model.communicators.attribution import Attribution
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.fold.process_log import Burst, ProcessLog
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Record, record

_MAX_FRAGMENTS = 256
"""Communicators distinguished by their connection lines only; each line is compared with all of them."""


@record
class Fragment(Record):
    """A communicator known by its connection lines only: a few lines cut out of a log."""

    name: str
    processes: dict[int, Process] = field(default_factory=dict)  # the process of each rank that printed
    ranks: dict[Process, int] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    """The host of each rank that printed, or that shares memory with one that did."""
    devices: dict[int, str] = field(default_factory=dict)  # the GPU of each rank, as brackets name it

    def admits(self, log: ProcessLog, burst: Burst) -> bool:
        """Return whether nothing that is known contradicts that this burst is of this communicator."""
        rank = burst.key.rank
        if self.processes.get(rank, log.process) != log.process or self.ranks.get(log.process, rank) != rank:
            return False
        return all(
            self.devices.get(rank, device) == device and (host is None or self.hosts.get(rank, host) == host)
            for rank, host, device in _named_ranks(log, burst)
        )

    def take(self, log: ProcessLog, burst: Burst) -> None:
        """Remember what a burst says of hosts and GPUs."""
        self.processes[burst.key.rank] = log.process
        self.ranks[log.process] = burst.key.rank
        for who, host, device in _named_ranks(log, burst):
            self.devices[who] = device
            if host:
                self.hosts[who] = host


def _named_ranks(log: ProcessLog, burst: Burst) -> Iterator[tuple[int, str | None, str]]:
    """Yield each rank that a burst names, its host where that is proved, and its GPU."""
    for edge in burst.edges.values():
        event = edge.event
        for rank, device in ((event.src, event.src_dev), (event.dst, event.dst_dev)):
            if rank is not None:
                here = rank == burst.key.rank or event.is_local
                yield rank, log.process[0] if here and not is_masked(log.process) else None, device or ""


class Placement(NamedTuple):
    """Bursts of a process in a communicator, in the ranks of a space."""

    space: str  # the name of the communicator whose ranks count, ``global`` for the world's
    ranks: Sequence[int | None]  # for each rank that the bursts may name that of the space
    communicator: str
    log: ProcessLog
    bursts: Sequence[Burst]


class Line(NamedTuple):
    """One edge of one burst, in the numbers of the space in which paths are reported."""

    src: int
    dst: int
    edge: Edge  # where it stands, what it says, and its channels
    placement: Placement
    guessed: bool  # whether only the order of use shows its communicator
    doubtful: bool  # whether it may therefore join other ranks

    @property
    def event(self) -> ChannelConnect:
        """Return what it says."""
        return self.edge.event

    @property
    def communicator(self) -> str:
        """Return the communicator that it is of."""
        return self.placement.communicator

    @property
    def pxn_rank(self) -> int | None:
        """Return the rank whose NIC sends, in the numbers of the space."""
        return _global_rank(self.placement.ranks, self.edge.event.pxn_rank)


_new_line = tuple.__new__
"""Makes a line of a tuple in a third of the time that calling the class takes: there is one for each edge."""


class Placed:
    """All connection lines, with what they and the communicators say of hosts."""

    def __init__(self, found_by: Attribution) -> None:
        self._found_by = found_by
        self.placements: list[Placement] = []
        self.hosts: dict[tuple[str, int], str] = {}
        self.fragments: list[Fragment] = []
        self.unplaced = Counter[str]()
        """How many lines could not be placed, by the path that they show; without those of bursts given up."""
        self.pairs: dict[tuple[int, int, str], list[Line]] = {}
        """The lines by the ranks that they join and the space of these; one of CollNet joins no ranks."""
        self.networks = Counter[str]()  # how many connections each network has

    def name_host(self, rank: tuple[str, int], log: ProcessLog) -> None:
        """Note the host of a rank, unless it was taken out of the log."""
        if not is_masked(log.process):
            self.hosts[rank] = log.process[0]

    def count_unplaced(self, edge: Edge) -> None:
        """Count connections that belong nowhere; those of CollNet join no ranks."""
        if edge.event.transport != "COLLNET":
            self.unplaced[edge.event.detail + (" with GDR" if edge.event.gdr else "")] += edge.lines

    def join_pairs(self) -> None:
        """Gather the lines of each pair of ranks.

        They are in the order of processes in their communicators, then in that of the log: in which order they were
        decided matters for none.
        """
        owners = group_values(((one.communicator, id(one.log)), one) for one in self.placements)
        guesses, paired = self._found_by.guessed, self._found_by.paired
        nets: list[str] = []
        for placements in owners.values():
            edges = [
                (edge.place, edge, placement, guessed, guessed and id(burst) not in paired)
                for placement in placements
                for burst in placement.bursts
                for guessed in (id(burst) in guesses,)
                for edge in burst.edges.values()
            ]
            edges.sort(key=itemgetter(0))
            for _, edge, placement, guessed, doubtful in edges:
                event, ranks = edge.event, placement.ranks
                if event.transport == "COLLNET":
                    continue
                src = ranks[event.src] if event.src < len(ranks) else None
                dst = ranks[event.dst] if event.dst is not None and event.dst < len(ranks) else None
                if src is None or dst is None:
                    self.count_unplaced(edge)
                    continue
                pair = src, dst, placement.space
                line = _new_line(Line, (src, dst, edge, placement, guessed, doubtful))
                if pair in self.pairs:
                    self.pairs[pair].append(line)
                else:
                    self.pairs[pair] = [line]
                if event.net:
                    nets.append(event.net)
        self.networks.update(nets)

    def spread_hosts(self) -> None:
        """Ranks joined by SHM or P2P are on one host, even where only one of them printed."""
        beside: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for (src, dst, space), lines in self.pairs.items():
            ends = (space, src), (space, dst)
            is_known = ends[0] in self.hosts and ends[1] in self.hosts
            if not is_known and any(line.edge.event.is_local for line in lines):
                beside.setdefault(ends[0], []).append(ends[1])
                beside.setdefault(ends[1], []).append(ends[0])
        reached = deque(rank for rank in beside if rank in self.hosts)
        while reached:
            rank = reached.popleft()
            for other in beside[rank]:
                if other not in self.hosts:
                    self.hosts[other] = self.hosts[rank]
                    reached.append(other)


def place_lines(communicators: Sequence[Communicator], world: Communicator | None, found_by: Attribution) -> Placed:
    """Translate the ranks of all connection lines.

    Args:
        found_by: how the bursts came to their communicators, and which came to none.
    """
    placed = Placed(found_by)
    for comm in communicators:
        space = "global" if world else comm.name
        for rank, member in comm.members.items():
            own = _global_rank(comm.global_ranks, rank)
            if own is not None:
                placed.name_host((space, own), member.log)
            if member.bursts:
                placed.placements.append(Placement(space, comm.global_ranks, comm.name, member.log, member.bursts))
    rooms = _Rooms(communicators, world)
    homes = [(log, burst, rooms.find_home(log, burst)) for log, burst in found_by.homeless]
    claims = group_sets(((home.name, burst.key.rank), log.process) for log, burst, home in homes if home)
    for log, burst, home in homes:
        # One that has room for several processes as the same rank has it for none: at most one of them is that rank.
        if home is not None and len(claims[home.name, burst.key.rank]) == 1:
            space, own = ("global" if world else home.name), _global_rank(home.global_ranks, burst.key.rank)
            if own is not None and (space, own) not in placed.hosts:
                placed.name_host((space, own), log)
            placed.placements.append(Placement(space, home.global_ranks, home.name, log, [burst]))
        elif world is None and (fragment := _find_fragment(placed, log, burst)):
            fragment.take(log, burst)
            placed.hosts.update(((fragment.name, who), host) for who, host, _ in _named_ranks(log, burst) if host)
            ranks = range(burst.highest + 1)
            placed.placements.append(Placement(fragment.name, ranks, fragment.name, log, [burst]))
        else:
            for edge in burst.edges.values():
                placed.count_unplaced(edge)
    placed.join_pairs()
    placed.spread_hosts()
    return placed


def _global_rank(ranks: Sequence[int | None], rank: int | None) -> int | None:
    """Return the global rank; None for a rank beyond the communicator."""
    return ranks[rank] if rank is not None and rank < len(ranks) else None


class _Rooms:
    """Finds the communicator that a burst whose START is missing belongs to, among thousands as fast as among a few."""

    def __init__(self, communicators: Sequence[Communicator], world: Communicator | None) -> None:
        self._by_size = sorted(communicators, key=lambda comm: -comm.nranks)
        self._without: dict[int, list[Communicator]] = {}
        self._global_ranks = group_sets(
            (id(member.log), member.rank) for member in (world.members.values() if world else ())
        )

    def find_home(self, log: ProcessLog, burst: Burst) -> Communicator | None:
        """Return the only communicator with room for a burst that does not contradict it."""
        rank, highest = burst.key.rank, burst.highest
        if rank not in self._without:  # the two largest: where the second has no room, no other has
            self._without[rank] = list(islice((comm for comm in self._by_size if rank not in comm.members), 2))
        with_room = [comm for comm in self._without[rank] if highest < comm.nranks]
        return with_room[0] if len(with_room) == 1 and self._agrees(with_room[0], log, burst) else None

    def _agrees(self, comm: Communicator, log: ProcessLog, burst: Burst) -> bool:
        """Return whether what the world knows of the ranks of a communicator does not speak against a burst."""
        mine = self._global_ranks.get(id(log))
        if mine and _global_rank(comm.global_ranks, burst.key.rank) not in mine:
            return False
        for rank, host, device in _named_ranks(log, burst):
            member = comm.mate(rank)
            if member is not None and (host not in (None, member.log.process.host) or not member.is_called(device)):
                return False
        return True


def _find_fragment(placed: Placed, log: ProcessLog, burst: Burst) -> Fragment | None:
    """Return the communicator that a burst is of, perhaps a new one; None when there are too many."""
    fragment = next((candidate for candidate in placed.fragments if candidate.admits(log, burst)), None)
    if fragment is None and len(placed.fragments) < _MAX_FRAGMENTS:
        fragment = Fragment(f"fragment {len(placed.fragments) + 1}")
        placed.fragments.append(fragment)
    return fragment
