"""Bytes in pieces: how every input is read, whatever it is, in bounded memory."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Iterator
from itertools import chain
from time import monotonic
from typing import Any, TypeAlias

from nccl_inspect.util.text import encode

BLOCK = 1 << 20  # bytes read or unpacked at a time, and the longest line that is kept whole; a longer one is cut there
GROWN = 4 << 20  # bytes of a piece of a large file
_WAIT = 0.1  # seconds for which bytes of a pipe are collected
HEAD = 1 << 16  # number of leading bytes that decide whether something is a log

Pieces: TypeAlias = Iterator[bytes]


class StreamError(Exception):
    """Data cannot be read, or not beyond this point.

    Args:
        what: what is wrong with it, without its name.
        hint: what to do about it.
    """

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def pieces(stream: Any) -> Pieces:
    """Yield what a file object holds, in pieces as they come; text becomes bytes again.

    A pipe gives little at a time; what follows at once is joined to it.

    A StreamError says that it gives neither bytes nor text.
    """
    read = getattr(stream, "read1", stream.read)
    follows = _follows(stream)
    taken: list[bytes] = []
    size, since = 0, 0.0
    try:
        while data := read(BLOCK):
            if not isinstance(data, bytes | bytearray | str):
                raise StreamError(f"reading it gives {type(data).__name__}", "open it as a binary file")
            since = since if taken else monotonic()
            taken.append(encode(data) if isinstance(data, str) else bytes(data))
            size += len(data)
            if size >= BLOCK or not follows(since + _WAIT - monotonic()):
                yield b"".join(taken)
                taken.clear()
                size = 0
    except KeyboardInterrupt:  # what was read counts
        yield from filter(None, [b"".join(taken)])
        raise
    if taken:
        yield b"".join(taken)


def _follows(stream: Any) -> Callable[[float], bool]:
    """Return what waits some seconds for the next bytes of a pipe; False when none came, and for all else."""
    try:
        place = stream.fileno()
        mode = os.fstat(place).st_mode
    except (AttributeError, OSError, ValueError):
        return lambda _: False
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return lambda _: False
    import select  # most logs are files

    if not hasattr(select, "poll"):
        return lambda _: False
    poll = select.poll()
    poll.register(place, select.POLLIN | select.POLLHUP)
    return lambda seconds: bool(poll.poll(max(0, 1000 * seconds)))


def peek(data: Pieces, enough: Callable[[bytes], bool]) -> tuple[bytes, Pieces]:
    """Return the first bytes, until they are enough to decide on, and all of them again."""
    taken: list[bytes] = []
    head = b""
    while not enough(head) and (piece := next(data, b"")):
        taken.append(piece)
        head = b"".join(taken) if len(head) < HEAD else head
    return head, chain(taken, data)


def count_lengths(data: Pieces, count: Callable[[int], None]) -> Pieces:
    """Yield the same pieces; ``count`` is called with the length of each after its use."""
    for piece in data:
        yield piece
        count(len(piece))


def check_size(data: Pieces, size: int) -> Pieces:
    """Yield the same pieces of a file, of which the size was known when it was found; it may have grown since.

    A StreamError says that it has fewer, which were given.
    """
    read = 0
    for piece in data:
        read += len(piece)
        yield piece
    if read < size:
        raise StreamError("the file got shorter while it was read", "read a copy of it")


def grown(data: Pieces) -> Iterator[list[bytes]]:
    """Yield the same bytes; as soon as many were read, several pieces at once where that keeps nobody waiting.

    Whoever gives :data:`BLOCK` bytes has more: a file, or a pipe that is written to faster than it is read.
    """
    seen = size = 0
    taken: list[bytes] = []
    try:
        # In pieces of usual size: a decoder may give many times that at once.
        for piece in (given[at : at + GROWN] for given in data for at in range(0, len(given), GROWN)):
            seen += len(piece)
            size += len(piece)
            taken.append(piece)
            if len(piece) < BLOCK or seen <= GROWN or size >= GROWN:
                yield taken
                taken, size = [], 0
    except (Exception, KeyboardInterrupt):  # what was read counts
        yield from filter(None, [taken])
        raise
    yield from filter(None, [taken])


def failing(error: StreamError) -> Callable[[], Pieces]:
    """Yield what opens only to fail."""

    def fail() -> Pieces:
        raise error
        yield b""

    return fail


_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ENOUGH = 64
_SHARE = 0.9


def as_utf8(data: Pieces) -> Pieces:
    """Return the same text in UTF-8; bytes of any other encoding stay as they are."""
    head, data = peek(data, lambda taken: len(taken) >= _ENOUGH or b"\n" in taken)
    name = find_encoding(head)
    if not name:
        return data
    if name == "utf-8":
        return _skip_bytes(data, len(codecs.BOM_UTF8))
    return map(str.encode, codecs.iterdecode(_skip_bytes(data, 2 * head.startswith(_MARKS)), name, "replace"))


def find_encoding(head: bytes) -> str:
    """Return the encoding of a file that is read as other bytes than it has; empty for all others.

    UTF-8 begins with its mark; in UTF-16 every second byte of Latin text is zero.
    """
    if head.startswith(codecs.BOM_UTF8):
        return "utf-8"
    head = head[2 * head.startswith(_MARKS) : _ENOUGH]
    pairs = len(head) // 2
    if pairs < 4:
        return ""
    for zeros, others, name in ((head[1::2], head[::2], "utf-16-le"), (head[::2], head[1::2], "utf-16-be")):
        if zeros.count(0) >= _SHARE * pairs and others.count(0) == 0:
            return name
    return ""


def _skip_bytes(data: Pieces, size: int) -> Pieces:
    for piece in data:
        if rest := piece[size:]:
            yield rest
        size = max(size - len(piece), 0)
