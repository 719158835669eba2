"""The world where the log shows no communicator of all ranks, from the ranks of the job that torchrun names.

PyTorch makes communicators with their first call: a job that hangs or fails before the first call of all ranks has
only those of its groups. torchrun names rank and pid of workers that failed, starts the ranks of a node one after the
other, and PyTorch lists the ranks of a group in their order; that leaves one place for each process, or else nothing
is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from nccl_inspect.event.base import is_named
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import Member
from nccl_inspect.model.fold.process_log import ProcessLog

_NEAR = 4
"""Lines from that with the rank of a worker to that with its pid."""
_TORCH = "torch"


def of(communicators: Sequence[Communicator], logs: Iterable[ProcessLog]) -> Communicator | None:
    """A world of all processes, each with its rank; None where these are not known.

    Args:
        communicators: of which none is the world.
        logs: what processes printed, and what nobody did.
    """
    if len(communicators) < 2:
        return None
    ranks = dict(_workers(log for log in logs if not log.process.host))
    if not ranks:
        return None
    nodes = _nodes(communicators)
    width = {len(members) for members in nodes.values()}
    if len(width) != 1 or not all(map(is_named, nodes)):
        return None
    order = _order(communicators, nodes, _fixed(nodes, ranks))
    if set(order) != nodes.keys():
        return None
    members = dict(enumerate(member for host in order for member in nodes[host]))
    number = {member.gpu: rank for rank, member in members.items()}
    stated = [
        (rank, ranks[member.log.process.pid]) for rank, member in members.items() if member.log.process.pid in ranks
    ]
    in_order = all(
        first < second
        for comm in communicators
        for first, second in pairwise(number[comm.members[rank].gpu] for rank in sorted(comm.members))
    )
    if (
        not stated
        or not in_order
        or any(rank != stated_rank for rank, stated_rank in stated)
        or max(ranks.values()) >= len(members)
    ):
        return None
    return Communicator("world", len(members), members=members, global_ranks=range(len(members)))


def _workers(nobody: Iterable[ProcessLog]) -> Iterator[tuple[int, int]]:
    """Pid and rank of the workers that torchrun reports, as far as each pid has one."""
    lines: list[tuple[int, Mapping[str, object]]] = []
    for log in nobody:
        for note in log.notes.values():
            if note.event is not None and note.event.dialect == _TORCH and hasattr(note.event, "values"):
                values = dict(note.event.values)
                if "pid" in values or ("global_rank" in values and "local_rank" in values):
                    lines.extend((place, values) for place in (note.place, *(note.places or ())))
    lines.sort(key=lambda line: line[0])
    named: dict[int, set[int]] = {}
    for (place, first), (next_place, second) in pairwise(lines):
        rank, pid = first.get("global_rank"), second.get("pid")
        if isinstance(rank, int) and isinstance(pid, int) and next_place - place <= _NEAR:
            named.setdefault(pid, set()).add(rank)
    return ((pid, ranks.pop()) for pid, ranks in named.items() if len(ranks) == 1)


def _nodes(communicators: Iterable[Communicator]) -> dict[str, list[Member]]:
    """One membership of each process, in the order of the GPUs, by host; empty where processes share GPUs."""
    members = {member.gpu: member for comm in communicators for member in comm.members.values()}
    if len({gpu.process for gpu in members}) < len(members):
        return {}
    nodes: dict[str, list[Member]] = {}
    for member in members.values():
        nodes.setdefault(member.log.process.host, []).append(member)
    for host in nodes:
        nodes[host].sort(key=lambda member: member.init.cuda_dev or 0)
    return nodes


def _fixed(nodes: Mapping[str, Sequence[Member]], ranks: Mapping[int, int]) -> dict[int, str]:
    """The hosts of which a rank is known, by their number."""
    fixed: dict[int, str] = {}
    for host, members in nodes.items():
        for place, member in enumerate(members):
            rank = ranks.get(member.log.process.pid)
            if rank is not None and rank >= place:
                fixed.setdefault((rank - place) // len(members), host)
    return fixed


def _order(
    communicators: Iterable[Communicator], nodes: Mapping[str, Sequence[Member]], fixed: Mapping[int, str]
) -> list[str]:
    """All hosts in the order of their ranks; empty where that is not certain."""
    left = nodes.keys() - set(fixed.values())
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(left, ()))
    for comm in communicators:
        hosts = [comm.members[rank].log.process.host for rank in sorted(comm.members)]
        for before, after in pairwise([host for host in dict.fromkeys(hosts) if host in left]):
            sorter.add(after, before)
    rest: list[str] = []
    try:
        sorter.prepare()
    except CycleError:
        return []
    while sorter.is_active():
        ready = sorter.get_ready()
        if len(ready) > 1:
            return []
        rest.extend(ready)
        sorter.done(*ready)
    free = iter(rest)
    return [fixed[number] if number in fixed else next(free, "") for number in range(len(nodes))] if nodes else []
