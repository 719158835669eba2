"""The paths of a job as a table: a row for each, columns of numbers, and what they have in common once for each kind.

A job of a thousand ranks has tens of thousands of paths of a few hundred kinds. Rules and reports therefore ask
selections of rows for their kinds, ranks and hosts; a :class:`Path` is made only where one is shown.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import eq
from typing import TYPE_CHECKING, Any, overload

from nccl_inspect.errors import NoPathError
from nccl_inspect.model.paths import numbers
from nccl_inspect.model.paths.numbers import Columns, EndLines, FirstLines, Numbers, no_end_lines
from nccl_inspect.model.paths.path import Path, PathKind, key_of, kind_of, path_of

if TYPE_CHECKING:
    import pandas

    from nccl_inspect.model.evidence import Evidence


class Table:
    """The columns, the paths that were made of them, and groups of rows found when they are first asked for."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.made: dict[int, Path] = {}
        """By row: the same path whenever it is asked for."""
        self._of_kind: dict[int, Numbers] = {}
        self._sets: dict[str, list[int]] = {}
        self._of_set: dict[int, Numbers] = {}

    def path(self, row: int) -> Path:
        """Return the path of a row."""
        if row not in self.made:
            c = self.columns
            self.made[row] = path_of(
                c.kinds[c.kind[row]],
                (int(c.src[row]), int(c.dst[row])),
                (c.hosts[c.src_host[row]], c.hosts[c.dst_host[row]]),
                (c.gpus[c.src_gpu[row]], c.gpus[c.dst_gpu[row]]),
                c.communicator_sets[c.communicators[row]],
                c.evidence[row],
            )
        return self.made[row]

    def rows_by_kind(self) -> dict[int, Numbers]:
        """Return the rows of each kind, in the order of the first one."""
        if not self._of_kind:
            self._of_kind = numbers.group_rows(self.columns.kind)
        return self._of_kind

    def rows_in(self, communicator: str) -> Iterable[int]:
        """Return the rows with connections in a communicator."""
        if not self._of_set:
            self._of_set = numbers.group_rows(self.columns.communicators)
            for place in self._of_set:
                for name in self.columns.communicator_sets[place]:
                    self._sets.setdefault(name, []).append(place)
        groups = [self._of_set[place] for place in self._sets.get(communicator, [])]
        return groups[0] if len(groups) == 1 else sorted(chain.from_iterable(map(numbers.to_list, groups)))


def _decode_rows(columns: Iterable[Numbers], meanings: Iterable[Sequence[object] | None]) -> Iterator[tuple[Any, ...]]:
    """Yield rows of what numbers stand for."""
    lists = zip(map(numbers.to_list, columns), meanings, strict=True)
    return zip(*(some if meaning is None else map(meaning.__getitem__, some) for some, meaning in lists), strict=True)


Column = str | Callable[[PathKind], Hashable]
"""A column by its name, or something that the kinds of paths have."""


class Selection(Sequence[Path]):
    """Some paths of a job, in its order: a sequence that makes a path only when it is asked for one.

    Args:
        table: of the job.
        kinds: all paths of these kinds, by their places.
        rows: or these, in order.
    """

    def __init__(self, table: Table, kinds: Iterable[int], rows: Iterable[int] | None = None) -> None:
        self.table = table
        self._kinds = list(kinds)
        self._rows = None if rows is None else numbers.column_of(rows, table.columns.kind)
        self._is_whole = rows is None
        self._found: dict[object, Any] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selection):
            return NotImplemented
        if self.table is other.table:
            return self.rows == other.rows
        return len(self) == len(other) and all(map(eq, self, other))

    def __len__(self) -> int:
        if self._rows is not None:
            return len(self._rows)
        return sum(len(self.table.rows_by_kind()[kind]) for kind in self._kinds)

    def __bool__(self) -> bool:
        return bool(self._kinds) if self._rows is None else len(self._rows) > 0

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
    def rows(self) -> list[int]:
        """Return the rows of the table."""
        rows: list[int] = self._remember("rows", lambda: numbers.to_list(self._at))
        return rows

    @property
    def _at(self) -> Numbers:
        """Return the rows as a column."""
        if self._rows is None:
            table, column = self.table, self.table.columns.kind
            if len(self._kinds) > 1:
                self._rows = numbers.find_rows(column, self._by_place(dict.fromkeys(self._kinds, True), False))
            else:
                self._rows = table.rows_by_kind()[self._kinds[0]] if self._kinds else numbers.column_of((), column)
        return self._rows

    def count_kinds(self) -> list[tuple[PathKind, int]]:
        """Return the kinds of these paths, and how many there are of each."""
        kinds = self.table.columns.kinds
        if self._is_whole:
            return [(kinds[place], len(self.table.rows_by_kind()[place])) for place in self._list_places()]
        return [
            (kinds[place], number) for place, number in Counter(numbers.to_list(self._column_values("kind"))).items()
        ]

    @property
    def kinds(self) -> list[PathKind]:
        """Return the kinds of these paths, in the order of the first path of each."""
        return [self.table.columns.kinds[place] for place in self._list_places()]

    def where(self, test: Callable[[PathKind], object]) -> Selection:
        """Return those of certain kinds."""
        passed = {place: bool(test(self.table.columns.kinds[place])) for place in self._list_places()}
        if self._is_whole:
            return Selection(self.table, [place for place, is_wanted in passed.items() if is_wanted])
        return self._chosen(numbers.replace_values(self._column_values("kind"), self._by_place(passed, False)))

    def filter_values(self, columns: Sequence[Column], test: Callable[..., object]) -> Selection:
        """Return those whose values in some columns pass a test, which is made once for equal values."""
        if not self:
            return self
        combinations, group = self._combinations(columns)
        return self._chosen(numbers.replace_values(group, [bool(test(*values)) for values in combinations]))

    def distinct(self, *columns: Column) -> Iterator[tuple[Any, ...]]:
        """Return the values in some columns, each combination once, in order."""
        return iter(self._remember(columns, lambda: self._combinations(columns)[0]))

    def _combinations(self, columns: Iterable[Column]) -> tuple[list[tuple[Any, ...]], Numbers]:
        """Return each combination of values in some columns once, in order, and for each path the place of its own."""
        read, meanings = self._read(columns)
        heads, group = numbers.combinations(read)
        return list(_decode_rows([numbers.take_rows(column, heads) for column in read], meanings)), group

    def values(self, *columns: Column) -> Iterator[tuple[Any, ...]]:
        """Return the values in some columns of each path."""
        return _decode_rows(*self._read(columns))

    def exclude(self, others: Selection) -> Selection:
        """Return those that are not among others."""
        gone = set(others.rows)
        return Selection(self.table, (), [row for row in self.rows if row not in gone])

    def sort_by(self, key: Callable[[PathKind], Any]) -> Selection:
        """Return the same, ordered by something that kinds have."""
        keys = {place: key(self._kind(place)) for place in self._list_places()}
        own = dict(zip(self.rows, numbers.to_list(self._column_values("kind")), strict=True))
        return Selection(self.table, (), sorted(self.rows, key=lambda row: keys[own[row]]))

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
        return {*numbers.to_list(self._column_values("src")), *numbers.to_list(self._column_values("dst"))}

    def hosts(self) -> set[str | None]:
        """Return the hosts at both ends."""
        return {host for column in ("src_host", "dst_host") for (host,) in self.distinct(column)}

    def first_lines(self) -> FirstLines:
        """Return the first line of each."""
        return FirstLines(self.table.columns.evidence, self.rows)

    def end_lines(self, side: str) -> Iterator[Evidence]:
        """Return the first line that each prints at its ``send`` or ``receive`` side."""
        return (line for row in self.rows for line in self.table.columns.end_lines(row, side))

    def _list_places(self) -> Iterable[int]:
        """Return where their kinds are in the table."""
        if self._is_whole:
            return self._kinds
        return dict.fromkeys(numbers.to_list(self._column_values("kind")))

    def _by_place(self, of_kinds: Mapping[int, Any], otherwise: object) -> list[Any]:
        """Return what is known of some kinds, by the places of all."""
        return [of_kinds.get(place, otherwise) for place in range(len(self.table.columns.kinds))]

    def _column_values(self, column: str) -> Numbers:
        """Return the values of a column."""
        values: Numbers = getattr(self.table.columns, column)
        if len(self) == len(values):
            return values
        return self._remember(column, lambda: numbers.take_rows(values, self._at))

    def _remember(self, key: object, find: Callable[[], Any]) -> Any:
        """Return what is found in these paths, found when it is first asked for."""
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]

    def _read(self, columns: Iterable[Column]) -> tuple[list[Numbers], list[Sequence[object] | None]]:
        """Return the numbers in columns, and the lists in which they are places."""
        read: list[Numbers] = []
        meanings: list[Sequence[object] | None] = []
        for column in columns:
            if isinstance(column, str):
                read.append(self._column_values(column))
                meanings.append(self.table.columns.meaning(column))
            else:
                values: dict[object, int] = {}
                places = {
                    kind: values.setdefault(column(self._kind(kind)), len(values)) for kind in self._list_places()
                }
                read.append(numbers.replace_values(self._column_values("kind"), self._by_place(places, 0)))
                meanings.append(list(values))
        return read, meanings

    def _kind(self, place: int) -> PathKind:
        return self.table.columns.kinds[place]

    def _chosen(self, wanted: Numbers) -> Selection:
        return Selection(self.table, (), numbers.chosen(self._at, wanted))


class Paths(Selection):
    """The paths of a job, ordered by source and destination rank.

    Args:
        paths: as columns, or one by one.
        end_lines: of paths that are given one by one.
    """

    def __init__(self, paths: Columns | Iterable[Path], end_lines: EndLines = no_end_lines) -> None:
        columns = paths if isinstance(paths, Columns) else _columns(paths, end_lines)
        table = Table(columns)
        super().__init__(table, table.rows_by_kind())

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
        begin, end = bisect_left(columns.src, src), bisect_right(columns.src, src)
        row = bisect_left(columns.dst, dst, begin, end)
        return row if row < end and columns.dst[row] == dst else None

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with one row for each path and the columns of the JSON."""
        from nccl_inspect.model.document import path_frame

        return path_frame(self)


def _columns(paths: Iterable[Path], end_lines: EndLines) -> Columns:
    """Return the columns of paths that are there one by one."""
    kinds: dict[object, int] = {}
    examples: list[PathKind] = []
    hosts: dict[str | None, int] = {}
    gpus: dict[str | None, int] = {}
    sets: dict[tuple[str, ...], int] = {}
    rows, evidence = [], []
    for path in paths:
        kind = kinds.setdefault(key_of(path), len(kinds))
        if kind == len(examples):
            examples.append(kind_of(path))
        own = (hosts.setdefault(host, len(hosts)) for host in (path.src_host, path.dst_host))
        named = (gpus.setdefault(gpu, len(gpus)) for gpu in (path.src_gpu, path.dst_gpu))
        place = sets.setdefault(tuple(path.communicators), len(sets))
        rows.append((path.src, path.dst, *own, *named, kind, place))
        evidence.append(path.evidence)
    names = ("src", "dst", "src_host", "dst_host", "src_gpu", "dst_gpu", "kind", "communicators")
    read = zip(*rows, strict=True) if rows else ((),) * len(names)
    columns: Any = dict(zip(names, map(list, read), strict=True))
    return Columns(
        **columns,
        evidence=evidence,
        hosts=list(hosts),
        gpus=list(gpus),
        kinds=examples,
        communicator_sets=list(sets),
        end_lines=end_lines,
    )


def refine_kinds(paths: Paths, marking: Sequence[int], change: Callable[[PathKind, int], PathKind]) -> Paths:
    """Return the same paths, of whose kinds more is said; a kind whose rows are marked differently is split.

    Args:
        paths: of a job.
        marking: a number for each row.
        change: the new kind of rows of that kind and number.
    """
    columns = paths.table.columns
    both = columns.kind, numbers.column_of(marking, columns.kind)
    heads, kind = numbers.combinations(both)
    places = zip(*(numbers.to_list(numbers.take_rows(column, heads)) for column in both), strict=True)
    kinds = [change(columns.kinds[place], mark) for place, mark in places]
    return Paths(columns.with_fields(kind=kind, kinds=kinds))
