"""Judges logs and appends their jobs to a store."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from nccl_inspect import artifacts
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.extras.fleet.store import UNDATED, Store
from nccl_inspect.extras.fleet.tables import Tables, make_rows
from nccl_inspect.ingest.sources import compression, files
from nccl_inspect.ingest.sources.files import STDIN
from nccl_inspect.ingest.sources.streams import StreamError
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading
from nccl_inspect.util.grouping import Unions

_COMMUNICATOR = re.compile(rb"\bcommId (0x[0-9a-f]*[1-9a-f][0-9a-f]*)")
_PART = re.compile(r"(?:rank|node|host|worker|pod|task|local|proc)[-_.]?\d+|\.\d{1,3}(?=$|\.gz$|\.zst$)")
"""What distinguishes the names of files with parts of one job: the rank or node, or the number of a rotated log."""
_HEAD = 1 << 20  # bytes in which the first communicator of a log is searched for
_MOST_JOBS, _MOST_SECONDS = 256, 20.0  # after which jobs are written


class LogGroup(NamedTuple):
    """Holds the logs that are read together, the files of one job or one file with any number, and evidence beside."""

    logs: tuple[str, ...]
    beside: tuple[str, ...] = ()
    stdin: str = ""  # the file that holds standard input, if that is one of the logs


class Target(NamedTuple):
    """Holds where jobs are appended, and how their logs are judged."""

    store: str
    options: reading.Options
    image: str | None = None


@dataclass
class Outcome:
    """Holds what became of some logs: jobs by verdict, logs that were there already, problems, and days added to."""

    added: Counter[str] = field(default_factory=Counter)
    known: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    days: set[str] = field(default_factory=set)


def group_logs(inputs: Sequence[str], together: bool = False, stdin: str = "") -> tuple[list[LogGroup], list[str]]:
    """Return the logs in the inputs, those of one job together, and what cannot be read.

    Files belong to one job if they name the same communicator, or if only a rank, a node or a rotation distinguishes
    their names. One of the inputs may be a file that holds standard input.
    """
    found = files.find(list(inputs), artifacts.is_artifact)
    problems = [f"{file.name}: {file.problem.what}; {file.problem.hint}" for file in found if file.problem]
    found = [file for file in found if not file.problem]
    evidence = [file.name for file in found if artifacts.kind_of(artifacts.head_of(file))]
    logs = [file for file in found if file.name not in evidence]
    if not logs and not problems:
        problems.append(f"{', '.join(inputs)}: no log of a job; name one, or a folder with some")
    keys = {}
    for file in logs:
        names = {_PART.sub("", file.name).encode()}
        head = b""  # in an archive, of the first member that is not packed
        with suppress(StreamError, OSError):
            for piece in compression.unpack_data(file.open()):
                head += bytes(piece)
                if len(head) >= _HEAD:
                    break
        keys[file.name] = ({b""}, names) if together else (set(_COMMUNICATOR.findall(head)) or names, names)
    first: dict[bytes, int] = {}
    unions = Unions(len(logs))
    # Logs without a communicator come last: they belong to the first one of their name.
    for at in sorted(range(len(logs)), key=lambda at: keys[logs[at].name][0] == keys[logs[at].name][1]):
        own, names = keys[logs[at].name]
        unions.join({at, *(first.setdefault(key, at) for key in own)})
        for key in names:
            first.setdefault(key, at)
    groups = []
    for numbers in unions.groups():  # with the evidence in their folder, below it, and beside their folder
        some = [logs[at] for at in numbers]
        folders = {Path(file.name).parent for file in some}
        above = {parent for folder in folders for parent in folder.parents}
        near = (name for name in evidence if Path(name).parent in above or folders & {*Path(name).parents})
        logs_of_job = tuple(STDIN if file.name == stdin else file.name for file in some)
        groups.append(LogGroup(logs_of_job, tuple(near), stdin))
    return groups, problems


def add(groups: Sequence[LogGroup], target: Target) -> Outcome:
    """Judge logs and append their jobs."""
    store, judge = Store(target.store, make=True), reading.Judge(target.options)
    idents, outcome, written = store.idents(), Outcome(), time.monotonic()
    waiting: dict[str, list[Tables]] = defaultdict(list)

    def flush() -> None:
        for day in list(waiting):
            store.append(day, waiting.pop(day))

    try:
        for group in groups:
            try:
                jobs = _judge_group(group, judge, target.image, idents)
            except (NcclInspectError, StreamError, OSError) as error:
                outcome.problems.append(str(error))
                continue
            if not jobs:
                outcome.known.append(group.logs[0])
                continue
            outcome.added.update(tables["job"]["verdict"][0].as_py() for tables in jobs)
            starts = [start for tables in jobs if (start := tables["job"]["start"][0].as_py())]
            day = max(starts).date().isoformat() if starts else UNDATED
            outcome.days.add(day)
            waiting[day] += jobs  # all in one batch: a log is there as a whole or not at all
            if sum(map(len, waiting.values())) >= _MOST_JOBS or time.monotonic() - written > _MOST_SECONDS:
                flush()
                written = time.monotonic()
    finally:  # also what was judged before Ctrl-C
        flush()
    store.tidy(sorted(outcome.days))
    return outcome


def _judge_group(group: LogGroup, judge: reading.Judge, image: str | None, idents: set[str]) -> list[Tables]:
    found = files.find([group.stdin if name == STDIN else name for name in group.logs])
    found = [replace(file, name=STDIN) if file.name == group.stdin else file for file in found]
    digests = []  # of what the logs hold, whatever they are called and whether they are compressed
    for file in found:
        content = hashlib.sha256()
        for piece in compression.unpack_data(file.open()):
            content.update(piece)
        digests.append(content.hexdigest())
    digest = _digest(*sorted(digests))
    if _digest(digest, "1")[:20] in idents:
        return []
    inventory = artifacts.inventory([*found, *group.beside])
    jobs: list[Job] = []
    worst = judge.find_job(reading.fold(inventory.logs), jobs.append, beside=inventory)
    names = {standing.number: standing.name for standing in worst.jobs}
    first, tables = Path(group.logs[0]), []
    written = max(
        (file.place.stat().st_mtime for file in inventory.logs if file.place and file.name != STDIN), default=None
    )
    for number, job in enumerate(jobs, 1):
        job.name = names.get(number) or (len(group.logs) > 1 and first.parent.name) or first.name
        tables.append(make_rows(job, _digest(digest, str(number))[:20], written, image))
    idents.add(_digest(digest, "1")[:20])
    return tables


def _digest(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()
