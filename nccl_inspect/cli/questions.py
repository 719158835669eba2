"""Shared by the commands that answer a question with a table: options, reading, and the output of records."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import wraps
from typing import Any

import click

from nccl_inspect.answers import Table, names_of
from nccl_inspect.answers.selection import PlaceFilter
from nccl_inspect.cli import filters, print_stderr, shared, writing
from nccl_inspect.cli.formats import formats
from nccl_inspect.model.document import clean
from nccl_inspect.pipeline import reading
from nccl_inspect.report.columns import UNBOUNDED, cells, drawn, fitted
from nccl_inspect.util.records import Record
from nccl_inspect.util.wording import count, ranges

Answered = tuple[Sequence[Record], str]
"""The rows that fit the options, and the message if there is none."""


def question(
    kind: Table, noun: str, *, tells_logs: bool = False
) -> Callable[[Callable[..., Answered]], Callable[..., int]]:
    """Make a command of a function that takes a job, a test of ranks and hosts, and its own options.

    Args:
        kind: the module that makes the rows.
        noun: of one row: ``host``.
        tells_logs: the function gets the inputs, too.
    """

    def decorate(rows_of: Callable[..., Answered]) -> Callable[..., int]:
        @wraps(rows_of)
        def command(
            logs: tuple[str, ...],
            places: PlaceFilter,
            limit: int | None,
            form: str,
            options: reading.Options,
            out: writing.Output,
            **own: Any,
        ) -> int:
            job = shared.read(logs, options)
            rows, none = rows_of(job, places.of(job), **own, **({"logs": logs} if tells_logs else {}))
            if not rows:
                print_stderr(none)
            out.write(_text(kind, rows, noun, form, limit, writing.columns(out.target, UNBOUNDED)))
            return shared.status(job)

        few = click.option("--limit", type=click.IntRange(1), metavar="N", help=f"Only the first N {noun}s.")
        among = filters.place_options(f"Only {noun}s of these ranks", f"Only {noun}s of these hosts")
        written = formats(("table", "csv", "json"))(shared.read_options(shared.output_options(command)))
        return shared.inputs(among(few(written)))

    return decorate


def _text(kind: Table, rows: Sequence[Record], noun: str, form: str, limit: int | None, width: int) -> str:
    shown = rows[:limit]
    if form == "json":
        return json.dumps([clean(asdict(row)) for row in shown], indent=1)  # type: ignore[call-overload]
    if form == "csv":
        return table_of_values(names_of(kind.RECORD), [asdict(row) for row in shown])  # type: ignore[call-overload]
    if not shown:
        return f"no {noun}"
    table = fitted(kind.COLUMNS, cells(kind.COLUMNS, shown), width)
    if width < UNBOUNDED and len(shown) < len(rows):
        table = table._replace(notes=[*table.notes, f"{len(shown)} of {count(len(rows), noun)}"])
    return drawn(table, width)


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
