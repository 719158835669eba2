"""Where ranks without a line in the log belong, from the order in which launchers number ranks."""

from __future__ import annotations

from collections import Counter

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, frozen


@frozen
class Home(Frozen):
    """Holds where a rank belongs."""

    host: str
    local_rank: int


def home(facts: Facts, rank: int) -> Home | None:
    """Return the host of a rank: launchers give each host a block of ranks, all blocks of one size.

    None if the known ranks are not placed like this, or no rank of its host is known.
    """
    return _homes(facts).get(rank)


def likely_ranks(facts: Facts) -> dict[int, int]:
    """Return the probable ranks of processes that name none, by their position among the last lines.

    If one rank has no line and one process names no rank, they match; otherwise host and GPU decide, if each host has
    a block of ranks in the order of its GPUs.
    """
    job = facts.job
    mute = {position: last for position, last in enumerate(job.last_lines) if not last.ranks}
    if not mute or not job.world_size or job.rank_space != "global":
        return {}
    seen = set(job.ranks_seen)
    missing = [rank for rank in range(job.world_size) if rank not in seen]
    if len(mute) == len(missing) == 1:
        return dict(zip(mute, missing, strict=True))
    placed = ((last, position) for position, last in mute.items() if last.device is not None)
    by_place = group_values((Home(last.process.host, last.device or 0), position) for last, position in placed)
    homes = ((place, rank) for rank in missing if (place := home(facts, rank)))
    alike = ((by_place.get(place, []), rank) for place, rank in homes)
    return {positions[0]: rank for positions, rank in alike if len(positions) == 1}


@once
def _homes(facts: Facts) -> dict[int, Home]:
    world = facts.job.world_size
    pairs = {(rank, last.process.host) for last in facts.job.last_lines for rank in last.ranks}
    host_of = dict(pairs)
    if not world or facts.job.rank_space != "global" or not all(map(is_named, host_of.values())):
        return {}
    if not host_of or len(host_of) != len(pairs):
        return {}  # a rank with two hosts: several jobs
    size = _block(facts, host_of, world)
    blocks = _blocks(host_of, size) if size else {}
    if not blocks or max(Counter(blocks.values()).values()) > 1:
        return {}  # a host with several blocks: its name does not decide which
    missing = (rank for rank in range(world) if rank not in host_of and rank // size in blocks)
    return {rank: Home(blocks[rank // size], rank % size) for rank in missing}


def _block(facts: Facts, host_of: dict[int, str], world: int) -> int:
    """Return ranks per host: as NCCL reports, else the smallest block that fits the known ranks."""
    stated = {comm.local_ranks for comm in facts.job.communicators if comm.nranks == world and comm.local_ranks}
    if len(stated) == 1:
        return stated.pop()
    names = set(host_of.values())
    if len(names) == 1:
        return world if len(host_of) * 2 > world else 0  # else the others are on hosts missing from the log
    sizes = (size for size in range(max(Counter(host_of.values()).values()), world + 1) if world % size == 0)
    return next((size for size in sizes if len(_blocks(host_of, size)) == len(names)), 0)


def _blocks(host_of: dict[int, str], size: int) -> dict[int, str]:
    """Return the host of each block of that size; empty if a block has two."""
    blocks = {rank // size: host for rank, host in host_of.items()}
    return blocks if all(blocks[rank // size] == host for rank, host in host_of.items()) else {}
