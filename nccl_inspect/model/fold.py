"""Gathers what the events state, process by process, in a form that merges: ``fold(a + b) == merge(fold(a), fold(b))``.

Nothing is concluded here; :mod:`nccl_inspect.model.members` and its followers do that once the whole log is in. What
repeats is counted instead of kept, so memory grows with the number of ranks and channels, not with the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from nccl_inspect import event_types as events
from nccl_inspect.event import Process
from nccl_inspect.event_types import ChannelConnect, Event
from nccl_inspect.grammar.engine import Grammar
from nccl_inspect.grammar.production import Production
from nccl_inspect.grammar.scanner import MAX_EXAMPLES, Counts, Scanner, Text
from nccl_inspect.ingest.prefix import NOBODY, Origin
from nccl_inspect.ingest.sources import Lines
from nccl_inspect.model.plausible import is_plausible
from nccl_inspect.model.tally import CallKey, Tally, counted, merged
from nccl_inspect.records import Record

SEQUENCE = (
    events.CommInit,
    events.CommSplit,
    events.CommNoColor,
    events.CommShape,
    events.CommEnd,
    events.ChannelCounts,
    events.RingOrder,
    events.TreeLinks,
    events.Connected,
    events.NetworkInUse,
)
"""Events whose order matters: they say which communicator a thread is busy with."""

_CHECKED = frozenset((events.CommInit, events.ChannelConnect, events.RingOrder, events.TreeLinks))
_LINE_BITS = 40
_MAX_NOTES = 20_000
"""Distinct notes kept for one process; after that, one for each production."""


def position(source: int, line: int) -> int:
    """One number that orders lines: by source, then by line."""
    return source << _LINE_BITS | line


def source_and_line(place: int) -> tuple[int, int]:
    """The inverse of :func:`position`."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)


class Step(NamedTuple):
    """One event in the order of its process."""

    place: int
    origin: Origin
    event: Event


@dataclass(slots=True, eq=False, repr=False)
class Edge(Record):
    """All lines of one burst that differ in the channel only."""

    event: ChannelConnect
    """The first of them."""
    origin: Origin
    place: int
    channels: int = 0
    """A bit for each channel."""
    lines: int = 0
    level: str = "INFO"

    def add(self, other: Edge) -> None:
        """Take in more lines of the same edge."""
        self.channels |= other.channels
        self.lines += other.lines


class BurstKey(NamedTuple):
    """What the lines of one burst have in common."""

    tid: int
    conn: int | None
    rank: int
    """The rank that prints: the sender, or the receiver of a ``[receive]`` line."""


@dataclass(slots=True, eq=False, repr=False)
class Burst(Record):
    """Connection lines that one thread printed in one go, so that they belong to one communicator."""

    key: BurstKey
    place: int
    origin: Origin
    edges: dict[tuple[object, ...], Edge] = field(default_factory=dict)

    def add(self, edge: tuple[object, ...], found: Edge) -> None:
        """Take in lines of one edge."""
        if known := self.edges.get(edge):
            known.add(found)
        else:
            self.edges[edge] = found

    def move(self, move: Callable[[int], int]) -> None:
        """Give the burst and its edges their places in the fold that takes them in."""
        self.place = move(self.place)
        for edge in self.edges.values():
            edge.place = move(edge.place)


@dataclass(slots=True, eq=False, repr=False)
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


@dataclass(slots=True, eq=False, repr=False)
class ProcessLog(Record):
    """What one process (host and pid) printed."""

    process: Process
    steps: list[Step | Burst] = field(default_factory=list)
    notes: dict[object, Note] = field(default_factory=dict)
    calls: dict[CallKey, Tally] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    opening: Origin = NOBODY
    """Of the first line."""
    final: Origin = NOBODY
    """Of the last line."""
    bootstraps: list[int] = field(default_factory=list)
    """Places where it said which interface it bootstraps over: a process says so once."""
    _open: dict[int, Burst] = field(default_factory=dict)
    """The burst that each thread is still printing."""
    _begun: dict[int, Burst | None] = field(default_factory=dict)
    """The first thing that each thread printed here, if it was a burst: it may go on one from before."""

    def see(self, place: int, origin: Origin) -> None:
        """Remember that the process printed a line."""
        if not self.first:
            self.first, self.opening = place, origin
        self.last, self.final = place, origin

    def step(self, place: int, origin: Origin, event: Event) -> None:
        """Add an event whose order matters."""
        self.steps.append(Step(place, origin, event))
        self._open.pop(origin.tid, None)
        self._begun.setdefault(origin.tid, None)

    def connect(self, place: int, origin: Origin, event: ChannelConnect, level: str) -> None:
        """Add a connection line to the burst of its thread."""
        rank = event.dst if event.direction == "receive" and event.dst is not None else event.src
        key = BurstKey(origin.tid, event.conn, rank)
        burst = self._open.get(origin.tid)
        if burst is None or burst.key != key:
            burst = Burst(key, place, origin)
            self._open[origin.tid] = burst
            self._begun.setdefault(origin.tid, burst)
            self.steps.append(burst)
        burst.add(edge_key(event), Edge(event, origin, place, 1 << event.channel, 1, level))

    def note(self, place: int, origin: Origin, text: Text) -> None:
        """Count a statement."""
        key: object = (text.level, text.message, origin.location)
        if len(self.notes) >= _MAX_NOTES and key not in self.notes:
            key = (text.level, text.parsed.production.name if text.parsed else "unrecognised")
        if known := self.notes.get(key):
            known.count += 1
            known.last = place
        else:
            event = text.parsed.event if text.parsed else None
            self.notes[key] = Note(event, origin, text.level, text.message, place, place)

    def merge(self, later: ProcessLog, move: Callable[[int], int]) -> None:
        """Take in what the same process printed later; ``move`` gives the place that a later place has here."""
        if not self.first:
            self.first, self.opening = move(later.first), later.opening
        self.last, self.final = move(later.last), later.final
        self.bootstraps.extend(map(move, later.bootstraps))
        merged(self.calls, later.calls, move)
        joined = self._join(later, move)
        for step in later.steps:
            if isinstance(step, Step):
                self.steps.append(step._replace(place=move(step.place)))
            elif id(step) not in joined:
                step.move(move)
                self.steps.append(step)
        for tid, begun in later._begun.items():
            self._begun.setdefault(tid, begun)
            still_open = later._open.get(tid)
            if still_open is None:
                self._open.pop(tid, None)
            elif id(still_open) not in joined:
                self._open[tid] = still_open
        for key, note in later.notes.items():
            note.place, note.last = move(note.place), move(note.last)
            if known := self.notes.get(key):
                known.count += note.count
                known.last = note.last
            else:
                self.notes[key] = note

    def _join(self, later: ProcessLog, move: Callable[[int], int]) -> set[int]:
        """Let bursts that go on across the border go on; gives the ids of the later halves."""
        joined = set()
        for tid, burst in later._begun.items():
            known = self._open.get(tid)
            if burst is not None and known is not None and known.key == burst.key:
                burst.move(move)
                for key, edge in burst.edges.items():
                    known.add(key, edge)
                joined.add(id(burst))
        return joined


def edge_key(event: ChannelConnect) -> tuple[object, ...]:
    """What makes two connection lines of a burst the same edge: everything but the channel."""
    return (
        event.src,
        event.dst,
        event.direction,
        event.detail,
        event.nic_index,
        event.gdr,
        event.pxn_rank,
        event.shared,
        event.src_dev,
        event.dst_dev,
    )


@dataclass(slots=True, eq=False, repr=False)
class SourceCounts(Record):
    """A source by name, with how sound it was."""

    name: str
    counts: Counts = field(default_factory=Counts)
    bytes: int = 0
    problem: str | None = None
    """Why it could not be read, or not to its end."""


class Fold:
    """The state of reading: feed it blocks of lines, merge it with others, then resolve it.

    Args:
        grammar: what to recognise messages with.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._scanner = Scanner(grammar)
        self.sources: list[SourceCounts] = []
        self.processes: dict[Process, ProcessLog] = {}
        self.unrecognised: dict[bytes, Note] = {}
        self.partial = False
        """Whether the reading was interrupted."""

    @property
    def productions(self) -> set[Production]:
        """The productions that recognised a line."""
        return self._scanner.productions

    @productions.setter
    def productions(self, seen: set[Production]) -> None:
        self._scanner.productions = seen

    def start(self, name: str) -> None:
        """Begin a source; what is fed from here on belongs to it."""
        self.sources.append(SourceCounts(name))

    def feed(self, lines: Iterable[bytes]) -> None:
        """Read whole lines of the source begun last."""
        source = self.sources[-1]
        base = position(len(self.sources) - 1, 0)

        def sink(number: int, origin: Origin, text: Text) -> None:
            self._take(base | number, origin, text)

        if not isinstance(lines, Lines):
            lines = list(lines)
            lines = Lines(lines, sum(map(len, lines)) + len(lines))
        source.bytes += lines.size
        self._scanner.scan(lines, source.counts, sink, lines.mended)

    def _take(self, place: int, origin: Origin, text: Text) -> None:
        log = self.processes.get(origin.process)
        if log is None:
            log = self.processes[origin.process] = ProcessLog(origin.process)
        log.see(place, origin)
        parsed = text.parsed
        if parsed is not None and parsed.kind in _CHECKED and not is_plausible(parsed.event):
            self._refuse()
            return
        if parsed is None:
            self._unknown(place, origin, text)
            if text.level == "WARN":
                log.note(place, origin, text)
            return
        kind = parsed.kind
        if kind is ChannelConnect:
            assert isinstance(parsed.event, ChannelConnect)
            log.connect(place, origin, parsed.event, text.level)
        elif kind in SEQUENCE:
            log.step(place, origin, parsed.event)
        elif kind.kept or text.level == "WARN":
            log.note(place, origin, text)
            if kind is events.BootstrapInterface:
                log.bootstraps.append(place)
        elif kind is events.Collective:
            assert isinstance(parsed.event, events.Collective)
            counted(log.calls, place, parsed.event)

    def _refuse(self) -> None:
        """Count a line with impossible numbers as damaged."""
        counts = self.sources[-1].counts
        counts.typed_lines -= 1
        counts.damaged_lines += 1

    def _unknown(self, place: int, origin: Origin, text: Text) -> None:
        if known := self.unrecognised.get(text.message):
            known.count += 1
        elif len(self.unrecognised) < _MAX_NOTES:
            self.unrecognised[text.message] = Note(None, origin, text.level, text.message, place, place)

    def extent(self) -> tuple[int, int, int]:
        """How much there is to resolve: steps, connection lines still in progress, statements.

        It changed when something came that a job is made of; a repeated statement changes nothing.
        """
        logs = self.processes.values()
        return sum(len(log.steps) for log in logs), sum(map(_unfinished, logs)), sum(len(log.notes) for log in logs)

    def last_step(self) -> Step | Burst | None:
        """What came last of that whose order matters."""
        last = (log.steps[-1] for log in self.processes.values() if log.steps)
        return max(last, key=lambda step: step.place, default=None)

    def merge(self, later: Fold) -> None:
        """Take in a fold of what follows: the next lines of the same source first, then further sources.

        Args:
            later: a fold whose first source goes on with the last one here (the same name), or is a new one.
        """
        goes_on = bool(self.sources and later.sources) and self.sources[-1].name == later.sources[0].name
        sources_before = len(self.sources) - goes_on
        lines_before = self.sources[-1].counts.lines if goes_on else 0

        def move(place: int) -> int:
            source, line = source_and_line(place)
            return position(source + sources_before, line if source else line + lines_before)

        for process, log in later.processes.items():
            self.processes.setdefault(process, ProcessLog(process)).merge(log, move)
        for message, note in later.unrecognised.items():
            note.place, note.last = move(note.place), move(note.last)
            if known := self.unrecognised.get(message):
                known.count += note.count
            else:
                self.unrecognised[message] = note
        self.productions |= later.productions
        self.partial |= later.partial
        if goes_on:
            _add(self.sources[-1], later.sources[0])
        self.sources.extend(later.sources[goes_on:])


def _unfinished(log: ProcessLog) -> int:
    return sum(edge.lines for burst in log._open.values() for edge in burst.edges.values())


def _add(mine: SourceCounts, later: SourceCounts) -> None:
    mine.bytes += later.bytes
    mine.problem = mine.problem or later.problem
    ours, theirs = mine.counts, later.counts
    ours.tail.extend((number + ours.lines, text) for number, text in theirs.tail)
    for mine_too, theirs_too in ((ours.broken, theirs.broken), (ours.mended, theirs.mended)):
        mine_too.extend((number + ours.lines, text) for number, text in theirs_too)
        del mine_too[MAX_EXAMPLES:]
    for name in (
        "lines",
        "nccl_lines",
        "typed_lines",
        "unrecognised_lines",
        "repaired_lines",
        "split_lines",
        "damaged_lines",
        "related_lines",
    ):
        setattr(ours, name, getattr(ours, name) + getattr(theirs, name))
