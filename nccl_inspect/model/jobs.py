"""Tells apart the jobs in one input (steps in one file, exports of collectors, folders of logs), and runs of a job.

A job's share of a fold is a fold as well, resolved like a whole one. Lines of processes are those of the job that has
the process. What nobody is known to have printed (launchers, exceptions, the version line of old releases) goes to the
job whose host, pid or label it names, and else by its place: to the job whose lines stand around it. Where a source has
processes of one job only and that one lacks ranks, the place alone counts: a host that is named may be theirs. Between
two jobs that follow each other, all up to the last error or end, and up to its last work, is of the first.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field, replace
from functools import cached_property
from itertools import accumulate, chain, pairwise
from operator import attrgetter, itemgetter
from typing import Any

from nccl_inspect.event import types as events
from nccl_inspect.event.base import NO_HOST, Process, is_named
from nccl_inspect.grammar import engine
from nccl_inspect.model import processes
from nccl_inspect.model.communicators.communicator import Communicator, find_named_ranks, list_contested
from nccl_inspect.model.fold import Burst, Fold, Note, ProcessLog, SourceCounts, position, source_and_line
from nccl_inspect.model.processes import Gathered
from nccl_inspect.model.statements import job_failure
from nccl_inspect.model.statements.job_failure import NODE_FAILURE, PREEMPTED, REQUEUED, shows_work
from nccl_inspect.util.grouping import Unions, group_sets, group_values
from nccl_inspect.util.levels import STATEMENTS
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Record
from nccl_inspect.util.text import decode, escape_controls
from nccl_inspect.util.times import are_in_order, moment
from nccl_inspect.util.wording import count

_BEGINNING = (events.NcclVersion, events.CudaDriver, events.NetDevices)


class Part:
    """Processes that are joined by communicators."""

    def __init__(self, logs: Sequence[ProcessLog], communicators: Sequence[Communicator] = ()) -> None:
        self.logs = logs
        self.communicators = communicators
        self.processes = {log.process for log in logs}
        self.begin = min(log.first for log in logs)
        self.end = max(log.last for log in logs)

        opening = [moment(log.opening.time) for log in logs]
        final = [moment(log.closing.time) for log in logs]
        is_ordered = are_in_order(*opening, *final)
        self.began = min(time for time in opening if time) if is_ordered else None
        """When the first process began, where all lines have times of one clock."""
        self.ended = max(time for time in final if time) if is_ordered else None

    @cached_property
    def hosts(self) -> set[str]:
        """Return their hosts; those that the log does not name are one."""
        return {log.process.host if is_named(log.process.host) else NO_HOST for log in self.logs}

    @cached_property
    def extents(self) -> dict[str | int, tuple[int, int]]:
        """Return the first and the last place of each host, and in each source."""
        extents: dict[str | int, tuple[int, int]] = {}
        for log in self.logs:
            for place in (log.first, *(step.place for step in log.steps), log.last):
                for key in (log.process.host, source_and_line(place)[0]):
                    first, last = extents.get(key, (place, place))
                    extents[key] = min(first, place), max(last, place)
        return extents

    @property
    def sources(self) -> list[int]:
        """Return the numbers of the sources that have lines of them."""
        return [key for key in self.extents if isinstance(key, int)]

    @cached_property
    def roots(self) -> list[Communicator]:
        """Return the communicators that are not splits."""
        return [comm for comm in self.communicators if comm.parent is None and not comm.orphan]

    @cached_property
    def size(self) -> int:
        """Return ranks of the largest communicator."""
        return max((comm.nranks for comm in self.communicators), default=0)

    @cached_property
    def missing(self) -> int:
        """Return ranks of one communicator that the log does not show."""
        return max((comm.nranks - len(comm.members) for comm in self.communicators), default=0)

    @cached_property
    def is_whole(self) -> bool:
        """Return whether every rank of every communicator is here, and so is its beginning."""
        return bool(self.roots) and not self.missing and not any(comm.orphan for comm in self.communicators)

    @cached_property
    def has_begun_here(self) -> bool:
        """Return whether the log has its beginning: what each process prints once, or else nothing before START."""
        notes = (note for log in self.logs for note in log.notes.values())
        if any(log.bootstraps for log in self.logs) or any(isinstance(note.event, _BEGINNING) for note in notes):
            return True
        starts = [log.steps[0] for log in self.logs if log.steps and log.steps[0].place == log.first]
        return len(starts) == len(self.logs) and all(
            isinstance(step.event, events.CommInit) and step.event.phase == "START" for step in starts
        )

    @cached_property
    def gpus(self) -> set[tuple[str, str]]:
        """Return host and PCI bus id of the GPUs that the log shows."""
        members = (member for comm in self.communicators for member in comm.members.values())
        return {(member.log.process.host, member.init.bus_id) for member in members if member.init.bus_id}

    @cached_property
    def settings(self) -> dict[str, set[str]]:
        """Return what its processes say of the release and of their settings, by name."""
        stated = [note.event for log in self.logs for note in log.notes.values()]
        settings = group_sets((event.name, event.value) for event in stated if isinstance(event, events.EnvSetting))
        releases = {event.version for event in stated if isinstance(event, events.NcclVersion)}
        return settings | ({"": releases} if releases else {})

    def contradicts(self, other: Part) -> bool:
        """Return whether both state the release or a setting, and nothing that they state of it is the same."""
        mine, theirs = self.settings, other.settings
        return any(mine[name].isdisjoint(theirs[name]) for name in mine.keys() & theirs.keys())

    def overlaps(self, other: Part) -> bool | None:
        """Return whether both ran at once; None where neither times nor places in one source decide."""
        shared = [key for key in self.sources if key in other.extents]
        if shared:
            mine, theirs = self.extents, other.extents
            return any(mine[key][0] < theirs[key][1] and theirs[key][0] < mine[key][1] for key in shared)
        if self.began and self.ended and other.began and other.ended and are_in_order(self.began, other.began):
            return self.began < other.ended and other.began < self.ended
        return None


def join_processes(communicators: Iterable[Communicator]) -> list[Part]:
    """Return processes joined by communicators of more than one rank, in the order of these."""
    comms = [comm for comm in communicators if comm.nranks > 1]
    unions = Unions(len(comms))
    first: dict[Process, int] = {}
    for index, comm in enumerate(comms):
        unions.join({first.setdefault(member.log.process, index) for member in comm.members.values()} | {index})
    parts = []
    for group in unions.groups():
        logs = {member.log.process: member.log for index in group for member in comms[index].members.values()}
        parts.append(Part(list(logs.values()), [comms[index] for index in group]))
    return parts


_AGAIN = compile_later(r"(?i)[._-]?(?:previous|prev|attempt|restart|retry)(?:[._-]?\d+)?|\.\d+(?=\.|$)")
"""What distinguishes the attempts of one job in the names of files."""
_DIGITS = compile_later(r"\d+")  # what distinguishes its ranks there
_LOOK_BACK = 64  # number of earlier parts, or jobs, among which the continuing one is searched


class Separation:
    """Holds which parts are of one job."""

    def __init__(self, parts: Sequence[Part], fold: Fold) -> None:
        self._parts = parts
        self._fold = fold
        self._unions = Unions(len(parts))
        self._by_source = group_values((source, index) for index, part in enumerate(parts) for source in part.sources)
        self._by_host = group_values((host, index) for index, part in enumerate(parts) for host in sorted(part.hosts))

    def groups(self) -> list[list[Part]]:
        """Return the parts of each job."""
        if len(self._parts) > 1:
            # By the id of a communicator, also where ranks differ on its size; unless a rank comes again, as it does
            # where a job was started again, or NCCL_COMM_ID gives several jobs one id. Who does not complete what
            # others completed has the id of a run before, which its store kept, also where fewer hosts are left.
            owners: dict[str, tuple[int, set[int], bool]] = {}
            for index, part in enumerate(self._parts):
                for comm in part.roots:
                    is_complete = any(member.completed for member in comm.members.values())
                    for comm_id in comm.ids:
                        first, ranks, was_complete = owners.get(comm_id, (index, set(), is_complete))
                        is_one = ranks.isdisjoint(comm.members) or (was_complete and not is_complete)
                        if is_one or list_contested(comm, *self._parts[first].roots):
                            self._unions.join((first, index))
                            owners[comm_id] = first, ranks | comm.members.keys(), was_complete
            self._on_hosts()
            self._join_in_sources()
        return [[self._parts[index] for index in group] for group in self._unions.groups()]

    def _on_hosts(self) -> None:
        """Join parts on one host: each with the one before, that of the same size, and that which ends last."""
        for indexes in self._by_host.values():
            last: dict[object, int] = {}
            times = {index: self._parts[index].began for index in indexes}
            order = {index: (time.seconds if time else 0.0, self._parts[index].begin) for index, time in times.items()}
            for index in sorted(indexes, key=order.__getitem__):
                part = self._parts[index]
                others = {last.get("before", index), last.get("latest", index), last.get(part.size, index)} - {index}
                mine = [other for other in others if self._are_one_on_a_host(self._parts[other], part)]
                self._unions.join((index, *mine))
                latest = last.get("latest", index)
                last["before"] = last[part.size] = index
                last["latest"] = index if part.end > self._parts[latest].end else latest

    def _are_one_on_a_host(self, part: Part, later: Part) -> bool:
        """Return whether two parts with a host in common are of one job."""
        both_whole = part.is_whole and later.is_whole
        if both_whole and (part.contradicts(later) or part.size != later.size):
            return False
        at_once = part.overlaps(later)
        clash = not part.gpus.isdisjoint(later.gpus)
        if at_once:
            return not clash if both_whole else not (clash and part.size != later.size)
        if part.size != later.size:
            return False
        if self._names(part, _AGAIN) == self._names(later, _AGAIN) or set(part.sources) & set(later.sources):
            # One job started again: most of its hosts are the same, and so are GPUs.
            common = len(part.hosts & later.hosts)
            return 2 * common >= min(len(part.hosts), len(later.hosts)) and not part.contradicts(later)
        return at_once is None and not clash and self._names(part, _DIGITS) == self._names(later, _DIGITS)

    def _names(self, part: Part, without: re.Pattern[str]) -> set[str]:
        """Return the names of the files of a part, without what may differ between those of one job."""
        return {without.sub("", self._fold.sources[source].name) for source in part.sources}

    def _join_in_sources(self) -> None:
        tests: set[int] = set()
        requeued: dict[int, list[int]] = {}  # where a scheduler says that it ended a job in order to start it again
        for note in (note for log in self._fold.processes.values() for note in log.notes.values()):
            source = source_and_line(note.place)[0]
            if note.event is not None and note.event.dialect == "nccl-tests":
                tests.add(source)
            if job_failure.reason(note.event) in (PREEMPTED, REQUEUED, NODE_FAILURE):
                requeued.setdefault(source, []).append(note.place)
        nobody = (log for log in self._fold.processes.values() if not log.process.host)
        named = group_values((source, (place, rank)) for source, place, rank in find_named_ranks(nobody))
        for source, parts in self._by_source.items():
            indexes = sorted(parts, key=lambda index: self._parts[index].extents[source])
            self._numbered_on(source, indexes)
            if source in named:
                self._join_world(source, indexes, sorted(named[source]))
            # What joined parts whose beginning the log lacks may have been there.
            whole = {at for at in indexes if self._parts[at].roots and self._parts[at].has_begun_here}
            self._unions.join(at for at in indexes if at not in whole)
            for before, after in pairwise(indexes):
                first, second = self._parts[before], self._parts[after]
                if first.size != second.size or first.contradicts(second):
                    continue
                # Two tests of one host each that began at once were meant to be one.
                are_tests = source in tests and len(first.hosts) == len(second.hosts) == 1 and first.overlaps(second)
                end, begin = first.extents[source][1], second.extents[source][0]
                if are_tests or any(end < place < begin for place in requeued.get(source, ())):
                    self._unions.join((before, after))

    def _numbered_on(self, source: int, indexes: Sequence[int]) -> None:
        """Join parts whose ranks a launcher numbers on from one to the next, beyond what their communicators have."""
        seen: dict[int, int] = {}
        beyond = False
        for index in indexes:
            part = self._parts[index]
            ranks = [log.opening.rank for log in part.logs if source_and_line(log.first)[0] == source]
            for rank in ranks:
                if rank is None or seen.setdefault(rank, index) != index:
                    return
                beyond |= rank >= part.size
        if beyond:
            self._unions.join(seen.values())

    def _join_world(self, source: int, indexes: Sequence[int], stated: Sequence[tuple[int, int]]) -> None:
        """Join parts that were there at once and are no more processes than PyTorch names ranks around them."""
        at_once = _join_overlapping(indexes, lambda index: self._parts[index].extents[source])
        begins = [self._parts[group[0]].extents[source][0] for group in at_once]
        for number, group in enumerate(at_once):
            until = begins[number + 1] if number + 1 < len(begins) else stated[-1][0] + 1
            first, last = bisect_left(stated, (begins[number], 0)), bisect_left(stated, (until, 0))
            world = max((rank for _, rank in stated[first:last]), default=0) + 1
            parts = [self._parts[index] for index in group]
            gpus = {gpu for part in parts for gpu in part.gpus}
            processes = sum(len(part.logs) for part in parts)
            if max(part.size for part in parts) < world and len(gpus) == processes <= world:
                self._unions.join(group)


class Claim(Record):
    """Holds what is known to be of one job."""

    processes: set[Process]
    first: int = 0  # where it begins
    sources: set[int] = field(default_factory=set)  # those of which every line is, whoever printed it
    alongside: int = 0  # see :class:`~nccl_inspect.model.job.Job`


class Claims:
    """Gives everything to a job."""

    def __init__(self, fold: Fold, gathered: Gathered, groups: Sequence[Sequence[Part]]) -> None:
        self._fold = fold
        self._groups = groups
        self._claims = [
            Claim({process for part in group for process in part.processes}, min(part.begin for part in group))
            for group in groups
        ]
        self._whole = [all(part.is_whole for part in group) for group in groups]
        self._room = [max(part.missing for part in group) for group in groups]  # how many ranks each job lacks
        self._hosts = group_sets(
            (host, job) for job, group in enumerate(groups) for part in group for host in part.hosts
        )
        self._extents: list[dict[int, tuple[int, int]]] = []
        for group in groups:
            spans = group_values((source, part.extents[source]) for part in group for source in part.sources)
            ends = {source: list(zip(*some, strict=True)) for source, some in spans.items()}
            self._extents.append({source: (min(firsts), max(lasts)) for source, (firsts, lasts) in ends.items()})
        self._by_source = group_values((source, job) for job, spans in enumerate(self._extents) for source in spans)
        for source, jobs in self._by_source.items():
            jobs.sort(key=lambda job: self._extents[job][source])
        claimed = {process for claim in self._claims for process in claim.processes}
        self._loose = [life for life in gathered.living if life.process not in claimed]
        self._alone = {members.log.process for members in gathered.processes if members.members} - claimed
        """Processes with communicators of one rank only."""
        self._pids = {process.pid for process in claimed}
        """A process with one of these may be one of theirs whose host was torn."""

    def list_claims(self) -> list[Claim]:
        """Return the claims of all jobs, in the order of their lines."""
        by_source = group_values((source_and_line(log.first)[0], log) for log in self._loose)
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
        return sorted(self._claims, key=attrgetter("first"))

    def _give_processes(self, source: int, logs: Sequence[ProcessLog]) -> None:
        """Give processes to the jobs of their source, or to new ones."""
        jobs = self._by_source[source]
        begins = [self._extents[job][source][0] for job in jobs]
        ends = list(accumulate((self._extents[job][source][1] for job in jobs), max))
        begun = {log.process: bisect_right(begins, log.first) for log in logs}

        def around(log: ProcessLog) -> list[int]:
            """Return the jobs that began last before a process, and the next one."""
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
            # A program may begin NCCL for others: a job of its own says what kept it from a communicator.
            may_be_theirs = any(log.process in self._alone or log.process.pid in self._pids for log in group)
            is_failed = any(note.level in STATEMENTS for log in group for note in log.notes.values())
            if len(group) > sum(self._room[job] for job in near) and not may_be_theirs and is_failed:
                self._new({log.process for log in group}, min(log.first for log in group))
                continue
            for log in group:
                self._claims[self._nearest(source, log, around(log))].processes.add(log.process)

    def _nearest(self, source: int, log: ProcessLog, around: Sequence[int]) -> int:
        """Return the job of a process among those around it: same host, missing ranks, still running, the latest."""
        own = self._hosts.get(log.process.host, set())

        def fitness(job: int) -> tuple[bool, bool, bool, int]:
            first, last = self._extents[job][source]
            return job in own, not self._whole[job], first < log.last and log.first < last, first

        return max(around, key=fitness)

    def _new(self, processes: set[Process], first: int) -> Claim:
        self._claims.append(Claim(processes, first))
        return self._claims[-1]

    def _give_sources(self, by_source: Mapping[int, list[ProcessLog]]) -> None:
        """Give the sources without a communicator: to the one job that continues behind them, or that of their folder
        with their hosts, or to a new one."""
        folders = group_sets((self._folder(at), job) for job, extents in enumerate(self._extents) for at in extents)
        logs_of_jobs = ((job, log) for job, group in enumerate(self._groups) for part in group for log in part.logs)
        spans = {(source_and_line(log.first)[0], source_and_line(log.last)[0], job) for job, log in logs_of_jobs}
        spans = {(first, last, job) for first, last, job in spans if last - first > 1}
        fresh: dict[str, Claim] = {}
        for source, counts in enumerate(self._fold.sources):
            if source in self._by_source or not (counts.counts.nccl_lines or counts.counts.related_lines):
                continue
            logs = by_source.get(source, [])
            going_on = {job for first, last, job in spans if first < source < last and not logs}
            jobs = going_on or folders.get(self._folder(source), set())
            for log in logs:
                jobs = jobs & self._hosts.get(log.process.host, set())
            if len(jobs) == 1:
                claim = self._claims[next(iter(jobs))]
            elif going_on:
                continue
            else:
                family = _DIGITS.sub("", counts.name)
                claim = fresh.get(family) or self._new(set(), position(source, 1))
                fresh[family] = claim
            claim.processes.update(log.process for log in logs)
            claim.sources.add(source)

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
            extents = {job: self._extents[job][source] for job in jobs}
            for same_size in group_values((sizes[job], job) for job in jobs if job in sizes).values():
                for cluster in _join_overlapping(same_size, extents.__getitem__):
                    for job in cluster:
                        self._claims[job].alongside = max(self._claims[job].alongside, len(cluster) - 1)


def _join_overlapping(numbers: Sequence[int], extent: Callable[[int], tuple[int, int]]) -> list[list[int]]:
    """Return numbered things, in the order in which they begin, put together where they overlap."""
    groups: list[list[int]] = []
    end = -1
    for number in numbers:
        first, last = extent(number)
        if first > end:
            groups.append([])
        groups[-1].append(number)
        end = max(end, last)
    return groups


_JUST = 400  # lines of other jobs after the last line of a job within which its end is reported


class Landmarks:
    """Lines of known jobs in one source, in their order."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []  # each place with its job
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.closings: list[int] = []  # places of errors, ends and work of unknown processes

    def sort(self) -> None:
        """Put what was added in its order."""
        self.rows.sort()
        for place, job in self.rows:
            self.first.setdefault(job, place)
            self.last[job] = place
        self.closings.sort()

    def owner(self, place: int, is_end: bool = False) -> int:
        """Return the job that a line belongs to by its place; an end is that of one that stopped just before it."""
        at = bisect_right(self.rows, place, key=itemgetter(0))
        if at == 0:
            return self.rows[0][1]
        before = self.rows[at - 1][1]
        if is_end and self.last[before] > place:
            late = (job for _, job in reversed(self.rows[max(0, at - _JUST) : at]))
            # It ran at the same time.
            before = next((job for job in late if self.first[before] < self.last[job] <= place), before)
        if at == len(self.rows) or self.rows[at][1] == before or self.last[before] > place:
            return before
        begin, after = self.rows[at]
        closing = self.closings[bisect_left(self.closings, begin) - 1] if self.closings else 0
        return before if place <= closing < begin else after

    def nearest(self, place: int, sizes: Sequence[int], rank: int) -> int | None:
        """Return the job with a rank whose lines are nearest to a place: that before it, or else that behind it."""
        at = bisect_right(self.rows, place, key=itemgetter(0))
        near = *reversed(self.rows[max(0, at - _JUST) : at]), *self.rows[at : at + _JUST]
        return next((job for _, job in near if rank < sizes[job]), None)

    def end(self, job: int) -> int:
        """Return the number of the last line of a job, where another job follows; else 0."""
        end = self.rows[-1][0]
        last = self.last.get(job, end)
        return source_and_line(last)[1] if last < end else 0


_CLOSING = {"test-end", "works", "mid-run", "watchdog-dump", "watchdog-status", "after-timeout", "echoes-failure"}
"""Roles of lines that no job begins with: what follows may be of the next one."""
_WORD = compile_later(rb"[A-Za-z0-9][A-Za-z0-9._-]*")
_PID = compile_later(rb"\b[Pp][Ii][Dd][ :=]+(\d{2,10})")
_NOBODY = -1


class Division:
    """Divides what a fold has among jobs.

    Args:
        gathered: the processes of the fold; each life that has a host has one claim.
        newest: of runs of one job the one that has all that follows its beginning, and the sources without a
            process: hosts and small pids come again.
    """

    def __init__(self, fold: Fold, gathered: Gathered, claims: Sequence[Claim], newest: int | None = None) -> None:
        self._fold, self._gathered, self._claims, self._newest = fold, gathered, claims, newest
        self._numbered = fold.sources_by_number
        self._of_process = {process: job for job, claim in enumerate(claims) for process in claim.processes}
        self._of_source = {source: job for job, claim in enumerate(claims) for source in claim.sources}
        self._landmarks: dict[int, Landmarks] = {}
        self._hosts: dict[bytes, set[int]] = {}
        self._pids: dict[bytes, set[int]] = {}
        self._labels: dict[str, set[int]] = {}
        self._lacking = {self._job_of(comm) for comm in gathered.communicators if len(comm.members) < comm.nranks}
        """Jobs of which the log does not show all ranks, nor perhaps all hosts."""
        self._loose = [log for log in fold.processes.values() if not log.process.host]
        self._everything: list[list[ProcessLog]] = [[] for _ in claims]
        for log, lives in zip(gathered.logs, gathered.lives, strict=True):
            jobs = [self._of_process[life.process] for life in lives]
            for life, job in zip(lives, jobs, strict=True):
                self._mark(life, job)
            is_of_one = len(set(jobs)) == 1
            for life, job in [(log, jobs[0])] if is_of_one else zip(lives, jobs, strict=True):
                self._everything[job].append(life)
        for number, marks in self._landmarks.items():
            source = self._numbered[number]
            ends = [line for line, text in source.counts.tail if job_failure.end_text(text, fold.known.wrapped)]
            ends += [exception.number for exception in source.raised]
            ends += [line for line, text in source.results() if shows_work(decode(text))]
            marks.closings.extend(position(number, line) for line in ends)
        for note in (note for log in self._loose for note in log.notes.values()):
            event = note.event
            is_closing = job_failure.is_end(event) or note.level in STATEMENTS or isinstance(event, events.ErrorCascade)
            if event is not None and not is_closing:
                is_closing = not _CLOSING.isdisjoint(engine.find_roles(event)) or getattr(event, "tone", "") == "error"
                is_closing |= isinstance(event, events.NcclTestResult)
            for place in _list_places(note) if is_closing else ():  # what follows may be of the next job
                if marks_there := self._landmarks.get(source_and_line(place)[0]):
                    marks_there.closings.append(place)
        for marks in self._landmarks.values():
            marks.sort()
        self._mark_ranks()

    def _mark(self, log: ProcessLog, job: int) -> None:
        host, pid, label = log.process
        if is_named(host):
            self._hosts.setdefault(host.encode(errors="surrogateescape"), set()).add(job)
        self._pids.setdefault(b"%d" % pid, set()).add(job)
        self._labels.setdefault(log.opening.label or label, set()).add(job)
        for place in (log.first, *(step.place for step in log.steps), log.last):
            self._landmarks.setdefault(source_and_line(place)[0], Landmarks()).rows.append((place, job))

    def _job_of(self, comm: Communicator) -> int:
        return self._of_process[next(iter(comm.members.values())).log.process]

    def _mark_ranks(self) -> None:
        """Give lines of nobody about a rank that their job cannot have to the nearest one that can.

        They become lines of that job, so that what follows in the same report is given to it, too.
        """
        sizes = [0] * len(self._claims)
        for comm in self._gathered.communicators:
            job = self._job_of(comm)
            sizes[job] = max(sizes[job], comm.nranks)
        about: list[tuple[int, int | None]] = []
        for note in (note for log in self._loose for note in log.notes.values()):
            ranks = (
                *(note.event.ranks if isinstance(note.event, events.ProcessEnded) else ()),
                note.printed.origin.rank,
            )
            rank = max((rank for rank in ranks if rank is not None), default=None)
            about += [(place, rank) for place in _list_places(note)]
        for number, source in self._numbered.items():
            about += [(position(number, exception.number), exception.rank) for exception in source.raised]
        moved: dict[int, list[tuple[int, int]]] = {}
        for place, rank in about:
            marks = self._landmarks.get(source_and_line(place)[0])
            if marks is None or rank is None or not 0 < sizes[marks.owner(place)] <= rank:
                continue
            nearest = marks.nearest(place, sizes, rank)
            if nearest is not None:
                moved.setdefault(source_and_line(place)[0], []).append((place, nearest))
        for number, rows in moved.items():
            self._landmarks[number].rows += rows
            self._landmarks[number].sort()

    def _owner(self, place: int, text: bytes, label: str | None = None, is_end: bool = False) -> int:
        """Return the job of a line of nobody; :data:`_NOBODY` where there is none in its source."""
        if label and len(jobs_named := self._labels.get(label, set())) == 1:
            return next(iter(jobs_named))
        number = source_and_line(place)[0]
        if number in self._of_source:
            return self._of_source[number]
        marks = self._landmarks.get(number)
        if (newest := self._newest) is not None:
            others = max((last for job, last in marks.last.items() if job != newest), default=-1) if marks else -1
            if marks is None or max(marks.first.get(newest, place + 1), others + 1) <= place:
                return newest
            pids = _PID.findall(text)
            if newest not in marks.first and others < place and pids and self._pids.keys().isdisjoint(pids):
                return newest  # it did not come to a line of NCCL there
        if marks and len(marks.last) == 1 and self._lacking.issuperset(marks.last):
            return marks.owner(place, is_end)
        for words, owners in ((_WORD.findall(text), self._hosts), (_PID.findall(text), self._pids)):
            named = {next(iter(jobs)) for word in words if len(jobs := owners.get(word, set())) == 1}
            if len(named) == 1:
                return named.pop()
        return marks.owner(place, is_end) if marks else _NOBODY

    def shares(self) -> list[Fold]:
        """Return the shares of the jobs, in the order of their claims."""
        own_logs = set(map(id, self._gathered.logs))
        for log in self._gathered.everything:
            if id(log) not in own_logs and log.process.host:
                self._everything[max(0, self._owner(log.first, b"", log.opening.label))].append(log)
        for log in self._loose:
            for job, piece in self._pieces(log):
                self._everything[job].append(piece)
        unrecognised: list[dict[bytes, Note]] = [{} for _ in self._claims]
        for message, note in self._fold.unrecognised.items():
            owner = self._of_process.get(note.printed.process)
            if owner is None:
                owner = self._owner(note.place, note.message, note.printed.origin.label)
            if owner != _NOBODY:
                unrecognised[owner][message] = note
        sources = self._sources(unrecognised)
        return [self._share(job, sources[job], unrecognised[job]) for job in range(len(self._claims))]

    def _share(self, job: int, sources: dict[int, SourceCounts], unrecognised: dict[bytes, Note]) -> Fold:
        """Return what one job has of the fold."""
        share, repeated = copy(self._fold), self._gathered.repeated
        share.processes = {log.process: log for log in processes.apart(self._everything[job])}
        share.own, share.unrecognised = sources, unrecognised
        share.repeated = {process: repeated[process] for process in share.processes if process in repeated}
        share.alongside = self._claims[job].alongside
        steps = [step for log in share.processes.values() for step in log.steps]
        stated = (note.event for log in share.processes.values() for note in log.notes.values())
        edges = (edge.event for step in steps if isinstance(step, Burst) for edge in step.edges.values())
        kept = chain((step.event for step in steps), edges, stated)  # productions, as far as something of them is kept
        share.productions = {(event.dialect, event.production) for event in kept if event} & self._fold.productions
        return share

    def titles(self, shares: Sequence[Fold]) -> list[str]:
        """Return a name for each job, all different."""
        # Without sources in which only processes of other jobs print, and a launcher names this one.
        sources = [
            [at for at in share.sources_by_number if at not in self._landmarks or job in self._landmarks[at].last]
            for job, share in enumerate(shares)
        ]
        owners = Counter(chain.from_iterable(sources))
        files = _short({at: source.name for share in shares for at, source in share.sources_by_number.items()})
        names = []
        for index, (share, numbers) in enumerate(zip(shares, sources, strict=True), 1):
            own = [files[number] for number in numbers if owners[number] == 1]
            is_split = len(own) < len(numbers) or len(files) == 1
            # The names of pods or nodes; what else collectors print holds pids.
            labels = (log.opening.label for log in share.processes.values() if log.process.host)
            plain = (label for label in labels if label and not any(map(str.isspace, label)))
            pods = list(dict.fromkeys(escape_controls(label.removeprefix(_POD).partition("/")[0]) for label in plain))
            names.append(("" if is_split else _common(own)) or _common(pods) or f"job {index}")
        several, seen = Counter(names), Counter[str]()
        for index, name in enumerate(names):
            seen[name] += 1
            names[index] = f"{name} ({seen[name]})" if several[name] > 1 else name
        return names if len({*names}) == len(names) else [f"job {number}" for number in range(1, len(names) + 1)]

    def _pieces(self, log: ProcessLog) -> Iterator[tuple[int, ProcessLog]]:
        """Yield what nobody printed, by the job that it belongs to."""
        pieces: dict[int, ProcessLog] = {}
        for key, note in log.notes.items():
            is_end = job_failure.is_end(note.event)
            by_job = group_values(
                (self._owner(place, note.message, note.printed.origin.label, is_end), place)
                for place in _list_places(note)
            )
            by_job.pop(_NOBODY, None)
            for job, own in by_job.items():
                piece = pieces.setdefault(job, ProcessLog(log.process, opening=log.opening, closing=log.closing))
                piece.notes[key] = (
                    note
                    if len(by_job) == 1
                    else replace(note, place=own[0], last=own[-1], count=len(own), places=array("q", own[1:]))
                )
        for job, piece in pieces.items():
            places = [place for note in piece.notes.values() for place in _list_places(note)]
            piece.first, piece.last = min(places), max(places)
            yield job, piece

    def _sources(self, unrecognised: Sequence[Mapping[bytes, Note]]) -> list[dict[int, SourceCounts]]:
        """Return for each job the sources that have lines of it, with its share of the loose ones.

        Args:
            unrecognised: by jobs, their lines that no production knows: a process may have no others in a source, and
                a job none but those of a launcher that names its host or a pid.
        """
        by_job: list[dict[int, SourceCounts]] = [{} for _ in self._claims]
        of_source: dict[int, set[int]] = {}
        for job, (notes, logs) in enumerate(zip(unrecognised, self._everything, strict=True)):
            nobodys = (note for log in logs if not log.process.host for note in log.notes.values())
            for place in chain.from_iterable([*map(_list_places, nobodys), [note.place for note in notes.values()]]):
                of_source.setdefault(source_and_line(place)[0], set()).add(job)
        for number, source in self._numbered.items():
            marks = self._landmarks.get(number)
            jobs = {*of_source.get(number, ()), *(marks.last if marks else ())}
            if number in self._of_source:
                jobs.add(self._of_source[number])
            if len(jobs) == 1:
                by_job[jobs.pop()][number] = source
                continue
            for job, share in self._divide_source(number, source, jobs).items():
                by_job[job][number] = share
        return by_job

    def _divide_source(self, number: int, source: SourceCounts, jobs: Iterable[int]) -> dict[int, SourceCounts]:
        """Return a source with lines of several jobs, for each of them; the numbers of lines stay those of all."""
        counts = source.counts
        marks = self._landmarks.get(number)
        more = counts.damaged_lines - len(counts.broken)
        # Damaged lines that are not kept stand behind those that are: a job that was over by then has none of them.
        last_kept = counts.broken[-1][0] if counts.broken else 0
        last_lines = {job: source_and_line(place)[1] for job, place in marks.last.items()} if marks else {}
        over = {job for job, line in last_lines.items() if line <= last_kept}
        tail, spared, raised, benchmarks, broken, mended = (
            self._by_job(number, lines)
            for lines in (counts.tail, source.spared, source.raised, source.results(), counts.broken, counts.mended)
        )
        return {
            job: replace(
                source,
                spared=spared[job],
                raised=deque(raised[job]),
                benchmarks=benchmarks[job],
                at_end=[],
                until=marks.end(job) if marks else 0,
                counts=replace(
                    counts,
                    tail=deque(tail[job]),
                    broken=broken[job],
                    mended=mended[job],
                    damaged_lines=len(broken[job]) + more * (job not in over),
                ),
            )
            for job in jobs
        }

    def _by_job(self, number: int, lines: Iterable[Any]) -> defaultdict[int, list[Any]]:
        by_job: defaultdict[int, list[Any]] = defaultdict(list)
        for line in lines:
            is_end = job_failure.end_text(line[1], self._fold.known.wrapped) is not None
            by_job[self._owner(position(number, line[0]), line[1], is_end=is_end)].append(line)
        return by_job


def _list_places(note: Note) -> list[int]:
    """Return where a statement of nobody was made, as far as that is kept."""
    return sorted({note.place, *(note.places or ()), note.last})


_END = compile_later(r"[^A-Za-z0-9]*$")
_POD = "pod/"  # what kubectl puts in front of the name of a pod; that of the container follows it
_SUFFIX = compile_later(r"(?:\.(?:log|txt|out|err|gz|bz2|xz|zst))+$")


def _short(names: Mapping[int, str]) -> dict[int, str]:
    """Files without the folder that all of them are in; one that is alone in its folder has the name of that."""
    folders = [name.rpartition("/")[0] for name in names.values()]
    top = os.path.commonpath(folders) if len(names) > 1 and all(folders) else ""
    short = {
        number: escape_controls(name.removeprefix(top).lstrip("/") if top else name) for number, name in names.items()
    }
    alone = Counter(name.rpartition("/")[0] for name in short.values())
    for number, name in short.items():
        folder, plain = name.rpartition("/")[0], _SUFFIX.sub("", name)
        if folder and alone[folder] == 1:
            short[number] = folder
        elif plain and not plain.isdecimal():  # a mere number would look like that of a job
            short[number] = plain
    return short


def _common(names: Sequence[str]) -> str:
    """Return what names begin with; empty where they have next to nothing in common."""
    if len(names) == 1:
        return names[0]
    begin = _END.sub("", os.path.commonprefix(list(names)))  # noqa: RUF071
    return begin if len(begin) > 1 else ""


def jobs_of(fold: Fold, gathered: Gathered) -> dict[str, Fold]:
    """Return the jobs of a log by their names, in the order of their lines; none where it holds one only."""
    job_parts = join_processes(gathered.communicators)
    if not job_parts or (
        len(job_parts) == 1 and all(life.process in job_parts[0].processes for life in gathered.living)
    ):
        return {}
    claims = Claims(fold, gathered, Separation(job_parts, fold).groups()).list_claims()
    if len(claims) < 2:
        return {}
    division = Division(fold, gathered, claims)
    shares = division.shares()
    return dict(zip(division.titles(shares), shares, strict=True))


def runs_of(fold: Fold, gathered: Gathered) -> dict[str, Fold]:
    """Return the runs of one job, each by a description of it; the newest is last, and has none."""
    if gathered.runs:
        return gathered.runs
    earlier = find_earlier_runs(gathered)
    shares = [fold]
    if earlier:
        over = {process for run in earlier for process in run.processes}
        claims = [*(Claim(run.processes) for run in earlier), Claim({life.process for life in gathered.living} - over)]
        shares = Division(fold, gathered, claims, len(earlier)).shares()
    names = [*(_describe_run(fold, run) for run in earlier), ""]
    gathered.runs = dict(zip(names, shares, strict=True))
    return gathered.runs


def _describe_run(fold: Fold, run: Part) -> str:
    """Return how many processes a run has, and where it stands."""
    begin_name, first, _ = fold.where(run.begin)
    end_name, last, _ = fold.where(run.end)
    lines = f"lines {first} to {last}" if begin_name == end_name else f"line {first} to {end_name} line {last}"
    hosts = len({process.host for process in run.processes})
    return f"{count(len(run.logs), 'process')} on {count(hosts, 'host')}, {begin_name} {lines}"


def is_before(part: Part, other: Part, ends: Sequence[int]) -> bool:
    """Return whether a run is known to have ended before the other one began.

    The order of lines says something only where the same hosts are in both, or in the same source the end of a job
    stands between them: else the logs of two hosts may have been put one behind the other.
    """
    shared_hosts = part.hosts & other.hosts
    if shared_hosts and part.ended and other.began and are_in_order(part.ended, other.began):
        return part.ended < other.began
    shared = part.extents.keys() & other.extents.keys()
    if any(part.extents[key][1] >= other.extents[key][0] for key in shared):
        return False  # a file of each pod has all attempts of it, one after the other
    between = any(part.end < end < other.begin for end in ends)
    return bool(shared_hosts or (between and shared))


def find_earlier_runs(gathered: Gathered) -> list[Part]:
    """Return the runs that were over before the newest one began, the oldest first.

    A process without a communicator that ended before the newest run began is of an earlier one that ran at once,
    if its host is one of theirs.
    """
    runs = join_processes(gathered.communicators)
    if len(runs) < 2:
        return []
    times = [run.began for run in runs]
    if are_in_order(*times):
        runs.sort(key=lambda run: run.began or times[0])  # type: ignore[arg-type,return-value]
    else:
        runs.sort(key=lambda run: run.begin)
    notes = (note for log in gathered.everything for note in log.notes.values())
    ends = [note.last for note in notes if job_failure.is_end(note.event)]
    newest = runs[-1]
    earlier = [run for run in runs[:-1] if is_before(run, newest, ends)]
    joined = {process for run in runs for process in run.processes}
    left = [Part([life]) for life in gathered.living if life.process not in joined] if earlier else []
    late: dict[int, list[ProcessLog]] = {}
    for part in left:
        at = next((at for at, run in enumerate(earlier) if run.overlaps(part)), None)
        is_known = at is not None and part.hosts <= earlier[at].hosts | newest.hosts
        if at is not None and is_known and is_before(part, newest, ends):
            late.setdefault(at, []).extend(part.logs)
    return [Part([*run.logs, *late[at]], run.communicators) if at in late else run for at, run in enumerate(earlier)]
