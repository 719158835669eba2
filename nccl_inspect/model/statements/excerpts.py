"""Distinguishes excerpts from whole logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nccl_inspect.event import types as events
from nccl_inspect.ingest.lines.elisions import PASTE
from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.model.fold.process_log import ProcessLog
from nccl_inspect.model.fold.step import Step
from nccl_inspect.model.job import Setting

if TYPE_CHECKING:
    from nccl_inspect.model.jobs.shares import Share


def has_communicator(fold: Fold | Share) -> bool:
    """Whether a rank says that it begins or completes a communicator."""
    return any(isinstance(event, events.CommInit) for event in _steps(fold.processes.values()))


def _steps(logs: Iterable[ProcessLog]) -> Iterator[events.Event]:
    """The events of all steps but connections."""
    return (step.event for log in logs for step in log.steps if isinstance(step, Step))


def is_excerpt(fold: Fold | Share, settings: Iterable[Setting]) -> bool:
    """Whether a fold is that of a part of a log.

    A log of older releases, or of a rank that ends early, may have no communicator: but then it has no connections, or
    shows by its settings which lines were not asked for.

    Args:
        fold: of all sources.
        settings: of the job.
    """
    if any(source.is_cut or (source.elided and source.bytes <= PASTE) for source in fold.sources):
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
    if any(isinstance(event, _BEGINNING) or _is_start(event) for event in _steps(logs)):
        return False
    return not any(isinstance(note.event, _BEGINNING) for log in logs for note in log.notes.values())


def _is_start(event: events.Event) -> bool:
    return isinstance(event, events.CommInit) and event.phase == "START"
