"""Reads sources into a fold: a scanner finds the messages in their lines, the fold takes in what these say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice, pairwise
from operator import itemgetter
from types import MappingProxyType
from typing import TypeAlias

from nccl_inspect.bandwidth.lines import NEAR, may_continue, select_lines
from nccl_inspect.errors import NoInputError
from nccl_inspect.event import types as events
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.decoration import PASTE, find_sampled_lines, is_decorated, is_elided
from nccl_inspect.ingest.sources import log_detection
from nccl_inspect.ingest.sources.blocks import Lines, Source
from nccl_inspect.model.fold import MAX_BENCHMARKS, NEAR_END, Fold, ProcessLog, SourceCounts, source_and_line
from nccl_inspect.model.statements.unrecognised import has_communicator
from nccl_inspect.scanning.bulk import BulkScanner
from nccl_inspect.scanning.found import MAX_EXAMPLES, TAIL_WIDTH, Found
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.memory import keep_reserve
from nccl_inspect.util.times import are_in_order, moment

Piece: TypeAlias = Source | Lines | NoInputError | Fold
"""A source, then its lines, then the error that ended it if there was one; or a fold of the lines of some sources."""


class Reader:
    """Reads sources, one after the other.

    Args:
        fold: takes in what they say; a new one where none is given.
        widths: the length of cut lines, by the names of the sources that have such.
    """

    def __init__(self, fold: Fold | None = None, widths: Mapping[str, int] = MappingProxyType({})) -> None:
        self.fold = fold or Fold()  # what was read so far
        self._scanner = BulkScanner(engine.load_grammar(), self.fold.is_countable, self.fold.connects)
        self._scanner.know(self.fold.known)
        self._widths = widths

    @keep_reserve
    def add(self, piece: Piece) -> None:
        """Take in a source, some of its lines, the error that ended it, or a fold of what follows."""
        if isinstance(piece, Lines):
            self.feed(piece)
        elif isinstance(piece, Source):
            self._scanner.cut_width = self._widths.get(piece.name)
            self.fold.start(piece.name, piece.newest_first).is_cut = self._scanner.cut_width is not None
        elif isinstance(piece, Fold):
            self.fold.merge(piece)
            self._scanner.know(piece.known)
        else:
            self.fold.sources[-1].problem = str(piece)

    def feed(self, lines: Iterable[bytes]) -> None:
        """Read whole lines of the source begun last."""
        if not isinstance(lines, Lines):
            lines = list(lines)
            lines = Lines(lines, sum(map(len, lines)) + len(lines))
        source = self.fold.sources[-1]
        before = source.counts.lines
        if lines or lines.mended:
            found = self._scanner.read(lines, source.counts)
            if isinstance(found, Found):
                self.fold.take(found)
            else:
                self.fold.take_repeated(found)
            self.fold.productions.update(production.key for production in self._scanner.productions)
            self.fold.known, self.fold.takes_leads = self._scanner.memory, self._scanner.takes_leads
            # What a collector says of lines that it left out, also above the first line that shows the collector.
            for index, line in islice(find_sampled_lines(lines.text), MAX_EXAMPLES - len(source.spared)):
                source.spared.append((_number(lines, index, before), line[:TAIL_WIDTH]))
        account(source, lines, before)


def account(source: SourceCounts, lines: Lines, before: int) -> None:
    """Count the bytes of the next lines of a source, and keep what is known of these as a whole."""
    if lines:
        is_begin = source.bytes <= PASTE or source.may_go_on
        found = islice(select_lines(lines.text, is_begin), MAX_BENCHMARKS - len(source.benchmarks))
        source.benchmarks += [(_number(lines, index, before), line) for index, line in found]
        source.may_go_on = may_continue(lines.text)
        if not is_begin or len(lines.text) > NEAR:  # what is in the middle is not looked at as a whole
            begin = lines.text.rfind(b"\n", 0, -NEAR_END) + 1 if len(lines.text) > NEAR_END else 0
            ends = lines.text[begin:].split(b"\n")
            numbered = [(_number(lines, at, before), line) for at, line in enumerate(ends, len(lines) - len(ends))]
            source.end_with(numbered, is_all=begin > 0)
    source.bytes += lines.size
    if lines.mended and lines.mended.stands is not None:
        source.stands.extend(lines.mended.stands)
    if source.bytes <= PASTE:
        source.elided = source.elided or is_elided(lines.text)
        source.decorated = source.decorated or is_decorated(lines.text)


def _number(lines: Lines, index: int, before: int) -> int:
    return lines.mended.numbers[index] if lines.mended else before + index + 1


def may_be_excerpt(fold: Fold) -> bool:
    """Return whether there may be lines in it that only the reading of excerpts knows."""
    counts = [source.counts for source in fold.sources]
    if sum(source.bytes for source in fold.sources) > PASTE or has_communicator(fold):
        return False
    if any(log_detection.is_program(source.name) for source in fold.sources):
        return False
    if any(source.decorated for source in fold.sources):
        return True
    return any(counted.lines > counted.typed_lines + counted.related_lines for counted in counts)


def read_excerpts(pieces: Iterable[Piece]) -> Fold:
    """Return the fold of short texts."""
    from nccl_inspect.scanning.excerpts import Excerpt  # whole logs never need it

    reader = Reader()
    fold, kept = reader.fold, list[Lines]()
    for piece in chain(pieces, [None]):
        if isinstance(piece, Lines) and piece.mended is None:
            kept.append(piece)
            continue
        if kept:  # the lines of a source, which are all there now
            source, block, excerpt = fold.sources[-1], Found(), Excerpt(engine.load_grammar())
            excerpt.scan([line for lines in kept for line in lines.lines], source.counts, block.keep)
            before = 0
            for lines in kept:
                account(source, lines, before)
                before += len(lines)
            fold.restored += excerpt.read
            fold.productions.update(production.key for production in excerpt.productions)
            fold.take(block)
            kept.clear()
        if piece is not None:
            reader.add(piece)
    return fold


_MAX_PROCESSES = 64
_MAX_MARKS = 200  # lines of a process that are looked at
_FEW, _ENOUGH = 3, 10  # lines older than the one before: this many if none is newer, or this many for each one that is
_MIN_STEPS = 2


def find_turned(fold: Fold) -> set[str]:
    """Return the sources whose newest line comes first, as log explorers export them: they are read from their end.

    What a process printed has descending times there; where lines have none, it says over which interface it bootstraps
    after it has begun communicators. A few lines out of order, clocks that differ between hosts and containers that
    were restarted processes prove nothing.
    """
    logs = fold.processes.values()
    sources = ((source_and_line(log.first)[0], source_and_line(log.last)[0], log) for log in logs)
    by_source = group_values((first, log) for first, last, log in sources if first == last)
    return {fold.sources[source].name for source, logs in by_source.items() if _is_backwards(logs)}


def _is_backwards(logs: list[ProcessLog]) -> bool:
    counts = [_count_steps(log) for log in islice(logs, _MAX_PROCESSES)]
    telling = [(newer, older) for newer, older in counts if newer + older > 1]  # one may lead from one run to another
    newer, older = sum(newer for newer, _ in telling), sum(older for _, older in telling)
    is_older = older >= _FEW + _ENOUGH * newer
    if not is_older and newer >= older + _FEW:
        return False
    # What NCCL says in one order only: over its interface a process bootstraps before all else.
    named = [
        (log, log.bootstraps[0], [step.place for step in log.steps]) for log in logs if log.bootstraps and log.steps
    ]
    if is_older:  # what stands around lines may have the times of several clocks
        return not any(first < min(places) for _, first, places in named) or any(
            first > max(places) for _, first, places in named
        )
    named = [entry for entry in named if len(entry[2]) >= _MIN_STEPS]
    if not named or any(first <= max(places) for _, first, places in named):
        return False
    for log, _, _ in named:  # none begins a communicator and then completes it
        begun: set[str] = set()
        for event in (step.event for step in log.steps if isinstance(step.event, events.CommInit)):
            if event.phase == "START":
                begun.add(event.comm)
            elif event.comm in begun:
                return False
    return True


def _count_steps(log: ProcessLog) -> tuple[int, int]:
    """Return how often the next line is newer, and how often older, by times of one clock."""
    if not (log.opening.time or log.closing.time):
        return 0, 0
    ends = [(log.first, log.opening.time), (log.last, log.closing.time)]
    marks = chain(ends, ((entry.place, entry.printed.time) for entry in (*log.steps, *log.notes.values())))
    times = [moment(time) for _, time in sorted(islice(marks, _MAX_MARKS), key=itemgetter(0)) if time]
    steps = [
        after.seconds - before.seconds
        for before, after in pairwise(times)
        if before and after and are_in_order(before, after)
    ]
    return sum(step > 0 for step in steps), sum(step < 0 for step in steps)
