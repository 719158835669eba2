"""Who is who: every name of a process (host and pid, rank prefix, launcher's report) leads to one actor.

An actor is a rank of the job, else a process. Ranks are certain from communicators of all ranks, from reports that name
pid and rank, and from RAS. They are likely by elimination, as communicators list their members in ascending order of
the ranks of the job, and by the order in which launchers number ranks: each host has a block of them, all of one size.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

from nccl_inspect.event.base import Process, is_named
from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging.facts import Facts, once, ranks_in, shares_ranks
from nccl_inspect.judging.statements import find_rank, report_of
from nccl_inspect.model.inventory import LastLine, contents_of
from nccl_inspect.model.job import CommunicatorInfo, Notice
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.wording import list_words, ranks_word

Actor: TypeAlias = int | Process
"""A rank of the job; a process where its rank is not known."""
_MOST_ELIMINATED = 64
"""Processes whose ranks are sought by elimination."""
_OF_DEFAULT_GROUP = compile_later(r"\[PG ID 0 PG GUID 0(?:\(default_pg\))? Rank (\d{1,7})\]")
_NUMBER = compile_later(r"\d{1,9}")
_BEFORE_PREFIX, _BEFORE_GROUP = 120, 200
"""Characters of a line in which these names of its printer stand."""


class Actors:
    """Actors are the processes of a job with their ranks.

    Args:
        facts: about the job.
    """

    def __init__(self, facts: Facts) -> None:
        job = self._job = facts.job
        self.world = job.world_size if job.rank_space == "global" else None
        """How many ranks there are; None where the log does not show it."""
        self.processes = list(dict.fromkeys(last.process for last in job.last_lines))
        self._by_pid = group_values((last.process.pid, last) for last in job.last_lines)
        self._ranks: dict[Process, int] = {}
        for last in job.last_lines if self.world is not None else ():
            if len(last.ranks) == 1:
                self._ranks[last.process] = last.ranks[0]
        reports = map(report_of, facts.with_event(ProcessEnded))  # one may have both pid and rank
        stated = group_sets((one.ended_pid or 0, one.ranks[0]) for one in reports if len(one.ranks) == 1)
        self._stated = {pid: min(ranks) for pid, ranks in stated.items() if len(ranks) == 1}
        """Ranks by pid, as reports and RAS state them; a pid with several ranks is that of several processes."""
        for answer in contents_of(job.artifacts, "ras"):
            if not 0 < answer.most < len(self.processes):  # else it was asked before the communicator of all was made
                self._stated |= answer.ranks_by_pid()
        for pid, rank in self._stated.items():
            if found := self.process_by_pid(pid):
                self._ranks.setdefault(found.process, rank)
        self._certain = set(self._ranks)
        if len(self._ranks) < len(self.processes) <= _MOST_ELIMINATED:
            self._ranks = _find_by_elimination(self._ranks, self.processes, job.communicators, self.world)
        if self.world is None:
            self._ranks = _number_by_hosts(self._ranks, job.last_lines)
        for process, rank in self._place_mute().items():
            self._ranks.setdefault(process, rank)
        self._processes = {rank: last.process for last in job.last_lines if self.world for rank in last.ranks}
        self._processes |= {rank: process for process, rank in self._ranks.items()}

    @property
    def known_ranks(self) -> set[int]:
        """Return the ranks with a process in the log."""
        return set(self._processes)

    @property
    def everyone(self) -> set[Actor]:
        """Return all processes with a line of NCCL, and the ranks of the job that have none."""
        return {self.actor_by_process(process) for process in self.processes} | set(range(self.world or 0))

    @property
    def mute(self) -> list[LastLine]:
        """Return the processes that started no communicator: their lines name no rank."""
        return [last for last in self._job.last_lines if not last.ranks]

    @property
    def pids(self) -> Collection[int]:
        """Return the pids of all processes."""
        return self._by_pid.keys()

    def actor_by_process(self, process: Process) -> Actor:
        """Return the rank of a process, else the process."""
        return self._ranks.get(process, process)

    def processes_by_pid(self, pid: int | None) -> list[LastLine]:
        """Return the processes with a pid: several if hosts or containers count separately."""
        return self._by_pid.get(pid, []) if pid else []

    def process_by_pid(self, pid: int | None) -> LastLine | None:
        """Return the only process with a pid; None if there are several or none."""
        found = self.processes_by_pid(pid)
        return found[0] if len(found) == 1 else None

    def actor_by_pid(self, pid: int | None) -> Actor | None:
        """Return the only actor with a pid; None if there are several or none."""
        if last := self.process_by_pid(pid):
            return self.actor_by_process(last.process)
        return None if pid in self._by_pid else self._stated.get(pid or -1)

    @cached_property
    def ranks_by_pid(self) -> dict[int, int]:
        """Return the ranks of all pids that are stated to be of one rank, whether or not its process has a line."""
        own = {last.process.pid for last in self._job.last_lines if last.process in self._certain}
        actors = {pid: self.actor_by_pid(pid) for pid in {*self._stated, *own}}
        return {pid: actor for pid, actor in actors.items() if isinstance(actor, int)}

    def ranks_of(self, last: LastLine) -> list[int]:
        """Return the ranks of a process: several of threads; those in a communicator if no others are known."""
        rank = self._ranks.get(last.process)
        if rank is not None and (self.world is None or not last.ranks):
            return [rank]
        return [] if shares_ranks(self._job) else last.ranks

    def is_likely(self, process: Process) -> bool:
        """Return whether the rank of a process is only likely: no statement names it."""
        return process in self._ranks and process not in self._certain

    def find_certain(self, rank: int) -> tuple[str | None, int | None]:
        """Return host and pid of a rank that is the only one of its process, where a statement says which that is."""
        here = self._certain_by_rank.get(rank, [])
        return here[0][:2] if len(here) == 1 else (None, None)

    @cached_property
    def _certain_by_rank(self) -> dict[int, list[Process]]:
        sure = (last for last in self._job.last_lines if not self.is_likely(last.process))
        own = ((self.ranks_of(last), last.process) for last in sure)
        return group_values((ranks[0], process) for ranks, process in own if len(ranks) == 1)

    @cached_property
    def prefix_ranks(self) -> set[int]:
        """Return the ranks that lines of PyTorch name as their own."""
        ranks = (self.rank_in_line(notice.message) for notice in self._job.notices)
        return {rank for rank in ranks if rank is not None}

    @property
    def printing(self) -> set[int]:
        """Return the ranks of which the log has any line."""
        return self.prefix_ranks | self.known_ranks

    def rank_in_line(self, text: str) -> int | None:
        """Return the rank that a line of PyTorch names as its own."""
        if (rank := find_rank(text[:_BEFORE_PREFIX])) is not None:
            return rank
        match = _OF_DEFAULT_GROUP.search(text[:_BEFORE_GROUP])
        return int(match[1]) if match else None

    def ranks_stating(self, notices: Iterable[Notice]) -> set[int]:
        """Return the ranks that made a statement: as its lines name them, else those of its processes."""
        ranks = set[int]()
        for notice in notices:
            ranks |= ranks_in([notice]) or {*ranks_among(map(self.actor_by_process, notice.processes))}
        return ranks

    def find_process(self, actor: Actor) -> Process | None:
        """Return the process of an actor; None where the log has none."""
        return actor if isinstance(actor, Process) else self._processes.get(actor)

    # Where ranks without a line belong

    def _place_mute(self) -> dict[Process, int]:
        """Return the probable ranks of processes that name none.

        If one rank has no line and one process names no rank, they match; otherwise host and GPU decide, if each host
        has a block of ranks in the order of its GPUs.
        """
        mute = self.mute if self.world else []
        missing = sorted(set(range(self.world or 0)).difference(self._job.ranks_seen)) if mute else []
        if len(mute) == len(missing) == 1:
            return {mute[0].process: missing[0]}
        placed = (last for last in mute if last.device is not None)
        by_place = group_values(((last.process.host, last.device), last.process) for last in placed)
        alike = ((by_place.get(self.homes[rank], []), rank) for rank in missing if rank in self.homes)
        return {processes[0]: rank for processes, rank in alike if len(processes) == 1}

    @cached_property
    def homes(self) -> dict[int, tuple[str, int]]:
        """Return host and local rank of ranks without a line, as far as the known ones show the blocks of hosts.

        Empty if the known ranks are not in blocks; without ranks of hosts of which none is known.
        """
        pairs = {(rank, last.process.host) for last in self._job.last_lines for rank in last.ranks}
        host_of = dict(pairs)
        if not self.world or not 0 < len(host_of) == len(pairs) or not all(map(is_named, host_of.values())):
            return {}  # a rank with two hosts: several jobs
        size = _find_block(self._job.communicators, host_of, self.world)
        blocks = _place_blocks(host_of, size) if size else {}
        if not blocks or len(set(blocks.values())) < len(blocks):
            return {}  # a host with several blocks: its name does not decide which
        missing = (rank for rank in range(self.world) if rank not in host_of and rank // size in blocks)
        return {rank: (blocks[rank // size], rank % size) for rank in missing}

    def hosts_of(self, actors: Iterable[Actor]) -> list[str]:
        """Return the hosts of some actors."""
        processes = (self.find_process(actor) for actor in actors)
        return sorted({p.host for p in processes if p is not None and is_named(p.host)})


@once
def actors_of(facts: Facts) -> Actors:
    """Return the processes of a job with their ranks."""
    return Actors(facts)


def ranks_among(actors: Iterable[Actor]) -> list[int]:
    """Return the ranks among actors, sorted."""
    return sorted(actor for actor in actors if isinstance(actor, int))


def name_of(actors: Iterable[Actor]) -> str:
    """Return actors in words: ``ranks 1-3``, ``node-2 pid 11``; empty for none."""
    actors = list(actors)
    ranks = ranks_among(actors)
    others = sorted(f"{actor.host} pid {actor.pid}" for actor in actors if isinstance(actor, Process))
    return ", ".join(filter(None, (ranks_word(ranks) if ranks else "", list_words(others, limit=3) if others else "")))


def _find_by_elimination(
    known: Mapping[Process, int],
    processes: Iterable[Process],
    communicators: Iterable[CommunicatorInfo],
    world: int | None,
) -> dict[Process, int]:
    """Return the only possible ranks of processes, given that the members of each communicator ascend."""
    everyone = sorted(processes)
    size = world if world is not None else len(everyone)
    taken = set(known.values())
    free = {rank for rank in range(size) if rank not in taken}
    possible = {process: {known[process]} if process in known else set(free) for process in everyone}
    chains = [(comm.nranks, chain) for comm in communicators if len(chain := _chain(comm)) > 1]
    chains = [(places, chain) for places, chain in chains if all(process in possible for process, _, _ in chain)]
    siblings: dict[int, set[Process]] = defaultdict(set)
    for places, chain in chains:
        siblings[places].update(process for process, _, _ in chain)
    if not chains:
        return dict(known)
    has_changed = True
    while has_changed:
        before = sum(map(len, possible.values()))
        for places, chain in chains:
            _ascend(chain, possible, size)
            _keep_room(chain, siblings[places], possible)
        _exclude(possible)
        if not all(possible.values()):
            return dict(known)  # they are numbered in another way
        has_changed = sum(map(len, possible.values())) < before
    return {process: min(ranks) for process, ranks in possible.items() if len(ranks) == 1}


def _number_by_hosts(known: Mapping[Process, int], lasts: Sequence[LastLine]) -> dict[Process, int]:
    """Return the ranks of all processes where hosts are numbered like their blocks of ranks, as the known ones show."""
    by_host: dict[str, dict[int, Process]] = defaultdict(dict)
    for last in lasts:
        if last.device is not None:
            by_host[last.process.host].setdefault(last.device, last.process)
    sizes = {len(devices) for devices in by_host.values()}
    names = {_NUMBER.sub("", host) for host in by_host}
    if len(sizes) != 1 or len(names) != 1 or sum(map(len, by_host.values())) != len({last.process for last in lasts}):
        return dict(known)
    hosts = sorted(by_host, key=lambda host: list(map(int, _NUMBER.findall(host))))
    ordered = (by_host[host][device] for host in hosts for device in sorted(by_host[host]))
    likely = {process: rank for rank, process in enumerate(ordered)}
    away = {process.host for process, rank in known.items() if likely.get(process) == rank != 0}
    agrees = all(likely.get(process) == rank for process, rank in known.items())
    return likely if agrees and away - {hosts[0]} else dict(known)


def _find_block(comms: Iterable[CommunicatorInfo], host_of: Mapping[int, str], world: int) -> int:
    """Return ranks per host: as NCCL reports, else the smallest block that fits the known ranks."""
    stated = {comm.local_ranks for comm in comms if comm.nranks == world and comm.local_ranks}
    if len(stated) == 1:
        return stated.pop()
    names = set(host_of.values())
    if len(names) == 1:
        return world if len(host_of) * 2 > world else 0  # else the others are on hosts missing from the log
    sizes = (size for size in range(max(Counter(host_of.values()).values()), world + 1) if world % size == 0)
    return next((size for size in sizes if len(_place_blocks(host_of, size)) == len(names)), 0)


def _place_blocks(host_of: Mapping[int, str], size: int) -> dict[int, str]:
    """Return the host of each block of that size; empty if a block has two."""
    blocks = {rank // size: host for rank, host in host_of.items()}
    return blocks if all(blocks[rank // size] == host for rank, host in host_of.items()) else {}


def _chain(comm: CommunicatorInfo) -> list[tuple[Process, int, int]]:
    """Return the processes of a communicator, each with its member rank and the number of members behind it."""
    begins = sorted(comm.begins, key=lambda begin: begin.member)
    if len({begin.process for begin in begins}) < len(begins):
        return []  # ranks are threads
    return [(begin.process, begin.member, comm.nranks - begin.member - 1) for begin in begins]


def _ascend(chain: list[tuple[Process, int, int]], possible: dict[Process, set[int]], size: int) -> None:
    """Leave the members of a communicator only ranks that ascend, with room for those that are missing."""
    rank, last = -1, -1
    for process, member, _ in chain:
        low = rank + member - last
        possible[process] = {own for own in possible[process] if own >= low}
        rank, last = min(possible[process], default=low), member
    rank, last = size, -1
    for process, _, behind in reversed(chain):
        high = rank - (behind - last)
        possible[process] = {own for own in possible[process] if own <= high}
        rank, last = max(possible[process], default=high), behind


def _keep_room(chain: list[tuple[Process, int, int]], others: set[Process], possible: dict[Process, set[int]]) -> None:
    """Leave the places of missing members to processes of no communicator of that size: such ones are siblings."""
    taken = {min(possible[process]) for process in others if len(possible[process]) == 1}
    for (process, member, _), (after, next_member, _) in pairwise(chain):
        missing = next_member - member - 1
        if not missing or len(possible[process]) != 1 or len(possible[after]) != 1:  # none: lines contradict each other
            continue
        between = set(range(min(possible[process]) + 1, min(possible[after]))) - taken
        for other in others if len(between) == missing else ():
            possible[other] -= between


def _exclude(possible: dict[Process, set[int]]) -> None:
    """Leave a rank to one process only, and give a rank that only one process can have to that one."""
    for process, ranks in possible.items():
        if len(ranks) == 1:
            (rank,) = ranks
            for other, left in possible.items():
                if other != process:
                    left.discard(rank)
    fits: dict[int, list[Process]] = {}
    for process, ranks in possible.items():
        for rank in ranks:
            fits.setdefault(rank, []).append(process)
    if len(fits) == len(possible):  # else a rank may have no process here
        for rank, some in fits.items():
            if len(some) == 1:
                possible[some[0]] = {rank}
