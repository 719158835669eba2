"""What was found in a block of lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect
from nccl_inspect.ingest.lines.prefix import NOBODY, Origin
from nccl_inspect.ingest.lines.timestamps import Late
from nccl_inspect.scanning.counts import Text
from nccl_inspect.util.records import Record, record


@record
class Edge(Record):
    """Connection lines of one thread that differ in the channel only."""

    event: ChannelConnect  # that of one of them; the same object for all edges that say the same
    channel: int  # that of the first of them
    printed: Origin | Late  # who printed the first of them
    place: int  # the number of the first of them; in a fold its place
    channels: int  # a bit for each channel
    lines: int = 1
    level: str = "INFO"

    @property
    def message(self) -> str:
        """Return the message of the first of them."""
        message = self.event.message
        return message if self.channel == self.event.channel else f"Channel {self.channel:02d}{message[10:]}"

    def add(self, other: Edge) -> None:
        """Take in more lines of the same edge."""
        self.channels |= other.channels
        self.lines += other.lines


def edge_of(number: int, printed: Origin | Late, text: Text) -> Edge:
    """Return the edge that a connection line begins, by its number, who printed it, and its text."""
    event: ChannelConnect = text.parsed.event  # type: ignore[union-attr,assignment]
    return Edge(event, event.channel, printed, number, 1 << event.channel, 1, text.level)


class Template:
    """A text that stands for those of all channels."""

    __slots__ = ("event", "key", "rest", "text")

    def __init__(self, rest: bytes, text: Text) -> None:
        self.rest, self.text = rest, text
        self.event: ChannelConnect = text.parsed.event  # type: ignore[union-attr,assignment]
        self.key = self.event.conn, self.event.rank  # what is the same in all lines of a run


Run: TypeAlias = list[tuple[Text, Edge]]
"""Connection lines that a thread printed one after the other for one communicator: edges, with the text of a line."""
Row: TypeAlias = tuple[int, Origin | Late, Text, Run | None]
"""A sound line: number, who printed it, and text; of a run the first line."""


class Thread:
    """Holds the connection lines that a thread printed last, as long as nothing else of its process follows."""

    __slots__ = ("edges", "key", "run")

    def __init__(self) -> None:
        self.key: tuple[int | None, int] | None = None  # that of the templates of the run
        self.edges: dict[bytes, Edge] = {}
        """Those that the next lines may continue, by what follows the number of the channel."""
        self.run: Run = []


class Printed:
    """Holds the lines of a process in their order."""

    __slots__ = ("last", "rows", "threads")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.threads: dict[int, Thread] = {}
        self.last: tuple[int, Origin | Late] = (0, NOBODY)  # the number of the last line, and who printed it

    def keep(self, number: int, printed: Origin | Late, text: Text) -> None:
        """Add a line."""
        self.rows.append((number, printed, text, None))
        self.last = number, printed
        for thread in self.threads.values():
            thread.edges.clear()

    def connect(self, thread: Thread, number: int, printed: Origin | Late, bit: int, template: Template) -> None:
        """Add the first line of an edge."""
        edge = Edge(template.event, bit.bit_length() - 1, printed, number, bit, 1, template.text.level)
        if not thread.edges or thread.key != template.key:
            thread.edges.clear()
            thread.key, thread.run = template.key, []
            self.rows.append((number, printed, template.text, thread.run))
        self.last = number, printed
        thread.edges[template.rest] = edge
        thread.run.append((template.text, edge))


class Known(NamedTuple):
    """Holds what earlier lines show about how later ones are to be read."""

    wrapped: bool = False  # whether lines are in envelopes
    leads: frozenset[bytes] = frozenset()
    """What unknown launchers put in front of NCCL's prefix, with zeros for its numbers."""

    def with_more(self, other: Known) -> Known:
        """Return what both state."""
        return Known(self.wrapped or other.wrapped, self.leads | other.leads)


NOTHING_KNOWN = Known()


class Found:
    """Sound lines by the process that printed them: the order of those of several processes does not matter."""

    def __init__(self) -> None:
        self.by_process: dict[Process, Printed] = {}  # in the order of the first lines
        self._lines: dict[Process, Printed] = {}
        self.unknown: list[tuple[int, Origin | Late, Text]] = []
        """Those that no production knows, in the order in which they came."""

    def lines_of(self, process: Process) -> Printed:
        """Return the lines of a process, of which there may be none yet."""
        return self._lines.setdefault(process, Printed())

    def keep(self, number: int, printed: Origin | Late, text: Text) -> None:
        """Add a line."""
        lines = self.lines_of(printed.process)
        self.by_process.setdefault(printed.process, lines)
        lines.keep(number, printed, text)
        if text.parsed is None:
            self.unknown.append((number, printed, text))


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
        """Take in lines; those of a process are in their order."""

    def is_countable(self, text: Text) -> bool:
        """Return whether of such lines only the number, the first and the last one matter."""

    def take_repeated(self, found: Sequence[Repeated]) -> None:
        """Take in countable lines in the order of their first ones."""
