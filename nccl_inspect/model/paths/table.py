"""The paths of a job as a table: a row for each, columns of numbers, and what they have in common once for each kind.

A job of a thousand ranks has tens of thousands of paths of a few hundred kinds. Rules and reports therefore ask
selections of rows for their kinds, ranks and hosts; a :class:`Path` is made only where one is shown.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any, overload

from nccl_inspect.errors import NoPathError
from nccl_inspect.model.paths.columns import Columns, EndLines, FirstLines, no_end_lines
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
        self._of_kind: dict[int, list[int]] = {}
        self._sets: dict[str, list[int]] = {}
        self._of_set: dict[int, list[int]] = {}

    def path(self, row: int) -> Path:
        """The path of a row."""
        if row not in self.made:
            c = self.columns
            self.made[row] = path_of(
                c.kinds[c.kind[row]],
                (c.src[row], c.dst[row]),
                (c.hosts[c.src_host[row]], c.hosts[c.dst_host[row]]),
                (c.gpus[c.src_gpu[row]], c.gpus[c.dst_gpu[row]]),
                c.communicator_sets[c.communicators[row]],
                c.evidence[row],
            )
        return self.made[row]

    def pair(self, row: int) -> tuple[int, int]:
        """The ranks of a row."""
        return self.columns.src[row], self.columns.dst[row]

    def gpus(self, row: int) -> tuple[str | None, int, str | None, int, str | None]:
        """The host of the sender, and ranks and GPUs of both ends."""
        c = self.columns
        src_gpu, dst_gpu = c.gpus[c.src_gpu[row]], c.gpus[c.dst_gpu[row]]
        return c.hosts[c.src_host[row]], c.src[row], src_gpu, c.dst[row], dst_gpu

    def of_kinds(self) -> dict[int, list[int]]:
        """The rows of each kind, in the order of the first one."""
        if not self._of_kind:
            self._of_kind = _grouped(enumerate(self.columns.kind))
        return self._of_kind

    def rows_in(self, communicator: str) -> list[int]:
        """The rows with connections in a communicator."""
        if not self._of_set:
            self._of_set = _grouped(enumerate(self.columns.communicators))
            for place in self._of_set:
                for name in self.columns.communicator_sets[place]:
                    self._sets.setdefault(name, []).append(place)
        places = self._sets.get(communicator, [])
        return self._of_set[places[0]] if len(places) == 1 else sorted(r for p in places for r in self._of_set[p])


def _grouped(numbered: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """The first of each pair, by the second."""
    by_group: dict[int, list[int]] = {}
    for value, group in numbered:
        by_group.setdefault(group, []).append(value)
    return by_group


def _decoded(
    rows: Collection[tuple[int, ...]], meanings: Iterable[Sequence[object] | None]
) -> Iterator[tuple[tuple[int, ...], tuple[Any, ...]]]:
    """Rows of numbers with what these stand for."""
    columns = zip(meanings, zip(*rows, strict=True), strict=False)
    values = [column if meaning is None else map(meaning.__getitem__, column) for meaning, column in columns]
    return zip(rows, zip(*values, strict=True), strict=False)


Column = str | Callable[[PathKind], Hashable]
"""A column by its name, or something that the kinds of paths have."""


class Selection(Sequence[Path]):
    """Some paths of a job, in its order: a sequence that makes a path only when it is asked for one.

    Args:
        table: of the job.
        kinds: all paths of these kinds, by their places.
        rows: or these, in order.
    """

    def __init__(self, table: Table, kinds: Iterable[int], rows: list[int] | None = None) -> None:
        self.table = table
        self._kinds = list(kinds)
        self._rows = rows
        self._is_whole = rows is None
        self._found: dict[object, Any] = {}

    def __len__(self) -> int:
        if self._rows is not None:
            return len(self._rows)
        return sum(len(self.table.of_kinds()[kind]) for kind in self._kinds)

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
    def rows(self) -> list[int]:
        """The rows of the table."""
        if self._rows is None:
            table = self.table
            if len(self._kinds) < 2:
                self._rows = table.of_kinds()[self._kinds[0]] if self._kinds else []
            else:
                wanted = [False] * len(table.columns.kinds)
                for place in self._kinds:
                    wanted[place] = True
                self._rows = list(compress(range(len(table.columns.kind)), map(wanted.__getitem__, table.columns.kind)))
        return self._rows

    def counted(self) -> list[tuple[PathKind, int]]:
        """The kinds of these paths, and how many there are of each."""
        kinds = self.table.columns.kinds
        if self._is_whole:
            return [(kinds[place], len(self.table.of_kinds()[place])) for place in self._places()]
        return [(kinds[place], number) for place, number in Counter(self._taken("kind")).items()]

    @property
    def kinds(self) -> list[PathKind]:
        """The kinds of these paths, in the order of the first path of each."""
        return [self.table.columns.kinds[place] for place in self._places()]

    def where(self, test: Callable[[PathKind], object]) -> Selection:
        """Those of certain kinds."""
        passed = {place: bool(test(self.table.columns.kinds[place])) for place in self._places()}
        if self._is_whole:
            return Selection(self.table, [place for place, is_wanted in passed.items() if is_wanted])
        return self._chosen(map(passed.__getitem__, self._taken("kind")))

    def only(self, columns: Sequence[Column], test: Callable[..., object]) -> Selection:
        """Those whose values in some columns pass a test, which is made once for equal values."""
        if not self:
            return self
        read, meanings = self._read(columns)
        rows = list(zip(*read, strict=True))
        passed = {row: bool(test(*values)) for row, values in _decoded(dict.fromkeys(rows), meanings)}
        return self._chosen(map(passed.__getitem__, rows))

    def distinct(self, *columns: Column) -> Iterator[tuple[Any, ...]]:
        """The values in some columns, each combination once, in order."""
        return iter(self._remembered(columns, lambda: self._combinations(columns)))

    def _combinations(self, columns: Iterable[Column]) -> list[tuple[Any, ...]]:
        read, meanings = self._read(columns)
        return [values for _, values in _decoded(dict.fromkeys(zip(*read, strict=True)), meanings)]

    def values(self, *columns: Column) -> Iterator[tuple[Any, ...]]:
        """The values in some columns of each path."""
        read, meanings = self._read(columns)
        decoded = [
            r if meaning is None else map(meaning.__getitem__, r) for r, meaning in zip(read, meanings, strict=True)
        ]
        return zip(*decoded, strict=True)

    def without(self, others: Selection) -> Selection:
        """Those that are not among others."""
        gone = set(others.rows)
        return self._chosen(row not in gone for row in self.rows)

    def ordered(self, key: Callable[[PathKind], Any]) -> Selection:
        """The same, ordered by something that kinds have."""
        places = self.table.columns.kind
        keys = {place: key(self._kind(place)) for place in self._places()}
        return Selection(self.table, (), sorted(self.rows, key=lambda row: keys[places[row]]))

    def first(self, number: int) -> Selection:
        """The first ``number`` of them."""
        return Selection(self.table, (), self.rows[:number])

    def __and__(self, others: Selection) -> Selection:
        rows = set(others.rows)
        return self._chosen(row in rows for row in self.rows)

    def __or__(self, others: Selection) -> Selection:
        return Selection(self.table, (), sorted({*self.rows, *others.rows}))

    def ends(self) -> set[int]:
        """The ranks at both ends."""
        return {*self._taken("src"), *self._taken("dst")}

    def hosts(self) -> set[str | None]:
        """The hosts at both ends."""
        names = self.table.columns.hosts
        return {names[place] for place in {*self._taken("src_host"), *self._taken("dst_host")}}

    def first_lines(self) -> FirstLines:
        """The first line of each."""
        return FirstLines(self.table.columns.evidence, self.rows)

    def end_lines(self, side: str) -> Iterator[Evidence]:
        """The first line that each prints at its ``send`` or ``receive`` side."""
        return (line for row in self.rows for line in self.table.columns.end_lines(row, side))

    def _places(self) -> Iterable[int]:
        """Where their kinds are in the table."""
        if self._is_whole:
            return self._kinds
        return dict.fromkeys(self._taken("kind"))

    def _taken(self, column: str) -> Sequence[int]:
        """The values of a column."""
        values: Sequence[int] = getattr(self.table.columns, column)
        rows = self.rows
        if len(rows) == len(values):
            return values
        taken: Sequence[int] = self._remembered(column, lambda: [values[row] for row in rows])
        return taken

    def _remembered(self, key: object, find: Callable[[], Any]) -> Any:
        """What is found in these paths, found when it is first asked for."""
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]

    def _read(self, columns: Iterable[Column]) -> tuple[list[Iterable[int]], list[Sequence[object] | None]]:
        """The numbers in columns, and the lists in which they are places."""
        read: list[Iterable[int]] = []
        meanings: list[Sequence[object] | None] = []
        for column in columns:
            if isinstance(column, str):
                read.append(self._taken(column))
                meanings.append(self.table.columns.meaning(column))
            else:
                values: dict[object, int] = {}
                places = {kind: values.setdefault(column(self._kind(kind)), len(values)) for kind in self._places()}
                read.append(map(places.__getitem__, self._taken("kind")))
                meanings.append(list(values))
        return read, meanings

    def _kind(self, place: int) -> PathKind:
        return self.table.columns.kinds[place]

    def _chosen(self, wanted: Iterable[object]) -> Selection:
        return Selection(self.table, (), list(compress(self.rows, wanted)))


class Paths(Selection):
    """The paths of a job, ordered by source and destination rank.

    Args:
        paths: as columns, or one by one.
        end_lines: of paths that are given one by one.
    """

    def __init__(self, paths: Columns | Iterable[Path], end_lines: EndLines = no_end_lines) -> None:
        columns = paths if isinstance(paths, Columns) else _columns(paths, end_lines)
        table = Table(columns)
        super().__init__(table, table.of_kinds())

    def between(self, src: int, dst: int) -> Path:
        """The path from one rank to another.

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
        """A table with one row for each path and the columns of the JSON."""
        from nccl_inspect.model.frames import path_frame

        return path_frame(self)


def _columns(paths: Iterable[Path], end_lines: EndLines) -> Columns:
    """The columns of paths that are there one by one."""
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


def refined(paths: Paths, marking: Sequence[int], change: Callable[[PathKind, int], PathKind]) -> Paths:
    """The same paths, of whose kinds more is said; a kind whose rows are marked differently is split.

    Args:
        paths: of a job.
        marking: a number for each row.
        change: the new kind of rows of that kind and number.
    """
    columns = paths.table.columns
    both = list(zip(columns.kind, marking, strict=True))
    places = {pair: place for place, pair in enumerate(dict.fromkeys(both))}
    kinds = [change(columns.kinds[kind], mark) for kind, mark in places]
    return Paths(replace(columns, kind=[places[pair] for pair in both], kinds=kinds))
