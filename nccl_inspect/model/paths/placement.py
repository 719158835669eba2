"""Places connection lines: which ranks of which space they join, and which hosts these ranks are on."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect.event.base import Process
from nccl_inspect.ingest.lines.prefix import is_masked
from nccl_inspect.model.communicators.attribution import Attribution
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.fold.fold import Burst, ProcessLog
from nccl_inspect.model.paths.ends import Line
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.records import Record, record

if TYPE_CHECKING:
    from nccl_inspect.model.fold.edge_table import EdgeTable
    from nccl_inspect.model.paths.grouping import Rows

_MAX_FRAGMENTS = 256
"""Communicators distinguished by their connection lines only; each line is compared with all of them."""


@record
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
        """Return whether nothing that is known contradicts that this burst is of this communicator."""
        rank = burst.key.rank
        if self.processes.get(rank, log.process) != log.process or self.ranks.get(log.process, rank) != rank:
            return False
        return not any(self._contradicts(*statement) for statement in _named_ranks(log, burst))

    def _contradicts(self, rank: int, host: str | None, device: str) -> bool:
        other_host = host is not None and self.hosts.get(rank, host) != host
        return other_host or self.devices.get(rank, device) != device

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

    space: str
    ranks: Sequence[int | None]
    """For each rank that the bursts may name that of the space."""
    communicator: str
    log: ProcessLog
    bursts: Sequence[Burst]


class Placed:
    """All connection lines, with what they and the communicators say of hosts.

    Args:
        found_by: how the bursts came to their communicators.
        table: of all connections, where they are many.
    """

    def __init__(self, found_by: Attribution, table: EdgeTable | None) -> None:
        self._found_by, self.table = found_by, table
        self.placements: list[Placement] = []
        self.hosts: dict[tuple[str, int], str] = {}
        self.fragments: list[Fragment] = []
        self._unplaced = found_by.given_up

    def name_host(self, rank: tuple[str, int], log: ProcessLog) -> None:
        """Note the host of a rank, unless it was taken out of the log."""
        if not is_masked(log.process):
            self.hosts[rank] = log.process[0]

    def doubt(self, burst: Burst) -> int:
        """0: the communicator of a burst is certain; 1: only the order of use shows it; 2: ranks may be others."""
        if id(burst) not in self._found_by.guessed:
            return 0
        return 1 if id(burst) in self._found_by.paired else 2

    def doubts(self, bursts: Sequence[Burst]) -> list[int]:
        """Return the same of several."""
        return list(map(self.doubt, bursts)) if self._found_by.guessed else [0] * len(bursts)

    def give_up(self, burst: Burst) -> None:
        """Count connections that belong nowhere."""
        self._unplaced += sum(edge.lines for edge in burst.edges.values() if edge.event.transport != "COLLNET")

    @cached_property
    def rows(self) -> Rows:
        """Return those whose ranks are known as columns, where there is a table."""
        from nccl_inspect.model.paths.grouping import Rows  # most logs are short

        assert self.table is not None
        return Rows(self, self.table)

    @cached_property
    def lines(self) -> list[Line]:
        """Return those whose ranks are known; the other end of CollNet is the network, so that it joins no ranks."""
        ordered = [
            (number, edge.place, line)
            for number, placement in zip(owners(self.placements), self.placements, strict=True)
            for burst in placement.bursts
            for edge in burst.edges.values()
            if (line := self._line(placement, burst, edge))
        ]
        return [line for *_, line in sorted(ordered, key=itemgetter(0, 1))]

    def _line(self, placement: Placement, burst: Burst, edge: Edge) -> Line | None:
        """Return an edge in the ranks of the space; None where the log does not show them, and for CollNet."""
        event, ranks = edge.event, placement.ranks
        src, dst = _global_rank(ranks, event.src), _global_rank(ranks, event.dst)
        if src is None or dst is None or event.transport == "COLLNET":
            return None
        return Line(
            placement.space,
            src,
            dst,
            event,
            edge,
            placement.communicator,
            placement.log,
            self.doubt(burst) > 0,
            self.doubt(burst) > 1,
            _global_rank(ranks, event.pxn_rank),
            event.src_dev,
            event.dst_dev,
        )

    @property
    def unplaced_count(self) -> int:
        """Return how many lines could not be placed."""
        if self.table is not None:
            return self._unplaced + self.rows.unplaced
        bursts = (burst for placement in self.placements for burst in placement.bursts)
        edges = [edge for burst in bursts for edge in burst.edges.values()]
        lines = sum(edge.lines for edge in edges if edge.event.transport != "COLLNET")
        return self._unplaced + lines - sum(line.edge.lines for line in self.lines)

    @property
    def networks(self) -> Counter[str]:
        """Return how many connections each network has."""
        if self.table is not None:
            return self.rows.networks
        return Counter(line.event.net for line in self.lines if line.event.net)

    def spread_hosts(self) -> None:
        """Ranks joined by SHM or P2P are on one host, even where only one of them printed."""
        joins = self.rows.local(self.hosts) if self.table is not None else _local(self.lines)
        beside: dict[tuple[str, int], list[tuple[str, int]]] = {}
        for space, src, dst in joins:
            beside.setdefault((space, src), []).append((space, dst))
            beside.setdefault((space, dst), []).append((space, src))
        reached = deque(rank for rank in beside if rank in self.hosts)
        while reached:
            rank = reached.popleft()
            for other in beside[rank]:
                if other not in self.hosts:
                    self.hosts[other] = self.hosts[rank]
                    reached.append(other)


def owners(placements: Iterable[Placement]) -> list[int]:
    """Return for each placement the number of its process in its communicator.

    Connections are in the order of these, then in that of the log: in which order they were decided matters for none.
    """
    numbers: dict[tuple[str, int], int] = {}
    return [numbers.setdefault((placement.communicator, id(placement.log)), len(numbers)) for placement in placements]


def _local(lines: Iterable[Line]) -> Iterator[tuple[str, int, int]]:
    return ((line.space, line.src, line.dst) for line in lines if line.event.is_local)


def place_lines(
    communicators: Sequence[Communicator],
    world: Communicator | None,
    found_by: Attribution,
    table: EdgeTable | None = None,
) -> Placed:
    """Translate the ranks of all connection lines.

    Args:
        communicators: with their members and bursts.
        world: whose ranks are the global ones; None when the log does not show it.
        found_by: how the bursts came to their communicators, and which came to none.
        table: of all connections, where they are many.
    """
    placed = Placed(found_by, table)
    for comm in communicators:
        space = "global" if world else comm.name
        for rank, member in comm.members.items():
            own = _global_rank(comm.global_ranks, rank)
            if own is not None:
                placed.name_host((space, own), member.log)
            if member.bursts:
                placed.placements.append(Placement(space, comm.global_ranks, comm.name, member.log, member.bursts))
    for log, burst, home in _homes(communicators, world, found_by.homeless):
        _adopt(placed, home, world, log, burst)
    placed.spread_hosts()
    return placed


def _global_rank(ranks: Sequence[int | None], rank: int | None) -> int | None:
    """Return the global rank; None for a rank beyond the communicator."""
    return ranks[rank] if rank is not None and rank < len(ranks) else None


def _homes(
    communicators: Sequence[Communicator], world: Communicator | None, homeless: Iterable[tuple[ProcessLog, Burst]]
) -> Iterator[tuple[ProcessLog, Burst, Communicator | None]]:
    """Bursts whose START is missing, with the only communicator that has room for it, if there is one.

    One that has room for several processes as the same rank has it for none: at most one of them is that rank.
    """
    rooms = _Rooms(communicators, world)
    claims_of_bursts = [(log, burst, rooms.home(log, burst)) for log, burst in homeless]
    claims: dict[tuple[str, int], set[Process]] = {}
    for log, burst, home in claims_of_bursts:
        if home is not None:
            claims.setdefault((home.name, burst.key.rank), set()).add(log.process)
    for log, burst, home in claims_of_bursts:
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
        """Return the only communicator with room for a burst that does not contradict it."""
        highest = _highest(burst)
        with_room = [comm for comm in self._largest_without(burst.key.rank) if highest < comm.nranks]
        return with_room[0] if len(with_room) == 1 and self._agrees(with_room[0], log, burst) else None

    def _largest_without(self, rank: int) -> list[Communicator]:
        """Return the two largest in which nobody is that rank: where the second has no room, no other has."""
        if rank not in self._without:
            self._without[rank] = list(islice((comm for comm in self._by_size if rank not in comm.members), 2))
        return self._without[rank]

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


def _highest(burst: Burst) -> int:
    """Return the highest rank that a burst names."""
    return burst.highest


def _adopt(
    placed: Placed, home: Communicator | None, world: Communicator | None, log: ProcessLog, burst: Burst
) -> None:
    """Place a burst whose START is missing: in the communicator that has room for it, or in a fragment."""
    if home is not None:
        space, own = ("global" if world else home.name), _global_rank(home.global_ranks, burst.key.rank)
        if own is not None and (space, own) not in placed.hosts:
            placed.name_host((space, own), log)
        placed.placements.append(Placement(space, home.global_ranks, home.name, log, [burst]))
    elif world is None and (fragment := _fragment(placed, log, burst)):
        fragment.take(log, burst)
        for who, host, _ in _named_ranks(log, burst):
            if host:
                placed.hosts[fragment.name, who] = host
        ranks = range(_highest(burst) + 1)
        placed.placements.append(Placement(fragment.name, ranks, fragment.name, log, [burst]))
    else:
        placed.give_up(burst)


def _fragment(placed: Placed, log: ProcessLog, burst: Burst) -> Fragment | None:
    """Return the communicator that a burst is of, perhaps a new one; None when there are too many."""
    fragment = next((candidate for candidate in placed.fragments if candidate.admits(log, burst)), None)
    if fragment is None and len(placed.fragments) < _MAX_FRAGMENTS:
        fragment = Fragment(f"fragment {len(placed.fragments) + 1}")
        placed.fragments.append(fragment)
    return fragment
