"""Lines of the log as evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter

from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.fold import Burst, Edge, Note, Step
from nccl_inspect.util.text import decode


class Quotes:
    """Quotes lines; paths do so when they are asked, and keep nothing else of what made them.

    Args:
        where: gives source, line and order of a place.
    """

    def __init__(self, where: Callable[[int], tuple[str, int, int]]) -> None:
        self._where = where

    def message(self, place: int, origin: Origin, level: str, message: str) -> Evidence:
        """The line at a place, as it stood."""
        return self.line(place, prefix.whole(origin.head, level, message))

    def line(self, place: int, text: str) -> Evidence:
        """The line at a place that has a text."""
        source, line, order = self._where(place)
        return Evidence(source, line, text, order)

    def edge(self, edge: Edge) -> Evidence:
        """The first line of a connection."""
        return self.message(edge.place, edge.origin, edge.level, edge.stated.message)

    def step(self, step: Step | Burst) -> Evidence:
        """The line of a step, or the first one of a burst."""
        if isinstance(step, Step):
            return self.message(step.place, step.origin, "INFO", step.event.message)
        return self.edge(min(step.edges.values(), key=lambda edge: edge.place))

    def first_steps(self, steps: Iterable[Step], most: int) -> list[Evidence]:
        """The lines of the first of some steps."""
        return list(map(self.step, sorted(steps, key=itemgetter(0))[:most]))

    def note(self, note: Note) -> Evidence:
        """The first line of a statement."""
        return self.message(note.place, note.origin, note.level, decode(note.message))
