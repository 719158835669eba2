"""Connection lines to paths: one for each directed pair of global ranks, both ends and all channels joined.

Lines are placed first: which ranks of which space they join, and which hosts these ranks are on. Sender and receiver
print a line each, about their own end only. Lines belong together when communicator, connection set and channel are the
same; channels are bits, so that a pair with 64 channels costs as much as one with a single one.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache, cached_property, reduce
from itertools import islice
from operator import attrgetter, itemgetter, or_
from typing import NamedTuple, TypeAlias

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect, NetDevices
from nccl_inspect.ingest.lines.prefix import is_masked
from nccl_inspect.model.communicators.attribution import Attribution
from nccl_inspect.model.communicators.communicator import SEND_RECV, Communicator
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold import MAX_CHANNELS, PLACE, Burst, ProcessLog, source_and_line
from nccl_inspect.model.job import Notice
from nccl_inspect.model.paths.path import AlsoPath, End, Link, PathKind
from nccl_inspect.model.paths.table import Paths, Table, columns_of, refine_kinds
from nccl_inspect.model.statements.index import Statement
from nccl_inspect.scanning.found import Edge, Run
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Record, Slotted, values

# Lines in their places

_MAX_FRAGMENTS = 256
"""Communicators distinguished by their connection lines only; each line is compared with all of them."""


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


Ranks: TypeAlias = tuple[int, int, str]  # two ranks and the space of these


class Placement(NamedTuple):
    """A burst of a process in a communicator, in the ranks of a space."""

    space: str  # the name of the communicator whose ranks count, ``global`` for the world's
    ranks: Sequence[int | None]  # for each rank that the burst may name that of the space
    communicator: str
    log: ProcessLog
    burst: Burst
    guessed: bool  # whether only the order of use shows its communicator
    doubtful: bool  # whether it may therefore join other ranks
    printer: int  # a number for how sure it is and for the NICs of its process: the same for all that are alike

    def find_rank(self, rank: int | None) -> int | None:
        """Return the number that a rank of the burst has in the space."""
        return self.ranks[rank] if rank is not None and rank < len(self.ranks) else None


class Line(NamedTuple):
    """One edge of one burst, in the numbers of the space in which paths are reported."""

    src: int
    dst: int
    edge: Edge  # where it stands, what it says, and its channels
    placement: Placement

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
        return self.placement.find_rank(self.edge.event.pxn_rank)


class Said(Slotted):
    """Holds what an edge says: the same object in all bursts that say the same."""

    key: bytes  # that of the edge in its burst
    event: ChannelConnect
    number: int
    """Stands for all of that which the kind of a path is found out by; but for the ranks, and where these are."""
    detail: str
    is_local: bool
    devices: tuple[str | None, str | None]


class Placed:
    """All connection lines, with what they and the communicators say of hosts."""

    def __init__(self, found_by: Attribution, nics: NicNames) -> None:
        self._found_by, self.nics = found_by, nics
        self._printers: dict[object, int] = {}
        self.placements: list[Placement] = []
        self.hosts: dict[tuple[str, int], str] = {}
        self.fragments: list[Fragment] = []
        self.unplaced = Counter[str]()
        """How many lines could not be placed, by the path that they show; without those of bursts given up."""
        self.pairs: dict[Ranks, list[tuple[int, Said]]] = {}
        """By the ranks that lines join the numbers of their placements, and what they say; CollNet's join none."""
        self.has_proxies = False  # whether a line names another rank whose NIC sends
        self._numbers: dict[object, int] = {}
        self.networks = Counter[str]()  # how many connections each network has

    def place_burst(
        self, burst: Burst, space: str, ranks: Sequence[int | None], communicator: str, log: ProcessLog
    ) -> None:
        """Note the communicator that a burst is of."""
        guessed = id(burst) in self._found_by.guessed
        doubtful = guessed and id(burst) not in self._found_by.paired
        printer = self._printers.setdefault((guessed, doubtful, self.nics.number(log)), len(self._printers))
        self.placements.append(Placement(space, ranks, communicator, log, burst, guessed, doubtful, printer))

    def name_host(self, rank: tuple[str, int], log: ProcessLog) -> None:
        """Note the host of a rank, unless it was taken out of the log."""
        if not is_masked(log.process):
            self.hosts[rank] = log.process[0]

    def find_fragment(self, log: ProcessLog, burst: Burst) -> Fragment | None:
        """Return the communicator that a burst is of, perhaps a new one; None when there are too many."""
        fragment = next((candidate for candidate in self.fragments if candidate.admits(log, burst)), None)
        if fragment is None and len(self.fragments) < _MAX_FRAGMENTS:
            fragment = Fragment(f"fragment {len(self.fragments) + 1}")
            self.fragments.append(fragment)
        return fragment

    def count_unplaced(self, edge: Edge) -> None:
        """Count connections that belong nowhere; those of CollNet join no ranks."""
        if edge.event.transport != "COLLNET":
            self.unplaced[edge.event.detail + (" with GDR" if edge.event.gdr else "")] += edge.lines

    def join_pairs(self) -> None:
        """Gather the lines of each pair of ranks; what bursts say is read once for all that say the same.

        They are in the order of processes in their communicators, then in that of the log: in which order they were
        decided matters for none.
        """
        owners = group_values(((one.communicator, id(one.log)), one) for one in self.placements)
        self.placements = [one for some in owners.values() for one in sorted(some, key=lambda one: one.burst.place)]
        known: dict[object, list[tuple[int, int | None, Said]]] = {}
        pairs, said_lines = self.pairs, list[Said]()
        for number, one in enumerate(self.placements):
            edges, ranks, size = one.burst.edges, one.ranks, len(one.ranks)
            whole = one.printer, one.burst.wording
            for own_src, own_dst, said in known.get(whole) or known.setdefault(whole, self._read_burst(one)):
                src = ranks[own_src] if own_src < size else None
                dst = ranks[own_dst] if own_dst is not None and own_dst < size else None
                if src is None or dst is None:
                    self.count_unplaced(edges[said.key])
                    continue
                pair = src, dst, one.space
                if (lines := pairs.get(pair)) is None:
                    pairs[pair] = [(number, said)]
                else:
                    lines.append((number, said))
                said_lines.append(said)
        self.networks.update([said.event.net for said in said_lines if said.event.net])

    def _read_burst(self, placement: Placement) -> list[tuple[int, int | None, Said]]:
        """Return the ranks that the edges of a burst join, and what they say, in the order of the log."""
        read = []
        for key, edge in sorted(placement.burst.edges.items(), key=lambda entry: entry[1].place):
            event = edge.event
            whole = _SAID(event), edge.channels, placement.printer
            number, devices = self._numbers.setdefault(whole, len(self._numbers)), (event.src_dev, event.dst_dev)
            said = Said(key, event, number, event.detail, event.is_local, devices)
            self.has_proxies |= event.pxn_rank is not None
            read.append((event.src, event.dst, said))
        return read

    def list_lines(self, pair: Ranks) -> list[Line]:
        """Return the lines of a pair of ranks."""
        placements = [(self.placements[number], said) for number, said in self.pairs[pair]]
        return [Line(*pair[:2], one.burst.edges[said.key], one) for one, said in placements]

    def spread_hosts(self) -> None:
        """Ranks joined by SHM or P2P are on one host, even where only one of them printed."""
        beside: dict[tuple[str, int], list[tuple[str, int]]] = {}
        known = defaultdict(set, group_sets(self.hosts))
        for (src, dst, space), lines in self.pairs.items():
            is_known = src in known[space] and dst in known[space]
            if not is_known and any(said.is_local for _, said in lines):
                ends = (space, src), (space, dst)
                beside.setdefault(ends[0], []).append(ends[1])
                beside.setdefault(ends[1], []).append(ends[0])
        reached = deque(rank for rank in beside if rank in self.hosts)
        while reached:
            rank = reached.popleft()
            for other in beside[rank]:
                if other not in self.hosts:
                    self.hosts[other] = self.hosts[rank]
                    reached.append(other)


def place_lines(
    communicators: Sequence[Communicator],
    world: Communicator | None,
    found_by: Attribution,
    statements: Iterable[Statement],
) -> Placed:
    """Translate the ranks of all connection lines, of bursts that have a communicator and of those that have none."""
    placed = Placed(found_by, NicNames(statements))
    for comm in communicators:
        space = "global" if world else comm.name
        for rank, member in comm.members.items():
            if (own := comm.global_rank(rank)) is not None:
                placed.name_host((space, own), member.log)
            for burst in member.bursts:
                placed.place_burst(burst, space, comm.global_ranks, comm.name, member.log)
    rooms = _Rooms(communicators, world)
    homes = [(log, burst, rooms.find_home(log, burst)) for log, burst in found_by.homeless]
    claims = group_sets(((home.name, burst.key.rank), log.process) for log, burst, home in homes if home)
    for log, burst, home in homes:
        # One that has room for several processes as the same rank has it for none: at most one of them is that rank.
        if home is not None and len(claims[home.name, burst.key.rank]) == 1:
            space, own = ("global" if world else home.name), home.global_rank(burst.key.rank)
            if own is not None and (space, own) not in placed.hosts:
                placed.name_host((space, own), log)
            placed.place_burst(burst, space, home.global_ranks, home.name, log)
        elif world is None and (fragment := placed.find_fragment(log, burst)):
            fragment.take(log, burst)
            placed.hosts.update(((fragment.name, who), host) for who, host, _ in _named_ranks(log, burst) if host)
            placed.place_burst(burst, fragment.name, range(burst.highest + 1), fragment.name, log)
        else:
            for edge in burst.edges.values():
                placed.count_unplaced(edge)
    placed.join_pairs()
    placed.spread_hosts()
    return placed


class _Rooms:
    """Finds the communicator that a burst whose START is missing belongs to, among thousands as fast as among a few."""

    def __init__(self, communicators: Sequence[Communicator], world: Communicator | None) -> None:
        self._by_size = sorted(communicators, key=lambda comm: -comm.nranks)
        self._without: dict[int, list[Communicator]] = {}
        self._global_ranks = group_sets((id(one.log), one.rank) for one in (world.members.values() if world else ()))

    def find_home(self, log: ProcessLog, burst: Burst) -> Communicator | None:
        """Return the only communicator with room for a burst that does not contradict it."""
        rank, highest = burst.key.rank, burst.highest
        if rank not in self._without:  # the two largest: where the second has no room, no other has
            self._without[rank] = list(islice((comm for comm in self._by_size if rank not in comm.members), 2))
        with_room = [comm for comm in self._without[rank] if highest < comm.nranks]
        if len(with_room) != 1:
            return None
        (comm,) = with_room  # unless what the world knows of its ranks speaks against the burst
        mine = self._global_ranks.get(id(log))
        if mine and comm.global_rank(rank) not in mine:
            return None
        for who, host, device in _named_ranks(log, burst):
            member = comm.mate(who)
            if member is not None and (host not in (None, member.log.process.host) or not member.is_called(device)):
                return None
        return comm


# What lines say of NICs, GPUs and hosts

NicName = Callable[[ProcessLog, str, int], str | None]
"""The name of a NIC by process, network and index, where the log lists it."""


def pair_ends(way: Iterable[Line], nic_name: NicName) -> list[Link]:
    """Return the links of a network path: channels whose ends say the same are one."""
    sides: dict[tuple[str, int | None], tuple[dict[End, int], dict[End, int]]] = {}
    for line in way:
        event = line.event
        both = sides.setdefault((line.communicator, event.conn), ({}, {}))
        named = event.net is not None and event.nic_index is not None
        nic = nic_name(line.placement.log, event.net or "", event.nic_index or 0) if named else None
        end = End(event.nic_index, nic, event.gdr, line.pxn_rank)
        mine = both[event.direction == "receive"]
        mine[end] = mine.get(end, 0) | line.edge.channels
    channels_of_link: dict[tuple[End | None, End | None, bool], int] = {}
    for (_, conn), (send, receive) in sides.items():
        for sender, receiver, channels in _pair_ends(send, receive):
            key = sender, receiver, conn == SEND_RECV
            channels_of_link[key] = channels_of_link.get(key, 0) | channels
    return [Link(*key, channels) for key, channels in channels_of_link.items()]


def _pair_ends(send: dict[End, int], receive: dict[End, int]) -> Iterator[tuple[End | None, End | None, int]]:
    """Pair the ends by channel; one that a side names twice is not paired: it may be two connections."""
    twice = _named_twice(send) | _named_twice(receive)
    for sender, sent in send.items():
        alone = sent
        for receiver, received in receive.items():
            if both := sent & received & ~twice:
                yield sender, receiver, both
                alone &= ~both
        if alone:
            yield sender, None, alone
    paired = ~twice & reduce(or_, send.values(), 0)
    for receiver, received in receive.items():
        if alone := received & ~paired:
            yield None, receiver, alone


def _named_twice(ends: dict[End, int]) -> int:
    seen = again = 0
    for channels in ends.values():
        again |= seen & channels
        seen |= channels
    return again


class NicNames:
    """Looks up what processes state; each lists its own devices, and the index is one in that list."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        self._names: dict[Process, dict[tuple[str, int], str]] = {}
        listed = [
            (note.place, process, statement.event)
            for statement in statements
            if isinstance(statement.event, NetDevices)
            for process, note in zip(statement.processes, statement.notes, strict=True)
        ]
        for _, process, event in sorted(listed, key=itemgetter(0)):  # a later list counts
            names = self._names.setdefault(process, {})
            names.update(((event.net, int(device[0])), str(device[1])) for device in event.devices)
        self._lists: dict[object, int] = {}
        self._numbers: dict[int, int] = {}  # by the id of what a process printed the number of its list

    def find_name(self, log: ProcessLog, net: str, index: int) -> str | None:
        """Return the name of a NIC of a network, None where the process does not list it."""
        return self._names.get(log.process, {}).get((listed_as(net), index))

    def number(self, log: ProcessLog) -> int:
        """Return a number for the names of all NICs of a process: the same for all that have the same."""
        number = self._numbers.get(id(log))
        if number is None:
            names = tuple(sorted(self._names.get(log.process, {}).items()))
            number = self._numbers[id(log)] = self._lists.setdefault(names, len(self._lists))
        return number


def listed_as(net: str) -> str:
    """Return the name under which a network lists its devices: HPC-X's plugin prints its list as NET/IB."""
    return "IB" if net.startswith("IBext") else net


Pair = tuple[str, str, str]  # host and the bus ids of two GPUs


def gpu_classes(notices: Iterable[Notice]) -> dict[Pair, str]:
    """Return the class of each pair, where all processes of a host that state it agree."""
    by_pair: dict[Pair, set[str]] = {}
    for notice in notices:
        if notice.production != "nccl/topology-paths" or not isinstance(notice.event, events.Notice):
            continue
        values = dict(notice.event.values)
        if values["node"] != "GPU":
            continue
        for node, other, _hops, _bandwidth, kind in values["paths"]:
            for host in notice.hosts if node == "GPU" else ():
                by_pair.setdefault((host, _bus_id(values["id"]), _bus_id(other)), set()).add(kind)
    return {pair: kinds.pop() for pair, kinds in by_pair.items() if len(kinds) == 1}


def _bus_id(name: str) -> str:
    """Since 2.21 the number of the system precedes the bus id: 0-60; until 2.20 letters are capitals."""
    return name.rpartition("-")[2].lower()


def name_classes(paths: Paths, classes: Mapping[Pair, str], bus_ids: Mapping[int, str]) -> Paths:
    """Give P2P paths their class; other pairs NCCL reroutes through the CPU, whatever joins them."""
    marking = []
    for kind, host, dst_host, *ends in paths.values("kind", "src_host", "dst_host", "src", "src_gpu", "dst", "dst_gpu"):
        is_direct = kind.transport == "P2P" and host is not None and host == dst_host
        first, second = (bus_ids.get(rank, gpu or "").lower() for rank, gpu in (ends[:2], ends[2:]))
        marking.append(classes.get((host, first, second)) if is_direct else None)
    return refine_kinds(paths, marking, lambda kind, name: kind.with_fields(gpu_class=name))


class Scope:
    """Decides whether two ranks are on one host.

    Where shared memory is switched off, nodes are not hosts: NCCL counts ranks of one host as several.
    """

    def __init__(self, placed: Placed, communicators: Sequence[Communicator], nodes_are_hosts: bool) -> None:
        self._nodes_are_hosts = nodes_are_hosts
        self._placed, self._hosts = placed, placed.hosts
        self._by_name = {comm.name: comm for comm in communicators}
        self._are_ambiguous = cache(_names_are_ambiguous)
        self._is_full = cache(self._count_all)
        self._members = cache(
            lambda name: group_values((one.log.process[0], one) for one in self._by_name[name].members.values())
        )

    @cached_property
    def _ranks(self) -> dict[tuple[str, str], set[int]]:
        """Return the ranks on each host."""
        return group_sets(((space, name), rank) for (space, rank), name in self._hosts.items())

    @cached_property
    def _devices(self) -> dict[tuple[str, str, str], set[int]]:
        """Return the ranks that have a GPU of a host."""
        return group_sets(
            ((space, host, device), rank)
            for pair in self._placed.pairs
            for src, dst, space in (pair,)
            for line in self._placed.list_lines(pair)
            for rank, device in ((src, line.event.src_dev), (dst, line.event.dst_dev))
            if device is not None and (host := self._hosts.get((space, rank))) is not None
        )

    def find_scope(self, line: Line) -> str:
        """Return ``intra``, ``inter`` or ``unknown``."""
        if line.event.is_local:
            return "intra"
        space = line.placement.space
        src_host, dst_host = self._hosts.get((space, line.src)), self._hosts.get((space, line.dst))
        comm = self._by_name.get(line.communicator)
        if src_host is not None and dst_host is not None:
            if src_host != dst_host:
                return "inter"
            return "unknown" if comm and self._nodes_are_hosts and self._are_ambiguous(comm) else "intra"
        seen = src_host if src_host is not None else dst_host
        if seen is None:
            return "unknown"
        if comm and self._is_full(comm.name, space, seen):
            return "inter"
        # NCCL refuses two ranks on one GPU, so a device that a rank of that host has is another host's.
        unseen, device = (line.dst, line.event.dst_dev) if dst_host is None else (line.src, line.event.src_dev)
        return "inter" if self._devices.get((space, seen, device or ""), set()) - {unseen} else "unknown"

    def _count_all(self, name: str, space: str, host: str) -> bool:
        """Return whether the ranks that are known to be on a host are as many as NCCL counts there."""
        sizes = {member.shape.local_ranks for member in self._members(name).get(host, ()) if member.shape}
        on_host = self._ranks.get((space, host), set()).intersection(self._by_name[name].global_ranks)
        return sizes == {len(on_host)}


def _names_are_ambiguous(comm: Communicator) -> bool:
    """NCCL counts more nodes than there are host names: names like ``localhost`` do not distinguish hosts."""
    names = {member.log.process[0] for member in comm.members.values()}
    return comm.nnodes is not None and len(comm.members) == comm.nranks and comm.nnodes > len(names)


# Paths

_SPEED = {"P2P": 0, "SHM": 1, "NET": 2}


def build(
    placed: Placed,
    communicators: Sequence[Communicator],
    evidence: Callable[[Edge], Evidence],
    nodes_are_hosts: bool,
) -> Paths:
    """Return the paths, ordered by rank.

    A job of a thousand ranks has tens of thousands of paths of a few hundred kinds: what lines mean is found out once
    for all pairs of ranks whose lines say the same. :class:`Scope` says what ``nodes_are_hosts`` means.
    """
    scope = Scope(placed, communicators, nodes_are_hosts)
    kinds: dict[object, tuple[PathKind, bool]] = {}
    """By what lines say: the kind of path, and whether all of the lines are of it."""
    alike: dict[object, PathKind] = {}
    named: dict[tuple[str, ...], tuple[str, ...]] = {}
    """The communicators of paths by those of their lines: the same object for all that have the same."""
    rows, names = [], [one.communicator for one in placed.placements]
    ways: list[list[tuple[int, Said]]] = []
    quotes = _Quotes([one.burst.edges for one in placed.placements], ways, evidence)
    for pair in sorted(placed.pairs):
        src, dst, space = pair
        lines = placed.pairs[pair]
        hosts = placed.hosts.get((space, src)), placed.hosts.get((space, dst))
        of_lines = tuple([names[number] for number, _ in lines])
        is_between = hosts[0] != hosts[1] and None not in hosts
        wording = _find_wording(placed, pair, of_lines, None if is_between else scope)
        if wording not in kinds:
            kind = _kind(placed.list_lines(pair), scope, placed.nics.find_name)
            is_whole = all(said.detail == kind.detail for _, said in lines)
            kinds[wording] = alike.setdefault(values(kind), kind), is_whole
        kind, is_whole = kinds[wording]
        if not is_whole:
            lines = [(number, said) for number, said in lines if said.detail == kind.detail]
            of_lines = tuple([names[number] for number, _ in lines])
        devices = {said.devices for _, said in lines}
        if len(devices) > 1:
            first = _find_first(quotes.list_edges(lines)).event
            devices = {(first.src_dev, first.dst_dev)}
        of = named.get(of_lines) or named.setdefault(of_lines, tuple(dict.fromkeys(of_lines)))
        rows.append((src, dst, *hosts, *devices.pop(), of, kind))
        ways.append(lines)
    placed.pairs.clear()
    return Paths(Table(columns_of(rows), quotes.list_first))


def _find_wording(placed: Placed, pair: Ranks, names: Sequence[str], scope: Scope | None) -> object:
    """Return what the lines of a pair of ranks say: the same of pairs whose paths are of one kind.

    Args:
        names: the communicators that they are of.
        scope: says whether the ranks are on one host; None where they are known to be on two.
    """
    lines = placed.pairs[pair]
    wording: list[object] = [said.number for _, said in lines]
    if placed.has_proxies:
        wording += [placed.placements[number].find_rank(said.event.pxn_rank) for number, said in lines]
    if scope and not all(said.is_local for _, said in lines):
        wording += map(scope.find_scope, placed.list_lines(pair))
    # Which communicators they are of matters where several ways are named with theirs; else that they are several.
    if len({said.detail for _, said in lines}) > 1:
        wording += names
    elif names.count(names[0]) < len(names):
        wording += map(names.index, names)
    return tuple(wording)


_SAID = attrgetter("detail", "transport", "net", "nic_index", "conn", "direction", "is_local", "gdr", "shared")
"""What of an event matters for the kind of a path."""


class _Quotes(NamedTuple):
    """Quotes the first lines of paths and of their ends; jobs can be pickled with it."""

    runs: list[Run]  # the edges of each placement
    ways: list[list[tuple[int, Said]]]  # the lines that each path is read from
    evidence: Callable[[Edge], Evidence]

    def list_edges(self, lines: Iterable[tuple[int, Said]]) -> list[Edge]:
        """Return the edges of lines."""
        return [self.runs[number][said.key] for number, said in lines]

    def list_first(self, row: int, side: str = "") -> list[Evidence]:
        """Return the first line of a path, or of one of its ends, in a list; empty if none is known."""
        there = [line for line in self.ways[row] if not side or line[1].event.direction == side]
        return [self.evidence(_find_first(self.list_edges(there)))] if there else []


def _find_first(edges: Sequence[Edge]) -> Edge:
    return edges[0] if len(edges) == 1 else min(edges, key=PLACE)


def _slowness(way: list[Line]) -> tuple[int, bool, bool]:
    event = way[0].event
    return _SPEED.get(event.transport, 3), event.net == "Socket", not all(line.event.gdr for line in way)


def _kind(lines: Iterable[Line], scope: Scope, nic_name: NicName) -> PathKind:
    """Return the kind of the path of a pair of ranks: that of the slowest way, if there are several."""
    ways = group_values((line.event.detail, line) for line in lines)
    way, *others = sorted(ways.values(), key=_slowness, reverse=True)
    event = _find_first([line.edge for line in way]).event
    # The NIC and the proxy of a path are those of its sending end; its links have both ends.
    sender = next((line for line in way if line.event.direction != "receive"), way[0])
    index, net = sender.event.nic_index, sender.event.net
    channels = reduce(or_, (line.edge.channels for line in way))
    of_each = {line.communicator: line for line in way}.values()
    scopes = {scope.find_scope(line) for line in of_each} - {"unknown"}
    return PathKind(
        scope=scopes.pop() if len(scopes) == 1 else "unknown",
        transport=event.transport,
        detail=event.detail,
        gdr=_gdr(way),
        nic=nic_name(sender.placement.log, net, index) if net is not None and index is not None else None,
        nic_index=index,
        pxn_rank=sender.pxn_rank,
        shared=any(line.event.shared for line in way),
        guessed=all(line.placement.guessed for line in way),
        doubtful=all(line.placement.doubtful for line in way),
        net=net,
        channels=tuple(
            channel for channel in range(min(channels.bit_length(), MAX_CHANNELS)) if channels >> channel & 1
        ),
        also=tuple(
            AlsoPath(
                transport=other[0].event.transport,
                detail=other[0].event.detail,
                gdr=_gdr(other),
                communicators=tuple(dict.fromkeys(line.communicator for line in other)),
            )
            for other in others
        ),
        links=tuple(pair_ends(way, nic_name)) if event.transport == "NET" else (),
    )


def _gdr(way: list[Line]) -> bool | str | None:
    if way[0].event.transport != "NET":
        return None
    values = {line.event.gdr for line in way}
    return values.pop() if len(values) == 1 else "partial"


def unfinished_connections(logs: Iterable[ProcessLog], lines: Mapping[int, int]) -> list[Edge]:
    """Return the last connection of each process; nothing where a rank has all of them, or where other lines follow.

    Those of send/recv do not count: they are made on demand, and no line says that they are all there.

    Args:
        lines: how many each source has, by its number.
    """
    last: list[Edge] = []
    ends: dict[int, int] = {}
    for log in logs:
        source, line = source_and_line(log.last)
        ends[source] = max(line, ends.get(source, 0))
        bursts = [step for step in log.steps if isinstance(step, Burst) and step.key.conn != SEND_RECV]
        if not bursts:
            continue
        for step in log.steps:
            match step.event:
                case events.Connected() | events.CommEnd():
                    return []
                case events.CommInit(phase="COMPLETE") | events.ChannelCounts() if step.place > bursts[0].place:
                    return []  # until 2.21 these follow the connections
        last.append(max(bursts, key=lambda burst: burst.last).final)
    return last if all(lines[source] == line for source, line in ends.items()) else []
