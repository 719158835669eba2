"""Which job evidence belongs to: by what it names, then by the folder it lies in; where nothing decides, to none.

Which host of the job a file is about tells its name: ``HOST.ibstat``, ``ibstat-HOST.txt``, ``hosts/HOST/lsmod``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect.artifacts import Identity, comm_number, short
from nccl_inspect.artifacts.tools import Report
from nccl_inspect.event.base import Process, is_named
from nccl_inspect.event.types import CollectiveTimeout, NetDevices
from nccl_inspect.grammar import engine
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.jobs import find_earlier_runs
from nccl_inspect.model.processes import Gathered
from nccl_inspect.model.statements import nvidia_smi
from nccl_inspect.model.versions import is_inferred, order
from nccl_inspect.topology import Topology, bus_number
from nccl_inspect.util.grouping import group_sets
from nccl_inspect.util.records import Record
from nccl_inspect.util.times import Moment, glog_seconds, moment
from nccl_inspect.util.wording import count, list_words

if TYPE_CHECKING:
    from nccl_inspect.artifacts.flight_recorder import Call, Dump
    from nccl_inspect.model.fold import Fold
    from nccl_inspect.model.job import Job, Notice

_DAY = 86_400.0


def check_evidence(artifacts: Iterable[Artifact], job: Job, gathered: Gathered) -> list[Artifact]:
    """Return the evidence as used for one job: with its hosts, and with a reason where it is of another job."""
    over = find_earlier_runs(gathered) if job.earlier_runs else []
    earlier = {process for run in over for process in run.processes}
    traits = Traits.collect(gathered, [source.name for source in job.sources], earlier)
    checked = []
    for artifact in artifacts:
        identity = identify(artifact)
        why = contradiction(identity, traits) if strength(identity, traits) == NEVER else None
        checked.append(set_aside(artifact, why) if why else artifact)
    for find_others in (_find_other_releases, _find_reruns, _find_older):
        dumps = {place: one.value for place, one in enumerate(checked) if one.reader == _READER and one.value}
        for place, why in find_others(dumps, job) if dumps else ():
            checked[place] = set_aside(checked[place], why)
    return join_hosts(checked, job)


def set_aside(artifact: Artifact, why: str) -> Artifact:
    """Return a file with the reason why it is not used."""
    return replace(artifact, value=None, problem=why)


class Allotment:
    """Gives the evidence of an input to its jobs: of several, to those that it fits."""

    def __init__(self, artifacts: Sequence[Artifact]) -> None:
        self._artifacts = artifacts
        self._jobs: Sequence[Fold] = ()
        self._traits: list[Traits] = []
        self._of: list[list[Artifact]] = []
        self._folders: dict[PurePath, dict[int, None]] = {}
        self._on: dict[str | None, list[int]] = {}  # the jobs on each host; below None those without one
        self._hosts: dict[tuple[int, ...], Hosts] = {}  # those of several jobs
        self.left: list[Artifact] = []  # what fits none of several jobs, or several, with the reason

    def begin(self, jobs: Sequence[Fold]) -> None:
        """Share the evidence out."""
        names = [[source.name for source in job.sources_by_number.values()] for job in jobs]
        self._jobs = jobs
        self._traits = [Traits.collect(Gathered.gather(job), own) for job, own in zip(jobs, names, strict=True)]
        self._of = [[] for _ in jobs]
        self._folders = folders(names)
        for number, traits in enumerate(self._traits):
            for host in traits.hosts or (None,):
                self._on.setdefault(host, []).append(number)
        for artifact in self._artifacts:
            self._give(artifact)

    def select(self, state: Fold) -> Sequence[Artifact]:
        """Return the evidence of a job, or of a run of it."""
        if not self._of:
            return self._artifacts
        for job, own in zip(self._jobs, self._of, strict=True):
            if job is state:
                return own
        # A run of a job has the lives of its processes.
        processes = {process[:2] for process in state.processes}
        common = [sum(process[:2] in processes for process in job.processes) for job in self._jobs]
        return self._of[common.index(max(common))]

    def _give(self, artifact: Artifact) -> None:
        # The jobs with logs in the nearest folder that has some: the folder of the file, or one above it.
        folder = next((above for above in PurePath(artifact.name).parents if above in self._folders), None)
        near = tuple(range(len(self._of)) if folder is None else self._folders[folder])
        if len(near) == 1:
            self._of[near[0]].append(artifact)  # what contradicts it is said there
            return
        if near not in self._hosts:
            self._hosts[near] = Hosts(sorted({host for job in near for host in self._traits[job].hosts}))
        identity = identify(artifact, self._hosts[near])
        possible: Iterable[int] = near
        if identity.are_all_hosts and not (identity.comms or identity.numbers):
            # Of one about machines those on its hosts, without trying all others.
            hosts = [*identity.hosts, None]
            possible = sorted({job for host in hosts for job in self._on.get(host, ())}.intersection(near))
        fits = {job: strength(identity, self._traits[job]) for job in possible}
        best = max(fits.values(), default=NEVER)
        chosen = [job for job, fit in fits.items() if fit == best]
        if best == NEVER:
            # What the file says is the same for all jobs; what the log says against it is not.
            reason = (contradiction(identity, self._traits[near[0]]) or "").partition(";")[0]
            self.left.append(set_aside(artifact, f"{reason}; fits none of {len(near)} jobs"))
        elif (len(chosen) == 1 and best > NOTHING) or (identity.is_of_many and best == HOST):
            for job in chosen:
                self._of[job].append(artifact)
        else:
            hint = "" if best > NOTHING else ", and nothing in it says which"
            self.left.append(set_aside(artifact, f"fits {len(chosen)} jobs{hint}; put it into the folder of its job"))


def folders(jobs: Iterable[Iterable[str]]) -> dict[PurePath, dict[int, None]]:
    """Return by folder the jobs, given by the names of their logs, that have some there or below it, in their order."""
    numbers: dict[PurePath, dict[int, None]] = {}
    for number, sources in enumerate(jobs):
        for folder in {above for source in sources for above in PurePath(source).parents}:
            numbers.setdefault(folder, {})[number] = None
    return numbers


# What shows whether evidence and a log belong to one job: communicators, processes, hosts, sizes, times

_ZONES = 14 * 3600.0  # the most by which a clock without zone may be off
_JOB_NUMBER = re.compile(r"(?:^|[^0-9])([0-9]{1,9})(?![0-9])")
_MOST_SHOWN = 3
NEVER, NOTHING, SIZE, HOST, PROCESS, EXACT = range(-1, 5)
"""How well evidence fits a job: not at all; nothing speaks for or against it; by what it has in common with it."""


class Traits(Record):
    """Holds of a job, by its log, what an identity holds of a file."""

    comms: frozenset[int]
    pids: frozenset[int]
    sizes: tuple[int, ...]  # ranks of its communicators, the largest first
    hosts: frozenset[str]  # short names, also those that a collector gave to printers
    sources: tuple[str, ...]
    began: Moment | None
    ended: Moment | None

    @classmethod
    def collect(cls, gathered: Gathered, sources: Iterable[str], earlier: Container[Process] = ()) -> Traits:
        """Return the traits of a job."""
        logs = [log for log in gathered.living if log.process not in earlier]
        members = [member for comm in gathered.communicators for member in comm.members.values()]
        members = [member for member in members if member.log.process not in earlier]
        sizes = {id(member.communicator): member.communicator.nranks for member in members if member.communicator}
        names = [log.process.host for log in logs if is_named(log.process.host)]
        names += [part for log in logs for part in log.process.apart.split("/") if part]
        first, last = (_find_dates(log.opening.time for log in logs), _find_dates(log.closing.time for log in logs))
        comms = (comm_number(member.init.comm_id or "") for member in members)
        return cls(
            comms=frozenset(number for number in comms if number is not None),
            pids=frozenset(log.process.pid for log in logs),
            sizes=tuple(sorted(sizes.values(), reverse=True)),
            hosts=frozenset(map(short, names)),
            sources=tuple(sources),
            began=min(first, key=lambda when: when.seconds, default=None),
            ended=max(last, key=lambda when: when.seconds, default=None),
        )


def _find_dates(times: Iterable[str | None]) -> list[Moment]:
    moments = [when for time in times if (when := moment(time)) and when.clock != "day"]
    return moments if len({when.clock for when in moments}) == 1 else []


def strength(evidence: Identity, job: Traits) -> int:
    """Return how well evidence fits a job: the most telling thing that both have in common."""
    # A log or its folder may be named after the job's number: slurm-4711.out
    parts = [part for name in job.sources for part in PurePath(name).parts[-2:]] if evidence.numbers else []
    has_number = any(number in evidence.numbers for part in parts for number in _JOB_NUMBER.findall(part))
    if evidence.comms.keys() & job.comms or has_number:
        return EXACT
    if contradiction(evidence, job):
        return NEVER
    if evidence.pids & job.pids:
        return PROCESS
    if evidence.hosts & job.hosts or any(host.startswith(evidence.prefixes) for host in job.hosts):
        return HOST
    return SIZE if evidence.world is not None and job.sizes[:1] == (evidence.world,) else NOTHING


def contradiction(evidence: Identity, job: Traits) -> str | None:
    """Return what shows that evidence is of another job, in words; None where nothing does."""
    if evidence.comms and job.comms and not (evidence.comms.keys() & job.comms or evidence.pids & job.pids):
        return (
            f"about other communicators ({list_words(evidence.comms.values(), _MOST_SHOWN)}); the log has none of them"
        )
    if evidence.are_all_hosts and job.hosts and not evidence.hosts & job.hosts:
        about, of_log = (list_words(sorted(hosts), _MOST_SHOWN) for hosts in (evidence.hosts, job.hosts))
        return f"about {about}; the log's hosts are {of_log}"
    # Groups of a job of another size cannot have been the communicators of the log.
    most = next(iter(job.sizes), 1)
    if evidence.rank is not None and not evidence.sizes and len(job.sizes) == 1 and evidence.rank >= most > 1:
        return f"of rank {evidence.rank}; the log's job has ranks 0-{most - 1}"
    world = most if evidence.world is None else evidence.world
    if most > 1 and (world < most or (world > most and most not in evidence.sizes)):
        ranks = f"ranks 0-{world - 1}" if world > 1 else "rank 0"
        return f"{ranks} of a world of {world}; the log's job has {most}"
    if evidence.active is None or job.began is None or job.ended is None:
        return None
    before, after = job.began.seconds - evidence.active, evidence.active - job.ended.seconds
    if max(before, after) <= _DAY + (_ZONES if job.began.clock == "local" else 0.0):
        return None
    days = count(round(max(before, after) / _DAY), "day")
    return f"recorded {days} {'before the log began' if before > after else 'after the log ended'}"


# Which host of the job a file is about

_FOLDER = "hosts"  # what lies in a folder of this name lies in folders that are named after hosts
_ABOVE = 2  # folders above a file that may be named after its host
_CARDS = ("port", "gid", "counter")  # parts of a machine that are named after the card
_MAX_PART = 255  # letters of the name of a file, as file systems have it
_START = re.compile(r"(?<![a-z0-9])")
_END = re.compile(r"(?![a-z0-9]|[-_]\d)")
"""Where a name may begin and end: ``node-1`` in ``node-1.ibstat`` and ``ibstat_node-1``, not in ``node-12``."""


class Hosts:
    """The hosts of a job, found by their names without going through all of them."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = [name for name in names if name]
        self.only = self.names[0] if len(self.names) == 1 else None
        ordered = sorted(self.names, key=len, reverse=True)
        self._place = {name: place for place, name in enumerate(ordered)}
        self._by_name: dict[str, str] = {}
        for shape in (str.lower, short):
            for name in ordered:
                self._by_name.setdefault(shape(name), name)
        self._longest = max(map(len, self._by_name), default=0)

    def match_host(self, name: str) -> str | None:
        """Return the host of that name, with or without its domain."""
        return self._by_name.get(name.lower()) or self._by_name.get(short(name))

    def find_host(self, path: str) -> str | None:
        """Return the host of a file: its own name may hold that of the host, a folder above it is named so."""
        parts = PurePath(path).parts[::-1]
        if (folder := foreign(path)) and (host := self.match_host(folder)):
            return host
        text = parts[0][:_MAX_PART].lower() if parts else ""
        starts, ends = ([match.start() for match in border.finditer(text)] for border in (_START, _END))
        words = (text[start:end] for start in starts for end in ends if start < end <= start + self._longest)
        inside = {host for word in words if (host := self._by_name.get(word))}
        longest = min(inside, key=self._place.__getitem__, default=None)
        return longest or next((host for part in parts[1 : _ABOVE + 1] if (host := self.match_host(part))), None)


hosts_of = lru_cache(maxsize=8)(Hosts)  # the same for the same names: rules ask line by line


def foreign(path: str) -> str | None:
    """Return the host after which the folder of a file is named, below ``hosts``."""
    parts: Sequence[str] = PurePath(path).parts
    places = [place for place, part in enumerate(parts[:-2]) if part == _FOLDER]
    return parts[places[-1] + 1] if places else None


def identify(artifact: Artifact, hosts: Hosts | None = None) -> Identity:
    """Return what a file names of its job.

    A file about machines names one of the hosts of the jobs that it may be about, if these are given.
    """
    value = artifact.value
    if hosts is None or not isinstance(value, Report | Topology):
        identity = getattr(value, "identity", None)
        named: Identity = identity() if identity else Identity()
        return named
    names = {item.host for item in value.items} if isinstance(value, Report) else set()
    if not any(names):
        names = {hosts.find_host(artifact.name) or foreign(artifact.name) or hosts.only}
    known = frozenset(short(name) for name in names if name)
    return Identity(hosts=known, are_all_hosts=bool(known), is_of_many=True)


def join_hosts(artifacts: Sequence[Artifact], job: Job) -> list[Artifact]:
    """Return the files with the hosts that they are about; one about a host that the job does not have is not used."""
    if not any(isinstance(entry.value, Report | Topology) for entry in artifacts):
        return list(artifacts)
    hosts = Hosts(host.name for host in job.hosts)
    used = ((host, job.gpus.get(rank)) for host in job.hosts for rank in host.ranks)
    gpus = group_sets((host.name, gpu.bus_id) for host, gpu in used if gpu and gpu.bus_id)
    listed = [
        (host, device)
        for notice in job.notices
        if isinstance(notice.event, NetDevices) and notice.event.net == "IB"
        for device in notice.event.devices
        for host in notice.hosts
    ]
    cards = group_sets((host, card) for host, device in listed for card in str(device[1]).split("+") if card)
    most = nvidia_smi.most_gpus(job)
    return [_join_host(entry, hosts, most, gpus, cards) for entry in artifacts]


def _join_host(
    artifact: Artifact, hosts: Hosts, most: int, gpus: Mapping[str, set[str]], nics: Mapping[str, set[str]]
) -> Artifact:
    value = artifact.value
    if not isinstance(value, Report | Topology):
        return artifact
    host = hosts.find_host(artifact.name)
    in_lines = [item.host for item in value.items if item.host] if isinstance(value, Report) else []
    names = {name: hosts.match_host(name) for name in in_lines}
    other = foreign(artifact.name) if host is None and not names else None
    if other or (names and not any(names.values())):
        about, in_log = (", ".join([*some][:_MOST_SHOWN]) for some in (names or [other or ""], hosts.names))
        return set_aside(artifact, f"about host {about}, which is not in the log ({in_log or 'no host'})")
    if isinstance(value, Report) and names:
        items = [replace(item, host=own) for item in value.items if (own := names.get(item.host or ""))]
        first, *others = {own for own in names.values() if own}
        return replace(artifact, value=Report(value.name, tuple(items)), host=None if others else first)
    host = host or hosts.only
    if isinstance(value, Topology):
        if 0 < value.gpus < most:
            return set_aside(artifact, f"it has {value.gpus} GPUs, and the log shows {most} on a host")
        return replace(artifact, value=replace(value, host=host), host=host)
    # It is about another machine where none of its GPUs, or of its cards, is one of the log.
    buses = {str(bus) for item in value.items if (bus := item.values.get("bus_id"))}
    cards = {item.name for item in value.items if item.part in _CARDS and item.name}
    key: Callable[[str], object]
    for what, named, of_log, key in (("GPUs", buses, gpus, bus_number), ("NICs", cards, nics, str)):
        there = of_log.get(host or "", set())
        if named and there and not {*map(key, named)} & {*map(key, there)}:
            about, in_log = (list_words(sorted(some), _MOST_SHOWN) for some in (named, there))
            return set_aside(artifact, f"its {what} ({about}) are not those of the log ({in_log})")
    items = [replace(item, host=host) for item in value.items]
    return replace(artifact, value=replace(value, items=tuple(items)), host=host)


# Dumps that an earlier run of the same job left in the folder: what timed out by the log is not in them
#
# PyTorch writes a dump when a call runs out of time, and the log names that call: its number and its size. A
# dump of the same run holds it, and there it is not over: it began as long before as the log says that it ran.
# The log tells the time by the clock of the host, without year and zone, the dump by that of the world: they
# differ by quarters of an hour. A process writes one dump: what it calls and waits for later is not in it.

_PAIRWISE = ("SEND", "RECV", "COALESCED", "BATCH_ISEND_IRECV")
_READER = "flight_recorder"
_DUMPING = "watchdog-dump"  # the role of lines with which a rank announces its dump
_QUARTER = 900.0  # seconds by which clocks of two zones may differ, or a multiple
_EARLY, _LATE = 20.0, 120.0  # seconds by which a line may seem too early, and by which PyTorch may print it too late
_LAST_WORDS = "terminated with exception: "
"""Before what PyTorch prints again after it waited for the dumps and aborted the communicators."""
_FINISHED = "of another run, or of an earlier moment: calls are open in the dumps, and by the log all ranks finished"


class _Timeout(NamedTuple):
    seq: int
    numel: int | None
    is_later: bool  # whether it may have begun after the rank wrote its dump
    began: float | None  # when, in seconds of the day, by the clock of its host


def _find_other_releases(dumps: Mapping[int, Dump], job: Job) -> Iterator[tuple[int, str]]:
    """Yield all dumps where each is of a release that no process of the log has; one of several may be the defect."""
    known = {order(release) for release in job.nccl_versions if not is_inferred(release)}
    of_dumps = {place: order(dump.release) for place, dump in dumps.items()}
    if known and all(of_dumps.values()) and known.isdisjoint(of_dumps.values()):
        of_log = list_words(sorted(job.nccl_versions), _MOST_SHOWN)
        yield from ((place, f"of NCCL {dump.release}; the log is of {of_log}") for place, dump in dumps.items())


def _find_older(dumps: Mapping[int, Dump], _job: Job) -> Iterator[tuple[int, str]]:
    """Yield dumps with a newer one of the same rank, and those that are days older than the dumps of other ranks."""
    last = max(dump.active_ns for dump in dumps.values())
    newest: dict[int | None, Dump] = {}
    for dump in sorted(dumps.values(), key=lambda dump: -dump.active_ns):
        newest.setdefault(dump.rank, dump)
    for place, dump in dumps.items():
        other = dump if dump.rank is None else newest[dump.rank]
        if other is not dump:
            is_copy = other.active_ns == dump.active_ns
            yield place, f"a copy of {other.name}" if is_copy else f"{other.name} of the same rank is newer"
        elif 0 < dump.active_ns < last - _DAY * 1e9:
            days = round((last - dump.active_ns) / 1e9 / _DAY)
            yield place, f"{count(days, 'day')} older than the dumps of other ranks"


def _find_reruns(dumps: Mapping[int, Dump], job: Job) -> Iterator[tuple[int, str]]:
    """Yield dumps of another run."""
    reported = _group_timeouts(job.notices)
    if any(dump.is_waiting for dump in dumps.values()):
        comms = job.communicators
        is_over = bool(comms) and all(comm.state == "destroyed" and len(comm.ended) == comm.nranks for comm in comms)
        has_timeout = any(isinstance(notice.event, CollectiveTimeout) for notice in job.notices)
        if is_over and not (job.failed or job.ended_by or has_timeout):
            yield from ((place, _FINISHED) for place in dumps)
            return
    fits = {place: _fits(dump, reported) for place, dump in dumps.items()}
    is_other_run = False in fits.values() and True not in fits.values()
    for place, fit in fits.items():
        if fit is False:
            rank, calls = dumps[place].rank, dumps[place].calls.values()
            first = reported[rank][0]
            is_known = any(_is_number_and_size(call, first) for some in calls for call in some)
            which = "of another run" if is_known else "of another run, or of an earlier moment"
            which += f": by the log work {first.seq} of rank {rank} timed out, and it has no such call"
            yield place, which + " of that time" * is_known
        elif is_other_run:
            yield place, "beside dumps of another run"


def _group_timeouts(notices: Iterable[Notice]) -> dict[int | None, list[_Timeout]]:
    """Return the calls that timed out, by rank of the job; PyTorch repeats it when the process ends, long after."""
    by_rank: dict[int, dict[tuple[int, int | None], _Timeout]] = {}
    dumped: dict[int, tuple[Evidence, float | None]] = {}
    for notice in notices:
        event = notice.event
        if event is not None and _DUMPING in engine.find_roles(event):
            rank = dict(getattr(event, "values", ())).get("global_rank")
            if isinstance(rank, int):
                dumped.setdefault(rank, (notice.evidence[0], glog_seconds(notice.message)))
        if not isinstance(event, CollectiveTimeout) or event.operation in _PAIRWISE:  # they are numbered by themselves
            continue
        if event.global_rank is not None and event.seq is not None:
            line, at = dumped.get(event.global_rank, (None, None))
            # Where only the last words of the process name a call, it may have begun any time after that.
            printed = None if _LAST_WORDS in notice.message else glog_seconds(notice.message)
            began = None if printed is None or event.ran_ms is None else printed - event.ran_ms / 1000
            is_later = line is not None and line.source == notice.evidence[0].source
            is_later &= began is None or at is None or began >= at
            timeout = _Timeout(event.seq, event.numel_in, is_later, began)
            by_rank.setdefault(event.global_rank, {}).setdefault((event.seq, event.ran_ms), timeout)
    return {rank: [*timeouts.values()] for rank, timeouts in by_rank.items()}


def _fits(dump: Dump, reported: Mapping[int | None, Sequence[_Timeout]]) -> bool | None:
    """Return whether a dump holds a call that timed out on its rank; None where that cannot be known."""
    answers: list[bool | None] = []
    for calls, timeout in product(dump.calls.values(), reported.get(dump.rank, ())):
        own = [call for call in calls if not call.is_p2p]
        if own and timeout.seq < min(call.seq for call in own):
            answers.append(None)  # it may have been overwritten
        elif any(_is_number_and_size(c, timeout) and not c.is_completed and _is_of_time(c, timeout) for c in own):
            answers.append(True)  # what is over did not run out of time
        else:
            answers.append(None if timeout.is_later else False)
    return True if True in answers else None if None in answers or not answers else False


def _is_number_and_size(call: Call, timeout: _Timeout) -> bool:
    is_of_size = timeout.numel is None or not call.inputs or sum(call.inputs) == timeout.numel
    return call.seq == timeout.seq and is_of_size


def _is_of_time(call: Call, timeout: _Timeout) -> bool:
    if timeout.began is None or call.created_ns <= 0:
        return True
    return (timeout.began - call.created_ns / 1e9 + _EARLY) % _QUARTER <= _EARLY + _LATE
