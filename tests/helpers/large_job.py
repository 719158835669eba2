"""Logs of jobs as large as wanted, in the words of the capture ``v2.28.9-libfabric-2node``, with NCCL's time stamps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

BEGIN = datetime(2026, 11, 20, 23, 13, 7)


def log(
    hosts: int, on_each: int = 8, channels: int = 4, without_gdr: int | None = None, late: int | None = None
) -> bytes:
    """Return one communicator over all ranks: a ring, a chain within each host, a binary tree between hosts.

    Args:
        hosts: how many.
        on_each: ranks on each.
        channels: rings and trees, all alike.
        without_gdr: a host whose NICs do not use GPUDirect.
        late: a rank that begins three seconds after the others.
    """
    size = hosts * on_each
    lines = (
        (3.0 * (rank == late and after < 4) + after + rank * 0.0003, rank, text)
        for rank in range(size)
        for after, text in _rank(rank, hosts, on_each, channels, without_gdr)
    )
    return "".join(_line(rank, on_each, after, text) for after, rank, text in sorted(lines)).encode()


def _line(rank: int, on_each: int, after: float, text: str) -> str:
    host, local = divmod(rank, on_each)
    pid = 4000 + rank
    time = (BEGIN + timedelta(seconds=after)).isoformat(" ", "microseconds")
    return f"[{time}] train-7f9c-node-{host}:{pid}:{pid} [{local}] NCCL INFO {text}\n"


def _rank(rank: int, hosts: int, on_each: int, channels: int, without_gdr: int | None) -> Iterator[tuple[float, str]]:
    size = hosts * on_each
    local = rank % on_each
    about = f"rank {rank} nranks {size} cudaDev {local}"
    init = (
        f"ncclCommInitRank comm 0x55b9f0{rank:06x} {about} nvmlDev {local} busId {local + 1}0 commId 0x949dfd688ed0b46b"
    )
    yield 0.0, "NCCL version 2.28.9+cuda13.0"
    yield 0.1, "cudaDriverVersion 13000"
    yield 0.8, "Using network Libfabric"
    yield 0.9, f"{init} - Init START"
    nodes = f"nRanks {size} nNodes {hosts} localRanks {on_each} localRank {local}"
    yield 4.2, f"comm 0x55b9f0{rank:06x} rank {rank} {nodes} MNNVL 0"
    order = " ".join(map(str, range(size)))
    if rank == 0:
        for channel in range(channels):
            yield 4.3, f"Channel {channel:02d}/{channels:02d} : {order}"
    up, down = tree(rank, hosts, on_each)
    links = "/".join(str(child) for child in [*down, -1, -1, -1][:3])
    yield 4.4, "Trees " + " ".join(f"[{channel}] {links}->{rank}->{up}" for channel in range(channels))
    lanes = f"{channels} coll channels, 0 collnet channels, 0 nvls channels, {channels} p2p channels"
    yield 4.5, f"{lanes}, 2 p2p channels per peer"
    yield 4.9, f"{init} - Init COMPLETE"
    before, after = (rank - 1) % size, (rank + 1) % size
    for channel in range(channels):
        yield 5.0, _receive(rank, before, channel, on_each, without_gdr)
        yield 5.1, _send(rank, after, channel, on_each, without_gdr)
    yield 5.4, "Connected all rings, use ring PXN 0 GDR 1"
    for channel in range(channels):
        for other in [*([up] if up >= 0 else []), *down]:
            if other not in (before, after) or size <= on_each:
                yield 5.5, _receive(rank, other, channel, on_each, without_gdr)
                yield 5.6, _send(rank, other, channel, on_each, without_gdr)
    yield 5.8, "Connected all trees"
    yield 9.0, f"comm 0x55b9f0{rank:06x} {about} busId {local + 1}0 - Destroy COMPLETE"


def tree(rank: int, hosts: int, on_each: int) -> tuple[int, list[int]]:
    """Return the parent and the children of a rank: a binary heap of hosts, a chain within each."""
    host, local = divmod(rank, on_each)
    down = [rank + 1] if local + 1 < on_each else []
    if local:
        return rank - 1, down
    down += [child * on_each for child in (2 * host + 1, 2 * host + 2) if child < hosts]
    return (((host - 1) // 2) * on_each if host else -1), down


def _via(src: int, dst: int, on_each: int, without_gdr: int | None) -> str:
    gdr = "" if without_gdr in (src // on_each, dst // on_each) else "/GDRDMA"
    return f"NET/Libfabric/{src % on_each // 2}{gdr}"


def _send(src: int, dst: int, channel: int, on_each: int, without_gdr: int | None) -> str:
    ends = f"Channel {channel:02d}/0 : {src}[{src % on_each}] -> {dst}[{dst % on_each}]"
    if src // on_each == dst // on_each:
        return f"{ends} via P2P/CUMEM"
    return f"{ends} [send] via {_via(src, dst, on_each, without_gdr)}"


def _receive(rank: int, src: int, channel: int, on_each: int, without_gdr: int | None) -> str:
    if src // on_each == rank // on_each:
        return "Check P2P Type isAllDirectP2p 1 directMode 0 isAllCudaP2p 1"
    ends = f"Channel {channel:02d}/0 : {src}[{src % on_each}] -> {rank}[{rank % on_each}]"
    return f"{ends} [receive] via {_via(src, rank, on_each, without_gdr)}"
