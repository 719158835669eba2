"""A command as a child that notices nothing of it: its signals, its exit status, its streams, kept in a file."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import subprocess
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from nccl_inspect.errors import NcclInspectError

_BLOCK = 1 << 16
_PIPE = 1 << 20
"""Bytes that a pipe may hold: the job waits less often for the terminal."""
_MAX_PARTIAL = 1 << 16
_STREAMS = (1, 2)


class JobLog:
    """The file: bytes as they come, and with several streams whole lines as far as possible.

    Args:
        several: streams write to it, which must not cut each other's lines.
    """

    def __init__(self, file: BinaryIO, several: bool) -> None:
        self._file = file
        self._several = several
        self._partial: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self.last = time.time()
        """When something came last."""
        self.problem: str | None = None
        """Why it could not be written to the end."""

    def add(self, stream: int, data: bytes) -> None:
        """Take in what a stream printed."""
        self.last = time.time()
        with self._lock:
            if self._several:
                data = self._partial.pop(stream, b"") + data
                end = data.rfind(b"\n") + 1
                if len(data) - end <= _MAX_PARTIAL:
                    data, self._partial[stream] = data[:end], data[end:]
            self._write(data)

    def flush(self) -> None:
        """Write what has no end of line yet."""
        with self._lock:
            for stream in list(self._partial):
                self._write(self._partial.pop(stream))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view and self.problem is None:
            try:
                view = view[self._file.write(view) :]
            except OSError as error:
                self.problem = error.strerror or str(error)


class Channel:
    """One or several streams of the job on their way: a pipe, or a terminal where the stream is one.

    Args:
        streams: file descriptors that lead to the same place here.
    """

    def __init__(self, streams: list[int]) -> None:
        self.streams = streams
        self.is_terminal = os.isatty(streams[0])
        if self.is_terminal:
            self.source, self.inside = os.openpty()
            tty.setraw(self.inside, termios.TCSANOW)  # the terminal itself does what is to be done, once
            self.resize()
        else:
            self.source, self.inside = os.pipe()
            with suppress(OSError, AttributeError):  # there is a limit for each user
                fcntl.fcntl(self.source, fcntl.F_SETPIPE_SZ, _PIPE)

    def resize(self) -> None:
        """Give the terminal of the job the size of the one here."""
        if self.is_terminal:
            with suppress(OSError, termios.error):
                size = os.get_terminal_size(self.streams[0])
                termios.tcsetwinsize(self.source, (size.lines, size.columns))

    def pump(self, log: JobLog) -> None:
        """Pass all on until the job has closed its end; or until nobody reads it, which the job then learns.

        What cannot be written elsewhere, on a disk that is full, is kept in the log all the same.
        """
        target = self.streams[0]
        problem = 0
        while data := self._read():
            log.add(target, data)
            if not problem and (problem := _write_all(target, data)) == errno.EPIPE:
                break
        os.close(self.source)

    def _read(self) -> bytes:
        try:
            return os.read(self.source, _BLOCK)
        except OSError as error:  # a terminal that nobody has open any more
            if error.errno != errno.EIO:
                raise
            return b""


def open_channels() -> list[Channel]:
    """Open what stdout and stderr of a job become: one channel where both lead to the same file, to keep the order."""
    first, second = ((status.st_dev, status.st_ino, status.st_rdev) for status in map(os.fstat, _STREAMS))
    return [Channel([1, 2])] if first == second else [Channel([stream]) for stream in _STREAMS]


def _write_all(target: int, data: bytes) -> int:
    """Write all of it; return the number of the error, 0 for none."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            select.select([], [target], [])
        except OSError as error:
            return error.errno or errno.EIO
    return 0


PASSED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals that the job gets as well."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that also end what is done after the job."""
_WAITED = (*PASSED, signal.SIGCHLD, signal.SIGWINCH)
_NOT_FOUND, _NOT_EXECUTABLE, _BY_SIGNAL = 127, 126, 128
_TICK = 1.0
"""Seconds between looks at the job while no signal comes."""
_DRAIN = 2.0
"""Seconds to wait, after the end of the job, for those that still hold its streams."""


class NotStartedError(NcclInspectError):
    """The command cannot be started; the exit status is that of a shell."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status


class Signals:
    """Waits for signals, which wait to be waited for: none is lost, and none interrupts anything."""

    def next(self, seconds: float) -> signal.struct_siginfo | None:
        """Return the next signal; None when none comes in time."""
        return signal.sigtimedwait(_WAITED, seconds)

    def wait_for_end(self, seconds: float) -> bool:
        """Return whether a signal comes in time that ends what is done after the job; others end the wait only."""
        came = self.next(seconds)
        return came is not None and came.si_signo in ENDING

    @staticmethod
    @contextmanager
    def hold() -> Iterator[Signals]:
        """Hold signals back; a system without sigtimedwait has no GPU either."""
        if not hasattr(signal, "sigtimedwait"):
            raise NcclInspectError("run needs Linux", "run the command alone, and give its log to summarize")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
        try:
            yield Signals()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Child:
    """The job.

    Raises:
        NotStartedError: it cannot be started.
    """

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], channels: Sequence[Channel], log: JobLog
    ) -> None:
        ends = {stream: channel.inside for channel in channels for stream in channel.streams}
        try:
            # There are no threads yet, so that code between fork and exec does no harm.
            self._process = subprocess.Popen(
                argv, env=environment, stdout=ends[1], stderr=ends[2], preexec_fn=_unblock_signals
            )
        except OSError as error:
            for channel in channels:
                os.close(channel.source)
            missing = isinstance(error, FileNotFoundError)
            what = "command not found" if missing and "/" not in argv[0] else error.strerror or str(error)
            raise NotStartedError(f"{argv[0]}: {what}", _NOT_FOUND if missing else _NOT_EXECUTABLE) from None
        finally:
            for channel in channels:
                os.close(channel.inside)
        self._channels = channels
        self._pumps = [threading.Thread(target=channel.pump, args=(log,), daemon=True) for channel in channels]
        for pump in self._pumps:
            pump.start()

    def wait(self, signals: Signals, tick: Callable[[], None]) -> int:
        """Wait for the end of the job; its exit status, as a shell has it.

        Args:
            tick: called now and then.
        """
        while (status := self._process.poll()) is None:
            came = signals.next(_TICK)
            if came is None:
                tick()
            elif came.si_signo == signal.SIGWINCH:
                for channel in self._channels:
                    channel.resize()
            elif came.si_signo != signal.SIGCHLD and came.si_code <= 0:  # a terminal sends to all in front of it
                self._signal_group(came.si_signo)
        for pump in self._pumps:
            pump.join(_DRAIN)
        while signals.next(0):  # what came together with the end of the job was meant for it
            pass
        return _BY_SIGNAL - status if status < 0 else status

    def _signal_group(self, number: int) -> None:
        """Pass a signal on as a terminal does: to the command and to what it started in the same process group.

        What has a group of its own, such as the workers of torchrun, is left to who started it. The command shares the
        group of this process, which a terminal needs, so that a signal to the group would reach others, too.
        """
        for pid in _list_group(self._process.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _list_group(root: int) -> list[int]:
    """Return a process and those below it that are in the same process group."""
    below: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            _, parent, group = path.read_bytes().rpartition(b")")[2].split()[:3]
            below.setdefault(int(parent), []).append(int(path.parent.name))
            groups[int(path.parent.name)] = int(group)
    family = [root]
    for pid in family:  # grows
        family += below.get(pid, [])
    return [pid for pid in family if groups.get(pid) == groups.get(root)]


def _unblock_signals() -> None:
    """Let the job have all signals: it inherits what is held back here."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED)
