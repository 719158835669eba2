"""Judges logs and appends their jobs to a store, in this process, in several, or on the workers of a Dask cluster."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nccl_inspect import artifacts
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.fleet import library
from nccl_inspect.extras.fleet.store import Store
from nccl_inspect.extras.fleet.tables import Tables, of_job
from nccl_inspect.ingest.sources import compression, files
from nccl_inspect.ingest.sources.files import File
from nccl_inspect.ingest.sources.remote import Remote
from nccl_inspect.ingest.sources.streams import StreamError
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading
from nccl_inspect.util.processes import Helpers
from nccl_inspect.util.wording import count

CLUSTER = "pip install 'nccl-inspect[fleet-cluster]'"
_COMMUNICATOR = re.compile(rb"\bcommId (0x[0-9a-f]*[1-9a-f][0-9a-f]*)")
_PART = re.compile(r"(?:rank|node|host|worker|pod|task|local|proc)[-_.]?\d+|\.\d{1,3}(?=$|\.gz$|\.zst$)")
"""What distinguishes the names of files with parts of one job: the rank or node, or the number of a rotated log."""
_HEAD = 1 << 20
"""Bytes in which the first communicator of a log is searched for."""
_SHARES = 8
"""Shares of the logs for each worker of a cluster: some take longer than others."""
_MOST_JOBS, _MOST_SECONDS = 256, 20.0
"""After which jobs are written."""


class Unit(NamedTuple):
    """Logs that are read together, the files of one job or one file with any number, and evidence beside them."""

    logs: tuple[str, ...]
    beside: tuple[str, ...] = ()
    size: int = 0


class Terms(NamedTuple):
    """Holds how logs are added."""

    store: str
    options: reading.Options
    image: str | None = None


class Outcome(NamedTuple):
    """Holds what became of some logs: jobs by verdict, logs that were there already, problems, and days added to."""

    added: Counter[str]
    known: list[str]
    problems: list[str]
    days: set[str]


def units(inputs: Sequence[str], together: bool = False) -> tuple[list[Unit], list[str]]:
    """Return the logs in the inputs, those of one job together, and what cannot be read.

    Files belong to one job if they name the same communicator, or if only a rank, a node or a rotation distinguishes
    their names.
    """
    found = files.find(list(inputs), artifacts.is_artifact)
    problems = [f"{file.name}: {file.problem.what}; {file.problem.hint}" for file in found if file.problem]
    found = [file for file in found if not file.problem]
    evidence = [file for file in found if artifacts.kind_of(file.name, artifacts.head_of(file))]
    by_key: dict[object, int] = {}
    group: list[int] = []
    nameless: set[object] = set()
    logs = [file for file in found if file not in evidence]

    def joined(keys: Iterable[object], own: int) -> None:
        for key in keys:
            other = by_key.setdefault(key, own)
            while group[other] != other:
                other = group[other]
            group[other] = own

    for place, file in enumerate(logs):
        group.append(place)
        communicators = _communicators(file)
        name = ("name", _PART.sub("", file.name))
        if together:
            joined([""], place)
        elif communicators:
            joined(communicators, place)
            if name in nameless:
                joined([name], place)
            by_key.setdefault(name, place)
        elif name[1] != file.name or name in by_key:
            nameless.add(name)
            joined([name], place)
    members = defaultdict(list)
    for place, file in enumerate(logs):
        root = place
        while group[root] != root:
            root = group[root]
        members[root].append(file)
    return [_unit(own, evidence) for own in members.values()], problems


def _communicators(file: File) -> set[bytes]:
    """Return the first communicators that a log names; in an archive, that of the first member that is not packed."""
    head = b""
    with suppress(StreamError, OSError):
        for piece in compression.unpacked(file.open()):
            head += bytes(piece)
            if len(head) >= _HEAD:
                break
    return set(_COMMUNICATOR.findall(head))


def _unit(logs: Sequence[File], evidence: Sequence[File]) -> Unit:
    """Return the logs of a unit with the files in their folder, below it, and beside their folder."""
    folders = {Path(file.name).parent for file in logs}
    above = {parent for folder in folders for parent in folder.parents}
    near = (file.name for file in evidence if Path(file.name).parent in above or folders & {*Path(file.name).parents})
    names = tuple(file.place.url if isinstance(file.place, Remote) else file.name for file in logs)
    return Unit(names, tuple(near), sum(file.size or 0 for file in logs))


def add(some: Sequence[Unit], terms: Terms, jobs: int = 1, cluster: str = "") -> Outcome:
    """Judge logs and append their jobs."""
    store = Store(terms.store, make=True)
    reading.Judge(terms.options)  # what is wrong with the options is said before anything is read
    total = Outcome(Counter(), [], [], set())
    if cluster:
        distributed = library("distributed", CLUSTER)
        try:
            client = distributed.Client(cluster, timeout=10)
        except (OSError, ValueError) as error:
            raise NcclInspectError(f"{cluster}: {error}", "give the address of a scheduler: tcp://HOST:8786") from None
        with client:
            shares = _shares(some, _SHARES * (sum(client.nthreads().values()) or 1))
            outcomes = client.gather(client.map(add_share, shares, terms=terms, pure=False))
    elif jobs > 1 and len(some) > 1:
        shares = _shares(some, jobs)
        with Helpers() as helpers:
            started = [helpers.start(add_share, share, terms) for share in shares]
            outcomes = [helper.result() for helper in started]
    else:
        shares, outcomes = [list(some)], [add_share(some, terms)]
    for share, outcome in zip(shares, outcomes, strict=True):
        if outcome is None:
            total.problems.append(f"{share[0].logs[0]} and {len(share) - 1} more: the process died; add them again")
            continue
        total.added.update(outcome.added)
        total.known.extend(outcome.known)
        total.problems.extend(outcome.problems)
        total.days.update(outcome.days)
    store.tidy(sorted(total.days))
    return total


def append(
    inputs: Sequence[str], store: str, say: Callable[[str], None], options: reading.Options | None = None
) -> None:
    """Append the job in some logs and say so, or why not: whoever followed the job has other things to do."""
    try:
        outcome = add(units(inputs, together=True)[0], Terms(store, options or reading.Options()))
    except NcclInspectError as error:
        say(str(error))
        return
    for problem in outcome.problems or [f"{count(outcome.added.total(), 'job')} added to {store}"]:
        say(problem)


def _shares(some: Sequence[Unit], number: int) -> list[list[Unit]]:
    """Logs in shares of about the same size."""
    shares: list[list[Unit]] = [[] for _ in range(min(number, len(some)))]
    sizes = [0] * len(shares)
    for unit in sorted(some, key=lambda unit: -unit.size):
        place = sizes.index(min(sizes))
        shares[place].append(unit)
        sizes[place] += unit.size + 20_000
    return shares


def add_share(some: Sequence[Unit], terms: Terms) -> Outcome:
    """Judge logs and append their jobs, in this process."""
    store, judge = Store(terms.store, make=True), reading.Judge(terms.options)
    idents = store.idents()
    outcome = Outcome(Counter(), [], [], set())
    waiting: dict[str, list[Tables]] = defaultdict(list)
    flushed = time.monotonic()
    for unit in some:
        try:
            digest, written = _content(unit)
            if _ident(digest, 1) in idents:
                outcome.known.append(unit.logs[0])
                continue
            judged = judged_unit(unit, digest, written, judge, terms.image)
        except (NcclInspectError, StreamError, OSError) as error:
            outcome.problems.append(str(error))
            continue
        idents.add(_ident(digest, 1))
        days = [tables["job"]["start"][0].as_py().date().isoformat() for tables in judged]
        outcome.added.update(tables["job"]["verdict"][0].as_py() for tables in judged)
        outcome.days.update(days)
        if len(set(days)) == 1:
            waiting[days[0]] += judged
        for day in sorted(set(days) if len(set(days)) > 1 else (), key=lambda day: day == days[0]):
            # The first job stands for the log, so it comes last.
            store.append(day, [tables for own, tables in zip(days, judged, strict=True) if own == day])
        if sum(map(len, waiting.values())) >= _MOST_JOBS or time.monotonic() - flushed > _MOST_SECONDS:
            _flush(store, waiting)
            flushed = time.monotonic()
    _flush(store, waiting)
    return outcome


def _flush(store: Store, waiting: dict[str, list[Tables]]) -> None:
    for day in list(waiting):
        store.append(day, waiting.pop(day))


def judged_unit(unit: Unit, digest: str, written: float, judge: reading.Judge, image: str | None) -> list[Tables]:
    """Return the rows of the jobs in some logs.

    Raises:
        NcclInspectError: they cannot be read, or hold no line of NCCL.
    """
    inventory = artifacts.inventory([*unit.logs, *unit.beside])
    jobs: list[Job] = []
    worst = judge.worst(reading.fold(inventory.logs), jobs.append, beside=inventory)
    names = {standing.number: standing.name for standing in worst.jobs}
    tables, first = [], Path(unit.logs[0])
    for number, job in enumerate(jobs, 1):
        job.name = names.get(number) or (first.name if len(unit.logs) == 1 else first.parent.name)
        tables.append(of_job(job, _ident(digest, number), written, image))
    return tables


def _ident(digest: str, number: int) -> str:
    """Return what identifies a job: what is in its log, and which of its jobs it is."""
    return hashlib.sha256(f"{digest} {number}".encode()).hexdigest()[:20]


def _content(unit: Unit) -> tuple[str, float]:
    """Return a digest of what logs hold, whatever they are called, and when they were written.

    Raises:
        StreamError: one cannot be read.
    """
    digests, written = [], []
    for file in files.find(list(unit.logs)):
        digest = hashlib.sha256()
        for piece in file.open():
            digest.update(piece)
        digests.append(digest.hexdigest())
        written.append(_written(file))
    return hashlib.sha256(" ".join(sorted(digests)).encode()).hexdigest(), max(written, default=time.time())


def _written(file: File) -> float:
    """When a file was written, in seconds since 1970."""
    with suppress(Exception):  # each store has errors of its own, and some know no times
        if isinstance(file.place, Remote):
            system, path = library("fsspec.core").url_to_fs(file.place.url)
            return float(system.modified(path).timestamp())
        if file.place:
            return file.place.stat().st_mtime
    return time.time()
