"""Work that is done in processes of their own: they end with this one, and when nobody wants their results any more."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, BinaryIO

from nccl_inspect.util.interruption import PROCESS, hold_signals, leave_to_parent

_UNKNOWN = -1  # instead of the exit status of a process


def can_fork() -> bool:
    """Return whether a fork of this process can run: a lock held by another thread would stay locked in it."""
    return sys.platform == "linux" and threading.active_count() == 1


def end_unless_child_of(parent: int) -> None:
    """End this process if another one than that is its parent: that one was killed, and could not end it."""
    if os.getppid() != parent:
        os._exit(1)


class Helper:
    """A process that works; this one could not be started."""

    def result(self) -> Any:
        """Return what its work gave; None when it could not be started, failed or died."""

    def end(self) -> None:
        """End it where it still runs."""


class Helpers:
    """Starts processes; they are killed where this is left, and when this process is interrupted."""

    def __init__(self) -> None:
        self._started: list[Helper] = []
        self._open = ExitStack()

    def __enter__(self) -> Helpers:
        self._open.enter_context(PROCESS.undo_with(self._end))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._end()

    def start(self, work: Callable[..., object], *values: object) -> Helper:
        """Start a process that calls a function of a module; what it gives can be pickled."""
        with hold_signals():
            helper = Helper()
            with suppress(OSError):  # no process or memory is to be had
                helper = _Fork(work, values) if can_fork() else helper
            self._started.append(helper)
        return helper

    def _end(self) -> None:
        for helper in self._started:
            helper.end()


class _Fork(Helper):
    """A fork of this process; what its work gave is in memory that both have."""

    def __init__(self, work: Callable[..., object], values: tuple[object, ...]) -> None:
        import pickle  # a log that one process reads does not need it

        try:
            self._file: BinaryIO = os.fdopen(os.memfd_create("nccl-inspect"), "w+b")
        except (AttributeError, OSError):  # Python was built without this, or it is forbidden
            from tempfile import TemporaryFile

            self._file = TemporaryFile()  # noqa: SIM115 - it is closed where the result is taken
        self.pid = os.fork()
        self._runs = True
        if self.pid:
            return
        status = 1
        try:
            leave_to_parent()
            pickle.dump(work(*values), self._file, pickle.HIGHEST_PROTOCOL)
            self._file.flush()
            status = 0
        finally:  # nothing of what the other process is in the middle of goes on here
            os._exit(status)

    def result(self) -> Any:
        import pickle

        with self._file, suppress(OSError, MemoryError):  # no memory is to be had
            if not self._wait_for_end():
                self._file.seek(0)
                return pickle.load(self._file)  # noqa: S301 - from our own process
        return None

    def _wait_for_end(self) -> int:
        try:
            _, status = os.waitpid(self.pid, 0)
        except ChildProcessError:  # SIGCHLD is ignored here, or its handler takes the status of every process
            status = _UNKNOWN
        self._runs = False
        return status

    def end(self) -> None:
        if self._runs:
            with self._file, suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
                self._wait_for_end()


def processors() -> int:
    """Return how many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
