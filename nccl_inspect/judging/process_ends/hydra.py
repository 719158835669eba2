"""Hydra's (MPICH, Intel MPI) blocks of lines: it kills others with SIGKILL, and may report one of these."""

from __future__ import annotations

from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging.facts import Facts, global_ranks, once
from nccl_inspect.judging.line_order import precedes
from nccl_inspect.judging.process_ends.reports import EXTERNAL, completions, external_below, report_of, reports
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.util import signals
from nccl_inspect.util.records import Frozen, frozen

_KILLS_WITH = 9
_CORE = 0x80
"""The flag that the kernel adds to the signal in a status if it wrote a core dump."""
_ALONE = 2
_MOST = 100
"""The most distinct lines about ends of processes to examine: more than a job has."""
_BELOW = range(1, 2)
"""The next line says how a process ended."""


@frozen
class Ended(Frozen):
    """A process that Hydra names, and how it ended."""

    notice: Notice
    code: int
    """Exit code; negative for a signal."""


@frozen
class Blocks(Frozen):
    """The conclusions from Hydra's blocks: which processes ended on their own, if that is known."""

    own: list[Ended]
    """Processes that Hydra did not kill."""
    missing: int | None = None
    """The only rank that Hydra did not kill: it exited on its own."""
    killed: Notice | None = None
    """The first killed process, if it is unknown who killed it."""


@once
def blocks(facts: Facts) -> Blocks:
    """The processes that ended on their own: Hydra kills the others with SIGKILL, and may name one of these."""
    ended = [Ended(notice, code) for notice in _named(facts) if (code := _code(facts, notice))]
    own = [end for end in ended if end.code != -_KILLS_WITH]
    if own or not ended:
        return Blocks([end for end in own if end.code not in EXTERNAL])
    killed = [end.notice for end in ended]
    world = max((comm.nranks for comm in facts.job.communicators), default=0)
    if not all(report_of(notice).ranks for notice in killed) or world <= _ALONE:
        return Blocks([], killed=killed[0])  # MPICH names one of all
    if len(killed) == 1:
        return Blocks(ended)  # all others exited on their own: Hydra killed none
    spared = _not_killed(facts, killed, world) if len(killed) == world - 1 else set()
    is_missing = len(spared) == 1 and not _came_to_their_end(facts, spared)
    return Blocks([], next(iter(spared)) if is_missing else None, killed[0])


def _named(facts: Facts) -> list[Notice]:
    """Reports of a launcher that may have killed the processes itself."""
    return reports(facts, lambda event: event.kills_with is not None)


def _not_killed(facts: Facts, killed: list[Notice], world: int) -> set[int]:
    """The ranks that Hydra does not report as killed."""
    pids = {last.process.pid: last.ranks for last in facts.job.last_lines}
    events = map(report_of, killed)
    return set(range(world)).difference(*(pids.get(event.ended_pid or 0) or event.ranks for event in events))


def _came_to_their_end(facts: Facts, ranks: set[int]) -> bool:
    """Whether ranks ended their communicators in order."""
    comms = facts.job.communicators
    return any(ranks & global_ranks(comm, comm.ended) for comm in comms)


@once
def terminations(facts: Facts) -> list[Notice]:
    """Reports of mpirun about processes that were ended with Ctrl-C or SIGTERM."""
    notices = external_below(facts)
    ended = [report for report in _named(facts) if _code(facts, report) in EXTERNAL]
    if ended and not blocks(facts).own:
        notices += [*facts.notices("launchers/mpi-hydra"), *ended, *facts.notices("launchers/mpi-hydra-string")]
    return notices


def status_summary(facts: Facts, notice: Notice) -> Notice | None:
    """Hydra's last line, which summarizes how all processes ended."""
    return next((line for line in facts.notices("launchers/mpi-hydra-string")[:_MOST] if precedes(notice, line)), None)


def _code(facts: Facts, notice: Notice) -> int | None:
    """The exit code of a process that Hydra names; None if unknown."""
    completion = next(completions(facts, notice, _BELOW, "above"), None) or _between(facts, notice)
    if completion is None:
        return None
    event = report_of(completion)
    if event.signal is not None or event.code is None:
        return event.code
    whole = status_summary(facts, notice)
    return _of_mpich(event.code, value(whole, "signal_number") if whole else None)


def _between(facts: Facts, notice: Notice) -> Notice | None:
    """The completion that is also printed elsewhere: the only wording that occurs both before and after the report."""
    here = notice.evidence[0]
    near = [completion for completion in _exits(facts) if completion.evidence[0].source == here.source]
    between = [completion for completion in near if completion.evidence[0].order < here.order < max(completion.until)]
    return between[0] if len(between) == 1 else None


@once
def _exits(facts: Facts) -> list[Notice]:
    """The lines that say how the processes that Hydra names ended."""
    reporters = {report_of(notice).reporter for notice in _named(facts)}
    parts = (notice for notice in facts.with_event(ProcessEnded) if report_of(notice).completes)
    return [notice for notice in parts if report_of(notice).reporter in reporters][:_MOST]


def _of_mpich(exitcode: int, whole: int | None) -> int:
    """The exit code behind Hydra's number, which is a signal if one ended the process.

    The last line has the signal of all processes' statuses combined bit by bit, so that processes killed with SIGKILL
    change it (mpiexec.c, pmiserv_cb.c).

    Args:
        exitcode: as printed.
        whole: the signal of the last line; None if there is no such line.
    """
    number = exitcode & ~_CORE
    is_signal = whole == number or _KILLS_WITH != whole == number | _KILLS_WITH
    return -number if is_signal or exitcode == _KILLS_WITH else signals.from_status(exitcode)
