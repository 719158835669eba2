"""Which ranks wait for which at the end of a log: deduced from how far each rank got, as no line names the culprit.

A log that was cut during a healthy start looks much like a hang. Two signs distinguish them. First, ranks without any
line while all others reached the point where NCCL waits for every rank: a healthy job has lines of all its processes by
then. Second, time: a watcher of the log, or timestamps that show a rank silent for long while others continued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import BootstrapInterface, CudaDriver, NcclVersion, NetDevices
from nccl_inspect.judging import placement
from nccl_inspect.judging.facts import Facts, global_ranks, once
from nccl_inspect.judging.hangs.progress import connections_at_end, node_failed
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import LastLine, SourceInfo, Waiting
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.times import in_order, moment
from nccl_inspect.util.wording import count, does, ranks_word

INITIALISATION, CONNECTIONS = "initialisation", "connections"
_LONG = 30.0
"""Seconds: no rank of a healthy job lags that much within one step of the initialization."""
_FEWEST = 2
"""Ranks that wait at the same point: a single one may be the only rank with a log."""
_BEGINNING = (BootstrapInterface, CudaDriver, NcclVersion, NetDevices)


@once
def of(facts: Facts) -> Waiting | None:
    """The ranks that wait at the end of the log; None if none do, or an error explains why they do."""
    if facts.job.failed or facts.errors(forced_ends=False) or node_failed(facts):
        return None
    return _in_init(facts) or _connecting(facts)


@once
def is_stuck(facts: Facts) -> bool:
    """Whether these ranks are stuck, as far as a log that may have been cut can show."""
    wait = of(facts)
    job = facts.job
    if wait is None or job.going_on or job.ended_by:
        return False
    if job.quiet is not None:
        return True
    if job.partial or job.excerpt or any(source.damaged_lines or source.problem for source in job.sources):
        return False
    return _never_came(facts, wait) or _lags(facts, wait)


def is_at_the_end(facts: Facts) -> bool:
    """Whether the log ends where ranks wait in a communicator: their processes began no other one afterwards.

    A torn or missing line may be the one that shows that they got further.
    """
    wait, job = of(facts), facts.job
    if (
        wait is None
        or job.going_on
        or job.partial
        or any(source.damaged_lines or source.problem for source in job.sources)
    ):
        return False
    began = ((begin, comm.id) for comm in job.communicators for begin in comm.begins)
    last = {begin.process: comm for begin, comm in sorted(began, key=lambda entry: entry[0].order)}
    waiting = [comm for comm in job.communicators if comm.id == wait.communicator or _is_open(facts, comm)]
    return any({last[process] for process in _where_it_waits(comm)} == {comm.id} for comm in waiting)


def _is_open(facts: Facts, comm: CommunicatorInfo) -> bool:
    """Whether ranks began a communicator that they never completed, as far as the log shows."""
    return not (set(comm.started) <= set(comm.completed) or comm.ended or facts.paths_of(comm))


def _where_it_waits(comm: CommunicatorInfo) -> set[Process]:
    """Return the processes that wait in a communicator: those that completed it, else all that began it."""
    members = set(comm.unconnected or comm.completed or comm.started)
    return {begin.process for begin in comm.begins if begin.member in members}


def _in_init(facts: Facts) -> Waiting | None:
    """The wait in the first incomplete communicator: later ones wait for it."""
    for comm in facts.job.communicators:
        if not _is_open(facts, comm):
            continue
        begun, done = set(comm.started), set(comm.completed)
        if done:
            return _waiting(facts, comm, missing=(), silent=begun - done, waiting=done, stage=INITIALISATION)
        missing = set(range(comm.nranks)) - begun
        return _waiting(facts, comm, missing=missing, silent=(), waiting=begun, stage=INITIALISATION)
    return None


def _connecting(facts: Facts) -> Waiting | None:
    for comm in facts.job.communicators if connections_at_end(facts) else ():
        if comm.unconnected and len(comm.completed) == comm.nranks and not comm.ended:
            rest = set(range(comm.nranks)) - set(comm.unconnected)
            return _waiting(facts, comm, missing=(), silent=rest, waiting=comm.unconnected, stage=CONNECTIONS)
    return None


def _waiting(
    facts: Facts,
    comm: CommunicatorInfo,
    missing: Iterable[int],
    silent: Iterable[int],
    waiting: Iterable[int],
    stage: str,
) -> Waiting:
    ranks = ranks_of(comm, waiting)
    last = max(_lines_of(facts, ranks), key=lambda line: (line.source, line.order), default=None)
    return Waiting(
        communicator=comm.id,
        nranks=comm.nranks,
        missing=ranks_of(comm, missing),
        silent=ranks_of(comm, silent),
        waiting=ranks,
        stage=stage,
        since=last.evidence if last else None,
        time=last.time if last else None,
        age=facts.job.quiet,
        cut=False if facts.job.ended_by else None,
    )


def ranks_of(comm: CommunicatorInfo, members: Iterable[int]) -> list[int]:
    """Ranks of the job, if the log has them for all ranks of the communicator; else ranks of the communicator."""
    is_known = len(comm.ranks) == comm.nranks and None not in comm.ranks
    return sorted(global_ranks(comm, members) if is_known else members)


def _lines_of(facts: Facts, ranks: Iterable[int]) -> list[LastLine]:
    """The last lines of the processes of some ranks."""
    wanted = set(ranks)
    return [last for last in facts.job.last_lines if wanted & set(last.ranks)]


def evidence(facts: Facts) -> list[Evidence]:
    """The evidence: the last lines of the silent ranks and of those that wait."""
    wait = of(facts)
    if wait is None:
        return []
    silent = [last.evidence for last in [*_lines_of(facts, wait.silent), *idle_processes(facts)] if last.evidence]
    waiting = [last.evidence for last in _lines_of(facts, wait.waiting) if last.evidence]
    return [*silent[:2], *waiting[:1], *waiting[-1:]] if silent else [*waiting[:2], *waiting[2:][-1:]]


def last_of(facts: Facts, comm: CommunicatorInfo) -> list[Evidence]:
    """Return where the ranks of a communicator fall silent.

    One that did not start to connect, one that did, the last.
    """
    open_ = set(ranks_of(comm, comm.unconnected))
    lines = sorted(_lines_of(facts, ranks_of(comm, comm.started)), key=lambda last: (last.source, last.order))
    behind = [last for last in lines if open_ and open_.isdisjoint(last.ranks)]
    others = [last for last in lines if not open_ or not open_.isdisjoint(last.ranks)]
    shown = [*behind[-1:], *others[:1], *lines[-1:]]
    return [last.evidence for last in shown if last.evidence]


def idle_processes(facts: Facts) -> list[LastLine]:
    """Processes that started no communicator: their ranks, if any, are unknown."""
    return [last for last in facts.job.last_lines if not last.ranks]


def _never_came(facts: Facts, wait: Waiting) -> bool:
    """Whether some ranks have no line at all, and all others are where NCCL waits for every rank.

    If whole hosts are missing, it may be only their logs: then most of the job must be present.
    """
    comm = next(comm for comm in facts.job.communicators if comm.id == wait.communicator)
    if not wait.missing or wait.stage != INITIALISATION or comm.parent is not None or idle_processes(facts):
        return False
    if any(len(last.ranks) > 1 for last in _lines_of(facts, wait.waiting)):
        return False  # ranks are threads: the missing ones may be others of the same process
    if len(wait.waiting) < max(_FEWEST, len(wait.missing)) or not shows_beginning(facts, comm):
        return False
    homes = [placement.home(facts, rank) for rank in wait.missing]
    if all(homes):
        return True
    unseen = comm.nranks - len(comm.started)
    return len(comm.hosts) > _FEWEST and unseen * len(comm.hosts) < comm.nranks


def shows_beginning(facts: Facts, comm: CommunicatorInfo) -> bool:
    """Whether the log has its beginning: a tail lacks the lines of ranks that started before the others."""
    begun = {process for kind in _BEGINNING for notice in facts.with_event(kind) for process in notice.processes}
    return {last.process for last in _lines_of(facts, ranks_of(comm, comm.started))} <= begun


def _lags(facts: Facts, wait: Waiting) -> bool:
    """Whether, by their timestamps, all silent ranks fell silent long before the others got that far."""
    behind = [*_lines_of(facts, wait.silent), *(idle_processes(facts) if wait.missing else ())]
    times = [moment(last.time) for last in (*behind, *_lines_of(facts, wait.waiting))]
    if not behind or len(wait.missing) > len(idle_processes(facts)) or not in_order(*times):
        return False
    seconds = [time.seconds for time in times if time]
    return max(seconds[len(behind) :], default=0.0) - max(seconds[: len(behind)]) >= _LONG


def describe(facts: Facts) -> str:
    """A sentence: who waits for whom and since when, and that the log may have been cut there."""
    wait = of(facts)
    assert wait is not None
    late = wait.missing or wait.silent
    verb = ("have" if len(late) > 1 else "has") if wait.missing else ("are" if len(late) > 1 else "is")
    what = f"{verb} not started{_probably(facts, wait)}" if wait.missing else f"{verb} silent"
    culprit = f"{ranks_word(late)} of {wait.nranks} {what}; " if late else ""
    whom = "it" if len(late) == 1 else "them" if late else "each other"
    since = f" since line {wait.since.line}" if wait.since else ""
    where = f" in the {_STAGES[wait.stage]} of communicator {wait.communicator}{since}"
    when = f" ({wait.time})" if wait.time else ""
    quiet = "" if facts.job.quiet is None else f"; no progress for {facts.job.quiet:.0f} s"
    is_whole = facts.job.quiet is not None or facts.job.ended_by
    cut = "" if is_whole else f" (or the log was cut{end_of_log(facts.job.sources)})"
    return f"{culprit}{ranks_word(wait.waiting)} {does(len(wait.waiting), 'wait')} for {whom}{where}{when}{quiet}{cut}"


_STAGES = {INITIALISATION: "initialization", CONNECTIONS: "connections"}


def _probably(facts: Facts, wait: Waiting) -> str:
    """Return which processes these are, if the same number started no communicator."""
    mute = idle_processes(facts)
    if len(mute) != len(wait.missing):
        return ""
    names = ", ".join(f"{last.process.host} pid {last.process.pid}" for last in mute[:_FEWEST])
    more = f" and {len(mute) - _FEWEST} more" if len(mute) > _FEWEST else ""
    return f" (probably {names}{more}, silent since line {max(last.line for last in mute)})"


def end_of_log(sources: Sequence[SourceInfo]) -> str:
    """Return where the only source ends: `` at line 35``; empty if there are several."""
    return f" at line {sources[0].lines}" if len(sources) == 1 else ""


def undecided(facts: Facts) -> str:
    """The possible reasons why a log ends in the middle, for the end of a sentence."""
    at = end_of_log(facts.job.sources)
    return f"{',' if at else ''}{at}: still starting, stuck, or cut"


def where_missing(facts: Facts) -> str:
    """Return where the missing ranks belong, by the order of the ranks on the hosts.

    Empty if the order does not show it.
    """
    wait = of(facts)
    homes = [(rank, home) for rank in (wait.missing if wait else ()) if (home := placement.home(facts, rank))]
    words = [f"rank {rank} belongs on {home.host}, as local rank {home.local_rank}" for rank, home in homes[:4]]
    more = f"; {count(len(homes) - len(words), 'other')} likewise" if len(homes) > len(words) else ""
    return f". Judging by the order of the ranks, {'; '.join(words)}{more}" if words else ""
