"""Values by key, in the order in which they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def group_values(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """Return the values of each key as a list."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def group_sets(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, set[_Value]]:
    """Return the values of each key as a set."""
    groups: dict[_Key, set[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, set()).add(value)
    return groups
