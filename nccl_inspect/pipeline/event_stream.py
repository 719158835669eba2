"""The events of inputs as a stream, one for each recognised line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from nccl_inspect.errors import NoInputError
from nccl_inspect.event.base import PlacedEvent, hide_secrets
from nccl_inspect.event.types import Event, Where
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.sources import blocks
from nccl_inspect.ingest.sources.blocks import Input, Progress, Source
from nccl_inspect.pipeline.reading import nothing_found
from nccl_inspect.scanning.counts import Counts, Text
from nccl_inspect.scanning.scanner import Scanner


def events(inputs: Input | Sequence[Input]) -> Iterator[Event]:
    """Yield the events of all inputs in the order of their lines, one for each recognised line.

    Raises:
        NoInputError: after the last event, when an input could not be read, or not to its end.
    """
    stream = EventStream(inputs)
    yield from stream
    stream.raise_problem()


class EventStream:
    """The events of all inputs in the order of their lines; afterwards, what there was to read."""

    def __init__(self, inputs: Input | Sequence[Input], progress: Progress | None = None) -> None:
        self.problems: list[NoInputError] = []  # why inputs could not be read, or not to their end
        self.counts: dict[str, Counts] = {}  # how sound each source was
        self._inputs = inputs
        self._progress = progress

    def __iter__(self) -> Iterator[Event]:
        return (event.with_fields(where=where) for where, event in self.with_places())

    def with_places(self) -> Iterator[PlacedEvent]:
        """Yield the events as recognised, each with its place: equal lines share one event."""
        scanner = Scanner(engine.load_grammar())
        for source in blocks.find(self._inputs, self._progress):
            counts = self.counts[source.name] = Counts()
            yield from _join_rows(source.name, _lines(source, scanner, counts, self.problems))

    def raise_problem(self) -> None:
        """Say so when something could not be read.

        Raises:
            NoInputError: an input, or the rest of it.
        """
        if self.problems:
            raise self.problems[0]

    def require_nccl(self) -> None:
        """Make sure that there was something to read.

        Raises:
            NoInputError: no line was NCCL's.
        """
        if not any(counts.nccl_lines or counts.related_lines for counts in self.counts.values()):
            lines = {name: counts.lines for name, counts in self.counts.items()}
            raise nothing_found(lines, [str(problem) for problem in self.problems])


def _lines(
    source: Source, scanner: Scanner, counts: Counts, problems: list[NoInputError]
) -> Iterator[tuple[int, Origin, Text]]:
    """Yield what was recognised in a source; the error that ended it, if there was one, joins the problems."""
    stands: list[int] = []
    from nccl_inspect.scanning.excerpts import Short  # summaries of whole logs never need it

    short = Short()
    for lines in blocks.records_of(source):
        if isinstance(lines, NoInputError):
            problems.append(lines)
            return
        short.add(lines)
        if lines.mended and lines.mended.stands is not None:
            stands.extend(lines.mended.stands)
        rows: list[tuple[int, Origin, Text]] = []

        def sink(number: int, origin: Origin, text: Text, rows: list[tuple[int, Origin, Text]] = rows) -> None:
            rows.append((stands[number - 1] if stands else number, origin, text))

        scanner.scan(lines.lines, counts, sink, lines.mended)
        yield from rows
    yield from short.read(source.name, counts, engine.load_grammar())


def _join_rows(source: str, rows: Iterable[tuple[int, Origin, Text]]) -> Iterator[PlacedEvent]:
    """Yield the events; lines that continue a message of several lines become part of its event."""
    where, before = Where(), None
    for number, origin, text in rows:
        if text.parsed is None:
            continue
        event = text.use = text.use or hide_secrets(text.parsed.event)  # the same text comes many times
        if before is not None and text.parsed.production.follows == before.production:
            before = replace(before, message=f"{before.message}\n{event.message}")
            continue
        if before is not None:
            yield where, before
        where, before = Where(source, number, level=text.level), event
        if origin.head:
            said = (origin.time, origin.host, origin.pid, origin.tid, origin.device, text.level)
            where = Where(source, number, *said, origin.location, origin.label, origin.rank)
    if before is not None:
        yield where, before
