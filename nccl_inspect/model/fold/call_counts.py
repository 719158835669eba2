"""Counts the calls of one process (subsystem COLL): a job makes millions of them, of a few dozen kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nccl_inspect.event.types import Collective
from nccl_inspect.util.records import Record, record

PAIRED = ("Send", "Recv")
"""Calls between two ranks; all others are made by all ranks of the communicator."""
ROOTED = ("Broadcast", "Reduce", "Gather", "Scatter", *PAIRED)
"""Calls whose field ``root`` means something: a rank, or the other end."""


class CallKey(NamedTuple):
    """Holds what calls that are counted together have in common; sizes by powers of two, so that there are few."""

    comm: str
    func: str
    datatype: int
    nranks: int
    root: int | None
    size_class: int


@record
class Tally(Record):
    """Calls of one process: how many, and how many elements."""

    calls: int
    elements: int
    smallest: int
    largest: int
    first: int
    """Place of the first."""
    last: int

    def add(self, other: Tally) -> None:
        """Take in what came later."""
        self.calls += other.calls
        self.elements += other.elements
        self.smallest = min(self.smallest, other.smallest)
        self.largest = max(self.largest, other.largest)
        self.last = other.last


def counted(tallies: dict[CallKey, Tally], place: int, call: Collective) -> None:
    """Count one call."""
    root = call.root if call.func in ROOTED else None
    key = CallKey(call.comm, call.func, call.datatype, call.nranks, root, call.count.bit_length())
    tally = Tally(1, call.count, call.count, call.count, place, place)
    if total := tallies.get(key):
        total.add(tally)
    else:
        tallies[key] = tally


def merged(mine: dict[CallKey, Tally], later: dict[CallKey, Tally], move: Callable[[int], int]) -> None:
    """Take in what the same process called later."""
    for key, tally in later.items():
        tally.first, tally.last = move(tally.first), move(tally.last)
        if total := mine.get(key):
            total.add(tally)
        else:
            mine[key] = tally
