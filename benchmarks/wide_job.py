"""The log of a large job with its truth: nodes of eight GPUs, NVLink inside, a NIC for each GPU outside; NCCL 2.28.9.

The communicators are those of a training: the world, then by ``ncclCommSplit`` tensor parallelism (the eight of a
node), data parallelism (the same GPU of all nodes) and expert parallelism (64 neighbours, all to all). What connects is
physically possible: rings and trees enter and leave a node by the GPU whose NIC they use, and the lines of all ranks
are mixed as a pipe mixes them. Time and memory grow with the lines, so that 8,192 ranks can be written, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from random import Random

GPUS = 8
EXPERTS = 64
"""Ranks that talk all to all."""
BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
BEGIN = datetime(2026, 11, 20, 23, 13, 7)
_SAME_TIME = 64
"""Ranks whose lines are mixed."""

Truth = dict[tuple[int, int], tuple[str, bool | None]]
"""The transport of each pair of ranks, and whether it uses GPUDirect RDMA."""


@dataclass(frozen=True)
class Group:
    """A communicator: its ranks in the world, and how it was made."""

    ranks: Sequence[int]
    pointers: Sequence[int]
    """Where each rank of the world keeps it."""
    channels: int
    made_by: str
    """What ends its init lines: the id, or the parent with count and color."""
    all_to_all: bool = False

    @property
    def is_world(self) -> bool:
        """Return whether it was not split from another."""
        return self.made_by.startswith("commId")

    @cached_property
    def number(self) -> dict[int, int]:
        """Return the rank in this communicator of each rank of the world."""
        return {rank: number for number, rank in enumerate(self.ranks)}

    @cached_property
    def nodes(self) -> list[list[int]]:
        """Return its ranks node by node."""
        nodes: dict[int, list[int]] = {}
        for rank in self.ranks:
            nodes.setdefault(rank // GPUS, []).append(rank)
        return list(nodes.values())

    @cached_property
    def rings(self) -> list[list[int]]:
        """Return a ring for each GPU that may enter a node first; the channels take them in turn."""
        return [[rank for node in self.nodes for rank in _rotate(node, first)] for first in range(len(self.nodes[0]))]

    @cached_property
    def neighbours(self) -> list[dict[int, tuple[int, int]]]:
        """Return who comes before and after each rank, in each ring."""
        return [
            {
                rank: (before, after)
                for before, rank, after in zip(_rotate(ring, -1), ring, _rotate(ring, 1), strict=True)
            }
            for ring in self.rings
        ]

    def tree(self, rank: int, node: int, channel: int) -> tuple[int | None, list[int]]:
        """Return the parent and the children of a rank: a chain inside each node, a binary heap of their first GPUs."""
        first = channel % len(self.nodes[node])
        chain = _rotate(self.nodes[node], first)
        place = chain.index(rank)
        below = chain[place + 1 : place + 2]
        if place:
            return chain[place - 1], below
        heads = [self.nodes[child][first] for child in (2 * node + 1, 2 * node + 2) if child < len(self.nodes)]
        return self.nodes[(node - 1) // 2][first] if node else None, below + heads


def _rotate(values: Sequence[int], first: int) -> list[int]:
    return [*values[first:], *values[:first]]


@dataclass
class WideJob:
    """A job whose lines can be read once; ``truth`` is complete when they have been."""

    ranks: int
    rounds: int = 1
    """How often the ranks are split for tensor and data parallelism."""
    no_gdr: int | None = None
    """A node whose NICs cannot reach the memory of GPUs."""
    truth: Truth = field(default_factory=dict)
    _chance: Random = field(default_factory=lambda: Random(1))

    @property
    def hosts(self) -> list[str]:
        """Return the names of the nodes."""
        return [_host(node) for node in range(self.ranks // GPUS)]

    def lines(self) -> Iterator[str]:
        """Yield the log."""
        world = Group(range(self.ranks), self._pointers(), 16, f"commId {self._chance.getrandbits(63):#x}")
        yield from self._mix_ranks([world])
        nodes = range(self.ranks // GPUS)
        tensor = [range(node * GPUS, (node + 1) * GPUS) for node in nodes]
        data = [range(gpu, self.ranks, GPUS) for gpu in range(GPUS)] if len(nodes) > 1 else []
        size = min(EXPERTS, self.ranks)
        experts = [range(first, first + size) for first in range(0, self.ranks - size + 1, size)]
        steps = [(tensor, 24, False), *([(data, 16, False)] if data else [])] * self.rounds + [(experts, 16, True)]
        for count, (groups, channels, all_to_all) in enumerate(steps, 1):
            pointers = self._pointers()
            yield from self._mix_ranks(
                [
                    Group(ranks, pointers, channels, f"splitCount {count} color {color}", all_to_all)
                    for color, ranks in enumerate(groups)
                ],
                world,
            )

    def _pointers(self) -> list[int]:
        return [self._chance.randrange(1 << 43, 1 << 46) & ~15 for _ in range(self.ranks)]

    def _mix_ranks(self, groups: Sequence[Group], world: Group | None = None) -> Iterator[str]:
        """Yield the lines of all ranks, each rank's in its order."""
        printing = [
            self._print_rank(group, rank, node, world)
            for group in groups
            for node, ranks in enumerate(group.nodes)
            for rank in ranks
        ]
        for first in range(0, len(printing), _SAME_TIME):
            some = printing[first : first + _SAME_TIME]
            while some:
                at = self._chance.randrange(len(some))
                for _ in range(self._chance.randrange(1, 6)):
                    if (line := next(some[at], None)) is None:
                        del some[at]
                        break
                    yield line

    def _print_rank(self, group: Group, rank: int, node: int, world: Group | None) -> Iterator[str]:
        """Yield what a rank prints of a communicator, under the names of its threads."""
        place, gpu = divmod(rank, GPUS)
        pid = 40000 + gpu * 7 + place % 900
        main, proxy = (f"{_host(place)}:{pid}:{thread} [{gpu}] NCCL INFO " for thread in (pid, pid + 300))
        texts = self._texts(group, rank, node, world.pointers[rank] if world else None)
        return ((proxy if text.startswith(_OF_PROXY) or "] via NET" in text else main) + text + "\n" for text in texts)

    def _texts(self, group: Group, rank: int, node: int, parent: int | None) -> Iterator[str]:
        number, size, gpu = group.number[rank], len(group.ranks), rank % GPUS
        local = group.nodes[node]
        yield from self._begin(rank, is_world=group.is_world)
        call = "ncclCommInitRankConfig" if group.is_world else "ncclCommSplit"
        about = f"rank {number} nranks {size} cudaDev {gpu} nvmlDev {gpu} busId {BUSES[gpu]:x}000"
        made_by = group.made_by if parent is None else f"parent {parent:#x} {group.made_by} key {number}"
        init = f"{call} comm {group.pointers[rank]:#x} {about} {made_by}"
        yield f"{init}{' ' if group.is_world else ''}- Init START"
        if group.is_world:
            steps = "create 0.000045, send 0.000113, recv 0.037331, ring 0.016578, delay 0.000001"
            yield f"Bootstrap timings total 0.{self._chance.randrange(100_000, 999_999)} ({steps})"
        yield f"MNNVL busId {BUSES[gpu]:#x}000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0"
        nodes = f"nRanks {size} nNodes {len(group.nodes)} localRanks {len(local)} localRank {local.index(rank)}"
        yield f"comm {group.pointers[rank]:#x} rank {number} {nodes} MNNVL 0"
        yield from self._layout(group, rank, node)
        yield f"{init} - Init COMPLETE"
        yield from self._connections(group, rank, node)
        rest = "kernels 0.00, alloc 0.00, bootstrap 0.00, allgathers 0.00, topo 0.03, graphs 0.00, connections 0.01"
        total = f"total 0.{self._chance.randrange(10, 99)}"
        yield f"Init timings - {call}: rank {number} nranks {size} {total} ({rest}, rest 0.00)"

    def _begin(self, rank: int, *, is_world: bool) -> Iterator[str]:
        place = rank // GPUS
        address = f"eth0:10.{place // 200}.{place % 200}.7<0>"
        if is_world:
            yield "ENV/Plugin: Could not find: libnccl-env.so"
            yield f"Bootstrap: Using {address}"
            yield "cudaDriverVersion 13000"
            yield "NCCL version 2.28.9+cuda13.0"
        yield "Comm config Blocking set to 1"
        if is_world:
            yield "NET/Plugin: Could not find: libnccl-net.so"
            yield "NCCL_IB_HCA set to mlx5"
            nics = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(GPUS))
            yield f"NET/IB : Using {nics} [RO]; OOB {address}"
        yield "Initialized NET plugin IB"
        yield "Assigned NET plugin IB to comm"
        yield "Using network IB"
        if is_world:
            state = "Disabled" if place == self.no_gdr else "Enabled"
            yield from (f"NET/IB : GPU Direct RDMA {state} for HCA {nic} 'mlx5_{nic}'" for nic in range(GPUS))

    def _layout(self, group: Group, rank: int, node: int) -> Iterator[str]:
        number, channels = group.number, group.channels
        if number[rank] == 0:
            for channel in range(channels):
                ring = group.rings[channel % len(group.rings)]
                yield f"Channel {channel:02d}/{channels:02d} : {' '.join(str(number[other]) for other in ring)}"
        trees = []
        for channel in range(channels):
            up, down = group.tree(rank, node, channel)
            children = [*(number[child] for child in down), -1, -1, -1][:3]
            parent = -1 if up is None else number[up]
            trees.append(f"[{channel}] {'/'.join(map(str, children))}->{number[rank]}->{parent}")
        yield "Trees " + " ".join(trees)
        yield "P2P Chunksize set to 131072"
        yield f"Check P2P Type isAllDirectP2p {int(len(group.nodes) == 1)} directMode 0 isAllCudaP2p 1"
        yield f"{_OF_PROXY} Device {rank % GPUS} CPU core {self._chance.randrange(190)}"
        yield "threadThresholds 8/8/64 | 64/8/64 | 512 | 512"
        lanes = f"{channels} coll channels, {channels} collnet channels, 0 nvls channels, {channels * 2} p2p channels"
        yield f"{lanes}, 2 p2p channels per peer"

    def _connections(self, group: Group, rank: int, node: int) -> Iterator[str]:
        if group.all_to_all:
            number, size = group.number[rank], len(group.ranks)
            for away in range(1, size):
                before, after = (group.ranks[(number + step) % size] for step in (-away, away))
                yield from self._edges(
                    group, rank, [(c, *e) for c in range(2) for e in ((before, rank), (rank, after))], 1
                )
            return
        rings: list[tuple[int, int, int]] = []
        trees: list[tuple[int, int, int]] = []
        for channel in range(group.channels):
            before, after = group.neighbours[channel % len(group.rings)][rank]
            rings += [(channel, before, rank), (channel, rank, after)]
            up, down = group.tree(rank, node, channel)
            others = [*down, *([] if up is None else [up])]
            trees += [(channel, *ends) for other in others for ends in ((other, rank), (rank, other))]
        yield from self._edges(group, rank, rings)
        gdr = int(rank // GPUS != self.no_gdr)
        yield f"Connected all rings, use ring PXN 0 GDR {gdr}"
        yield from self._edges(group, rank, sorted(set(trees) - set(rings)))
        yield "Connected all trees"

    def _edges(self, group: Group, rank: int, edges: Iterable[tuple[int, int, int]], index: int = 0) -> Iterator[str]:
        """Yield the lines of a rank for its connections: (channel, from, to)."""
        for channel, src, dst in edges:
            gpus = f"{group.number[src]}[{src % GPUS}] -> {group.number[dst]}[{dst % GPUS}]"
            front = f"Channel {channel:02d}/{index} : {gpus}"
            nodes = src // GPUS, dst // GPUS
            if nodes[0] != nodes[1]:
                way = f"NET/IB/{rank % GPUS}" + ("" if rank // GPUS == self.no_gdr else "/GDRDMA")
                self.truth[src, dst] = "NET", self.no_gdr not in nodes
                side = "send" if rank == src else "receive"
                yield f"{front} [{side}] via {way}{'/Shared' if index else ''}"
            elif rank == src:
                self.truth[src, dst] = "P2P", None
                yield f"{front} via P2P/CUMEM"


_OF_PROXY = "[Proxy Service]"


def _host(node: int) -> str:
    return f"gpu-node-{node:04d}"


def collect_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the log from ``kubectl logs --prefix --timestamps``: pod and time in front of each line."""
    for number, line in enumerate(lines):
        time = BEGIN + timedelta(microseconds=37 * number)
        pod = line[: line.index(":")].replace("gpu-node", "train-worker")
        yield f"[pod/{pod}/trainer] {time.isoformat(timespec='microseconds')}Z {line}"
