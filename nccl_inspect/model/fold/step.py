"""An event in the order of its process."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from nccl_inspect.event.types import Event
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Late


class Step(NamedTuple):
    """One event in the order of its process."""

    place: int
    printed: Origin | Late
    """Who printed its line."""
    event: Event

    @property
    def origin(self) -> Origin:
        """Return who printed its line, and when."""
        return self.printed.origin if isinstance(self.printed, Late) else self.printed


step_of = partial(tuple.__new__, Step)
"""Makes a step of its fields in a third of the time."""
