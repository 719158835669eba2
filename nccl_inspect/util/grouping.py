"""Values by key, in the order in which they come, and things joined pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def group_values(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key as a list."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        if (group := groups.get(key)) is None:  # a list for each value would take a third of the time
            groups[key] = [value]
        else:
            group.append(value)
    return groups


def group_sets(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, set[_Value]]:
    """Return the values of each key as a set."""
    groups: dict[_Key, set[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, set()).add(value)
    return groups


def sort_by(values: Iterable[_Value], time_of: Callable[[_Value], float | None]) -> list[_Value]:
    """Return values in the order of their times; none where one of these is not known."""
    timed = [(time_of(one), one) for one in values]
    known = [(when, one) for when, one in timed if when is not None]
    return [one for _, one in sorted(known, key=itemgetter(0))] if len(known) == len(timed) else []


class Unions:
    """Numbered things that belong together, joined pair by pair."""

    def __init__(self, number: int) -> None:
        self._above = list(range(number))

    def find_root(self, item: int) -> int:
        """Return the number of the first thing that this one belongs to."""
        while self._above[item] != item:
            self._above[item] = self._above[self._above[item]]
            item = self._above[item]
        return item

    def join(self, items: Iterable[int]) -> None:
        """Put things together, with all that belongs to them."""
        first, *others = sorted({self.find_root(item) for item in items}) or [0]
        for other in others:
            self._above[other] = first

    def groups(self) -> list[list[int]]:
        """Return the things that belong together, in the order of their numbers."""
        return list(group_values((self.find_root(item), item) for item in range(len(self._above))).values())
