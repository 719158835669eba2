"""What was found in a block of lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from nccl_inspect.event.base import Process
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Late
from nccl_inspect.scanning.counts import Text

if TYPE_CHECKING:
    from nccl_inspect.scanning.line_table import ConnectionTable, LineTable


Row: TypeAlias = tuple[int, Origin | Late, Any, int | None]
"""A sound line: number, who printed it, text, and the channel where the text is that of a line for another channel.

Connection lines that follow each other may be one row, with what they are instead of a text.
"""


class Extent(NamedTuple):
    """The first and the last line of a process, with their origins."""

    first: int
    opening: Origin | Late
    last: int
    final: Origin | Late


class Known(NamedTuple):
    """Holds what earlier lines show about how later ones are to be read."""

    wrapped: bool = False
    """Whether lines are in envelopes."""
    leads: frozenset[bytes] = frozenset()
    """What unknown launchers put in front of NCCL's prefix, with zeros for its numbers."""

    def with_more(self, other: Known) -> Known:
        """Return what both state."""
        return Known(self.wrapped or other.wrapped, self.leads | other.leads)


NOTHING_KNOWN = Known()


class Found:
    """Sound lines by the process that printed them: the order of those of several processes does not matter."""

    def __init__(self) -> None:
        self.by_process: dict[Process, list[Row]] = {}
        """In the order of the first lines."""
        self.unknown: list[tuple[int, Origin | Late, Text, int]] = []
        """Those that no production knows, in the order in which they came, and how often they came."""
        self.lines: LineTable | None = None
        """Lines that were read in columns; they are not among the others."""
        self.connections: ConnectionTable | None = None
        """The same of connection lines."""
        self._rows: dict[Process, list[Row]] = {}

    @property
    def extents(self) -> dict[Process, Extent]:
        """Return where the processes of lines that were read one by one begin and end."""
        return {process: Extent(*rows[0][:2], *rows[-1][:2]) for process, rows in self.by_process.items()}

    def rows_of(self, process: Process) -> list[Row]:
        """The lines of a process, of which there may be none yet; the first one is to be added by :meth:`keep`."""
        return self._rows.setdefault(process, [])

    def keep(self, number: int, printed: Origin | Late, text: Text, channel: int | None = None) -> None:
        """Add a line."""
        rows = self.rows_of(printed.process)
        if not rows:
            self.by_process[printed.process] = rows
        rows.append((number, printed, text, channel))
        if text.parsed is None:
            self.unknown.append((number, printed, text, 1))


class Repeated(NamedTuple):
    """A line that came many times."""

    first: int
    last: int
    number: int
    origin: Origin
    text: Text


class Collector(Protocol):
    """Holds who wants the lines."""

    def take(self, found: Found) -> None:
        """Take in lines; those of a process are in their order, but for those in the tables."""

    def is_countable(self, text: Text) -> bool:
        """Return whether of such lines only the number, the first and the last one matter."""

    def take_repeated(self, found: Sequence[Repeated]) -> None:
        """Take in countable lines in the order of their first ones."""
