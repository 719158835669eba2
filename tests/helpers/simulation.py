"""A small NCCL that only prints: jobs of known communicators, in the line shapes and the thread habits of each release.

Shapes are those of the format strings and of the captures in ``sample_logs``: which thread prints, whether connections
are made inside START and COMPLETE (until 2.21) or when they are first used, and which numbers stand in brackets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TypeVar


@dataclass(frozen=True)
class Release:
    name: str
    start: bool = True
    """``Init START`` (2.18.3)."""
    comm_id: bool = True
    """2.16.2."""
    nvml: bool = True
    """Brackets hold nvmlDev, not the bus id (2.18.3)."""
    splits: str | None = None
    """How a split is told: ``commId`` (2.31, with a count), ``splitCount`` and ``childCount`` (2.24), ``parent``,
    ``hash`` (2.21), ``bootstrap`` (2.20.3 names the parent), ``nameless`` (2.18)."""
    api: bool = True
    lazy: bool = True
    net_conn: bool = True
    p2p_conn: bool = True
    shape: bool = True
    cumem: bool = True
    caller_connects: bool = False
    """Since 2.28 the thread that calls connects, when there is one communicator to connect."""
    ends: bool = True


_COUNTS = {"commId": "childCount"}
_OLD = Release("2.18.5", splits="nameless", api=False, lazy=False, shape=False)
_OLDEST = Release(
    "2.14.3", start=False, comm_id=False, nvml=False, api=False, lazy=False, shape=False, cumem=False, ends=True
)
RELEASES = (
    Release(**{**vars(_OLDEST), "name": "2.8.4", "net_conn": False, "p2p_conn": False, "ends": False}),
    Release(**{**vars(_OLDEST), "name": "2.12.12", "p2p_conn": False}),
    _OLDEST,
    Release(**{**vars(_OLDEST), "name": "2.17.1", "comm_id": True}),
    _OLD,
    Release(**{**vars(_OLD), "name": "2.19.4"}),
    Release(**{**vars(_OLD), "name": "2.20.5", "splits": "bootstrap", "shape": True}),
    Release("2.21.5", splits="hash", lazy=False),
    Release("2.22.3", splits="hash"),
    Release("2.23.4", splits="parent"),
    Release("2.27.3", splits="splitCount"),
    Release("2.27.3 eager", splits="splitCount", lazy=False),
    Release("2.28.9", splits="splitCount", caller_connects=True),
    Release("2.30.7", splits="childCount", caller_connects=True, ends=False),
    Release("2.32.3", splits="commId", caller_connects=True, ends=False),
)


@dataclass(frozen=True)
class Truth:
    """Holds what is true of a connection line."""

    comm: int
    """The number of its communicator."""
    src: int
    dst: int
    """Global ranks."""


@dataclass
class Comm:
    """A communicator: its members by their global ranks."""

    number: int
    ranks: list[int]
    parent: Comm | None = None
    color: int = 0
    hash: int = 0
    counted: int = 0
    connected: set[tuple[object, ...]] = field(default_factory=set)
    """Which connections have been printed."""
    children: int = 0


Edge = tuple[int, int, int, int]
"""Connection set, channel, sender and receiver by their ranks in the communicator."""
Line = tuple[str, Truth | None]
Stream = list[Line]


class Job:
    """Writes what the processes of one job print.

    The ranks of a host may be `threads` of one process, its GPUs talk over `shm`, and ranks may go round the hosts
    (`scattered`); what is left open, such as interleaving and rotations of rings, is decided by `random`.
    """

    def __init__(
        self,
        release: Release,
        hosts: list[str],
        gpus: int,
        random: Random,
        *,
        threads: bool = False,
        shm: bool = False,
        scattered: bool = False,
        first_pid: int = 1000,
        channels: int = 2,
    ) -> None:
        self.release, self.random, self.shm, self.threads = release, random, shm, threads
        self.channels = channels
        slots = [(host, gpu) for host in hosts for gpu in range(gpus)]
        if scattered:
            slots.sort(key=lambda slot: slot[1])
        self.slots = slots
        self.nranks = len(slots)
        self.comms: list[Comm] = []
        self._tids = count(first_pid + 1000)
        self._host_pids = {host: first_pid + index for index, host in enumerate(hosts)}
        self._pids = [self._host_pids[host] if threads else first_pid + rank for rank, (host, _) in enumerate(slots)]
        self._callers = [next(self._tids) if threads else self._pids[rank] for rank in range(self.nranks)]
        self._streams: list[list[Stream]] = [[] for _ in range(self.nranks)]
        """For each rank what it prints; pieces follow one another."""
        self._pointers: dict[tuple[int, int], str] = {}

    # What a job does.

    def create(self, groups: Iterable[list[int]], parent: Comm | None = None) -> list[Comm]:
        """Make communicators: one split of a parent, or a root communicator for each group of global ranks."""
        made = [Comm(len(self.comms) + index, list(ranks), parent) for index, ranks in enumerate(groups)]
        self.comms += made
        members = parent.ranks if parent else []
        if parent:
            parent.children += 1
            for color, comm in enumerate(made):
                comm.color, comm.counted = color, parent.children
                comm.hash = (7919 * (parent.hash + 1) + color) % 2**64
            inside = {rank for comm in made for rank in comm.ranks}
            for rank in members:
                if rank not in inside:
                    text = (
                        f"Rank {members.index(rank)} has color with NCCL_SPLIT_NOCOLOR, not creating a new communicator"
                    )
                    self._print(rank, self._callers[rank], [(text, None)])
        for comm in made:
            if not parent:
                comm.hash = 0x5EED0000 + 31 * comm.number + 7 * self._callers[0]
            for rank in comm.ranks:
                self._init(comm, rank)
        return made

    def collective(self, comms: list[Comm], trees: bool = False) -> None:
        """Use communicators for the first time, all of them in one group call."""
        if self.release.lazy:
            self._use(comms, lambda comm: self._ring_and_tree(comm, trees), "collective")

    def exchange(self, comms: list[Comm]) -> None:
        """Send and receive along a line of ranks, or all to all."""
        everybody = self.random.random() < 0.5
        self._use(
            comms,
            lambda comm: [
                (1, channel, a, b)
                for a in range(len(comm.ranks))
                for b in range(len(comm.ranks))
                if a != b and (everybody or abs(a - b) == 1)
                for channel in range(self.channels)
            ],
            "exchange",
        )

    def destroy(self, comms: list[Comm]) -> None:
        for comm in comms:
            for rank in comm.ranks:
                if self.release.ends:
                    text = (
                        f"comm {self._pointer(comm, rank)} rank {comm.ranks.index(rank)} nranks {len(comm.ranks)} "
                        f"cudaDev {self.slots[rank][1]} busId {self._bus(rank)} - Destroy COMPLETE"
                    )
                    self._print(rank, self._callers[rank], [(text, None)])

    def log(self) -> list[Line]:
        """Return all lines, with processes and threads between each other."""
        by_process: dict[tuple[str, int], list[Stream]] = {}
        for rank, pieces in enumerate(self._streams):
            mine = [line for piece in pieces for line in piece]
            by_process.setdefault((self.slots[rank][0], self._pids[rank]), []).append(mine)
        return mix_streams([mix_streams(streams, self.random) for streams in by_process.values()], self.random)

    # How it prints.

    def _print(self, rank: int, tid: int, lines: Stream) -> None:
        self._streams[rank].append(self._add_prefix(rank, tid, lines))

    def _add_prefix(self, rank: int, tid: int, lines: Stream) -> Stream:
        host, gpu = self.slots[rank]
        return [(f"{host}:{self._pids[rank]}:{tid} [{gpu}] NCCL INFO {text}", truth) for text, truth in lines]

    def _pointer(self, comm: Comm, rank: int) -> str:
        # Forked processes have the same heap: their pointers are equal.
        base = 0x55550000 + (comm.number << 8) + (rank if self.threads else 0)
        return self._pointers.setdefault((comm.number, rank), f"{base:#x}")

    def _bus(self, rank: int) -> str:
        return f"{0x60 + 0x10 * self.slots[rank][1]:x}"

    def _init(self, comm: Comm, rank: int) -> None:
        release, parent = self.release, comm.parent
        tid = next(self._tids) if parent and not release.caller_connects else self._callers[rank]
        words = self._identity(comm, rank)
        texts = ["Using network Socket"]
        if parent and release.splits in ("nameless", "bootstrap", "hash"):
            texts.append(self._bootstrap(comm, parent, rank))
        if release.start:
            # The START line of splits lacks a blank since 2.23.
            bare = parent and release.splits in ("parent", "splitCount", "childCount")
            texts.append(f"{words}{'' if bare else ' '}- Init START")
        if release.shape:
            local = [other for other in comm.ranks if self.slots[other][0] == self.slots[rank][0]]
            nodes = len({self.slots[other][0] for other in comm.ranks})
            texts.append(
                f"comm {self._pointer(comm, rank)} rank {comm.ranks.index(rank)} nRanks {len(comm.ranks)} "
                f"nNodes {nodes} localRanks {len(local)} localRank {local.index(rank)} MNNVL 0"
            )
        texts += self._graph(comm, comm.ranks.index(rank))
        nvls = " 0 nvls channels," if release.nvml else ""
        texts.append(
            f"{self.channels} coll channels,{nvls} {self.channels} p2p channels, {self.channels} p2p channels per peer"
        )
        lines: Stream = [(text, None) for text in texts]
        if not release.lazy:
            for part in self._ring_and_tree(comm, True):
                lines += self._connections(comm, rank, part) if not isinstance(part, str) else [(part, None)]
        lines.append((f"{words} - Init COMPLETE", None))
        self._print(rank, tid, lines)

    def _identity(self, comm: Comm, rank: int) -> str:
        """Return what START and COMPLETE say of a member."""
        release, mine, parent = self.release, comm.ranks.index(rank), comm.parent
        gpu = self.slots[rank][1]
        api = ("ncclCommSplit " if parent else "ncclCommInitRank ") if release.api else ""
        nvml = f" nvmlDev {gpu}" if release.nvml else ""
        words = f"{api}comm {self._pointer(comm, rank)} rank {mine} nranks {len(comm.ranks)} cudaDev {gpu}{nvml}"
        words += f" busId {self._bus(rank)}"
        if parent and release.splits == "commId":
            words += f" commId {comm.hash:#x}"
        if parent and release.api:
            words += f" parent {self._pointer(parent, rank)}"
            if release.splits in ("splitCount", "childCount", "commId"):
                words += f" {_COUNTS.get(release.splits, release.splits)} {comm.counted}"
            words += f" color {comm.color} key {mine}"
        if release.comm_id and (not parent or not release.api or release.splits == "hash"):
            words += f" commId {comm.hash:#x}"
        return words

    def _bootstrap(self, comm: Comm, parent: Comm, rank: int) -> str:
        mine = comm.ranks.index(rank)
        places = [parent.ranks.index(other) for other in comm.ranks]
        pointers = f"comm {self._pointer(comm, rank)} parent {self._pointer(parent, rank)} "
        return (
            f"bootstrapSplit: {'' if self.release.splits == 'nameless' else pointers}rank {mine} nranks "
            f"{len(places)} color {comm.color} key {mine} prev {places[mine - 1]} next "
            f"{places[(mine + 1) % len(places)]} - DONE"
        )

    def _graph(self, comm: Comm, mine: int) -> list[str]:
        lines = []
        if mine == 0:
            for channel in range(self.channels):
                ring = " ".join(map(str, self._ring(comm, channel)))
                lines.append(f"Channel {channel:02}/{self.channels:02} : {ring}")
        text = ""
        for channel in range(self.channels):
            up, down = self._tree(comm, mine)
            slots = [*down, -1, -1, -1][:3]
            text += f" [{channel}] {'/'.join(map(str, slots))}->{mine}->{up}"
        lines.append(f"Trees{text}")
        return lines

    def _ring(self, comm: Comm, channel: int) -> list[int]:
        """Return the ring node by node, within the nodes turned by the channel."""
        by_host: dict[str, list[int]] = {}
        for place, rank in enumerate(comm.ranks):
            by_host.setdefault(self.slots[rank][0], []).append(place)
        order = []
        for places in by_host.values():
            turn = channel % len(places)
            order += places[turn:] + places[:turn]
        start = order.index(0)
        return order[start:] + order[:start]

    def _tree(self, comm: Comm, mine: int) -> tuple[int, list[int]]:
        return (mine - 1) // 2 if mine else -1, [
            child for child in (2 * mine + 1, 2 * mine + 2) if child < len(comm.ranks)
        ]

    def _ring_and_tree(self, comm: Comm, trees: bool) -> list[Edge | str]:
        edges: list[Edge | str] = []
        for channel in range(self.channels):
            ring = self._ring(comm, channel)
            edges += [(0, channel, a, b) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True) if a != b]
        edges.append("Connected all rings")
        if trees:
            for channel in range(self.channels):
                for place in range(len(comm.ranks)):
                    up, _ = self._tree(comm, place)
                    if up >= 0:
                        edges += [(0, channel, up, place), (0, channel, place, up)]
            edges.append("Connected all trees")
        return edges

    def _use(self, comms: list[Comm], edges: Callable[[Comm], Sequence[Edge | str]], what: str) -> None:
        ranks = sorted({rank for comm in comms for rank in comm.ranks})
        for rank in ranks:
            streams = []
            mine = [comm for comm in comms if rank in comm.ranks]
            for comm in mine:
                lines: Stream = []
                for part in edges(comm):
                    lines += [(part, None)] if isinstance(part, str) else self._connections(comm, rank, part)
                if not any(truth for _, truth in lines):
                    continue
                # Collectives connect one communicator after the other, send/recv all at once.
                by_caller = self.release.caller_connects and (what == "collective" or len(mine) == 1)
                tid = self._callers[rank] if by_caller else next(self._tids)
                streams.append(self._add_prefix(rank, tid, lines))
            in_turn = self.release.caller_connects and what == "collective"
            together = [line for stream in streams for line in stream] if in_turn else mix_streams(streams, self.random)
            self._streams[rank].append(together)

    def _connections(self, comm: Comm, rank: int, edge: Edge) -> Stream:
        """Return the line that a rank prints of an edge, if it has not printed it before."""
        conn, channel, a, b = edge
        mine = comm.ranks.index(rank)
        if mine not in (a, b) or (rank, edge) in comm.connected:
            return []
        src, dst = comm.ranks[a], comm.ranks[b]
        local = self.slots[src][0] == self.slots[dst][0]
        if local and mine == b:
            return []
        comm.connected.add((rank, edge))
        release = self.release
        names = [str(self.slots[end][1]) if release.nvml else self._bus(end) for end in (src, dst)]
        if local:
            kind = "P2P/direct pointer" if self.threads else "P2P/CUMEM" if release.cumem else "P2P/IPC"
            if self.shm:
                kind = (
                    "SHM/direct/direct"
                    if release.name != "2.8.4" and release.name != "2.12.12"
                    else ("direct shared memory")
                )
            way, numbered = f"via {kind}", release.p2p_conn and not self.shm
        else:
            way, numbered = f"[{'send' if mine == a else 'receive'}] via NET/Socket/0", release.net_conn
            if conn == 1:
                way += "/Shared"
        suffix = f"/{conn}" if numbered else ""
        text = f"Channel {channel:02}{suffix} : {a}[{names[0]}] -> {b}[{names[1]}] {way}"
        return [(text, Truth(comm.number, src, dst))]


Item = TypeVar("Item")


def mix_streams(streams: list[list[Item]], random: Random) -> list[Item]:
    """Return several streams in one, each in its own order; now and then one after the other."""
    if random.random() < 0.25:
        random.shuffle(streams)
        return [line for stream in streams for line in stream]
    return list(_merge_streams(streams, random))


def _merge_streams(streams: list[list[Item]], random: Random) -> Iterator[Item]:
    waiting = [stream[::-1] for stream in streams if stream]
    while waiting:
        stream = random.choice(waiting)
        for _ in range(random.choice((1, 1, 3, 12))):
            yield stream.pop()
            if not stream:
                waiting.remove(stream)
                break
