"""A process that ended by itself while others were still there."""

from __future__ import annotations

import signal
from typing import NamedTuple

from nccl_inspect.judging.process_ends import mpi, ray, slurm_tasks
from nccl_inspect.judging.process_ends.exceptions import Raised, Trace
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import ranks_word

RAISED = "torch/spawn-raised"
SPAWNED = (RAISED, "torch/spawn-exit-code", "torch/spawn-signalled")
OF_LAUNCHERS = (
    "torch/worker-failed",
    "torch/failure-exitcode",
    "launchers/mpi-signalled",
    mpi.IMPROPER,
    "launchers/composer-exited",
    "launchers/lightning-child",
)
LOADER = "torch/data-loader-killed"
DEEPSPEED = "launchers/deepspeed-failed"
"""It quotes a command with a local rank: always that of the process that it began last, whichever one ended."""
_BY_LAUNCHERS = (*OF_LAUNCHERS, "launchers/composer-crashed", DEEPSPEED, *SPAWNED)
_CRASHES = (signal.SIGBUS, signal.SIGSEGV, signal.SIGILL, signal.SIGFPE)
OF_SLURM = (slurm_tasks.TASK, slurm_tasks.STATE)
_WITHOUT_TEXT = (RAISED, ray.SNIPPET)
"""An exception ended a process, also where the text of the exception is not known."""


class Departure(NamedTuple):
    """A process that ended by itself."""

    ranks: list[int]
    """Empty where neither the launcher nor NCCL's lines tell them."""
    host: str | None
    pid: int | None
    code: int
    """Exit code; negative for a signal, 0 where it is not told."""
    notice: Notice
    trace: Trace | None = None
    """What it printed as an exception ended it."""
    raised: Raised | None = None
    """The exception that ended it, where the log tells."""
    echo: Raised | None = None
    """The exception by which it tells that it lost another process, or was ended."""
    words: str = ""
    """How it ended, where that is more than a code."""

    @property
    def who(self) -> str:
        """In words which process."""
        who = ranks_word(self.ranks) if self.ranks else "a process"
        if self.notice.production in SPAWNED:
            who = f"process {value(self.notice, 'index')} of torch.multiprocessing.spawn"
        if self.notice.production in ray.GIVEN_UP:
            who = "the training"
        if self.notice.production == DEEPSPEED and not self.ranks:
            who = "a process that DeepSpeed does not name"
        if self.notice.production in OF_SLURM:
            found = str(value(self.notice, "tasks"))
            nodes = value(self.notice, "nodes")
            task = f"task{'' if found.isdigit() else 's'} {found} of Slurm"
            at = f" ({nodes})" if nodes else ""
            who = f"{who} ({task}{', ' + nodes if nodes else ''})" if self.ranks else task + at
        if self.is_undecided:
            who = "a rank"
        if self.is_loader:
            who = "a DataLoader worker" + (f" of {who}" if self.ranks else "")
        known = [*([self.host] if self.host else []), *([f"pid {self.pid}"] if self.pid is not None else [])]
        return who + (f" ({', '.join(known)})" if known else "")

    @property
    def is_loader(self) -> bool:
        """Whether it was no rank, but a process that loads data for one."""
        return self.notice.production == LOADER

    @property
    def begin(self) -> Notice:
        """The first line about it."""
        return self.trace.begin if self.trace else self.notice

    @property
    def is_nameless(self) -> bool:
        """Whether nothing tells which process it was."""
        return self.pid is None and not self.ranks and self.notice.production not in (*SPAWNED, *OF_SLURM)

    @property
    def is_undecided(self) -> bool:
        """Whether Hydra names processes that it may have killed itself, and nothing tells which one ended first."""
        return self.notice.production == mpi.HYDRA and self.is_nameless

    @property
    def is_by_exception(self) -> bool:
        """Whether an exception ended it; what PyTorch does after one may end with an abort."""
        told = self.raised is not None or self.trace is not None
        told |= self.notice.production in _WITHOUT_TEXT and self.echo is None and not self.is_unclear
        return told and (self.code >= 0 or self.code == -signal.SIGABRT)

    @property
    def is_crash(self) -> bool:
        """Whether a signal ended it that a process brings upon itself."""
        return -self.code in _CRASHES

    @property
    def is_hit(self) -> bool:
        """Whether it crashed or was killed: that does not follow from the failure of a call of NCCL, as others may."""
        return self.is_crash or self.code == -signal.SIGKILL

    @property
    def is_unclear(self) -> bool:
        """Whether the process is gone, and nothing tells by what."""
        return self.code == 0 and self.raised is None and not self.words

    @property
    def is_by_launcher(self) -> bool:
        """Whether its launcher tells it, which then ends the other processes."""
        return self.notice.production in _BY_LAUNCHERS

    @property
    def how(self) -> str:
        """In words how it ended."""
        if self.words and self.raised is None:
            return self.words
        if self.echo is not None and (self.code >= 0 or self.code == -signal.SIGABRT):
            return f"gave up: {self.echo.text}"
        if self.is_by_exception:
            return f"ended with {self.raised.text if self.raised else 'an exception'}"
        if self.notice.production in ray.GIVEN_UP:
            return "failed, according to Ray Train"
        if self.is_unclear:
            is_lost = self.notice.production == ray.SNIPPET
            return "stopped answering Ray Train" if is_lost else "died, according to Ray"
        if self.code >= 0:
            return f"ended with exit code {self.code}"
        try:
            return f"was ended by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was ended by signal {-self.code}"
