"""A process that ended on its own while others were still running."""

from __future__ import annotations

import signal

from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.process_ends.exceptions import RaisedException, Trace
from nccl_inspect.judging.statements import report_of, value
from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice
from nccl_inspect.util import signals
from nccl_inspect.util.grouping import grouped
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import ranks_word

_CRASHES = (signal.SIGBUS, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE)


@frozen
class ProcessEnd(Frozen):
    """A process that ended on its own."""

    ranks: list[int]
    """Empty if neither the reporter nor NCCL's lines name them."""
    host: str | None
    pid: int | None
    code: int
    """Exit code; negative for a signal, 0 if unknown."""
    notice: Notice
    trace: Trace | None = None
    """Its output, if an exception ended it."""
    raised: RaisedException | None = None
    """The exception that ended it, if the log shows it."""
    echo: RaisedException | None = None
    """The exception with which it reports that it lost another process, or was terminated."""
    words: str = ""
    """How it ended, if that is more than a code."""
    is_undecided: bool = False
    """Whether it represents processes that their launcher may have killed: which one ended first is unknown."""

    @property
    def report(self) -> ProcessEnded:
        """The report of its end; empty if only its own output shows it."""
        return report_of(self.notice)

    @property
    def who(self) -> str:
        """The process in words."""
        parts = [*([self.host] if self.host else []), *([f"pid {self.pid}"] if self.pid is not None else [])]
        return self._who + (f" ({', '.join(parts)})" if parts else "")

    @property
    def _who(self) -> str:
        report = self.report
        if self.is_undecided:
            return "a rank"
        if report.process == "spawned":
            return f"process {value(self.notice, 'index')} of {report.reporter}"
        if report.process == "training":
            return "the training"
        if report.process == "task":
            return self._task
        if self.is_nameless and report.order == "any":
            return f"a process that {report.reporter} does not name"
        who = ranks_word(self.ranks) if self.ranks else "a process"
        if self.is_loader:
            return "a DataLoader worker" + (f" of {who}" if self.ranks else "")
        return who

    @property
    def _task(self) -> str:
        tasks, nodes = str(value(self.notice, "tasks")), value(self.notice, "nodes")
        task = f"task{'' if tasks.isdigit() else 's'} {tasks} of {self.report.reporter}"
        if self.ranks:
            return f"{ranks_word(self.ranks)} ({task}{', ' + nodes if nodes else ''})"
        return task + (f" ({nodes})" if nodes else "")

    @property
    def is_loader(self) -> bool:
        """Whether it was not a rank but a DataLoader worker of one."""
        return self.report.process == "loader"

    @property
    def begin(self) -> Notice:
        """The first line about it."""
        return self.trace.begin if self.trace else self.notice

    @property
    def is_nameless(self) -> bool:
        """Whether the process is unidentified."""
        return self.pid is None and not self.ranks and self.report.process not in ("spawned", "task")

    @property
    def is_by_exception(self) -> bool:
        """Whether an exception ended it; PyTorch's clean-up after one may end with an abort."""
        is_stated = self.report.exception and self.echo is None and not self.is_cause_unknown
        is_raised = self.raised is not None or self.trace is not None or is_stated
        return is_raised and (self.code >= 0 or self.code == -signal.SIGABRT)

    @property
    def is_crash(self) -> bool:
        """Whether it crashed with a signal of its own making."""
        return -self.code in _CRASHES

    @property
    def is_crash_or_kill(self) -> bool:
        """Whether it crashed or was killed, which, unlike other ends, is never an effect of a failed NCCL call."""
        return self.is_crash or self.code == -signal.SIGKILL

    @property
    def is_cause_unknown(self) -> bool:
        """Whether the process is gone for an unknown reason."""
        return self.code == 0 and self.raised is None and not self.words

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the only source is a launcher, which may name a rank that only lost another one."""
        return self.report.order == "any" and self.raised is None and not self.is_cause_unknown

    @property
    def is_rank_unconfirmed(self) -> bool:
        """Whether the process or its rank rests on such a report only; a crash is never the loss of another process."""
        is_guess = bool(self.ranks) and self.report.process == "task"
        return self.is_unconfirmed and (is_guess or not self.is_crash)

    @property
    def has_given_up(self) -> bool:
        """Whether it ended after it lost another one or timed out waiting for it, without a crash."""
        return self.echo is not None and (self.code >= 0 or self.code == -signal.SIGABRT)

    @property
    def how(self) -> str:
        """Return how it ended, in words."""
        if self.words and self.raised is None:
            return self.words
        if self.has_given_up and self.echo is not None:
            return f"gave up: {self.echo.text}"
        if self.report.process == "training":
            return "failed, according to Ray Train"
        if self.is_by_exception:
            return f"ended with {self.raised.text if self.raised else 'an exception'}"
        if self.is_cause_unknown:
            return "stopped responding to Ray Train" if self.report.exception else "died, according to Ray"
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        name = signals.name(-self.code)
        return f"was ended by {name if name.startswith('SIG') else f'signal {name}'}"


def with_pid(facts: Facts, pid: int | None) -> list[LastLine]:
    """The processes with a pid: several if hosts or containers count separately."""
    return by_pid(facts).get(pid, []) if pid else []


@once
def by_pid(facts: Facts) -> dict[int, list[LastLine]]:
    """All processes, by pid."""
    return grouped((last.process.pid, last) for last in facts.job.last_lines)


def place(facts: Facts, rank: int) -> tuple[str | None, int | None]:
    """Host and pid of a rank, if it has one process without other ranks."""
    here = _by_rank(facts).get(rank, [])
    return (here[0].process.host, here[0].process.pid) if len(here) == 1 else (None, None)


@once
def _by_rank(facts: Facts) -> dict[int, list[LastLine]]:
    return grouped((last.ranks[0], last) for last in facts.job.last_lines if len(last.ranks) == 1)
