"""Standard output in whole lines: what ends the process while a reader is slow cuts none of them.

Python's own stream loses bytes if a signal is handled while a long write waits in a pipe, and a process that ends there
leaves half of a line. A line that fits into ``PIPE_BUF`` is written whole or not at all; while a longer one is written,
the end of the process waits for the rest of it.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING, cast

from nccl_inspect.util.interruption import PROCESS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, BinaryIO

_ATOMIC = select.PIPE_BUF
_BLOCK = 1 << 16
"""Bytes that are gathered before they are written."""


class _Lines(io.RawIOBase):
    """A file descriptor to which whole lines are written."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._waiting += data
        if len(self._waiting) >= _BLOCK and (end := self._waiting.rfind(b"\n") + 1):
            self._write(end)
        return len(data)

    def flush(self) -> None:
        self._write(len(self._waiting))

    def _write(self, size: int) -> None:
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        begin = 0
        while begin < size:
            end = data.rfind(b"\n", begin, begin + _ATOMIC) + 1 or data.find(b"\n", begin) + 1 or size
            self._put(memoryview(data)[begin:end])
            begin = end

    def _put(self, line: memoryview) -> None:
        with PROCESS.within_line(len(line) > _ATOMIC):
            while line:
                try:
                    line = line[os.write(self._descriptor, line) :]
                except BlockingIOError:
                    select.select([], [self._descriptor], [])


def binary() -> BinaryIO:
    """Standard output for bytes; the caller flushes it."""
    sys.stdout.flush()
    PROCESS.has_output = True
    try:
        return cast("BinaryIO", _Lines(sys.stdout.fileno()))
    except (OSError, ValueError):  # something that only looks like a file
        return sys.stdout.buffer


def write_lines(lines: Iterable[str]) -> None:
    """Write lines of text as they come."""
    stream, encoding, errors = binary(), sys.stdout.encoding, sys.stdout.errors or "strict"
    for line in lines:
        stream.write(f"{line}\n".encode(encoding, errors))
    stream.flush()
