"""Which NET connections both ends print: what shows of which communicator they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache, cached_property
from typing import TypeAlias

from nccl_inspect.event.base import Process
from nccl_inspect.model.communicators.candidates import Ends, Unit
from nccl_inspect.model.communicators.members import Member

Pair: TypeAlias = tuple[int | None, int, int | None]
"""A connection set and the ranks that a connection joins in its communicator."""

Printed: TypeAlias = tuple[bool, int | None, int, int | None]
"""The same, and before it whether the receiving end printed it."""


class Twins:
    """Compares what the processes of the two ends print.

    Args:
        processes: all of them.
        printed: see :func:`printed`, of a process by its number.
        unanswered: those of all processes of which an end is missing.
    """

    def __init__(
        self,
        processes: Iterable[Process],
        printed: Callable[[int], AbstractSet[Printed]],
        unanswered: Callable[[], AbstractSet[Pair]],
    ) -> None:
        index = {process: number for number, process in enumerate(processes)}
        self._printed = cache(lambda process: printed(index[process]))
        self._missing = unanswered

    def exclude(self, unit: Unit) -> Callable[[Member], bool] | None:
        """Whether a communicator can have a unit; None if all can.

        A missing twin excludes one only where another one has all of them, and where nothing shows that the log breaks
        off before some twin.
        """
        if not (wanted := _wanted(unit)):
            return None
        twins = {key: self._all(wanted, member) for key, member in unit.left.items()}
        shown = set(twins.values())
        if not shown >= {True, False} or self._is_broken_off(wanted):
            return None
        return lambda member: twins[id(member)] is not False

    def _is_broken_off(self, wanted: Mapping[int, AbstractSet[Printed]]) -> bool:
        """Whether an end of these is missing in some communicator."""
        return any(twin[1:] in self._unanswered for twins in wanted.values() for twin in twins)

    @cached_property
    def _unanswered(self) -> AbstractSet[Pair]:
        return self._missing()

    def _all(self, wanted: Mapping[int, AbstractSet[Printed]], member: Member) -> bool | None:
        """Whether the other ends print all NET connections of a unit, too; None where the log does not show these."""
        comm = member.communicator
        assert comm is not None
        has_all: bool | None = True
        for rank, twins in wanted.items():
            mate = comm.members.get(rank)
            if mate is None:
                has_all = None
            elif not twins <= self._printed(mate.log.process):
                return False
        return has_all


def printed(ends: Iterable[Ends]) -> set[Printed]:
    """The NET connections of a process and which end of them it is."""
    return {(end.receives, *_pair(end)) for end in ends if end.kind.direction}


def unanswered(ends: Iterable[Ends]) -> set[Pair]:
    """NET connections that the senders of all communicators do not print in as many channels as the receivers."""
    balance: Counter[Pair] = Counter()
    for end in ends:
        if end.kind.direction:
            balance[_pair(end)] += end.channels.bit_count() * (-1 if end.receives else 1)
    return {pair for pair, left in balance.items() if left}


def _wanted(unit: Unit) -> dict[int, set[Printed]]:
    """Return what the other ends of the NET connections of a unit print, by their ranks."""
    wanted: dict[int, set[Printed]] = {}
    for src, dst, _, _, kind, _ in unit.ends:
        if kind.direction is not None and dst is not None:
            receives = kind.direction == "receive"
            wanted.setdefault(src if receives else dst, set()).add((not receives, kind.conn, src, dst))
    return wanted


def _pair(ends: Ends) -> Pair:
    return ends.kind.conn, ends.src, ends.dst
