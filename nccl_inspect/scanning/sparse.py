"""Lines of a block of which few are NCCL's: those worth a look, and the last of the others."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import compress

from nccl_inspect.ingest.lines import tracebacks
from nccl_inspect.scanning.counts import TAIL

NAME = b"NCCL "


def picked(text: bytes, shapes: Sequence[bytes], chosen: Container[bytes]) -> list[tuple[int, bytes]]:
    """The lines of the chosen shapes, with their places.

    Args:
        text: all lines.
        shapes: what each looks like.
        chosen: some of these, with all that hold NCCL's name.
    """
    places = list(compress(range(len(shapes)), map(chosen.__contains__, shapes)))
    lines = list(_named(text)) if places else []
    if len(lines) < len(places):  # others were chosen as well, or digits stand in the name
        every = text.split(b"\n")
        lines = [every[place] for place in places]
    return list(zip(places, lines, strict=True))


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
    ending = _last(text, size - begin)
    for index, line in picked:
        if index < begin:
            yield index, line, True
    for index, line in enumerate(ending, begin):
        yield index, line, index in taken


def _last(text: bytes, size: int) -> list[bytes]:
    """The last lines."""
    at = len(text)
    for _ in range(size):
        at = text.rfind(b"\n", 0, at)
        if at < 0:
            break
    return text[at + 1 :].split(b"\n")


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
