"""What programs call their communicators: PyTorch's process groups, and names given to NCCL (2.27 and later)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

from nccl_inspect.event import types as events
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import SEND_RECV, ProcessMembers
from nccl_inspect.model.inventory import Parallelism
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements.index import Statement, by_process
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later

GROUP = compile_later(r"\[PG (?:ID \S+ PG GUID )?(\S+?)(?: ?\(([^()]*)\))? Rank \d")
"""A process group in a line of PyTorch: its name, and what the program calls it."""
_NOTHING = ("undefined", "")
_BEGIN = attrgetter("first.place")


def names(
    communicators: Sequence[Communicator],
    processes: Iterable[ProcessMembers],
    statements: Iterable[Statement],
    notices: Iterable[Notice],
) -> dict[str, str]:
    """By the names of communicators what the program calls them, where the log proves it and all ranks agree."""
    by_name = group_sets((*_given_to_nccl(processes, statements), *_list_torch_names(communicators, notices)))
    return {comm: distinct.pop() for comm, distinct in by_name.items() if len(distinct) == 1}


def _given_to_nccl(processes: Iterable[ProcessMembers], statements: Iterable[Statement]) -> Iterable[tuple[str, str]]:
    """``Comm config Comm name set to …`` is of the communicator that starts next on the thread."""
    given = by_process(
        statement
        for statement in statements
        if isinstance(statement.event, events.EnvSetting)
        and (statement.event.origin, statement.event.name) == ("config", "Comm name")
    )
    for process in processes if given else ():
        begun = sorted(process.members, key=_BEGIN)
        threads = group_values((member.first.printed.tid, member) for member in begun)
        for said in given.get(process.log.process, ()):
            started = threads.get(said.printed.tid, [])
            at = bisect_right(started, said.place, key=_BEGIN)
            comm = started[at].communicator if at < len(started) else None
            if comm is not None and isinstance(said.event, events.EnvSetting):
                yield comm.name, said.event.value


def _list_torch_names(communicators: Sequence[Communicator], notices: Iterable[Notice]) -> Iterable[tuple[str, str]]:
    """Yield lines with the pointer of the communicator; else the ranks of a group that only one communicator has so."""
    pointers: dict[tuple[str, int], list[Communicator]] = {}  # communicators by pointers and ranks of their members
    places: dict[str, set[tuple[int, int]]] = {}
    for notice in notices:
        match = GROUP.search(notice.message) if notice.event and notice.event.dialect == "torch" else None
        if match is None:
            continue
        name = match[1] if match[2] in (None, *_NOTHING) else match[2]
        values = _values(notice.event)
        rank, job_rank = values.get("rank"), values.get("global_rank", values.get("world_rank"))
        if values.get("comm") is not None and rank is not None and not name.isdigit():
            pointers = pointers or group_values(
                ((member.init.comm, member.rank), comm) for comm in communicators for member in comm.members.values()
            )
            candidates = pointers.get((values["comm"], rank), [])
            comms = {id(c): c for c in candidates if job_rank is None or c.global_rank(rank) in (None, job_rank)}
            if len(comms) == 1:
                yield comms.popitem()[1].name, name
        elif rank is not None and job_rank is not None and not name.isdigit():
            places.setdefault(name, set()).add((rank, job_rank))
    for name, some in places.items():
        fits = [comm for comm in communicators if all(comm.global_rank(rank) == job_rank for rank, job_rank in some)]
        if len({(tuple(comm.global_ranks), comm.nranks) for comm in fits}) == 1 and len(some) > 1:
            yield fits[0].name, name


def _values(event: Any) -> Mapping[str, Any]:
    if isinstance(event, events.CollectiveTimeout):
        return {"rank": event.rank, "global_rank": event.global_rank}
    return dict(getattr(event, "values", ()))


def ranks_of_nccl_tests(notices: Iterable[Notice]) -> int | None:
    """Return the size of the world where nccl-tests lists its ranks, each once, and NCCL says nothing of them."""
    places = [dict(getattr(notice.event, "values", ())) for notice in notices if "rank-list" in notice.roles]
    ranks = sorted(int(place["rank"]) for place in places)
    once = all(notice.count == 1 for notice in notices if "rank-list" in notice.roles)
    return len(ranks) if ranks and once and ranks == list(range(len(ranks))) else None


def likely_parallelism(communicators: Sequence[Communicator], world: Communicator | None) -> dict[str, Parallelism]:
    """By the names of communicators what they are likely for."""
    if world is None:
        return {}
    families: dict[tuple[int, int, bool], list[Communicator]] = {}
    for comm in communicators:
        if comm is world or not 1 < comm.nranks < world.nranks:
            continue
        ranks = [rank for rank in comm.global_ranks if rank is not None]
        steps = {after - before for before, after in pairwise(ranks)}
        if len(ranks) == comm.nranks and len(steps) == 1 and (stride := steps.pop()) > 0:
            bursts = [burst for member in comm.members.values() for burst in member.bursts]
            connected = any(member.connected for member in comm.members.values())
            only_exchanges = bool(bursts) and not connected and all(burst.key.conn == SEND_RECV for burst in bursts)
            families.setdefault((comm.nranks, stride, only_exchanges), []).append(comm)
    sets: dict[tuple[int, int, bool], list[Communicator]] = {}
    """One communicator for each set of ranks, where these sets have every rank of the world exactly once."""
    for key, family in families.items():
        by_ranks = {tuple(comm.global_ranks): comm for comm in family}
        ranks = [rank for some in by_ranks for rank in some if rank is not None]
        if len(ranks) == len(set(ranks)) == world.nranks:
            sets[key] = list(by_ranks.values())
    strides = {stride for _, stride, _ in sets if stride > 1}
    by_name: dict[str, Parallelism] = {}
    for key, tiling in sets.items():
        read = _read(tiling, key, strides)
        if read is not None:
            by_name.update((comm.name, read) for comm in families[key])
    return by_name


def _read(comms: list[Communicator], key: tuple[int, int, bool], strides: set[int]) -> Parallelism | None:
    """Return the reading of one set of siblings."""
    size, stride, only_exchange = key
    if any(len(comm.members) < comm.nranks for comm in comms):
        return None  # where a rank is cannot be told
    number = len(comms)
    hosts = [len({member.log.process.host for member in comm.members.values()}) for comm in comms]
    if stride == 1 and max(hosts) == 1:
        return Parallelism("TP", f"{number} groups of {size} neighbouring ranks, each within one host, cover the job")
    if stride == 1 or min(hosts) == 1:
        return None
    ending = {1: "st", 2: "nd", 3: "rd"}.get(stride % 10, "th") if stride % 100 not in (11, 12, 13) else "th"
    shape = f"{number} groups of every {stride}{ending} rank, each across hosts, cover the job"
    if only_exchange:
        return Parallelism("PP", f"{shape}; they only send and receive")
    if len(strides) > 1:
        return None  # several kinds of strided groups: which is data and which pipeline parallelism is open
    return Parallelism("DP", shape)
