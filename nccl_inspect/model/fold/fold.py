"""Gathers what the events state, process by process, in a form that merges: ``fold(a + b) == merge(fold(a), fold(b))``.

Nothing is concluded here; :mod:`nccl_inspect.model.communicators.members` and its followers do that once the whole log
is in. What repeats is counted instead of kept, so memory grows with the number of ranks and channels, not with the log.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect, Event
from nccl_inspect.grammar.production import Production
from nccl_inspect.ingest import envelopes
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Late
from nccl_inspect.model.fold.process_log import (
    LONG,
    MAX_LONG,
    MAX_NOTES,
    MAX_PROCESSES,
    Burst,
    Note,
    ProcessLog,
    Raised,
    SourceCounts,
    Step,
    Wordings,
    count_call,
    edge_key,
    position,
    source_and_line,
)
from nccl_inspect.scanning.counts import TAIL_WIDTH, Text
from nccl_inspect.scanning.found import NOTHING_KNOWN, Edge, Found, Known, Repeated, Run, edge_of
from nccl_inspect.util.levels import STATEMENTS

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

NOTHING, REFUSED, UNKNOWN, CONNECTS, STEP, NOTE, BOOTSTRAP, CALL, LOOSE = range(9)
SAID = (NOTE, BOOTSTRAP)
COUNTABLE = (NOTHING, UNKNOWN, NOTE)


class Use(NamedTuple):
    """Holds what is done with a text, found out once."""

    how: int
    edge: tuple[object, ...] = ()


def find_use(text: Text) -> Use:
    """Return what is done with a text; remembered with it."""
    parsed = text.parsed
    if parsed is None:
        use = _UNKNOWN
    elif not _is_plausible(parsed.event):
        use = _REFUSED
    elif isinstance(parsed.event, ChannelConnect):
        use = Use(CONNECTS, edge_key(parsed.event))
    else:
        use = _usually(parsed.production, parsed.kind.__name__, text.level)
    text.use = use
    return use


_UNKNOWN, _REFUSED = Use(UNKNOWN), Use(REFUSED)


@cache
def _usually(production: Production, event: str, level: str) -> Use:
    """Return what is done with messages of a production, whatever they say."""
    kind = events.KINDS[event]
    if kind in SEQUENCE:
        return Use(STEP)
    if kind is events.BootstrapInterface:
        return Use(BOOTSTRAP)
    if production.constants.get("tone") == "loose":
        return Use(LOOSE)
    if kind.kept or level in STATEMENTS:
        return Use(NOTE)
    return Use(CALL if kind is events.Collective else NOTHING)


class Fold:
    """Holds what was read so far: it takes in what lines say, merges with others, and is then resolved.

    Args:
        begun_with: what the lines before show about how these are to be read, where it continues another fold.
    """

    alongside = 0  # of the share of a job, see :class:`~nccl_inspect.model.job.Job`
    own: dict[int, SourceCounts] | None = None
    """Of the share of a job the sources that have lines of it, by their numbers; None where all are."""
    repeated: Mapping[Process, list[Step | Burst]] = MappingProxyType({})
    """Of the share of a job lines that were left out because they had been collected before."""

    def __init__(self, begun_with: Known = NOTHING_KNOWN, most_processes: int = MAX_PROCESSES) -> None:
        self._most_processes = most_processes
        self.sources: list[SourceCounts] = []
        self.processes: dict[Process, ProcessLog] = {}  # what each process printed
        self.unrecognised: dict[bytes, Note] = {}
        self.partial = False  # whether the reading was interrupted
        self.restored = 0  # lines that only the reading of excerpts knows
        self.productions: set[tuple[str, str]] = set()  # the productions that recognised a line, by dialect and name
        self.begun_with = self.known = begun_with  # what its lines show about how others are to be read
        self._wordings = Wordings()
        self._channels: dict[int, int] = {}
        """The channels of edges: the same object for all that have the same, as most of thousands have."""
        self.takes_leads = False  # whether it has lines from which what unknown launchers put in front is taken

    @property
    def has_envelope(self) -> bool:
        """Return whether a line was in an envelope."""
        return self.known.wrapped

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
                use: Use = text.use or find_use(text)
                if use.how == NOTHING:
                    continue
                if use.how == STEP:
                    assert text.parsed is not None
                    log.step(base | number, printed, text.parsed.event)
                elif run is not None or use.how == CONNECTS:
                    self._connect(log, run or [(text, edge_of(number, printed, text))], base)
                else:
                    self._keep(log, base | number, printed, text)
            log.first = min(log.first, base | first)
            if base | last > log.last:
                log.last, log.closing = base | last, closing
        for number, printed, text in block.unknown:
            self._unknown(base | number, printed, text)

    def _connect(self, log: ProcessLog, run: Run, base: int) -> None:
        """Take in connection lines of one thread for one communicator; those that cannot be true are damaged."""
        edges: dict[tuple[object, ...], Edge] | None = None
        for text, edge in run:
            how, key = text.use or find_use(text)
            edge.place |= base
            if how == REFUSED:
                self._refuse(edge.place, edge.lines)
                continue
            if edges is None:
                edges = log.burst(edge.place, edge.printed, edge.event).edges
            own = edges.setdefault(key, edge)
            if own is not edge:
                own.add(edge)
            else:
                edge.channels = self._channels.setdefault(edge.channels, edge.channels)

    def _keep(self, log: ProcessLog, place: int, printed: Origin | Late, text: Text) -> None:
        """Take in a line that matters, and whose order does not."""
        how = text.use.how
        if how in SAID or (how == UNKNOWN and text.level in STATEMENTS):
            self._note(log, place, printed, text)
            if how == BOOTSTRAP:
                insort(log.bootstraps, place)
        elif how == LOOSE:
            assert text.parsed is not None
            message, (source, line) = text.parsed.message, source_and_line(place)
            rank = envelopes.rank_of(text.message, message)
            self.sources[source].raised.append(Raised(line, message[:TAIL_WIDTH], rank))
        elif how == REFUSED:
            self._refuse(place)
        elif how == CALL:
            assert text.parsed is not None and isinstance(text.parsed.event, events.Collective)
            count_call(log.calls, place, text.parsed.event)

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
        return (text.use or find_use(text)).how in COUNTABLE

    def take_repeated(self, repeated_lines: Sequence[Repeated]) -> None:
        """Take in countable lines of the source begun last, in the order of their first ones."""
        base = position(len(self.sources) - 1, 0)
        for repeated in repeated_lines:
            place, end = base | repeated.first, base | repeated.last
            log = self._log(place, repeated.origin)
            if end > log.last:
                log.last, log.closing = end, repeated.origin
            how = repeated.text.use.how
            if how == UNKNOWN:
                self._unknown(place, repeated.origin, repeated.text, repeated.number)
            if how == NOTE or repeated.text.level in STATEMENTS:
                self._note(log, place, repeated.origin, repeated.text, end, repeated.number)

    def _refuse(self, place: int, lines: int = 1) -> None:
        """Count lines with impossible numbers as damaged."""
        counts = self.sources[source_and_line(place)[0]].counts
        counts.typed_lines -= lines
        counts.damaged_lines += lines

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
        """Take in a fold of what follows: the next lines of the same source first, then further sources.

        Args:
            later: a fold whose first source continues the last one here (the same name), or is a new one.
        """
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
        self.known = self.known.with_more(later.known)
        self.takes_leads |= later.takes_leads
        self.productions |= later.productions
        self.partial |= later.partial
        if goes_on:
            self.sources[-1].merge(later.sources[0])
        self.sources.extend(later.sources[goes_on:])
