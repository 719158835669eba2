"""Who waits for whom where a log ends, by elimination: how far each rank came, without a line that names the culprit.

A log that was cut in the middle of a sound start looks much like one that hangs. Two things tell them apart. Ranks that
have no line at all, while all others came to the point where NCCL waits for everybody and stand there: a sound job has
lines of all its processes by then. And time: somebody who watched the log, or time stamps that show that a rank was
silent for long while others went on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nccl_inspect.event.types import BootstrapInterface, CudaDriver, NcclVersion, NetDevices
from nccl_inspect.judging import placement
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.hangs.progress import broken_off, node_failed
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import LastLine, SourceInfo, Waiting
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.times import in_order, moment
from nccl_inspect.util.wording import count, does, ranks_word

INITIALISATION, CONNECTIONS = "initialisation", "connections"
_LONG = 30.0
"""Seconds: no rank of a sound job is so much later than the others within one step of the initialisation."""
_FEWEST = 2
"""Ranks that stand at the same point: one alone may be all that somebody has the log of."""
_BEGINNING = (BootstrapInterface, CudaDriver, NcclVersion, NetDevices)


def of(facts: Facts) -> Waiting | None:
    """The ranks that wait where the log ends; None where nobody does, or an error tells why they do."""
    return facts.once(_of)


def is_stuck(facts: Facts) -> bool:
    """Whether these ranks are stuck, as far as a log shows that may have been cut at its end."""
    return facts.once(_is_stuck)


def is_at_the_end(facts: Facts) -> bool:
    """Whether the log ends where these ranks wait: none of them began or used another communicator after that.

    A line that was torn or left out may be the one that says that they came further.
    """
    found, job = of(facts), facts.job
    if found is None or job.going_on or job.partial or any(one.damaged_lines or one.problem for one in job.sources):
        return False
    ids = [comm.id for comm in job.communicators]
    later = job.communicators[ids.index(found.communicator) + 1 :]
    return not any(set(found.waiting) & set(ranks_of(comm, comm.started)) for comm in later)


def _of(facts: Facts) -> Waiting | None:
    if facts.job.failed or facts.failures() or node_failed(facts):
        return None
    return _in_init(facts) or _connecting(facts)


def _in_init(facts: Facts) -> Waiting | None:
    """Of the first communicator that is not complete: what follows waits for it."""
    for comm in facts.job.communicators:
        begun, done = set(comm.started), set(comm.completed)
        if begun <= done or comm.ended or facts.paths_of(comm):
            continue
        if done:
            return _waiting(facts, comm, missing=(), silent=begun - done, waiting=done, stage=INITIALISATION)
        missing = set(range(comm.nranks)) - begun
        return _waiting(facts, comm, missing=missing, silent=(), waiting=begun, stage=INITIALISATION)
    return None


def _connecting(facts: Facts) -> Waiting | None:
    for comm in facts.job.communicators if broken_off(facts) else ():
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
    """Ranks of the job, where the log tells them for all ranks of the communicator; else those within it."""
    known = {place: rank for place, rank in enumerate(comm.ranks) if rank is not None}
    return sorted(known[rank] if len(known) == comm.nranks else rank for rank in members)


def _lines_of(facts: Facts, ranks: Iterable[int]) -> list[LastLine]:
    """Where the processes of some ranks fall silent."""
    wanted = set(ranks)
    return [last for last in facts.job.last_lines if wanted & set(last.ranks)]


def evidence(facts: Facts) -> list[Evidence]:
    """What proves it: the last lines of those that fell silent, of those that wait, and of the log."""
    found = of(facts)
    if found is None:
        return []
    silent = [last.evidence for last in [*_lines_of(facts, found.silent), *idle(facts)] if last.evidence]
    waiting = [last.evidence for last in _lines_of(facts, found.waiting) if last.evidence]
    return [*silent[:2], *waiting[:1], *waiting[-1:]] if silent else [*waiting[:2], *waiting[2:][-1:]]


def last_of(facts: Facts, comm: CommunicatorInfo) -> list[Evidence]:
    """Where the ranks of a communicator fall silent: a rank that did not begin to connect, one that did, the last."""
    open_ = set(ranks_of(comm, comm.unconnected))
    lines = sorted(_lines_of(facts, ranks_of(comm, comm.started)), key=lambda last: (last.source, last.order))
    behind = [last for last in lines if open_ and open_.isdisjoint(last.ranks)]
    others = [last for last in lines if not open_ or not open_.isdisjoint(last.ranks)]
    shown = [*behind[-1:], *others[:1], *lines[-1:]]
    return [last.evidence for last in shown if last.evidence]


def idle(facts: Facts) -> list[LastLine]:
    """Processes that began no communicator: they may be ranks of which none is known."""
    return [last for last in facts.job.last_lines if not last.ranks]


def _is_stuck(facts: Facts) -> bool:
    found = of(facts)
    job = facts.job
    if found is None or job.going_on or job.ended_by:
        return False
    if job.quiet is not None:
        return True
    if job.partial or job.excerpt or any(one.damaged_lines or one.problem for one in job.sources):
        return False
    return _never_came(facts, found) or _lags(facts, found)


def _never_came(facts: Facts, found: Waiting) -> bool:
    """Whether some ranks have no line at all, and all others stand where NCCL waits for everybody.

    Where hosts are missing as a whole it may be their logs that are not here: then those that are must be many.
    """
    comm = next(comm for comm in facts.job.communicators if comm.id == found.communicator)
    if not found.missing or found.stage != INITIALISATION or comm.parent is not None or idle(facts):
        return False
    if any(len(last.ranks) > 1 for last in _lines_of(facts, found.waiting)):
        return False  # ranks are threads: the missing ones may be others of the same process
    if len(found.waiting) < max(_FEWEST, len(found.missing)) or not shows_beginning(facts, comm):
        return False
    homes = [placement.home(facts, rank) for rank in found.missing]
    if all(homes):
        return True
    unseen = comm.nranks - len(comm.started)
    return len(comm.hosts) > _FEWEST and unseen * len(comm.hosts) < comm.nranks


def shows_beginning(facts: Facts, comm: CommunicatorInfo) -> bool:
    """Whether the log has its beginning: the tail of one lacks the lines of ranks that began before the others."""
    begun = {process for kind in _BEGINNING for notice in facts.said(kind) for process in notice.processes}
    return {last.process for last in _lines_of(facts, ranks_of(comm, comm.started))} <= begun


def _lags(facts: Facts, found: Waiting) -> bool:
    """Whether all that fell silent did so long before the others came as far as they did, by their times."""
    behind = [*_lines_of(facts, found.silent), *(idle(facts) if found.missing else ())]
    times = [moment(last.time) for last in (*behind, *_lines_of(facts, found.waiting))]
    if not behind or len(found.missing) > len(idle(facts)) or not in_order(*times):
        return False
    known = [time.seconds for time in times if time]
    return max(known[len(behind) :], default=0.0) - max(known[: len(behind)]) >= _LONG


def in_words(facts: Facts) -> str:
    """Who waits for whom, since when, in a sentence; that the log may have been cut there."""
    found = of(facts)
    assert found is not None
    waiting = f"{ranks_word(found.waiting)} {does(len(found.waiting), 'wait')} for {_pronoun(found)}"
    since = f" since line {found.since.line}" if found.since else ""
    where = f" in the {_STAGES[found.stage]} of communicator {found.communicator}{since}"
    when = f" ({found.time})" if found.time else ""
    culprit = _culprit(facts, found)
    told = f"{culprit}; {waiting}{where}{when}" if culprit else f"{_all(found)}{where}{when}"
    return f"{told}{_quiet(facts)}{_or_cut(facts)}"


_STAGES = {INITIALISATION: "initialisation", CONNECTIONS: "connections"}


def _all(found: Waiting) -> str:
    return f"{ranks_word(found.waiting)} {does(len(found.waiting), 'wait')} for each other"


def _pronoun(found: Waiting) -> str:
    return "it" if len(found.missing or found.silent) == 1 else "them"


def _culprit(facts: Facts, found: Waiting) -> str:
    """Who has not begun, or fell silent."""
    if found.missing:
        has = "has" if len(found.missing) == 1 else "have"
        return f"{ranks_word(found.missing)} of {found.nranks} {has} not begun{_probably(facts, found)}"
    if not found.silent:
        return ""
    is_silent = "is" if len(found.silent) == 1 else "are"
    lines = [last for last in _lines_of(facts, found.silent) if last.evidence]
    since = f" since line {max(last.line for last in lines)}" if lines else ""
    when = f" ({lines[-1].time})" if lines and lines[-1].time else ""
    return f"{ranks_word(found.silent)} of {found.nranks} {is_silent} silent{since}{when}"


def _probably(facts: Facts, found: Waiting) -> str:
    """Which processes these are, where as many began no communicator."""
    mute = idle(facts)
    if len(mute) != len(found.missing):
        return ""
    names = ", ".join(f"{last.process.host} pid {last.process.pid}" for last in mute[:_FEWEST])
    more = f" and {len(mute) - _FEWEST} more" if len(mute) > _FEWEST else ""
    return f" (probably {names}{more}, silent since line {max(last.line for last in mute)})"


def _quiet(facts: Facts) -> str:
    return "" if facts.job.quiet is None else f"; no progress for {facts.job.quiet:.0f} s"


def _or_cut(facts: Facts) -> str:
    """That the log may have been cut, with the place where it ends; who watched it knows better."""
    if facts.job.quiet is not None or facts.job.ended_by:
        return ""
    return f" (or the log was cut{end_of_log(facts.job.sources)})"


def end_of_log(sources: Sequence[SourceInfo]) -> str:
    """Where the only source ends: `` at line 35``; empty where there are several."""
    return f" at line {sources[0].lines}" if len(sources) == 1 else ""


def undecided(facts: Facts) -> str:
    """What may be behind it that a log ends in the middle, for the end of a sentence."""
    at = end_of_log(facts.job.sources)
    return f"{',' if at else ''}{at}: still starting, stuck, or cut"


def where_missing(facts: Facts) -> str:
    """Where the missing ranks belong, by the order of the ranks on the hosts; empty where that does not tell."""
    found = of(facts)
    told = [(rank, home) for rank in (found.missing if found else ()) if (home := placement.home(facts, rank))]
    words = [f"rank {rank} belongs on {home.host}, as local rank {home.local_rank}" for rank, home in told[:4]]
    more = f"; {count(len(told) - len(words), 'other')} likewise" if len(told) > len(words) else ""
    return f". By the order of the ranks {'; '.join(words)}{more}" if words else ""
