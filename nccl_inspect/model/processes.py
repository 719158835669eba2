"""Who printed what in a log: processes, their lives one after the other, and the communicators that they form.

Several processes may have the same host name and pid: pods with own pid numbers, containers started again. A
collector's name for the printer keeps pods apart. A process says once over which interface it bootstraps; when it says
so again after it had a communicator, it is another one. What a collector gave twice counts once, and what only torn
lines state does not count.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from operator import attrgetter
from typing import TypeAlias

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect, CommInit, Event, NetworkInUse
from nccl_inspect.ingest.lines.exceptions import TRACEBACK
from nccl_inspect.ingest.lines.prefix import is_masked
from nccl_inspect.model.communicators import communicator
from nccl_inspect.model.communicators.communicator import Communicator, ProcessMembers
from nccl_inspect.model.fold import (
    Burst,
    CallKey,
    Fold,
    Note,
    ProcessLog,
    SourceCounts,
    Step,
    Tally,
    add_calls,
    source_and_line,
)
from nccl_inspect.model.inventory import BUILT_IN
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.levels import STATEMENTS

_BELIEVED, _PER_STEP = 1 << 18, 128
"""Ranks that communicators may claim though no line names them: in all, and more for each line that orders them.

The log of one rank of the largest runs claims that many, in some communicators of the world; more is damage.
"""
_MOST = 1 << 16  # communicators with an id of their own that are judged: a hundred times those of the largest runs


class Gathered:
    """The processes of a log, or of one job in it.

    Args:
        passed_on: lines may have lost the name of their host before they were passed on.
        repeated: lines that were left out because they had been collected before, by process.
    """

    def __init__(
        self, everything: list[ProcessLog], passed_on: bool, repeated: Mapping[Process, list[Step | Burst]]
    ) -> None:
        self.everything = everything
        self.passed_on = passed_on
        self.repeated = repeated
        logs = [log for log in everything if log.process.host]
        named = [log for log in logs if not is_masked(log.process)]
        self.logs = logs if passed_on else named or logs
        """Of the processes that printed; where hosts are named, one without it was torn or ``passed_on`` so."""
        self.lives = [lives(log) for log in self.logs]
        """For each of these the processes that have its name, one after the other."""
        self.processes, self.communicators, self.refused = walk_logs(self.living)
        self.runs: dict[str, Fold] = {}
        """The runs of the job, as :func:`~nccl_inspect.model.jobs.runs_of` tells them apart; empty until it does."""

    @property
    def living(self) -> Iterator[ProcessLog]:
        """Return all of these processes."""
        return chain.from_iterable(self.lives)

    @classmethod
    def gather(cls, fold: Fold) -> Gathered:
        """Return all processes of a fold."""
        if fold.own is not None:
            return cls([*fold.processes.values()], fold.restored > 0, fold.repeated)
        once = [leave_out_repeats(log) for log in _leave_out_damage(fold, apart(fold.processes.values()))]
        repeated = {log.process: left_out for log, left_out in once if left_out}
        return cls([log for log, _ in once], fold.restored > 0, repeated)


def walk_logs(logs: Iterable[ProcessLog]) -> tuple[list[ProcessMembers], list[Communicator], list[int]]:
    """Return the members of each process, and the communicators that they form.

    Those that only claim to be large are left out; the last value is where these begin.
    """
    logs = list(logs)
    steps = sum(len(log.steps) for log in logs)
    beyond = _beyond(logs) if steps > _MOST else {}
    logs = [_leave_out(log, beyond.get(log.process, ())) for log in logs] if beyond else logs
    processes = [communicator.walk_steps(log) for log in logs]
    communicators = communicator.join(processes)
    refused: dict[Process, dict[str, int]] = {}  # pointers of those with more ranks that no line names than is believed
    room = _BELIEVED + steps * _PER_STEP
    for comm in sorted(communicators, key=lambda comm: comm.nranks - len(comm.members)):
        room -= comm.nranks - len(comm.members)
        for member in comm.members.values() if room < 0 else ():
            refused.setdefault(member.log.process, {})[member.init.comm] = member.first.place
    if refused:
        processes = [communicator.walk_steps(_leave_out(log, refused.get(log.process, ()))) for log in logs]
        communicators = communicator.join(processes)
    left_out = [place for some in (beyond, refused) for comms in some.values() for place in comms.values()]
    return processes, communicators, left_out


def _beyond(logs: Sequence[ProcessLog]) -> dict[Process, dict[str, int]]:
    """Return the pointers of communicators of which a log has too many: all but the first ones and the last."""
    begins = [
        (step.place, step.event.comm_id, log.process, step.event.comm)
        for log in logs
        for step in log.steps
        if isinstance(step.event, CommInit) and step.event.comm_id
    ]
    begins.sort()
    ids = list(dict.fromkeys([comm_id for _, comm_id, _, _ in begins]))
    beyond: dict[Process, dict[str, int]] = {}
    if len(ids) > _MOST:
        gone = set(ids[_MOST // 2 : -(_MOST // 2)])
        for place, comm_id, process, comm in begins:
            if comm_id in gone:
                beyond.setdefault(process, {}).setdefault(comm, place)
    return beyond


def _leave_out(log: ProcessLog, comms: Collection[str]) -> ProcessLog:
    """Return what a process printed but for what it says of some communicators."""
    return replace(log, steps=[step for step in log.steps if getattr(step.event, "comm", None) not in comms])


# Who is one process, and its lives

_FEW, _MANY = 3, 10
_MAX_ALIKE = 64  # processes of one id among which that one is looked for to which a torn name belongs
_MAX_LIVES = 500  # most starts of one container that are distinguished, the newest ones


def apart(logs: Iterable[ProcessLog]) -> list[ProcessLog]:
    """Return the logs of all processes; what one printed under several names of its collector is put together."""
    logs = list(logs)
    owners = _owners(logs)
    alike = group_values((owners.get(log.process, log.process)[:2], log) for log in logs)
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
    by_pid = group_values((process.pid, process) for process in large.values())
    owners: dict[Process, Process] = {}
    for log in logs if large else ():
        if _is_larger(log, _FEW):
            continue
        host, pid, _ = log.process
        ends = (large.get((host[at:], pid)) for at in range(len(host)))
        alike = by_pid.get(pid, []) if host else []
        wholes = [one for one in alike if one.host.endswith(host)] if len(alike) <= _MAX_ALIKE else []
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
        if earlier := notes.get(key):
            note = replace(earlier, count=earlier.count + note.count, last=max(earlier.last, note.last))
        notes[key] = note
    calls: dict[CallKey, Tally] = {}
    for log in sorted(logs, key=lambda log: log.first):
        add_calls(calls, {key: replace(tally) for key, tally in log.calls.items()})
    return ProcessLog(
        process=owners.get(first.process, first.process),
        steps=sorted((step for log in logs for step in log.steps), key=lambda step: step.place),
        notes=notes,
        calls=calls,
        first=first.first,
        last=last.last,
        opening=first.opening,
        closing=last.closing,
        bootstraps=sorted(place for log in logs for place in log.bootstraps),
    )


def lives(log: ProcessLog) -> list[ProcessLog]:
    """Return the processes that printed as this one, one after the other: mostly one."""
    borders = _borders(log)
    if not borders:
        return [log]
    lives: list[ProcessLog] = []
    places = [step.place for step in log.steps]
    begin = bootstrap = 0
    for number, (end, next_bootstrap) in enumerate([*borders, (log.last + 1, log.last + 1)], 1):
        steps = log.steps[bisect_left(places, begin) : bisect_left(places, end)]
        newest = number == len(borders) + 1
        notes: dict[object, Note] = {}
        for key, whole in log.notes.items():
            went_wrong = whole.level in STATEMENTS or isinstance(whole.event, events.ErrorCascade)
            since, until = (bootstrap, next_bootstrap) if went_wrong else (begin, end)
            # As far as it was made between two places, by its first and last: that of two lives is of the last.
            if since <= whole.place < until:
                notes[key] = whole
            elif whole.place < since <= whole.last < until:
                notes[key] = replace(whole, place=whole.last)
        lives.append(
            ProcessLog(
                process=log.process if newest else log.process._replace(apart=f"{log.process.apart}#{number}"),
                steps=steps,
                notes=notes,
                calls={key: tally for key, tally in log.calls.items() if begin <= tally.first < end},
                first=steps[0].place if lives else log.first,
                last=log.last if newest else max(step.last for step in steps),
                opening=steps[0].printed.origin if lives else log.opening,
                closing=log.closing if newest else steps[-1].printed,
                bootstraps=[place for place in log.bootstraps if begin <= place < end],
            )
        )
        begin, bootstrap = end, next_bootstrap
    return lives


def _borders(log: ProcessLog) -> list[tuple[int, int]]:
    """Return where one life ends and the next begins: after the last step of the old one, and the bootstrap of the new.

    Settings and plugins between these are of the new one, and what went wrong there is of the old one. A communicator
    precedes each, unless it continues after the bootstrap.
    """
    if len(log.bootstraps) < 2:
        return []
    borders: list[tuple[int, int]] = []
    places = [step.place for step in log.steps]
    # What follows is looked at as far as the next bootstrap: a communicator that goes on is spoken of by then.
    for place, following in pairwise([*log.bootstraps[1:][-_MAX_LIVES:], log.last + 1]):
        since = bisect_left(places, borders[-1][0] if borders else 0)
        here = bisect_left(places, place)
        before, after = log.steps[since:here], log.steps[here : bisect_left(places, following)]
        begun = {step.event.comm for step in before if isinstance(step.event, events.CommInit)}
        if begun and after and not _goes_on(begun, after):
            borders.append((min(max(step.last for step in before), place - 1) + 1, place))
    return borders


def _goes_on(begun: set[str], steps: Iterable[Step | Burst]) -> bool:
    """Return whether one of these communicators is spoken of before its pointer stands for a new one."""
    left = set(begun)
    for step in steps:
        comm = getattr(step.event, "comm", None)
        if comm in left:
            if getattr(step.event, "phase", None) != "START":
                return True
            left.discard(comm)
    return False


def raised_by(
    sources: Mapping[int, SourceCounts], processes: Sequence[ProcessMembers], ranks: Mapping[Process, list[int]]
) -> dict[tuple[str, int], int]:
    """Return the ranks of exceptions without a rank of their own, by source and number of the line.

    With a label they are those of the processes of which NCCL's lines have the same: a task of srun may have launched
    several. Without one, below a traceback, they are those of the only process that prints to their source, if its
    communicators did not end in order, and if all ranks print: else another one may have raised it.
    """
    labelled: dict[tuple[int, int], set[int]] = {}
    printers: dict[int, dict[Process, bool]] = {}
    """Of each source those that print to it, and whether they came to their end in order."""
    for process in processes:
        log, ends = process.log, [member.ended for member in process.members]
        is_done = bool(ends) and all(end is not None and getattr(end.event, "how", "") != "Abort" for end in ends)
        first, last = source_and_line(log.first)[0], source_and_line(log.last)[0]
        if log.opening.rank is not None:
            labelled.setdefault((first, log.opening.rank), set()).update(ranks.get(log.process, ()))
        for number in (first, last):
            printers.setdefault(number, {})[log.process] = is_done
    size = max((member.init.nranks for process in processes for member in process.members), default=0)
    is_whole = len({rank for process in processes for rank in ranks.get(process.log.process, ())}) >= size
    found: dict[tuple[str, int], int] = {}
    for number, source in sources.items():
        here = printers.get(number, {})
        alone = {rank for process in here for rank in ranks.get(process, ()) if list(here.values()) == [False]}
        heads = [line for line, text in source.counts.tail if is_whole and TRACEBACK in text]
        for exception in source.raised:
            is_below = any(line < exception.number for line in heads)
            candidates = alone if is_below else set()
            if exception.rank is not None:
                candidates = labelled.get((number, exception.rank), set())
            if len(candidates) == 1:
                found[source.name, exception.number] = next(iter(candidates))
    return found


_FIRST = 0  # the CUDA device of a process that sees one GPU
_SEVERAL = 2


def isolated_hosts(processes: Iterable[ProcessMembers]) -> list[str]:
    """Return hosts where all ranks have CUDA device 0 and different GPUs, by their START or by what they print.

    By what they print if several processes with connections of different ranks print all their lines on device 0: two
    ranks on one GPU have no connections, since NCCL refuses them before.
    """
    isolated = []
    for host, here in group_values((process.log.process.host, process) for process in processes).items():
        seen = {(member.init.cuda_dev, member.init.bus_id) for process in here for member in process.members}
        by_init = {cuda_dev for cuda_dev, _ in seen} == {_FIRST} and len({bus_id for _, bus_id in seen}) > 1
        logs = [process.log for process in here if not process.members]
        connecting = [{step.key.rank for step in log.steps if isinstance(step, Burst)} for log in logs]
        several = sum(map(bool, connecting)) >= _SEVERAL and len(set().union(*connecting)) >= _SEVERAL
        by_lines = several and all(
            printed.origin.device == _FIRST
            for log in logs
            for printed in (log.opening, log.closing, *(step.printed for step in log.steps))
        )
        if host and (by_init or by_lines):
            isolated.append(host)
    return isolated


def leave_out_repeats(log: ProcessLog) -> tuple[ProcessLog, list[Step | Burst]]:
    """Return the log of a process with each line once, and the first steps of what was left out."""
    proofs = [event.message for step in log.steps if (event := _proof(step))]
    if len(set(proofs)) == len(proofs):
        return log, []
    # What a collector gave once: in each source one copy, and where one begins again as the last one did.
    copies: list[list[Step | Burst]] = []
    source, first, completed = -1, "", False
    for step in log.steps:
        here, event = source_and_line(step.place)[0], _proof(step)
        if here != source or (event and completed and event.message == first):
            copies.append([])
            source, first, completed = here, "", False
        copies[-1].append(step)
        if event:
            first = first or event.message
            completed |= event.phase == "COMPLETE"
    number = [sum(_proof(step) is not None for step in copy) for copy in copies]
    kept: dict[int, set[object]] = {}
    for at in sorted(range(len(copies)), key=lambda at: (-number[at], -len(copies[at]))):  # the most complete one
        said = _list_messages(copies[at])
        if not (number[at] and any(said <= other for other in kept.values())):
            kept[at] = said
    begins = [copy[0].place for copy in copies]
    return replace(
        log,
        steps=[step for at in sorted(kept) for step in copies[at]],
        bootstraps=[place for place in log.bootstraps if max(0, bisect_right(begins, place) - 1) in kept],
    ), [copy[0] for at, copy in enumerate(copies) if at not in kept]


def _list_messages(copy: Iterable[Step | Burst]) -> set[object]:
    """Return all that lines say: messages, and each channel of connections, with their threads."""
    said: set[object] = set()
    for step in copy:
        if isinstance(step, Step):
            said.add((step.printed.tid, step.event.message))
            continue
        for key, edge in step.edges.items():
            channels = (at for at in range(edge.channels.bit_length()) if edge.channels >> at & 1)
            said.update((step.key.tid, step.key.conn, key, channel) for channel in channels)
    return said


def _proof(step: Step | Burst) -> events.CommInit | None:
    """Return the event, if its line can occur only once in a log."""
    event = step.event
    return event if isinstance(event, events.CommInit) and event.comm_id else None


# What only torn lines state

_FEW_LINES, _MANY_LINES = 2, 50  # lines of what looks like a network, where another one has many
_USUAL, _NEARLY_ALL = 10, 0.75  # lines that a process prints at least, and what all such have of all lines
_Way: TypeAlias = tuple[object, ...]
_way = attrgetter("transport", "mechanism", "net", "read", "gdr", "gdr_pci")
"""What of a connection the ways of a process have in common with those of others."""


def _leave_out_damage(fold: Fold, logs: list[ProcessLog]) -> list[ProcessLog]:
    """Return what processes printed, without what is damage in the sources of a log."""
    torn = {index for index, source in fold.sources_by_number.items() if source.counts.is_torn}
    if not torn:
        return logs
    # Where nearly all is said by others that say much, a line or two without an error name a process by a torn host or
    # id: a process says more than that before it has a communicator. Torn often, they outnumber the others.
    sizes = [len(log.steps) + len(log.notes) for log in logs]
    if sum(size for size in sizes if size >= _USUAL) > _NEARLY_ALL * sum(sizes):
        logs = [
            log
            for log in logs
            if len(log.steps) + len(log.notes) > _FEW_LINES
            or not log.process.host
            or source_and_line(log.first)[0] not in torn
            or any(note.level in STATEMENTS for note in log.notes.values())
        ]
    damage = _Damage({number: fold.sources_by_number[number].counts.doubtful for number in torn}, logs)
    return [damage.leave_out(log) for log in logs]


class _Damage:
    """Holds what the sound lines of a torn log state, by which damage is known."""

    def __init__(self, doubtful: Mapping[int, Collection[int]], logs: Iterable[ProcessLog]) -> None:
        self._doubtful = doubtful  # by the numbers of torn sources their lines of which nothing is certain
        self._ways_of: dict[Process, set[_Way]] = {}
        self._networks: Counter[str] = Counter()  # how many lines name each network
        self._texts: set[bytes] = set()
        self._kinds: set[tuple[str, str] | None] = set()
        for log in logs:
            ways = self._ways_of.setdefault(log.process, set())
            for step in log.steps:
                for edge in step.edges.values() if isinstance(step, Burst) else ():
                    if not self._is_doubtful(edge.lines, edge.place):
                        ways.add(_way(edge.event))
                    if edge.event.net:
                        self._networks[edge.event.net] += edge.lines
                if isinstance(step.event, NetworkInUse):
                    self._networks[step.event.net] += 1
            sound = [note for note in log.notes.values() if not self._is_in_doubt(note)]
            self._texts.update(note.message for note in sound)
            self._kinds.update(map(_kind, sound))
        self._ways = set().union(*self._ways_of.values())

    def leave_out(self, log: ProcessLog) -> ProcessLog:
        """Return what a process printed, without damage."""
        ends = _ends_of_known(log)
        steps: list[Step | Burst] = []
        for step in log.steps:
            if isinstance(step, Step):
                steps += [] if self._is_no_network(step.event) else [ends.get(id(step), step)]
                continue
            texts = sorted(map(_connection, step.edges.values()))
            kept = {key: edge for key, edge in step.edges.items() if not self._is_damage(log.process, edge, texts)}
            if kept:
                steps.append(step if len(kept) == len(step.edges) else replace(step, edges=kept))
        notes = {  # but for those that others state in other words only
            key: note
            for key, note in log.notes.items()
            if not self._is_in_doubt(note) or note.message in self._texts or _kind(note) not in self._kinds
        }
        return replace(log, steps=steps, notes=notes)

    def _is_damage(self, process: Process, edge: Edge, texts: Sequence[str]) -> bool:
        """Return whether an edge is one of a torn line; ``texts`` has those of all edges beside it, in order."""
        if edge.lines > 1 or source_and_line(edge.place)[0] not in self._doubtful:
            return False
        # Of the same connection another channel says more: the end of this line was cut off.
        more = _connection(edge) + "/"
        after = bisect_right(texts, more)
        if self._is_no_network(edge.event) or (after < len(texts) and texts[after].startswith(more)):
            return True
        # No sound line names this way: of the process, or of any if it has none of this transport.
        own = {way for way in self._ways_of.get(process, ()) if way[0] == edge.event.transport}
        return self._is_doubtful(edge.lines, edge.place) and _way(edge.event) not in (own or self._ways)

    def _is_no_network(self, event: Event) -> bool:
        """Return whether hardly a line names a network where many name another one."""
        net = event.net if isinstance(event, ChannelConnect | NetworkInUse) else None
        is_rare = net is not None and net not in BUILT_IN and self._networks[net] <= _FEW_LINES
        return is_rare and max(self._networks.values()) >= _MANY_LINES

    def _is_in_doubt(self, note: Note) -> bool:
        return note.level not in STATEMENTS and self._is_doubtful(note.count, note.place)

    def _is_doubtful(self, lines: int, place: int) -> bool:
        source, line = source_and_line(place)
        return lines == 1 and line in self._doubtful.get(source, ())


def _connection(edge: Edge) -> str:
    return edge.event.message.partition(" : ")[2]


def _kind(note: Note) -> tuple[str, str] | None:
    return (note.event.dialect, note.event.production) if note.event else None


def _ends_of_known(log: ProcessLog) -> dict[int, Step]:
    """Return ends of communicators whose pointer is torn, by what they were, with the pointer of the one that began."""
    steps = [step for step in log.steps if isinstance(step, Step)]
    named = Counter(getattr(step.event, "comm", None) for step in steps)
    inits = [(step, step.event) for step in steps if isinstance(step.event, CommInit)]
    ended = {event.comm for _, event in inits if event.phase == "COMPLETE"}
    begun = {
        (event.rank, event.nranks): event for _, event in inits if event.phase == "START" and event.comm not in ended
    }
    return {
        id(step): step._replace(event=begin.with_fields(phase="COMPLETE", message=event.message))
        for step, event in inits
        if event.phase == "COMPLETE" and named[event.comm] == 1 and (begin := begun.get((event.rank, event.nranks)))
    }
