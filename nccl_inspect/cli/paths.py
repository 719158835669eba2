"""``nccl-inspect paths``: the path of each rank pair."""

from __future__ import annotations

import json
from collections.abc import Callable

import click
from tabulate import tabulate

from nccl_inspect import platforms
from nccl_inspect.answers import Column, selection
from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.cli.shared import format_option
from nccl_inspect.judging import impact
from nccl_inspect.model.document import clean, entries
from nccl_inspect.model.job import Job, Selection
from nccl_inspect.pipeline import reading
from nccl_inspect.report import tables
from nccl_inspect.report.tables import (
    OWN_RANKS,
    UNBOUNDED,
    Grid,
    PathClass,
    draw_table,
    grid,
    matrix,
    matrix_widths,
    pair_table,
    split_matrix,
    wrap_notes,
)
from nccl_inspect.util.records import pick_fields

VERDICTS = ("ok", "fallback", "unknown")
_MANY = 50  # rows of a table beyond which it says how to narrow it
_READABLE = 200  # columns of a matrix of hosts that still has the number of pairs
_COLUMNS = (  # of the CSV: the keys of the JSON that fit into a cell
    *("src", "dst", "src_host", "dst_host", "scope", "transport", "detail", "gdr", "nic", "nic_index", "pxn_rank"),
    *("shared", "channels", "communicators", "verdict", "rules", "guessed", "expected"),
    *("src_nic", "dst_nic"),
)


@click.command(short_help="List the path of each rank pair, as a table or matrix.")
@shared.inputs
@click.option(
    "--matrix", "as_matrix", is_flag=True, help="Print a matrix of ranks (of hosts above 64 ranks) instead of a table."
)
@click.option("--by", type=click.Choice(("rank", "host")), help="Rows and columns of the matrix; implies --matrix.")
@shared.rank_and_host_options("Only paths from or to these ranks", "Only paths from or to these hosts")
@click.option(
    "--scope",
    type=click.Choice(("intra", "inter", "unknown")),
    help="Only paths within a host (intra) or between hosts (inter).",
)
@click.option(
    "--transport",
    "transports",
    multiple=True,
    metavar="NAME",
    help="Only this transport, as printed in the table, or a prefix: NET, NET/Socket, ib, P2P/CUMEM.",
)
@click.option(
    "--verdict",
    "verdicts",
    type=click.Choice(VERDICTS),
    multiple=True,
    help="Only paths with this verdict. May be repeated.",
)
@shared.finding_option("Only paths that these findings are about")
@click.option(
    "--slowest",
    type=click.IntRange(1),
    metavar="N",
    help="Only the N slowest paths by the usual speed of their transport; slowest first.",
)
@format_option(("table", "csv", "json"))
@shared.read_options
@shared.output_options
def command(
    logs: tuple[str, ...],
    as_matrix: bool,
    by: str | None,
    places: selection.PlaceFilter,
    scope: str | None,
    transports: tuple[str, ...],
    verdicts: tuple[str, ...],
    rules: frozenset[str],
    slowest: int | None,
    form: str,
    options: reading.Options,
    out: shared.Output,
) -> int:
    """List the path of each directed pair of global ranks that has a connection line.

    NIC is the sender's and the receiver's. Verdict: ok (as good as expected), fallback (a finding says that there
    should be a better path) or unknown. If the log does not show the communicator of all ranks, pairs are listed per
    communicator, with its own ranks. A narrow terminal shows the columns that fit; a file or a pipe gets all of them.
    A matrix of hosts that does not fit shows the worst path, and hosts that look alike as one.

    Examples:
      nccl-inspect paths job.log
      nccl-inspect paths job.log --matrix
      nccl-inspect paths job.log --by host
      nccl-inspect paths job.log --matrix --format csv -o matrix.csv
      nccl-inspect paths job.log --rank 3 --scope inter
      nccl-inspect paths job.log --verdict fallback         paths that should be better
      nccl-inspect paths job.log --slowest 20
      nccl-inspect paths job.log --finding gdr-disabled
      nccl-inspect paths job.log --transport NET/Socket --format csv -o tcp.csv
    """
    as_matrix = as_matrix or by is not None
    if as_matrix and slowest:
        raise click.UsageError("--matrix and --slowest exclude each other; omit one")
    wanted = selection.PathFilter(places, scope, transports, verdicts, rules)
    job = shared.read(logs, options)
    chosen = wanted.select(job)
    if not chosen:
        print_stderr(selection.explain_no_path(job, verdicts))
    if slowest:
        chosen = selection.sort_slowest_first(chosen, job).take(slowest)
    if form != "table":
        out.write(_MATRICES[form](grid(chosen, by)) if as_matrix else _LISTS[form](chosen))
    elif not chosen:
        out.write("no path")
    else:
        width = shared.output_width(out.target, UNBOUNDED)
        out.write(_matrix(chosen, width, job, by) if as_matrix else _table(chosen, width, job, slowest))
    return shared.status(job)


def _table(paths: Selection, width: int, job: Job, slowest: int | None) -> str:
    platform = platforms.find(job.platform) if job.platform else None
    speed = Column("speed", "usual speed", goes=8, text=lambda path: str(impact.find_rate(path, platform) or ""))
    table = pair_table(paths, width, job.rank_space == "global", [speed] if slowest else [])
    if width < UNBOUNDED and len(paths) > _MANY:
        worse = len(paths.where(lambda kind: kind.verdict == "fallback"))
        how = "--verdict fallback" if 0 < worse < len(paths) else "--rank, --host or --slowest"
        table.notes.append(f"{len(paths):,} paths; narrow with {how}")
    return draw_table(table, width)


def _matrix(paths: Selection, width: int, job: Job, by: str | None) -> str:
    whole, own = matrix(paths, job.paths, by), [] if job.rank_space == "global" else [OWN_RANKS]
    # Each rank keeps its row and column, however many lines that takes; hosts are there to be seen together.
    if grid(paths, by).by == "host" and sum(matrix_widths(whole)) - 2 > min(width, _READABLE):
        rows, legend = tables.fold_hosts(paths, job.paths, width)
        return "\n".join([*rows, "", *wrap_notes([*legend, *own], width)]) + "\n"
    parts = [
        tabulate(part.body, part.head, tablefmt="plain", disable_numparse=True, stralign="right")
        for part in split_matrix(whole, width)
    ]
    return "\n\n".join([*parts, "\n".join([*whole.notes, *own])]) + "\n"


def _matrix_csv(matrix: Grid) -> str:
    times, rows = "" if matrix.by == "rank" else "{} x ", []
    for src in matrix.names:
        cells = [matrix.cells.get((src, dst), {}).items() for dst in matrix.names]
        texts = [[f"{times.format(pairs)}{kind.label} ({kind.verdict})" for kind, pairs in cell] for cell in cells]
        rows.append([src, *map("; ".join, texts)])
    return tables.write_csv([["src\\dst", *matrix.names], *rows])


def _matrix_json(matrix: Grid) -> str:

    def ways(cell: dict[PathClass, int]) -> list[dict[str, object]]:
        numbers = ((clean(pick_fields(kind, "detail", "gdr", "verdict")), pairs) for kind, pairs in cell.items())
        return [{**kind, "pairs": pairs} for kind, pairs in numbers]

    rows = [[ways(matrix.cells.get((src, dst), {})) for dst in matrix.names] for src in matrix.names]
    return json.dumps({"by": matrix.by, "names": matrix.names, "rows": rows}, indent=1) + "\n"


_LISTS: dict[str, Callable[[Selection], str]] = {
    "csv": lambda paths: tables.write_records(_COLUMNS, list(entries(paths))),
    "json": lambda paths: json.dumps(list(entries(paths)), indent=1) + "\n",
}
_MATRICES = {"csv": _matrix_csv, "json": _matrix_json}
