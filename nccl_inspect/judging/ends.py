"""Processes that ended on their own while others were running, from reports of launchers, shells or themselves."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable, Iterator, Mapping

from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging import exceptions
from nccl_inspect.judging.actors import actors_of, ranks_among
from nccl_inspect.judging.exceptions import RaisedException, Trace
from nccl_inspect.judging.facts import Facts, first_of_each, global_ranks, is_before, once, precedes
from nccl_inspect.judging.life import works_below
from nccl_inspect.judging.remedies import look_up
from nccl_inspect.judging.statements import EXTERNAL, message_of, report_of, value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_failure, usage
from nccl_inspect.util import signals
from nccl_inspect.util.grouping import group_values, sort_by
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.times import line_seconds
from nccl_inspect.util.wording import expand, ranks_word

_CORE = 0x80  # the flag that the kernel adds to the signal in a status if it wrote a core dump
_ALONE = 2  # ranks of which Hydra names one, whichever ended first
EXCEPTION = 1  # the exit code of Python after an exception
_CRASHES = (signal.SIGBUS, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE)
_MPI_ABORT = "MPI_Abort"
GAVE_UP, LOST = "gave up", "lost"
"""Manners of ends: it lost another process, or timed out waiting for it; it is gone for an unknown reason."""
_LAST_WORDS = (
    "torch/watchdog-terminated",
    "torch/async-error",
    "torch/async-error-2-4",
    "torch/cuda-error",
    "torch/nccl-error",
)
_NEAR_THE_END = 3  # lines that launchers and schedulers may print after the last one of a program
_SELECTED = "launchers/ray-memory-selected"
ID_OF_ALL = " /default_pg/0//cuda//0"
"""PyTorch's key under which rank 0 writes the id of the communicator of all ranks."""
INTERRUPTED = "torch/python-interrupted"
"""An interrupt of a process that the line does not name."""


class ProcessEnd(Frozen):
    """A process that ended on its own."""

    ranks: list[int]  # empty if neither the reporter nor NCCL's lines name them
    host: str | None
    pid: int | None
    code: int  # exit code; negative for a signal, 0 if unknown
    notice: Notice
    trace: Trace | None = None  # its output, if an exception ended it
    raised: RaisedException | None = None  # the exception that ended it, if the log shows it
    echo: RaisedException | None = None
    """The exception with which it reports that it lost another process, or was terminated."""
    words: str = ""  # how it ended, if that is more than a code
    is_undecided: bool = False
    """Whether it represents processes that their launcher may have killed: which one ended first is unknown."""
    node: str | None = None  # its host, also where only the report names it
    is_rank_likely: bool = False  # whether no statement says which rank the process is

    @property
    def report(self) -> ProcessEnded:
        """Return the report of its end; empty if only its own output shows it."""
        return report_of(self.notice)

    @property
    def who(self) -> str:
        """Return the process in words."""
        report, pid = self.report, None if self.pid is None else f"pid {self.pid}"
        is_named = self.ranks and not self.is_rank_likely  # else its host and pid say who it is for certain
        who, worker = ranks_word(self.ranks) if is_named else "", value(self.notice, "worker")
        if self.is_undecided:
            who = "a rank"
        elif report.process == "spawned":
            return f"process {value(self.notice, 'index')} of {report.reporter}"
        elif report.process == "training":
            who = "the training"
        elif report.process == "task":
            tasks = str(value(self.notice, "tasks"))
            task = f"task{'' if tasks.isdigit() else 's'} {tasks} of {report.reporter}"
            about = ", ".join(filter(None, (task if self.ranks else "", value(self.notice, "nodes"))))
            who = (who or task) + f" ({about})" * bool(about)
        elif self.is_loader:
            who = "a DataLoader worker" + f" of {who}" * bool(who)
        elif self.is_nameless and report.order == "any" and not worker:
            who = f"a process that {report.reporter} does not name"
        where = ", ".join(filter(None, (self.host, pid)))
        return (who or str(worker or "a process")) + f" ({where})" * bool(where)

    @property
    def is_loader(self) -> bool:
        """Return whether it was not a rank but a DataLoader worker of one."""
        return self.report.process == "loader"

    @property
    def begin(self) -> Notice:
        """Return the first line about it."""
        return self.trace.begin if self.trace else self.notice

    @property
    def is_nameless(self) -> bool:
        """Return whether the process is unidentified."""
        return self.pid is None and not self.ranks and self.report.process not in ("spawned", "task")

    @property
    def vagueness(self) -> int:
        """Return how little a report without a pid says: of three grades, the last one only that a process ended."""
        return int(self.is_nameless) * (1 if value(self.notice, "worker") or self.report.exception else 2)

    @property
    def is_vague(self) -> bool:
        """Return whether a report without a pid may be about one of the processes that others name."""
        return self.pid is None and (not self.ranks or self.report.order == "any")

    @property
    def manner(self) -> str:
        """Return how it ended in a word or two; a signal by its name.

        PyTorch's clean-up after an exception may end with an abort.
        """
        if self.is_undecided:
            return "undecided"
        if self.words and self.raised is None:
            return "words"
        if self.code >= 0 or self.code == -signal.SIGABRT:
            if self.echo is not None:
                return GAVE_UP
            if self.raised or self.trace or (self.report.exception and self.code):
                return "exception"
        return signals.name(-self.code) if self.code < 0 else "code" if self.code else LOST

    @property
    def is_crash(self) -> bool:
        """Return whether it crashed with a signal of its own making."""
        return -self.code in _CRASHES

    @property
    def is_rank_unconfirmed(self) -> bool:
        """Return whether only a launcher names its rank, which may only have lost another: a crash never does."""
        if self.report.process == "any" and self.ranks and self.host is None:
            return True  # by the name of a worker
        is_unconfirmed = self.report.order == "any" and self.raised is None and self.manner != LOST
        return is_unconfirmed and ((bool(self.ranks) and self.report.process == "task") or not self.is_crash)

    @property
    def how(self) -> str:
        """Return how it ended, in words."""
        match self.manner:
            case "words" | "undecided":
                return self.words
            case "gave up":
                return f"gave up: {self.echo.text if self.echo else ''}"
            case "exception":
                return f"ended with {self.raised.text if self.raised else 'an exception'}"
            case "code":
                is_stated = self.code != EXCEPTION or self.report.code is not None
                return f"ended with exit code {self.code}" if is_stated else "ended with an error"
            case "lost":
                return "stopped responding to Ray Train" if self.report.exception else "died, according to Ray"
            case name:
                return f"was ended by {name if name.startswith('SIG') else f'signal {name}'}"


@once
def process_ends(facts: Facts) -> list[ProcessEnd]:
    """Return each process that ended on its own once, as the surest report has it; none that a launcher ended."""
    raised = exceptions.exceptions_of(facts)
    traces = {trace.rank: trace for trace in raised.traces}
    grades = (
        [*_identified_ends(facts), *_spawned_ends(facts)],
        [ProcessEnd([rank], *actors_of(facts).find_certain(rank), EXCEPTION, traces[rank].begin) for rank in traces],
        _ends_of_ray(facts),
        _crashes(facts),
        *([end for end in _without_pid(facts) if end.vagueness == grade] for grade in range(3)),
        _spared_ends(facts),
    )
    ends: list[ProcessEnd] = []
    at: dict[tuple[str, int], int] = {}
    for grade in grades:
        codes = {end.code for end in ends}
        for end in grade:
            names = [*(("rank", rank) for rank in end.ranks), *([("pid", end.pid)] if end.pid is not None else [])]
            place = next((at[name] for name in names if name in at), len(ends))
            if end.is_nameless and end.report.process == "any" and facts.is_over():
                continue  # servers end their workers, too
            if place < len(ends):
                first = ends[place]
                ends[place] = end if end.ranks and not first.ranks else first.with_fields(node=first.node or end.node)
            elif codes and end.is_vague and (end.code in codes or not (end.is_crash or end.code == -signal.SIGKILL)):
                continue
            else:
                ends.append(end)
            at.update(dict.fromkeys(names, place))
    lost = {trace.rank: trace.last for trace in raised.echoes}
    for place, end in enumerate(ends):
        ranks = () if end.is_loader else end.ranks
        trace = next((traces[rank] for rank in ranks if rank in traces), None)
        echo = next((lost[rank] for rank in ranks if lost.get(rank)), end.echo)
        last = trace.last if trace else end.raised
        if not (last or echo):
            echo = _find_failed_start(facts, end) or _find_lost_call(facts, end)
        if end.report.exception and not (last or echo):
            below = exceptions.find_below(facts, end.notice.evidence[0])
            last, echo = (None, below) if below and below.is_loss_of_peer else (below, None)
        ends[place] = end.with_fields(trace=trace, raised=last, echo=echo)
    # The rank of a loader ends after it, a process that lost another after that one, and nobody knows who crashed.
    return sorted(ends, key=lambda end: (not end.is_loader, end.echo is not None, end.is_nameless, end.begin.place))


def _find_failed_start(facts: Facts, end: ProcessEnd) -> RaisedException | None:
    """Return the exception with which a process reports that it did not meet the others in PyTorch's store.

    Without a label it names a rank of its group: one of the job if the key is that of PyTorch's first group, or if
    this rank of the job has started no communicator. An end with the code of an exception is that of the last one
    since the report before, if all since then are of that kind and the rank has started no communicator.
    """
    for notice in filter(_is_unlabelled, facts.with_role("store-failed")):
        rank = value(notice, "rank")
        is_of_job = ID_OF_ALL in notice.message or rank not in facts.job.ranks_seen
        if is_of_job and rank in end.ranks and precedes(notice, end.notice):
            return RaisedException(notice.message, notice.evidence[0], notice)
    if end.code != EXCEPTION or not end.ranks or not set(end.ranks).isdisjoint(facts.job.ranks_seen):
        return None
    report = end.notice.evidence[0]
    earlier = _orders_of_ends(facts).get(report.source, [])
    last = max((order for order in earlier if order < report.order), default=0)  # what is above that led to it
    above = [one for one in exceptions.without_process(facts).get(report.source, []) if is_before(one.line, report)]
    above = [one for one in above if one.line.order > last]
    raised = [one for one in above if one.is_loss_of_peer] or above
    is_of_store = all(one.is_loss_of_peer or (one.notice and "store-failed" in one.notice.roles) for one in above)
    return raised[-1] if raised and is_of_store else None


def _find_lost_call(facts: Facts, end: ProcessEnd) -> RaisedException | None:
    """Return the connection that a process lost, if a call of NCCL failed for that and the program then ended."""
    if end.code != EXCEPTION or end.pid is None:
        return None
    frames = exceptions.frames(facts, exceptions.REMOTE)
    failed = {process for frame in frames for process in frame.processes if process.pid == end.pid}
    if not failed:
        return None
    for notice in facts.notices("nccl/socket-recv-failed", "nccl/socket-closed-by-peer"):
        for process, line in zip(notice.processes, notice.lines, strict=False):
            if process in failed and process.host == end.host:
                return RaisedException(notice.message, line, notice)
    return None


@once
def _orders_of_ends(facts: Facts) -> dict[str, list[int]]:
    """Return the lines of each source that report ends of processes."""
    lines = (line for notice in facts.with_event(ProcessEnded) for line in notice.evidence)
    return group_values(line.position for line in lines)


def _is_unlabelled(notice: Notice) -> bool:
    """Return whether an exception of PyTorch names a rank of its group, and no label in front a rank of the job."""
    return message_of(notice).startswith("torch.distributed.DistBackendError: [")


def _is_identified(event: ProcessEnded) -> bool | None:
    """Return whether a report names the process; None where it may be restarted, or others be killed like it."""
    if event.retries or event.kills_with or event.process in ("spawned", "command"):
        return None
    return event.ended_pid is not None or (event.order != "any" and bool(event.ranks))


def _is_failure(code: int | None) -> bool:
    return bool(code) and code not in EXTERNAL


def _identified_ends(facts: Facts) -> Iterator[ProcessEnd]:
    """Yield the processes that a report names."""
    for notice in facts.with_event(ProcessEnded, lambda event: _is_identified(event) is True):
        event, words = report_of(notice), _words(facts, notice)
        code = EXCEPTION if event.code is None and event.exception else event.code
        if (words or _is_failure(code)) and not _is_foreign(facts, event):
            yield _identify(facts, notice, code or 0).with_fields(words=words)
    yield from (end for end in _spared_ends(facts) if not end.is_undecided)


def _is_foreign(facts: Facts, event: ProcessEnded) -> bool:
    """Return whether it is not a process with NCCL, where that matters, or cannot be distinguished from the others."""
    if event.process != "any":
        return False
    if event.signal == "SIGKILL" and find_kills_of_all(facts):
        return True
    return not actors_of(facts).processes_by_pid(event.ended_pid) and (event.signal == "SIGKILL" or facts.is_over())


@once
def find_kills_of_all(facts: Facts) -> list[Notice]:
    """Return a shell's reports of killed processes, if these are all with NCCL: they were killed from outside."""
    killed = facts.with_event(ProcessEnded, lambda event: event.process == "any" and event.signal == "SIGKILL")
    killed = [notice for notice in killed if actors_of(facts).processes_by_pid(report_of(notice).ended_pid)]
    return killed if {report_of(notice).ended_pid for notice in killed}.issuperset(actors_of(facts).pids) else []


def _words(facts: Facts, notice: Notice) -> str:
    """Return how a process ended, if the report has no code; mpirun also reports a call of MPI_Abort like this."""
    event = report_of(notice)
    if event.how is None or event.signal is not None:
        return ""
    if event.how == _MPI_ABORT:
        return f"called {_MPI_ABORT}" + ("" if event.code is None else f" with error code {event.code}")
    called = facts.with_event(ProcessEnded, lambda one: one.how == _MPI_ABORT and one.ranks == event.ranks)
    if event.order == "first" and event.ranks and called:
        return _words(facts, called[0])
    known = {"improper": "@END_IMPROPER", "waiting": "@END_WAITING"}
    return look_up(known.get(event.how, f"was ended by {event.reporter}: {event.how}"))


def _identify(facts: Facts, notice: Notice, code: int) -> ProcessEnd:
    """Return the process of a report: its rank is that of NCCL's lines with its pid, else that of the report.

    On one host, a process without a line is the rank without a line that has its local rank.
    """
    event, pid, actors = report_of(notice), report_of(notice).ended_pid, actors_of(facts)
    if pid is None and len(event.ranks) == 1:
        host, pid = actors.find_certain(event.ranks[0])
        end = ProcessEnd([*event.ranks], host, pid, code, notice)
    else:
        end = _find_end(facts, notice, code)
        if not (end.ranks or actors.processes_by_pid(pid) or facts.spans_hosts()) and actors.world:
            local = value(notice, "local_rank")
            ranks = [local] if set(range(actors.world)).difference(facts.job.ranks_seen) == {local} else []
            end = end.with_fields(ranks=ranks)
    return end.with_fields(node=end.host or find_node(facts, notice))


def _find_end(facts: Facts, notice: Notice, code: int) -> ProcessEnd:
    """Return the end of the process with the pid of a report; its rank is that of the report if no other is known."""
    event, actors = report_of(notice), actors_of(facts)
    if (last := actors.process_by_pid(event.ended_pid)) is None:
        ranks = [*event.ranks] or ranks_among(filter(None, [actors.actor_by_pid(event.ended_pid)]))
        return ProcessEnd(ranks, None, event.ended_pid, code, notice)
    ranks, (host, pid, *_) = actors.ranks_of(last) or [*event.ranks], last.process
    return ProcessEnd(ranks, host, pid, code, notice, is_rank_likely=actors.is_likely(last.process))


def find_node(facts: Facts, notice: Notice) -> str | None:
    """Return the host that a report names, as NCCL's lines call it where it has some."""
    from nccl_inspect.artifacts import joining  # few jobs have such a report

    name = report_of(notice).node or str(value(notice, "nodes") or value(notice, "node") or "")
    is_one = name not in ("", "localhost") and not {"[", ","}.intersection(name)
    return (joining.hosts_of(tuple(facts.hosts())).match_host(name) or name) if is_one else None


def _spawned_ends(facts: Facts) -> list[ProcessEnd]:
    """Return the processes of torch.multiprocessing.spawn; the only one that it did not have to end is known."""
    own = facts.with_event(ProcessEnded, lambda event: event.process == "spawned")
    forced = {value(notice, "pid") for notice in facts.with_role("ends-worker")}
    left = [last for last in facts.job.last_lines if last.process.pid not in forced]
    who: tuple[list[int], str | None, int | None] = ([], None, None)
    if len(own) == len(left) == len(facts.hosts()) == 1 and forced and left[0].ranks == [value(own[0], "index")]:
        who = left[0].ranks, left[0].process.host, left[0].process.pid
    return [ProcessEnd(*who, report_of(notice).code or 0, notice) for notice in own]


def _crashes(facts: Facts) -> list[ProcessEnd]:
    """Return crashes without a pid; one before the ranks started, or after their end, was not that of a rank."""
    texts = {end.text for end in facts.job.ended_by} if not facts.is_over() else set[str]()
    own = facts.with_event(ProcessEnded, lambda event: _is_identified(event) is False and event.order == "own")
    by_code = {report_of(one).code: one for one in reversed(own) if one.message in texts}
    return [ProcessEnd([], None, None, code, one) for code, one in by_code.items() if code is not None]


@once
def _without_pid(facts: Facts) -> list[ProcessEnd]:
    """Reports of launchers without a pid, for processes without any other report."""
    ends: list[ProcessEnd] = []
    for notice in facts.with_event(ProcessEnded, lambda one: _is_identified(one) is False and one.order != "own"):
        event, code, words = report_of(notice), report_of(notice).code, _words(facts, notice)
        lost = exceptions.exceptions_of(facts).echoes if code == EXCEPTION and not (event.ranks or words) else []
        if event.process == "task":
            if _is_end_of_task(facts, notice):
                ends.append(ProcessEnd(ranks_of_tasks(facts, notice), None, None, code or 0, notice, words=words))
        elif lost:  # each of these ended with that code
            own = [(trace, *actors_of(facts).find_certain(trace.rank)) for trace in lost]
            ends += [ProcessEnd([trace.rank], host, pid, EXCEPTION, trace.begin) for trace, host, pid in own]
        elif words or code is None or _is_failure(code):
            code = EXCEPTION if words or code is None else code
            ends.append(ProcessEnd(list(event.ranks), None, None, code, notice, words=words))
    return ends


# Processes of a launcher that kills the others, and reports these like the one that ended on its own


@once
def _spared_ends(facts: Facts) -> list[ProcessEnd]:
    """Return the processes that ended on their own, of those named by a launcher that kills the others with SIGKILL.

    It may name one that it killed: where that may be, one end stands for all of these.
    """
    named = facts.with_event(ProcessEnded, lambda event: event.kills_with is not None)
    ended = [(notice, code) for notice in named if (code := _code_of(facts, notice))]
    own = [(notice, code) for notice, code in ended if code != -signal.SIGKILL]
    if own or not ended:
        return [_identify(facts, notice, code) for notice, code in own if code not in EXTERNAL]
    killed = [notice for notice, _ in ended]
    unknown = ProcessEnd([], None, None, -signal.SIGKILL, killed[0], words=look_up("@END_UNDECIDED"), is_undecided=True)
    world = max((comm.nranks for comm in facts.job.communicators), default=0)
    if not all(report_of(notice).ranks for notice in killed) or world <= _ALONE:
        return [unknown]  # MPICH names one of all
    if len(killed) == 1:
        return [_identify(facts, killed[0], -signal.SIGKILL)]  # all others exited on their own: none was killed
    left = set(range(world)).difference(*(event.ranks for event in map(report_of, killed)))
    if len(left) != 1 or any(left & global_ranks(comm, comm.ended) for comm in facts.job.communicators):
        return [unknown]
    return [ProcessEnd([*left], *actors_of(facts).find_certain(min(left)), 0, killed[0], words=look_up("@END_SPARED"))]


def _code_of(facts: Facts, notice: Notice) -> int | None:
    """Return the exit code in a report, negative for a signal; None if unknown.

    A launcher that kills the others (Hydra) prints the number of a signal as an exit code, too. Its last line has the
    signal of all statuses combined bit by bit, so that processes killed with SIGKILL change it (mpiexec.c).
    """
    event = report_of(notice)
    if event.kills_with is None or event.signal is not None or event.code is None:
        return event.code
    summary = status_summary(facts, notice)
    whole = value(summary, "signal_number") if summary else None
    number = event.code & ~_CORE
    is_signal = whole == number or signal.SIGKILL != whole == number | signal.SIGKILL
    return -number if is_signal or event.code == signal.SIGKILL else signals.exit_code(event.code)


def status_summary(facts: Facts, notice: Notice) -> Notice | None:
    """Return the last line of such a report, which sums up how all processes ended."""
    lines = (line for line in facts.with_role("end-report") if value(line, "signal_number") is not None)
    return next((line for line in lines if precedes(notice, line)), None)


@once
def terminations(facts: Facts) -> list[Notice]:
    """Return what such a launcher reports of processes that were ended from outside, if none ended on its own."""
    named = facts.with_event(ProcessEnded, lambda event: event.kills_with is not None)
    ended = [notice for notice in named if _code_of(facts, notice) in EXTERNAL]
    if not ended or any(not end.is_undecided for end in _spared_ends(facts)):
        return []
    return [*facts.with_role("end-report"), *ended]


# Tasks: processes by their numbers, as schedulers start them


def _tasks_in(notice: Notice) -> set[int]:
    """Return the tasks of a list in Slurm's notation, ``0-1,3``; empty for anything else."""
    return {int(task) for task in expand(f"[{value(notice, 'tasks')}]") if task.isdecimal()}


def ranks_of_tasks(facts: Facts, notice: Notice) -> list[int]:
    """Return the ranks that tasks most likely are; none if a task may have launched several.

    A task is a rank if each process has one rank, and there is more than one task per host.
    """
    tasks = _tasks_in(notice)
    return sorted(tasks) if tasks <= _ranks_that_are_tasks(facts) else []


@once
def _ranks_that_are_tasks(facts: Facts) -> set[int]:
    processes = facts.job.last_lines
    is_each_one = bool(processes) and all(len(last.ranks) == 1 for last in processes)
    tasks = {task for one in (*task_ends(facts), *facts.with_role("others-run")) for task in _tasks_in(one)}
    ranks = {rank for last in processes for rank in last.ranks}
    is_task = is_each_one and tasks <= ranks and max(tasks, default=0) >= len(facts.hosts())
    return ranks if is_task else set()


def task_ends(facts: Facts) -> list[Notice]:
    """Return the reports about tasks that ended."""
    return facts.with_event(ProcessEnded, lambda event: event.process == "task")


def _is_end_of_task(facts: Facts, notice: Notice) -> bool:
    """Return whether a report shows that tasks ended on their own, or were killed before the job was ended."""
    event = report_of(notice)
    if event.how == "waiting":
        # They had ended when their launcher stopped waiting for the others; if all is over they had done their work.
        return bool(facts.with_role("others-run")) and not facts.is_over()
    return _is_failure(event.code) and (not event.is_external or id(notice) in _killed_first(facts))


@once
def _killed_first(facts: Facts) -> set[int]:
    """Return the reports of tasks that were killed while the others continued, as far as the order of lines shows."""
    forced, stated = facts.with_role("forced-end", "others-run"), facts.with_role("reason-stated")
    if any(job_failure.reason(notice.event) or value(notice, "signal") for notice in stated):
        return set()  # who ends a job and who reports its tasks do not synchronize: their order proves nothing
    first = first_of_each(notice.evidence[0] for notice in forced)
    lines = [(notice, notice.evidence[0]) for notice in task_ends(facts) if report_of(notice).signal == "SIGKILL"]
    earliest = [notice for notice, line in lines if line.order < first.get(line.source, line.order + 1)]
    killed = {task for notice in earliest for task in _tasks_in(notice)}
    world = max((comm.nranks for comm in facts.job.communicators), default=0)
    return set(map(id, earliest)) if len(killed) == 1 or 0 < len(killed) < world else set()


# Workers of Ray, which may restart what failed: only final failures count


@once
def _ends_of_ray(facts: Facts) -> list[ProcessEnd]:
    """Return the workers that ended a job whose launcher may start them anew, if it gave up for good."""
    actors = actors_of(facts)
    given_up = facts.with_event(ProcessEnded, lambda event: event.retries and event.process == "training")
    by_driver = facts.with_event(ProcessEnded, lambda event: event.retries and event.process == "unknown")
    workers = facts.with_event(ProcessEnded, lambda e: e.retries and e.process not in ("training", "unknown"))
    tasks = facts.with_event(ProcessEnded, is_of_task)
    # The driver may have caught exceptions of processes without NCCL.
    own = tasks if facts.job.spared else [task for task in tasks if actors.processes_by_pid(report_of(task).ended_pid)]
    raises, retries = _lines(facts.with_role("gives-up")), _lines(facts.with_role("restart"))
    is_raised = bool(given_up or ([*by_driver, *own] if not facts.is_over() else ())) and not retries
    if not (raises or is_raised):
        return []
    lost, told, empty = list[ProcessEnd](), list[ProcessEnd](), list[ProcessEnd]()
    for notice in workers:
        event = report_of(notice)
        if value(notice, "lost") is not None:
            continue  # a task that lost another process
        is_lost = event.how is not None or not event.exception
        # What was decided stands above the exceptions, and below the words of the raylet.
        borders = raises if event.exception else retries
        lines = [line for line in notice.evidence if not any(is_before(line, border) for border in borders)]
        texts = [raised for line in lines if (raised := exceptions.find_below(facts, line)) is not None]
        code = (event.code or 0) if is_lost else EXCEPTION
        who = [([rank], *(actors.find_certain(rank) if texts else (None, None))) for rank in event.ranks]
        ends = [ProcessEnd(*process, code, notice) for process in who] or [_find_end(facts, notice, code)]
        ends = ends if lines else []
        if is_lost:
            lost += ends
        elif not texts:
            empty += ends
        elif not any(map(exceptions.is_of_nccl, texts)):  # other rules report these
            told += [end.with_fields(**{"echo" if texts[0].is_loss_of_peer else "raised": texts[0]}) for end in ends]
    ranks, by_pid = {tuple(end.ranks) for end in lost if end.ranks}, [end for end in lost if not end.ranks]
    if len(ranks) == len(by_pid) == 1:  # a single one of each is the same process
        lost = [by_pid[0].with_fields(ranks=[*min(ranks)])]
    found = [*lost, *(told or empty)]
    found = [end for end in found if end.ranks] or found  # others are not ranks, and Ray may have restarted them
    nobody = [*((0, one, "") for one in by_driver), *((EXCEPTION, one, look_up("@END_TRAINING")) for one in given_up)]
    return found or [ProcessEnd([], None, None, code, one, words=words) for code, one, words in nobody[:1]]


def ranks_killed_by_monitor(facts: Facts) -> set[int]:
    """Return the ranks that Ray's memory monitor killed."""
    actors = actors_of(facts)
    killed = (actors.process_by_pid(value(notice, "pid")) for notice in facts.notices(_SELECTED))
    return {rank for last in killed if last for rank in actors.ranks_of(last)}


def is_of_task(event: ProcessEnded) -> bool:
    """Return whether it is an exception of a task or an actor of Ray."""
    return event.retries and event.exception and event.ended_pid is not None


def _lines(notices: Iterable[Notice]) -> list[Evidence]:
    return [line for notice in notices for line in notice.evidence]


# Their order


def since_start(facts: Facts, notices: Collection[Notice]) -> list[Notice]:
    """Return the notices without those before the communicators of their source: they are of something earlier."""
    if not notices:
        return []
    starts = first_of_each(line for comm in facts.job.communicators for line in comm.evidence[:1])
    return [notice for notice in notices if notice.evidence[0].order > starts.get(notice.evidence[0].source, 0)]


def sort_by_time(ends: list[ProcessEnd]) -> tuple[list[ProcessEnd], bool]:
    """Return the ends in the order of their times, and whether these are missing: lines of two files have no order."""
    if len({end.begin.evidence[0].source for end in ends}) == 1:
        return ends, False
    ordered = sort_by(ends, lambda end: line_seconds(end.notice.evidence[0].text))
    return ordered or ends, not ordered


def last_words(facts: Facts, ends: Iterable[ProcessEnd]) -> Mapping[int, Notice]:
    """Return the errors that PyTorch printed for ranks that ended."""
    ranks = {rank for end in ends for rank in end.ranks}
    by_rank: dict[int, Notice] = {}
    for notice in facts.notices(*_LAST_WORDS):
        rank = value(notice, "global_rank")
        if rank in ranks and value(notice, "error") is not None:
            by_rank.setdefault(rank, notice)
    return by_rank


def silent_workers(facts: Facts) -> list[int]:
    """Return the pids that a launcher ended and that printed no line of NCCL: workers that never got that far."""
    ended = {value(notice, "pid") for notice in facts.with_role("ends-worker")}
    return sorted(pid for pid in ended if pid is not None and pid not in actors_of(facts).pids)


def is_last(facts: Facts, line: Evidence) -> bool:
    """Return whether only lines of launchers and schedulers follow a line in its source."""
    last = next(source.lines for source in facts.job.sources if source.name == line.source)
    if last - line.order > _NEAR_THE_END:
        return False
    lines = [*_lines(facts.job.notices), *facts.job.ended_by]
    orders = {entry.order for entry in lines if entry.source == line.source}
    return orders.issuperset(range(line.order + 1, last + 1))


def has_ended(facts: Facts, notice: Notice) -> bool:
    """Return whether an exception ended its rank, or may have: before 2.1 PyTorch does not name the rank."""
    if exceptions.is_caught(facts, notice) or works_below(facts, [notice]):
        return False
    here = notice.evidence[-1]
    is_end = is_last(facts, here) or exceptions.is_given_up_below(facts, here)
    return is_proved(facts, notice) or is_end


def is_pasted(facts: Facts, notice: Notice) -> bool:
    """Return whether the rest of a message, or the words of who pasted it, may follow an exception.

    NCCL prints nothing there, and the input ends soon; that a program continued looks the same.
    """
    is_open = not exceptions.is_caught(facts, notice) and not works_below(facts, [notice])
    return is_open and not facts.job.last_lines and not exceptions.continues(facts, None, notice)


def is_finished(facts: Facts, notices: Iterable[Notice]) -> bool:
    """Return whether all work was done: communicators may be aborted at the normal end, but also after a hang."""
    is_sound = all(comm.state == "destroyed" for comm in usage.used_communicators(facts.job))
    is_sound = is_sound or not any(exceptions.is_used_below(facts, notice) for notice in notices)
    return is_sound and facts.is_over() and not process_ends(facts)


def is_proved(facts: Facts, notice: Notice) -> bool:
    """Return whether the log shows that a rank, or the job, has ended; else an exception may only be its last line."""
    ended = facts.job.ended_by or facts.job.failed or process_ends(facts)
    return id(notice) in exceptions.exceptions_of(facts).fatal or bool(ended)


@once
def first_signal(facts: Facts) -> Evidence | None:
    """Return the first line by which somebody ended the job, or processes of it; None where there is none."""
    told = [*facts.with_role("forced-end"), *terminations(facts)]
    ends = [notice for notice in since_start(facts, told) if not isinstance(notice.event, ProcessEnded)]
    lines = [notice.evidence[0] for notice in ends if not is_of_helper(facts, notice)]
    return next(iter(sort_by(lines, lambda line: line_seconds(line.text)) or lines), None)


def is_of_helper(facts: Facts, notice: Notice) -> bool:
    """Return whether the process that was interrupted is only a helper: the job continued."""
    return notice.production == INTERRUPTED and (facts.is_over() or not is_last(facts, notice.evidence[0]))
