"""Follows the waits of ranks from call to call to where they began.

A rank is in the first of its calls that is not over: what it called after that cannot begin before. A call waits
for the ranks that did not make it, and for those that made it but are in an earlier one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from nccl_inspect.artifacts.calls import Call
from nccl_inspect.util.records import Frozen, frozen


@frozen
class Blocked(Frozen):
    """A call that is not over, or that ranks made in different ways."""

    pending: Mapping[int, Call]
    """What the ranks in it called, by rank."""
    absent: Sequence[int] = ()
    """Ranks that did not make it."""
    silent: Sequence[int] = ()
    """Ranks of which nothing is known."""
    overwritten: Sequence[int] = ()
    """Ranks that may have made it; where they stand is known."""
    is_cause: bool = False
    """Whether it needs no other reason."""


class Chains:
    """Holds who waits for whom.

    Args:
        calls: all that are blocked.
        busy: ranks that wait for others outside of these calls.
    """

    def __init__(self, calls: Sequence[Blocked], busy: Collection[int] = ()) -> None:
        self._calls = calls
        self._busy = busy
        self._stands: dict[int, int] = {}
        """The call in which each rank stands."""
        for number, call in enumerate(calls):
            for rank, pending in call.pending.items():
                other = self._stands.get(rank)
                if other is None or pending.order < calls[other].pending[rank].order:
                    self._stands[rank] = number

    def idle(self, number: int) -> list[int]:
        """The ranks that a call waits for and that wait for nobody; those busy elsewhere if nobody else is left."""
        idle = [rank for rank in self._calls[number].absent if rank not in self._stands]
        return [rank for rank in idle if rank not in self._busy] or ([] if self.unknown(number) else idle)

    def unknown(self, number: int) -> list[int]:
        """The ranks that may have made a call, and of which nothing shows that they stand elsewhere."""
        call = self._calls[number]
        silent = [rank for rank in call.silent if rank not in self._busy]
        return [*silent, *(rank for rank in call.overwritten if rank not in self._stands)]

    def held(self, number: int) -> list[int]:
        """The ranks that a call waits for and that are in another one."""
        call = self._calls[number]
        if call.is_cause:
            return []
        ranks = call.absent or [*call.pending, *call.overwritten]
        return [rank for rank in dict.fromkeys(ranks) if self._stands.get(rank, number) != number]

    @cached_property
    def roots(self) -> list[int]:
        """The calls in which a wait begins.

        Ranks of which nothing is known are where it begins only if nothing that is known holds up the call.
        """
        numbers = range(len(self._calls))
        known = [number for number in numbers if self._begins(number)]
        explained = {*self.following(known), *self._stuck_in_rings}
        unknown = {number for number in numbers if self.unknown(number)} - explained
        return sorted({*known, *unknown})

    def _begins(self, number: int) -> bool:
        """Whether a wait begins there by what is known."""
        call = self._calls[number]
        if call.is_cause or any(rank not in self._busy and rank not in self._stands for rank in call.absent):
            return True
        if self.unknown(number):
            return False
        return bool(self.idle(number)) or (not self.held(number) and not call.silent)

    @cached_property
    def _stuck_in_rings(self) -> set[int]:
        """The calls that wait for ranks that wait for each other, and those of these ranks."""
        ahead = {number: {self._stands[rank] for rank in self.held(number)} for number in range(len(self._calls))}
        left = {number: len(others) for number, others in ahead.items()}
        ends = [number for number, count in left.items() if not count]
        for number in ends:
            for other in self._after.get(number, ()):
                left[other] -= 1
                if not left[other]:
                    ends.append(other)
        return set(left) - set(ends)

    def following(self, roots: Iterable[int]) -> list[int]:
        """The calls that wait because of others, nearest first.

        Args:
            roots: those others.
        """
        reached = dict.fromkeys(roots)
        queue = list(reached)
        for number in queue:
            fresh = [other for other in self._after.get(number, ()) if other not in reached]
            reached.update(dict.fromkeys(fresh))
            queue.extend(fresh)
        return queue

    @cached_property
    def _after(self) -> dict[int, list[int]]:
        """The calls that each one holds up."""
        after: dict[int, list[int]] = {}
        for number in range(len(self._calls)):
            for cause in dict.fromkeys(self._stands[rank] for rank in self.held(number)):
                after.setdefault(cause, []).append(number)
        return after

    def ring(self) -> list[tuple[int, int]]:
        """Ranks that wait for each other although nothing else holds them up, each with its call; empty if none do."""
        ends = [number for number in range(len(self._calls)) if not self.held(number)]
        explained = set(self.following([*self.roots, *ends]))
        rank = next((rank for rank, number in self._stands.items() if number not in explained), None)
        order: dict[int, int] = {}
        while rank is not None and rank not in order:
            order[rank] = len(order)
            rank = self.held(self._stands[rank])[0]
        return [] if rank is None else [(m, self._stands[m]) for m in order if order[m] >= order[rank]]
