"""What columns of numbers have in common: rows distinguished by several columns, groups of rows, ranges of rows.

This module needs numpy: import it only for many rows, and when they are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Column: TypeAlias = Any
"""A numpy array of integers or truth values, one for each row."""
_MAX_KEY = 1 << 62
_NARROW = 1 << 31
_SPARSE = 8
"""Numbers for each row from which on sorting takes less time than a table of all."""


def join_keys(*columns: Column) -> Column:
    """Return a number for each row, the same in rows that are equal in all columns, and in the order of these."""
    key: Column = _join_keys(columns, _MAX_KEY)[0].astype(np.int64, copy=False)
    return key


def _join_keys(columns: Sequence[Column], most: int) -> tuple[Column, int]:
    """Return the same with how many numbers there may be.

    Args:
        most: how many there may be before gaps between them are closed, as long as few are known to be left.
    """
    key, size = np.zeros(len(columns[0]), np.int32), 1
    for column in columns if len(key) else ():
        low, span = int(column.min()), int(column.max()) - int(column.min()) + 1
        if span == 1:
            continue
        if 1 < size <= most < size * span or size * span > _MAX_KEY:
            key, size = _close_gaps(key, size)
        if size * span > _MAX_KEY:
            (column, span), low = _close_gaps(column, _MAX_KEY), 0
        is_narrow = np.can_cast(column.dtype, np.int32) and span <= _NARROW
        kind = np.int32 if size * span <= _NARROW else np.int64  # half the time, where that is enough
        part = (column.astype(np.int32 if is_narrow else np.int64, copy=False) - low).astype(kind, copy=False)
        key = part if size == 1 else key.astype(kind, copy=False) * span + part
        size *= span
    return key, size


def sort_rows(*columns: Column) -> Column:
    """Return the rows in the order of several columns; fast where many are in that order already, as most lines are."""
    return np.argsort(_join_keys(columns, _MAX_KEY)[0], kind="stable")


def number_groups(*columns: Column) -> tuple[Column, Column]:
    """Return the first row of each group of equal rows, in their order, and the number of the group of each row."""
    rows = np.arange(len(columns[0]))
    key, size = _join_keys(columns, _SPARSE * len(rows))
    if size > _SPARSE * len(rows):
        key, size = _close_gaps(key, size)
    key, first = key.astype(np.int64, copy=False), np.zeros(size, np.int64)
    first[key[::-1]] = rows[::-1]  # of equal ones the last counts
    heads = np.flatnonzero(first[key] == rows)
    first[key[heads]] = np.arange(len(heads))
    return heads, first[key]


def _close_gaps(key: Column, size: int) -> tuple[Column, int]:
    """Return the same numbers without gaps between them, and how many there are.

    Before, they are less than ``size``.
    """
    if size > _SPARSE * len(key):
        order = np.argsort(key, kind="stable")
        ordered, number = key[order], np.empty(len(key), np.int64)
        number[order] = np.cumsum(np.append(False, ordered[1:] != ordered[:-1]))
        return number, int(number.max(initial=-1)) + 1
    is_there = np.zeros(size, bool)
    is_there[key] = True
    number = np.cumsum(is_there) - 1
    return number[key], int(number[-1]) + 1


def ranges(begins: Column, sizes: Column) -> Column:
    """Return the numbers of several ranges, one range after the other."""
    ends = np.cumsum(sizes)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(begins - (ends - sizes), sizes)


def concatenate(columns: Sequence[Column], kind: Any = np.int64) -> Column:
    """Return columns one behind the other; an empty one if there are none."""
    return np.concatenate(columns) if columns else np.empty(0, kind)


def groups(key: Column) -> list[Column]:
    """Return the rows of each value, in their order."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    return np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1) if len(order) else []
