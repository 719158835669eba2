"""Tables of reports: paths by kind, as a matrix of ranks or hosts, in rows for each pair; and whatever has columns.

A table with columns fits a width: columns are dropped, values that all rows share move below, and cells are cut. In a
matrix of hosts a fault shows in the row and the column of its host. Hosts that look like their neighbors are folded, so
a job of a thousand ranks fits a terminal, and the odd host has its own row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from os.path import commonprefix
from textwrap import wrap
from typing import Any, NamedTuple

from nccl_inspect.answers import Column
from nccl_inspect.model.job import Path, PathKind, Selection
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import fold_names, ranges

_FOLD_ABOVE = 64  # ranks above which the matrix is folded to hosts


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


def align_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table, as tabulate's format "simple" has them.

    Loading tabulate takes as long as reading a short log, and a summary needs no more than this.
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, [f"{name}  " for name in head], strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


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


def grid(paths: Selection, by: str | None) -> Grid:
    """Return the paths by their ends.

    Args:
        by: ``rank`` or ``host``; None: rank by rank until there are too many ranks.
    """
    ranks = paths.ends()
    by = by or ("rank" if len(ranks) <= _FOLD_ABOVE else "host")
    cells: dict[tuple[str, str], dict[PathClass, int]] = {}
    for (src, dst, kind), number in Counter(paths.values(*_ENDS[by], _kind)).items():
        cell = cells.setdefault((_name(src), _name(dst)), {})
        cell[kind] = cell.get(kind, 0) + number
    hosts = dict.fromkeys(_name(host) for pair in paths.distinct(*_ENDS["host"]) for host in pair)
    return Grid(by, list(map(str, sorted(ranks))) if by == "rank" else list(hosts), cells)


_ENDS = {"rank": ("src", "dst"), "host": ("src_host", "dst_host")}


def _kind(kind: PathKind) -> PathClass:
    return PathClass(kind.detail, kind.gdr, kind.verdict)


def _name(end: int | str | None) -> str:
    return "?" if end in (None, "") else escape_controls(str(end))


def _missing_ends(shown: Grid, paths: Selection, among: Selection) -> set[tuple[str, str]]:
    """Return the ends, as a matrix names them, between which a filter leaves out all paths."""
    whole = among.distinct(*_ENDS[shown.by]) if len(paths) < len(among) else ()
    return {(_name(src), _name(dst)) for src, dst in whole} - shown.cells.keys()


class Table(NamedTuple):
    """A table as text, and the notes below it."""

    head: list[str]
    body: list[list[str]]
    notes: list[str]


def matrix(paths: Selection, among: Selection, by: str | None = None) -> Table:
    """Return the rank by rank matrix; above 64 ranks host by host, with the number of pairs.

    Args:
        among: all paths of the job; where more than are shown, rows and columns without any of these are left out.
        by: ``rank`` or ``host``, as in :func:`grid`.
    """
    shown, letters, is_part = grid(paths, by), _choose_letters(paths), len(paths) < len(among)
    by_rank, others = shown.by == "rank", _missing_ends(shown, paths, among)
    sending, receiving = ({pair[side] for pair in shown.cells} for side in (0, 1))
    senders = [name for name in shown.names if not is_part or name in sending]
    receivers = [name for name in shown.names if not is_part or name in receiving]

    def text(src: str, dst: str) -> str:
        cell = shown.cells.get((src, dst), {})
        words = [("" if by_rank else str(pairs)) + _mark(kind, letters) for kind, pairs in cell.items()]
        absent = LEFT_OUT if (src, dst) in others else _NO_LINE if by_rank and src != dst else ""
        return ("" if by_rank else " ").join(words) or absent

    body = [[src, *(text(src, dst) for dst in receivers)] for src in senders]
    cells = {cell for row in body for cell in row[1:]}
    legend = [f"{letter} = {label}" for label, letter in letters.items()]
    legend += [f"{LEFT_OUT} = left out by the filter"] if LEFT_OUT in cells else []
    if by_rank:
        legend += filter(None, [f"{_NO_LINE} = no connection line" if _NO_LINE in cells else "", _mark_words(paths)])
    else:
        number = f"number of pairs{' that the filter leaves' * is_part}"
        legend.append("; ".join(filter(None, [number, _mark_words(paths)])))
    return Table([CORNER, *receivers], body, legend)


def matrix_widths(whole: Table) -> list[int]:
    """Return the widths of the columns with what stands between them, as tabulate has them under a head."""
    columns = zip(whole.head, *whole.body, strict=True)
    return [2 + max(len(head) + 2, *map(len, cells), 0) for head, *cells in columns]


def split_matrix(whole: Table, width: int) -> list[Table]:
    """Return the matrix in parts that fit a width, one below the other; each has all rows."""
    first, *widths = matrix_widths(whole)
    parts: list[list[int]] = [[0]]
    used = first
    for place, wide in enumerate(widths, 1):
        if len(parts[-1]) > 1 and used + wide > width + 2:  # nothing follows the last one
            parts.append([0])
            used = first
        parts[-1].append(place)
        used += wide
    lines = [whole.head, *whole.body]
    picked = ([[line[at] for at in part] for line in lines] for part in parts)
    return [Table(head, body, whole.notes) for head, *body in picked]


CORNER = "src\\dst"
LEFT_OUT = "-"
MARKS = {"fallback": ("!", "fallback"), "unknown": ("?", "not judged")}
"""By verdict, the mark after the letter of a path, and its meaning."""
_NO_LINE = "."


def _mark(kind: PathClass, letters: Mapping[str, str]) -> str:
    return letters[kind.label] + MARKS.get(kind.verdict, ("", ""))[0]


def _mark_words(paths: Selection) -> str:
    verdicts = {kind.verdict for kind in paths.kinds}
    return ", ".join(f"{mark} = {words}" for verdict, (mark, words) in MARKS.items() if verdict in verdicts)


def _choose_letters(paths: Selection) -> dict[str, str]:
    letters: dict[str, str] = {}
    for kind in sorted(paths.kinds, key=lambda kind: (kind.transport != "P2P", kind.detail)):
        label = _kind(kind).label
        if label not in letters:
            wanted = kind.transport[0] + "".join(filter(str.isalpha, kind.detail)) + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
            free = (char.upper() for char in wanted if char.upper() not in letters.values())
            letters[label] = next(free, f"K{len(letters)}")
    return letters


UNBOUNDED = 1 << 30  # the width of a table in a file or a pipe: programs read it
NOTHING = "-"  # the cell for unknown values and values that do not apply
_ELLIPSIS = "…"
_BETWEEN = 2  # blanks between columns
_MIN_PREFIX = 4


def make_cells(columns: Sequence[Column], records: Sequence[Any]) -> list[list[str]]:
    """Return the cells of some records, one row each."""
    return [
        [
            escape_controls(column.text(record) if column.text else _value_text(getattr(record, column.name)))
            or NOTHING
            for column in columns
        ]
        for record in records
    ]


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
    from tabulate import tabulate  # slow to load, and summaries do not need it

    # With a head of its own, tabulate would widen each column by two.
    lines = ["-" * max(map(len, column)) for column in zip(table.head, *table.body, strict=True)]
    text = tabulate([table.head, lines, *table.body], tablefmt="plain", disable_numparse=True)
    return "\n".join([text, *([""] if table.notes else []), *wrap_notes(table.notes, width)]) + "\n"


def wrap_notes(notes: Sequence[str], width: int) -> list[str]:
    """Return the notes below a table, in lines of a width."""
    return [line for note in notes for line in wrap(note, width, subsequent_indent="  ", break_long_words=False)]


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


def pair_table(paths: Sequence[Path], width: int, is_global: bool = True, more: Sequence[Column] = ()) -> Table:
    """Return a row for each directed pair, in a table that fits a width if it can.

    Communicators are named where ranks are not global, so that the same pair appears for each.
    """
    columns = [*PAIR, *([] if is_global else [_COMMUNICATORS]), *more]
    table = fit_table(columns, make_cells(columns, paths), width)
    table.notes.extend([] if is_global else [OWN_RANKS])
    return table


OWN_RANKS = "ranks are relative to each communicator: the log does not show the communicator of all ranks"
"""The note under tables of paths whose ranks are not global."""


_SPEED = {"P2P": 0, "SHM": 1, "NET": 2}
_MAX_LABEL = 40
_Worst = Mapping[tuple[str, str], tuple[tuple[int, ...], str]]
"""By sender and receiver how bad the worst path is, with its mark; nothing is known of those that are left out."""


def fold_hosts(paths: Selection, among: Selection, width: int) -> tuple[list[str], list[str]]:
    """Return the lines of the matrix, and its legend.

    Args:
        among: all paths of the job.
        width: in columns; if the hosts do not fit, those that look alike are folded, then neighbors.
    """
    shown, letters = grid(paths, "host"), _choose_letters(paths)
    worst: dict[tuple[str, str], tuple[tuple[int, ...], str]] = {}
    for pair, kinds in shown.cells.items():
        kind = max(kinds, key=_rank_badness)
        worst[pair] = _rank_badness(kind), _mark(kind, letters)
    senders = len({src for src, _ in worst})
    worst |= dict.fromkeys(_missing_ends(shown, paths, among), ((), LEFT_OUT))
    for groups in _group_hosts(shown.names, worst):
        drawn = _draw_groups(groups, worst)
        if max(map(len, drawn)) <= width or len(groups) == 1:
            break
    marks = {cell for line in drawn[1:] for cell in line.partition(" = ")[2].split()}
    signs = {LEFT_OUT: "left out by the filter", _NO_LINE: "no connection line"}
    legend = [f"{letter} = {label}" for label, letter in letters.items()]
    legend += [f"{sign} = {words}" for sign, words in signs.items() if sign in marks]
    about = "the worst path of each pair of hosts; --format csv has all"
    if len(drawn) - 1 < senders:
        about = "the worst path; P/N: within hosts/between hosts of the row; --format csv has each host"
    return drawn, [*legend, "; ".join(filter(None, [about, _mark_words(paths)]))]


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
