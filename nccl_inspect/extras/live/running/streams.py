"""What a job prints, passed on as it comes and kept in a file."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import termios
import threading
import time
import tty
from contextlib import suppress
from typing import BinaryIO

_BLOCK = 1 << 16
_PIPE = 1 << 20
"""Bytes that a pipe may hold: the job waits less often for the terminal."""
_MAX_PARTIAL = 1 << 16
_STREAMS = (1, 2)


class JobLog:
    """The file: bytes as they come, and with several streams whole lines as far as possible.

    Args:
        file: to write to.
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
            if not problem and (problem := _pass(target, data)) == errno.EPIPE:
                break
        os.close(self.source)

    def _read(self) -> bytes:
        try:
            return os.read(self.source, _BLOCK)
        except OSError as error:  # a terminal that nobody has open any more
            if error.errno != errno.EIO:
                raise
            return b""


def channels() -> list[Channel]:
    """Return what stdout and stderr of a job become.

    One channel where both lead to the same place, which keeps the order.
    """
    first, second = (_identity(stream) for stream in _STREAMS)
    return [Channel([1, 2])] if first == second else [Channel([stream]) for stream in _STREAMS]


def _identity(stream: int) -> tuple[int, int, int]:
    status = os.fstat(stream)
    return status.st_dev, status.st_ino, status.st_rdev


def _pass(target: int, data: bytes) -> int:
    """Write all of it; the number of the error, 0 for none."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            select.select([], [target], [])
        except OSError as error:
            return error.errno or errno.EIO
    return 0
