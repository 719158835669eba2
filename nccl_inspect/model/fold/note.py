"""A statement of one process, in a form that merges."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TypeAlias

from nccl_inspect.event.base import Event
from nccl_inspect.event.process_ended import ProcessEnded
from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.util.records import Record, record

MAX_PLACES = 1 << 14
"""Places that are kept of one statement of nobody: where jobs follow each other in a log, each may make it."""

Wording: TypeAlias = tuple[str, bytes, str | None]
"""What lines state: level, message and place in NCCL's source."""
Stated: TypeAlias = tuple[Wording, Parsed | None]
"""What a line states, and what the grammar makes of it."""


@record
class Note(Record):
    """A statement that a process made, how often, and where first and last."""

    event: Event | None
    """None for a WARN that no production knows."""
    origin: Origin
    level: str
    message: bytes
    place: int
    last: int
    count: int = 1
    places: array[int] | None = None
    """Where it was made after the first time, as far as nothing shows by whom."""

    @property
    def wording(self) -> Wording:
        """Return what its lines state."""
        return self.level, self.message, self.origin.location

    def again(self, place: int, parsed: Parsed | Note | None = None) -> None:
        """Remember a place of a statement of nobody, which may be made in several jobs, and what it says there."""
        if isinstance(self.event, ProcessEnded) and parsed is not None and isinstance(parsed.event, ProcessEnded):
            self.event.repeat(parsed.event)
        if self.places is None:
            self.places = array("q")
        if len(self.places) < MAX_PLACES:
            self.places.append(place)

    def move(self, move: Callable[[int], int]) -> None:
        """Give the note its places in the fold that takes it in."""
        self.place, self.last = move(self.place), move(self.last)
        if self.places is not None:
            self.places = array("q", map(move, self.places))

    def add(self, later: Note, keeps_places: bool) -> None:
        """Take in the same statement, made later."""
        self.count += later.count
        self.last = max(self.last, later.last)
        for place in (later.place, *(later.places or ())) if keeps_places else ():
            self.again(place, later)


def located(origin: Origin, location: str | None) -> Origin:
    """Return who printed a statement, with the place in NCCL's source of the one that stands for it."""
    return origin if origin.location == location else origin._replace(location=location)
