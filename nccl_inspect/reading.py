"""From inputs to a judged job, and to a stream of events: what the command line and the Python API share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nccl_inspect import platforms, topology
from nccl_inspect.errors import NoInputError
from nccl_inspect.event_types import Event, Where
from nccl_inspect.grammar import engine
from nccl_inspect.grammar.scanner import Counts, Scanner, Text
from nccl_inspect.ingest import sources
from nccl_inspect.ingest.prefix import Origin
from nccl_inspect.ingest.sources import Input
from nccl_inspect.model import build
from nccl_inspect.model.fold import Fold
from nccl_inspect.model.job import Job
from nccl_inspect.records import Record
from nccl_inspect.rules import engine as rules
from nccl_inspect.rules.facts import Facts


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Options(Record):
    """How a job is judged."""

    platform: str | None = None
    """Machine type, when the log does not name it."""
    topologies: tuple[str, ...] = ()
    """Files that tell what joins the GPUs of a machine."""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()


def fold(inputs: Input | Sequence[Input], progress: Callable[[int], None] | None = None) -> Fold:
    """Read all inputs.

    Args:
        inputs: paths, ``-``, bytes or binary file objects.
        progress: told the number of bytes after each block.

    Raises:
        NoInputError: nothing could be read, or no line is NCCL's.
    """
    state = Fold(engine.shipped())
    for source in sources.find(inputs):
        state.start(source.name)
        for lines in sources.blocks(source):
            before = state.sources[-1].bytes
            state.feed(lines)
            if progress:
                progress(state.sources[-1].bytes - before)
    if not any(source.counts.nccl_lines or source.counts.related_lines for source in state.sources):
        raise NoInputError(_nothing_found(state), "run the job with NCCL_DEBUG=INFO and give what it prints")
    return state


def _nothing_found(state: Fold) -> str:
    names = [source.name for source in state.sources]
    where = names[0] if len(names) == 1 else f"{len(names)} inputs ({names[0]}, …)"
    lines = sum(source.counts.lines for source in state.sources)
    return f"{where}: empty" if lines == 0 else f"{where}: no NCCL line among {lines} lines"


class Judge:
    """Turns folds into judged jobs.

    Args:
        options: checked at once.

    Raises:
        NcclInspectError: an unknown rule or platform, or a topology file that cannot be understood.
    """

    def __init__(self, options: Options) -> None:
        self._rules = rules.selected(options.select, options.ignore)
        self._platform = platforms.named(options.platform) if options.platform else None
        self._topologies = [topology.read(path) for path in options.topologies]

    def __call__(self, state: Fold) -> Job:
        """The job of a fold, with findings and verdict."""
        job = build.resolve(state)
        rules.judge(Facts(job, self._platform, self._topologies), self._rules)
        return job


def events(inputs: Input | Sequence[Input]) -> Iterator[Event]:
    """The events of all inputs in the order of their lines, one for each recognised line."""
    scanner = Scanner(engine.shipped())
    for source in sources.find(inputs):
        yield from _joined(source.name, _lines(source, scanner))


def _lines(source: sources.Source, scanner: Scanner) -> Iterator[tuple[int, Origin, Text]]:
    counts = Counts()
    for lines in sources.blocks(source):
        found: list[tuple[int, Origin, Text]] = []

        def sink(number: int, origin: Origin, text: Text, found: list[tuple[int, Origin, Text]] = found) -> None:
            found.append((number, origin, text))

        scanner.scan(lines, counts, sink)
        yield from found


def _joined(source: str, found: Iterable[tuple[int, Origin, Text]]) -> Iterator[Event]:
    """The events; lines that go on with a message of several lines become part of its event."""
    before: Event | None = None
    for number, origin, text in found:
        if text.parsed is None:
            continue
        event = text.parsed.event
        if before is not None and text.parsed.production.follows == before.production:
            before = replace(before, message=f"{before.message}\n{event.message}")
            continue
        if before is not None:
            yield before
        before = replace(event, where=_where(source, number, origin, text.level))
    if before is not None:
        yield before


def _where(source: str, number: int, origin: Origin, level: str) -> Where:
    if not origin.head:
        return Where(source, number, level=level)
    host, pid = origin.process
    return Where(source, number, origin.time, host, pid, origin.tid, origin.device, level, origin.location)
