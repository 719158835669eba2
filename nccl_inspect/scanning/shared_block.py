"""A block that holds the lines of several short sources: which lines are whose. This module needs numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.scanning.columns import Split
from nccl_inspect.scanning.spans import Rows


class Part(NamedTuple):
    """Holds what is in the block of one source."""

    size: int
    """How many lines it has."""
    sound: int
    """How many of them were read in columns."""
    unknown: int
    """How many of these no production knows."""
    numbers: list[int]
    """Of the other lines."""
    left: list[bytes]
    """The same as they are."""


class SharedBlock:
    """Gives the lines that were read in columns their places in their sources.

    Args:
        split: the block, its lines numbered from 0.
        sizes: how many lines each source has.
        before: the place before the first line of each.
    """

    def __init__(self, split: Split, sizes: Sequence[int], before: Sequence[int]) -> None:
        self._split, self._sizes = split, sizes
        self._ends: Rows = np.cumsum(sizes)
        self._shift: Rows = 1 - (self._ends - sizes)
        self._sound = self._by_source(split.lines.line)
        self._unknown = self._by_source(
            split.lines.line[np.array([text.parsed is None for text in split.lines.texts], bool)[split.lines.text]]
        )
        if split.connections is not None:
            self._sound += self._by_source(split.connections.line)
        rows = split.lines.heads.line
        split.lines.heads.line = self._numbers(rows) + np.array(before)[self._sources(rows)]

    def parts(self) -> Iterator[Part]:
        """Yield what is of each source."""
        others, left = self._split.others, self._split.left
        ends = np.searchsorted(others, self._ends).tolist()
        numbers = self._numbers(others).tolist()
        columns = self._sizes, self._sound.tolist(), self._unknown.tolist(), [0, *ends[:-1]], ends
        for size, sound, unknown, begin, end in zip(*columns, strict=True):
            yield Part(size, sound, unknown, numbers[begin:end], left[begin:end])

    def _sources(self, rows: Rows) -> NDArray[np.int64]:
        return np.searchsorted(self._ends, rows, side="right")

    def _by_source(self, rows: Rows) -> NDArray[np.int64]:
        """Return how many of some lines each source has."""
        return np.bincount(self._sources(rows), minlength=len(self._sizes))

    def _numbers(self, rows: Rows) -> Rows:
        """The numbers of some lines in their sources."""
        return rows + self._shift[self._sources(rows)]
