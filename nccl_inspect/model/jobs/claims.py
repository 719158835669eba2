"""Gives the processes that no communicator holds, and the sources that have none, to the jobs of a log.

A process that died early is of the job that has its host and whose lines are around it. Where all jobs around have all
their ranks, processes that began between them are a job of their own; so are sources in which no communicator begins.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from nccl_inspect.event.base import Process, is_named
from nccl_inspect.model.fold.fold import Fold, ProcessLog
from nccl_inspect.model.fold.places import position, source_and_line
from nccl_inspect.model.jobs.parts import Part
from nccl_inspect.model.jobs.shares import Claim
from nccl_inspect.model.processes.gathering import Gathered
from nccl_inspect.util.levels import STATEMENTS

_DIGITS = re.compile(r"\d+")
_LOOK_BACK = 64
"""Number of earlier jobs among which the continuing one is searched."""


class Claims:
    """Gives everything to a job.

    Args:
        fold: of the log.
        gathered: its processes.
        groups: the parts of each job that is known by its communicators.
    """

    def __init__(self, fold: Fold, gathered: Gathered, groups: Sequence[Sequence[Part]]) -> None:
        self._fold = fold
        self._groups = groups
        self._claims = [Claim({process for part in group for process in part.processes}) for group in groups]
        self._firsts = [min(part.begin for part in group) for group in groups]
        self._whole = [all(part.is_whole for part in group) for group in groups]
        self._room = [max(part.missing for part in group) for group in groups]
        """How many ranks each job lacks."""
        self._hosts: dict[str, set[int]] = {}
        self._extents: list[dict[int, tuple[int, int]]] = []
        self._by_source: dict[int, list[int]] = {}
        for job, group in enumerate(groups):
            for host in (host for part in group for host in part.hosts):
                self._hosts.setdefault(host, set()).add(job)
            self._extents.append(_extents(group))
            for source in self._extents[job]:
                self._by_source.setdefault(source, []).append(job)
        for source, jobs in self._by_source.items():
            jobs.sort(key=lambda job: self._extents[job][source])
        claimed = {process for claim in self._claims for process in claim.processes}
        self._loose = [life for life in gathered.living if life.process not in claimed]
        self._alone = {members.log.process for members in gathered.processes if members.members} - claimed
        """Processes with communicators of one rank only."""
        self._pids = {process.pid for process in claimed}
        """A process with one of these may be one of theirs whose host was torn."""

    def all(self) -> list[Claim]:
        """The claims of all jobs, in the order of their lines."""
        by_source: dict[int, list[ProcessLog]] = {}
        for log in self._loose:
            by_source.setdefault(source_and_line(log.first)[0], []).append(log)
        for source, logs in by_source.items():
            if source in self._by_source:
                self._give_processes(source, logs)
        if len(self._groups) > 1:
            self._give_sources(by_source)
            self._count_alongside()
        else:
            others = [log for source, logs in by_source.items() if source not in self._by_source for log in logs]
            self._claims[0].processes.update(log.process for log in others)
            if len(self._claims) > 1:
                self._claims[0].sources.update(set(range(len(self._fold.sources))) - self._by_source.keys())
        return [self._claims[job] for job in sorted(range(len(self._claims)), key=self._firsts.__getitem__)]

    def _give_processes(self, source: int, logs: Sequence[ProcessLog]) -> None:
        """Give processes to the jobs of their source, or to new ones."""
        jobs = self._by_source[source]
        begins = [self._extents[job][source][0] for job in jobs]
        ends = list(accumulate((self._extents[job][source][1] for job in jobs), max))
        begun = {log.process: bisect_right(begins, log.first) for log in logs}

        def around(log: ProcessLog) -> list[int]:
            """The jobs that began last before a process, and the next one."""
            return jobs[max(0, begun[log.process] - _LOOK_BACK) : begun[log.process] + 1]

        groups: dict[tuple[int, bool], list[ProcessLog]] = {}
        for log in logs:
            before = begun[log.process]
            has_ended = not before or ends[before - 1] < log.first
            is_between = has_ended and (before == len(jobs) or log.last < begins[before])
            is_strange = not any(job in self._hosts.get(log.process.host, ()) for job in around(log))
            if is_between or is_strange:
                groups.setdefault((before if is_between else -1, is_between), []).append(log)
            else:
                self._claims[self._nearest(source, log, around(log))].processes.add(log.process)
        for group in groups.values():
            near = {job for log in group for job in around(log)}
            if len(group) > sum(self._room[job] for job in near) and self._is_job(group):
                self._new({log.process for log in group}, min(log.first for log in group))
                continue
            for log in group:
                self._claims[self._nearest(source, log, around(log))].processes.add(log.process)

    def _is_job(self, logs: Sequence[ProcessLog]) -> bool:
        """Whether processes without a communicator say what kept them from one; a program may begin NCCL for others."""
        if any(log.process in self._alone or log.process.pid in self._pids for log in logs):
            return False
        return any(note.level in STATEMENTS for log in logs for note in log.notes.values())

    def _nearest(self, source: int, log: ProcessLog, around: Sequence[int]) -> int:
        """The job of a process among those around it: same host, missing ranks, still running, the latest."""
        own = self._hosts.get(log.process.host, set())

        def fitness(job: int) -> tuple[bool, bool, bool, int]:
            first, last = self._extents[job][source]
            return job in own, not self._whole[job], first < log.last and log.first < last, first

        return max(around, key=fitness)

    def _new(self, processes: set[Process], first: int) -> Claim:
        claim = Claim(processes)
        self._claims.append(claim)
        self._firsts.append(first)
        return claim

    def _give_sources(self, by_source: Mapping[int, list[ProcessLog]]) -> None:
        """Give the sources without a communicator: to the one job of their folder with their hosts, or a new one."""
        folders: dict[str, set[int]] = {}
        for job, extents in enumerate(self._extents):
            for source in extents:
                folders.setdefault(self._folder(source), set()).add(job)
        fresh: dict[str, Claim] = {}
        continued = self._continued(by_source)
        for source, counts in enumerate(self._fold.sources):
            if source in self._by_source or source in continued:
                continue
            if not (counts.counts.nccl_lines or counts.counts.related_lines):
                continue
            logs = by_source.get(source, [])
            jobs = folders.get(self._folder(source), set())
            for log in logs:
                jobs = jobs & self._hosts.get(log.process.host, set())
            if len(jobs) == 1:
                claim = self._claims[next(iter(jobs))]
            else:
                family = _DIGITS.sub("", counts.name)
                claim = fresh.get(family) or self._new(set(), position(source, 1))
                fresh[family] = claim
            claim.processes.update(log.process for log in logs)
            claim.sources.add(source)
        owners = {process: claim for claim in self._claims for process in claim.processes}
        for source, processes in continued.items():
            claims = {id(owners[process]): owners[process] for process in processes if process in owners}
            if len(claims) == 1:
                claims.popitem()[1].sources.add(source)

    def _continued(self, by_source: Mapping[int, list[ProcessLog]]) -> dict[int, set[Process]]:
        """The sources in which processes only continue that print elsewhere as well, with those that are known to.

        Of lines that no production knows each is kept once, so they may not be known.
        """
        nobodys = [log for log in self._fold.processes.values() if not log.process.host]
        places = [place for log in nobodys for place in (log.first, log.last, *(n.place for n in log.notes.values()))]
        begun = self._by_source.keys() | by_source.keys() | {source_and_line(place)[0] for place in places}
        continued: dict[int, set[Process]] = {
            source: set()
            for source, entry in enumerate(self._fold.sources)
            if source not in begun and entry.counts.nccl_lines
        }
        for note in self._fold.unrecognised.values():
            source = source_and_line(note.place)[0]
            if source in continued:
                continued[source].add(note.origin.process)
        return continued

    def _folder(self, source: int) -> str:
        return self._fold.sources[source].name.rpartition("/")[0]

    def _count_alongside(self) -> None:
        """Count jobs of one host each and of one size that ran at once: they may have been meant as one job."""
        sizes: dict[int, int] = {}
        for job, group in enumerate(self._groups):
            hosts = {host for part in group for host in part.hosts}
            if self._whole[job] and len(hosts) == 1 and is_named(next(iter(hosts))):
                sizes[job] = max(part.size for part in group)
        for source, jobs in self._by_source.items():
            alike: dict[int, list[int]] = {}
            for job in jobs:
                if job in sizes:
                    alike.setdefault(sizes[job], []).append(job)
            for same_size in alike.values():
                for cluster in self._at_once(source, same_size):
                    for job in cluster:
                        self._claims[job].alongside = max(self._claims[job].alongside, len(cluster) - 1)

    def _at_once(self, source: int, jobs: Sequence[int]) -> list[list[int]]:
        """Jobs of a source, in the order in which they begin, put together where they overlap."""
        clusters: list[list[int]] = []
        end = -1
        for job in jobs:
            first, last = self._extents[job][source]
            if first > end:
                clusters.append([])
            clusters[-1].append(job)
            end = max(end, last)
        return clusters


def _extents(group: Sequence[Part]) -> dict[int, tuple[int, int]]:
    """The first and the last place of a job in each source."""
    extents: dict[int, tuple[int, int]] = {}
    for part in group:
        for source in part.sources:
            first, last = part.extents[source]
            extent = extents.get(source, (first, last))
            extents[source] = min(extent[0], first), max(extent[1], last)
    return extents
