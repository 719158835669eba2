"""Tables of reports: paths by kind, and whatever has columns.

A table with columns fits a width: columns are dropped, values that all rows share move below, and cells are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os.path import commonprefix
from textwrap import wrap
from typing import Any, NamedTuple

from nccl_inspect.answers import Column
from nccl_inspect.model.job import Selection
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import ranges


def gdr_word(gdr: bool | str | None) -> str:
    """Return GPUDirect RDMA in one word; ``-`` where it does not apply."""
    if gdr is None:
        return "-"
    return "partial" if isinstance(gdr, str) else "yes" if gdr else "no"


def rows_by_kind(paths: Selection) -> list[list[str]]:
    """Return a row for each kind of path: scope, path, pairs, GPUDirect, channels, verdict."""
    alike = group_values(
        ((kind.scope, kind.detail, gdr_word(kind.gdr), kind.verdict), (len(kind.channels), number))
        for kind, number in paths.count_kinds()
    )
    rows = []
    for (scope, detail, gdr, verdict), members in sorted(alike.items()):
        channels, numbers = zip(*members, strict=True)
        span = "-".join(map(str, sorted({min(channels), max(channels)})))
        rows.append([scope, escape_controls(detail), str(sum(numbers)), gdr, span, verdict])
    return rows


KIND_HEAD = ["scope", "path", "pairs", "GDR", "channels", "verdict"]


def align_table(head: Sequence[str], rows: Iterable[Sequence[str]], room: int = 2) -> list[str]:
    """Return the lines of a table, with some room behind the names in its head, as tabulate's format "simple" has them.

    Loading tabulate takes as long as reading a short log, and most tables need no more than this.
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, [name + " " * room for name in head], strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


class Table(NamedTuple):
    """A table as text, and the notes below it."""

    head: list[str]
    body: list[list[str]]
    notes: list[str]


UNBOUNDED = 1 << 30  # the width of a table in a file or a pipe: programs read it
NOTHING = "-"  # the cell for unknown values and values that do not apply
_ELLIPSIS = "…"
_BETWEEN = 2  # blanks between columns
_MIN_PREFIX = 4


def make_cells(columns: Sequence[Column], records: Sequence[Any]) -> list[list[str]]:
    """Return the cells of some records, one row each."""
    rows = []
    for record in records:
        texts = [one.text(record) if one.text else _value_text(getattr(record, one.name)) for one in columns]
        rows.append([escape_controls(text) or NOTHING for text in texts])
    return rows


def _value_text(value: object, flags: tuple[str, str] = ("no", "yes"), between: str = ", ") -> str:
    if isinstance(value, bool):
        return flags[value]
    if isinstance(value, list):
        return ranges(value) if value and isinstance(value[0], int) else between.join(map(str, value))
    return "" if value is None else str(value)


def fit_table(columns: Sequence[Column], body: list[list[str]], width: int) -> Table:
    """Return the table, fitted to a width if possible.

    Empty columns are left out. If the rest is too wide, the common prefix of host names is removed, values that all
    rows share move below, long cells are cut, and finally columns are dropped.
    """
    cells: dict[int, list[str]] = {}
    widths: dict[int, int] = {}  # of the columns that are still there
    notes: list[str] = []

    def put(at: int, column: list[str]) -> None:
        cells[at], widths[at] = column, max(map(len, (columns[at].head, *column)))

    def drop(at: int) -> str:
        del cells[at], widths[at]
        return columns[at].head

    def excess() -> int:
        return sum(widths.values()) + _BETWEEN * (len(widths) - 1) - width

    def cut_cells(least: Callable[[Column], int]) -> None:
        for at in sorted(widths, key=widths.__getitem__, reverse=True):
            if least(columns[at]) and (more := excess()) > 0:
                put(at, _cut_column(cells[at], max(least(columns[at]), widths[at] - more)))

    for at, column in enumerate(columns):
        put(at, [row[at] for row in body])
        if (column.goes or column.folds) and set(cells[at]) <= {NOTHING}:
            drop(at)
    hosts = {at: column for at, column in cells.items() if columns[at].is_host}
    names = {name for column in hosts.values() for name in column}
    start = commonprefix(list(names)) if len(names) > 1 and excess() > 0 else ""  # noqa: RUF071 - names, no paths
    if len(start) > _MIN_PREFIX:
        for at, whole in hosts.items():
            put(at, [_ELLIPSIS + name[len(start) :] for name in whole])
    if excess() > 0:
        for at in [at for at in cells if columns[at].folds]:
            values = {row[at] for row in body}
            if len(values) == 1 and len(body) > 1:
                notes.append(f"{drop(at)} of all: {values.pop()}")
    cut_cells(lambda column: column.least)
    order = sorted((at for at in cells if columns[at].goes), key=lambda at: columns[at].goes)
    gone = [drop(at) for at in order if excess() > 0]
    cut_cells(lambda column: len(column.head))
    if len(start) > _MIN_PREFIX and not hosts.keys().isdisjoint(cells):
        notes.insert(0, f"{_ELLIPSIS} in hosts: {start}")
    notes += [f"no room for: {', '.join(gone)}"] if gone else []
    return Table([columns[at].head for at in cells], list(map(list, zip(*cells.values(), strict=True))), notes)


def _cut_column(column: Sequence[str], width: int) -> list[str]:
    """Cut cells at their ends; of those that would look alike the beginning, so that the difference stays."""
    alike = group_values((cut(cell, width), cell) for cell in set(column))
    short: dict[str, str] = {}
    for end, same in alike.items():
        begin = min(len(commonprefix(same)), max(map(len, same)) - width + 1)  # noqa: RUF071 - texts, no paths
        short |= {cell: end if len(same) == 1 else _ELLIPSIS + cut(cell[begin:], width - 1) for cell in same}
    return [short[cell] for cell in column]


def draw_table(table: Table, width: int) -> str:
    """Return the text of a table."""
    lines = align_table(table.head, table.body, room=0)
    return "\n".join([*lines, *([""] if table.notes else []), *wrap_notes(table.notes, width)]) + "\n"


def wrap_notes(notes: Sequence[str], width: int) -> list[str]:
    """Return the notes below a table, in lines of a width."""
    return [line for note in notes for line in wrap(note, width, subsequent_indent="  ", break_long_words=False)]


def write_records(names: Sequence[str], records: Sequence[dict[str, Any]]) -> str:
    """Return records as CSV, lists of ranks as ranges; unknown values are empty."""
    from nccl_inspect.model.document import clean  # a summary needs none of it

    return write_csv([names, *([clean(record[name]) for name in names] for record in records)])


def write_csv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV, the head first."""
    import csv
    from io import StringIO

    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_write_cell, row) for row in rows)
    return text.getvalue()


def _write_cell(value: object) -> str:
    """Return the text of a cell; spreadsheets must not take text from a log for a formula."""
    text = _value_text(value, ("false", "true"), ";")
    return f"'{text}" if isinstance(value, str | list) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
