"""What differs from path to path, in columns of numbers, and the lines that paths are read from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, overload

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.paths.numbers import Numbers
from nccl_inspect.model.paths.path import PathKind
from nccl_inspect.util.records import Slotted, record


class Lines(Protocol):
    """The evidence of each row, made when it is asked for."""

    def __getitem__(self, row: int, /) -> list[Evidence]:
        """The first line of a path, in a list."""
        ...


class EndLines(Protocol):
    """The first line that each end of a row prints, made when it is asked for."""

    def __call__(self, row: int, side: str, /) -> list[Evidence]:
        """That of the ``send`` or ``receive`` side, in a list; empty if none is known."""
        ...


def no_end_lines(_row: int, _side: str, /) -> list[Evidence]:
    """Return the columns of paths that are not made from lines."""
    return []


@record
class Columns(Slotted):
    """Holds what differs from path to path, in rows ordered by source and destination rank.

    All but ``src`` and ``dst`` hold places in the lists below.
    """

    src: Numbers
    dst: Numbers
    src_host: Numbers
    dst_host: Numbers
    src_gpu: Numbers
    dst_gpu: Numbers
    kind: Numbers
    communicators: Numbers
    evidence: Lines
    hosts: list[str | None]
    gpus: list[str | None]
    kinds: list[PathKind]
    """Each of them has a row."""
    communicator_sets: list[tuple[str, ...]]
    end_lines: EndLines = no_end_lines

    def meaning(self, column: str) -> Sequence[object] | None:
        """The list in which a column holds places; None for ranks."""
        lists: dict[str, Sequence[object]] = {
            "src_host": self.hosts,
            "dst_host": self.hosts,
            "src_gpu": self.gpus,
            "dst_gpu": self.gpus,
            "kind": self.kinds,
            "communicators": self.communicator_sets,
        }
        return lists.get(column)


class FirstLines(Sequence[Evidence]):
    """The first line of each of some paths, made when it is asked for."""

    def __init__(self, evidence: Lines, rows: Sequence[int]) -> None:
        self._evidence = evidence
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Evidence: ...
    @overload
    def __getitem__(self, index: slice) -> list[Evidence]: ...
    def __getitem__(self, index: int | slice) -> Evidence | list[Evidence]:
        if isinstance(index, int):
            return self._evidence[self._rows[index]][0]
        return [self._evidence[row][0] for row in self._rows[index]]
