"""Groups NCCL lines that no production knows, so that a gap in the grammar can be reported in one paste."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines import prefix
from nccl_inspect.ingest.lines.decoration import PASTE
from nccl_inspect.model.fold import Fold, Note, ProcessLog, Step, source_and_line
from nccl_inspect.model.job import Setting
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.secrets import mask_secrets
from nccl_inspect.util.text import decode, encode

_VARIABLE = compile_later(r"0x[0-9a-f]+|(?<![A-Za-z_])\d+(?:\.\d+)*(?![A-Za-z_])|(?<=[:/ ])[0-9a-f]{6,}\b")
_CONNECTION = compile_later(
    rb"(?:Channel|Ring) \d+(?:/\d+)? : (?P<src>\d{1,9})\[(?:[^\s\[\]]{1,20}\] -> (?P<dst>\d{1,9})\[)?"
)
"""How connection lines begin; the order of a ring has lines of its own."""
_BEGINNING = (events.NcclVersion, events.CudaDriver, events.BootstrapInterface, events.NetworkInUse, events.NetDevices)
"""What ranks print before they complete a communicator, in every release."""
_MAX_TEMPLATES = 1000
_SMALL = 1 << 20  # bytes of a log of which all statements may be looked at
_CUT_SHAPES, _CUT_BEGINNINGS = 4, 2
"""Lines of this many shapes, or beginnings of messages, are not equally long, and longer than all others, by chance."""


def template(message: str) -> str:
    """Return a message with its numbers replaced, so that lines of one shape become equal."""
    return _VARIABLE.sub("{}", message)


def torn(fold: Fold) -> list[Note]:
    """Return the unrecognised lines that are pieces of torn ones.

    A source with lines that are provably run together is torn; a message that occurs once there and that no production
    knows is then most likely put together from two halves.
    """
    return [
        note
        for note in fold.unrecognised.values()
        if note.count == 1 and fold.sources_by_number[source_and_line(note.place)[0]].counts.damaged_lines
    ]


def cut_widths(fold: Fold) -> dict[str, int]:
    """Return the length of the lines of each source in which none is longer, because all were cut there."""
    grammar = engine.load_grammar()
    notes = list(fold.unrecognised.values())
    unknown = set(map(id, notes))
    if notes and sum(source.bytes for source in fold.sources) <= _SMALL:
        notes += [note for log in fold.processes.values() if log.process.host for note in log.notes.values()]
    by_source: dict[int, dict[int, list[Note]]] = {}
    for note in (note for note in notes if note.message):
        text = prefix.join_line(note.printed.origin.head, note.level, decode(note.message))
        by_length = by_source.setdefault(source_and_line(note.place)[0], {})
        by_length.setdefault(len(encode(text)), []).append(note)
    longest = {source: max(by_length) for source, by_length in by_source.items()}
    proved = {
        length
        for source, length in longest.items()
        for at in [by_source[source][length]]
        if len({template(decode(note.message)) for note in at}) >= _CUT_SHAPES
        or sum(
            any(production.is_cut(note.message) for production in grammar.beginnings(note.message))
            for note in at
            if id(note) in unknown
        )
        >= _CUT_BEGINNINGS
    }
    return {fold.sources[source].name: length for source, length in longest.items() if length in proved}


def connections(notes: Iterable[Note], is_shown: Callable[[Process, int, int | None], bool]) -> int:
    """Return how many lines are of a connection, but not of which: cut off, or of a release that the grammar lacks.

    Args:
        is_shown: whether whole lines show the path between two ranks that a process names; the second may be cut off.
    """
    found = ((note, match) for note in notes if (match := _CONNECTION.match(note.message)))
    return sum(
        note.count
        for note, match in found
        if not is_shown(note.printed.process, int(match["src"]), int(match["dst"]) if match["dst"] else None)
    )


def group_templates(notes: Iterable[Note]) -> list[tuple[str, int, Note]]:
    """Return templates with the number of their lines and the first one, the most frequent first."""
    groups: dict[str, tuple[int, Note]] = {}
    for note in notes:
        shape = template(mask_secrets(decode(note.message)))
        count, first = groups.get(shape, (0, note))
        groups[shape] = (count + note.count, first if first.place <= note.place else note)
    ordered = sorted(groups.items(), key=lambda group: (-group[1][0], group[0]))
    return [(shape, count, first) for shape, (count, first) in ordered[:_MAX_TEMPLATES]]


def has_communicator(fold: Fold) -> bool:
    """Return whether a rank says that it begins or completes a communicator."""
    return any(isinstance(event, events.CommInit) for event in _steps(fold.processes.values()))


def _steps(logs: Iterable[ProcessLog]) -> Iterator[events.Event]:
    """Return the events of all steps but connections."""
    return (step.event for log in logs for step in log.steps if isinstance(step, Step))


def is_excerpt(fold: Fold, settings: Iterable[Setting]) -> bool:
    """Return whether a fold is that of a part of a log.

    A log of older releases, or of a rank that ends early, may have no communicator: but then it has no connections, or
    shows by its settings which lines were not asked for.
    """
    if any(source.is_cut or (source.elided and source.bytes <= PASTE) for source in fold.sources_by_number.values()):
        return True
    if has_communicator(fold):  # complete, and nothing is there of what every rank prints before
        stated = (note.event for log in fold.processes.values() for note in log.notes.values())
        return not any(
            isinstance(event, _BEGINNING) or (isinstance(event, events.CommInit) and event.phase == "START")
            for event in chain(_steps(fold.processes.values()), stated)
        )
    filtered = any(setting.name == "NCCL_DEBUG_SUBSYS" for setting in settings)
    return fold.restored > 0 or (not filtered and any(log.steps or log.open for log in fold.processes.values()))
