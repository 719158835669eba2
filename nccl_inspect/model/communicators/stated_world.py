"""The world where the log shows no communicator of all ranks, from the ranks of the job that torchrun names.

PyTorch makes communicators with their first call: a job that hangs or fails before the first call of all ranks has
only those of its groups. torchrun names rank and pid of workers that failed, starts the ranks of a node one after the
other, and PyTorch lists the ranks of a group in their order; in the file of one host it names the ranks of that host.
That leaves one place for each process, or else nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from nccl_inspect.event.base import is_named
from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.model.communicators.communicator import Communicator, has_ranks_elsewhere
from nccl_inspect.model.communicators.members import Member
from nccl_inspect.model.fold.process_log import ProcessLog, source_and_line
from nccl_inspect.util.grouping import group_sets, group_values

_LABELS = 2
"""Ranks that lines name at least where a host is placed by them: the line of a single one may be of another host."""
_TORCH = "torch"
_LABEL = re.compile(rb"\[rank(\d{1,7})\]:")


def make_world(
    communicators: Sequence[Communicator], logs: Iterable[ProcessLog], largest: Communicator | None = None
) -> Communicator | None:
    """Return a world of all processes, each with its rank; None where these are not known.

    Args:
        largest: the communicator that holds all others' processes, if there is one: it is the world where no rank
            beyond it is named.
    """
    nobody = [log for log in logs if not log.process.host]
    labels = group_sets((source, rank) for source, _, rank in find_named_ranks(nobody))
    if largest is not None and max((max(ranks) for ranks in labels.values()), default=0) < largest.nranks:
        return largest
    workers: dict[int, set[int]] = {}  # which ranks torchrun reports for each pid; one that has several names none
    for event in (note.event for log in nobody for note in log.notes.values()):
        if isinstance(event, ProcessEnded) and event.dialect == _TORCH and event.ended_pid is not None:
            workers.setdefault(event.ended_pid, set()).update(event.ranks)
    ranks = {pid: next(iter(some)) for pid, some in workers.items() if len(some) == 1}
    return _find_stated(communicators, ranks, labels) or largest


def _find_stated(
    communicators: Sequence[Communicator], ranks: Mapping[int, int], labels: Mapping[int, set[int]]
) -> Communicator | None:
    """Return the world by the ranks of pids, and by those that are named in the files of single hosts."""
    if not (ranks or labels):
        return None
    nodes = _nodes(communicators)
    width = {len(members) for members in nodes.values()}
    if len(width) != 1 or not all(map(is_named, nodes)):
        return None
    fixed: dict[int, str] = {}  # by their number the hosts of which a rank is known
    for host, here in nodes.items():
        for local, member in enumerate(here):
            rank = ranks.get(member.log.process.pid)
            if rank is not None and rank >= local:
                fixed.setdefault((rank - local) // len(here), host)
    if (homes := _homes(nodes, labels)) is None or any(fixed.get(at, host) != host for at, host in homes.items()):
        return None
    fixed |= homes
    if not fixed or len(set(fixed.values())) < len(fixed):
        return None
    places = dict(enumerate(_order(communicators, nodes, fixed)))
    is_open = set(places.values()) != nodes.keys()
    if is_open:
        places = fixed
    is_open |= has_ranks_elsewhere(comm for comm in communicators if comm.parent is None and not comm.orphan)
    if set(places.values()) != nodes.keys():
        return None
    members = {
        at * len(nodes[host]) + local: member for at, host in places.items() for local, member in enumerate(nodes[host])
    }
    size = max(members) + 1
    fits = all(ranks.get(member.log.process.pid, rank) == rank for rank, member in members.items())
    number = {member.gpu: rank for rank, member in members.items()}
    for comm in communicators:  # each group lists its ranks in the order of the job
        own = [number[comm.members[rank].gpu] for rank in sorted(comm.members)]
        fits = fits and all(first < second for first, second in pairwise(own))
    if not fits or (not is_open and max(ranks.values(), default=0) >= size):
        return None
    return Communicator("world", size, members=members, global_ranks=range(size), is_open=is_open)


def find_named_ranks(nobody: Iterable[ProcessLog]) -> Iterator[tuple[int, int, int]]:
    """Yield the ranks of the job that PyTorch and torchrun name, each with its source and its place."""
    for note in (note for log in nobody for note in log.notes.values()):
        if note.event is None or note.event.dialect != _TORCH:
            continue
        values = dict(getattr(note.event, "values", ()))  # as a field or in front
        rank = values.get("global_rank", getattr(note.event, "global_rank", None))
        if rank is None and (label := _LABEL.match(note.message)):
            rank = int(label[1])
        if isinstance(rank, int):
            yield from ((source_and_line(place)[0], place, rank) for place in (note.place, *(note.places or ())))


def _homes(nodes: Mapping[str, Sequence[Member]], labels: Mapping[int, set[int]]) -> dict[int, str] | None:
    """Return the number of each host with a file of its own, by the ranks named there; None if these disagree."""
    hosts = group_sets(
        (source_and_line(place)[0], host)
        for host, members in nodes.items()
        for member in members
        for place in (member.log.first, member.log.last)
    )
    own = {source: next(iter(here)) for source in labels if len(here := hosts.get(source, set())) == 1}
    if len(set().union(*(labels[source] for source in own))) < _LABELS:
        return {}
    homes: dict[int, str] = {}
    for source, host in own.items():
        ranks = labels[source]
        numbers = {rank // len(nodes[host]) for rank in ranks}
        if len(numbers) > 1 or homes.setdefault(numbers.pop(), host) != host:
            return None
    return homes


def _nodes(communicators: Iterable[Communicator]) -> dict[str, list[Member]]:
    """Return one membership of each process, in the order of the GPUs, by host; empty where processes share GPUs."""
    members = {member.gpu: member for comm in communicators for member in comm.members.values()}
    if len({gpu.process for gpu in members}) < len(members):
        return {}
    nodes = group_values((member.log.process.host, member) for member in members.values())
    for host in nodes:
        nodes[host].sort(key=lambda member: member.init.cuda_dev or 0)
    return nodes


def _order(
    communicators: Iterable[Communicator], nodes: Mapping[str, Sequence[Member]], fixed: Mapping[int, str]
) -> list[str]:
    """Return all hosts in the order of their ranks; empty where that is not certain."""
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
