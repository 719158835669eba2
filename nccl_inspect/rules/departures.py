"""Processes that ended by themselves while others were still there, as launchers, shells or they tell it."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nccl_inspect.model.inventory import LastLine
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.facts import Facts, ranks_word
from nccl_inspect.rules.statements import value

_BY_LAUNCHER = (signal.SIGTERM, signal.SIGINT)
"""Launchers end the other processes with these once one has failed."""
_BY_LAUNCHERS = ("worker-failed", "failure-exitcode", "mpi-signalled")
_LOADER = "data-loader-killed"
_SHELL = {
    "shell-bus-error-command": signal.SIGBUS,
    "shell-segmentation-fault-command": signal.SIGSEGV,
    "shell-bus-error": signal.SIGBUS,
    "shell-segmentation-fault": signal.SIGSEGV,
}
TOLD = (*_BY_LAUNCHERS, _LOADER, "mpi-process-signal", "shell-bus-error-command", "shell-segmentation-fault-command")
"""Who says it with the pid."""
_NAMELESS = ("shell-bus-error", "shell-segmentation-fault", "python-crashed")
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
_CRASHES = (signal.SIGBUS, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE)
_LAST_WORDS = ("watchdog-terminated", "async-error", "async-error-2-4", "cuda-error", "nccl-error")


class Departure(NamedTuple):
    """A process that ended by itself."""

    ranks: list[int]
    """Empty where neither the launcher nor NCCL's lines tell them."""
    host: str | None
    pid: int | None
    code: int
    """Exit code; negative for a signal."""
    notice: Notice

    @property
    def who(self) -> str:
        """In words which process."""
        who = ranks_word(self.ranks) if self.ranks else "a process"
        if self.is_loader:
            who = "a DataLoader worker" + (f" of {who}" if self.ranks else "")
        known = [*([self.host] if self.host else []), *([f"pid {self.pid}"] if self.pid is not None else [])]
        return who + (f" ({', '.join(known)})" if known else "")

    @property
    def is_loader(self) -> bool:
        """Whether it was no rank, but a process that loads data for one."""
        return self.notice.production == _LOADER

    @property
    def is_crash(self) -> bool:
        """Whether a signal ended it that a process brings upon itself."""
        return -self.code in _CRASHES

    @property
    def is_by_launcher(self) -> bool:
        """Whether its launcher tells it, which then ends the other processes."""
        return self.notice.production in _BY_LAUNCHERS

    @property
    def how(self) -> str:
        """In words how it ended."""
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            return f"was ended by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was ended by signal {-self.code}"


def departures(facts: Facts) -> list[Departure]:
    """Each process once, in the order of the log; those that a launcher ended are not among them."""
    last_lines: dict[int, list[LastLine]] = {}
    for last in facts.job.last_lines:
        last_lines.setdefault(last.process.pid, []).append(last)
    found: dict[int, Departure] = {}
    for notice in facts.notices(*TOLD):
        pid, code = value(notice, "pid"), _code(notice)
        if pid is None or code is None or code == 0 or -code in _BY_LAUNCHER:
            continue
        known = last_lines.get(pid, [])
        here = known[0] if len(known) == 1 else None
        ranks = here.ranks if here else _stated_ranks(facts, notice)
        if pid not in found or (ranks and not found[pid].ranks):  # the process itself does not know its rank
            found[pid] = Departure(ranks, here.process.host if here else None, pid, code, notice)
    return [*found.values(), *_nameless(facts, {one.code for one in found.values()})]


def _nameless(facts: Facts, told: set[int]) -> list[Departure]:
    """Crashes that nobody tells with a pid; what crashed before processes began, or after their end, was no rank."""
    if facts.job.communicators and all(len(comm.ended) == comm.nranks for comm in facts.job.communicators):
        return []
    ends = {end.text for end in facts.job.ended_by}
    found: dict[int, Departure] = {}
    for notice in facts.notices(*_NAMELESS):
        code = _code(notice)
        if code is not None and code not in told and notice.message in ends:
            found.setdefault(code, Departure([], None, None, code, notice))
    return list(found.values())


def _code(notice: Notice) -> int | None:
    by_name = _SHELL.get(notice.production) or _SIGNALS.get(str(value(notice, "how")))
    by_signal = value(notice, "signal_number") or by_name
    code: int | None = value(notice, "exitcode") if by_signal is None else -by_signal
    return code


def _stated_ranks(facts: Facts, notice: Notice) -> list[int]:
    """The rank that mpirun names, or torchrun in the line above."""
    if (stated := value(notice, "global_rank")) is not None:
        return [stated]
    above = {(line.source, line.order - 1) for line in notice.evidence}
    said = [one for one in facts.notices("failure-rank") if any((e.source, e.order) in above for e in one.evidence)]
    return sorted({value(one, "global_rank") for one in said})


def last_words(facts: Facts, gone: Iterable[Departure]) -> Mapping[int, Notice]:
    """For ranks that departed the error that PyTorch printed of them, where it did."""
    ranks = {rank for one in gone for rank in one.ranks}
    found: dict[int, Notice] = {}
    for notice in facts.notices(*_LAST_WORDS):
        rank = value(notice, "global_rank")
        if rank in ranks and value(notice, "error") is not None:
            found.setdefault(rank, notice)
    return found


def traceback_of(facts: Facts, departure: Departure) -> Notice | None:
    """Where PyTorch prints the exception of a rank that departed."""
    said = facts.notices("rank-traceback")
    return next((one for one in said if value(one, "global_rank") in departure.ranks), None)


def silent_workers(facts: Facts) -> list[int]:
    """Pids that torchrun ended and that printed no line of NCCL: workers that never came so far."""
    known = {last.process.pid for last in facts.job.last_lines}
    ended = {value(notice, "pid") for notice in facts.notices("worker-signalled", "worker-forced")}
    return sorted(pid for pid in ended if pid is not None and pid not in known)
