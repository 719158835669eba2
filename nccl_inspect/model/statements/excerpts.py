"""Distinguishes excerpts from whole logs, and reads them in their own way.

Most logs are read once. What is short, begins no communicator and has lines that nobody knows may be an excerpt: it is
read again as one (:mod:`nccl_inspect.scanning.excerpts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nccl_inspect.event import types as events
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.elisions import PASTE
from nccl_inspect.ingest.sources import log_detection
from nccl_inspect.ingest.sources.blocks import Lines
from nccl_inspect.model.fold.fold import Fold, Piece
from nccl_inspect.model.fold.process_log import Step
from nccl_inspect.model.job import Setting
from nccl_inspect.scanning.found import Found

if TYPE_CHECKING:
    from nccl_inspect.model.jobs.shares import Share


def may_be(fold: Fold) -> bool:
    """Whether there may be lines in it that only the reading of excerpts knows."""
    counts = [source.counts for source in fold.sources]
    if sum(source.bytes for source in fold.sources) > PASTE or has_communicator(fold):
        return False
    if any(log_detection.is_program(source.name) for source in fold.sources):
        return False
    return any(counted.lines > counted.typed_lines + counted.related_lines for counted in counts)


def has_communicator(fold: Fold | Share) -> bool:
    """Whether a rank says that it begins or completes a communicator."""
    return any(
        isinstance(step, Step) and isinstance(step.event, events.CommInit)
        for log in fold.processes.values()
        for step in log.steps
    )


def is_excerpt(fold: Fold | Share, settings: Iterable[Setting]) -> bool:
    """Whether a fold is that of a part of a log.

    A log of older releases, or of a rank that ends early, may have no communicator: but then it has no connections, or
    shows by its settings which lines were not asked for.

    Args:
        fold: of all sources.
        settings: of the job.
    """
    if any(source.elided and source.bytes <= PASTE for source in fold.sources):
        return True
    if has_communicator(fold):
        return _lacks_its_beginning(fold)
    filtered = any(setting.name == "NCCL_DEBUG_SUBSYS" for setting in settings)
    return fold.restored > 0 or (not filtered and any(log.steps or log.open for log in fold.processes.values()))


_BEGINNING = (events.NcclVersion, events.CudaDriver, events.BootstrapInterface, events.NetworkInUse, events.NetDevices)
"""What ranks print before they complete a communicator, in every release."""


def _lacks_its_beginning(fold: Fold | Share) -> bool:
    """Whether communicators are complete, and nothing is there of what every rank prints before."""
    logs = fold.processes.values()
    steps = [step.event for log in logs for step in log.steps if isinstance(step, Step)]
    if any(isinstance(event, events.CommInit) and event.phase == "START" for event in steps):
        return False
    noted = (note.event for log in logs for note in log.notes.values())
    return not any(isinstance(event, _BEGINNING) for group in (steps, noted) for event in group)


def read(pieces: Iterable[Piece]) -> Fold:
    """The fold of short texts.

    Args:
        pieces: their sources and lines.
    """
    state = Fold(engine.shipped())
    open_: list[Lines] = []
    for piece in pieces:
        if isinstance(piece, Lines) and piece.mended is None:
            open_.append(piece)
            continue
        _finish(state, open_)
        state.add(piece)
    _finish(state, open_)
    return state


def _finish(state: Fold, open_: list[Lines]) -> None:
    """Read the lines of a source, which are all there now."""
    if not open_:
        return
    from nccl_inspect.scanning.excerpts import Excerpt  # whole logs never need it

    source, block, excerpt = state.sources[-1], Found(), Excerpt(engine.shipped())
    excerpt.scan([line for lines in open_ for line in lines.lines], source.counts, block.keep)
    for lines in open_:
        source.bytes += lines.size
        source.look_for_elision(lines)
    state.restored += excerpt.read
    state.productions |= excerpt.productions
    state.take(block)
    open_.clear()
