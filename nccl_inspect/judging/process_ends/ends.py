"""Processes that ended on their own while others were running, from reports of launchers, shells or themselves."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Mapping, Sequence

from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging.facts import Facts, global_ranks, once
from nccl_inspect.judging.line_order import first_of_each, precedes
from nccl_inspect.judging.process_ends import exceptions, ray
from nccl_inspect.judging.process_ends.exceptions import RaisedException, Trace
from nccl_inspect.judging.process_ends.process_end import ProcessEnd, by_pid, place, with_pid
from nccl_inspect.judging.statements import EXTERNAL, report_of, value
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_end
from nccl_inspect.util import signals
from nccl_inspect.util.patterns import later

_MOST = 100
"""The most lines of launchers to examine of one kind: more than a job has."""
_MOST_TASKS = 1 << 17
"""The most tasks to count: more than a job has."""
_CORE = 0x80
"""The flag that the kernel adds to the signal in a status if it wrote a core dump."""
_ALONE = 2
"""Ranks of which Hydra names one, whichever ended first."""
_TIME = later(r"\b[EWF](\d{4} \d\d:\d\d:\d\d\.\d+) ")
EXCEPTION = 1
"""The exit code of Python after an exception."""
_WORDS = {
    "improper": "exited improperly, according to mpirun: without MPI_Finalize, or by a call of abort",
    "waiting": "ended while others were still running, and srun terminated these (--wait)",
}
"""How a process ended, by the word of the grammar."""
_MPI_ABORT = "MPI_Abort"
_LEFT = "exited on its own: it is the only one that Hydra does not report as killed"
_KILLED_OTHERS = "ended, and Hydra (mpiexec) killed the others: the log does not show which one ended first"
_LAST_WORDS = (
    "torch/watchdog-terminated",
    "torch/async-error",
    "torch/async-error-2-4",
    "torch/cuda-error",
    "torch/nccl-error",
)


@once
def process_ends(facts: Facts) -> list[ProcessEnd]:
    """Each process once, in the order of its source, without those that a launcher ended."""
    traces = exceptions.exceptions_of(facts).traces
    ends = [end.with_fields(trace=_trace_of(end, traces)) for end in (*_identified(facts), *_spawned(facts))]
    ranks = {rank for end in ends for rank in end.ranks}
    ends += [_of_trace(facts, trace) for trace in traces if trace.rank not in ranks]
    ends += _of_ray(facts, ends)
    ends += _crashed_tasks(facts, ends) if ends else []
    ends = [end.with_fields(raised=end.trace.last) if end.trace else end for end in ends]
    ends = _with_echoes(facts, ends)
    # The rank of a loader ends after it, and a process that lost another after that one.
    ends.sort(key=lambda end: (not end.is_loader, end.echo is not None, end.begin.place))
    ends += _nameless(facts, {end.code for end in ends})
    return ends or _with_echoes(facts, _without_pid(facts)) or [end for end in _spared(facts) if end.is_undecided]


def _with_echoes(facts: Facts, ends: list[ProcessEnd]) -> list[ProcessEnd]:
    """The ends, with the exceptions of ranks that lost another process."""
    lost = {trace.rank: trace.last for trace in exceptions.exceptions_of(facts).echoes}
    own = [filter(None, (lost.get(rank) for rank in end.ranks if not end.is_loader)) for end in ends]
    return [end.with_fields(echo=next(some, end.echo)) for end, some in zip(ends, own, strict=True)]


def _crashed_tasks(facts: Facts, others: list[ProcessEnd]) -> list[ProcessEnd]:
    """Tasks of Slurm that crashed or were killed first, without any other report."""
    codes, ranks = {end.code for end in others}, {rank for end in others for rank in end.ranks}
    tasks = [end for end in _without_pid(facts) if end.report.process == "task" and end.is_crash_or_kill]
    return [end for end in tasks if end.code not in codes and ranks.isdisjoint(end.ranks)]


class _Processes:
    """Processes in the order of their reports: one with two reports counts once, even if one of these has no pid."""

    def __init__(self) -> None:
        self.all: list[ProcessEnd] = []
        self._at: dict[tuple[str, tuple[int, ...]], int] = {}

    def add(self, end: ProcessEnd) -> None:
        """Add a process, or its rank if that was unknown."""
        keys: list[tuple[str, tuple[int, ...]]] = [("pid", (end.pid,))] if end.pid is not None else []
        keys += [("ranks", tuple(end.ranks))] if end.ranks else []
        at = next((self._at[key] for key in keys if key in self._at), None)
        if at is None:
            at = len(self.all)
            self.all.append(end)
        elif end.ranks and not self.all[at].ranks:  # the process itself does not report its rank
            self.all[at] = end
        self._at.update(dict.fromkeys(keys, at))


def _is_own(event: ProcessEnded) -> bool:
    """Whether the reporter neither restarts the process nor kills others with the same signal."""
    return not (event.retries or event.kills_with or event.process in ("spawned", "command"))


def _is_identified(event: ProcessEnded) -> bool:
    """Whether a report has the pid of the process, or else its rank."""
    return _is_own(event) and (event.ended_pid is not None or (event.order != "any" and bool(event.ranks)))


def _is_unidentified(event: ProcessEnded) -> bool:
    return _is_own(event) and not _is_identified(event)


def _identified(facts: Facts) -> list[ProcessEnd]:
    """Processes that a report names."""
    processes = _Processes()
    for notice in facts.with_event(ProcessEnded, _is_identified):
        code, words = report_of(notice).code, _words(facts, notice)
        if (words or _is_failure(code)) and not _is_foreign(facts, report_of(notice)):
            processes.add(_of_process(facts, notice, code or 0).with_fields(words=words))
    for end in _spared(facts):
        if not end.is_undecided:
            processes.add(end)
    return processes.all


@once
def _spared(facts: Facts) -> list[ProcessEnd]:
    """Processes that ended on their own, of those that a launcher names which kills the others with SIGKILL.

    It may name one that it killed: where that may be, one end stands for all of these.
    """
    named = facts.with_event(ProcessEnded, lambda event: event.kills_with is not None)
    ended = [(notice, code) for notice in named if (code := code_of(facts, notice))]
    own = [(notice, code) for notice, code in ended if code != -signal.SIGKILL]
    if own or not ended:
        return [_of_process(facts, notice, code) for notice, code in own if code not in EXTERNAL]
    killed = [notice for notice, _ in ended]
    unknown = ProcessEnd([], None, None, -signal.SIGKILL, killed[0], words=_KILLED_OTHERS, is_undecided=True)
    world = max((comm.nranks for comm in facts.job.communicators), default=0)
    if not all(report_of(notice).ranks for notice in killed) or world <= _ALONE:
        return [unknown]  # MPICH names one of all
    if len(killed) == 1:
        return [_of_process(facts, killed[0], -signal.SIGKILL)]  # all others exited on their own: none was killed
    pids = {last.process.pid: last.ranks for last in facts.job.last_lines}
    events = map(report_of, killed)
    left = set(range(world)).difference(*(pids.get(event.ended_pid or 0) or event.ranks for event in events))
    in_order_ended = any(left & global_ranks(comm, comm.ended) for comm in facts.job.communicators)
    if len(left) != 1 or len(killed) < world - 1 or in_order_ended:
        return [unknown]
    return [ProcessEnd([*left], *place(facts, min(left)), 0, killed[0], words=_LEFT)]


def code_of(facts: Facts, notice: Notice) -> int | None:
    """Return the exit code in a report, negative for a signal; None if unknown.

    Hydra prints the number of a signal as an exit code, too. Its last line has the signal of all processes' statuses
    combined bit by bit, so that processes killed with SIGKILL change it (mpiexec.c, pmiserv_cb.c).
    """
    event = report_of(notice)
    if event.kills_with is None or event.signal is not None or event.code is None:
        return event.code
    summary = status_summary(facts, notice)
    whole = value(summary, "signal_number") if summary else None
    number = event.code & ~_CORE
    is_signal = whole == number or signal.SIGKILL != whole == number | signal.SIGKILL
    return -number if is_signal or event.code == signal.SIGKILL else signals.from_status(event.code)


def status_summary(facts: Facts, notice: Notice) -> Notice | None:
    """Return Hydra's last line, which summarizes how all processes ended."""
    return next((line for line in facts.notices("launchers/mpi-hydra-string")[:_MOST] if precedes(notice, line)), None)


@once
def terminations(facts: Facts) -> list[Notice]:
    """Return what Hydra reports of processes that were ended with Ctrl-C or SIGTERM, if none ended on its own."""
    named = facts.with_event(ProcessEnded, lambda event: event.kills_with is not None)
    ended = [notice for notice in named if code_of(facts, notice) in EXTERNAL]
    if not ended or any(not end.is_undecided for end in _spared(facts)):
        return []
    return [*facts.notices("launchers/mpi-hydra"), *ended, *facts.notices("launchers/mpi-hydra-string")]


def _is_failure(code: int | None) -> bool:
    return code is not None and code != 0 and code not in EXTERNAL


def _is_foreign(facts: Facts, event: ProcessEnded) -> bool:
    """Whether it is not a process with NCCL, where that matters, or cannot be distinguished from the others."""
    if event.process != "any":
        return False
    if event.signal == "SIGKILL" and _are_all_killed(facts):
        return True
    return not with_pid(facts, event.ended_pid) and (event.signal == "SIGKILL" or facts.is_over())


@once
def _are_all_killed(facts: Facts) -> bool:
    """Whether a shell reports all processes with NCCL as killed: then they were killed from outside."""
    killed = facts.with_event(ProcessEnded, lambda event: event.process == "any" and event.signal == "SIGKILL")
    return {report_of(notice).ended_pid for notice in killed}.issuperset(by_pid(facts))


def _words(facts: Facts, notice: Notice) -> str:
    """Return how a process ended, if the report has no code; mpirun also reports a call of MPI_Abort like this."""
    event = report_of(notice)
    if event.how is None or event.signal is not None:
        return ""
    if event.how == _MPI_ABORT:
        return f"called {_MPI_ABORT}" + ("" if event.code is None else f" with error code {event.code}")
    called = _aborts(facts).get(tuple(event.ranks)) if event.order == "first" else None
    if called is not None:
        return _words(facts, called)
    return _WORDS.get(event.how) or f"was ended by {event.reporter}: {event.how}"


@once
def _aborts(facts: Facts) -> dict[tuple[int, ...], Notice]:
    """Calls of MPI_Abort, by rank."""
    called = facts.with_event(
        ProcessEnded, lambda event: event.how is not None and event.order == "any" and bool(event.ranks)
    )
    return {report_of(notice).ranks: notice for notice in reversed(called)}


def _of_process(facts: Facts, notice: Notice, code: int) -> ProcessEnd:
    """The process of a report: its rank is that of NCCL's lines with its pid, else that of the report."""
    event = report_of(notice)
    ranks = list(event.ranks)
    if event.ended_pid is None and len(ranks) == 1:
        return ProcessEnd(ranks, *place(facts, ranks[0]), code, notice)
    with_same_pid = with_pid(facts, event.ended_pid)
    if len(with_same_pid) == 1:
        return ProcessEnd(with_same_pid[0].ranks, with_same_pid[0].process.host, event.ended_pid, code, notice)
    return ProcessEnd(ranks, None, event.ended_pid, code, notice)


def _of_ray(facts: Facts, others: list[ProcessEnd]) -> list[ProcessEnd]:
    """Workers of Ray without any other report."""
    pids = {end.pid for end in others if end.pid is not None}
    ranks = {rank for end in others for rank in end.ranks}
    return [
        end
        for end in ray.ends(facts)
        if end.pid not in pids
        and not (end.ranks and ranks.issuperset(end.ranks))
        and (not others or end.ranks or end.pid is not None)
    ]


def _spawned(facts: Facts) -> list[ProcessEnd]:
    """Processes of torch.multiprocessing.spawn, without those that only report the loss of another."""
    ends = []
    for notice, raised in _of_spawn(facts):
        code = report_of(notice).code
        if code is not None and not (raised and raised.is_loss_of_peer):
            ends.append(ProcessEnd([], None, None, code, notice, raised=raised))
    return ends


@once
def _of_spawn(facts: Facts) -> list[tuple[Notice, RaisedException | None]]:
    """Reports of torch.multiprocessing.spawn, with the exception of the process."""
    spawned = facts.with_event(ProcessEnded, lambda event: event.process == "spawned")[:_MOST]
    return [
        (notice, exceptions.find_below(facts, notice.evidence[0]) if report_of(notice).exception else None)
        for notice in spawned
    ]


def loss_exceptions(facts: Facts) -> list[Notice]:
    """Exceptions with which processes report that they lost another one."""
    own = [
        trace.begin for trace in exceptions.exceptions_of(facts).echoes if trace.last and not trace.last.is_termination
    ]
    return [*own, *(notice for notice, raised in _of_spawn(facts) if raised and raised.is_loss_of_peer)]


def _of_trace(facts: Facts, trace: Trace) -> ProcessEnd:
    """A rank whose end only its own traceback shows."""
    return ProcessEnd([trace.rank], *place(facts, trace.rank), EXCEPTION, trace.begin, trace)


def _trace_of(end: ProcessEnd, traces: Iterable[Trace]) -> Trace | None:
    mine = (trace for trace in traces if trace.rank in end.ranks)
    return None if end.is_loader else next(mine, None)


def _nameless(facts: Facts, codes: set[int]) -> list[ProcessEnd]:
    """Crashes without a pid; a process that crashed before the ranks started, or after their end, was not a rank."""
    if facts.is_over():
        return []
    texts = {end.text for end in facts.job.ended_by}
    by_code: dict[int, ProcessEnd] = {}
    for notice in facts.with_event(ProcessEnded, lambda event: _is_unidentified(event) and event.order == "own"):
        code = report_of(notice).code
        if code is not None and code not in codes and notice.message in texts:
            by_code.setdefault(code, ProcessEnd([], None, None, code, notice))
    return list(by_code.values())


def _without_pid(facts: Facts) -> list[ProcessEnd]:
    """Reports of launchers without a pid, for processes without any other report."""
    ends: list[ProcessEnd] = []
    for notice in facts.with_event(ProcessEnded, lambda event: _is_unidentified(event) and event.order != "own"):
        event, code, words = report_of(notice), report_of(notice).code, _words(facts, notice)
        lost = exceptions.exceptions_of(facts).echoes if code == EXCEPTION and not (event.ranks or words) else []
        if event.process == "task":
            if _is_end_of_task(facts, notice):
                ends.append(ProcessEnd(ranks_of_tasks(facts, notice), None, None, code or 0, notice, words=words))
        elif lost:  # each of these ended with that code
            ends += [_of_trace(facts, trace).with_fields(trace=None, echo=trace.last) for trace in lost]
        elif words or code is None:
            ends.append(ProcessEnd(list(event.ranks), None, None, EXCEPTION, notice, words=words))
        elif _is_failure(code):
            ends.append(ProcessEnd(list(event.ranks), None, None, code, notice))
    return ends


# Tasks of srun


def numbers(tasks: str) -> set[int]:
    """Return the tasks of a list in Slurm's notation, ``0-1,3``; empty for anything else."""
    result: set[int] = set()
    for part in tasks.split(","):
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit()) or int(last or first) - int(first) > _MOST_TASKS:
            return set()
        result.update(range(int(first), int(last or first) + 1))
    return result


def ranks_of_tasks(facts: Facts, notice: Notice) -> list[int]:
    """Return the ranks that tasks most likely are; none if a task may have launched several.

    A task is a rank if each process has one rank, and there is more than one task per host.
    """
    tasks = numbers(str(value(notice, "tasks")))
    return sorted(tasks) if tasks <= _ranks_that_are_tasks(facts) else []


@once
def _ranks_that_are_tasks(facts: Facts) -> set[int]:
    processes = facts.job.last_lines
    is_each_one = bool(processes) and all(len(last.ranks) == 1 for last in processes)
    lines = [*task_ends(facts), *facts.notices("launchers/slurm-tasks")][:_MOST]
    tasks = {task for notice in lines for task in numbers(str(value(notice, "tasks")))}
    ranks = {rank for last in processes for rank in last.ranks}
    is_task = is_each_one and tasks <= ranks and max(tasks, default=0) >= len(facts.hosts())
    return ranks if is_task else set()


def task_ends(facts: Facts) -> list[Notice]:
    """Return the reports about tasks that ended."""
    return facts.with_event(ProcessEnded, lambda event: event.process == "task")


def _is_end_of_task(facts: Facts, notice: Notice) -> bool:
    """Whether a report shows that tasks ended on their own, or were killed before the job was ended."""
    event = report_of(notice)
    if event.how == "waiting":
        # They had ended when srun stopped waiting for the others; if all is over they had done their work.
        return bool(facts.notices("launchers/slurm-first-exit")) and not facts.is_over()
    if not _is_failure(event.code) or not event.code:
        return False
    return not event.is_external or id(notice) in _killed_first(facts)


@once
def _killed_first(facts: Facts) -> set[int]:
    """Return the reports of tasks that were killed while the others continued, as far as the lines of srun show."""
    by_signal = facts.notices("launchers/slurm-cancelled")
    if any(job_end.reason(notice.event) or value(notice, "signal") for notice in by_signal):
        return set()  # slurmstepd and srun do not synchronize: the order of their lines proves nothing
    ends = [
        notice for notice in facts.errors() if job_end.is_forced(notice.event) and report_of(notice).process != "task"
    ]
    ends += facts.notices("launchers/slurm-first-exit", "launchers/slurm-step-aborted", "launchers/slurm-terminating")
    first = first_of_each(notice.evidence[0] for notice in [*ends, *by_signal])
    lines = [(notice, notice.evidence[0]) for notice in task_ends(facts) if report_of(notice).signal == "SIGKILL"]
    earliest = [notice for notice, line in lines if line.order < first.get(line.source, line.order + 1)]
    killed = {task for notice in earliest[:_MOST] for task in numbers(str(value(notice, "tasks")))}
    world = max((comm.nranks for comm in facts.job.communicators), default=0)
    return set(map(id, earliest)) if len(killed) == 1 or 0 < len(killed) < world else set()


# Their order


def since_start(facts: Facts, notices: Collection[Notice]) -> list[Notice]:
    """The notices without those that precede the communicators of their source and so belong to something earlier."""
    if not notices:
        return []
    starts = first_of_each(line for comm in facts.job.communicators for line in comm.evidence[:1])
    return [notice for notice in notices if notice.evidence[0].order > starts.get(notice.evidence[0].source, 0)]


def is_unordered(ends: Sequence[ProcessEnd]) -> bool:
    """Whether it is unknown which of several processes ended first: lines of different sources have no order."""
    sources = {end.begin.evidence[0].source for end in ends}
    return len(sources) > 1 and not all(map(_time_of, ends))


def in_order(ends: list[ProcessEnd]) -> list[ProcessEnd]:
    """The ends in the order of their times, if lines of several sources have them; else in the given order."""
    sources = {end.begin.evidence[0].source for end in ends}
    if len(sources) < 2 or is_unordered(ends):
        return ends
    return sorted(ends, key=_time_of)


def _time_of(end: ProcessEnd) -> str:
    """Return the time in the prefix of PyTorch's logger, ``1121 16:35:11.771000``; empty if there is none."""
    match = _TIME.search(end.notice.message)
    return match[1] if match else ""


def last_words(facts: Facts, ends: Iterable[ProcessEnd]) -> Mapping[int, Notice]:
    """The errors that PyTorch printed for ranks that ended."""
    ranks = {rank for end in ends for rank in end.ranks}
    by_rank: dict[int, Notice] = {}
    for notice in facts.notices(*_LAST_WORDS):
        rank = value(notice, "global_rank")
        if rank in ranks and value(notice, "error") is not None:
            by_rank.setdefault(rank, notice)
    return by_rank


def silent_workers(facts: Facts) -> list[int]:
    """Pids that torchrun ended and that printed no line of NCCL: workers that never got that far."""
    pids = {last.process.pid for last in facts.job.last_lines}
    ended = {value(notice, "pid") for notice in facts.notices("torch/worker-signalled", "torch/worker-forced")}
    return sorted(pid for pid in ended if pid is not None and pid not in pids)
