"""Shared by the commands that answer a question with a table: options, and the output of records."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import click

from nccl_inspect.answers import Answer, names_of
from nccl_inspect.cli import filters, print_stderr, shared, writing
from nccl_inspect.cli.formats import formats
from nccl_inspect.model.document import clean
from nccl_inspect.report.columns import UNBOUNDED, cells, drawn, fitted
from nccl_inspect.util.records import Record
from nccl_inspect.util.wording import count, ranges

_Command = TypeVar("_Command", bound=Callable[..., Any])


def question_options(noun: str) -> Callable[[_Command], _Command]:
    """Add the inputs and options of a command that answers a question.

    Args:
        noun: of the rows, for the help: ``hosts``.
    """

    def decorate(command: _Command) -> _Command:
        limit = click.option("--limit", type=click.IntRange(1), metavar="N", help=f"Only the first N {noun}.")
        places = filters.place_options(f"Only {noun} of these ranks", f"Only {noun} of these hosts")
        written = formats(("table", "csv", "json"))(shared.read_options(shared.output_options(command)))
        return shared.inputs(places(limit(written)))

    return decorate


def answer(
    kind: Answer, rows: Sequence[Record], noun: str, none: str, form: str, limit: int | None, out: writing.Output
) -> None:
    """Write the rows; report on stderr if there are none.

    Args:
        kind: the module that made them.
        rows: that fit the options.
        noun: of one row: ``host``.
        none: the message if there is no row.
        form: ``table``, ``csv`` or ``json``.
        limit: maximum number of rows.
        out: the output.
    """
    if not rows:
        print_stderr(none)
    shown = rows[:limit]
    if form == "json":
        text = json.dumps([clean(asdict(row)) for row in shown], indent=1)  # type: ignore[call-overload]
    elif form == "csv":
        text = table_of_values(names_of(kind.RECORD), [asdict(row) for row in shown])  # type: ignore[call-overload]
    elif not shown:
        text = f"no {noun}"
    else:
        width = writing.columns(out.target, UNBOUNDED)
        table = fitted(kind.COLUMNS, cells(kind.COLUMNS, shown), width)
        if width < UNBOUNDED and len(shown) < len(rows):
            table = table._replace(notes=[*table.notes, f"{len(shown)} of {count(len(rows), noun)}"])
        text = drawn(table, width)
    out.write(text)


def table_of_values(names: Sequence[str], records: Sequence[dict[str, Any]]) -> str:
    """Records as CSV, lists of ranks as ranges; unknown values are empty."""
    return table_of_rows([names, *([clean(record[name]) for name in names] for record in records)])


def table_of_rows(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV, the head first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _cell(value: object) -> str:
    """The text of a cell; spreadsheets must not take text from a log for a formula."""
    text = _plain(value)
    return f"'{text}" if isinstance(value, str | list) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ranges(value) if value and isinstance(value[0], int) else ";".join(map(str, value))
    return "" if value is None else str(value)
