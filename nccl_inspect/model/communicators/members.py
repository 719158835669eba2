"""Which communicators each process has, and which lines belong to them.

Lines between START and COMPLETE of a thread belong to that communicator (so all connections until 2.21); later ones
name no communicator and are left as loose bursts for :mod:`nccl_inspect.model.communicators.attribution`. Until 2.18.2
there is no START: what a thread printed before COMPLETE belongs to it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process
from nccl_inspect.model.fold import Burst, ProcessLog, Step
from nccl_inspect.util.records import Record, Slotted, record

if TYPE_CHECKING:
    from nccl_inspect.model.communicators.communicator import Communicator


_OF_COMMUNICATORS = (
    *(events.CommInit, events.CommSplit, events.CommNoColor),
    *(events.NetworkInUse, events.CommShape, events.CommEnd),
)
"""Events that say which communicator a thread is busy with, or that name one."""
RINGS_AND_TREES = 0  # the connection set of collectives
SEND_RECV = 1  # that of send/recv, of which no line says that it is complete
_PLACE = attrgetter("place")


class Gpu(NamedTuple):
    """A GPU in the hands of a process."""

    process: Process
    device: str  # its PCI bus id, or its CUDA number where the log has no bus id


_NO_RINGS = dict[int, events.RingOrder]()  # that of all members without one: a program may make millions
_Thing = TypeVar("_Thing")


def with_more(some: list[_Thing] | tuple[()], *more: _Thing) -> list[_Thing]:
    """Return a list with more in it: the same, unless it is that of all members who have nothing."""
    if not some:
        return [*more]
    some.extend(more)
    return some


@record
class Member(Slotted):
    """One rank of one communicator, as its process shows it."""

    log: ProcessLog
    init: events.CommInit
    first: Step  # the line that showed it first: START, or COMPLETE where there is no START
    started: Step | None = None
    completed: Step | None = None
    ended: Step | None = None
    split: events.CommSplit | None = None
    parent: Member | None = None
    ordinal: int | None = None  # its number among the children of its parent, from 1; as printed, or counted
    shape: events.CommShape | None = None
    network_line: Step | None = None  # the line that names the network
    counts: events.ChannelCounts | None = None
    rings: dict[int, events.RingOrder] = field(default_factory=lambda: _NO_RINGS)
    trees: tuple[tuple[int, ...], ...] = ()
    layout: list[Step] | tuple[()] = ()  # its lines that print numbers of channels, rings and trees
    connected: list[Step] | tuple[()] = ()  # its ``Connected …`` lines
    bursts: list[Burst] | tuple[()] = ()
    communicator: Communicator | None = None
    went_on: int = 0
    """Where its process last began or destroyed a communicator, if it drives one GPU only: it does so when the
    connections that it was making are there."""
    rank: int = field(init=False)  # the rank within the communicator
    gpu: Gpu = field(init=False)  # what stays the same for this rank in all communicators
    device_names: frozenset[str] = field(init=False)
    """How brackets of connection lines may name the GPU of this rank: nvmlDev, PCI bus id or cudaDev."""

    def __post_init__(self) -> None:
        init = self.init
        self.rank = init.rank
        self.gpu = _gpu(self.log.process, init.bus_id or f"cuda{init.cuda_dev}")
        self.device_names = _names(init.bus_id, init.nvml_dev, init.cuda_dev)

    @property
    def network(self) -> str | None:
        """Return the network that carries its traffic between hosts."""
        event = self.network_line.event if self.network_line else None
        return event.net if isinstance(event, events.NetworkInUse) else None

    def is_called(self, device: str | None) -> bool:
        """Return whether a bracket can mean the GPU of this rank."""
        return not device or not self.device_names or device in self.device_names

    @property
    def is_root(self) -> bool:
        """Return whether the communicator was not split from another one."""
        return self.init.parent is None and self.split is None

    def lives_at(self, place: int) -> bool:
        """Return whether the communicator existed in this process when the line at ``place`` was printed."""
        return self.first.place <= place and (self.ended is None or place <= self.ended.place)


_gpu = lru_cache(maxsize=1024)(Gpu)


@lru_cache(maxsize=1024)
def _names(bus_id: str | None, nvml_dev: int | None, cuda_dev: int | None) -> frozenset[str]:
    """Return how brackets of connection lines may name a GPU."""
    names = (nvml_dev, bus_id, cuda_dev if nvml_dev is None else None)
    return frozenset([str(name) for name in names if name is not None])


@record
class ProcessMembers(Record):
    """The communicators of one process and the bursts that name none."""

    log: ProcessLog
    members: list[Member] = field(default_factory=list)
    loose: list[Burst] = field(default_factory=list)
    connected: list[Step] = field(default_factory=list)
    """``Connected …`` lines that name no communicator: they follow the bursts of their thread."""
    callers: set[int] = field(default_factory=set)
    """The threads that call NCCL, as far as they show: the main one, and those that begin communicators."""
    by_caller: bool = False  # whether such a thread connects, as since 2.28; before, helper threads did

    @property
    def bursts(self) -> list[Burst]:
        """Return all of them: of members, then those that name none."""
        return [*(burst for member in self.members for burst in member.bursts), *self.loose]

    def is_apart(self, burst: Burst) -> bool:
        """Return whether a loose burst may have connections of several communicators: no line says otherwise."""
        return self.by_caller and burst.key.conn != RINGS_AND_TREES


def walk_steps(log: ProcessLog) -> ProcessMembers:
    """Walk through the steps of a process in their order."""
    walk = _Walk(log)
    for step in log.steps:
        walk.take(step)
    return walk.finish()


class _Walk:
    def __init__(self, log: ProcessLog) -> None:
        self._found = ProcessMembers(log, callers={log.process.pid})
        self._log = log
        self._building: dict[int, Member] = {}  # the communicator that each thread is between START and COMPLETE of
        self._live: dict[str, Member] = {}
        self._waiting: defaultdict[int, list[Step | Burst]] = defaultdict(list)
        """What each thread printed outside of START and COMPLETE."""
        self._splits: dict[int, events.CommSplit] = {}
        self._networks: dict[int, Step] = {}
        """The ``Using network`` line of each thread, which belongs to the communicator that follows."""
        self._children: defaultdict[int, int] = defaultdict(int)
        self._miscounted = False  # whether a child may have been counted for the wrong parent

    def take(self, step: Step | Burst) -> None:
        """Take in what says which communicator a thread is busy with, or give a line to that communicator."""
        tid = step.printed.tid
        if isinstance(step, Burst) or not isinstance(step.event, _OF_COMMUNICATORS):
            if not (member := self._building.get(tid)) or not _give(member, step):
                self._waiting[tid].append(step)
            return
        match step.event:
            case events.CommInit() as event:
                self._init(tid, step, event)
            case events.CommSplit() as event:
                self._splits[tid] = event
            case events.NetworkInUse():
                self._networks[tid] = step
            case events.CommShape(comm=comm) as event:
                if member := self._live.get(comm) or self._building.get(tid):
                    member.shape = event
            case events.CommEnd(comm=comm):
                if member := self._live.pop(comm, None):
                    member.ended = step
            case events.CommNoColor(rank=rank):  # a child of the only communicator that it can be
                roots = [member for member in self._live.values() if member.is_root and member.rank == rank]
                if len(roots) > 1:
                    roots = [member for member in roots if member.first.printed.tid == tid]
                if len(roots) == 1:
                    self._children[id(roots[0])] += 1
                elif roots:
                    self._miscounted = True

    def _init(self, tid: int, step: Step, event: events.CommInit) -> None:
        member = self._building.get(tid)
        if member is None or member.init.comm != event.comm:
            member = self._live.get(event.comm)
            ours = member is not None and member.rank == event.rank
            if member is not None and not (ours and (not member.completed or _is_repeated(member, event))):
                member = None
        if member is not None and _is_repeated(member, event):
            return  # what collects the log has this line twice
        if event.phase == "START":
            self._building[tid] = self._begin(tid, step, event)
            self._building[tid].started = step
            return
        if member is None:
            # Without START (until 2.18.2, or lost) it gets what its thread printed before COMPLETE and what fits.
            member = self._begin(tid, step, event)
            self._waiting[tid] = [waiting for waiting in self._waiting.pop(tid, []) if not _give(member, waiting)]
        member.completed = step
        began = member.first.printed.tid
        if self._building.get(began) is member:
            del self._building[began]

    def _begin(self, tid: int, step: Step, event: events.CommInit) -> Member:
        self._found.callers.add(tid)
        member = Member(self._log, event, step, split=self._splits.pop(tid, None))
        member.network_line = self._networks.pop(tid, None)
        pointer = event.parent or (member.split.parent if member.split else None)
        if pointer is not None:
            member.parent = self._live.get(pointer)
        elif member.split is not None:  # 2.18 to 2.20.2 do not name it: it is known only where there is one root
            roots = [other for other in self._live.values() if other.is_root and other.gpu == member.gpu]
            member.parent = roots[0] if len(roots) == 1 else None
        if member.parent is not None:
            self._children[id(member.parent)] += 1
            counted = None if self._miscounted else self._children[id(member.parent)]
            member.ordinal = event.ordinal or counted
        if (before := self._live.get(event.comm)) and before.ended is None:
            before.ended = step  # 2.30.3 and later do not print the end; the pointer is used again
        self._live[event.comm] = member
        self._found.members.append(member)
        return member

    def finish(self) -> ProcessMembers:
        """Return what was found, and what names no communicator."""
        result = self._found
        loose = result.loose
        for tid, waiting in self._waiting.items():
            begin = len(loose)
            for step in waiting:
                if isinstance(step, Burst):
                    loose.append(step)
                elif isinstance(step.event, events.Connected):
                    result.connected.append(step)
                else:
                    # Of a communicator whose START is missing (torn, or before the log): only one can have it.
                    members = [member for member in result.members if member.lives_at(step.place)]
                    if len(members) == 1:
                        _give(members[0], step)
            result.by_caller |= len(loose) > begin and tid in result.callers
        loose.sort(key=_PLACE)
        if len({member.gpu.device for member in result.members}) == 1:
            # Where one began or was destroyed: an abort may come from another thread while connections are made.
            went_on = max(
                member.ended.place
                if member.ended
                and isinstance(member.ended.event, events.CommEnd)
                and member.ended.event.how == "Destroy"
                else member.first.place
                for member in result.members
            )
            for member in result.members:
                member.went_on = went_on
        return result


def _is_repeated(member: Member, event: events.CommInit) -> bool:
    """Return whether a line stood before, word by word, and nothing that could make it mean another communicator."""
    earlier = member.started if event.phase == "START" else member.completed
    if earlier is None or earlier.event.message != event.message:
        return False
    if event.phase == "START":
        return member.ended is None
    return member.started is not None or event.comm_id is not None


def _give(member: Member, step: Step | Burst) -> bool:
    """Add a line to a member; but for connections that it cannot have, as far as the member alone shows."""
    if isinstance(step, Burst):
        if step.key.rank != member.rank or step.highest >= member.init.nranks:
            return False
        member.bursts = with_more(member.bursts, step)
        return True
    match step.event:
        case events.TreeLinks(trees=trees):
            member.trees = member.trees or trees
        case events.ChannelCounts() as counts:
            member.counts = counts
        case events.RingOrder(channel=channel) as ring:
            member.rings = member.rings or {}
            member.rings.setdefault(channel, ring)
        case events.Connected():
            member.connected = with_more(member.connected, step)
            return True
    member.layout = with_more(member.layout, step)
    return True
