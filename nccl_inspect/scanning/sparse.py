"""Lines of a block of which few are NCCL's: those worth a look, and the last of the others."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import compress

from nccl_inspect.ingest.lines import tracebacks
from nccl_inspect.scanning.counts import TAIL

NAME = b"NCCL "


def among(text: bytes, shapes: Sequence[bytes], worth: set[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of these shapes, and those that hold NCCL's name, with their places."""
    for index, (line, shape) in enumerate(zip(text.split(b"\n"), shapes, strict=True)):
        if shape in worth or NAME in line:
            yield index, line


def with_nccl(text: bytes, shapes: Sequence[bytes], distinct: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that hold NCCL's name, with their places."""
    named = {shape for shape in distinct if NAME in shape}
    places = list(compress(range(len(shapes)), map(named.__contains__, shapes)))
    lines = list(_named(text)) if named else []
    # They differ where digits stand in the name.
    return zip(places, lines, strict=True) if len(places) == len(lines) else among(text, shapes, set())


def _named(text: bytes) -> Iterator[bytes]:
    """The lines that hold NCCL's name."""
    end = -1
    while (place := text.find(NAME, end + 1)) >= 0:
        start = text.rfind(b"\n", 0, place) + 1
        end = text.find(b"\n", place)
        end = len(text) if end < 0 else end
        yield text[start:end]


def with_tail(text: bytes, size: int, picked: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, bool]]:
    """The picked lines, and as many of the last others as are kept, in their order; each with whether it was picked."""
    taken = {index for index, _ in picked}
    begin = _begin_of_tail(size, taken)
    ending = text.rsplit(b"\n", size - begin)[-(size - begin) :]
    for index, line in picked:
        if index < begin:
            yield index, line, True
    for index, line in enumerate(ending, begin):
        yield index, line, index in taken


def with_frames(
    text: bytes, picked: Sequence[tuple[int, bytes]], tracing: tracebacks.Open
) -> Iterator[tuple[int, bytes, bool]]:
    """The same, and all that follows while tracebacks have not ended: who takes a line tells that by ``tracing``."""
    lines = text.split(b"\n")
    taken = {index for index, _ in picked}
    begin = _begin_of_tail(len(lines), taken)
    at = 0
    for index in (*(index for index, _ in picked if index < begin), *range(begin, len(lines))):
        while tracing and at < index:
            yield at, lines[at], False
            at += 1
        yield index, lines[index], index in taken
        at = index + 1


def _begin_of_tail(size: int, taken: Container[int]) -> int:
    """From where on there are as many lines that were not taken as are kept."""
    begin, others = size, 0
    while begin and others < TAIL:
        begin -= 1
        others += begin not in taken
    return begin
