"""What groups of ranks are likely for, by their shape: neighbours within a host, or every n-th rank across hosts.

A shape proves nothing: shards of HSDP lie like tensor parallelism, and so do groups of context or expert parallelism.
So only sets of siblings that have every rank of the job exactly once are read, and what is read is called likely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import SEND_RECV
from nccl_inspect.model.inventory import Parallelism


def likely(communicators: Sequence[Communicator], world: Communicator | None) -> dict[str, Parallelism]:
    """By the names of communicators what they are likely for."""
    if world is None:
        return {}
    families: dict[tuple[int, int, bool], list[Communicator]] = {}
    for comm in communicators:
        stride = _stride(comm) if comm is not world and 1 < comm.nranks < world.nranks else None
        if stride is not None:
            families.setdefault((comm.nranks, stride, _only_exchanges(comm)), []).append(comm)
    sets = {key: tiling for key, family in families.items() if (tiling := _tiling(family, world.nranks))}
    strides = {stride for _, stride, _ in sets if stride > 1}
    by_name: dict[str, Parallelism] = {}
    for key, tiling in sets.items():
        read = _read(tiling, key, strides)
        if read is not None:
            by_name.update((comm.name, read) for comm in families[key])
    return by_name


def _stride(comm: Communicator) -> int | None:
    """The distance between its global ranks where it is the same for all; None otherwise."""
    ranks = [rank for rank in comm.global_ranks if rank is not None]
    steps = {b - a for a, b in pairwise(ranks)}
    return steps.pop() if len(ranks) == comm.nranks and len(steps) == 1 and min(steps) > 0 else None


def _tiling(family: Sequence[Communicator], nranks: int) -> list[Communicator]:
    """One communicator for each set of ranks, if these sets have every rank of the world exactly once."""
    by_ranks = {tuple(comm.global_ranks): comm for comm in family}
    ranks = [rank for some in by_ranks for rank in some if rank is not None]
    return list(by_ranks.values()) if len(ranks) == len(set(ranks)) == nranks else []


def _hosts(comm: Communicator) -> set[str]:
    return {member.log.process.host for member in comm.members.values()}


def _spans(comms: Iterable[Communicator]) -> bool:
    return all(len(_hosts(comm)) > 1 for comm in comms)


def _read(comms: list[Communicator], key: tuple[int, int, bool], strides: set[int]) -> Parallelism | None:
    """The reading of one set of siblings."""
    size, stride, only_exchange = key
    if any(len(comm.members) < comm.nranks for comm in comms):
        return None  # where a rank is cannot be told
    number = len(comms)
    if stride == 1 and all(len(_hosts(comm)) == 1 for comm in comms):
        return Parallelism("TP", f"{number} groups of {size} neighbouring ranks, each within one host, cover the job")
    if stride == 1 or not _spans(comms):
        return None
    shape = f"{number} groups of every {_ordinal(stride)} rank, each across hosts, cover the job"
    if only_exchange:
        return Parallelism("PP", f"{shape}; they only send and receive")
    if len(strides) > 1:
        return None  # several kinds of strided groups: which is data and which pipeline parallelism is open
    return Parallelism("DP", shape)


def _only_exchanges(comm: Communicator) -> bool:
    """Whether all connections that it made are those of send/recv."""
    bursts = [burst for member in comm.members.values() for burst in member.bursts]
    connected = any(member.connected for member in comm.members.values())
    return bool(bursts) and not connected and all(burst.key.conn == SEND_RECV for burst in bursts)


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"
