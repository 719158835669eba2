"""Tells apart the jobs in one input (steps in one file, exports of collectors, folders of logs), and runs of a job."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

from nccl_inspect.event import types as events
from nccl_inspect.event.base import NO_HOST, Process, is_named
from nccl_inspect.model.communicators.communicator import Communicator, find_named_ranks
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.model.fold.process_log import ProcessLog, position, source_and_line
from nccl_inspect.model.jobs.shares import Claim, Division, Share
from nccl_inspect.model.processes import Gathered
from nccl_inspect.model.statements import job_failure
from nccl_inspect.model.statements.job_failure import NODE_FAILURE, PREEMPTED, REQUEUED
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.levels import STATEMENTS
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.times import are_in_order, moment

_BEGINNING = (events.NcclVersion, events.CudaDriver, events.NetDevices)


class Unions:
    """Numbered things that belong together, joined pair by pair."""

    def __init__(self, number: int) -> None:
        self._above = list(range(number))

    def find_root(self, item: int) -> int:
        """Return the number of the first thing that this one belongs to."""
        while self._above[item] != item:
            self._above[item] = self._above[self._above[item]]
            item = self._above[item]
        return item

    def join(self, items: Iterable[int]) -> None:
        """Put things together, with all that belongs to them."""
        first, *others = sorted({self.find_root(item) for item in items}) or [0]
        for other in others:
            self._above[other] = first

    def groups(self) -> list[list[int]]:
        """Return the things that belong together, in the order of their numbers."""
        return list(group_values((self.find_root(item), item) for item in range(len(self._above))).values())


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
            # By the id of a communicator, also where ranks differ on its size; unless a rank comes again.
            owners: dict[str, tuple[int, set[int]]] = {}
            for index, part in enumerate(self._parts):
                for comm in part.roots:
                    for comm_id in {member.init.comm_id or "" for member in comm.members.values()} - {""}:
                        first, ranks = owners.get(comm_id, (index, set()))
                        if ranks.isdisjoint(comm.members):
                            self._unions.join((first, index))
                            owners[comm_id] = first, ranks | comm.members.keys()
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


class Claims:
    """Gives everything to a job."""

    def __init__(self, fold: Fold, gathered: Gathered, groups: Sequence[Sequence[Part]]) -> None:
        self._fold = fold
        self._groups = groups
        self._claims = [Claim({process for part in group for process in part.processes}) for group in groups]
        self._firsts = [min(part.begin for part in group) for group in groups]
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
        return [self._claims[job] for job in sorted(range(len(self._claims)), key=self._firsts.__getitem__)]

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
        claim = Claim(processes)
        self._claims.append(claim)
        self._firsts.append(first)
        return claim

    def _give_sources(self, by_source: Mapping[int, list[ProcessLog]]) -> None:
        """Give the sources without a communicator: to the one job of their folder with their hosts, or a new one."""
        folders = group_sets((self._folder(at), job) for job, extents in enumerate(self._extents) for at in extents)
        fresh: dict[str, Claim] = {}
        continued = self._find_continuations(by_source)
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

    def _find_continuations(self, by_source: Mapping[int, list[ProcessLog]]) -> dict[int, set[Process]]:
        """Return the sources in which only processes continue that also print elsewhere, with those that are known to.

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
                continued[source].add(note.printed.process)
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


def jobs_of(fold: Fold, gathered: Gathered) -> list[Share]:
    """Return the jobs of a log, in the order of their lines; none where it holds one only."""
    job_parts = join_processes(gathered.communicators)
    if not job_parts or (
        len(job_parts) == 1 and all(life.process in job_parts[0].processes for life in gathered.living)
    ):
        return []
    claims = Claims(fold, gathered, Separation(job_parts, fold).groups()).list_claims()
    return Division(fold, gathered, claims).shares() if len(claims) > 1 else []


def runs_of(fold: Fold | Share, gathered: Gathered) -> list[Share]:
    """Return the runs of one job, the newest last; one where it was not started again."""
    earlier = find_earlier_runs(gathered.communicators, gathered.everything)
    over = {process for run in earlier for process in run.processes}
    lives = {life.process for life in gathered.living}
    claims = [*(Claim(run.processes) for run in earlier), Claim(lives - over)]
    return Division(fold, gathered, claims).shares()


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


def find_earlier_runs(communicators: Sequence[Communicator], logs: Sequence[ProcessLog]) -> list[Part]:
    """Return the runs that were over before the newest one began, the oldest first."""
    runs = join_processes(communicators)
    if len(runs) < 2:
        return []
    times = [run.began for run in runs]
    if are_in_order(*times):
        runs.sort(key=lambda run: run.began or times[0])  # type: ignore[arg-type,return-value]
    else:
        runs.sort(key=lambda run: run.begin)
    ends = [note.last for log in logs for note in log.notes.values() if job_failure.is_end(note.event)]
    return [run for run in runs[:-1] if is_before(run, runs[-1], ends)]
