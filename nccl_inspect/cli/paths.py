"""``nccl-inspect paths``: the path of each rank pair, in rows, or as a matrix of ranks or hosts.

In a matrix of hosts a fault shows in the row and the column of its host. Hosts that look like their neighbors are
folded, so a job of a thousand ranks fits a terminal, and the odd host has its own row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import click

from nccl_inspect import platforms
from nccl_inspect.answers import Column, selection
from nccl_inspect.cli import print_stderr, shared
from nccl_inspect.judging import impact
from nccl_inspect.model.document import clean, entries
from nccl_inspect.model.job import Path, PathKind, Selection
from nccl_inspect.pipeline import reading
from nccl_inspect.report import tables
from nccl_inspect.report.tables import UNBOUNDED, draw_table, fit_table, gdr_word, make_cells, wrap_notes
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, pick_fields
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import fold_names

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
@shared.format_option(("table", "csv", "json"))
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
    job = shared.read(logs, options)
    chosen = selection.select_paths(job, places, scope, transports, verdicts, rules)
    if not chosen:
        print_stderr(selection.explain_no_path(job, verdicts))
    if slowest:
        chosen = selection.sort_slowest_first(chosen, job).take(slowest)
    width, own = shared.output_width(out.target, UNBOUNDED), [] if job.rank_space == "global" else [OWN_RANKS]
    if form != "table":
        out.write(_MATRICES[form](make_grid(chosen, job.paths, by)) if as_matrix else _LISTS[form](chosen))
    elif not chosen:
        out.write("no path")
    elif as_matrix:
        out.write(_draw_matrix(make_grid(chosen, job.paths, by), width, own))
    else:
        platform = platforms.find(job.platform) if job.platform else None
        speed = Column("speed", "usual speed", goes=8, text=lambda path: str(impact.find_rate(path, platform) or ""))
        # Communicators are named where ranks are not global, so that the same pair appears for each.
        columns = [*PAIR, *([_COMMUNICATORS] if own else []), *([speed] if slowest else [])]
        table = fit_table(columns, make_cells(columns, chosen), width)
        table.notes.extend(own)
        if width < UNBOUNDED and len(chosen) > _MANY:
            worse = len(chosen.where(lambda kind: kind.verdict == "fallback"))
            how = "--verdict fallback" if 0 < worse < len(chosen) else "--rank, --host or --slowest"
            table.notes.append(f"{len(chosen):,} paths; narrow with {how}")
        out.write(draw_table(table, width))
    return shared.status(job)


def _end_nics(path: Path) -> str:
    sender, receiver = path.nic_at("send"), path.nic_at("receive")
    if sender or receiver:
        return f"{sender or '?'} -> {receiver or '?'}"
    return path.nic or ("" if path.nic_index is None else str(path.nic_index))


PAIR = (  # of the table of pairs
    Column("src", "src"),
    Column("dst", "dst"),
    Column("src_host", "src host", goes=1, folds=True, is_host=True, text=lambda path: path.src_host or "?"),
    Column("dst_host", "dst host", goes=2, folds=True, is_host=True, text=lambda path: path.dst_host or "?"),
    Column("scope", "scope", goes=6, folds=True),
    Column("detail", "path"),
    Column("gdr", "GDR", goes=5),
    Column("nic", "NIC", goes=4, text=_end_nics),
    Column("channels", "channels", goes=3),
    Column("expected", "expected", goes=7),
    Column("verdict", "verdict"),
)
_COMMUNICATORS = Column("communicators", "communicator")


OWN_RANKS = "ranks are relative to each communicator: the log does not show the communicator of all ranks"
"""The note under tables of paths whose ranks are not global."""


# The matrix

_FOLD_ABOVE = 64  # ranks above which the matrix is folded to hosts
_ENDS = {"rank": ("src", "dst"), "host": ("src_host", "dst_host")}
CORNER = "src\\dst"
LEFT_OUT = "-"
MARKS = {"fallback": ("!", "fallback"), "unknown": ("?", "not judged")}
"""By verdict, the mark after the letter of a path, and its meaning."""
_NO_LINE = "."


class PathClass(Frozen):
    """Paths that look the same in a table."""

    detail: str
    gdr: bool | str | None
    verdict: str

    @property
    def label(self) -> str:
        """Return the path with its GPUDirect."""
        signs = {"yes": " GDRDMA", "partial": " GDRDMA partial"}
        return escape_controls(self.detail) + signs.get(gdr_word(self.gdr), "")


class Grid(Frozen):
    """The paths between all ends: rank by rank, above 64 ranks host by host."""

    by: str  # `rank` or `host`
    names: list[str]  # of the rows, which send, and of the columns
    cells: dict[tuple[str, str], dict[PathClass, int]]  # number of rank pairs by kind
    left_out: set[tuple[str, str]]  # ends between which a filter leaves out all paths
    is_part: bool  # whether it leaves out any
    letters: dict[str, str]  # those that stand for paths, by their labels
    marks: str  # what the marks of verdicts mean

    def mark(self, kind: PathClass) -> str:
        """Return a path in a letter or two."""
        return self.letters[kind.label] + MARKS.get(kind.verdict, ("", ""))[0]


def make_grid(paths: Selection, among: Selection, by: str | None) -> Grid:
    """Return the paths by their ends, of all paths of the job: by rank, and by host if there are many ranks."""
    ranks = paths.ends()
    by = by or ("rank" if len(ranks) <= _FOLD_ABOVE else "host")
    cells: dict[tuple[str, str], dict[PathClass, int]] = {}
    for (src, dst, kind), number in Counter(paths.values(*_ENDS[by], _kind)).items():
        cell = cells.setdefault((_name(src), _name(dst)), {})
        cell[kind] = cell.get(kind, 0) + number
    hosts = dict.fromkeys(_name(host) for pair in paths.distinct(*_ENDS["host"]) for host in pair)
    is_part, verdicts = len(paths) < len(among), {kind.verdict for kind in paths.kinds}
    whole = among.distinct(*_ENDS[by]) if is_part else ()
    letters: dict[str, str] = {}
    for kind in sorted(paths.kinds, key=lambda kind: (kind.transport != "P2P", kind.detail)):
        label = _kind(kind).label
        if label not in letters:
            wanted = kind.transport[0] + "".join(filter(str.isalpha, kind.detail)) + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
            free = (char.upper() for char in wanted if char.upper() not in letters.values())
            letters[label] = next(free, f"K{len(letters)}")
    names = list(map(str, sorted(ranks))) if by == "rank" else list(hosts)
    left_out = {(_name(src), _name(dst)) for src, dst in whole} - cells.keys()
    marks = ", ".join(f"{mark} = {words}" for verdict, (mark, words) in MARKS.items() if verdict in verdicts)
    return Grid(by, names, cells, left_out, is_part, letters, marks)


def _kind(kind: PathKind) -> PathClass:
    return PathClass(kind.detail, kind.gdr, kind.verdict)


def _name(end: int | str | None) -> str:
    return "?" if end in (None, "") else escape_controls(str(end))


def _draw_matrix(shown: Grid, width: int, own: list[str]) -> str:
    """Return the matrix; where a filter leaves out paths, rows and columns without any of the others are left out."""
    by_rank = shown.by == "rank"
    senders, receivers = (
        [name for name in shown.names if not shown.is_part or name in ends]
        for ends in ({pair[side] for pair in shown.cells} for side in (0, 1))
    )

    def text(src: str, dst: str) -> str:
        cell = shown.cells.get((src, dst), {})
        words = [("" if by_rank else str(pairs)) + shown.mark(kind) for kind, pairs in cell.items()]
        absent = LEFT_OUT if (src, dst) in shown.left_out else _NO_LINE if by_rank and src != dst else ""
        return ("" if by_rank else " ").join(words) or absent

    head, body = [CORNER, *receivers], [[src, *(text(src, dst) for dst in receivers)] for src in senders]
    # With the blanks in front of each.
    widths = [2 + max(len(name) + 2, *map(len, cells), 0) for name, *cells in zip(head, *body, strict=True)]
    # Each rank keeps its row and column, however many lines that takes; hosts are there to be seen together.
    if not by_rank and sum(widths) - 2 > min(width, _READABLE):
        rows, legend = fold_hosts(shown, width)
        return "\n".join([*rows, "", *wrap_notes([*legend, *own], width)]) + "\n"
    cells = {cell for row in body for cell in row[1:]}
    legend = [f"{letter} = {label}" for label, letter in shown.letters.items()]
    legend += [f"{LEFT_OUT} = left out by the filter"] if LEFT_OUT in cells else []
    if by_rank:
        legend += filter(None, [f"{_NO_LINE} = no connection line" if _NO_LINE in cells else "", shown.marks])
    else:
        legend.append(
            "; ".join(filter(None, [f"number of pairs{' that the filter leaves' * shown.is_part}", shown.marks]))
        )
    parts: list[list[int]] = [[0]]  # columns that fit the width, one part below the other; each has all rows
    used = widths[0]
    for place, wide in enumerate(widths[1:], 1):
        if len(parts[-1]) > 1 and used + wide > width + 2:  # nothing follows the last one
            parts.append([0])
            used = widths[0]
        parts[-1].append(place)
        used += wide
    texts = []
    for part in parts:
        lines = ("".join(line[at].rjust(widths[at]) for at in part) for line in (head, *body))
        texts.append("\n".join(line[2:].rstrip() for line in lines))
    return "\n\n".join([*texts, "\n".join([*legend, *own])]) + "\n"


_SPEED = {"P2P": 0, "SHM": 1, "NET": 2}
_MAX_LABEL = 40
_Worst = Mapping[tuple[str, str], tuple[tuple[int, ...], str]]
"""By sender and receiver how bad the worst path is, with its mark; nothing is known of those that are left out."""


def fold_hosts(shown: Grid, width: int) -> tuple[list[str], list[str]]:
    """Return the matrix of hosts and its legend; if it does not fit, hosts that look alike and neighbors are folded."""
    worst: dict[tuple[str, str], tuple[tuple[int, ...], str]] = {}
    for pair, kinds in shown.cells.items():
        kind = max(kinds, key=_rank_badness)
        worst[pair] = _rank_badness(kind), shown.mark(kind)
    senders = len({src for src, _ in worst})
    worst |= dict.fromkeys(shown.left_out, ((), LEFT_OUT))
    for groups in _group_hosts(shown.names, worst):
        drawn = _draw_groups(groups, worst)
        if max(map(len, drawn)) <= width or len(groups) == 1:
            break
    marks = {cell for line in drawn[1:] for cell in line.partition(" = ")[2].split()}
    signs = {LEFT_OUT: "left out by the filter", _NO_LINE: "no connection line"}
    legend = [f"{letter} = {label}" for label, letter in shown.letters.items()]
    legend += [f"{sign} = {words}" for sign, words in signs.items() if sign in marks]
    about = "the worst path of each pair of hosts; --format csv has all"
    if len(drawn) - 1 < senders:
        about = "the worst path; P/N: within hosts/between hosts of the row; --format csv has each host"
    return drawn, [*legend, "; ".join(filter(None, [about, shown.marks]))]


def _rank_badness(kind: PathClass) -> tuple[bool, bool, int, bool, bool]:
    speed = _SPEED.get(kind.detail.partition("/")[0], len(_SPEED))
    return kind.verdict == "fallback", kind.verdict == "unknown", speed, "Socket" in kind.detail, kind.gdr is not True


def _group_hosts(hosts: Sequence[str], worst: _Worst) -> Iterator[list[Sequence[str]]]:
    """Yield each host alone, then neighbors that look alike, then more and more neighbors."""
    yield [[host] for host in hosts]
    seen: dict[str, set[tuple[str, str]]] = {host: set() for host in hosts}
    for (src, dst), (badness, mark) in worst.items():
        for host, side in ((src, "from"), (dst, "to")) if badness else ():
            seen[host].add(("within" if src == dst else side, mark))
    yield [list(alike) for _, alike in groupby(hosts, seen.__getitem__)]
    size = 2
    while size < 2 * len(hosts):
        yield [hosts[at : at + size] for at in range(0, len(hosts), size)]
        size *= 2


def _draw_groups(groups: Sequence[Sequence[str]], worst: _Worst) -> list[str]:
    group_of = {host: at for at, group in enumerate(groups) for host in group}
    pairs = group_values(
        ((src != dst, group_of[src], group_of[dst]), known)
        for (src, dst), known in worst.items()
        if src in group_of and dst in group_of
    )
    cells: dict[tuple[int, int], str] = {}
    for (_, src_group, dst_group), some in sorted(pairs.items(), key=lambda item: item[0][0]):
        before, (_, mark) = cells.get((src_group, dst_group)), max(some, key=itemgetter(0))
        cells[src_group, dst_group] = f"{before}/{mark}" if before else mark
    senders, receivers = (sorted({pair[side] for pair in cells}) for side in (0, 1))
    rows = []
    for sender in senders:
        hosts = groups[sender]
        names = fold_names(hosts)  # one name if only their numbers differ
        label = names[0] if len(names) == 1 else f"{hosts[0]} … {hosts[-1]}"
        rows.append(
            [f"{cut(label, _MAX_LABEL)} = {sender + 1}", *(cells.get((sender, at), _NO_LINE) for at in receivers)]
        )
    head = [CORNER, *(str(at + 1) for at in receivers)]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [" ".join(map(str.rjust, row, widths)) for row in (head, *rows)]


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
