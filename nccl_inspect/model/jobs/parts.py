"""The parts of a log that communicators hold together: a run of a job, or a group of its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from nccl_inspect.event import types as events
from nccl_inspect.event.base import NO_HOST, Process, is_named
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.fold.fold import Burst, ProcessLog, Step
from nccl_inspect.model.fold.process_log import source_and_line
from nccl_inspect.util.times import are_in_order, moment

_BEGINNING = (events.NcclVersion, events.CudaDriver, events.NetDevices)


class Unions:
    """Numbered things that belong together, joined pair by pair.

    Args:
        number: of things.
    """

    def __init__(self, number: int) -> None:
        self._above = list(range(number))

    def find_root(self, item: int) -> int:
        """Return the number of the first thing that this one belongs to."""
        while self._above[item] != item:
            self._above[item] = self._above[self._above[item]]
            item = self._above[item]
        return item

    def join(self, first: int, other: int) -> None:
        """Two things belong together, and all that belongs to them."""
        first, other = sorted((self.find_root(first), self.find_root(other)))
        self._above[other] = first

    def groups(self) -> list[list[int]]:
        """Return the things that belong together, in the order of their numbers."""
        groups: dict[int, list[int]] = {}
        for item in range(len(self._above)):
            groups.setdefault(self.find_root(item), []).append(item)
        return list(groups.values())


class Part:
    """Processes that are joined by communicators.

    Args:
        logs: what they printed.
        communicators: of more than one rank.
    """

    def __init__(self, logs: Sequence[ProcessLog], communicators: Sequence[Communicator] = ()) -> None:
        self.logs = logs
        self.communicators = communicators
        self.processes = {log.process for log in logs}
        self.begin = min(log.first for log in logs)
        self.end = max(log.last for log in logs)

        opening = [moment(log.opening.time) for log in logs]
        final = [moment(log.final.time) for log in logs]
        is_ordered = are_in_order(*opening, *final)
        self.began = min(time for time in opening if time) if is_ordered else None
        """When the first process began, where all lines have times of one clock."""
        self.ended = max(time for time in final if time) if is_ordered else None

    @cached_property
    def hosts(self) -> set[str]:
        """Their hosts; those that the log does not name are one."""
        return {log.process.host if is_named(log.process.host) else NO_HOST for log in self.logs}

    @cached_property
    def extents(self) -> dict[str | int, tuple[int, int]]:
        """Return the first and the last place of each host, and in each source."""
        extents: dict[str | int, tuple[int, int]] = {}
        for log in self.logs:
            for place in (log.first, *(step.place for step in log.steps), log.last):
                for key in (log.process.host, source_and_line(place)[0]):
                    first, last = extents.get(key, (place, place))
                    extents[key] = min(first, place), max(last, place)
        return extents

    @property
    def sources(self) -> list[int]:
        """Return the numbers of the sources that have lines of them."""
        return [key for key in self.extents if isinstance(key, int)]

    @cached_property
    def roots(self) -> list[Communicator]:
        """Return the communicators that are not splits."""
        return [comm for comm in self.communicators if comm.parent is None and not comm.orphan]

    @cached_property
    def sizes(self) -> set[int]:
        """Return the numbers of ranks that communicators have."""
        return {comm.nranks for comm in self.communicators}

    @cached_property
    def size(self) -> int:
        """Ranks of the largest communicator."""
        return max(self.sizes, default=0)

    @cached_property
    def missing(self) -> int:
        """Ranks of one communicator that the log does not show."""
        return max((comm.nranks - len(comm.members) for comm in self.communicators), default=0)

    @cached_property
    def is_whole(self) -> bool:
        """Return whether every rank of every communicator is here, and so is its beginning."""
        return bool(self.roots) and not self.missing and not any(comm.orphan for comm in self.communicators)

    @cached_property
    def has_begun_here(self) -> bool:
        """Return whether the log has its beginning: what each process prints once, or else nothing before START."""
        notes = (note for log in self.logs for note in log.notes.values())
        if any(log.bootstraps for log in self.logs) or any(isinstance(note.event, _BEGINNING) for note in notes):
            return True
        return all(log.steps and log.steps[0].place == log.first and _is_start(log.steps[0]) for log in self.logs)

    @cached_property
    def is_unfinished(self) -> bool:
        """Return whether no rank completed a communicator."""
        return not any(member.completed for comm in self.communicators for member in comm.members.values())

    @cached_property
    def gpus(self) -> set[tuple[str, str]]:
        """Host and PCI bus id of the GPUs that the log shows."""
        members = (member for comm in self.communicators for member in comm.members.values())
        return {(member.log.process.host, member.init.bus_id) for member in members if member.init.bus_id}

    @cached_property
    def settings(self) -> dict[str, set[str]]:
        """Return what its processes say of the release and of their settings, by name."""
        statements: dict[str, set[str]] = {}
        for log in self.logs:
            for note in log.notes.values():
                if isinstance(note.event, events.NcclVersion):
                    statements.setdefault("", set()).add(note.event.version)
                elif isinstance(note.event, events.EnvSetting):
                    statements.setdefault(note.event.name, set()).add(note.event.value)
        return statements

    def state(self, release: str) -> None:
        """Take in what nobody else can have said of the release."""
        self.settings.setdefault("", set()).add(release)

    def contradicts(self, other: Part) -> bool:
        """Return whether both state the release or a setting, and nothing that they state of it is the same."""
        mine, theirs = self.settings, other.settings
        return any(mine[name].isdisjoint(theirs[name]) for name in mine.keys() & theirs.keys())

    def overlaps(self, other: Part) -> bool | None:
        """Return whether both ran at once; None where neither times nor places in one source decide."""
        shared = [key for key in self.sources if key in other.extents]
        if shared:
            mine, theirs = self.extents, other.extents
            return any(mine[key][0] < theirs[key][1] and theirs[key][0] < mine[key][1] for key in shared)
        if self.began and self.ended and other.began and other.ended and are_in_order(self.began, other.began):
            return self.began < other.ended and other.began < self.ended
        return None


def join_processes(communicators: Iterable[Communicator]) -> list[Part]:
    """Processes joined by communicators of more than one rank, in the order of these."""
    comms = [comm for comm in communicators if comm.nranks > 1]
    unions = Unions(len(comms))
    first: dict[Process, int] = {}
    for index, comm in enumerate(comms):
        for earlier in {first.setdefault(member.log.process, index) for member in comm.members.values()}:
            unions.join(earlier, index)
    parts = []
    for group in unions.groups():
        logs = {member.log.process: member.log for index in group for member in comms[index].members.values()}
        parts.append(Part(list(logs.values()), [comms[index] for index in group]))
    return parts


def _is_start(step: Step | Burst) -> bool:
    return isinstance(step, Step) and isinstance(step.event, events.CommInit) and step.event.phase == "START"
