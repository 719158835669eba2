"""Simulated jobs of 8 to 1,024 ranks whose fault is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import nccl_inspect
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

Ends = tuple[int, int]
"""Host and GPU."""


@dataclass
class World:
    """A job whose ranks all print: pairs within hosts, and neighbours of the same GPU on the next hosts."""

    hosts: int
    gpus: int = 8
    local: Callable[[Ends, Ends], str] = lambda a, b: "P2P/CUMEM"
    """How two GPUs of a host talk."""
    remote: Callable[[Ends, Ends, Ends], str] = lambda a, b, own: f"NET/IB/{own[1]}/GDRDMA"
    """What an end (the third) prints of a connection between hosts."""
    said: Callable[[Ends], list[str]] = lambda end: []
    """What else a rank prints, at its beginning."""
    split: Callable[[Ends, Ends], str] | None = None
    """How pairs of a second communicator talk, which are three hosts apart."""
    names: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        self.names = self.names or [f"node-{host:03}" for host in range(self.hosts)]
        for host in range(self.hosts):
            for gpu in range(self.gpus):
                name, pid = self.names[host], 1000 + gpu
                for line in self._rank((host, gpu)):
                    yield f"{name}:{pid}:{pid} [{gpu}] NCCL INFO {line}\n"

    def job(self) -> Job:
        return nccl_inspect.read("".join(self.lines()).encode())

    def _number(self, end: Ends) -> int:
        return end[0] * self.gpus + end[1]

    def _rank(self, own: Ends) -> Iterator[str]:
        host, gpu = own
        rank, size = self._number(own), self.hosts * self.gpus
        yield f"Bootstrap: Using eth0:10.0.{host}.1<0>"
        yield from self.said(own)
        nics = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(self.gpus))
        yield f"NET/IB : Using {nics} [RO]; OOB eth0:10.0.{host}.1<0>"
        about = f"rank {rank} nranks {size} cudaDev {gpu} nvmlDev {gpu} busId {gpu + 1}000"
        init = f"ncclCommInitRank comm 0xa{rank:06x} {about} commId 0x949dfd688ed0b46b"
        yield f"{init} - Init START"
        shape = f"rank {rank} nRanks {size} nNodes {self.hosts} localRanks {self.gpus} localRank {gpu} MNNVL 0"
        yield f"comm 0xa{rank:06x} {shape}"
        yield f"{init} - Init COMPLETE"
        for other in range(self.gpus):
            if other != gpu:
                yield self._connection(own, (host, other), f"via {self.local(own, (host, other))}")
        steps = {step % self.hosts for step in (1, 2, -1, -2)} - {0}
        yield from self._between(own, steps, self.remote)
        yield "Connected all rings, use ring PXN 0 GDR 1"
        if self.split:
            after = f"comm 0xb{rank:06x} {about} parent 0xa{rank:06x} splitCount 1 color 0 key {rank}"
            yield f"ncclCommSplit {after}- Init START"
            yield f"comm 0xb{rank:06x} {shape}"
            yield f"ncclCommSplit {after} - Init COMPLETE"
            way = self.split
            yield from self._between(own, {3 % self.hosts, -3 % self.hosts}, lambda a, b, _: way(a, b))
            yield "Connected all rings, use ring PXN 0 GDR 1"

    def _between(self, own: Ends, steps: set[int], way: Callable[[Ends, Ends, Ends], str]) -> Iterator[str]:
        for step in sorted(steps):
            other = (own[0] + step) % self.hosts, own[1]
            yield self._connection(own, other, f"[send] via {way(own, other, own)}")
            yield self._connection(other, own, f"[receive] via {way(other, own, own)}")

    def _connection(self, a: Ends, b: Ends, via: str) -> str:
        return f"Channel 00/0 : {self._number(a)}[{a[1]}] -> {self._number(b)}[{b[1]}] {via}"


def tcp_on(*bad: int) -> Callable[[Ends, Ends, Ends], str]:
    """Hosts without InfiniBand."""
    return lambda a, b, own: "NET/Socket/0" if {a[0], b[0]} & set(bad) else f"NET/IB/{own[1]}/GDRDMA"


def found(job: Job, rule: str) -> Finding:
    (finding,) = [finding for finding in job.findings if finding.rule == rule]
    return finding


def named(finding: Finding) -> list[tuple[str, str]]:
    return [(culprit.kind, culprit.name) for culprit in finding.culprits]
