"""Lines of a process that were collected more than once: a pod's log in two files, or followed again from its start.

Lines that begin and complete a communicator have its id and its address, which no other line has: where these come
again, it is the same line. A copy is left out only when another one says all that it says. Lines that come twice one
after the other are the business of :mod:`.members`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from nccl_inspect.event import types as events
from nccl_inspect.model.fold.fold import Burst, ProcessLog, Step
from nccl_inspect.model.fold.places import source_and_line


class _Copy:
    """Holds what one collector gave of the lines of a process, from one place to another."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.opening: Step | Burst | None = None
        """Its first step."""
        self.first = ""
        """The first of its proofs."""
        self.proofs: set[str] = set()
        """Lines that occur only once in a log."""
        self.completed = False
        """Whether one of them completes a communicator."""
        self.steps = 0
        self.messages: set[tuple[int, str]] = set()
        """Its lines but for connections, with their threads."""
        self.edges: dict[tuple[object, ...], int] = {}
        """The channels of its connections."""
        self.is_kept = True

    def add(self, step: Step | Burst) -> None:
        """Take in what one line said, or several about connections."""
        self.steps += 1
        self.opening = self.opening or step
        if isinstance(step, Step):
            self.messages.add((step.printed.tid, step.event.message))
            return
        for key, edge in step.edges.items():
            place = step.key.tid, step.key.conn, *key
            self.edges[place] = self.edges.get(place, 0) | edge.channels

    def holds(self, other: _Copy) -> bool:
        """Whether all that another one says stands here, too, lines among it that come once only."""
        return (
            other.proofs <= self.proofs
            and other.messages <= self.messages
            and all(not channels & ~self.edges.get(place, 0) for place, channels in other.edges.items())
        )


def without(log: ProcessLog) -> tuple[ProcessLog, list[Step | Burst]]:
    """The log of a process with each line once, and the first steps of what was left out."""
    proofs = [step.event.message for step in log.steps if type(step.event) is events.CommInit and step.event.comm_id]
    if len(set(proofs)) == len(proofs):
        return log, []
    copies = _copies(log)
    kept: list[_Copy] = []
    for copy in sorted(copies, key=lambda copy: (-len(copy.proofs), -copy.steps)):  # the most complete one is kept
        copy.is_kept = not copy.proofs or not any(other.holds(copy) for other in kept)
        if copy.is_kept:
            kept.append(copy)
    begins = [copy.begin for copy in copies]

    def is_kept(place: int) -> bool:
        return copies[max(0, bisect_left(begins, place + 1) - 1)].is_kept

    steps = [step for step in log.steps if is_kept(step.place)]
    left_out = [copy.opening for copy in copies if copy.opening and not copy.is_kept]
    return replace(log, steps=steps, bootstraps=list(filter(is_kept, log.bootstraps))), left_out


def _copies(log: ProcessLog) -> list[_Copy]:
    """The copies in their order: in each source one, and where one begins again as the last one did."""
    copies: list[_Copy] = []
    source, last = -1, 0
    for step in log.steps:
        here, event = source_and_line(step.place)[0], _proof(step)
        if here != source:
            source = here
            copies.append(_Copy(step.place))
        elif event and copies[-1].completed and event.message == copies[-1].first:
            copies.append(_Copy(_beginning(log.bootstraps, last, step.place)))
        copies[-1].add(step)
        if event:
            copies[-1].first = copies[-1].first or event.message
            copies[-1].proofs.add(event.message)
            copies[-1].completed |= event.phase == "COMPLETE"
            last = step.place
    return copies


def _beginning(bootstraps: Sequence[int], after: int, place: int) -> int:
    """Return where the first line of a communicator at a place began.

    With the bootstrap of its process, if the log has it.
    """
    at = bisect_left(bootstraps, place) - 1
    return bootstraps[at] if at >= 0 and bootstraps[at] > after else place


def _proof(step: Step | Burst) -> events.CommInit | None:
    """The event, if its line can occur only once in a log."""
    event = step.event
    return event if isinstance(event, events.CommInit) and event.comm_id else None
