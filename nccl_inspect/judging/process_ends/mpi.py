"""What mpirun says in several lines of processes that ended: Open MPI, and Hydra (MPICH, Intel MPI)."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nccl_inspect.judging.facts import Facts, global_ranks
from nccl_inspect.judging.line_order import precedes
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice

HYDRA = "launchers/mpi-hydra-process"
IMPROPER = "launchers/mpi-improper"
ABORTS = ("launchers/mpi-abort", "launchers/mpi-abort-mpich")
NAMED = (*ABORTS, "launchers/mpi-process-name")
"""They name a rank, and no process."""
_BELOW = (
    *(
        "launchers/mpi-below-killed",
        "launchers/mpi-below-terminated",
        "launchers/mpi-below-aborted",
        "launchers/mpi-below-bus-error",
    ),
    *(
        "launchers/mpi-below-segmentation-fault",
        "launchers/mpi-below-illegal-instruction",
        "launchers/mpi-below-floating-point",
    ),
)
_BLOCK = 3
"""Lines below a statement that belong to it, with the blank ones."""
_KILLS_WITH = 9
_CORE = 0x80
"""What the kernel adds to the signal in a status when a core was written."""
_FROM_OUTSIDE = (-signal.SIGINT, -signal.SIGTERM)
_ALONE = 2
_MOST = 100
"""Lines of different words about the end of processes that are looked at: more than a job has."""


class Ended(NamedTuple):
    """A process that Hydra names, and how it ended."""

    notice: Notice
    code: int
    """Exit code; negative for a signal."""


class Blocks(NamedTuple):
    """What Hydra's blocks prove: who ended by himself, or that it is not told."""

    own: list[Ended]
    """Without those that Hydra killed."""
    missing: int | None
    """The only rank that Hydra did not kill: it left by itself."""
    undecided: Notice | None
    """One that was killed, where nothing tells by whom."""


def code_below(facts: Facts, notice: Notice) -> int | None:
    """The exit code, negative for a signal, that stands in the lines below a statement of Open MPI."""
    if notice.production == "launchers/mpi-signalled":
        found = _below(notice, 1, facts.once(_signals))
        number = value(found, "signal_number") if found else None
        return None if number is None else -number
    found = _below(notice, _BLOCK, facts.once(_codes))
    return value(found, "exitcode") if found else None


def _below(notice: Notice, within: int, placed: Mapping[tuple[str, int], Notice]) -> Notice | None:
    """The first of some statements in the next lines."""
    here = notice.evidence[0]
    near = range(here.order + 1, here.order + within + 1)
    return next((found for order in near if (found := placed.get((here.source, order)))), None)


def _placed(notices: Iterable[Notice]) -> dict[tuple[str, int], Notice]:
    """Statements by where they stand: those with the same words by the first and the last line."""
    lines = [(one, one.evidence[0]) for one in notices]
    return {(line.source, order): one for one, line in lines for order in (line.order, *one.until)}


def _signals(facts: Facts) -> dict[tuple[str, int], Notice]:
    return _placed(facts.notices(*_BELOW))


def _codes(facts: Facts) -> dict[tuple[str, int], Notice]:
    return _placed(
        facts.notices("launchers/mpi-exit-code-below", "launchers/mpi-abort-code", "launchers/mpi-abort-code-4")
    )


def _exits(facts: Facts) -> dict[tuple[str, int], Notice]:
    return _placed(facts.notices("launchers/mpi-hydra-exit", "launchers/mpi-hydra-signal"))


def abort_code(facts: Facts, notice: Notice) -> int | None:
    """What a rank gave to MPI_Abort; None where it did not call that, or nothing tells."""
    if notice.production == "launchers/mpi-abort":
        return code_below(facts, notice)
    called = str(value(notice, "how")).startswith("application called MPI_Abort")
    return value(notice, "exitcode") if called else None


def blocks(facts: Facts) -> Blocks:
    """Who ended by himself, by the blocks of Hydra: it kills the others with SIGKILL, and may name one of these."""
    return facts.once(_blocks)


def _blocks(facts: Facts) -> Blocks:
    ended = [Ended(one, code) for one in facts.notices(HYDRA) if (code := _code(facts, one)) not in (None, 0)]
    own = [one for one in ended if one.code != -_KILLS_WITH]
    if own or not ended:
        return Blocks([one for one in own if one.code not in _FROM_OUTSIDE], None, None)
    killed = [one.notice for one in ended]
    world = max((comm.nranks for comm in facts.job.communicators), default=0)
    if any(value(one, "global_rank") is None for one in killed) or world <= _ALONE:
        return Blocks([], None, killed[0])  # MPICH names one of all
    if len(killed) == 1:
        return Blocks(ended, None, None)  # all others left by themselves: Hydra killed nobody
    if len(killed) != world - 1:
        return Blocks([], None, killed[0])
    pids = {last.process.pid: last.ranks for last in facts.job.last_lines}
    left = set(range(world))
    left.difference_update(*(pids.get(value(one, "pid")) or [value(one, "global_rank")] for one in killed))
    if len(left) == 1 and not _came_to_their_end(facts, left):
        return Blocks([], next(iter(left)), None)
    return Blocks([], None, killed[0])


def _came_to_their_end(facts: Facts, ranks: set[int]) -> bool:
    """Whether ranks ended their communicators in order."""
    comms = facts.job.communicators
    return any(ranks & global_ranks(comm, comm.ended) for comm in comms)


def stopped(facts: Facts) -> list[Notice]:
    """What mpirun says of processes that somebody ended with Ctrl-C or SIGTERM."""
    found = [one for one in facts.notices("launchers/mpi-signalled") if code_below(facts, one) in _FROM_OUTSIDE]
    ended = [one for one in facts.notices(HYDRA) if _code(facts, one) in _FROM_OUTSIDE]
    if ended and not blocks(facts).own:
        found += [*facts.notices("launchers/mpi-hydra"), *ended, *facts.notices("launchers/mpi-hydra-string")]
    return found


def put_together(facts: Facts, notice: Notice) -> Notice | None:
    """Hydra's last line, which puts together how all processes ended."""
    return next((one for one in facts.notices("launchers/mpi-hydra-string")[:_MOST] if precedes(notice, one)), None)


def _code(facts: Facts, notice: Notice) -> int | None:
    """How a process ended that Hydra names; None where that is not known."""
    found = _below(notice, 1, facts.once(_exits)) or _between(facts, notice)
    if found is None:
        return None
    if found.production == "launchers/mpi-hydra-signal":
        return -int(value(found, "signal_number"))
    whole = put_together(facts, notice)
    return _of_mpich(value(found, "exitcode"), value(whole, "signal_number") if whole else None)


def _between(facts: Facts, notice: Notice) -> Notice | None:
    """What stands in the line below and elsewhere, too: the only words that stand both before and after it."""
    here = notice.evidence[0]
    said = facts.notices("launchers/mpi-hydra-exit", "launchers/mpi-hydra-signal")[:_MOST]
    near = [one for one in said if one.evidence[0].source == here.source]
    found = [one for one in near if one.evidence[0].order < here.order < max(one.until)]
    return found[0] if len(found) == 1 else None


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
    return -number if is_signal or exitcode == _KILLS_WITH else exitcode
