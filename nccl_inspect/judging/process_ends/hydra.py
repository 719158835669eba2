"""What Hydra (MPICH, Intel MPI) says in blocks of lines: it kills others with SIGKILL, and may report one of these."""

from __future__ import annotations

from typing import NamedTuple

from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging.facts import Facts, global_ranks
from nccl_inspect.judging.line_order import precedes
from nccl_inspect.judging.process_ends.reports import EXTERNAL, completions, external_below, report_of, reports
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.util import signals

_KILLS_WITH = 9
_CORE = 0x80
"""What the kernel adds to the signal in a status when a core was written."""
_ALONE = 2
_MOST = 100
"""Lines of different words about the end of processes that are looked at: more than a job has."""
_BELOW = range(1, 2)
"""How a process ended stands in the next line."""


class Ended(NamedTuple):
    """A process that Hydra names, and how it ended."""

    notice: Notice
    code: int
    """Exit code; negative for a signal."""


class Blocks(NamedTuple):
    """What Hydra's blocks prove: who ended by himself, or that it is not known."""

    own: list[Ended]
    """Without those that Hydra killed."""
    missing: int | None = None
    """The only rank that Hydra did not kill: it left by itself."""
    killed: Notice | None = None
    """The first one that was killed, where nothing tells by whom."""


def blocks(facts: Facts) -> Blocks:
    """Who ended by himself, by the blocks of Hydra: it kills the others with SIGKILL, and may name one of these."""
    return facts.once(_blocks)


def _blocks(facts: Facts) -> Blocks:
    ended = [Ended(one, code) for one in _named(facts) if (code := _code(facts, one))]
    own = [one for one in ended if one.code != -_KILLS_WITH]
    if own or not ended:
        return Blocks([one for one in own if one.code not in EXTERNAL])
    killed = [one.notice for one in ended]
    world = max((comm.nranks for comm in facts.job.communicators), default=0)
    if not all(report_of(one).ranks for one in killed) or world <= _ALONE:
        return Blocks([], killed=killed[0])  # MPICH names one of all
    if len(killed) == 1:
        return Blocks(ended)  # all others left by themselves: Hydra killed nobody
    left = _left(facts, killed, world) if len(killed) == world - 1 else set()
    is_missing = len(left) == 1 and not _came_to_their_end(facts, left)
    return Blocks([], next(iter(left)) if is_missing else None, killed[0])


def _named(facts: Facts) -> list[Notice]:
    """The processes that a launcher reports which may have killed them itself."""
    return reports(facts, lambda event: event.kills_with is not None)


def _left(facts: Facts, killed: list[Notice], world: int) -> set[int]:
    """The ranks that Hydra does not say to have been killed."""
    pids = {last.process.pid: last.ranks for last in facts.job.last_lines}
    events = map(report_of, killed)
    return set(range(world)).difference(*(pids.get(event.ended_pid or 0) or event.ranks for event in events))


def _came_to_their_end(facts: Facts, ranks: set[int]) -> bool:
    """Whether ranks ended their communicators in order."""
    comms = facts.job.communicators
    return any(ranks & global_ranks(comm, comm.ended) for comm in comms)


def stopped(facts: Facts) -> list[Notice]:
    """What mpirun says of processes that somebody ended with Ctrl-C or SIGTERM."""
    return list(facts.once(_stopped))


def _stopped(facts: Facts) -> list[Notice]:
    found = external_below(facts)
    ended = [one for one in _named(facts) if _code(facts, one) in EXTERNAL]
    if ended and not blocks(facts).own:
        found += [*facts.notices("launchers/mpi-hydra"), *ended, *facts.notices("launchers/mpi-hydra-string")]
    return found


def put_together(facts: Facts, notice: Notice) -> Notice | None:
    """Hydra's last line, which puts together how all processes ended."""
    return next((one for one in facts.notices("launchers/mpi-hydra-string")[:_MOST] if precedes(notice, one)), None)


def _code(facts: Facts, notice: Notice) -> int | None:
    """How a process ended that Hydra names; None where that is not known."""
    found = next(completions(facts, notice, _BELOW, "above"), None) or _between(facts, notice)
    if found is None:
        return None
    event = report_of(found)
    if event.signal is not None or event.code is None:
        return event.code
    whole = put_together(facts, notice)
    return _of_mpich(event.code, value(whole, "signal_number") if whole else None)


def _between(facts: Facts, notice: Notice) -> Notice | None:
    """What stands in the line below and elsewhere, too: the only words that stand both before and after it."""
    here = notice.evidence[0]
    near = [one for one in facts.once(_exits) if one.evidence[0].source == here.source]
    found = [one for one in near if one.evidence[0].order < here.order < max(one.until)]
    return found[0] if len(found) == 1 else None


def _exits(facts: Facts) -> list[Notice]:
    """The lines that say how the processes ended which Hydra names."""
    reporters = {report_of(one).reporter for one in _named(facts)}
    parts = (one for one in facts.said(ProcessEnded) if report_of(one).completes)
    return [one for one in parts if report_of(one).reporter in reporters][:_MOST]


def _of_mpich(exitcode: int, whole: int | None) -> int:
    """What Hydra calls an exit code is the number of a signal where one ended the process.

    The last line names the signal in the statuses of all processes, with their bits put together: what Hydra killed
    with SIGKILL changes it (mpiexec.c, pmiserv_cb.c).

    Args:
        exitcode: as it stands there.
        whole: the signal of the last line; None where there is no such line.
    """
    number = exitcode & ~_CORE
    is_signal = whole == number or _KILLS_WITH != whole == number | _KILLS_WITH
    return -number if is_signal or exitcode == _KILLS_WITH else signals.from_status(exitcode)
