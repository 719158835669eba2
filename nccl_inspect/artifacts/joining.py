"""Which job evidence belongs to: by what it names, then by the folder it lies in; where nothing decides, to none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from nccl_inspect.artifacts import owner
from nccl_inspect.artifacts.calls import Call
from nccl_inspect.artifacts.identity import HOST, NEVER, NOTHING, Traits, contradiction, strength
from nccl_inspect.artifacts.owner import set_aside
from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.grammar import engine
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.job import Notice
from nccl_inspect.model.jobs import find_earlier_runs
from nccl_inspect.model.processes import Gathered
from nccl_inspect.util.times import glog_seconds

if TYPE_CHECKING:
    from nccl_inspect.artifacts.flight_recorder import Dump
    from nccl_inspect.model.fold import Fold
    from nccl_inspect.model.job import Job

_DAY = 86_400.0


def check_evidence(artifacts: Iterable[Artifact], job: Job, gathered: Gathered) -> list[Artifact]:
    """Return the evidence as used for one job: with its hosts, and with a reason where it is of another job."""
    over = find_earlier_runs(gathered.communicators, gathered.everything) if job.earlier_runs else []
    earlier = {process for run in over for process in run.processes}
    traits = Traits.collect(gathered, [source.name for source in job.sources], earlier)
    checked = []
    for artifact in artifacts:
        identity = owner.identify(artifact)
        why = contradiction(identity, traits) if strength(identity, traits) == NEVER else None
        checked.append(set_aside(artifact, why) if why else artifact)
    return owner.join_hosts(_newest(drop_reruns(checked, job)), job)


def _newest(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Return the newest dump of each rank; one that is days older than those of others was left by an earlier run."""
    dumps = list(filter(_is_dump, artifacts))
    last = max((entry.value.active_ns for entry in dumps), default=0)
    newest: dict[int, Artifact] = {}
    for entry in sorted(dumps, key=lambda entry: -entry.value.active_ns):
        newest.setdefault(entry.value.rank, entry)
    kept = []
    for entry in artifacts:
        if _is_dump(entry):
            rank, active = entry.value.rank, entry.value.active_ns
            other = entry if rank is None else newest[rank]
            if other is not entry:
                is_copy = other.value.active_ns == active
                why = f"a copy of {other.name}" if is_copy else f"{other.name} of the same rank is newer"
                entry = set_aside(entry, why)
            elif 0 < active < last - _DAY * 1e9:
                days = round((last - active) / 1e9 / _DAY)
                entry = set_aside(entry, f"{days} day{'s' * (days > 1)} older than the dumps of other ranks")
        kept.append(entry)
    return kept


class Allotment:
    """Gives the evidence of an input to its jobs: of several, to those that it fits."""

    def __init__(self, artifacts: Sequence[Artifact]) -> None:
        self._artifacts = artifacts
        self._jobs: Sequence[Fold] = ()
        self._traits: list[Traits] = []
        self._of: list[list[Artifact]] = []
        self._folders: dict[PurePath, dict[int, None]] = {}
        self._on: dict[str | None, list[int]] = {}  # the jobs on each host; below None those without one
        self._hosts: dict[tuple[int, ...], owner.Hosts] = {}  # those of several jobs
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
            self._hosts[near] = owner.Hosts(sorted({host for job in near for host in self._traits[job].hosts}))
        identity = owner.identify(artifact, self._hosts[near])
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
    """Return the jobs that have logs in each folder, or below it, by their numbers in order.

    Args:
        jobs: the names of the logs of each.
    """
    numbers: dict[PurePath, dict[int, None]] = {}
    for number, sources in enumerate(jobs):
        for folder in {above for source in sources for above in PurePath(source).parents}:
            numbers.setdefault(folder, {})[number] = None
    return numbers


# Dumps that an earlier run of the same job left in the folder: what timed out by the log is not in them.
#
# PyTorch writes a dump when a call runs out of time, and the log names that call: its number and its size. A
# dump of the same run holds it, and there it is not over: it began as long before as the log says that it ran.
# The log tells the time by the clock of the host, without year and zone, the dump by that of the world: they
# differ by quarters of an hour. A process writes one dump: what it calls and waits for later is not in it.

_PAIRWISE = ("SEND", "RECV", "COALESCED", "BATCH_ISEND_IRECV")
_READER = "flight_recorder"
_DUMPING = "watchdog-dump"  # the role of lines with which a rank announces its dump


class _Timeout(NamedTuple):
    seq: int
    numel: int | None
    is_later: bool  # whether it may have begun after the rank wrote its dump
    began: float | None  # when, in seconds of the day, by the clock of its host


_ZONES = 900.0  # seconds by which clocks of two zones may differ, or a multiple
_EARLY, _LATE = 20.0, 120.0  # seconds by which a line may seem too early, and by which PyTorch may print it too late
_LAST_WORDS = "terminated with exception: "
"""Before what PyTorch prints again after it waited for the dumps and aborted the communicators."""
_FINISHED = "of another run, or of an earlier moment: calls are open in the dumps, and by the log all ranks finished"


def drop_reruns(artifacts: Iterable[Artifact], job: Job) -> list[Artifact]:
    """Return the evidence, with a reason at dumps of another run."""
    entries = list(artifacts)
    dumps = [place for place, entry in enumerate(entries) if _is_dump(entry)]
    reported = _group_timeouts(job.notices) if dumps else {}
    if any(entries[place].value.is_waiting for place in dumps):
        comms = job.communicators
        is_over = bool(comms) and all(comm.state == "destroyed" and len(comm.ended) == comm.nranks for comm in comms)
        has_timeout = any(isinstance(notice.event, CollectiveTimeout) for notice in job.notices)
        if is_over and not (job.failed or job.ended_by or has_timeout):
            for place in dumps:
                entries[place] = set_aside(entries[place], _FINISHED)
            return entries
    fits = {place: _fits(entries[place].value, reported) for place in dumps}
    is_other_run = False in fits.values() and True not in fits.values()
    for place, fit in fits.items():
        if fit is False:
            dump = entries[place].value
            timeout = (
                f"by the log work {reported[dump.rank][0].seq} of rank {dump.rank} timed out, and it has no such call"
            )
            calls = (call for calls in dump.calls.values() for call in calls)
            is_known = any(_is_number_and_size(call, reported[dump.rank][0]) for call in calls)
            which = "of another run" if is_known else "of another run, or of an earlier moment"
            entries[place] = set_aside(entries[place], f"{which}: {timeout}{' of that time' * is_known}")
        elif is_other_run:
            entries[place] = set_aside(entries[place], "beside dumps of another run")
    return entries


def _is_dump(entry: Artifact) -> bool:
    return entry.reader == _READER and entry.value is not None


def _group_timeouts(notices: Iterable[Notice]) -> dict[int, list[_Timeout]]:
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


def _fits(dump: Dump, reported: dict[int, list[_Timeout]]) -> bool | None:
    """Return whether a dump holds a call that timed out on its rank; None where that cannot be known."""
    timeouts = reported.get(dump.rank, []) if dump.rank is not None else []
    answers: list[bool | None] = []
    for calls, timeout in product(dump.calls.values(), timeouts):
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
    return (timeout.began - call.created_ns / 1e9 + _EARLY) % _ZONES <= _EARLY + _LATE
