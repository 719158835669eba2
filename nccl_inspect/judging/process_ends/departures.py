"""Processes that ended by themselves while others were still there, as launchers, shells or they tell it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.line_order import first_of_each
from nccl_inspect.judging.process_ends import exceptions, mpi, ray, slurm_tasks
from nccl_inspect.judging.process_ends.departure import (
    DEEPSPEED,
    LOADER,
    OF_LAUNCHERS,
    OF_SLURM,
    RAISED,
    SPAWNED,
    Departure,
)
from nccl_inspect.judging.process_ends.exceptions import Raised, Trace
from nccl_inspect.judging.statements import value
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice

_BY_LAUNCHER = (signal.SIGTERM, signal.SIGINT)
"""Launchers end the other processes with these once one has failed."""
_MOST_SPAWNED = 100
"""Of which is asked what they raised."""
_SHELL_COMMANDS = ("launchers/shell-bus-error-command", "launchers/shell-segmentation-fault-command")
_SHELL = {
    "launchers/shell-bus-error-command": signal.SIGBUS,
    "launchers/shell-segmentation-fault-command": signal.SIGSEGV,
    "launchers/shell-bus-error": signal.SIGBUS,
    "launchers/shell-segmentation-fault": signal.SIGSEGV,
}
_WITH_PID = (*OF_LAUNCHERS, LOADER, "launchers/mpi-process-signal", "launchers/ray-process-crashed", *_SHELL_COMMANDS)
TOLD = (*_WITH_PID, mpi.HYDRA, *SPAWNED, *ray.PRODUCTIONS)
"""Who says which process ended."""
_OF_ANY = ("launchers/ray-process-crashed", *_SHELL_COMMANDS)
"""Of these it may be any process, also one that is no rank."""
_NAMELESS = ("launchers/shell-bus-error", "launchers/shell-segmentation-fault", "torch/python-crashed")
"""Here a process crashed, and nothing tells which."""
_SIGNALS = {
    "Bus error": signal.SIGBUS,
    "Segmentation fault": signal.SIGSEGV,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
    "Aborted": signal.SIGABRT,
    "Killed": signal.SIGKILL,
    "Terminated": signal.SIGTERM,
}
"""As strsignal() names them."""
_SHELL_KILLED = "launchers/shell-killed-command"
_EXITED = re.compile(r"Exited with exit code (\d{1,3})")
_SIGNALLED = 128
"""What shells and containers add to a signal to make an exit code of it."""
_TIME = re.compile(r"\b[EWF](\d{4} \d\d:\d\d:\d\d\.\d+) ")
_WITHOUT_PID = (DEEPSPEED, "launchers/composer-crashed", *mpi.NAMED, slurm_tasks.TASK)
_WEAK = (
    *(*SPAWNED, mpi.HYDRA, ray.TASK, ray.SNIPPET, "launchers/composer-exited", "launchers/lightning-child"),
    *(*_WITHOUT_PID, slurm_tasks.STATE),
)
"""Launchers that name any process that ended with an error; torchrun and mpirun name the first one."""
EXCEPTION = 1
"""The exit code of Python after an exception."""
_IMPROPER = "left improperly, as mpirun says: without MPI_Finalize, or by a call of abort"
_LEFT = "left by itself: Hydra killed all others, and it is the only one of which it does not say so"
_KILLED_OTHERS = "ended, and Hydra (mpiexec) killed the others: which one ended first is not told"
_WAITED = "ended while others still ran, and srun ended these (--wait)"
_LAST_WORDS = (
    *("torch/watchdog-terminated", "torch/async-error", "torch/async-error-2-4"),
    *("torch/cuda-error", "torch/nccl-error"),
)


def departures(facts: Facts) -> list[Departure]:
    """Each process once; those that a launcher ended are not among them. Within a source they are in its order."""
    return list(facts.once(_departures))


def _departures(facts: Facts) -> list[Departure]:
    traces = exceptions.found(facts).traces
    found = [one._replace(trace=_trace_of(one, traces)) for one in (*_told(facts), *_spawned(facts))]
    known = {rank for one in found for rank in one.ranks}
    found += [_of_trace(facts, trace) for trace in traces if trace.rank not in known]
    found += _of_ray(facts, found)
    found += _crashed_tasks(facts, found) if found else []
    found = [one._replace(raised=one.trace.last) if one.trace else one for one in found]
    found = _with_echoes(facts, found)
    # The rank of a loader ends after it, and who lost another process after that one.
    found.sort(key=lambda one: (not one.is_loader, one.echo is not None, one.begin.place))
    found += _nameless(facts, {one.code for one in found})
    return found or _with_echoes(facts, _without_pid(facts)) or _undecided(facts)


def _with_echoes(facts: Facts, found: list[Departure]) -> list[Departure]:
    """The same with what ranks say that lost another process."""
    lost = {one.rank: one.last for one in exceptions.found(facts).echoes}
    return [one._replace(echo=_echo_of(one, lost) or one.echo) for one in found]


def _echo_of(departure: Departure, lost: Mapping[int, Raised | None]) -> Raised | None:
    """What it, or one of several of which the same is told, says of the loss of another process."""
    said = (lost.get(rank) for rank in departure.ranks if not departure.is_loader)
    return next(filter(None, said), None)


def _crashed_tasks(facts: Facts, told: list[Departure]) -> list[Departure]:
    """Tasks of Slurm that crashed or were killed first, and of which nobody tells more: nothing explains that."""
    codes, ranks = {one.code for one in told}, {rank for one in told for rank in one.ranks}
    found = [one for one in _without_pid(facts) if one.notice.production == slurm_tasks.TASK and one.is_hit]
    return [one for one in found if one.code not in codes and ranks.isdisjoint(one.ranks)]


class _Processes:
    """Processes in the order in which they are told: one of which two tell counts once, also where one has no pid."""

    def __init__(self) -> None:
        self.all: list[Departure] = []
        self._at: dict[tuple[str, tuple[int, ...]], int] = {}

    def add(self, one: Departure) -> None:
        """Add a process, or who it is where that is not known yet."""
        keys: list[tuple[str, tuple[int, ...]]] = [("pid", (one.pid,))] if one.pid is not None else []
        keys += [("ranks", tuple(one.ranks))] if one.ranks else []
        at = next((self._at[key] for key in keys if key in self._at), None)
        if at is None:
            at = len(self.all)
            self.all.append(one)
        elif one.ranks and not self.all[at].ranks:  # the process itself does not know its rank
            self.all[at] = one
        self._at.update(dict.fromkeys(keys, at))


def _told(facts: Facts) -> list[Departure]:
    """What somebody tells with the pid, or mpirun with the rank in its place."""
    found = _Processes()
    for notice in facts.notices(*_WITH_PID):
        if facts.is_over() and notice.production in _OF_ANY and value(notice, "pid") not in facts.once(_by_pid):
            continue  # some program, after NCCL's work was done
        code = mpi.code_below(facts, notice) if _is_told_below(notice) else _code(notice)
        words = _improper(facts, notice) if notice.production == mpi.IMPROPER else ""
        if not words and (code is None or code == 0 or -code in _BY_LAUNCHER):
            continue
        found.add(_of_process(facts, notice, code or 0)._replace(words=words))
    blocks = mpi.blocks(facts)
    for ended in blocks.own:
        found.add(_of_process(facts, ended.notice, _of_shell(ended.code)))
    if blocks.missing is not None:
        named = facts.notices(mpi.HYDRA)[0]
        found.add(_of_rank(facts, blocks.missing, 0, named)._replace(words=_LEFT))
    for notice in _killed_commands(facts):
        found.add(_of_process(facts, notice, -signal.SIGKILL))
    return found.all


def _improper(facts: Facts, notice: Notice) -> str:
    """How a process left that mpirun does not call by a code: it calls MPI_Abort so, too."""
    rank = value(notice, "global_rank")
    called = facts.once(_aborts).get(rank)
    return _called(facts, called) if called else _IMPROPER


def _aborts(facts: Facts) -> dict[int, Notice]:
    """By rank who called MPI_Abort."""
    return {rank: one for one in reversed(facts.notices(*mpi.ABORTS)) for rank in _stated_ranks(facts, one)}


def _is_told_below(notice: Notice) -> bool:
    return notice.production == "launchers/mpi-signalled" and value(notice, "signal_number") is None


def _of_process(facts: Facts, notice: Notice, code: int) -> Departure:
    """The process of a pid: which it is tell NCCL's lines, else who names it."""
    pid = value(notice, "pid") or None
    stated = _stated_ranks(facts, notice)
    if pid is None and len(stated) == 1:
        return _of_rank(facts, stated[0], code, notice)
    known = facts.once(_by_pid).get(pid, []) if pid else []
    here = known[0] if len(known) == 1 else None
    return Departure(here.ranks if here else stated, here.process.host if here else None, pid, code, notice)


def _of_rank(facts: Facts, rank: int, code: int, notice: Notice) -> Departure:
    """A rank with its host and pid, where NCCL's lines tell them."""
    here = facts.once(_by_rank).get(rank, [])
    host, pid = (here[0].process.host, here[0].process.pid) if len(here) == 1 else (None, None)
    return Departure([rank], host, pid, code, notice)


def _by_pid(facts: Facts) -> dict[int, list[LastLine]]:
    found: dict[int, list[LastLine]] = {}
    for last in facts.job.last_lines:
        found.setdefault(last.process.pid, []).append(last)
    return found


def _by_rank(facts: Facts) -> dict[int, list[LastLine]]:
    found: dict[int, list[LastLine]] = {}
    for last in facts.job.last_lines:
        if len(last.ranks) == 1:
            found.setdefault(last.ranks[0], []).append(last)
    return found


def _killed_commands(facts: Facts) -> list[Notice]:
    """What a shell says of commands that were killed, where they are processes of NCCL, and not all of them."""
    pids = {last.process.pid for last in facts.job.last_lines}
    said = [notice for notice in facts.notices(_SHELL_KILLED) if value(notice, "pid") in pids]
    return said if len({value(notice, "pid") for notice in said}) < len(pids) else []


def _of_ray(facts: Facts, told: list[Departure]) -> list[Departure]:
    """Workers of Ray that nobody tells more of."""
    pids = {one.pid for one in told if one.pid is not None}
    ranks = {rank for one in told for rank in one.ranks}
    found = []
    for one in ray.ended(facts):
        if one.pid in pids or (one.ranks and ranks.issuperset(one.ranks)) or (told and not one.ranks and not one.pid):
            continue
        code = one.code or (0 if one.died else EXCEPTION)
        is_of_a_peer = one.raised is not None and one.raised.is_of_a_peer
        raised, echo = (None, one.raised) if is_of_a_peer else (one.raised, None)
        found.append(Departure(one.ranks, one.host, one.pid, code, one.notice, raised=raised, echo=echo))
    return found


def _spawned(facts: Facts) -> list[Departure]:
    """Processes of torch.multiprocessing.spawn; one that only tells of the loss of another is not among them."""
    found = []
    for notice in facts.notices(*SPAWNED)[:_MOST_SPAWNED]:
        code = _code(notice)
        raised = exceptions.spawned(facts, notice) if notice.production == RAISED else None
        if code is not None and not (raised and raised.is_of_a_peer):
            found.append(Departure([], None, None, code, notice, raised=raised))
    return found


def echoes(facts: Facts) -> list[Notice]:
    """Where processes say with an exception that they lost another one."""
    told = [one.begin for one in exceptions.found(facts).echoes if one.last and not one.last.is_ended]
    for notice in facts.notices(RAISED)[:_MOST_SPAWNED]:
        raised = exceptions.spawned(facts, notice)
        if raised is not None and raised.is_of_a_peer:
            told.append(notice)
    return told


def _of_trace(facts: Facts, trace: Trace) -> Departure:
    """A rank of which only its own traceback tells that it ended."""
    return _of_rank(facts, trace.rank, EXCEPTION, trace.begin)._replace(trace=trace)


def _trace_of(departure: Departure, traces: Iterable[Trace]) -> Trace | None:
    mine = (trace for trace in traces if trace.rank in departure.ranks)
    return None if departure.is_loader else next(mine, None)


def _nameless(facts: Facts, told: set[int]) -> list[Departure]:
    """Crashes that nobody tells with a pid; what crashed before processes began, or after their end, was no rank."""
    if facts.is_over():
        return []
    ends = {end.text for end in facts.job.ended_by}
    found: dict[int, Departure] = {}
    for notice in facts.notices(*_NAMELESS):
        code = _code(notice)
        if code is not None and code not in told and notice.message in ends:
            found.setdefault(code, Departure([], None, None, code, notice))
    return list(found.values())


def _without_pid(facts: Facts) -> list[Departure]:
    """What launchers tell without the pid, where nobody tells more; tasks of Slurm may be ranks, or launch them."""
    found = []
    killed = set(map(id, slurm_tasks.killed_first(facts)))
    for notice in facts.notices(*_WITHOUT_PID):
        how = str(value(notice, "how"))
        stated = _EXITED.fullmatch(how)
        code = _of_shell(int(stated[1])) if stated else _code(notice)
        if notice.production == DEEPSPEED and code == EXCEPTION and (lost := exceptions.found(facts).echoes):
            # Each of these ended with that code.
            found += [_of_trace(facts, one)._replace(trace=None, echo=one.last) for one in lost]
            continue
        if notice.production in mpi.NAMED:
            code = mpi.code_below(facts, notice) or EXCEPTION
        is_task = notice.production == slurm_tasks.TASK
        is_by_srun = is_task and how.startswith("Killed") and id(notice) not in killed
        if code and -code not in _BY_LAUNCHER and not is_by_srun:
            ranks = slurm_tasks.ranks_of(facts, notice) if is_task else _stated_ranks(facts, notice)
            found.append(Departure(ranks, None, None, code, notice, words=_called(facts, notice)))
    left = slurm_tasks.left_first(facts)
    found += [Departure(slurm_tasks.ranks_of(facts, one), None, None, 0, one, words=_WAITED) for one in left]
    return found


def _undecided(facts: Facts) -> list[Departure]:
    """Hydra killed processes with SIGKILL, and nothing tells why."""
    named = mpi.blocks(facts).undecided
    return [Departure([], None, None, -signal.SIGKILL, named, words=_KILLED_OTHERS)] if named else []


def _called(facts: Facts, notice: Notice) -> str:
    """For a rank that called MPI_Abort, what it gave to it."""
    if notice.production not in mpi.ABORTS:
        return ""
    code = mpi.abort_code(facts, notice)
    if code is not None:
        return f"called MPI_Abort with error code {code}"
    is_abort = notice.production == "launchers/mpi-abort"
    return "called MPI_Abort" if is_abort else f"was ended by MPI: {value(notice, 'how')}"


def _of_shell(code: int) -> int:
    """An exit code; negative where a shell or a container passes on a signal by it."""
    return _SIGNALLED - code if code > _SIGNALLED else code


def _code(notice: Notice) -> int | None:
    if notice.production == RAISED:
        return EXCEPTION
    by_name = _SHELL.get(notice.production) or _SIGNALS.get(str(value(notice, "how")).removesuffix(" (core dumped)"))
    by_signal = value(notice, "signal_number") or by_name or signal.Signals.__members__.get(value(notice, "signal"))
    code: int | None = value(notice, "exitcode") if by_signal is None else -by_signal
    return code


def _stated_ranks(facts: Facts, notice: Notice) -> list[int]:
    """The rank that mpirun names, or torchrun in the line above."""
    is_abort = notice.production == "launchers/mpi-abort"
    if is_abort and value(notice, "communicator") != "MPI_COMM_WORLD":
        return []  # its rank there is another number
    if (stated := value(notice, "rank" if is_abort else "global_rank")) is not None:
        return [stated]
    above = {(line.source, line.order - 1) for line in notice.evidence}
    said = [
        one for one in facts.notices("torch/failure-rank") if any((e.source, e.order) in above for e in one.evidence)
    ]
    return sorted({value(one, "global_rank") for one in said})


def is_weak(departure: Departure) -> bool:
    """Whether the word of a launcher is all there is: it may name a rank that only lost another one."""
    return departure.notice.production in _WEAK and departure.raised is None and not departure.is_unclear


def is_doubtful(departure: Departure) -> bool:
    """Whether the process or its rank is told by such a word only; a crash is no loss of another process."""
    is_guess = bool(departure.ranks) and departure.notice.production in OF_SLURM
    return is_weak(departure) and (is_guess or not departure.is_crash)


def since_start(facts: Facts, notices: Iterable[Notice]) -> list[Notice]:
    """Those that do not stand before the communicators of their source: they tell of something earlier."""
    starts = first_of_each(line for comm in facts.job.communicators for line in comm.evidence[:1])
    return [one for one in notices if one.evidence[0].order > starts.get(one.evidence[0].source, 0)]


def is_unordered(departed: Sequence[Departure]) -> bool:
    """Whether nothing tells which of several processes ended first: lines of several sources have no order."""
    sources = {one.begin.evidence[0].source for one in departed}
    return len(sources) > 1 and not all(map(_time_of, departed))


def in_order(departed: list[Departure]) -> list[Departure]:
    """By the times of the lines, where lines of several sources have these; else as they stand."""
    sources = {one.begin.evidence[0].source for one in departed}
    if len(sources) < 2 or is_unordered(departed):
        return departed
    return sorted(departed, key=_time_of)


def logged_at(notice: Notice) -> str:
    """The time that PyTorch's logger puts in front, ``1121 16:35:11.771000``; empty where there is none."""
    found = _TIME.search(notice.message)
    return found[1] if found else ""


def _time_of(departure: Departure) -> str:
    return logged_at(departure.notice)


def last_words(facts: Facts, gone: Iterable[Departure]) -> Mapping[int, Notice]:
    """For ranks that departed the error that PyTorch printed of them, where it did."""
    ranks = {rank for one in gone for rank in one.ranks}
    found: dict[int, Notice] = {}
    for notice in facts.notices(*_LAST_WORDS):
        rank = value(notice, "global_rank")
        if rank in ranks and value(notice, "error") is not None:
            found.setdefault(rank, notice)
    return found


def silent_workers(facts: Facts) -> list[int]:
    """Pids that torchrun ended and that printed no line of NCCL: workers that never came so far."""
    known = {last.process.pid for last in facts.job.last_lines}
    ended = {value(notice, "pid") for notice in facts.notices("torch/worker-signalled", "torch/worker-forced")}
    return sorted(pid for pid in ended if pid is not None and pid not in known)
