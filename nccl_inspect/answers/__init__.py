"""Answers to single questions about a job: its hosts, NICs, settings, ranks, and others.

Each is an :class:`Answer` of flat records: the commands of the same names print them, and the HTML report shows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from nccl_inspect.util.records import Record


class Column(NamedTuple):
    """A column of a table for people."""

    name: str  # the field of the records; the key of JSON and CSV
    head: str
    goes: int = 0
    """If the table is too wide, columns with the lowest of these numbers are dropped first; those with 0 stay."""
    folds: bool = False  # in a table that is too wide, a value that all rows share is printed once, below the table
    is_host: bool = False  # names that begin alike are shortened where the table is too wide
    least: int = 0  # the width to which long cells may be cut if the table is too wide; 0 if they may not
    text: Callable[[Any], str] | None = None
    """Makes the cell from the record, if it is not just the value of the field."""


class Answer(NamedTuple):
    """A question about a job is answered by records, which are shown as a table."""

    record: type[Record]
    """The class of the records: a dataclass, whose fields are the keys of JSON and the columns of CSV."""
    columns: Sequence[Column]  # the columns of the table for people
    rows: Callable[..., Sequence[Any]]  # makes the records of a job, in the order in which they are shown
    is_bad: Callable[[Any], bool]  # whether a record deserves a mark


def name_line(source: str | None, line: int | None) -> str:
    """Return a line of the log as ``FILE:LINE``; empty if unknown."""
    return "" if source is None else f"{source.rpartition('/')[2] or source}:{line}"


def field_names(record: type[Record]) -> list[str]:
    """Return the fields of a kind of records."""
    return [field.name for field in fields(record)]
