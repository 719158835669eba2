"""Files that are written beside their place and moved there when they are whole: a reader never sees half of one.

Standard output is written in whole lines. Python's own stream loses bytes if a signal is handled while a long write
waits in a pipe, and a process that ends there leaves half of a line. Here, a line that fits into ``PIPE_BUF`` is
written whole or not at all; while a longer one is written, the end of the process waits for the rest of it.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.util.interruption import PROCESS

STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
"""Names of standard output: opening it anew would cut what somebody else wrote there."""

_ATOMIC = select.PIPE_BUF
_BLOCK = 1 << 16  # bytes that are gathered before they are written
_COMPRESSED = ".gz"
_LEVEL = 6
"""That of the program gzip. A large report in JSON would be half as large again with 1; 9 takes three times as long."""


@contextmanager
def open_replacement(target: str, option: str, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of the target of an option; after an error all is as it was before.

    A device, a pipe, a file with several names or of somebody else, and a file in a folder in which nothing can be made
    are written to directly: to take their place would change what they are. Without a mode, that of the file that is
    replaced stays.
    """
    path = Path(os.path.realpath(target))
    try:
        if not _may_replace(target, path):
            with Path(target).open("wb") as file:
                yield file
            return
        beside = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
        with PROCESS.undo_with(lambda: beside.unlink(missing_ok=True)):
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                with os.fdopen(os.open(beside, flags, 0o666 if mode is None else mode), "wb") as file:
                    yield file
                if mode is None and path.exists():
                    beside.chmod(stat.S_IMODE(path.stat().st_mode))
                beside.replace(path)
                PROCESS.unwritten = ""
            finally:
                beside.unlink(missing_ok=True)
    except OSError as error:
        what = "name" if Path(target).is_dir() else "folder"
        hint = f"check the {what} given with {option}"
        raise NcclInspectError(f"{target}: {error.strerror or error}", hint) from None


@contextmanager
def open_compressed(target: str, option: str) -> Iterator[BinaryIO]:
    """Yield what :func:`open_replacement` does, compressed if the name ends in ``.gz``: equal bytes for equal text."""
    with open_replacement(target, option) as file:
        if strip_compression(target) == target:
            yield file
            return
        import gzip  # few outputs are compressed

        with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
            yield cast(BinaryIO, packed)


def strip_compression(name: str) -> str:
    """Return the name of a file without the suffix of its compression."""
    return name[: -len(_COMPRESSED)] if name.lower().endswith(_COMPRESSED) else name


def write_lines(target: str, option: str, text: Iterable[str]) -> None:
    """Write lines to a file, compressed if its name says so."""
    with open_compressed(target, option) as file:
        file.writelines(f"{line}\n".encode("utf-8", "backslashreplace") for line in text)


def _may_replace(target: str, path: Path) -> bool:
    names = os.path.abspath(target), str(path)  # noqa: PTH100 - as it is called, and what its links lead to
    if any(name.startswith(("/dev/fd/", "/dev/std", "/proc/")) for name in names):
        return False
    if not os.access(path.parent, os.W_OK):
        return False
    try:
        status = path.stat()
    except FileNotFoundError:
        return True
    own = status.st_uid == os.geteuid() and status.st_nlink == 1
    return stat.S_ISREG(status.st_mode) and own and os.access(path, os.W_OK)


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
            with PROCESS.finish_line(end - begin > _ATOMIC):
                while begin < end:
                    try:
                        begin += os.write(self._descriptor, memoryview(data)[begin:end])
                    except BlockingIOError:
                        select.select([], [self._descriptor], [])


def standard_output() -> BinaryIO:
    """Return standard output for bytes; the caller flushes it."""
    sys.stdout.flush()
    PROCESS.has_output = True
    try:
        return cast(BinaryIO, _Lines(sys.stdout.fileno()))
    except (OSError, ValueError):  # something that only looks like a file
        return sys.stdout.buffer
