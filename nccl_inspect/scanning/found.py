"""What a scanner finds in a block of lines: texts with their printers, connections as edges, and how sound it was."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeAlias

from nccl_inspect.event.base import Process
from nccl_inspect.event.types import NEAR, ChannelConnect, ProcessEnded
from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.ingest.lines import exceptions
from nccl_inspect.ingest.lines.prefix import NOBODY, Origin
from nccl_inspect.ingest.lines.timestamps import Late
from nccl_inspect.ingest.lines.torn import Mended
from nccl_inspect.util.records import Record

TAIL = 100
TAIL_WIDTH = 4096
_WIDTH = 400  # bytes of a line that is shown
MAX_EXAMPLES = 20


class Text(Record):
    """The part of a line after ``NCCL``: its level, and what the grammar makes of it."""

    level: str
    message: bytes
    parsed: Parsed | None
    damaged: bool = False
    use: Any = None  # whatever its reader wants to remember with it: the same text comes many times


_SUMS = (
    *("lines", "nccl_lines", "typed_lines", "unrecognised_lines", "repaired_lines", "split_lines", "damaged_lines"),
    "related_lines",
)


class Counts(Record):
    """Holds how sound a source was."""

    lines: int = 0
    nccl_lines: int = 0
    typed_lines: int = 0
    unrecognised_lines: int = 0
    repaired_lines: int = 0  # lines put together from two places
    split_lines: int = 0  # lines that were split into several
    damaged_lines: int = 0
    related_lines: int = 0  # lines of other programs (PyTorch, libfabric, nccl-tests) that the grammar knows
    tail: deque[tuple[int, bytes]] = field(default_factory=lambda: deque(maxlen=TAIL))
    """The last lines that are not NCCL's, with their numbers: they often show how a job ended."""
    broken: list[tuple[int, bytes]] = field(default_factory=list)  # the first damaged lines, with their numbers
    mended: list[tuple[int, bytes]] = field(default_factory=list)
    """The first lines that were joined or split, with their numbers."""
    doubtful: set[int] = field(default_factory=set)
    """The numbers of all lines that were joined or split, or whose end is missing."""
    pending: dict[tuple[str | None, str], tuple[int, bytes]] = field(default_factory=dict)
    """By label and stream, the beginnings of lines that a collector passes on in parts, with their numbers."""
    awaited: exceptions.Awaited = field(default_factory=dict)
    """The printers of exceptions whose next line may be what NCCL said last."""
    reports: list[tuple[int, ProcessEnded]] = field(default_factory=list)
    """The last lines about ends of processes, with their numbers: the next lines may complete them."""
    tracebacks: exceptions.Open = field(default_factory=dict)
    """The printers of tracebacks whose next line may be the exception."""

    def add(self, lines: int, unknown: int = 0) -> None:
        """Count sound lines of NCCL; no production knows some of these."""
        self.nccl_lines += lines
        self.typed_lines += lines - unknown
        self.unrecognised_lines += unknown

    def number(self, size: int, mended: Mended | None = None) -> Sequence[int]:
        """Count the next lines; gives their numbers."""
        if mended is None:
            self.lines += size
            return range(self.lines - size + 1, self.lines + 1)
        self.lines, self.repaired_lines = mended.lines, mended.repaired
        for line in mended.examples:
            if line.repaired:
                _remember(line.number, line.line, self.mended)
            self.doubtful.add(line.number)
        return mended.numbers

    def add_other(self, number: int, line: bytes) -> None:
        """Keep a line that is not NCCL's among the last ones."""
        self.tail.append((number, line[:TAIL_WIDTH]))

    def add_damaged(self, number: int, line: bytes) -> None:
        """Count a line of NCCL that cannot be read, and keep it among the first."""
        self.nccl_lines += 1
        self.damaged_lines += 1
        _remember(number, line, self.broken)

    def add_split(self, number: int, line: bytes, pieces: int) -> None:
        """Count the sound lines that one line turned out to be, and keep it among the first."""
        self.add(pieces)
        self.split_lines += 1
        self.doubtful.add(number)
        _remember(number, line, self.mended)

    def merge(self, later: Counts) -> None:
        """Take in the counts of the lines that follow."""
        before = self.lines
        self.tracebacks.update((printer, last + before) for printer, last in later.tracebacks.items())
        self.awaited.update((one, (size, last + before)) for one, (size, last) in later.awaited.items())
        self.reports.extend((number + before, event) for number, event in later.reports)
        self.pending.update((key, (number + before, text)) for key, (number, text) in later.pending.items())
        self.tail.extend((number + before, text) for number, text in later.tail)
        for mine, theirs in ((self.broken, later.broken), (self.mended, later.mended)):
            mine.extend((number + before, text) for number, text in theirs)
            del mine[MAX_EXAMPLES:]
        self.doubtful.update(number + before for number in later.doubtful)
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(later, name))

    @property
    def is_torn(self) -> bool:
        """Return whether some lines are not as they were printed."""
        return bool(self.doubtful or self.damaged_lines)

    @property
    def goes_on(self) -> bool:
        """Return whether what the next lines mean depends on those before."""
        is_report = bool(self.reports) and self.lines - self.reports[-1][0] < NEAR
        return bool(self.pending or self.awaited or self.tracebacks or is_report)


def _remember(number: int, line: bytes, examples: list[tuple[int, bytes]]) -> None:
    """Keep a line among the first of its kind."""
    if len(examples) < MAX_EXAMPLES:
        examples.append((number, line[:_WIDTH]))


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


_NUMBERED = re.compile(rb"[A-Z][A-Za-z]* \d+")


def key_of(message: bytes) -> bytes:
    """Return what a connection line says but for the number of the channel: the key of its edge."""
    match = _NUMBERED.match(message)
    return message[match.end() :] if match else message


class Template:
    """A text that stands for those of all channels; or for one that differs in its ranks, which the event has."""

    __slots__ = ("event", "key", "rest", "text")

    def __init__(self, rest: bytes, text: Text, event: ChannelConnect) -> None:
        self.rest, self.text, self.event = rest, text, event
        self.key = self.event.conn, self.event.rank  # what is the same in all lines of a run


Run: TypeAlias = dict[bytes, Edge]
"""Connection lines that a thread printed one after the other for one communicator, by :func:`key_of`."""
Row: TypeAlias = tuple[int, Origin | Late, Text, Run | None]
"""A sound line: number, who printed it, and text; of a run the first line."""


class Thread:
    """Holds the connection lines that a thread printed last, as long as nothing else of its process follows."""

    __slots__ = ("key", "run")

    def __init__(self) -> None:
        self.key: tuple[int | None, int] | None = None  # that of the templates of the run
        self.run: Run = {}  # the edges that the next lines may continue


class Printed:
    """Holds the lines of a process in their order."""

    __slots__ = ("connects", "last", "rows", "threads")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.connects = False  # whether a thread has a run that may go on
        self.threads: dict[int, Thread] = {}
        self.last: tuple[int, Origin | Late] = (0, NOBODY)  # the number of the last line, and who printed it

    def keep(self, number: int, printed: Origin | Late, text: Text) -> None:
        """Add a line."""
        self.rows.append((number, printed, text, None))
        self.last = number, printed
        if self.connects:
            self.connects = False
            for thread in self.threads.values():
                thread.run = {}

    def connect(self, thread: Thread, number: int, printed: Origin | Late, bit: int, template: Template) -> None:
        """Add a line of an edge, mostly its first one."""
        if not thread.run or thread.key != template.key:
            self.connects, thread.key, thread.run = True, template.key, {}
            self.rows.append((number, printed, template.text, thread.run))
        self.last = number, printed
        edge = Edge(template.event, bit.bit_length() - 1, printed, number, bit)
        own = thread.run.setdefault(template.rest, edge)
        if own is not edge:  # a prefix of its own kept it from being found
            own.add(edge)


class Known(NamedTuple):
    """Holds what earlier lines show about how later ones are to be read."""

    wrapped: bool = False  # whether lines are in envelopes
    leads: frozenset[bytes] = frozenset()
    """What unknown launchers put in front of NCCL's prefix, with zeros for its numbers."""


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
