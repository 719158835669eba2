"""Bytes of a log as they come: from a pipe that stays open, or from a file that grows, is cut or is replaced."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.lines.torn import LineReader, Numbered
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.ingest.sources.blocks import BLOCK, Lines
from nccl_inspect.ingest.sources.streams import HEAD
from nccl_inspect.util.discovery import suggest_path

STDIN = "<stdin>"
_REMEMBERED = 256  # bytes before the offset that was read last


class Note(NamedTuple):
    """Something to tell about the input itself."""

    text: str
    begins: bool = False  # what follows is the beginning of a file: lines count from 1 again


Piece: TypeAlias = bytes | Note | None  # bytes as they came; None when nothing came for a while


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
        """Return whether there is input, in time; a BrokenPipeError says that nobody reads the output any more."""
        for descriptor, _ in self._poll.poll(self._milliseconds):
            if descriptor == self._output:
                raise BrokenPipeError
            return True
        return False


def stream(descriptor: int, waiter: Waiter, name: str = STDIN) -> Iterator[Piece]:
    """Yield what comes from a pipe or a terminal until it ends, without waiting for more than there is."""
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

    It need not exist yet, unless it is read until its end. What is not a regular file is read like a pipe.
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
    descriptor, offset, seen = _open(path), 0, b""
    try:
        if not path.is_file():
            yield from stream(descriptor, waiter, str(path))
            return
        while True:
            if how := _find_restart(path, descriptor, offset, seen):
                os.close(descriptor)
                descriptor, offset, seen = _open(path), 0, b""
                yield Note(f"{path} {how}: reading it from its beginning", begins=True)
                continue
            try:
                data = os.read(descriptor, BLOCK)
            except OSError as error:
                raise NoInputError(f"{path}: {error.strerror}", "check the file") from None
            if data:
                offset, seen = offset + len(data), (seen + data)[-_REMEMBERED:]
                yield data
            elif until_end:
                return
            else:
                waiter.wait()
                yield None
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise NoInputError(f"{path}: {error.strerror}", "check its mode and owner") from None


def _find_restart(path: Path, descriptor: int, offset: int, seen: bytes) -> str:
    """Return how a file begins anew: one that grew beyond the offset holds other bytes before it than were seen."""
    opened = os.fstat(descriptor)
    try:
        there = path.stat()
    except OSError:
        return ""
    is_as_seen = True
    with suppress(OSError):  # reading on will tell
        is_as_seen = os.pread(descriptor, len(seen), offset - len(seen)) == seen
    if opened.st_size < offset or not is_as_seen:
        return "was cut or written anew"
    is_other = (there.st_dev, there.st_ino) != (opened.st_dev, opened.st_ino)
    return "was replaced" if is_other and opened.st_size == offset else ""


class Splitter:
    """Cuts bytes into lines; a line without its end waits for it, and so does the beginning of an export.

    An export in JSON or as a table is read as every command reads it, as far as it has come.
    """

    def __init__(self) -> None:
        self._rest = b""  # a line without its end; at first all, until that shows whether this is an export
        self._begun = False
        self._reader: LineReader | None = None
        self._total = 0

    def split(self, data: bytes) -> Lines:
        """Return the lines that end here."""
        if self._begun:
            return self._split(data, len(data))
        self._rest += data
        return self._begin(len(data)) if _tells(self._rest) else Lines([], len(data))

    def take_rest(self) -> Iterator[Lines]:
        """Return the lines that never ended."""
        if self._rest and not self._begun:
            yield self._begin(0)
        if self._reader is not None:
            yield self._number(self._reader, self._reader.finish(), 0)
        elif self._rest:
            rest, self._rest = self._rest, b""
            yield Lines([rest.rstrip(b"\r")], 0)

    def _begin(self, size: int) -> Lines:
        head, self._rest, self._begun = self._rest, b"", True
        self._reader = blocks.reader_of(head[:HEAD])
        return self._split(head, size)

    def _split(self, data: bytes, size: int) -> Lines:
        if self._reader is not None:
            return self._number(self._reader, self._reader.feed(data), size)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:BLOCK]
        return Lines([line[:BLOCK].rstrip(b"\r") for line in lines], size)

    def _number(self, reader: LineReader, found: Iterator[Numbered], size: int) -> Lines:
        entries = list(found)
        self._total += len(entries)
        return blocks.number_lines(entries, self._total - len(entries), size, reader)


def _tells(head: bytes) -> bool:
    """Return whether this shows if it is an export: its first line does, if it is more than a bracket."""
    first, end, _ = head.partition(b"\n")
    return blocks.tells(head) or (bool(end) and len(first.strip()) > 2)
