"""Who printed the lines of a block: each distinct prefix is parsed once. This module needs numpy.

Where lines have times, prefixes that differ in these only are one, as soon as two of them have proven that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nccl_inspect.ingest.lines import timestamps
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Frame
from nccl_inspect.scanning.line_table import Heads, Printers
from nccl_inspect.scanning.spans import ZERO, Block, Column, Mask, Rows, number_of

_MAX_FORMS = 64
"""Of times in one block, by place and width; prefixes with further ones are compared as they are."""


class Known(NamedTuple):
    """Holds what a scanner knows of prefixes."""

    seen: Callable[[Iterable[bytes]], Iterable[Origin | None]]
    """Who printed lines with these prefixes, as far as they were seen lately."""
    parsed: Callable[[bytes], Origin | None]
    """Who printed a line with this prefix."""
    proven: Callable[[bytes], Frame | None]
    """What prefixes have in common that differ in their time."""
    is_news: Callable[[bytes], bool]
    """Whether the prefix changes how other lines are read."""


class Spans(NamedTuple):
    """Holds where lines with a prefix are in a block."""

    row: Rows
    """Which lines of the block these are."""
    begin: Rows
    mark: Rows
    """Where the prefix of each ends."""
    end: Rows

    def at(self, chosen: Mask | Rows) -> Spans:
        """Some of them."""
        return Spans(*(column[chosen] for column in self))


def heads_of(block: Block, spans: Spans, first: int, is_timed: bool, known: Known) -> Heads | None:
    """The prefixes of some lines; None where one is news.

    Args:
        block: where the lines stand.
        spans: where in it.
        first: the number of the first line of the block.
        is_timed: whether most prefixes have a time.
        known: what is known of prefixes.
    """
    row, begin, mark, _ = spans
    framed = _framed(block, begin, mark, known) if is_timed else _Framed(np.full(len(row), -1, np.int32), [])
    if framed is None:
        return None
    printer, frames = framed
    origins = [frame.origin for frame in frames]
    left = np.flatnonzero(printer < 0)
    number, where = number_of(block.alike((begin[left], mark[left])))
    numbers = np.full(len(where), -1, np.int32)
    found = origins_of(block.pieces(begin[left[where]], mark[left[where]]), known)
    if found is None:
        return None
    for index, origin in enumerate(found):
        if origin is not None:
            numbers[index] = len(origins)
            origins.append(origin)
    printer[left] = numbers[number]
    more: list[Frame | None] = [None] * (len(origins) - len(frames))
    return Heads(block, begin, mark, row + first, printer, Printers(origins, frames and frames + more))


def origins_of(heads: Sequence[bytes], known: Known) -> list[Origin | None] | None:
    """Return who printed lines with these prefixes; None where one is news."""
    origins = list(known.seen(heads))
    for index, head in enumerate(heads):
        if origins[index] is None:
            if known.is_news(head):
                return None
            origins[index] = known.parsed(head)
    return origins


class _Framed(NamedTuple):
    """Prefixes that differ in their time only."""

    frame: Column
    """By prefixes: an index into the frames; -1 for those that are compared as they are."""
    frames: list[Frame]


def _framed(block: Block, begin: Rows, mark: Rows, known: Known) -> _Framed | None:
    """Return what prefixes have in common but for their times; None where one is news."""
    start, stop = _times(block, begin, mark)
    frame_of = np.full(len(begin), -1, np.int32)
    rows = np.flatnonzero(stop > start)
    begin, mark, start, stop = begin[rows], mark[rows], start[rows], stop[rows]
    number, where = number_of(block.alike((begin, start), (stop, mark), also=stop - start))
    last = np.zeros(len(where), np.int64)
    last[number] = np.arange(len(rows))
    numbers = np.full(len(where), -1, np.int32)
    frames: list[Frame] = []
    spans = start[where] - begin[where], stop[where] - begin[where]
    firsts = zip(block.pieces(begin[where], mark[where]), *(span.tolist() for span in spans), strict=True)
    for index, (head, since, until) in enumerate(firsts):
        key = head[:since] + head[since:until].translate(ZERO) + head[until:]
        frame = known.proven(key)
        if frame is None:
            if known.is_news(head):
                return None
            at = last[index]
            for one in (head, block.data[begin[at] : mark[at]]):
                known.parsed(one)
            frame = known.proven(key)
        if frame is not None and frame.begin == since and frame.rest == len(head) - until:
            numbers[index] = len(frames)
            frames.append(frame)
    frame_of[rows] = numbers[number]
    return _Framed(frame_of, frames)


def _times(block: Block, begin: Rows, mark: Rows) -> tuple[Rows, Rows]:
    """Return where the times in prefixes begin and end, if they look like those in others; else both is the same.

    Whether that is the time of a prefix, its frame proves.
    """
    start, stop = begin.copy(), begin.copy()
    left = np.arange(len(begin))
    for _ in range(_MAX_FORMS):
        if not len(left):
            break
        head = block.data[begin[left[0]] : mark[left[0]]]
        form = head.translate(ZERO)
        since, until = timestamps.place(form)
        at = begin[left] + since
        fits = mark[left] - begin[left] >= until
        if since < until:
            fits[fits] = _are_times(block, at[fits], form[since:until])
        else:  # others of this width may have one: they are told apart as they stand
            fits = mark[left] - begin[left] == len(head)
        rows = left[fits]
        start[rows] += since
        stop[rows] += until
        fits[0] = True
        left = left[~fits]
    return start, stop


def _are_times(block: Block, at: Rows, form: bytes) -> Mask:
    """Whether times of this form are at some places."""
    fits = block.has_form(at, form)
    after = block.bytes[at + len(form)]
    fits &= (after < ord("0")) | (after > ord("9"))
    if form[2:3] == b":":
        hour, tens, minute, second = (block.bytes[at + place] for place in (0, 1, 3, 6))
        fits &= (hour < ord("2")) | ((hour == ord("2")) & (tens < ord("4")))
        fits &= (minute < ord("6")) & (second < ord("6"))
    return fits
