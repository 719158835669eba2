"""The paths of a job as a table: a row for each, and what they have in common once for each kind.

A job of a thousand ranks has tens of thousands of paths of a few hundred kinds. Rules and reports therefore ask
selections of rows for their kinds, ranks and hosts; a :class:`Path` is made only where one is shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import compress
from operator import eq
from typing import TYPE_CHECKING, Any, overload

from nccl_inspect.errors import NoPathError
from nccl_inspect.model.paths.path import Path, PathKind
from nccl_inspect.util.grouping import group_values

if TYPE_CHECKING:
    import pandas

    from nccl_inspect.model.evidence import Evidence

_COLUMNS = ("src", "dst", "src_host", "dst_host", "src_gpu", "dst_gpu", "communicators", "kind")


def columns_of(rows: Sequence[tuple[Any, ...]]) -> dict[str, Sequence[Any]]:
    """Return the columns of a table of paths by their names."""
    return dict(zip(_COLUMNS, zip(*rows, strict=True) if rows else ((),) * len(_COLUMNS), strict=True))


class Table:
    """The columns, the paths that were made of them, and groups of rows found when they are first asked for.

    Args:
        columns: what :func:`columns_of` gives.
        lines: gives the first line of a row, or that its ``send`` or ``receive`` side prints, in a list; empty if none
            is known.
    """

    def __init__(self, columns: dict[str, Sequence[Any]], lines: Callable[..., list[Evidence]]) -> None:
        self.columns, self.lines = columns, lines
        self.rows_by_kind = group_values((kind, row) for row, kind in enumerate(columns["kind"]))
        """The rows of each kind, in the order of the first one."""
        self._made: dict[int, Path] = {}  # by row: the same path whenever it is asked for
        self._by_communicator: dict[str, list[int]] = {}
        self._selections: dict[tuple[PathKind, ...], Selection] = {}
        """All paths of some kinds: many rules ask for the same."""

    def select(self, kinds: Iterable[PathKind]) -> Selection:
        """Return all paths of some kinds."""
        key = tuple(kinds)
        return self._selections.get(key) or self._selections.setdefault(key, Selection(self, key))

    def path(self, row: int) -> Path:
        """Return the path of a row."""
        if row not in self._made:
            own = {name: values[row] for name, values in self.columns.items()}
            own["communicators"] = list(own["communicators"])
            self._made[row] = Path(**own, evidence=self.lines(row))
        return self._made[row]

    def rows_in(self, communicator: str) -> Sequence[int]:
        """Return the rows with connections in a communicator."""
        if not self._by_communicator:
            column = enumerate(self.columns["communicators"])
            self._by_communicator = group_values((name, row) for row, names in column for name in names)
        return self._by_communicator.get(communicator, ())


Column = str | Callable[[PathKind], Hashable]  # a column by its name, or something that the kinds of paths have


class Selection(Sequence[Path]):
    """Some paths of a job, in its order: a sequence that makes a path only when it is asked for one."""

    def __init__(self, table: Table, kinds: Iterable[PathKind], rows: Sequence[int] | None = None) -> None:
        self.table = table
        self._kinds = None if rows is not None else list(kinds)
        self._rows = rows
        self._found: dict[object, Any] = {}

    def __getstate__(self) -> dict[str, object]:
        """Return what is handed to another process: what was found is found again, since rules ask by functions."""
        return self.__dict__ | {"_found": {}}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selection):
            return NotImplemented
        if self.table is other.table:
            return self.rows == other.rows
        return len(self) == len(other) and all(map(eq, self, other))

    def __len__(self) -> int:
        if self._rows is None:
            return sum(len(self.table.rows_by_kind[kind]) for kind in self._kinds or ())
        return len(self._rows)

    def __bool__(self) -> bool:
        return bool(self._kinds if self._rows is None else self._rows)

    @overload
    def __getitem__(self, index: int) -> Path: ...
    @overload
    def __getitem__(self, index: slice) -> list[Path]: ...
    def __getitem__(self, index: int | slice) -> Path | list[Path]:
        rows = self.rows
        return self.table.path(rows[index]) if isinstance(index, int) else list(map(self.table.path, rows[index]))

    def __iter__(self) -> Iterator[Path]:
        return map(self.table.path, self.rows)

    @property
    def rows(self) -> Sequence[int]:
        """Return the rows of the table."""
        if self._rows is None:
            groups = [self.table.rows_by_kind[kind] for kind in self._kinds or ()]
            self._rows = groups[0] if len(groups) == 1 else sorted(row for rows in groups for row in rows)
        return self._rows

    def count_kinds(self) -> list[tuple[PathKind, int]]:
        """Return the kinds of these paths, and how many there are of each."""
        if self._kinds is not None:
            return [(kind, len(self.table.rows_by_kind[kind])) for kind in self._kinds]
        return list(Counter(self._column_values("kind")).items())

    @property
    def kinds(self) -> list[PathKind]:
        """Return the kinds of these paths, in the order of the first path of each."""
        return self._kinds if self._kinds is not None else [kind for (kind,) in self.distinct("kind")]

    def where(self, test: Callable[[PathKind], object]) -> Selection:
        """Return those of certain kinds."""
        passed = [kind for kind in self.kinds if test(kind)]
        if self._kinds is not None:
            return self.table.select(passed)
        return self._choose(map(set(passed).__contains__, self._column_values("kind")))

    def filter_values(self, columns: Sequence[Column], test: Callable[..., object]) -> Selection:
        """Return those whose values in some columns pass a test, which is made once for equal values."""
        passed = {values: bool(test(*values)) for values in self.distinct(*columns)}
        return self._choose(map(passed.__getitem__, self.values(*columns)))

    def _choose(self, is_wanted: Iterable[bool]) -> Selection:
        return Selection(self.table, (), list(compress(self.rows, is_wanted)))

    def distinct(self, *columns: Column) -> Iterator[tuple[Any, ...]]:
        """Return the values in some columns, each combination once, in order."""
        if columns not in self._found:
            self._found[columns] = list(dict.fromkeys(self.values(*columns)))
        return iter(self._found[columns])

    def values(self, *columns: Column) -> Iterator[tuple[Any, ...]]:
        """Return the values in some columns of each path."""
        return zip(*map(self._column_values, columns), strict=True)

    def _column_values(self, column: Column) -> Sequence[Any]:
        if isinstance(column, str) and len(self) == len(self.table.columns[column]):
            return self.table.columns[column]
        if column not in self._found:
            if isinstance(column, str):
                values: Any = self.table.columns[column]
                self._found[column] = [values[row] for row in self.rows]
            else:
                values = {kind: column(kind) for kind in self.kinds}
                self._found[column] = [values[kind] for kind in self._column_values("kind")]
        found: Sequence[Any] = self._found[column]
        return found

    def exclude(self, others: Selection) -> Selection:
        """Return those that are not among others."""
        gone = set(others.rows)
        return Selection(self.table, (), [row for row in self.rows if row not in gone])

    def sort_by(self, key: Callable[[PathKind], Any]) -> Selection:
        """Return the same, ordered by something that kinds have."""
        keys = {kind: key(kind) for kind in self.kinds}
        kind_of_row = self.table.columns["kind"]
        return Selection(self.table, (), sorted(self.rows, key=lambda row: keys[kind_of_row[row]]))

    def take(self, number: int) -> Selection:
        """Return the first ``number`` of them."""
        return Selection(self.table, (), self.rows[:number])

    def __and__(self, others: Selection) -> Selection:
        rows = set(others.rows)
        return Selection(self.table, (), [row for row in self.rows if row in rows])

    def __or__(self, others: Selection) -> Selection:
        return Selection(self.table, (), sorted({*self.rows, *others.rows}))

    def ends(self) -> set[int]:
        """Return the ranks at both ends."""
        return {*self._column_values("src"), *self._column_values("dst")}

    def hosts(self) -> set[str | None]:
        """Return the hosts at both ends."""
        return {*self._column_values("src_host"), *self._column_values("dst_host")}

    def first_lines(self) -> FirstLines:
        """Return the first line of each."""
        return FirstLines(self.table, self.rows)

    def end_lines(self, side: str) -> Iterator[Evidence]:
        """Return the first line that each prints at its ``send`` or ``receive`` side."""
        return (line for row in self.rows for line in self.table.lines(row, side))


class FirstLines(Sequence["Evidence"]):
    """The first line of each of some paths, made when it is asked for."""

    def __init__(self, table: Table, rows: Sequence[int]) -> None:
        self._table = table
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Evidence: ...
    @overload
    def __getitem__(self, index: slice) -> list[Evidence]: ...
    def __getitem__(self, index: int | slice) -> Evidence | list[Evidence]:
        if isinstance(index, int):
            return self._table.lines(self._rows[index])[0]
        return [self._table.lines(row)[0] for row in self._rows[index]]


class Paths(Selection):
    """The paths of a job, ordered by source and destination rank."""

    def __init__(self, table: Table) -> None:
        super().__init__(table, table.rows_by_kind)

    def between(self, src: int, dst: int) -> Path:
        """Return the path from one rank to another.

        Raises:
            NoPathError: no connection line names this pair in this direction; it is a KeyError.
        """
        row = self._row(src, dst)
        if row is None:
            back = "; there is one in the other direction" if self._row(dst, src) is not None else ""
            raise NoPathError(f"no connection line from rank {src} to rank {dst}{back}")
        return self.table.path(row)

    def _row(self, src: int, dst: int) -> int | None:
        columns = self.table.columns
        row = bisect_left(range(len(self)), (src, dst), key=lambda row: (columns["src"][row], columns["dst"][row]))
        is_there = row < len(self) and (columns["src"][row], columns["dst"][row]) == (src, dst)
        return row if is_there else None

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with one row for each path and the columns of the JSON."""
        from nccl_inspect.model import document

        return document.make_frame("paths", document.entries(self))


def refine_kinds(paths: Paths, marking: Sequence[Any], change: Callable[[PathKind, Any], PathKind]) -> Paths:
    """Return the same paths, of whose kinds more is said; a kind whose rows are marked differently is split."""
    columns = paths.table.columns
    both = list(zip(columns["kind"], marking, strict=True))
    changed = {pair: change(*pair) for pair in dict.fromkeys(both)}
    return Paths(Table({**columns, "kind": [changed[pair] for pair in both]}, paths.table.lines))
