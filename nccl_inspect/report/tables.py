"""Tables of reports: paths by kind, as a matrix of ranks or hosts, in rows for each pair; and whatever has columns.

A table with columns fits a width: columns are dropped, values that all rows share move below, and cells are cut. In a
matrix of hosts a fault shows in the row and the column of its host. Hosts that look like their neighbors are folded, so
a job of a thousand ranks fits a terminal, and the odd host has its own row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from os.path import commonprefix
from textwrap import wrap
from typing import Any, NamedTuple

from nccl_inspect.answers import Column
from nccl_inspect.model.job import Path, PathKind, Selection
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.text import cut, escape_controls
from nccl_inspect.util.wording import fold_names, ranges

_FOLD_ABOVE = 64
"""Ranks above which the matrix is folded to hosts."""


def gdr_word(gdr: bool | str | None) -> str:
    """Return GPUDirect RDMA in one word; ``-`` where it does not apply."""
    if gdr is None:
        return "-"
    return "partial" if isinstance(gdr, str) else "yes" if gdr else "no"


def rows_by_kind(paths: Selection) -> list[list[str]]:
    """Return a row for each kind of path: scope, path, pairs, GPUDirect, channels, verdict."""
    alike: dict[tuple[str, str, str, str], list[tuple[PathKind, int]]] = {}
    for kind, number in paths.count_kinds():
        alike.setdefault((kind.scope, kind.detail, gdr_word(kind.gdr), kind.verdict), []).append((kind, number))
    rows = []
    for (scope, detail, gdr, verdict), members in sorted(alike.items()):
        channels = sorted({len(kind.channels) for kind, _ in members})
        span = f"{channels[0]}-{channels[-1]}" if len(channels) > 1 else str(channels[0])
        rows.append([scope, escape_controls(detail), str(sum(number for _, number in members)), gdr, span, verdict])
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


@frozen
class PathClass(Frozen):
    """Paths that look the same in a table."""

    detail: str
    gdr: bool | str | None
    verdict: str

    @property
    def label(self) -> str:
        """Return the path with its GPUDirect."""
        return escape_controls(self.detail) + {"yes": " GDRDMA", "partial": " GDRDMA partial"}.get(
            gdr_word(self.gdr), ""
        )


@frozen
class Grid(Frozen):
    """The paths between all ends: rank by rank, above 64 ranks host by host."""

    by: str
    """``rank`` or ``host``."""
    names: list[str]
    """Of the rows, which send, and of the columns."""
    cells: dict[tuple[str, str], dict[PathClass, int]]
    """Number of rank pairs by kind."""


def grid(paths: Selection, by: str | None) -> Grid:
    """Return the paths by their ends.

    Args:
        by: ``rank`` or ``host``; None: rank by rank until there are too many ranks.
    """
    ranks = sorted(paths.ends())
    by_rank = by == "rank" if by else len(ranks) <= _FOLD_ABOVE
    cells: dict[tuple[str, str], dict[PathClass, int]] = {}
    for (src, dst, kind), number in Counter(paths.values(*_ends(by_rank), _kind)).items():
        cell = cells.setdefault((str(src), str(dst)) if by_rank else (_host(src), _host(dst)), {})
        cell[kind] = cell.get(kind, 0) + number
    hosts = dict.fromkeys(_host(host) for pair in paths.distinct(*_ends(by_rank=False)) for host in pair)
    return Grid("rank", list(map(str, ranks)), cells) if by_rank else Grid("host", list(hosts), cells)


def _ends(by_rank: bool) -> tuple[str, str]:
    return ("src", "dst") if by_rank else ("src_host", "dst_host")


def _kind(kind: PathKind) -> PathClass:
    return PathClass(kind.detail, kind.gdr, kind.verdict)


def name_ends(paths: Selection, by_rank: bool) -> set[tuple[str, str]]:
    """Return the ranks or hosts at both ends, as the matrix names them."""
    name = str if by_rank else _host
    return {(name(src), name(dst)) for src, dst in paths.distinct(*_ends(by_rank))}


def _host(name: str | None) -> str:
    return escape_controls(name or "?")


@frozen
class Matrix(Frozen):
    """The matrix of paths as text, sender by receiver."""

    head: list[str]
    body: list[list[str]]
    legend: list[str]


def matrix(paths: Selection, among: Selection, by: str | None = None) -> Matrix:
    """Return the rank by rank matrix; above 64 ranks host by host, with the number of pairs.

    Args:
        among: all paths of the job; where more than are shown, rows and columns without any of these are left out.
        by: ``rank`` or ``host``, as in :func:`grid`.
    """
    whole_grid = grid(paths, by)
    letters = choose_letters(paths)
    is_part = len(paths) < len(among)
    by_rank = whole_grid.by == "rank"
    others = name_ends(among, by_rank) if is_part else set()
    sending, receiving = ({pair[side] for pair in whole_grid.cells} for side in (0, 1))
    senders = [name for name in whole_grid.names if not is_part or name in sending]
    receivers = [name for name in whole_grid.names if not is_part or name in receiving]

    def text(src: str, dst: str) -> str:
        cell = whole_grid.cells.get((src, dst), {})
        words = [f"{letters[kind.label]}{MARKS.get(kind.verdict, _NO_MARK)[0]}" for kind in cell]
        if not by_rank:
            words = [f"{pairs}{word}" for word, pairs in zip(words, cell.values(), strict=True)]
        return (" " * (not by_rank)).join(words) or mark_absent(src, dst)

    def mark_absent(src: str, dst: str) -> str:
        return LEFT_OUT if (src, dst) in others else "." if by_rank and src != dst else ""

    body = [[src, *(text(src, dst) for dst in receivers)] for src in senders]
    cells = {cell for row in body for cell in row[1:]}
    occur = {kind.verdict for kind in paths.kinds}
    legend = [f"{letter} = {label}" for label, letter in letters.items()]
    legend += [f"{LEFT_OUT} = left out by the filter"] if LEFT_OUT in cells else []
    marks = ", ".join(f"{mark} = {words}" for verdict, (mark, words) in MARKS.items() if verdict in occur)
    if by_rank:
        legend += filter(None, [". = no connection line" if "." in cells else "", marks])
    else:
        legend.append("; ".join(filter(None, [f"number of pairs{' that the filter leaves' * is_part}", marks])))
    return Matrix([CORNER, *receivers], body, legend)


def total_width(whole: Matrix) -> int:
    """Return the columns that a matrix takes in one part; nothing follows the last one."""
    return sum(_column_widths(whole)) - 2


def _column_widths(whole: Matrix) -> list[int]:
    """Return the widths of the columns with what stands between them, as tabulate has them under a head."""
    columns = zip(whole.head, *whole.body, strict=True)
    return [2 + max(len(head) + 2, *map(len, cells), 0) for head, *cells in columns]


def split_matrix(whole: Matrix, width: int) -> list[Matrix]:
    """Return the matrix in parts that fit a width, one below the other; each has all rows."""
    first, *widths = _column_widths(whole)
    parts: list[list[int]] = [[]]
    used = first
    for place, wide in enumerate(widths, 1):
        if parts[-1] and used + wide > width + 2:  # as in total_width
            parts.append([])
            used = first
        parts[-1].append(place)
        used += wide
    return [
        Matrix(
            [whole.head[0], *(whole.head[place] for place in part)],
            [[row[0], *(row[place] for place in part)] for row in whole.body],
            whole.legend,
        )
        for part in parts
    ]


CORNER = "src\\dst"
LEFT_OUT = "-"
MARKS = {"fallback": ("!", "fallback"), "unknown": ("?", "not judged")}
"""By verdict, the mark after the letter of a path, and its meaning."""
_NO_MARK = ("", "")


def choose_letters(paths: Selection) -> dict[str, str]:
    """Return a letter for each kind of path, its initial where that is free."""
    letters: dict[str, str] = {}
    for kind in sorted(paths.kinds, key=lambda kind: (kind.transport != "P2P", kind.detail)):
        label = _kind(kind).label
        if label not in letters:
            wanted = [
                kind.transport[0],
                *(char for char in kind.detail if char.isalpha()),
                *"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
            ]
            free = (char.upper() for char in wanted if char.upper() not in letters.values())
            letters[label] = next(free, f"K{len(letters)}")
    return letters


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


def _value_text(value: object) -> str:
    """Return a value for people; empty where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ranges(value) if value and isinstance(value[0], int) else ", ".join(map(str, value))
    return "" if value is None else str(value)


def fit_table(columns: Sequence[Column], body: list[list[str]], width: int) -> Table:
    """Return the table, fitted to a width if possible.

    Empty columns are left out. If the rest is too wide, the common prefix of host names is removed, values that all
    rows share move below, long cells are cut, and finally columns are dropped.
    """
    fit = _Fit(columns, body, width)
    fit.leave_out_empty()
    for step in (fit.shorten_hosts, fit.fold, fit.cut, fit.leave_out, fit.cut_all):
        if fit.is_too_wide():
            step()
    return fit.table()


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
        self._widths = {at: self._column_width(at) for at in range(len(columns))}

    def _column_width(self, at: int) -> int:
        return max(len(self._columns[at].head), *(len(row[at]) for row in self._body), 0)

    def _excess_width(self) -> int:
        return sum(self._widths.values()) + _BETWEEN * (len(self._widths) - 1) - self._width

    def is_too_wide(self) -> bool:
        return self._excess_width() > 0

    def leave_out_empty(self) -> None:
        """Drop empty columns that may be dropped."""
        for at, column in enumerate(self._columns):
            if (column.goes or column.folds) and all(row[at] == NOTHING for row in self._body):
                del self._widths[at]

    def shorten_hosts(self) -> None:
        """Remove the common prefix of host names, if there are several."""
        places = [at for at in self._widths if self._columns[at].is_host]
        names = {row[at] for row in self._body for at in places}
        start = commonprefix(list(names)) if len(names) > 1 else ""  # noqa: RUF071 - names, no paths
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
                self._cut(at, max(least, self._widths[at] - self._excess_width()))

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
                self._cut(at, max(len(self._columns[at].head), self._widths[at] - self._excess_width()))

    def _cut(self, at: int, width: int) -> None:
        """Cut cells at their ends; of those that would look alike the beginning, so that the difference stays."""
        alike = group_values((cut(cell, width), cell) for cell in {row[at] for row in self._body})

        def shorten(cell: str) -> str:
            same = alike[cut(cell, width)]
            common = len(commonprefix(same))  # noqa: RUF071 - texts, no paths
            begin = min(common, max(map(len, same)) - width + 1)
            return cut(cell, width) if len(same) == 1 else _ELLIPSIS + cut(cell[begin:], width - 1)

        self._change([at], shorten)

    def _change(self, places: Sequence[int], change: Callable[[str], str]) -> None:
        """Change the cells of some columns."""
        self._body = [[change(cell) if at in places else cell for at, cell in enumerate(row)] for row in self._body]
        self._widths.update({at: self._column_width(at) for at in places})

    def table(self) -> Table:
        """Return what is left."""
        notes = list(self._notes)
        if self._hosts and any(self._columns[at].is_host for at in self._widths):
            notes.insert(0, f"{_ELLIPSIS} in hosts: {self._hosts}")
        if self._gone:
            notes.append(f"no room for: {', '.join(self._gone)}")
        head = [self._columns[at].head for at in self._widths]
        return Table(head, [[row[at] for at in self._widths] for row in self._body], notes)


def _end_nics(path: Path) -> str:
    """Return the NICs of sender and receiver; a question mark if the log lacks the line."""
    sender, receiver = path.nic_at("send"), path.nic_at("receive")
    if sender or receiver:
        return f"{sender or '?'} -> {receiver or '?'}"
    return path.nic or ("" if path.nic_index is None else str(path.nic_index))


PAIR = (
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
"""Of the table of pairs."""
_COMMUNICATORS = Column("communicators", "communicator")


def pair_table(paths: Sequence[Path], width: int, is_global: bool = True, more: Sequence[Column] = ()) -> Table:
    """Return a row for each directed pair, in a table that fits a width if it can.

    Communicators are named where ranks are not global, so that the same pair appears for each.
    """
    columns = [*PAIR, *([] if is_global else [_COMMUNICATORS]), *more]
    table = fit_table(columns, make_cells(columns, paths), width)
    return table if is_global else table._replace(notes=[*table.notes, OWN_RANKS])


OWN_RANKS = "ranks are relative to each communicator: the log does not show the communicator of all ranks"
"""The note under tables of paths whose ranks are not global."""


_SPEED = {"P2P": 0, "SHM": 1, "NET": 2}
_NO_LINE = "."
_MAX_LABEL = 40


@frozen
class _Worst(Frozen):
    """The worst path from host to host."""

    hosts: list[str]
    cells: Mapping[tuple[str, str], PathClass]
    left_out: frozenset[tuple[str, str]]
    """Pairs of hosts all of whose paths a filter leaves out."""
    letters: Mapping[str, str]

    def text(self, pairs: Iterable[tuple[str, str]]) -> str:
        """Return the letter of the worst of some pairs of hosts."""
        pairs = list(pairs)
        kinds = [self.cells[pair] for pair in pairs if pair in self.cells]
        if kinds:
            return self.mark(max(kinds, key=_rank_badness))
        return LEFT_OUT if any(pair in self.left_out for pair in pairs) else _NO_LINE

    def mark(self, kind: PathClass) -> str:
        """Return the letter of a kind of path, with a sign if it is not good."""
        return self.letters[kind.label] + MARKS.get(kind.verdict, ("", ""))[0]


def fold_hosts(paths: Selection, among: Selection, width: int) -> tuple[list[str], list[str]]:
    """Return the lines of the matrix, and its legend.

    Args:
        among: all paths of the job.
        width: in columns; if the hosts do not fit, those that look alike are folded, then neighbors.
    """
    by_host = grid(paths, "host")
    cells = {pair: max(kinds, key=_rank_badness) for pair, kinds in by_host.cells.items()}
    others = name_ends(among, by_rank=False) - cells.keys() if len(paths) < len(among) else set()
    worst = _Worst(by_host.names, cells, frozenset(others), choose_letters(paths))
    for groups in _group_hosts(worst):
        drawn = _draw_groups(groups, worst)
        if max(map(len, drawn)) <= width or len(groups) == 1:
            break
    shown = {cell for line in drawn[1:] for cell in line.partition(" = ")[2].split()}
    verdicts = {kind.verdict for kind in paths.kinds}
    signs = {LEFT_OUT: "left out by the filter", _NO_LINE: "no connection line"}
    legend = [f"{letter} = {label}" for label, letter in worst.letters.items()]
    legend += [f"{sign} = {words}" for sign, words in signs.items() if sign in shown]
    about = "the worst path of each pair of hosts; --format csv has all"
    if len(drawn) - 1 < len({src for src, _ in worst.cells}):
        about = "the worst path; P/N: within hosts/between hosts of the row; --format csv has each host"
    marks = ", ".join(f"{mark} = {words}" for verdict, (mark, words) in MARKS.items() if verdict in verdicts)
    return drawn, [*legend, "; ".join(filter(None, [about, marks]))]


def _rank_badness(kind: PathClass) -> tuple[bool, bool, int, bool, bool]:
    speed = _SPEED.get(kind.detail.partition("/")[0], len(_SPEED))
    return kind.verdict == "fallback", kind.verdict == "unknown", speed, "Socket" in kind.detail, kind.gdr is not True


def _group_hosts(worst: _Worst) -> Iterator[list[list[str]]]:
    """Yield each host alone, then neighbors that look alike, then more and more neighbors."""
    yield [[host] for host in worst.hosts]
    seen: dict[str, set[tuple[str, str]]] = {host: set() for host in worst.hosts}
    for (src, dst), kind in worst.cells.items():
        for host, side in ((src, "from"), (dst, "to")):
            seen[host].add(("within" if src == dst else side, worst.mark(kind)))
    yield [list(hosts) for _, hosts in groupby(worst.hosts, lambda host: seen[host])]
    size = 2
    while size < 2 * len(worst.hosts):
        yield [worst.hosts[at : at + size] for at in range(0, len(worst.hosts), size)]
        size *= 2


def _draw_groups(groups: Sequence[Sequence[str]], worst: _Worst) -> list[str]:
    """Return the head and the rows; in a group, paths within hosts precede those between them."""
    group_of = {host: at for at, group in enumerate(groups) for host in group}
    pairs: dict[tuple[int, int, bool], list[tuple[str, str]]] = {}
    for src, dst in [*worst.cells, *worst.left_out]:
        if src in group_of and dst in group_of:
            pairs.setdefault((group_of[src], group_of[dst], src == dst), []).append((src, dst))
    cells: dict[tuple[int, int], str] = {}
    for (src_group, dst_group, _), some in sorted(pairs.items(), key=lambda item: not item[0][2]):
        before = cells.get((src_group, dst_group))
        cells[src_group, dst_group] = f"{before}/{worst.text(some)}" if before else worst.text(some)
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
    csv.writer(text, lineterminator="\n").writerows([_write_cell(value) for value in row] for row in rows)
    return text.getvalue()


def _write_cell(value: object) -> str:
    """Return the text of a cell; spreadsheets must not take text from a log for a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        text = ranges(value) if value and isinstance(value[0], int) else ";".join(map(str, value))
    else:
        text = "" if value is None else str(value)
    return f"'{text}" if isinstance(value, str | list) and text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
