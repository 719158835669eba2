"""What processes stated, in columns: a row for each statement of a process, and each text once.

Loaded where lines were read in columns only: this module needs numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nccl_inspect.event.base import Event, Process
from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.fold.places import position, source_and_line
from nccl_inspect.model.fold.process_log import MAX_NOTES, Note, ProcessLog, Wording, located
from nccl_inspect.scanning.line_table import Printed, joined
from nccl_inspect.util.columns import Column, distinct

FEW = MAX_NOTES // 2
"""Statements of a process that are kept here: which of more are too many is found out one by one."""
MANY = 1 << 17
"""Rows after which those that state the same are put together."""


class Rows(NamedTuple):
    """Statements in the order of their first lines."""

    process: Column
    """By the numbers of processes."""
    wording: Column
    """An index into the texts."""
    place: Column
    """Of the first line."""
    last: Column
    times: Column
    printed: Printed
    """Who printed the first lines."""


class StatementText(NamedTuple):
    """Holds what is stated, once for all who do."""

    wording: Wording
    event: Event | None


class StatementTable:
    """Statements of many processes; objects are made of those that somebody asks for."""

    def __init__(self) -> None:
        self._texts: list[StatementText] = []
        self._wordings: dict[Wording, int] = {}
        self._numbers: dict[Process, int] = {}
        self._sizes: list[int] = []
        """By the numbers of processes how many rows they have at most."""
        self._parts: list[tuple[NDArray[Any], Printed]] = []
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._origins: list[Origin] = []
        """Of these rows."""
        self._limit = MANY
        self._by_process: tuple[Column, list[int]] | None = None
        """The rows of each process, and where they begin; None where some were added since."""

    def number(self, process: Process) -> int:
        """The number of a process."""
        return self._numbers[process]

    def wording(self, wording: Wording, parsed: Note | Parsed | StatementText | None) -> int:
        """The number of a text.

        Args:
            wording: the text.
            parsed: has its event, which is made for the first line only.
        """
        number = self._wordings.setdefault(wording, len(self._texts))
        if number == len(self._texts):
            self._texts.append(StatementText(wording, parsed.event if parsed else None))
        return number

    def size(self, process: Process) -> int:
        """Return how many statements a process made."""
        self._settle()
        return self._sizes[self._numbers[process]]

    def has_room(self, process: Process, more: int = 1) -> bool:
        """Whether more statements of a process may be kept here."""
        return self._sizes[self._numbers[process]] + more <= FEW or self.size(process) + more <= FEW // 2

    def adopt(self, log: ProcessLog, more: int) -> bool:
        """Keep the statements of a process here from now on, and give whether there is room for them.

        Args:
            log: of the process.
            more: how many are to come.
        """
        if log.statement_table is None and log.process.host and not log.long_notes and len(log.own) + more <= FEW:
            self._numbers[log.process] = len(self._sizes)
            self._sizes.append(0)
            self._by_process = None
            log.statement_table, notes, log.own = self, log.own, {}
            for note in notes.values():
                self.note(log.process, note.wording, note, note.place, note.origin, note.last, note.count)
        if log.statement_table is not None and not self.has_room(log.process, more):
            log.make_notes()
        return log.statement_table is not None

    def note(
        self,
        process: Process,
        wording: Wording,
        parsed: Note | Parsed | None,
        place: int,
        origin: Origin,
        last: int,
        times: int,
    ) -> None:
        """Add a statement that was read on its own."""
        number = self._numbers[process]
        self._rows.append((number, self.wording(wording, parsed), place, last, times))
        self._origins.append(origin)
        self._sizes[number] += 1
        self._by_process = None
        if len(self._rows) > self._limit:
            self._settle()

    def add(self, columns: Sequence[Column], printed: Printed) -> None:
        """Add statements of a block.

        Args:
            columns: as in :class:`Rows`.
            printed: who printed their first lines.
        """
        self._parts.append((np.array(columns, np.int64), printed))
        numbers, sizes = np.unique(columns[0], return_counts=True)
        for number, more in zip(numbers.tolist(), sizes.tolist(), strict=True):
            self._sizes[number] += more
        self._by_process = None
        if sum(len(some) for _, some in self._parts) > self._limit:
            self._settle()

    def take_in(
        self, later: StatementTable, logs: Sequence[tuple[ProcessLog, ProcessLog]], move: Callable[[int], int]
    ) -> None:
        """Take in what the same processes stated later, as far as it can be kept here.

        Args:
            later: in columns.
            logs: of each process the own one, and the later one, which loses what is taken in.
            move: gives the place that a later place has here.
        """
        logs = [(mine, log) for mine, log in logs if later.adopt(log, 0)]
        number = np.full(len(later._sizes), -1)
        for mine, log in logs:
            if self.adopt(mine, later.size(log.process)):
                number[later.number(log.process)] = self.number(mine.process)
                log.statement_table = None
        rows = later.rows()
        chosen = np.flatnonzero(number[rows.process] >= 0)
        wording = np.array([self.wording(stated.wording, stated) for stated in later._texts], np.int64)
        places = _moved(rows.place[chosen], move), _moved(rows.last[chosen], move)
        columns = number[rows.process[chosen]], wording[rows.wording[chosen]], *places, rows.times[chosen]
        self.add(columns, rows.printed.at(chosen))

    def rows(self) -> Rows:
        """All statements."""
        self._settle()
        ((columns, printed),) = self._parts
        process, wording, place, last, times = columns
        return Rows(process, wording, place, last, times, printed)

    def _settle(self) -> None:
        """Put together what states the same."""
        if self._by_process is not None:
            return
        printed = joined([*(some for _, some in self._parts), Printed.of(self._origins)])
        one_by_one = np.array(self._rows, np.int64).reshape(-1, 5).T
        columns = np.concatenate([*(part for part, _ in self._parts), one_by_one], axis=1)
        order = np.argsort(columns[2], kind="stable")
        columns = columns[:, order]
        first, group = distinct(columns[0], columns[1])
        kept = columns[:, first]
        if len(first) < len(order):
            together = np.argsort(group, kind="stable")
            begins = np.searchsorted(group[together], np.arange(len(first)))
            kept[3] = np.maximum.reduceat(columns[3][together], begins)
            kept[4] = np.add.reduceat(columns[4][together], begins)
        self._parts = [(kept, printed.at(order[first]))]
        self._rows, self._origins = [], []
        self._limit = max(MANY, 2 * len(first))
        sizes = np.bincount(kept[0], minlength=len(self._sizes))
        self._sizes = sizes.tolist()
        self._by_process = np.argsort(kept[0], kind="stable"), [0, *np.cumsum(sizes).tolist()]

    def notes_of(self, process: Process) -> dict[object, Note]:
        """The statements of a process as objects."""
        self._settle()
        assert self._by_process is not None
        ((columns, printed),), (order, begins), number = self._parts, self._by_process, self._numbers[process]
        at = order[begins[number] : begins[number + 1]]
        notes: dict[object, Note] = {}
        for row, wording, place, last, times in zip(at.tolist(), *columns[1:, at].tolist(), strict=True):
            key, event = self._texts[wording]
            notes[key] = Note(event, located(printed[row], key[2]), key[0], key[1], place, last, times)
        return notes

    def by_text(self, logs: Sequence[ProcessLog]) -> Iterator[tuple[Wording, Event | None, list[Any]]]:
        """The statements of some processes by text, in the order of their first lines.

        Args:
            logs: of the processes, also of those whose statements are objects.

        Yields:
            The text, and by columns who stated it: processes, origins, places of first and last lines, numbers of
            lines.
        """
        rows = self.rows()
        owner_of, objects = np.full(len(self._sizes), -1), list[tuple[int, Note]]()
        for at, log in enumerate(logs):
            if log.statement_table is self:
                owner_of[self._numbers[log.process]] = at
            else:
                objects += [(at, note) for note in log.notes.values()]
        chosen = np.flatnonzero(owner_of[rows.process] >= 0)
        more = [(at, self.wording(note.wording, note), note.place, note.last, note.count) for at, note in objects]
        columns = np.array([owner_of[rows.process], *rows[1:5]])[:, chosen]
        columns = np.concatenate([columns, np.array(more, np.int64).reshape(-1, 5).T], axis=1)
        printed = joined([rows.printed.at(chosen), Printed.of([note.origin for _, note in objects])])
        in_order = np.lexsort((columns[0], columns[2]))
        first, text = distinct(columns[1][in_order])
        by_text = in_order[np.argsort(text, kind="stable")]
        owners, wordings, *numbers = columns[:, by_text].tolist()
        printed = printed.at(by_text)
        origins = printed if printed.printers.frames else printed.origins
        listed = [logs[at].process for at in owners], origins, *numbers
        ends = np.cumsum(np.bincount(text, minlength=len(first))).tolist()
        for begin, end in zip([0, *ends], ends, strict=False):
            yield *self._texts[wordings[begin]], [column[begin:end] for column in listed]

    def __getstate__(self) -> dict[str, object]:
        self._settle()
        return self.__dict__


def _moved(places: Column, move: Callable[[int], int]) -> Column:
    """The places that later places have: the lines of a source move together."""
    sources, at = np.unique(source_and_line(places)[0], return_inverse=True)
    begins = [position(source, 0) for source in sources.tolist()]
    return places + np.array([move(begin) - begin for begin in begins], np.int64)[at]
