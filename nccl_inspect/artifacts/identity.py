"""What shows whether evidence and a log belong to one job: communicators, processes, hosts, sizes, times."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import PurePath

from nccl_inspect.event.base import Process, is_named
from nccl_inspect.model.processes import Gathered
from nccl_inspect.util.records import Frozen, Record, frozen, record
from nccl_inspect.util.times import Moment, moment

_LABEL = 63
_DAY = 86_400.0
_ZONES = 14 * 3600.0  # the most by which a clock without zone may be off
_JOB_NUMBER = re.compile(r"(?:^|[^0-9])([0-9]{1,9})(?![0-9])")
_MOST_SHOWN = 3
NEVER, NOTHING, SIZE, HOST, PROCESS, EXACT = range(-1, 5)
"""How well evidence fits a job: not at all; nothing speaks for or against it; by what it has in common with it."""


@frozen
class Identity(Frozen):
    """Holds what a file names of its job; what it does not name is empty."""

    comms: Mapping[int, str] = field(default_factory=dict)  # hashes of communicators, each as the file writes it
    pids: frozenset[int] = frozenset()
    sizes: frozenset[int] = frozenset()  # ranks of its process groups
    world: int | None = None
    rank: int | None = None  # of the job, where the file is about one
    hosts: frozenset[str] = frozenset()  # short names of the hosts that it is about
    are_all_hosts: bool = False  # whether a job on none of these hosts is another one
    prefixes: tuple[str, ...] = ()
    numbers: frozenset[str] = frozenset()  # numbers that a scheduler gave to the job
    active: float | None = None  # when the job ran, in seconds since 1970
    is_of_many: bool = False  # whether it may be about several jobs: files about machines, lists of pods


@record
class Traits(Record):
    """Holds the same of a job, by its log."""

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
        return cls(
            comms=frozenset(
                number for member in members if (number := comm_number(member.init.comm_id or "")) is not None
            ),
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


def comm_number(text: str) -> int | None:
    """Return the hash of a communicator, as RAS and the log write it."""
    try:
        return int(text, 16)
    except ValueError:
        return None


def short(host: str) -> str:
    """Return a host without its domain, as long as names of hosts can be; an address is not a name with a domain."""
    return host if re.fullmatch(r"[\d.:]+", host) else host.partition(".")[0][:_LABEL].lower()


def some(names: Sequence[str]) -> str:
    """Return a few names in words."""
    more = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


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
        which = some(list(evidence.comms.values()))
        return f"about other communicators ({which}); the log has none of them"
    if evidence.are_all_hosts and job.hosts and not evidence.hosts & job.hosts:
        return f"about {some(sorted(evidence.hosts))}; the log's hosts are {some(sorted(job.hosts))}"
    return _other_size(evidence, job) or _other_time(evidence, job)


def _other_size(evidence: Identity, job: Traits) -> str | None:
    """Groups of a job of this size cannot have been the communicators of the log."""
    most = next(iter(job.sizes), 1)
    if evidence.rank is not None and not evidence.sizes and len(job.sizes) == 1 and evidence.rank >= most > 1:
        return f"of rank {evidence.rank}; the log's job has ranks 0-{most - 1}"
    world = most if evidence.world is None else evidence.world
    if most < 2 or most == world or (most < world and most in evidence.sizes):
        return None
    ranks = f"ranks 0-{world - 1}" if world > 1 else "rank 0"
    return f"{ranks} of a world of {world}; the log's job has {most}"


def _other_time(evidence: Identity, job: Traits) -> str | None:
    if evidence.active is None or job.began is None or job.ended is None:
        return None
    before, after = job.began.seconds - evidence.active, evidence.active - job.ended.seconds
    if max(before, after) <= _DAY + (_ZONES if job.began.clock == "local" else 0.0):
        return None
    days = round(max(before, after) / _DAY)
    return (
        f"recorded {days} day{'s' * (days > 1)} {'before the log began' if before > after else 'after the log ended'}"
    )
