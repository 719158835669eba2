"""Logs of jobs with a NIC for each GPU, in the words of 2.28 (``src/transport/net.cc``, ``net_ib.cc``, ``init.cc``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

GPUS = 8

NicOf = Callable[[int, int], int]
"""The NIC of a GPU, by host and GPU."""


def own(_host: int, gpu: int) -> int:
    """Each GPU uses the NIC of its rail."""
    return gpu


class RailedJob:
    """Two hosts or more, whose rings leave each of them by all GPUs in turn.

    Args:
        hosts: how many.
        nic: the NIC of each GPU.
        helper: whether a helper thread prints the network connections, and the calling thread that all are there.
    """

    def __init__(self, hosts: int = 2, nic: NicOf = own, *, helper: bool = False) -> None:
        self._hosts = hosts
        self._nic = nic
        self._helper = helper
        self._calls = 0
        self.lines: list[list[str]] = []
        """Step by step, the lines of all ranks."""
        self._step(self._head(rank) for rank in range(self.size))
        self._step([f"NCCL INFO {self._init(rank)} - Init START"] for rank in range(self.size))
        self._step([f"NCCL INFO {_shape(self._comm(rank), rank, self.size, hosts)}"] for rank in range(self.size))
        self._step([f"NCCL INFO {self._init(rank)} - Init COMPLETE"] for rank in range(self.size))

    @property
    def size(self) -> int:
        """Ranks."""
        return self._hosts * GPUS

    def text(self) -> str:
        """The log."""
        return "".join(f"{line}\n" for step in self.lines for line in step)

    def split(self, groups: Sequence[Sequence[int]]) -> int:
        """Initialise a communicator for each group; it connects when it is first used."""
        self._calls += 1
        for phase in ("- Init START", " - Init COMPLETE"):
            self._step(self._split(rank, groups, phase) for rank in range(self.size))
        return self._calls

    def connect(self, groups: Sequence[Sequence[int]], *, done: bool = True) -> None:
        """Connect the rings of communicators."""
        for group in groups:
            nodes = [[rank for rank in group if rank // GPUS == host] for host in range(self._hosts)]
            nodes = [node for node in nodes if node]
            made: dict[int, list[str]] = {rank: [] for rank in group}
            for channel in range(max(map(len, nodes))):
                rotated = [node[channel % len(node) :] + node[: channel % len(node)] for node in nodes]
                ring = [rank for node in rotated for rank in node]
                for src, dst in zip(ring, [*ring[1:], *ring[:1]], strict=True):
                    self._edge(made, list(group), src, dst, channel)
            self._step(lines for lines in made.values())
            if done:
                self._step(
                    ["NCCL INFO Connected all rings, use ring PXN 0 GDR 1"] if rank in made else []
                    for rank in range(self.size)
                )

    def _edge(self, made: dict[int, list[str]], group: list[int], src: int, dst: int, channel: int) -> None:
        ends = (
            f"NCCL INFO Channel {channel:02d}/0 : {group.index(src)}[{src % GPUS}] -> {group.index(dst)}[{dst % GPUS}]"
        )
        if src // GPUS == dst // GPUS:
            made[src].append(f"{src}|{ends} via P2P/CUMEM")
            return
        tid = "+" if self._helper else "|"
        for rank, side in ((src, "send"), (dst, "receive")):
            nic = self._nic(rank // GPUS, rank % GPUS)
            made[rank].append(f"{rank}{tid}{ends} [{side}] via NET/IB/{nic}/GDRDMA")

    def _split(self, rank: int, groups: Sequence[Sequence[int]], phase: str) -> list[str]:
        color = next((number for number, group in enumerate(groups) if rank in group), None)
        if color is None:
            return []
        group = groups[color]
        gpu = rank % GPUS
        about = f"rank {group.index(rank)} nranks {len(group)} cudaDev {gpu} nvmlDev {gpu} busId {gpu + 1}0"
        call = f"parent {self._comm(rank)} splitCount {self._calls} color {color} key {rank}"
        return [f"NCCL INFO ncclCommSplit comm 0x{self._calls}f{rank:04x} {about} {call}{phase}"]

    def _head(self, rank: int) -> list[str]:
        devices = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(GPUS))
        return [
            "NCCL INFO NCCL version 2.28.9+cuda13.0",
            f"NCCL INFO NET/IB : Using {devices} [RO]; OOB eth0:192.0.2.{rank // GPUS + 1}<0>",
            "NCCL INFO Using network IB",
        ]

    def _init(self, rank: int) -> str:
        gpu = rank % GPUS
        about = f"rank {rank} nranks {self.size} cudaDev {gpu} nvmlDev {gpu} busId {gpu + 1}0"
        return f"ncclCommInitRank comm {self._comm(rank)} {about} commId 0x949dfd688ed0b46b"

    def _comm(self, rank: int) -> str:
        return f"0x55b9f0{rank:06x}"

    def _step(self, of_ranks: Iterator[list[str]]) -> None:
        """Add lines of all ranks; one that begins with a rank says whose it is, and whether a helper prints it."""
        self.lines.append([self._prefixed(rank, line) for rank, lines in enumerate(of_ranks) for line in lines])

    def _prefixed(self, rank: int, line: str) -> str:
        who, sign, message = line.partition("|") if "|" in line.split(" ")[0] else line.partition("+")
        if not who.isdigit():
            who, sign, message = str(rank), "|", line
        pid = 4000 + int(who)
        host, gpu = divmod(int(who), GPUS)
        return f"node-{host}:{pid}:{pid + 1000 * (sign == '+')} [{gpu}] {message}"


def _shape(comm: str, rank: int, size: int, hosts: int) -> str:
    return f"comm {comm} rank {rank} nRanks {size} nNodes {hosts} localRanks {GPUS} localRank {rank % GPUS} MNNVL 0"
