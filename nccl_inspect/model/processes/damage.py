"""Leaves out what only torn lines state and no sound line of the job confirms.

A line that was put together from two places, split, or cut off may be read as something that nobody printed: a network
``IBgpu-nod``, a connection without its ``/GDRDMA``, a host ``gpu--node-1``. What sound lines state too is believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from nccl_inspect.event.types import ChannelConnect, CommInit, Event, NetworkInUse
from nccl_inspect.model.fold.fold import Burst, Fold, ProcessLog, Step
from nccl_inspect.model.fold.note import Note
from nccl_inspect.model.fold.places import source_and_line
from nccl_inspect.model.fold.process_log import Edge
from nccl_inspect.model.fold.step import step_of
from nccl_inspect.util.levels import STATEMENTS

_FEW, _MANY = 2, 50
"""Lines of what looks like a network, where another one has many."""
_BUILT_IN = ("IB", "Socket")
_USUAL = 10
"""Lines that most processes print."""
_Way: TypeAlias = tuple[object, ...]


class Damage:
    """What is torn in the sources of a log.

    Args:
        fold: of all that was read.
    """

    def __init__(self, fold: Fold) -> None:
        self._doubtful = {index: source.counts.doubtful for index, source in fold.numbered.items()}
        self._torn = {index for index, source in fold.numbered.items() if source.counts.is_torn}

    def leave_out(self, logs: Iterable[ProcessLog]) -> list[ProcessLog]:
        """Return what processes printed, without what is damage."""
        logs = list(logs)
        if not self._torn:
            return logs
        logs = self._without_nobody(logs)
        ways, said = _Ways(), _Sayings()
        for log in logs:
            ways.count_used(log)
            for burst in _bursts(log):
                ways.count(log, burst, (edge for edge in burst.own.values() if not self._is_doubtful(edge)))
            said.count(note for note in log.notes.values() if not self._is_in_doubt(note))
        return [self._without_damage(log, ways, said) for log in logs]

    def _without_damage(self, log: ProcessLog, ways: _Ways, said: _Sayings) -> ProcessLog:
        bad = {id(step) for step in log.steps if isinstance(step, Step) and ways.is_no_network(step.event)}
        ends = _ends_of_known(log)
        for burst in _bursts(log):
            if any(map(ways.is_no_network, burst.kinds)):
                _ = burst.edges  # makes objects of columns
        bad |= {id(edge) for burst in _bursts(log) for edge in burst.own.values() if self._is_damage(log, edge, ways)}
        notes = {
            key: note for key, note in log.notes.items() if not (self._is_in_doubt(note) and said.is_unlike_all(note))
        }
        if not (bad or ends) and len(notes) == len(log.notes):
            return log
        whole = (ends.get(id(step), step) for step in log.steps if id(step) not in bad)
        steps = [_without(step, bad) if isinstance(step, Burst) else step for step in whole]
        return replace(log, steps=[step for step in steps if step is not None], own=notes)

    def _without_nobody(self, logs: list[ProcessLog]) -> list[ProcessLog]:
        """Return the processes without those that only a line or two name, by a torn host or id, where others say much.

        A process says more than that before it has a communicator.
        """
        sizes = sorted(len(log.steps) + log.note_count for log in logs)
        if not sizes or sizes[len(sizes) // 2] < _USUAL:
            return logs
        return [log for log in logs if len(log.steps) + log.note_count > _FEW or not self._is_silent(log)]

    def _is_silent(self, log: ProcessLog) -> bool:
        """Whether a process of a torn source states no error."""
        is_torn = source_and_line(log.first)[0] in self._torn
        return bool(log.process.host) and is_torn and not any(note.level in STATEMENTS for note in log.notes.values())

    def _is_damage(self, log: ProcessLog, edge: Edge, ways: _Ways) -> bool:
        if edge.lines > 1 or source_and_line(edge.place)[0] not in self._torn:
            return False
        return ways.is_no_network(edge.event) or (self._is_doubtful(edge) and ways.is_new(log, edge.event))

    def _is_doubtful(self, edge: Edge) -> bool:
        return edge.lines == 1 and self._is_at(edge.place, self._doubtful)

    def _is_in_doubt(self, note: Note) -> bool:
        return note.count == 1 and note.level not in STATEMENTS and self._is_at(note.place, self._doubtful)

    def _is_at(self, place: int, lines: dict[int, set[int]]) -> bool:
        source, line = source_and_line(place)
        return line in lines[source]


class _Ways:
    """The ways that sound lines name."""

    def __init__(self) -> None:
        self._all: set[_Way] = set()
        self._by_process: dict[object, set[_Way]] = {}
        self._networks: Counter[str] = Counter()

    def count_used(self, log: ProcessLog) -> None:
        """Take in the networks that communicators use."""
        for step in log.steps:
            if isinstance(step, Step) and isinstance(step.event, NetworkInUse):
                self._networks[step.event.net] += 1

    def count(self, log: ProcessLog, burst: Burst, sound: Iterable[Edge]) -> None:
        """Take in the edges of a burst."""
        own = self._by_process.setdefault(log.process, set())
        in_columns = [kind for part in burst.rows for kind in part.lines_by_kind()]
        own.update(map(_way, (*(edge.event for edge in sound), *(kind for kind, _ in in_columns))))
        self._all |= own
        every = [*((edge.event, edge.lines) for edge in burst.own.values()), *in_columns]
        for event, lines in every:
            if event.net:
                self._networks[event.net] += lines

    def is_new(self, log: ProcessLog, event: ChannelConnect) -> bool:
        """Whether no sound line names this way: of the process, or of any where it has none of this transport."""
        own = {way for way in self._by_process.get(log.process, ()) if way[0] == event.transport}
        return _way(event) not in (own or self._all)

    def is_no_network(self, event: Event) -> bool:
        """Whether hardly a line names a network where many name another one."""
        net = event.net if isinstance(event, ChannelConnect | NetworkInUse) else None
        is_rare = net is not None and net not in _BUILT_IN and self._networks[net] <= _FEW
        return is_rare and max(self._networks.values()) >= _MANY


class _Sayings:
    """What sound lines state, and of which kinds that is."""

    def __init__(self) -> None:
        self._texts: set[bytes] = set()
        self._kinds: set[tuple[str, str] | None] = set()

    def count(self, notes: Iterable[Note]) -> None:
        """Take in statements."""
        for note in notes:
            self._texts.add(note.message)
            self._kinds.add(_kind(note))

    def is_unlike_all(self, note: Note) -> bool:
        """Whether others state this in other words only."""
        return note.message not in self._texts and _kind(note) in self._kinds


def _kind(note: Note) -> tuple[str, str] | None:
    return (note.event.dialect, note.event.production) if note.event else None


def _way(event: ChannelConnect) -> _Way:
    """What the ways of a process have in common with those of others."""
    return event.transport, event.mechanism, event.net, event.read, event.gdr, event.gdr_pci


def _bursts(log: ProcessLog) -> Iterator[Burst]:
    return (step for step in log.steps if isinstance(step, Burst))


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
        id(step): step_of((step.place, step.printed, begin.with_fields(phase="COMPLETE", message=event.message)))
        for step, event in inits
        if event.phase == "COMPLETE" and named[event.comm] == 1 and (begin := begun.get((event.rank, event.nranks)))
    }


def _without(burst: Burst, bad: set[int]) -> Burst | None:
    """Return a burst without some of its edges; None if it has no other."""
    own = {key: edge for key, edge in burst.own.items() if id(edge) not in bad}
    if len(own) == len(burst.own):
        return burst
    return replace(burst, own=own) if own or burst.rows else None
