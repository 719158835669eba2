"""Which job the lines of a source belong to that nobody signs, by those that are known to be of a job."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from nccl_inspect.model.fold.places import source_and_line

_JUST = 400
"""Lines of other jobs after the last line of a job within which its end is reported."""


class Landmarks:
    """Lines of known jobs in one source, in their order."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.jobs: list[int] = []
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.concluded: set[int] = set()
        """Jobs that destroyed their communicators: nothing ended them from outside."""
        self.closings: list[int] = []
        """Places of errors and ends of unknown processes."""

    def sort(self) -> None:
        """Put what was added in its order."""
        rows = sorted(zip(self.places, self.jobs, strict=True))
        self.places, self.jobs = [place for place, _ in rows], [job for _, job in rows]
        for place, job in rows:
            self.first.setdefault(job, place)
            self.last[job] = place
        self.closings.sort()

    def owner(self, place: int, is_end: bool = False) -> int:
        """The job that a line belongs to by its place; an end is that of one that stopped just before it."""
        at = bisect_right(self.places, place)
        if at == 0:
            return self.jobs[0]
        before = self.jobs[at - 1]
        if is_end and (self.last[before] > place or before in self.concluded):
            late = reversed(self.jobs[max(0, at - _JUST) : at])
            before = next((job for job in late if self._may_end(job, place, before)), before)
        if at == len(self.places) or self.jobs[at] == before or self.last[before] > place:
            return before
        after, begin = self.jobs[at], self.places[at]
        closing = self.closings[bisect_left(self.closings, begin) - 1] if self.closings else 0
        return before if place <= closing < begin else after

    def nearest(self, place: int, sizes: Sequence[int], rank: int) -> int | None:
        """The job with a rank whose lines are nearest to a place: the one before it, or else the one behind it.

        Args:
            place: of a line.
            sizes: how many ranks each job has.
            rank: that it is to have.
        """
        at = bisect_right(self.places, place)
        near = *reversed(self.jobs[max(0, at - _JUST) : at]), *self.jobs[at : at + _JUST]
        return next((job for job in near if rank < sizes[job]), None)

    def _may_end(self, job: int, place: int, beside: int) -> bool:
        """Whether an end behind a line of another job may be that of this one, which ran at the same time."""
        is_beside = self.first[beside] < self.last[job] <= place
        return is_beside and job not in self.concluded

    def end(self, job: int) -> int:
        """The number of the last line of a job, where another job follows; else 0."""
        last = self.last.get(job, self.places[-1])
        return source_and_line(last)[1] if last < self.places[-1] else 0
