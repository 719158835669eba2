"""Tells processes apart that have the same host name and pid: pods with own pid numbers, containers started again.

A collector's name for the printer keeps pods apart. A process says once over which interface it bootstraps; when it
says so again after it had a communicator, it is another one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process
from nccl_inspect.model.communicators.members import ProcessMembers
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.fold import Burst, Note, ProcessLog, Step
from nccl_inspect.model.fold.process_log import CallKey, Tally, merge_calls, source_and_line
from nccl_inspect.model.fold.source_counts import SourceCounts
from nccl_inspect.model.statements.index import Line, StatementLine
from nccl_inspect.util.levels import STATEMENTS

_FEW, _MANY = 3, 10
_MAX_ALIKE = 64
"""Processes of one id among which that one is looked for to which a torn name belongs."""
_MAX_LIVES = 500
"""Most starts of one container that are distinguished, the newest ones."""


def apart(logs: Iterable[ProcessLog]) -> list[ProcessLog]:
    """Return the logs of all processes; what one process printed under several names of its collector is put together.

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
    return len(log.steps) > most or len(log.steps) + len(log.notes) > most


def _together(logs: Sequence[ProcessLog], owners: Mapping[Process, Process]) -> ProcessLog:
    """Return one log of lines that stand between each other in the sources."""
    first, last = min(logs, key=lambda log: log.first), max(logs, key=lambda log: log.last)
    notes: dict[object, Note] = {}
    for note in sorted((note for log in logs for note in log.notes.values()), key=lambda note: note.place):
        key = (note.level, note.message)
        earlier = notes.get(key)
        notes[key] = _sum(earlier, note) if earlier else note
    return ProcessLog(
        process=owners.get(first.process, first.process),
        steps=sorted((step for log in logs for step in log.steps), key=lambda step: step.place),
        notes=notes,
        calls=_sum_calls(logs),
        first=first.first,
        last=last.last,
        opening=first.opening,
        closing=last.closing,
        bootstraps=sorted(place for log in logs for place in log.bootstraps),
    )


def _sum_calls(logs: Sequence[ProcessLog]) -> dict[CallKey, Tally]:
    calls: dict[CallKey, Tally] = {}
    for log in sorted(logs, key=lambda log: log.first):
        merge_calls(calls, {key: replace(tally) for key, tally in log.calls.items()}, lambda place: place)
    return calls


def _sum(note: Note, other: Note) -> Note:
    return replace(note, count=note.count + other.count, last=max(note.last, other.last))


class _Border(NamedTuple):
    """Holds where one life ends and the next one begins."""

    step: int
    """After the last step of the old one: what is set and loaded from here on is of the new one."""
    bootstrap: int
    """The first step of the new one: what went wrong until here is of the old one."""

    def find_border(self, note: Note) -> int:
        """Return the border for a statement."""
        went_wrong = note.level in STATEMENTS or isinstance(note.event, events.ErrorCascade)
        return self.bootstrap if went_wrong else self.step


def lives(log: ProcessLog) -> list[ProcessLog]:
    """Return the processes that printed as this one, one after the other: mostly one."""
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
                notes={
                    key: note
                    for key, whole in log.notes.items()
                    if (note := cut_note(whole, begin.find_border(whole), end.find_border(whole))) is not None
                },
                calls={key: tally for key, tally in log.calls.items() if begin.step <= tally.first < end.step},
                first=steps[0].place if lives else log.first,
                last=log.last if newest else max(map(_end, steps)),
                opening=steps[0].origin if lives else log.opening,
                closing=log.closing if newest else steps[-1].printed,
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
        if _begun_pointers(before) and after and not _goes_on(_begun_pointers(before), after):
            borders.append(_Border(min(max(map(_end, before)), place - 1) + 1, place))
    return borders


def _begun_pointers(steps: Iterable[Step | Burst]) -> set[str]:
    """Return the communicators that were begun, by their pointers."""
    return {step.event.comm for step in steps if isinstance(step, Step) and isinstance(step.event, events.CommInit)}


def _goes_on(comms: set[str], steps: Iterable[Step | Burst]) -> bool:
    """Return whether one of these communicators is spoken of before its pointer stands for a new one."""
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


def cut_note(note: Note, begin: int, end: int) -> Note | None:
    """Return a statement as far as it was made between two places; None if it was not, by its first and last."""
    if note.last < begin or note.place >= end:
        return None
    if begin <= note.place:
        return note
    return replace(note, place=note.last) if note.last < end else None


def are_in_different_sources(logs: Sequence[ProcessLog]) -> bool:
    """Return whether these lives come from different sources: then they may have been at once."""
    return len({source_and_line(log.first)[0] for log in logs}) == len(logs)


def ranks_of_nobody(logs: Iterable[ProcessLog]) -> dict[Process, list[int]]:
    """Return the labelled ranks of what no known process printed.

    Args:
        logs: of processes, and of nobody.
    """
    labels = ((log.process, log.opening.rank) for log in logs if not log.process.host)
    return {process: [rank] for process, rank in labels if rank is not None}


def raised_by(
    sources: Mapping[int, SourceCounts], processes: Iterable[ProcessMembers], ranks: Mapping[Process, list[int]]
) -> dict[tuple[str, int], int]:
    """Return the ranks of labelled exceptions, by source and number of the line.

    They are those of the processes of which NCCL's lines have the same label: a task of srun may have launched several.

    Args:
        sources: with the exceptions, by their numbers.
        processes: of the job.
        ranks: of each process.
    """
    labelled: dict[tuple[int, int], set[int]] = {}
    for process in processes:
        log = process.log
        if log.opening.rank is not None:
            key = source_and_line(log.first)[0], log.opening.rank
            labelled.setdefault(key, set()).update(ranks.get(log.process, ()))
    return {
        (source.name, exception.number): next(iter(candidates))
        for index, source in sources.items()
        for exception in source.raised
        if exception.rank is not None and len(candidates := labelled.get((index, exception.rank), set())) == 1
    }


def last_line(log: ProcessLog, stated: StatementLine | None, line: Line) -> Evidence | None:
    """Return the last line of a process of which more than its place is kept.

    Args:
        log: of the process.
        stated: the last line that is a statement.
        line: makes evidence of lines.
    """
    place, last = max(_ends(log, stated), key=itemgetter(0), default=(0, None))
    match last:
        case None:
            return None
        case StatementLine():
            return last.line(line)
        case Step():
            return line(place, last.origin, "INFO", last.event.message)
        case Burst():
            edge = last.final
            return line(place, edge.origin, edge.level, edge.message)


def _ends(log: ProcessLog, stated: StatementLine | None) -> Iterator[tuple[int, Step | Burst | StatementLine]]:
    if stated is not None:
        yield stated.place, stated
    for step in (*log.steps[-1:], *log.open.values()):
        if isinstance(step, Burst):
            yield step.last, step
        else:
            yield step.place, step


_FIRST = 0
"""The CUDA device of a process that sees one GPU."""
_SEVERAL = 2


def isolated_hosts(processes: Iterable[ProcessMembers]) -> list[str]:
    """Hosts where all ranks have CUDA device 0 and different GPUs, by their initialisation or by what they print."""
    by_host: dict[str, list[ProcessMembers]] = {}
    for process in processes:
        by_host.setdefault(process.log.process[0], []).append(process)
    return [host for host, members in by_host.items() if host and (_by_init(members) or _by_lines(members))]


def _by_init(processes: Iterable[ProcessMembers]) -> bool:
    seen = {(member.init.cuda_dev, member.init.bus_id) for process in processes for member in process.members}
    return {cuda_dev for cuda_dev, _ in seen} == {_FIRST} and len({bus_id for _, bus_id in seen}) > 1


def _by_lines(processes: Iterable[ProcessMembers]) -> bool:
    """Return whether several processes with connections of different ranks print all their lines on device 0.

    Two ranks on one GPU have no connections: NCCL refuses them before.
    """
    logs = [process.log for process in processes if not process.members]
    connecting = {log.process: _ranks(log) for log in logs}
    ranks = {rank for own in connecting.values() for rank in own}
    several = sum(bool(own) for own in connecting.values()) >= _SEVERAL and len(ranks) >= _SEVERAL
    return several and all(_devices(log) <= {_FIRST} for log in logs)


def _ranks(log: ProcessLog) -> set[int]:
    """Return the ranks that print connections there; in a process with one GPU it is one."""
    return {step.key.rank for step in log.steps if isinstance(step, Burst)}


def _devices(log: ProcessLog) -> set[int | None]:
    """Return the CUDA devices that the prefixes of its lines name."""
    origins = [log.opening, log.final, *(step.origin for step in log.steps)]
    return {origin.device for origin in origins}
