"""Where the log says what is stated. Plain data; notices, paths and findings hold it."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.util.records import Frozen, slots
from nccl_inspect.util.secrets import mask_secrets


class Evidence(Frozen):
    """One line of the log that supports a statement; secrets in it are hidden from the beginning."""

    source: str
    line: int
    text: str
    order: int = 0
    """Orders the lines of a source as they were printed: the number of the line, where the log does not begin with the
    newest one and is not an export in one line."""

    def __init__(self, source: str, line: int, text: str, order: int = 0) -> None:
        for put, value in zip(_PUTS, (source, line, mask_secrets(text), order or line), strict=True):
            put(self, value)

    @property
    def position(self) -> tuple[str, int]:
        """Return what no other line has: its source, and its place among the lines there."""
        return self.source, self.order


_PUTS = list(slots(Evidence).values())
"""Put the values of an object in its places: a job has many of them."""


def positions_in(lines: Iterable[Evidence]) -> set[tuple[str, int]]:
    """Return the positions of some lines."""
    return {line.position for line in lines}
