"""Numbers and texts in few characters, for the data of the page; the script ``0-packing.js`` unpacks them.

A large job has a line of the log for each of its paths, and these lines differ only in numbers that mostly grow evenly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import chain, groupby, pairwise
from typing import Any

_NUMBER = re.compile(r"(0|[1-9][0-9]{0,14})")
"""What a script reads as a number and writes as the same digits; ``00`` is two of them."""


class Once:
    """Values by number: each is kept once, in the order in which they came."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.values: list[Any] = []

    def number(self, value: Any) -> int:
        """The number of a value."""
        key = json.dumps(value)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        return self._numbers[key]


class Texts:
    """Texts that differ mostly in their numbers: the words of each kind once, the numbers as columns."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, ...], int] = {}
        self._rows: list[list[tuple[int, ...]]] = []
        self._order: list[int] = []

    def append(self, text: str) -> None:
        """Add a text."""
        parts = _NUMBER.split(text)
        kind = self._kinds.setdefault(tuple(parts[::2]), len(self._kinds))
        if kind == len(self._rows):
            self._rows.append([])
        self._rows[kind].append(tuple(map(int, parts[1::2])))
        self._order.append(kind)

    def document(self) -> dict[str, Any]:
        """The kind of each text in their order, and of each kind its words and its columns of numbers."""
        kinds = zip(self._kinds, self._rows, strict=True)
        return {
            "order": packed(self._order),
            "kinds": [[list(words), *map(packed, zip(*rows, strict=True))] for words, rows in kinds],
        }


def packed(numbers: Iterable[int]) -> str:
    """The steps from each number to the next, the first from 0; 3 4 5 9 is ``3 1*2 4``, as equal steps are counted."""
    column = list(numbers)
    steps = chain(column[:1], (after - before for before, after in pairwise(column)))
    runs = ((step, sum(1 for _ in same)) for step, same in groupby(steps))
    return " ".join(f"{step}*{times}" if times > 1 else f"{step}" for step, times in runs)
