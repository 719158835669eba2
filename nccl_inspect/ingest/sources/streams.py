"""Bytes in pieces: how every input is read, whatever it is, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeAlias

from nccl_inspect.util.text import encode

BLOCK = 1 << 20
"""Bytes read or unpacked at a time, and the longest line that is kept whole; a longer one is cut there."""
GROWN = 4 << 20
"""Bytes of a piece of a large file."""
HEAD = 1 << 16
"""Number of leading bytes that decide whether something is a log."""

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
    """What a file object holds: each piece as soon as it is there; text becomes bytes again.

    Raises:
        StreamError: it gives neither bytes nor text.
    """
    read = getattr(stream, "read1", stream.read)
    while data := read(BLOCK):
        if not isinstance(data, bytes | bytearray | str):
            raise StreamError(f"reading it gives {type(data).__name__}", "open it as a binary file")
        yield encode(data) if isinstance(data, str) else bytes(data)


def peeked(data: Pieces, enough: Callable[[bytes], bool]) -> tuple[bytes, Pieces]:
    """The first bytes, until they are enough to decide on, and all of them again."""
    taken: list[bytes] = []
    head = b""
    while not enough(head) and (piece := next(data, b"")):
        taken.append(piece)
        head = b"".join(taken) if len(head) < HEAD else head
    return head, chain(taken, data)


def counted(data: Pieces, count: Callable[[int], None]) -> Pieces:
    """The same pieces; ``told`` learns how long each was once it has been used."""
    for piece in data:
        yield piece
        count(len(piece))


def grown(data: Pieces) -> Pieces:
    """The same bytes; as soon as many were read, in larger pieces where that keeps nobody waiting.

    A piece of :data:`BLOCK` bytes comes from a file, of which the next one is there as well; pipes give smaller ones.
    """
    seen = 0
    taken: list[bytes] = []
    for piece in data:
        seen += len(piece)
        taken.append(piece)
        if len(piece) < BLOCK or seen <= GROWN or len(taken) * BLOCK >= GROWN:
            yield b"".join(taken)
            taken.clear()
    if taken:
        yield b"".join(taken)


def failing(error: StreamError) -> Callable[[], Pieces]:
    """What opens only to fail."""

    def fail() -> Pieces:
        raise error
        yield b""

    return fail
