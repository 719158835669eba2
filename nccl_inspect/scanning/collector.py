"""Takes what was found in a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nccl_inspect.scanning.counts import Text
from nccl_inspect.scanning.found import Found, Repeated


class Collector(Protocol):
    """Holds who wants the lines."""

    def take(self, found: Found) -> None:
        """Take in lines; those of a process are in their order, but for those in the tables."""

    def is_countable(self, text: Text) -> bool:
        """Whether of such lines only the number, the first and the last one matter."""

    def take_repeated(self, found: Sequence[Repeated]) -> None:
        """Take in countable lines in the order of their first ones."""
