"""Tables that fit a width: columns are dropped, shared values move below, and cells are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from nccl_inspect.answers import Column
from nccl_inspect.util.text import cut, printable
from nccl_inspect.util.wording import ranges

UNBOUNDED = 1 << 30
"""The width of a table in a file or a pipe: programs read it."""
NOTHING = "-"
"""The cell for unknown values and values that do not apply."""
_ELLIPSIS = "…"
_BETWEEN = 2
"""Blanks between columns."""
_MIN_PREFIX = 4


class Table(NamedTuple):
    """A table as text, and the notes below it."""

    head: list[str]
    body: list[list[str]]
    notes: list[str]


def cells(columns: Sequence[Column], records: Sequence[Any]) -> list[list[str]]:
    """The cells of some records, one row each."""
    return [[_cell(column, record) for column in columns] for record in records]


def _cell(column: Column, record: Any) -> str:
    text = column.text(record) if column.text else words(getattr(record, column.name))
    return printable(text) or NOTHING


def words(value: object) -> str:
    """A value for people; empty where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ranges(value) if value and isinstance(value[0], int) else ", ".join(map(str, value))
    return "" if value is None else str(value)


def fitted(columns: Sequence[Column], body: list[list[str]], width: int) -> Table:
    """The table, fitted to a width if possible.

    Empty columns are left out. If the rest is too wide, the common prefix of host names is removed, values that all
    rows share move below, long cells are cut, and finally columns are dropped.
    """
    fit = _Fit(columns, body, width)
    fit.leave_out_empty()
    for step in (fit.shorten_hosts, fit.fold, fit.cut, fit.leave_out, fit.cut_all):
        if fit.is_too_wide():
            step()
    return fit.table()


def drawn(table: Table, width: int) -> str:
    """The text of a table."""
    from tabulate import tabulate  # slow to load, and summaries do not need it

    # With a head of its own, tabulate would widen each column by two.
    lines = ["-" * max(map(len, column)) for column in zip(table.head, *table.body, strict=True)]
    text = tabulate([table.head, lines, *table.body], tablefmt="plain", disable_numparse=True)
    return "\n".join([text, *([""] if table.notes else []), *wrapped(table.notes, width)]) + "\n"


def wrapped(notes: Sequence[str], width: int) -> list[str]:
    """The notes below a table, in lines of a width."""
    return [line for note in notes for line in wrap(note, width, subsequent_indent="  ", break_long_words=False)]


class _Fit:
    """A table while it is made to fit; ``widths`` are those of the columns that are still there."""

    def __init__(self, columns: Sequence[Column], body: list[list[str]], width: int) -> None:
        self._columns = columns
        self._body = self._whole = body
        self._width = width
        self._hosts = ""
        """What was taken from the names of hosts."""
        self._notes: list[str] = []
        self._gone: list[str] = []
        self._widths = {at: self._wide(at) for at in range(len(columns))}

    def _wide(self, at: int) -> int:
        return max(len(self._columns[at].head), *(len(row[at]) for row in self._body), 0)

    def _excess(self) -> int:
        return sum(self._widths.values()) + _BETWEEN * (len(self._widths) - 1) - self._width

    def is_too_wide(self) -> bool:
        return self._excess() > 0

    def leave_out_empty(self) -> None:
        """Drop empty columns that may be dropped."""
        for at, column in enumerate(self._columns):
            if (column.goes or column.folds) and all(row[at] == NOTHING for row in self._body):
                del self._widths[at]

    def shorten_hosts(self) -> None:
        """Remove the common prefix of host names, if there are several."""
        places = [at for at in self._widths if self._columns[at].is_host]
        names = {row[at] for row in self._body for at in places}
        start = _shared_start(names) if len(names) > 1 else ""
        if len(start) <= _MIN_PREFIX:
            return
        self._change(places, lambda cell: _ELLIPSIS + cell[len(start) :])
        self._hosts = start

    def fold(self) -> None:
        """Move values that all rows share below the table."""
        for at in [at for at in self._widths if self._columns[at].folds]:
            values = {row[at] for row in self._whole}
            if len(values) == 1 and len(self._body) > 1:
                del self._widths[at]
                self._notes.append(f"{self._columns[at].head} of all: {values.pop()}")

    def cut(self) -> None:
        """Cut the cells of the widest columns, as far as they may be cut."""
        for at in sorted(self._widths, key=self._widths.__getitem__, reverse=True):
            least = self._columns[at].least
            if least and self.is_too_wide():
                self._cut(at, max(least, self._widths[at] - self._excess()))

    def leave_out(self) -> None:
        """Drop columns, the least important ones first."""
        order = sorted((at for at in self._widths if self._columns[at].goes), key=lambda at: self._columns[at].goes)
        for at in order:
            if self.is_too_wide():
                del self._widths[at]
                self._gone.append(self._columns[at].head)

    def cut_all(self) -> None:
        """Cut whatever is still too wide."""
        for at in sorted(self._widths, key=self._widths.__getitem__, reverse=True):
            if self.is_too_wide():
                self._cut(at, max(len(self._columns[at].head), self._widths[at] - self._excess()))

    def _cut(self, at: int, width: int) -> None:
        self._change([at], lambda cell: cut(cell, width))

    def _change(self, places: Sequence[int], change: Callable[[str], str]) -> None:
        """Change the cells of some columns."""
        self._body = [[change(cell) if at in places else cell for at, cell in enumerate(row)] for row in self._body]
        self._widths.update({at: self._wide(at) for at in places})

    def table(self) -> Table:
        """Return what is left."""
        notes = list(self._notes)
        if self._hosts and any(self._columns[at].is_host for at in self._widths):
            notes.insert(0, f"{_ELLIPSIS} in hosts: {self._hosts}")
        if self._gone:
            notes.append(f"no room for: {', '.join(self._gone)}")
        head = [self._columns[at].head for at in self._widths]
        return Table(head, [[row[at] for at in self._widths] for row in self._body], notes)


def _shared_start(names: set[str]) -> str:
    first, last = min(names), max(names)  # what these two share, all between them share
    return first[: next((at for at, char in enumerate(first) if last[at : at + 1] != char), len(first))]
