"""The lines that print the channels, rings and trees of a communicator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from nccl_inspect.event import types as events
from nccl_inspect.model.communicators.rings_and_trees import RINGS

if TYPE_CHECKING:
    from nccl_inspect.model.communicators.members import Member
    from nccl_inspect.model.communicators.rings_and_trees import Contradiction
    from nccl_inspect.model.evidence import Evidence
    from nccl_inspect.model.fold.process_log import Step


class LayoutLines:
    """Lines on layout, found and made into evidence when a rule asks: a job may have thousands of communicators."""

    def __init__(
        self,
        members: Mapping[int, Member] = MappingProxyType({}),
        contradictions: Sequence[Contradiction] = (),
        evidence: Callable[[Step], Evidence] | None = None,
    ) -> None:
        self._members, self._contradictions, self._evidence = members, contradictions, evidence

    def counts(self) -> list[events.ChannelCounts]:
        """Return the numbers of channels of all members that state them."""
        return [member.counts for member in self._members.values() if member.counts]

    def channels(self) -> list[Evidence]:
        """Return the first line that counts the most channels."""
        counts = [(step, step.event.coll) for step in self._steps() if isinstance(step.event, events.ChannelCounts)]
        most = max((number for _, number in counts), default=0)
        return self._quote_first(step for step, number in counts if number == most)

    def ring(self, place: int) -> list[Evidence]:
        """Return the first line that prints a ring, by its place among the rings."""
        steps = [(step, step.event.channel) for step in self._steps() if isinstance(step.event, events.RingOrder)]
        channels = sorted({channel for _, channel in steps})[place : place + 1]
        return self._quote_first(step for step, channel in steps if channel in channels)

    def contradiction(self) -> list[Evidence]:
        """Return the lines of the first contradiction, one of each rank."""
        if not self._contradictions:
            return []
        first = self._contradictions[0]
        is_of_rings = first.what == RINGS

        def is_about(event: events.Event) -> bool:
            if isinstance(event, events.RingOrder):
                return is_of_rings and event.channel == first.channel
            trees = event.trees if isinstance(event, events.TreeLinks) and not is_of_rings else ()
            return any(tree[0] == first.channel for tree in trees)

        layouts = [self._members[rank].layout for rank in first.ranks]
        return [line for own in layouts for line in self._quote_first(step for step in own if is_about(step.event))]

    def _steps(self) -> list[Step]:
        return [step for member in self._members.values() for step in member.layout]

    def _quote_first(self, steps: Iterable[Step]) -> list[Evidence]:
        first = min(steps, key=attrgetter("place"), default=None)
        return [self._evidence(first)] if first and self._evidence else []
