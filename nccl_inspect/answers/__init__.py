"""Answers to single questions about a job as tables of flat records; what they share with other tables is here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column of a table for people."""

    name: str  # the field of the records; the key of JSON and CSV
    head: str
    goes: int = 0
    """If the table is too wide, columns with the lowest of these numbers are dropped first; those with 0 stay."""
    folds: bool = False  # in a table that is too wide, a value that all rows share is printed once, below the table
    is_host: bool = False  # names that begin alike are shortened where the table is too wide
    least: int = 0  # the width to which long cells may be cut if the table is too wide; 0 if they may not
    text: Callable[[Any], str] | None = None  # makes the cell from the record, if it is not just the value of the field
