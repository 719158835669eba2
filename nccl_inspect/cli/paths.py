"""``nccl-inspect paths``: the path of each rank pair."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from textwrap import wrap

import click
from tabulate import tabulate

from nccl_inspect import reading
from nccl_inspect.cli import filters, say, shared
from nccl_inspect.cli.formats import formats
from nccl_inspect.model.document import path_to_dict
from nccl_inspect.model.job import Job, Path
from nccl_inspect.report import host_matrix
from nccl_inspect.report.tables import OWN_RANKS, Grid, Kind, grid, matrix, pairs, side_by_side, total_width
from nccl_inspect.rules.facts import count, ends
from nccl_inspect.text import printable
from nccl_inspect.wording import plain_ranges

_READABLE = 200
"""Columns of a matrix of hosts that still has the number of pairs."""
_EXAMPLES = """
\b
Examples:
  nccl-inspect paths job.log
  nccl-inspect paths job.log --matrix
  nccl-inspect paths job.log --by host
  nccl-inspect paths job.log --matrix --format csv -o matrix.csv
  nccl-inspect paths job.log --rank 3 --scope inter
  nccl-inspect paths job.log --transport NET --format csv -o net.csv
"""
_COLUMNS = (
    *("src", "dst", "src_host", "dst_host", "scope", "transport", "detail", "gdr", "nic", "nic_index", "pxn_rank"),
    *("shared", "channels", "communicators", "verdict", "rules", "guessed", "expected"),
)
"""Of the CSV: the keys of the JSON that fit into a cell."""


@click.command(epilog=_EXAMPLES, short_help="The path of each rank pair, as a table or matrix.")
@shared.inputs
@click.option(
    "--matrix", "as_matrix", is_flag=True, help="Rank by rank (host by host above 64 ranks) instead of a table."
)
@click.option("--by", type=click.Choice(("rank", "host")), help="Rows and columns of the matrix; implies --matrix.")
@click.option(
    "--rank", "wanted_ranks", multiple=True, metavar="R", help="Only paths from or to these ranks: 3, 0-7 or 0-56:8."
)
@click.option(
    "--host",
    "wanted_hosts",
    multiple=True,
    metavar="NAME",
    help="Only paths from or to these hosts: name, glob or node-[01-16].",
)
@click.option(
    "--scope", type=click.Choice(("intra", "inter", "unknown")), help="Only paths within a host, or between hosts."
)
@click.option(
    "--transport",
    type=click.Choice(("P2P", "SHM", "NET", "COLLNET"), case_sensitive=False),
    help="Only this transport.",
)
@formats(("table", "csv", "json"))
@shared.judging
@shared.output
def command(
    logs: tuple[str, ...],
    as_matrix: bool,
    by: str | None,
    wanted_ranks: tuple[str, ...],
    wanted_hosts: tuple[str, ...],
    scope: str | None,
    transport: str | None,
    form: str,
    options: reading.Options,
    out: shared.Output,
) -> int:
    """The path of each directed pair of global ranks that a connection line names.

    Where the log does not show the communicator of all ranks, each communicator has pairs of its own ranks.
    On a terminal of less than 80 columns the table has those that fit, and says which do not. A matrix of hosts that
    does not fit shows the worst path, and hosts that look alike as one.
    """
    as_matrix = as_matrix or by is not None
    ranks = filters.ranges_of("rank", wanted_ranks)
    job = shared.read(logs, options)
    filters.require_numbers("rank", ranks, {*job.ranks_seen, *ends(job.paths)})
    hosts = filters.names_known("host", wanted_hosts, [host.name for host in job.hosts])
    found = [
        path
        for path in job.paths
        if (not ranks or any(path.src in some or path.dst in some for some in ranks))
        and (not hosts or path.src_host in hosts or path.dst_host in hosts)
        and scope in (None, path.scope)
        and transport in (None, path.transport)
    ]
    if not found:
        say(_none(job))
    if form == "table":
        is_global = job.rank_space == "global"
        width = shared.table_width(out.target)
        out.write(_matrix(found, job.paths, width, is_global, by) if as_matrix else _table(found, width, is_global))
    else:
        out.write(_MATRICES[form](grid(found, by)) if as_matrix else _FORMATS[form](found))
    return shared.status(job)


def _none(job: Job) -> str:
    """Why there is nothing to show."""
    if not len(job.paths):
        return "no path: the log has no connection line"
    kinds = Counter(f"{path.scope} {path.transport}" for path in job.paths)
    there = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    return f"no path matches; the log has {count(len(job.paths), 'path')}: {there}"


def _table(paths: list[Path], width: int, is_global: bool) -> str:
    if not paths:
        return "no path\n"
    head, body, notes = pairs(paths, width, is_global)
    # With a head of its own, tabulate would widen each column by two.
    lines = ["-" * max(map(len, column)) for column in zip(head, *body, strict=True)]
    table = tabulate([head, lines, *body], tablefmt="plain", disable_numparse=True)
    return "\n".join([table, *([""] if notes else []), *_notes(notes, width)]) + "\n"


def _notes(notes: Sequence[str], width: int) -> list[str]:
    return [line for note in notes for line in wrap(note, width, subsequent_indent="  ", break_long_words=False)]


def _matrix(paths: list[Path], among: Sequence[Path], width: int, is_global: bool, by: str | None) -> str:
    if not paths:
        return "no path\n"
    by = grid(paths, by).by
    room = min(width, _READABLE) if by == "host" else width
    whole = matrix(paths, among, room, by)
    # Each rank keeps its row and column, however many lines that takes; hosts are there to be seen together.
    if by == "host" and total_width(whole) > room:
        rows, legend = host_matrix.parts(paths, among, width)
        return "\n".join([*rows, "", *_notes([*legend, *([] if is_global else [OWN_RANKS])], width)]) + "\n"
    parts = [
        tabulate(part.body, part.head, tablefmt="plain", disable_numparse=True, stralign="right")
        for part in side_by_side(whole, width)
    ]
    return "\n\n".join([*parts, "\n".join([*whole.legend, *([] if is_global else [OWN_RANKS])])]) + "\n"


def _csv(paths: list[Path]) -> str:
    """The columns of the JSON, lists as ranges; empty where the log does not tell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([[_cell(path_to_dict(path)[name]) for name in _COLUMNS] for path in paths])
    return out.getvalue()


def _cell(value: object) -> str:
    """The text of a cell; a spreadsheet must not take a name out of a log for a formula."""
    text = _plain(value)
    return f"'{text}" if isinstance(value, str | list) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return plain_ranges(value) if value and isinstance(value[0], int) else ";".join(map(str, value))
    return "" if value is None else str(value)


def _json(paths: list[Path]) -> str:
    return json.dumps([path_to_dict(path) for path in paths], indent=1) + "\n"


def _matrix_csv(found: Grid) -> str:
    """One row for each sender; several ways between two hosts are separated by semicolons."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["src\\dst", *found.names])
    writer.writerows([[src, *(_kinds(found, src, dst) for dst in found.names)] for src in found.names])
    return out.getvalue()


def _kinds(found: Grid, src: str, dst: str) -> str:
    cell = found.cells.get((src, dst), {})
    times = "" if found.by == "rank" else "{} x "
    return "; ".join(f"{times.format(pairs)}{kind.label} ({kind.verdict})" for kind, pairs in cell.items())


def _matrix_json(found: Grid) -> str:
    """Names of rows and columns; each cell is a list of ways with the number of rank pairs that take them."""
    rows = [[_ways(found.cells.get((src, dst), {})) for dst in found.names] for src in found.names]
    return json.dumps({"by": found.by, "names": found.names, "rows": rows}, indent=1) + "\n"


def _ways(cell: dict[Kind, int]) -> list[dict[str, object]]:
    return [
        {"detail": printable(kind.detail), "gdr": kind.gdr, "verdict": kind.verdict, "pairs": pairs}
        for kind, pairs in cell.items()
    ]


_FORMATS = {"csv": _csv, "json": _json}
_MATRICES = {"csv": _matrix_csv, "json": _matrix_json}
