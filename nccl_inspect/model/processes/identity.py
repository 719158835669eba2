"""Tells processes apart that have the same host name and pid: pods with own pid numbers, containers started again.

A collector's name for the printer keeps pods apart. A process says once over which interface it bootstraps; when it
says so again after it had a communicator, it is another one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process
from nccl_inspect.model.fold.call_counts import CallKey, Tally, merged
from nccl_inspect.model.fold.fold import Burst, Note, ProcessLog, Step
from nccl_inspect.model.fold.places import source_and_line
from nccl_inspect.util.levels import STATEMENTS

_FEW, _MANY = 3, 10
_MAX_ALIKE = 64
"""Processes of one id among which that one is looked for to which a torn name belongs."""
_MAX_LIVES = 500
"""Most starts of one container that are distinguished, the newest ones."""


def apart(logs: Iterable[ProcessLog]) -> list[ProcessLog]:
    """The logs of all processes; what one process printed under several names of its collector is put together.

    Args:
        logs: one for each host, pid and name.
    """
    logs = list(logs)
    owners = _owners(logs)
    alike: dict[tuple[str, int], list[ProcessLog]] = {}
    for log in logs:
        process = owners.get(log.process, log.process)
        alike.setdefault((process.host, process.pid), []).append(log)
    separate: list[ProcessLog] = []
    for group in alike.values():
        is_one = len(group) > 1 and sum(bool(log.bootstraps) for log in group) < 2
        separate.extend([_together(group, owners)] if is_one else group)
    return separate


def _owners(logs: Sequence[ProcessLog]) -> dict[Process, Process]:
    """To whom lines belong whose host begins with the end of other text, or has lost its own beginning.

    Such as ``loss 0.5node-1:11:11 [0] NCCL INFO …`` and ``ode-1:11:11 [0] NCCL INFO …``.
    """
    large = {(log.process.host, log.process.pid): log.process for log in logs if _is_larger(log, _MANY)}
    by_pid: dict[int, list[Process]] = {}
    for process in large.values():
        by_pid.setdefault(process.pid, []).append(process)
    owners: dict[Process, Process] = {}
    for log in logs if large else ():
        if _is_larger(log, _FEW):
            continue
        host, pid, _ = log.process
        ends = (large.get((host[at:], pid)) for at in range(len(host)))
        alike = by_pid.get(pid, ())
        wholes = (
            [candidate for candidate in alike if host and candidate.host.endswith(host)]
            if len(alike) <= _MAX_ALIKE
            else []
        )
        if owner := next(filter(None, ends), None) or (wholes[0] if len(wholes) == 1 else None):
            owners[log.process] = owner
    return owners


def _is_larger(log: ProcessLog, most: int) -> bool:
    return len(log.steps) > most or len(log.steps) + log.note_count > most


def _together(logs: Sequence[ProcessLog], owners: Mapping[Process, Process]) -> ProcessLog:
    """One log of lines that stand between each other in the sources."""
    first, last = min(logs, key=lambda log: log.first), max(logs, key=lambda log: log.last)
    notes: dict[object, Note] = {}
    for note in sorted((note for log in logs for note in log.notes.values()), key=lambda note: note.place):
        key = (note.level, note.message)
        earlier = notes.get(key)
        notes[key] = _sum(earlier, note) if earlier else note
    return ProcessLog(
        process=owners.get(first.process, first.process),
        steps=sorted((step for log in logs for step in log.steps), key=lambda step: step.place),
        own=notes,
        calls=_summed(logs),
        first=first.first,
        last=last.last,
        opening=first.opening,
        final=last.final,
        bootstraps=sorted(place for log in logs for place in log.bootstraps),
    )


def _summed(logs: Sequence[ProcessLog]) -> dict[CallKey, Tally]:
    calls: dict[CallKey, Tally] = {}
    for log in sorted(logs, key=lambda log: log.first):
        merged(calls, {key: replace(tally) for key, tally in log.calls.items()}, lambda place: place)
    return calls


def _sum(note: Note, other: Note) -> Note:
    return replace(note, count=note.count + other.count, last=max(note.last, other.last))


class _Border(NamedTuple):
    """Holds where one life ends and the next one begins."""

    step: int
    """After the last step of the old one: what is set and loaded from here on is of the new one."""
    bootstrap: int
    """The first step of the new one: what went wrong until here is of the old one."""

    def of(self, note: Note) -> int:
        """The border for a statement."""
        went_wrong = note.level in STATEMENTS or isinstance(note.event, events.ErrorCascade)
        return self.bootstrap if went_wrong else self.step


def lives(log: ProcessLog) -> list[ProcessLog]:
    """The processes that printed as this one, one after the other: mostly one."""
    borders = _borders(log)
    if not borders:
        return [log]
    lives: list[ProcessLog] = []
    places = [step.place for step in log.steps]
    begin = _Border(0, 0)
    for number, end in enumerate([*borders, _Border(log.last + 1, log.last + 1)], 1):
        steps = log.steps[bisect_left(places, begin.step) : bisect_left(places, end.step)]
        newest = number == len(borders) + 1
        lives.append(
            ProcessLog(
                process=log.process if newest else log.process._replace(apart=f"{log.process.apart}#{number}"),
                steps=steps,
                own={
                    key: note
                    for key, whole in log.notes.items()
                    if (note := within(whole, begin.of(whole), end.of(whole))) is not None
                },
                calls={key: tally for key, tally in log.calls.items() if begin.step <= tally.first < end.step},
                first=steps[0].place if lives else log.first,
                last=log.last if newest else max(map(_end, steps)),
                opening=steps[0].origin if lives else log.opening,
                final=log.final if newest else steps[-1].origin,
                bootstraps=[place for place in log.bootstraps if begin.step <= place < end.step],
            )
        )
        begin = end
    return lives


def _borders(log: ProcessLog) -> list[_Border]:
    """Between a communicator and the bootstrap that follows it, unless the communicator continues after that."""
    if len(log.bootstraps) < 2:
        return []
    borders: list[_Border] = []
    places = [step.place for step in log.steps]
    # What follows is looked at as far as the next bootstrap: a communicator that goes on is spoken of by then.
    for place, following in pairwise([*log.bootstraps[1:][-_MAX_LIVES:], log.last + 1]):
        since = bisect_left(places, borders[-1].step if borders else 0)
        here = bisect_left(places, place)
        before, after = log.steps[since:here], log.steps[here : bisect_left(places, following)]
        if _begun(before) and after and not _goes_on(_begun(before), after):
            borders.append(_Border(min(max(map(_end, before)), place - 1) + 1, place))
    return borders


def _begun(steps: Iterable[Step | Burst]) -> set[str]:
    """The communicators that were begun, by their pointers."""
    return {step.event.comm for step in steps if isinstance(step, Step) and isinstance(step.event, events.CommInit)}


def _goes_on(comms: set[str], steps: Iterable[Step | Burst]) -> bool:
    """Whether one of these communicators is spoken of before its pointer stands for a new one."""
    left = set(comms)
    for step in steps:
        comm = getattr(step.event, "comm", None) if isinstance(step, Step) else None
        if comm in left:
            if not isinstance(step, Step) or getattr(step.event, "phase", None) != "START":
                return True
            left.discard(comm)
    return False


def _end(step: Step | Burst) -> int:
    return step.place if isinstance(step, Step) else step.last


def within(note: Note, begin: int, end: int) -> Note | None:
    """A statement as far as it was made between two places; None when it was not, as far as first and last show."""
    if note.last < begin or note.place >= end:
        return None
    if begin <= note.place:
        return note
    return replace(note, place=note.last) if note.last < end else None


def in_other_sources(logs: Sequence[ProcessLog]) -> bool:
    """Whether these lives come from different sources: then they may have been at once."""
    return len({source_and_line(log.first)[0] for log in logs}) == len(logs)
