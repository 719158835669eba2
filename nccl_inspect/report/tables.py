"""Tables of paths: by kind for the summary, or rank by rank as a matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from nccl_inspect.model.job import PathKind, Selection
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.text import printable

_FOLD_ABOVE = 64
"""Ranks above which the matrix is folded to hosts."""


def gdr_word(gdr: bool | str | None) -> str:
    """GPUDirect RDMA in one word; ``-`` where it does not apply."""
    if gdr is None:
        return "-"
    return "partial" if isinstance(gdr, str) else "yes" if gdr else "no"


def by_kind(paths: Selection) -> list[list[str]]:
    """One row for each kind of path: scope, path, pairs, GPUDirect, channels, verdict."""
    alike: dict[tuple[str, str, str, str], list[tuple[PathKind, int]]] = {}
    for kind, number in paths.counted():
        alike.setdefault((kind.scope, kind.detail, gdr_word(kind.gdr), kind.verdict), []).append((kind, number))
    rows = []
    for (scope, detail, gdr, verdict), members in sorted(alike.items()):
        channels = sorted({len(kind.channels) for kind, _ in members})
        span = f"{channels[0]}-{channels[-1]}" if len(channels) > 1 else str(channels[0])
        rows.append([scope, printable(detail), str(sum(number for _, number in members)), gdr, span, verdict])
    return rows


KIND_HEAD = ["scope", "path", "pairs", "GDR", "channels", "verdict"]


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table, as tabulate's format "simple" has them.

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
        """The path with its GPUDirect."""
        return printable(self.detail) + {"yes": " GDRDMA", "partial": " GDRDMA partial"}.get(gdr_word(self.gdr), "")


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
    """The paths by their ends.

    Args:
        paths: that are shown.
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


def names_of_ends(paths: Selection, by_rank: bool) -> set[tuple[str, str]]:
    """The ranks or hosts at both ends, as the matrix names them."""
    name = str if by_rank else _host
    return {(name(src), name(dst)) for src, dst in paths.distinct(*_ends(by_rank))}


def _host(name: str | None) -> str:
    return printable(name or "?")


@frozen
class Matrix(Frozen):
    """The matrix of paths as text, sender by receiver."""

    head: list[str]
    body: list[list[str]]
    legend: list[str]


def matrix(paths: Selection, among: Selection, width: int, by: str | None = None) -> Matrix:
    """The rank by rank matrix; above 64 ranks host by host, with the number of pairs.

    Args:
        paths: that are shown.
        among: all paths of the job; where more than are shown, rows and columns without any of these are left out.
        width: columns; where names of hosts as heads need more, the heads are numbers.
        by: ``rank`` or ``host``, as in :func:`grid`.
    """
    whole_grid = grid(paths, by)
    letters = letters_of(paths)
    is_part = len(paths) < len(among)
    by_rank = whole_grid.by == "rank"
    others = names_of_ends(among, by_rank) if is_part else set()
    sending, receiving = ({pair[side] for pair in whole_grid.cells} for side in (0, 1))
    senders = [name for name in whole_grid.names if not is_part or name in sending]
    receivers = [name for name in whole_grid.names if not is_part or name in receiving]

    def text(src: str, dst: str) -> str:
        cell = whole_grid.cells.get((src, dst), {})
        words = [f"{letters[kind.label]}{MARKS.get(kind.verdict, _NO_MARK)[0]}" for kind in cell]
        if not by_rank:
            words = [f"{pairs}{word}" for word, pairs in zip(words, cell.values(), strict=True)]
        return (" " * (not by_rank)).join(words) or absent(src, dst)

    def absent(src: str, dst: str) -> str:
        return LEFT_OUT if (src, dst) in others else "." if by_rank and src != dst else ""

    body = [[src, *(text(src, dst) for dst in receivers)] for src in senders]
    cells = {cell for row in body for cell in row[1:]}
    occur = {kind.verdict for kind in paths.kinds}
    legend = [f"{letter} = {label}" for label, letter in letters.items()]
    legend += [f"{LEFT_OUT} = left out by the filter"] if LEFT_OUT in cells else []
    marks = ", ".join(f"{mark} = {words}" for verdict, (mark, words) in MARKS.items() if verdict in occur)
    if by_rank:
        legend += filter(None, [". = no connection line" if "." in cells else "", marks])
        return Matrix([CORNER, *receivers], body, legend)
    legend.append("; ".join(filter(None, [f"number of pairs{' that the filter leaves' * is_part}", marks])))
    whole = Matrix([CORNER, *receivers], body, legend)
    return whole if total_width(whole) <= width else _numbered(whole, whole_grid.names)


def _numbered(whole: Matrix, names: Sequence[str]) -> Matrix:
    """The matrix with numbers for heads, which the rows explain; those without a row are in the legend."""
    numbers = {name: str(number) for number, name in enumerate(names, 1)}
    body = [[f"{name} = {numbers[name]}", *cells] for name, *cells in whole.body]
    senders = {row[0] for row in whole.body}
    unexplained = [f"{numbers[name]} = {name}" for name in whole.head[1:] if name not in senders]
    return Matrix([CORNER, *(numbers[name] for name in whole.head[1:])], body, [*unexplained, *whole.legend])


def total_width(whole: Matrix) -> int:
    """The columns that a matrix takes in one part; nothing follows the last one."""
    return sum(_column_widths(whole)) - 2


def _column_widths(whole: Matrix) -> list[int]:
    """The widths of the columns with what stands between them, as tabulate has them under a head."""
    columns = zip(whole.head, *whole.body, strict=True)
    return [2 + max(len(head) + 2, *map(len, cells), 0) for head, *cells in columns]


def side_by_side(whole: Matrix, width: int) -> list[Matrix]:
    """The matrix in parts that fit a width, one below the other; each has all rows."""
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


def letters_of(paths: Selection) -> dict[str, str]:
    """A letter for each kind of path, its initial where that is free."""
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
