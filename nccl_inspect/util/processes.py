"""Work that is done in processes of their own: they end with this one, and when nobody wants their results any more."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, BinaryIO

from nccl_inspect.util.interruption import PROCESS, hold_signals, leave_to_parent

_ALIGNED = 64  # columns of numbers begin at a multiple of this many bytes, as those that are made here do
_NUMBER = 8  # bytes of a number in a file
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
    """A fork of this process; what its work gave is in memory that both have, so columns are not copied."""

    def __init__(self, work: Callable[..., object], values: tuple[object, ...]) -> None:
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
            _write(self._file, work(*values))
            status = 0
        finally:  # nothing of what the other process is in the middle of goes on here
            os._exit(status)

    def result(self) -> Any:
        with self._file, suppress(OSError):  # no memory is to be had
            return None if self._wait_for_end() else _read(self._file)
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


def _write(file: BinaryIO, result: object) -> None:
    """Write a result into a file: columns as they are, then everything else, where all this stands, and where that."""
    columns: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(result, pickle.HIGHEST_PROTOCOL, buffer_callback=columns.append)
    spans = []
    for piece in (*(column.raw() for column in columns), memoryview(rest)):
        begin = file.seek(-file.tell() % _ALIGNED, os.SEEK_CUR)
        spans.append((begin, begin + file.write(piece)))
    index = file.tell()
    pickle.dump(spans, file)
    file.write(index.to_bytes(_NUMBER, "little"))
    file.flush()


def _read(file: BinaryIO) -> Any:
    """Return the result in a file; what is changed of it is changed here only."""
    data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    spans = pickle.loads(data[int.from_bytes(data[-_NUMBER:], "little") :])  # noqa: S301 - from our own process
    *columns, rest = (data[begin:end] for begin, end in spans)
    return pickle.loads(rest, buffers=columns)  # noqa: S301 - likewise


def processors() -> int:
    """Return how many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
