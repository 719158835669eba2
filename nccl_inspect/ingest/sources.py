"""Opens what the user names (files, folders, ``-``) and gives blocks of whole lines in bounded memory."""

import gzip
import io
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from nccl_inspect.errors import NoInputError
from nccl_inspect.records import Record

BLOCK = 1 << 20
"""Bytes read at a time, and the longest line that is kept whole; a longer one is cut there."""
_GZIP = b"\x1f\x8b"
_LOG_NAMES = ("*.log", "*.log.*", "*.txt", "*.out", "*.err", "*.gz", "stdout*", "stderr*")

Input: TypeAlias = str | os.PathLike[str] | bytes | BinaryIO


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Source(Record):
    """One stream of log bytes."""

    name: str
    open: Callable[[], BinaryIO]
    size: int | None = None
    """Bytes as stored, where known: for progress."""


def find(inputs: Input | Sequence[Input]) -> list[Source]:
    """The sources that the inputs stand for; folders give the log files in them, in the order of their names.

    Args:
        inputs: a path, ``-`` for standard input, bytes, a binary file object, or a list of these.

    Raises:
        NoInputError: a path is missing or unreadable, or a folder holds no log.
    """
    several: Sequence[Any] = inputs if isinstance(inputs, list | tuple) else [inputs]
    return [source for item in several for source in _sources(item)]


def _sources(item: Input) -> Iterable[Source]:
    if isinstance(item, bytes):
        return [Source("<bytes>", lambda: io.BytesIO(item), len(item))]
    if not isinstance(item, (str, os.PathLike)):
        name = getattr(item, "name", None)
        return [Source(name if isinstance(name, str) else "<stream>", lambda: item)]
    if item == "-":
        return [Source("<stdin>", lambda: sys.stdin.buffer)]
    return _of_path(Path(item))


def _of_path(path: Path) -> Iterable[Source]:
    if path.is_dir():
        files = {file for name in _LOG_NAMES for file in path.rglob(name) if file.is_file()}
        if not files:
            raise NoInputError(f"{path}: the folder holds no log", "name the files, or give them the suffix .log")
        return [_file(file) for file in sorted(files)]
    if not path.exists():
        raise NoInputError(f"{path}: no such file", "check the path, or pipe the log in")
    return [_file(path)]


def _file(path: Path) -> Source:
    if not os.access(path, os.R_OK):
        raise NoInputError(f"{path}: no permission to read it", "check its mode and owner")
    return Source(str(path), lambda: path.open("rb"), path.stat().st_size)


class Lines(list[bytes]):
    """Whole lines without their line ends.

    Args:
        lines: in their order.
        size: bytes that they took in the source, with line ends and what was cut off.
    """

    def __init__(self, lines: Iterable[bytes], size: int) -> None:
        super().__init__(lines)
        self.size = size


def blocks(source: Source) -> Iterator[Lines]:
    """The lines of a source, without their line ends, in lists of about :data:`BLOCK` bytes.

    Compressed data is told by its first bytes, not by its name.

    Raises:
        NoInputError: the data breaks off or cannot be read; the lines before that were given.
    """
    try:
        with source.open() as raw:
            yield from _blocks(_decompressed(raw))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise NoInputError(f"{source.name}: the compressed data is damaged ({error})", "copy the file again") from None
    except OSError as error:
        raise NoInputError(f"{source.name}: {error.strerror or error}", "check the file") from None


def _decompressed(raw: BinaryIO) -> BinaryIO:
    stream = cast(BinaryIO, raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, raw)))
    if cast(io.BufferedReader, stream).peek(2)[:2] == _GZIP:
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    return stream


def _blocks(stream: BinaryIO) -> Iterator[Lines]:
    rest, size = b"", 0
    while data := stream.read(BLOCK):
        size += len(data)
        text = rest + data
        *lines, rest = text.split(b"\n")
        rest = rest[:BLOCK]
        if not lines:
            continue
        lines[0] = lines[0][:BLOCK]
        if b"\r" in text:
            lines = [line.rstrip(b"\r") for line in lines]
        yield Lines(lines, size)
        size = 0
    if rest:
        yield Lines([rest.rstrip(b"\r")], size)
