"""Judges logs and appends their jobs to a store, in this process, in several, or on the workers of a Dask cluster."""

from __future__ import annotations

import hashlib
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

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
from nccl_inspect.util.records import Frozen, frozen
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


@frozen
class Unit(Frozen):
    """Logs that are read together: the files of one job, or one file with any number of jobs."""

    logs: tuple[str, ...]
    beside: tuple[str, ...] = ()
    """Evidence that lies beside them."""
    size: int = 0


@frozen
class Terms(Frozen):
    """Holds how logs are added."""

    store: str
    options: reading.Options
    image: str | None = None


@frozen
class Outcome(Frozen):
    """Holds what became of some logs."""

    added: Counter[str]
    """Jobs by verdict."""
    known: int
    """Logs that were in the store already."""
    problems: list[str]
    days: set[str]


def units(inputs: Sequence[str], together: bool = False) -> tuple[list[Unit], list[str]]:
    """Return the logs in the inputs, those of one job together, and what cannot be read.

    Files belong to one job if they name the same communicator, or if only a rank, a node or a rotation distinguishes
    their names.

    Args:
        inputs: paths, folders, globs, URLs, archives.
        together: whether all are parts of one input, as for ``summarize``.
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
    """The first communicators that a log names; in an archive, that of the first member that is not packed."""
    head = b""
    with suppress(StreamError, OSError):
        for piece in compression.unpacked(file.open()):
            head += bytes(piece)
            if len(head) >= _HEAD:
                break
    return set(_COMMUNICATOR.findall(head))


def _unit(logs: Sequence[File], evidence: Sequence[File]) -> Unit:
    """The logs of a unit with the files in their folder, below it, and beside their folder."""
    folders = {Path(file.name).parent for file in logs}
    beside = [
        file.name
        for file in evidence
        if any(folder in Path(file.name).parents or Path(file.name).parent in folder.parents for folder in folders)
    ]
    names = tuple(file.place.url if isinstance(file.place, Remote) else file.name for file in logs)
    return Unit(names, tuple(beside), sum(file.size or 0 for file in logs))


def add(
    some: Sequence[Unit], terms: Terms, jobs: int = 1, cluster: str = "", watch: Callable[[int], None] | None = None
) -> Outcome:
    """Judge logs and append their jobs.

    Args:
        some: the logs.
        terms: how.
        jobs: processes.
        cluster: the address of a Dask scheduler, whose workers reach the logs and the store by the same names.
        watch: called with the number of bytes that were read since the last call, if one process reads all.
    """
    store = Store(terms.store, make=True)
    reading.Judge(terms.options)  # what is wrong with the options is said before anything is read
    if cluster:
        distributed = library("distributed", CLUSTER)
        try:
            client = distributed.Client(cluster, timeout=10)
        except (OSError, ValueError) as error:
            raise NcclInspectError(
                f"{cluster}: {error}", "give the address of a Dask scheduler: tcp://HOST:8786"
            ) from None
        with client:
            workers = sum(client.nthreads().values()) or 1
            outcomes = client.gather(client.map(add_share, _shares(some, _SHARES * workers), terms=terms, pure=False))
    elif jobs > 1 and len(some) > 1:
        with Helpers() as helpers:
            shares = _shares(some, jobs)
            started = [helpers.start(add_share, share, terms) for share in shares]
            outcomes = [helper.result() for helper in started]
        lost = [
            f"{unit.logs[0]}: its process died"
            for own, got in zip(shares, outcomes, strict=True)
            if not got
            for unit in own
        ]
        outcomes = [*filter(None, outcomes), Outcome(Counter(), 0, lost, set())]
    else:
        outcomes = [add_share(some, terms, watch)]
    total = Outcome(
        sum((outcome.added for outcome in outcomes), Counter()),
        sum(outcome.known for outcome in outcomes),
        [problem for outcome in outcomes for problem in outcome.problems],
        {day for outcome in outcomes for day in outcome.days},
    )
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


def add_share(some: Sequence[Unit], terms: Terms, watch: Callable[[int], None] | None = None) -> Outcome:
    """Judge logs and append their jobs, in this process."""
    store = Store(terms.store, make=True)
    known = store.idents()
    judge = reading.Judge(terms.options)
    outcome = Outcome(Counter(), 0, [], set())
    waiting: dict[str, list[Tables]] = defaultdict(list)
    repeated = 0
    flushed = time.monotonic()

    def flush() -> None:
        nonlocal flushed
        for day, jobs in waiting.items():
            store.append(day, jobs)
        outcome.days.update(waiting)
        waiting.clear()
        flushed = time.monotonic()

    for unit in some:
        try:
            digest, written = _content(unit)
            if _ident(digest, 1) in known:
                repeated += 1
                continue
            judged = judged_unit(unit, digest, written, judge, terms.image)
        except (NcclInspectError, StreamError, OSError) as error:
            outcome.problems.append(str(error))
            continue
        known.add(_ident(digest, 1))
        days = [_day(tables) for tables in judged]
        if len(set(days)) > 1:  # the first job stands for the log, so it comes last
            for day in sorted(set(days), key=lambda day: day == days[0]):
                store.append(day, [tables for own, tables in zip(days, judged, strict=True) if own == day])
            outcome.days.update(days)
        else:
            waiting[days[0]] += judged
        outcome.added.update(tables["job"]["verdict"][0].as_py() for tables in judged)
        if watch:
            watch(unit.size)
        if sum(map(len, waiting.values())) >= _MOST_JOBS or time.monotonic() - flushed > _MOST_SECONDS:
            flush()
    flush()
    return outcome.with_fields(known=repeated)


def judged_unit(unit: Unit, digest: str, written: float, judge: reading.Judge, image: str | None) -> list[Tables]:
    """The rows of the jobs in some logs.

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


def _day(tables: Tables) -> str:
    day: str = tables["job"]["start"][0].as_py().date().isoformat()
    return day


def _ident(digest: str, number: int) -> str:
    """Return what identifies a job: what is in its log, and which of its jobs it is."""
    return hashlib.sha256(f"{digest} {number}".encode()).hexdigest()[:20]


def _content(unit: Unit) -> tuple[str, float]:
    """A digest of what logs hold, whatever they are called, and when they were written.

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
        if isinstance(file.place, Path):
            return file.place.stat().st_mtime
        if isinstance(file.place, Remote):
            system, path = library("fsspec.core").url_to_fs(file.place.url)
            modified: Any = system.modified(path)
            return float(modified.timestamp())
    return time.time()


def spooled(stream: Any) -> Iterator[str]:
    """Yield the name of a file that holds what comes from a stream, for as long as it is there."""
    with tempfile.NamedTemporaryFile(prefix="nccl-inspect-", suffix=".log") as file:
        while piece := stream.read(1 << 20):
            file.write(piece)
        file.flush()
        yield file.name
