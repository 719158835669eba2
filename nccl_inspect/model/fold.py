"""Gathers what the events state, process by process, in a form that merges: ``fold(a + b) == merge(fold(a), fold(b))``.

Nothing is concluded here; :mod:`nccl_inspect.model.processes` and its followers do that once the whole log is in. What
repeats is counted instead of kept, so memory grows with the number of ranks and channels, not with the log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache, partial
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import ClassVar, NamedTuple, TypeAlias

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect, Event, ProcessEnded
from nccl_inspect.grammar.engine import Parsed
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines.prefix import NOBODY, Origin
from nccl_inspect.ingest.lines.timestamps import Late
from nccl_inspect.model.inventory import SourceInfo
from nccl_inspect.scanning import found
from nccl_inspect.scanning.found import Counts, Edge, Found, Known, Repeated, Run, Text
from nccl_inspect.util.levels import STATEMENTS
from nccl_inspect.util.records import Record, pick_fields

_LINE_BITS = 40
_Move: TypeAlias = Callable[[int], int]  # gives a place of a fold that which it has in the fold that takes that one in
PLACE = attrgetter("place")  # the order of what the log has


def position(source: int, line: int) -> int:
    """Return one number that orders lines: by source, then by line."""
    return source << _LINE_BITS | line


def source_and_line(place: int) -> tuple[int, int]:
    """Return the inverse of :func:`position`."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)


class Step(NamedTuple):
    """One event in the order of its process."""

    place: int
    printed: Origin | Late  # who printed its line
    event: Event

    @property
    def last(self) -> int:
        """Return where it ends, as a burst does."""
        return self.place


step_of = partial(tuple.__new__, Step)  # makes a step of its fields in a third of the time


MAX_PLACES = 1 << 14
"""Places that are kept of one statement of nobody: where jobs follow each other in a log, each may make it."""

Wording: TypeAlias = tuple[str, bytes, str | None]  # what lines state: level, message and place in NCCL's source
Stated: TypeAlias = tuple[Wording, Parsed | None]  # what a line states, and what the grammar makes of it


class Note(Record):
    """A statement that a process made, how often, and where first and last."""

    event: Event | None  # None for a WARN that no production knows
    printed: Origin | Late  # who made it first
    level: str
    message: bytes
    place: int
    last: int
    count: int = 1
    places: array[int] | None = None  # where it was made after the first time, as far as nothing shows by whom

    @property
    def wording(self) -> Wording:
        """Return what its lines state."""
        return self.level, self.message, self.printed.location

    def add_place(self, place: int, parsed: Parsed | Note | None = None) -> None:
        """Remember a place of a statement of nobody, which may be made in several jobs, and what it says there."""
        if isinstance(self.event, ProcessEnded) and parsed is not None and isinstance(parsed.event, ProcessEnded):
            self.event.repeat(parsed.event)
        if self.places is None:
            self.places = array("q")
        if len(self.places) < MAX_PLACES:
            self.places.append(place)

    def move(self, move: _Move) -> None:
        """Give the note its places in the fold that takes it in."""
        self.place, self.last = move(self.place), move(self.last)
        if self.places is not None:
            self.places = array("q", map(move, self.places))


PAIRED = ("Send", "Recv")  # calls between two ranks; all others are made by all ranks of the communicator
ROOTED = ("Broadcast", "Reduce", "Gather", "Scatter", *PAIRED)
"""Calls whose field ``root`` means something: a rank, or the other end."""


class CallKey(NamedTuple):
    """Holds what calls that are counted together have in common; sizes by powers of two, so that there are few."""

    comm: str
    func: str
    datatype: int
    nranks: int
    root: int | None
    size_class: int


class Tally(Record):
    """Calls of one process: how many, and how many elements."""

    calls: int
    elements: int
    smallest: int
    largest: int
    first: int  # place of the first
    last: int


def add_calls(mine: dict[CallKey, Tally], later: dict[CallKey, Tally]) -> None:
    """Take in what the same process called later."""
    for key, tally in later.items():
        own = mine.setdefault(key, tally)
        if own is not tally:
            own.calls += tally.calls
            own.elements += tally.elements
            own.smallest, own.largest = min(own.smallest, tally.smallest), max(own.largest, tally.largest)
            own.last = tally.last


MAX_NOTES = 20_000  # distinct notes kept for one process; after that, one for each production
LONG = 4096  # bytes of a message beyond anything that NCCL prints: of such ones few are kept (:data:`MAX_LONG`)
MAX_LONG = 200  # long notes kept apart for one process; after that, one for each production


class BurstKey(NamedTuple):
    """Holds what the lines of one burst have in common."""

    tid: int
    conn: int | None
    rank: int  # the rank that prints: the sender, or the receiver of a ``[receive]`` line


class Burst(Record):
    """Connection lines that one thread printed in one go, so that they belong to one communicator."""

    key: BurstKey
    place: int
    printed: Origin | Late  # who printed the first line
    edges: Run = field(default_factory=dict)  # by what distinguishes them: all but the channel
    event: ClassVar[None] = None  # instead of that of a step

    @property
    def lines(self) -> int:
        """Return how many lines it has."""
        return sum(edge.lines for edge in self.edges.values())

    @property
    def wording(self) -> tuple[int, ...]:
        """Return what is the same for bursts that say the same: their edges have the same events, and channels."""
        edges = self.edges.values()
        return *[id(edge.event) for edge in edges], *[edge.channels for edge in edges]

    @property
    def last(self) -> int:
        """Return the place of its last edge."""
        return self.final.place

    @property
    def final(self) -> Edge:
        """Return its last edge."""
        return max(self.edges.values(), key=PLACE)

    @property
    def highest(self) -> int:
        """Return the highest rank that it names."""
        return max((max(edge.event.src, edge.event.dst or 0) for edge in self.edges.values()), default=0)

    def some(self, keys: Iterable[bytes]) -> Burst:
        """Return some of its edges."""
        edges = {key: self.edges[key] for key in keys}
        first = min(edges.values(), key=PLACE)
        return Burst(self.key, first.place, first.printed, edges)

    def join(self, later: Run) -> None:
        """Take in what the same thread printed next."""
        for key, edge in later.items() if self.edges else ():
            own = self.edges.setdefault(key, edge)
            if own is not edge:
                own.add(edge)
        self.edges = self.edges or later

    def move(self, move: _Move) -> None:
        """Give the burst and its edges their places in the fold that takes them in."""
        self.place = move(self.place)
        for edge in self.edges.values():
            edge.place = move(edge.place)


class ProcessLog(Record):
    """Holds what one process (host and pid) printed."""

    process: Process
    steps: list[Step | Burst] = field(default_factory=list)
    notes: dict[object, Note] = field(default_factory=dict)  # what it stated
    calls: dict[CallKey, Tally] = field(default_factory=dict)
    first: int = 0
    last: int = 0
    opening: Origin = NOBODY  # of the first line
    closing: Origin | Late = NOBODY  # of the last line
    long_notes: int = 0
    bootstraps: list[int] = field(default_factory=list)
    """Places where it said which interface it bootstraps over: a process says so once."""
    open: dict[int, Burst] = field(default_factory=dict)  # the burst that each thread is still printing
    begun: dict[int, Burst | None] = field(default_factory=dict)
    """The first burst of each thread if nothing preceded it here: it may continue an earlier one."""

    def step(self, place: int, printed: Origin | Late, event: Event) -> None:
        """Add an event whose order matters."""
        self.steps.append(step_of((place, printed, event)))
        self.open.pop(printed.tid, None)
        self.begun.setdefault(printed.tid, None)

    def burst(self, place: int, printed: Origin | Late, event: ChannelConnect) -> Burst:
        """Return the burst that a connection line at this place belongs to."""
        key = BurstKey(printed.tid, event.conn, event.rank)
        burst = self.open.get(key.tid)
        if burst is None or burst.key != key or self.began_anew(burst.place, place):
            burst = Burst(key, place, printed)
            self.open[key.tid] = burst
            self.begun.setdefault(key.tid, burst)
            insort(self.steps, burst, key=PLACE)  # lines of another thread may precede its first sound one
        return burst

    def began_anew(self, since: int, until: int) -> bool:
        """Return whether a process began between two places: a restarted one may have the same pid and threads."""
        after = bisect_right(self.bootstraps, since)
        return after < len(self.bootstraps) and self.bootstraps[after] < until

    def note(self, place: int, printed: Origin | Late, said: Stated, last: int = 0, count: int = 1) -> None:
        """Count a statement, made once or, the last time at ``last``, several times."""
        wording, parsed = said
        level, message, location = wording
        key: object = wording
        note = self.notes.get(key)
        if note is None and (len(message) > LONG or len(self.notes) >= MAX_NOTES):
            production = parsed.production.name if parsed else None
            key = self._key(key, level, production, len(message))
            note = self.notes.get(key)
        if note is not None:
            note.count += count
            if (last or place) > note.last:
                note.last = last or place
            if not self.process.host:
                note.add_place(place, parsed)
        else:
            if printed.location != location:  # another one stands for it
                printed = printed.origin._replace(location=location)
            event = parsed.event if parsed else None
            self.notes[key] = Note(event, printed, level, message, place, last or place, count)

    def _key(self, key: object, level: str, production: str | None, size: int) -> object:
        """Return the key of a note: its own, or that of all of its kind when there are too many."""
        if key in self.notes:
            return key
        self.long_notes += size > LONG
        if len(self.notes) >= MAX_NOTES or (size > LONG and self.long_notes > MAX_LONG):
            return level, production or "unrecognised"
        return key

    def merge(self, later: ProcessLog, move: _Move) -> None:
        """Take in what the same process printed later; ``move`` gives the place that a later place has here."""
        if not self.first:
            self.first, self.opening = move(later.first), later.opening
        self.last, self.closing = move(later.last), later.closing
        self.bootstraps.extend(map(move, later.bootstraps))
        for tally in later.calls.values():
            tally.first, tally.last = move(tally.first), move(tally.last)
        add_calls(self.calls, later.calls)
        joined = set()  # the later halves of bursts that continue across the border
        for tid, burst in later.begun.items():
            mine = self.open.get(tid)
            if burst and mine and mine.key == burst.key and not self.began_anew(mine.place, move(burst.place)):
                burst.move(move)
                mine.join(burst.edges)
                joined.add(id(burst))
        for step in later.steps:
            if isinstance(step, Step):
                place, printed, event = step
                self.steps.append(step_of((move(place), printed, event)))
            elif id(step) not in joined:
                step.move(move)
                self.steps.append(step)
        for tid, begun in later.begun.items():
            self.begun.setdefault(tid, begun)
            still_open = later.open.get(tid)
            if still_open is None:
                self.open.pop(tid, None)
            elif id(still_open) not in joined:
                self.open[tid] = still_open
        for key, note in later.notes.items():
            note.move(move)
            key = self._key(key, note.level, note.event.production if note.event else None, len(note.message))
            earlier = self.notes.setdefault(key, note)
            if earlier is not note:
                earlier.count += note.count
                earlier.last = max(earlier.last, note.last)
                for place in (note.place, *(note.places or ())) if not self.process.host else ():
                    earlier.add_place(place, note)


MAX_WORDINGS = 1 << 15  # different statements of a log, on top of those that belong to its processes
OF_PROCESS = 128  # statements of each process that are its own: addresses, bus ids, durations
_SIZE = 4096  # bytes of a message that count like a further statement


class Wordings:
    """Holds what was stated so far; of more than can be kept, one statement stands for all of its production."""

    def __init__(self) -> None:
        self._kept: set[Wording] = set()
        self._of_kind: dict[tuple[str, str], Stated] = {}  # what stands for others, by level and production
        self._size = 0
        self._most = 0  # the most by which statements were ahead of the processes that had begun

    def keep_one(self, wording: Wording, parsed: Parsed | None, processes: int) -> Stated:
        """Return the statement to be kept for one: itself, or the one that stands for it."""
        if wording in self._kept:
            return wording, parsed
        size = self._size + _size(wording)
        ahead = size - OF_PROCESS * processes
        if ahead > MAX_WORDINGS:
            kind = wording[0], parsed.production.name if parsed else "unrecognised"
            return self._of_kind.setdefault(kind, (wording, parsed))
        self._kept.add(wording)
        self._size, self._most = size, max(self._most, ahead)
        return wording, parsed

    def has_room(self, later: Wordings, processes: int, common: int) -> bool:
        """Return whether all of what was stated later is kept here, too, wherever the border between both lies."""
        ahead = self._size - OF_PROCESS * (processes - common)
        return not self._of_kind and not later._of_kind and ahead + later._most <= MAX_WORDINGS

    def merge(self, later: Wordings, processes: int) -> None:
        """Take in what was stated later."""
        self._size += sum(map(_size, later._kept - self._kept))
        self._kept |= later._kept
        self._most = max(self._most, self._size - OF_PROCESS * processes)
        for kind, statement in later._of_kind.items():
            self._of_kind.setdefault(kind, statement)


def _size(wording: Wording) -> int:
    return 1 + len(wording[1]) // _SIZE


MAX_PROCESSES = 1 << 17  # processes that are kept apart: more than the largest runs have
_CROWDED = f"lines of more than {MAX_PROCESSES:,} processes: those of others were left out; give the logs of one job"
MAX_BENCHMARKS = 20_000
"""Lines with results that are kept of a source: more than sweeps have; profilers print them for days."""
NEAR_END = 1 << 14  # bytes at the end of a source of which each line is looked at
MAX_RAISED = 200  # exceptions of a source that are kept: programs may print any number of those that they catch
_Numbered: TypeAlias = tuple[int, bytes]


class Raised(NamedTuple):
    """An exception whose rank only the envelope around it may name."""

    number: int  # of the line
    text: bytes
    rank: int | None  # what the envelope states: a task of srun, a rank of MPI


class SourceCounts(Record):
    """A source by name, with how sound it was."""

    name: str
    counts: Counts = field(default_factory=Counts)
    bytes: int = 0
    problem: str | None = None  # why it could not be read, or not to its end
    stands: list[int] = field(default_factory=list)
    """Where each line stands, if lines are numbered in another order than that of the source."""
    newest_first: bool = False  # whether it was read from its end
    crowded: bool = False  # whether it has lines of more processes than are kept: those were left out
    spared: list[_Numbered] = field(default_factory=list)
    """The first lines of which a collector says that others like them were left out, with their numbers."""
    elided: bool = False
    """Whether one of its lines says that others were left out, in a text that is short enough to be a paste."""
    decorated: bool = False
    """Whether one of the lines of such a text ends as people and their tools end lines, and programs do not."""
    is_cut: bool = False  # whether its lines end at one column, where they were cut
    raised: deque[Raised] = field(default_factory=lambda: deque(maxlen=MAX_RAISED))
    """The last exceptions of unknown ranks, with their line numbers."""

    benchmarks: list[_Numbered] = field(default_factory=list)
    """Lines that may be results of benchmarks or speeds of training steps, with their numbers."""
    at_end: list[_Numbered] = field(default_factory=list)
    """The lines near its end, until the source is read to its end: then those that may be results or speeds."""
    may_go_on: bool = False  # whether a table may continue in the next lines
    until: int = 0  # the last line that counts, where others follow that are of another job

    @property
    def end(self) -> int:
        """Return the number of its last line."""
        return self.until or self.counts.lines

    def line(self, number: int) -> int:
        """Return the line of the source that has a number."""
        return self.stands[number - 1] if self.stands else number

    def merge(self, later: SourceCounts) -> None:
        """Take in the counts of the lines that follow in the same source."""
        self.bytes += later.bytes
        self.problem = self.problem or later.problem
        self.stands.extend(later.stands)
        for flag in ("newest_first", "crowded", "elided", "decorated", "is_cut"):
            setattr(self, flag, getattr(self, flag) or getattr(later, flag))
        before = self.counts.lines
        self.counts.merge(later.counts)
        self.raised.extend(exception._replace(number=exception.number + before) for exception in later.raised)
        self.spared.extend((number + before, text) for number, text in later.spared)
        del self.spared[found.MAX_EXAMPLES :]
        self.benchmarks.extend((number + before, text) for number, text in later.benchmarks)
        del self.benchmarks[MAX_BENCHMARKS:]
        self.end_with([(number + before, text) for number, text in later.at_end], is_all=later.bytes >= NEAR_END)
        self.may_go_on = later.may_go_on

    def end_with(self, lines: list[_Numbered], *, is_all: bool) -> None:
        """Take in the lines near the end of what follows: all there are, or what it adds to those before it."""
        self.at_end = lines if is_all else self.at_end + lines
        while sum(len(text) + 1 for _, text in self.at_end) > 2 * NEAR_END:
            del self.at_end[: len(self.at_end) // 2 or 1]  # the last line alone may be longer

    def results(self) -> list[_Numbered]:
        """Return the lines that may be results or speeds, in order, each once."""
        return sorted({**dict(self.at_end), **dict(self.benchmarks)}.items())

    def info(self) -> SourceInfo:
        """Return what a job says of it."""
        counts = self.counts
        return SourceInfo(
            name=self.name,
            bytes=self.bytes,
            repaired_lines=counts.repaired_lines + counts.split_lines,
            **pick_fields(counts, "lines", "nccl_lines", "typed_lines", "unrecognised_lines"),
            **pick_fields(counts, "damaged_lines", "related_lines"),
            newest_first=self.newest_first,
            problem=self.problem or (f"{self.name}: {_CROWDED}" if self.crowded else None),
        )


MAX_RANKS = 1 << 20  # ranks of the largest communicator believed: sixteen times the largest runs made public
MAX_CHANNELS = 4096  # MAXCHANNELS is 32 until 2.18 and 64 after; plugins and later releases may have more


def _is_plausible(event: Event) -> bool:
    """Return whether the ranks and channels of an event can be real, where its kind has some."""
    match event:
        case ChannelConnect():
            ranks: Sequence[int] = (event.src, event.dst or 0, event.pxn_rank or 0, event.nic_index or 0)
            channels: Sequence[int] = (event.channel,)
        case events.RingOrder():
            ranks, channels = event.ranks, (event.channel,)
        case events.TreeLinks(trees=trees):
            ranks, channels = [rank + 1 for tree in trees for rank in tree[1:]], [tree[0] for tree in trees]
        case events.CommInit():
            return 0 <= event.rank < event.nranks <= MAX_RANKS
        case _:
            return True
    return all(
        not numbers or (min(numbers) >= 0 and max(numbers) < most)
        for numbers, most in ((ranks, MAX_RANKS), (channels, MAX_CHANNELS))
    )


OF_COMMUNICATORS = (
    *(events.CommInit, events.CommSplit, events.CommNoColor),
    *(events.NetworkInUse, events.CommShape, events.CommEnd),
)
"""Events that say which communicator a thread is busy with, or that name one."""
_SEQUENCE = (*OF_COMMUNICATORS, events.ChannelCounts, events.RingOrder, events.TreeLinks, events.Connected)
"""Events whose order matters: these, and what is said of such a communicator."""

NOTHING, REFUSED, UNKNOWN, CONNECTS, STEP, NOTE, BOOTSTRAP, CALL, LOOSE = range(1, 10)  # what is done with a text
SAID = (NOTE, BOOTSTRAP)
COUNTABLE = (NOTHING, UNKNOWN, NOTE)


def find_use(text: Text) -> int:
    """Return what is done with a text; remembered with it."""
    parsed = text.parsed
    use = _usually(parsed.production, parsed.kind.__name__, text.level) if parsed else UNKNOWN
    if parsed and use in (CONNECTS, STEP) and not _is_plausible(parsed.event):
        use = REFUSED
    text.use = use
    return use


@cache
def _usually(production: Production, event: str, level: str) -> int:
    """Return what is done with messages of a production, whatever they say."""
    kind = events.KINDS[event]
    if kind is ChannelConnect:
        return CONNECTS
    if kind in _SEQUENCE:
        return STEP
    if kind is events.BootstrapInterface:
        return BOOTSTRAP
    if production.constants.get("tone") == "loose":
        return LOOSE
    if kind.kept or level in STATEMENTS:
        return NOTE
    return CALL if kind is events.Collective else NOTHING


class Fold:
    """Holds what was read so far: it takes in what lines say, merges with others, and is then resolved.

    Where it continues another fold, it begins with what the lines there show about how these are to be read.
    """

    alongside = 0  # of the share of a job, see :class:`~nccl_inspect.model.job.Job`
    own: dict[int, SourceCounts] | None = None
    """Of the share of a job the sources that have lines of it, by their numbers; None where all are."""
    repeated: Mapping[Process, list[Step | Burst]] = MappingProxyType({})
    """Of the share of a job lines that were left out because they had been collected before."""

    def __init__(self, begun_with: Known = found.NOTHING_KNOWN, most_processes: int = MAX_PROCESSES) -> None:
        self._most_processes = most_processes
        self.sources: list[SourceCounts] = []
        self.processes: dict[Process, ProcessLog] = {}  # what each process printed
        self.unrecognised: dict[bytes, Note] = {}
        self.partial = False  # whether the reading was interrupted
        self.restored = 0  # lines that only the reading of excerpts knows
        self.productions: set[tuple[str, str]] = set()  # the productions that recognised a line, by dialect and name
        self.begun_with = self.known = begun_with  # what its lines show about how others are to be read
        self._wordings = Wordings()
        self.takes_leads = False  # whether it has lines from which what unknown launchers put in front is taken

    def start(self, name: str, newest_first: bool = False) -> SourceCounts:
        """Begin a source; what is taken in from here on belongs to it."""
        self.sources.append(SourceCounts(name, newest_first=newest_first))
        return self.sources[-1]

    def take(self, block: Found) -> None:
        """Take in lines of the source begun last; those of a process are in their order."""
        base = position(len(self.sources) - 1, 0)
        for process, lines in block.by_process.items():
            rows, (last, closing) = lines.rows, lines.last
            if not process.host:  # what nobody printed comes out of order where torn lines were put together
                rows = sorted(rows, key=itemgetter(0))
                last, closing = rows[-1][:2]
            first, opening, *_ = rows[0]
            log = self.processes.get(process) or self._log(base | first, opening)
            for number, printed, text, run in rows:
                use: int = text.use or find_use(text)
                if use == NOTHING:
                    continue
                if use == STEP:
                    assert text.parsed is not None
                    log.step(base | number, printed, text.parsed.event)
                elif use == CONNECTS:
                    edges = run or {found.key_of(text.message): found.edge_of(number, printed, text)}
                    for edge in edges.values() if base else ():
                        edge.place |= base
                    log.burst(base | number, printed, next(iter(edges.values())).event).join(edges)
                else:
                    self._keep(log, base | number, printed, text)
            log.first = min(log.first, base | first)
            if base | last > log.last:
                log.last, log.closing = base | last, closing
        for number, printed, text in block.unknown:
            self._unknown(base | number, printed, text)

    def _keep(self, log: ProcessLog, place: int, printed: Origin | Late, text: Text) -> None:
        """Take in a line that matters, and whose order does not."""
        how = text.use
        if how in SAID or (how == UNKNOWN and text.level in STATEMENTS):
            self._note(log, place, printed, text)
            if how == BOOTSTRAP:
                insort(log.bootstraps, place)
        elif how == LOOSE:
            assert text.parsed is not None
            message, (source, line) = text.parsed.message, source_and_line(place)
            rank = envelopes.rank_of(text.message, message)
            self.sources[source].raised.append(Raised(line, message[: found.TAIL_WIDTH], rank))
        elif how == REFUSED:
            counts = self.sources[source_and_line(place)[0]].counts  # a line with impossible numbers is damaged
            counts.typed_lines -= 1
            counts.damaged_lines += 1
        elif how == CALL:
            call = text.parsed.event if text.parsed else None
            assert isinstance(call, events.Collective)
            root = call.root if call.func in ROOTED else None
            key = CallKey(call.comm, call.func, call.datatype, call.nranks, root, call.count.bit_length())
            add_calls(log.calls, {key: Tally(1, call.count, call.count, call.count, place, place)})

    def _note(
        self, log: ProcessLog, place: int, printed: Origin | Late, text: Text, last: int = 0, count: int = 1
    ) -> None:
        wording = text.level, text.message, printed.location
        said = self._wordings.keep_one(wording, text.parsed, len(self.processes))
        log.note(place, printed, said, last, count)

    def _log(self, place: int, printed: Origin | Late) -> ProcessLog:
        log = self.processes.get(printed.process)
        if log is None:
            log = ProcessLog(printed.process)
            source = self.sources[source_and_line(place)[0]]
            source.crowded |= len(self.processes) >= self._most_processes
            if not source.crowded:
                self.processes[printed.process] = log
        if not log.first:
            log.first, log.opening = place, printed.origin
        return log

    def is_countable(self, text: Text) -> bool:
        """Return whether of such lines only the number, the first and the last one matter."""
        return (text.use or find_use(text)) in COUNTABLE

    def connects(self, text: Text) -> bool:
        """Return whether a text is that of a connection."""
        return (text.use or find_use(text)) == CONNECTS

    def take_repeated(self, repeated_lines: Sequence[Repeated]) -> None:
        """Take in countable lines of the source begun last, in the order of their first ones."""
        base = position(len(self.sources) - 1, 0)
        for repeated in repeated_lines:
            place, end = base | repeated.first, base | repeated.last
            log = self._log(place, repeated.origin)
            if end > log.last:
                log.last, log.closing = end, repeated.origin
            how = repeated.text.use
            if how == UNKNOWN:
                self._unknown(place, repeated.origin, repeated.text, repeated.number)
            if how == NOTE or repeated.text.level in STATEMENTS:
                self._note(log, place, repeated.origin, repeated.text, end, repeated.number)

    def _unknown(self, place: int, printed: Origin | Late, text: Text, count: int = 1) -> None:
        if note := self.unrecognised.get(text.message):
            note.count += count
        elif len(self.unrecognised) < (MAX_NOTES if len(text.message) <= LONG else MAX_LONG):
            self.unrecognised[text.message] = Note(None, printed, text.level, text.message, place, place, count)

    @property
    def sources_by_number(self) -> dict[int, SourceCounts]:
        """Return the sources by their numbers, which places name."""
        return dict(enumerate(self.sources)) if self.own is None else self.own

    def where(self, place: int) -> tuple[str, int, int]:
        """Return the name of a source, the number of a line in it, and that in the order of reading."""
        source, number = source_and_line(place)
        return self.sources[source].name, self.sources[source].line(number), number

    def extent(self) -> tuple[int, int, int]:
        """Return how much there is to resolve: steps, connection lines still in progress, statements.

        It changed when something came that a job is made of; a repeated statement changes nothing.
        """
        logs = self.processes.values()
        open_edges = sum(burst.lines for log in logs for burst in log.open.values())
        return sum(len(log.steps) for log in logs), open_edges, sum(len(log.notes) for log in logs)

    def last_step(self) -> Step | Burst | None:
        """Return what came last of that whose order matters."""
        last = (log.steps[-1] for log in self.processes.values() if log.steps)
        return max(last, key=lambda step: step.place, default=None)

    def can_merge(self, later: Fold) -> bool:
        """Return whether merging gives exactly what reading on would have given.

        It may not if a line continues across the border, if the later one did not know of envelopes or of what
        launchers put in front of lines, or if too much was logged to keep it apart.
        """
        goes_on = bool(self.sources and later.sources) and self.sources[-1].name == later.sources[0].name
        if goes_on and (self.sources[-1].counts.goes_on or self.sources[-1].problem):
            return False
        logs = later.processes.values()
        if any(log.long_notes for log in logs) or len(self.processes) + len(logs) > self._most_processes:
            return False
        common = sum(process in self.processes for process in later.processes)
        if not self._wordings.has_room(later._wordings, len(self.processes), common):
            return False
        unknown = len(self.unrecognised) + len(later.unrecognised)
        if unknown > MAX_LONG and any(len(message) > LONG for message in later.unrecognised):
            return False
        notes = max((len(log.notes) for log in logs), default=0)
        known, begun_with = self.known, later.begun_with  # as far as it matters for its lines
        knows_leads = known.leads <= begun_with.leads or not later.takes_leads
        is_expected = known.wrapped == begun_with.wrapped and knows_leads
        return is_expected and max(notes, len(later.unrecognised)) < MAX_NOTES

    def merge(self, later: Fold) -> None:
        """Take in a fold of what follows: the rest of the last source, if it begins with its name, then others."""
        goes_on = bool(self.sources and later.sources) and self.sources[-1].name == later.sources[0].name
        sources_before = len(self.sources) - goes_on
        lines_before = self.sources[-1].counts.lines if goes_on else 0
        others = position(sources_before, 0)
        first = others + lines_before

        def move(place: int) -> int:
            """Return the place here of a place there: only its first source continues one."""
            return place + (others if source_and_line(place)[0] else first)

        for process, log in later.processes.items():
            mine = self.processes.get(process) or self.processes.setdefault(process, ProcessLog(process))
            mine.merge(log, move)
        self._wordings.merge(later._wordings, len(self.processes))
        for message, note in later.unrecognised.items():
            note.move(move)
            if earlier := self.unrecognised.get(message):
                earlier.count += note.count
            elif len(self.unrecognised) < MAX_NOTES:
                self.unrecognised[message] = note
        self.known = Known(self.known.wrapped or later.known.wrapped, self.known.leads | later.known.leads)
        self.takes_leads |= later.takes_leads
        self.productions |= later.productions
        self.partial |= later.partial
        if goes_on:
            self.sources[-1].merge(later.sources[0])
        self.sources.extend(later.sources[goes_on:])
