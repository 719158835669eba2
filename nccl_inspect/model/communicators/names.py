"""What programs call their communicators: PyTorch's process groups, and names given to NCCL (2.27 and later)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Event
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import Member, ProcessMembers
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements.index import Statements, by_process
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.patterns import later

GROUP = later(r"\[PG (?:ID \S+ PG GUID )?(\S+?)(?: ?\(([^()]*)\))? Rank \d")
"""A process group in a line of PyTorch: its name, and what the program calls it."""
_NOTHING = ("undefined", "")


def names(
    communicators: Sequence[Communicator],
    processes: Iterable[ProcessMembers],
    statements: Statements,
    notices: Iterable[Notice],
) -> dict[str, str]:
    """By the names of communicators what the program calls them, where the log proves it and all ranks agree."""
    by_name: dict[str, set[str]] = {}
    for comm, name in (*_given_to_nccl(processes, statements), *_told_by_torch(communicators, notices)):
        by_name.setdefault(comm, set()).add(name)
    return {comm: distinct.pop() for comm, distinct in by_name.items() if len(distinct) == 1}


def _given_to_nccl(processes: Iterable[ProcessMembers], statements: Statements) -> Iterable[tuple[str, str]]:
    """``Comm config Comm name set to …`` is of the communicator that starts next on the thread."""
    given = by_process(statements.where(_is_name))
    for process in processes if given else ():
        if lines := given.get(process.log.process):
            threads = _by_thread(process)
            for said in lines:
                started = threads.get(said.origin.tid, [])
                at = bisect_right(started, said.place, key=_begin)
                comm = started[at].communicator if at < len(started) else None
                if comm is not None and isinstance(said.event, events.EnvSetting):
                    yield comm.name, said.event.value


def _is_name(event: Event) -> bool:
    return isinstance(event, events.EnvSetting) and event.origin == "config" and event.name == "Comm name"


def _by_thread(process: ProcessMembers) -> dict[int, list[Member]]:
    """The communicators that each thread starts, in their order."""
    threads: dict[int, list[Member]] = {}
    for member in sorted(process.members, key=_begin):
        threads.setdefault(member.first.printed.tid, []).append(member)
    return threads


def _begin(member: Member) -> int:
    return member.first.place


def _told_by_torch(communicators: Sequence[Communicator], notices: Iterable[Notice]) -> Iterable[tuple[str, str]]:
    """Lines with the pointer of the communicator; else the ranks of a group that only one communicator has so."""
    members: dict[tuple[str, int], list[Member]] | None = None
    places: dict[str, set[tuple[int, int]]] = {}
    for notice in notices:
        match = GROUP.search(notice.message) if notice.event and notice.event.dialect == "torch" else None
        if match is None:
            continue
        name = match[1] if match[2] in (None, *_NOTHING) else match[2]
        values = _values(notice.event)
        rank, job_rank = values.get("rank"), values.get("global_rank", values.get("world_rank"))
        if values.get("comm") is not None and rank is not None and not name.isdigit():
            members = members or _by_pointer(communicators)
            candidates = members.get((values["comm"], rank), [])
            comms = {id(member.communicator): member.communicator for member in candidates if _is_at(member, job_rank)}
            if len(comms) == 1 and (comm_named := comms.popitem()[1]) is not None:
                yield comm_named.name, name
        elif rank is not None and job_rank is not None and not name.isdigit():
            places.setdefault(name, set()).add((rank, job_rank))
    for name, some in places.items():
        fits = [comm for comm in communicators if all(_global(comm, rank) == job_rank for rank, job_rank in some)]
        if len({(tuple(comm.global_ranks), comm.nranks) for comm in fits}) == 1 and len(some) > 1:
            yield fits[0].name, name


def _by_pointer(communicators: Iterable[Communicator]) -> dict[tuple[str, int], list[Member]]:
    """The members of communicators by their pointers and ranks."""
    return grouped(
        ((member.init.comm, member.rank), member) for comm in communicators for member in comm.members.values()
    )


def _values(event: Any) -> Mapping[str, Any]:
    if isinstance(event, events.CollectiveTimeout):
        return {"rank": event.rank, "global_rank": event.global_rank}
    return dict(getattr(event, "values", ()))


def _is_at(member: Member, job_rank: int | None) -> bool:
    comm = member.communicator
    return comm is not None and (job_rank is None or _global(comm, member.rank) in (None, job_rank))


def _global(comm: Communicator, rank: int) -> int | None:
    return comm.global_ranks[rank] if rank < len(comm.global_ranks) else None


def ranks_of_nccl_tests(notices: Iterable[Notice]) -> int | None:
    """The size of the world where nccl-tests lists its ranks, each once, and NCCL says nothing of them."""
    places = [dict(getattr(notice.event, "values", ())) for notice in notices if "rank-list" in notice.roles]
    ranks = sorted(int(place["rank"]) for place in places)
    once = all(notice.count == 1 for notice in notices if "rank-list" in notice.roles)
    return len(ranks) if ranks and once and ranks == list(range(len(ranks))) else None
