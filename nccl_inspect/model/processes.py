"""Who printed what in a log: processes, their lives one after the other, and the communicators that they form.

Several processes may have the same host name and pid: pods with own pid numbers, containers started again. A
collector's name for the printer keeps pods apart. A process says once over which interface it bootstraps; when it says
so again after it had a communicator, it is another one. What a collector gave twice counts once, and what only torn
lines state does not count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process
from nccl_inspect.event.types import ChannelConnect, CommInit, Event, NetworkInUse
from nccl_inspect.ingest.lines.prefix import is_masked
from nccl_inspect.model.communicators import communicator, members
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import ProcessMembers
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.fold import Burst, Fold, Note, ProcessLog, Step
from nccl_inspect.model.fold.process_log import CallKey, Tally, merge_calls, source_and_line
from nccl_inspect.model.fold.source_counts import SourceCounts
from nccl_inspect.model.statements.index import Line, StatementLine
from nccl_inspect.scanning.found import Edge
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.levels import STATEMENTS

if TYPE_CHECKING:
    from nccl_inspect.model.jobs.shares import Share

_BELIEVED, _PER_STEP = 1 << 18, 128
"""Ranks that communicators may claim though no line names them: in all, and more for each line that orders them.

The log of one rank of the largest runs claims that many, in some communicators of the world; more is damage.
"""
_MOST = 1 << 16
"""Communicators with an id of their own that are judged: a hundred times those of the largest runs."""


class Gathered:
    """The processes of a log, or of one job in it.

    Args:
        passed_on: lines may have lost the name of their host before they were passed on.
        repeated: lines that were left out because they had been collected before, by process.
    """

    def __init__(
        self,
        everything: list[ProcessLog],
        passed_on: bool,
        repeated: Mapping[Process, list[Step | Burst]],
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

    @property
    def living(self) -> Iterator[ProcessLog]:
        """Return all of these processes."""
        return chain.from_iterable(self.lives)

    @classmethod
    def gather(cls, fold: Fold | Share) -> Gathered:
        """Return all processes of a fold, or of a share of one."""
        if not isinstance(fold, Fold):
            return fold.gather()
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
    processes = [members.walk_steps(log) for log in logs]
    communicators = communicator.join(processes)
    if refused := _find_refused(communicators, steps):
        processes = [members.walk_steps(_leave_out(log, refused.get(log.process, ()))) for log in logs]
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


def _find_refused(communicators: Iterable[Communicator], steps: int) -> dict[Process, dict[str, int]]:
    """Return the pointers of communicators with more ranks that no line names than a log of that size is believed."""
    refused: dict[Process, dict[str, int]] = {}
    room = _BELIEVED + steps * _PER_STEP
    for comm in sorted(communicators, key=lambda comm: comm.nranks - len(comm.members)):
        room -= comm.nranks - len(comm.members)
        for member in comm.members.values() if room < 0 else ():
            refused.setdefault(member.log.process, {})[member.init.comm] = member.first.place
    return refused


def _leave_out(log: ProcessLog, comms: Collection[str]) -> ProcessLog:
    """Return what a process printed but for what it says of some communicators."""
    return replace(log, steps=[step for step in log.steps if getattr(step.event, "comm", None) not in comms])


# Who is one process, and its lives

_FEW, _MANY = 3, 10
_MAX_ALIKE = 64
"""Processes of one id among which that one is looked for to which a torn name belongs."""
_MAX_LIVES = 500
"""Most starts of one container that are distinguished, the newest ones."""


def apart(logs: Iterable[ProcessLog]) -> list[ProcessLog]:
    """Return the logs of all processes; what one printed under several names of its collector is put together."""
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
        if earlier := notes.get(key):
            note = replace(earlier, count=earlier.count + note.count, last=max(earlier.last, note.last))
        notes[key] = note
    calls: dict[CallKey, Tally] = {}
    for log in sorted(logs, key=lambda log: log.first):
        merge_calls(calls, {key: replace(tally) for key, tally in log.calls.items()}, lambda place: place)
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


def raised_by(
    sources: Mapping[int, SourceCounts], processes: Iterable[ProcessMembers], ranks: Mapping[Process, list[int]]
) -> dict[tuple[str, int], int]:
    """Return the ranks of labelled exceptions, by source and number of the line.

    They are those of the processes of which NCCL's lines have the same label: a task of srun may have launched several.
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
    """Return the last line of a process of which more than its place is kept."""
    ends = [*([stated] if stated else []), *log.steps[-1:], *log.open.values()]
    match max(ends, key=lambda end: end.place if isinstance(end, StatementLine) else _end(end), default=None):
        case StatementLine() as last:
            return last.line(line)
        case Step() as last:
            return line(last.place, last.origin, "INFO", last.event.message)
        case Burst(final=edge):
            return line(edge.place, edge.origin, edge.level, edge.message)
    return None


_FIRST = 0
"""The CUDA device of a process that sees one GPU."""
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
            origin.device == _FIRST
            for log in logs
            for origin in chain((log.opening, log.final), (step.origin for step in log.steps))
        )
        if host and (by_init or by_lines):
            isolated.append(host)
    return isolated


# Lines that were collected twice


class _Copy:
    """Holds what one collector gave of the lines of a process, from one place to another."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.opening: Step | Burst | None = None
        """Its first step."""
        self.first = ""
        """The first of its proofs."""
        self.proofs: set[str] = set()
        """Lines that occur only once in a log."""
        self.completed = False
        """Whether one of them completes a communicator."""
        self.steps = 0
        self.messages: set[tuple[int, str]] = set()
        """Its lines but for connections, with their threads."""
        self.edges: dict[tuple[object, ...], int] = {}
        """The channels of its connections."""
        self.is_kept = True

    def add(self, step: Step | Burst) -> None:
        """Take in what one line said, or several about connections."""
        self.steps += 1
        self.opening = self.opening or step
        if isinstance(step, Step):
            self.messages.add((step.printed.tid, step.event.message))
            return
        for key, edge in step.edges.items():
            place = step.key.tid, step.key.conn, *key
            self.edges[place] = self.edges.get(place, 0) | edge.channels

    def holds(self, other: _Copy) -> bool:
        """Return whether all that another one says stands here, too, lines among it that come once only."""
        return (
            other.proofs <= self.proofs
            and other.messages <= self.messages
            and all(not channels & ~self.edges.get(place, 0) for place, channels in other.edges.items())
        )


def leave_out_repeats(log: ProcessLog) -> tuple[ProcessLog, list[Step | Burst]]:
    """Return the log of a process with each line once, and the first steps of what was left out."""
    proofs = [step.event.message for step in log.steps if type(step.event) is events.CommInit and step.event.comm_id]
    if len(set(proofs)) == len(proofs):
        return log, []
    copies = _copies(log)
    kept: list[_Copy] = []
    for copy in sorted(copies, key=lambda copy: (-len(copy.proofs), -copy.steps)):  # the most complete one is kept
        copy.is_kept = not copy.proofs or not any(other.holds(copy) for other in kept)
        if copy.is_kept:
            kept.append(copy)
    begins = [copy.begin for copy in copies]

    def is_kept(place: int) -> bool:
        return copies[max(0, bisect_left(begins, place + 1) - 1)].is_kept

    steps = [step for step in log.steps if is_kept(step.place)]
    left_out = [copy.opening for copy in copies if copy.opening and not copy.is_kept]
    return replace(log, steps=steps, bootstraps=list(filter(is_kept, log.bootstraps))), left_out


def _copies(log: ProcessLog) -> list[_Copy]:
    """Return the copies in their order: in each source one, and where one begins again as the last one did."""
    copies: list[_Copy] = []
    source = -1
    for step in log.steps:
        here, event = source_and_line(step.place)[0], _proof(step)
        if here != source:
            source = here
            copies.append(_Copy(step.place))
        elif event and copies[-1].completed and event.message == copies[-1].first:
            copies.append(_Copy(step.place))
        copies[-1].add(step)
        if event:
            copies[-1].first = copies[-1].first or event.message
            copies[-1].proofs.add(event.message)
            copies[-1].completed |= event.phase == "COMPLETE"
    return copies


def _proof(step: Step | Burst) -> events.CommInit | None:
    """Return the event, if its line can occur only once in a log."""
    event = step.event
    return event if isinstance(event, events.CommInit) and event.comm_id else None


# What only torn lines state

_FEW_LINES, _MANY_LINES = 2, 50
"""Lines of what looks like a network, where another one has many."""
_BUILT_IN = ("IB", "Socket")
_USUAL = 10
"""Lines that most processes print."""
_Way: TypeAlias = tuple[object, ...]


def _leave_out_damage(fold: Fold, logs: list[ProcessLog]) -> list[ProcessLog]:
    """Return what processes printed, without what is damage in the sources of a log."""
    torn = {index for index, source in fold.sources_by_number.items() if source.counts.is_torn}
    if not torn:
        return logs
    # Where others say much, a line or two without an error name a process by a torn host or id: a process says more
    # than that before it has a communicator.
    sizes = sorted(len(log.steps) + len(log.notes) for log in logs)
    if sizes and sizes[len(sizes) // 2] >= _USUAL:
        logs = [
            log
            for log in logs
            if len(log.steps) + len(log.notes) > _FEW_LINES
            or not log.process.host
            or source_and_line(log.first)[0] not in torn
            or any(note.level in STATEMENTS for note in log.notes.values())
        ]
    damage = _Damage(fold, torn, logs)
    return [damage.leave_out(log) for log in logs]


class _Damage:
    """Holds what the sound lines of a torn log state, by which damage is known."""

    def __init__(self, fold: Fold, torn: set[int], logs: Iterable[ProcessLog]) -> None:
        self._torn = torn
        self._doubtful = {index: source.counts.doubtful for index, source in fold.sources_by_number.items()}
        self._ways: set[_Way] = set()
        self._ways_of: dict[Process, set[_Way]] = {}
        self._networks: Counter[str] = Counter()
        """How many lines name each network."""
        self._texts: set[bytes] = set()
        self._kinds: set[tuple[str, str] | None] = set()
        for log in logs:
            ways = self._ways_of.setdefault(log.process, set())
            for step in log.steps:
                if isinstance(step, Burst):
                    ways.update(_way(edge.event) for edge in step.edges.values() if not self._is_doubtful(edge))
                    for edge in step.edges.values():
                        if edge.event.net:
                            self._networks[edge.event.net] += edge.lines
                elif isinstance(step.event, NetworkInUse):
                    self._networks[step.event.net] += 1
            self._ways |= ways
            sound = [note for note in log.notes.values() if not self._is_in_doubt(note)]
            self._texts.update(note.message for note in sound)
            self._kinds.update(map(_kind, sound))

    def leave_out(self, log: ProcessLog) -> ProcessLog:
        """Return what a process printed, without damage."""
        bad = {id(step) for step in log.steps if isinstance(step, Step) and self._is_no_network(step.event)}
        ends = _ends_of_known(log)
        for burst in (step for step in log.steps if isinstance(step, Burst)):
            bad |= {id(edge) for edge in burst.edges.values() if self._is_damage(log.process, edge)}
        notes = {  # but for those that others state in other words only
            key: note
            for key, note in log.notes.items()
            if not self._is_in_doubt(note) or note.message in self._texts or _kind(note) not in self._kinds
        }
        if not (bad or ends) and len(notes) == len(log.notes):
            return log
        steps: list[Step | Burst] = []
        for step in log.steps:
            if isinstance(step, Step):
                steps += [ends.get(id(step), step)] if id(step) not in bad else []
            elif edges := {key: edge for key, edge in step.edges.items() if id(edge) not in bad}:
                steps.append(step if len(edges) == len(step.edges) else replace(step, edges=edges))
        return replace(log, steps=steps, notes=notes)

    def _is_damage(self, process: Process, edge: Edge) -> bool:
        if edge.lines > 1 or source_and_line(edge.place)[0] not in self._torn:
            return False
        if self._is_no_network(edge.event):
            return True
        # No sound line names this way: of the process, or of any if it has none of this transport.
        own = {way for way in self._ways_of.get(process, ()) if way[0] == edge.event.transport}
        return self._is_doubtful(edge) and _way(edge.event) not in (own or self._ways)

    def _is_no_network(self, event: Event) -> bool:
        """Return whether hardly a line names a network where many name another one."""
        net = event.net if isinstance(event, ChannelConnect | NetworkInUse) else None
        is_rare = net is not None and net not in _BUILT_IN and self._networks[net] <= _FEW_LINES
        return is_rare and max(self._networks.values()) >= _MANY_LINES

    def _is_doubtful(self, edge: Edge) -> bool:
        return edge.lines == 1 and self._is_in_doubtful_line(edge.place)

    def _is_in_doubt(self, note: Note) -> bool:
        return note.count == 1 and note.level not in STATEMENTS and self._is_in_doubtful_line(note.place)

    def _is_in_doubtful_line(self, place: int) -> bool:
        source, line = source_and_line(place)
        return line in self._doubtful[source]


def _kind(note: Note) -> tuple[str, str] | None:
    return (note.event.dialect, note.event.production) if note.event else None


def _way(event: ChannelConnect) -> _Way:
    """Return what the ways of a process have in common with those of others."""
    return event.transport, event.mechanism, event.net, event.read, event.gdr, event.gdr_pci


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
