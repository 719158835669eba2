"""Bytes of a log as they come: from a pipe that stays open, or from a file that grows, is cut or is replaced."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.lines.torn import Numbered
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.ingest.sources.blocks import BLOCK, Lines, Reader
from nccl_inspect.ingest.sources.streams import HEAD
from nccl_inspect.util.discovery import suggest_path

STDIN = "<stdin>"
_REMEMBERED = 256
"""Bytes before the offset that was read last."""


class Note(NamedTuple):
    """Something to tell about the input itself."""

    text: str
    begins: bool = False
    """What follows is the beginning of a file: lines count from 1 again."""


Piece: TypeAlias = bytes | Note | None
"""Bytes as they came; None when nothing came for a while."""


class Waiter:
    """Waits for input, and notices when nobody reads the output any more."""

    def __init__(self, seconds: float, output: int | None = None) -> None:
        self._milliseconds = seconds * 1000
        self._output = output
        self._poll = select.poll()
        if output is not None:
            self._poll.register(output, 0)

    def add(self, descriptor: int) -> None:
        """Wait for this input."""
        self._poll.register(descriptor, select.POLLIN)

    def wait(self) -> bool:
        """Return whether there is input; for anything else the wait runs into its timeout, which makes the pause.

        Raises:
            BrokenPipeError: nobody reads the output any more.
        """
        for descriptor, _ in self._poll.poll(self._milliseconds):
            if descriptor == self._output:
                raise BrokenPipeError
            return True
        return False


def stream(descriptor: int, waiter: Waiter, name: str = STDIN) -> Iterator[Piece]:
    """Yield what comes from a pipe or a terminal until it ends, without waiting for more than there is.

    Raises:
        NoInputError: the input cannot be read.
    """
    waiter.add(descriptor)
    while True:
        if not waiter.wait():
            yield None
            continue
        try:
            data = os.read(descriptor, BLOCK)
        except BlockingIOError:
            yield None
            continue
        except OSError as error:
            raise NoInputError(f"{name}: {error.strerror}", "pipe a log in") from None
        if not data:
            return
        yield data


def follow(path: Path, waiter: Waiter, until_end: bool = False) -> Iterator[Piece]:
    """Yield what a file holds, and what is written to it later, also when it is cut or replaced.

    Args:
        path: need not exist yet, unless it is read until its end; what is not a regular file is read like a pipe.
        waiter: makes the pauses.

    Raises:
        NoInputError: the file cannot be read, or cannot come into being.
    """
    if not path.exists():
        if until_end or not path.parent.is_dir():
            raise NoInputError(f"{path}: no such file", suggest_path(path, "check the path"))
        similar = suggest_path(path, "")
        yield Note(f"{path} is not there yet: waiting for it" + (f"; {similar}" if similar else ""))
        while not path.exists():
            waiter.wait()
            yield None
    if path.is_dir():
        raise NoInputError(f"{path}: is a folder", "name one file, or pipe in what 'tail -F' gives of several")
    if not path.is_file():
        with _Open(path) as pipe:
            yield from stream(pipe.descriptor, waiter, str(path))
        return
    with _Open(path) as file:
        while True:
            if came := file.rewind_if_new() or file.read():
                yield came
                continue
            if until_end:
                return
            waiter.wait()
            yield None


class _Open:
    """A file that is read while others write to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._seen = b""
        """The last bytes that were read: a file that was written anew and grew beyond them holds others there."""
        self.descriptor = self._open()

    def __enter__(self) -> _Open:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise NoInputError(f"{self._path}: {error.strerror}", "check its mode and owner") from None

    def read(self) -> bytes:
        """Return what is there, or nothing at the end."""
        try:
            data = os.read(self.descriptor, BLOCK)
        except OSError as error:
            raise NoInputError(f"{self._path}: {error.strerror}", "check the file") from None
        self._offset += len(data)
        self._seen = (self._seen + data)[-_REMEMBERED:]
        return data

    def rewind_if_new(self) -> Note | None:
        """Go to the beginning when the file was cut or replaced, and tell so; None while it is as it was."""
        opened = os.fstat(self.descriptor)
        try:
            there = self._path.stat()
        except OSError:
            return None  # moved away, and the next one has not begun
        is_as_seen = True
        with suppress(OSError):  # reading on will tell
            is_as_seen = os.pread(self.descriptor, len(self._seen), self._offset - len(self._seen)) == self._seen
        if opened.st_size < self._offset or not is_as_seen:
            os.lseek(self.descriptor, 0, os.SEEK_SET)
            how = "was cut or written anew"
        elif opened.st_size == self._offset and (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino):
            os.close(self.descriptor)
            self.descriptor = self._open()
            how = "was replaced"
        else:
            return None
        self._offset, self._seen = 0, b""
        return Note(f"{self._path} {how}: reading it from its beginning", begins=True)


class Splitter:
    """Cuts bytes into lines; a line without its end waits for it, and so does the beginning of an export.

    An export in JSON or as a table is read as every command reads it, as far as it has come.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._head: bytes | None = b""
        """Bytes held back until they show whether this is an export; None from then on."""
        self._reader: Reader | None = None
        self._total = 0

    def split(self, data: bytes) -> Lines:
        """Return the lines that end here."""
        if self._head is None:
            return self._lines(data, len(data))
        self._head += data
        return self._take_begun(len(data)) if _tells(self._head) else Lines([], len(data))

    def take_rest(self) -> Iterator[Lines]:
        """Return the lines that never ended."""
        if self._head:
            yield self._take_begun(0)
        if self._reader is not None:
            yield self._take_lines(self._reader, list(self._reader.finish()), 0)
        elif self._rest:
            rest, self._rest = self._rest, b""
            yield Lines([rest.rstrip(b"\r")], 0)

    def _take_begun(self, size: int) -> Lines:
        head, self._head = self._head or b"", None
        self._reader = blocks.reader_of(head[:HEAD])
        return self._lines(head, size)

    def _lines(self, data: bytes, size: int) -> Lines:
        if self._reader is not None:
            return self._take_lines(self._reader, list(self._reader.feed(data)), size)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:BLOCK]
        return Lines([line[:BLOCK].rstrip(b"\r") for line in lines], size)

    def _take_lines(self, reader: Reader, entries: list[Numbered], size: int) -> Lines:
        self._total += len(entries)
        return blocks.number_lines(entries, self._total - len(entries), size, reader)


def _tells(head: bytes) -> bool:
    """Return whether this shows if it is an export: its first line does, if it is more than a bracket."""
    first, end, _ = head.partition(b"\n")
    return blocks.tells(head) or (bool(end) and len(first.strip()) > 2)
