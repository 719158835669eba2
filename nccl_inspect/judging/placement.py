"""Where ranks belong of which the log has no line, by the order in which launchers number ranks."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from nccl_inspect.event.base import is_named
from nccl_inspect.judging.facts import Facts


class Home(NamedTuple):
    """Where a rank belongs."""

    host: str
    local_rank: int


def home(facts: Facts, rank: int) -> Home | None:
    """The host of a rank of the job: launchers give each host a block of ranks, all of one size.

    None where the ranks that are known do not lie so, or where no rank of its host is known.
    """
    return facts.once(_homes).get(rank)


def likely_ranks(facts: Facts) -> dict[int, int]:
    """The ranks that processes which name none probably are, by their position among the last lines.

    Where one rank has no line and one process names none, it is that; else host and GPU tell, where a host has a block
    of ranks in the order of its GPUs.
    """
    job = facts.job
    mute = {position: last for position, last in enumerate(job.last_lines) if not last.ranks}
    if not mute or not job.world_size or job.rank_space != "global":
        return {}
    seen = set(job.ranks_seen)
    missing = [rank for rank in range(job.world_size) if rank not in seen]
    if len(mute) == len(missing) == 1:
        return dict(zip(mute, missing, strict=True))
    by_place: dict[Home, list[int]] = {}
    for position, last in mute.items():
        if last.device is not None:
            by_place.setdefault(Home(last.process.host, last.device), []).append(position)
    found: dict[int, int] = {}
    for rank in missing:
        place = home(facts, rank)
        alike = by_place.get(place, []) if place else []
        if len(alike) == 1:
            found[alike[0]] = rank
    return found


def _homes(facts: Facts) -> dict[int, Home]:
    world = facts.job.world_size
    pairs = {(rank, last.process.host) for last in facts.job.last_lines for rank in last.ranks}
    known = dict(pairs)
    if not world or facts.job.rank_space != "global" or not all(map(is_named, known.values())):
        return {}
    if not known or len(known) != len(pairs):
        return {}  # a rank with two hosts: several jobs
    size = _block(facts, known, world)
    blocks = {rank // size: host for rank, host in known.items()} if size else {}
    if not size or any(blocks[rank // size] != host for rank, host in known.items()):
        return {}
    if max(Counter(blocks.values()).values()) > 1:
        return {}  # a host with several blocks: its name does not tell which
    missing = (rank for rank in range(world) if rank not in known and rank // size in blocks)
    return {rank: Home(blocks[rank // size], rank % size) for rank in missing}


def _block(facts: Facts, known: dict[int, str], world: int) -> int:
    """How many ranks each host has: as NCCL says, else the smallest block that holds what is known."""
    told = {comm.local_ranks for comm in facts.job.communicators if comm.nranks == world and comm.local_ranks}
    if len(told) == 1:
        return told.pop()
    names = set(known.values())
    if len(names) == 1:
        return world if len(known) * 2 > world else 0  # else the others are on hosts that are not here
    least = max(Counter(known.values()).values())
    sizes = (size for size in range(least, world + 1) if world % size == 0)
    return next((size for size in sizes if _fits(known, size)), 0)


def _fits(known: dict[int, str], size: int) -> bool:
    blocks: dict[int, str] = {}
    return all(blocks.setdefault(rank // size, host) == host for rank, host in known.items()) and len(blocks) == len(
        set(known.values())
    )
