"""Which job evidence belongs to: by what it names, then by the folder it lies in; where nothing decides, to none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from nccl_inspect.artifacts import owner, reruns
from nccl_inspect.artifacts.identity import HOST, NEVER, NOTHING, Identity, Traits, contradiction, strength
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.model.processes import gathering

if TYPE_CHECKING:
    from nccl_inspect.model.fold.fold import Fold
    from nccl_inspect.model.job import Job
    from nccl_inspect.model.jobs.shares import Share
    from nccl_inspect.model.processes.gathering import Gathered

_DAY = 86_400.0


def check_evidence(artifacts: Iterable[Artifact], job: Job, gathered: Gathered) -> list[Artifact]:
    """The evidence as it is used for one job: with its hosts, and with a reason where it is of another job."""
    over = gathering.superseded(gathered.communicators, gathered.everything) if job.earlier_runs else []
    earlier = {process for run in over for process in run.processes}
    traits = Traits.collect(gathered, [source.name for source in job.sources], earlier)
    checked = [_checked(artifact, traits) for artifact in artifacts]
    return owner.join_hosts(_newest(reruns.sorted_out(checked, job)), job)


def _checked(artifact: Artifact, job: Traits) -> Artifact:
    identity = identify(artifact)
    if strength(identity, job) == NEVER and (why := contradiction(identity, job)):
        return unused(artifact, why)
    return artifact


def identify(artifact: Artifact) -> Identity:
    """Return what a file names of its job."""
    identity = getattr(artifact.value, "identity", None)
    named: Identity = identity() if identity else Identity()
    return named


def unused(artifact: Artifact, why: str) -> Artifact:
    """Return a file with the reason why it is not used."""
    return replace(artifact, value=None, problem=why)


def _newest(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Return the newest dump of each rank; one that is days older than those of others was left by an earlier run."""
    dumps = [entry for entry in artifacts if entry.reader == "flight_recorder" and entry.value is not None]
    last = max((entry.value.active_ns for entry in dumps), default=0)
    newest: dict[int, Artifact] = {}
    for entry in dumps:
        rank = entry.value.rank
        if rank is not None and (rank not in newest or entry.value.active_ns > newest[rank].value.active_ns):
            newest[rank] = entry
    kept = []
    for entry in artifacts:
        reason = None
        if entry.reader == "flight_recorder" and entry.value is not None:
            rank, active = entry.value.rank, entry.value.active_ns
            other = newest.get(rank) if rank is not None else None
            if other is not None and other is not entry:
                is_copy = other.value.active_ns == active
                reason = f"a copy of {other.name}" if is_copy else f"{other.name} of the same rank is newer"
            elif 0 < active < last - _DAY * 1e9:
                days = round((last - active) / 1e9 / _DAY)
                reason = f"{days} day{'s' * (days > 1)} older than the dumps of other ranks"
        kept.append(unused(entry, reason) if reason else entry)
    return kept


class Allotment:
    """Gives the evidence of an input to its jobs: of several, to those that it fits."""

    def __init__(self, artifacts: Sequence[Artifact]) -> None:
        self._artifacts = artifacts
        self._jobs: Sequence[Share] = ()
        self._traits: list[Traits] = []
        self._of: list[list[Artifact]] = []
        self._folders: dict[PurePath, dict[int, None]] = {}
        self._on: dict[str | None, list[int]] = {}
        """The jobs on each host; below None those without one."""
        self._hosts: dict[tuple[int, ...], owner.Hosts] = {}
        """Those of several jobs."""
        self.left: list[Artifact] = []
        """What fits none of several jobs, or several, with the reason."""

    def begin(self, jobs: Sequence[Share]) -> None:
        """Share the evidence out."""
        names = [[source.name for source in job.sources] for job in jobs]
        self._jobs = jobs
        self._traits = [Traits.collect(job.gathered(), own) for job, own in zip(jobs, names, strict=True)]
        self._of = [[] for _ in jobs]
        self._folders = folders(names)
        for number, traits in enumerate(self._traits):
            for host in traits.hosts or (None,):
                self._on.setdefault(host, []).append(number)
        for artifact in self._artifacts:
            self._give(artifact)

    def select(self, state: Fold | Share) -> Sequence[Artifact]:
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
        near = self._near(artifact.name)
        if len(near) == 1:
            self._of[near[0]].append(artifact)  # what contradicts it is said there
            return
        identity = self._identity(artifact, near)
        fits = {job: strength(identity, self._traits[job]) for job in self._possible(identity, near)}
        best = max(fits.values(), default=NEVER)
        chosen = [job for job, fit in fits.items() if fit == best]
        if best == NEVER:
            # What the file says is the same for all jobs; what the log says against it is not.
            reason = (contradiction(identity, self._traits[near[0]]) or "").partition(";")[0]
            self.left.append(unused(artifact, f"{reason}; fits none of {len(near)} jobs"))
        elif len(chosen) == 1 and best > NOTHING:
            self._of[chosen[0]].append(artifact)
        elif identity.is_of_many and best == HOST:
            for job in chosen:
                self._of[job].append(artifact)
        else:
            hint = "" if best > NOTHING else ", and nothing in it says which"
            self.left.append(unused(artifact, f"fits {len(chosen)} jobs{hint}; put it into the folder of its job"))

    def _near(self, name: str) -> Sequence[int]:
        """Return the jobs with logs in the nearest folder that has some: the folder of the file, or one above it."""
        folder = next((above for above in PurePath(name).parents if above in self._folders), None)
        return range(len(self._of)) if folder is None else list(self._folders[folder])

    def _possible(self, identity: Identity, near: Sequence[int]) -> Iterable[int]:
        """The jobs that a file may fit: of one about machines those on its hosts, which need no look at all others."""
        if not identity.are_all_hosts or identity.comms or identity.numbers:
            return near
        hosts = [*identity.hosts, None]
        return sorted({job for host in hosts for job in self._on.get(host, ())}.intersection(near))

    def _identity(self, artifact: Artifact, near: Sequence[int]) -> Identity:
        jobs = tuple(near)
        if jobs not in self._hosts:
            self._hosts[jobs] = owner.Hosts(sorted({host for job in jobs for host in self._traits[job].hosts}))
        return owner.identity(artifact, self._hosts[jobs]) or identify(artifact)


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
