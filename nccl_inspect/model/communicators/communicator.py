"""Which communicators each process has, which lines belong to them, and what all processes together show of each.

Lines between START and COMPLETE of a thread belong to that communicator (so all connections until 2.21); later ones
name no communicator and are left as loose bursts for :mod:`nccl_inspect.model.communicators.attribution`. Until 2.18.2
there is no START: what a thread printed before COMPLETE belongs to it.

Members of all processes are joined: a root communicator is known by its commId (2.16 and later), a split by its parent,
its ordinal and its colour. The pointers are those of one process, and until 2.22 splits of equal colour share their
commId. The world is the communicator whose ranks are the global ones.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple, TypeVar

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process, is_named
from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.model.fold import OF_COMMUNICATORS, PLACE, Burst, ProcessLog, Step, source_and_line
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Record, Slotted

RINGS_AND_TREES = 0  # the connection set of collectives
SEND_RECV = 1  # that of send/recv, of which no line says that it is complete


# The communicators of one process


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
        if isinstance(step, Burst) or not isinstance(step.event, OF_COMMUNICATORS):
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
        loose.sort(key=PLACE)
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


# Members of all processes, put together


class Claims(NamedTuple):
    """Holds what a connection line says that only some communicators can have."""

    other: int | None  # the rank at its other end; None for CollNet
    own_device: str | None
    other_device: str | None  # its GPU as the bracket names it
    is_local: bool


def read_claims(event: events.ChannelConnect) -> Claims:
    """Return what a connection line says of its ends."""
    if event.direction == "receive":
        return Claims(event.src, event.dst_dev, event.src_dev, event.is_local)
    return Claims(event.dst, event.src_dev, event.dst_dev, event.is_local)


class Joiner:
    """Puts members of one size together, given in the order of the log: they may be of one communicator or several."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._claims: dict[int, dict[int, list[Claims]]] = {}
        """By member what the connections that it made inside its START and COMPLETE say of its neighbours."""
        for member in members:
            made = (read_claims(edge.event) for burst in member.bursts for edge in burst.edges.values())
            self._claims[id(member)] = group_values(
                (claim.other, claim) for claim in made if claim.other is not None and claim.other != member.rank
            )

    def groups(self) -> list[list[Member]]:
        """Return the members of each communicator, or of each piece of one."""
        if self.agree(self._members):
            return [list(self._members)]
        turns: Counter[object] = Counter()
        by_turn: dict[int, list[Member]] = {}
        for member in self._members:
            by_turn.setdefault(turns[member.gpu], []).append(member)
            turns[member.gpu] += 1
        groups: list[list[Member]] = []
        rest: list[list[Member]] = []
        for group in by_turn.values():
            whole = len(group) == group[0].init.nranks and self.agree(group)
            (groups if whole else rest).append(group)
        left = [member for group in rest for member in group]
        # A neighbour on another host may be missing, and another one pass for it, unless all find each other.
        pieces = self._link_members(left, local_only=False)
        if any(len(piece) < piece[0].init.nranks for piece in pieces):
            pieces = self._link_members(left, local_only=True)
        return [*groups, *pieces]

    def agree(self, group: Sequence[Member]) -> bool:
        """Return whether these can be one communicator: each rank once, each GPU once, no claim against another."""
        ranks = {member.rank: member for member in group}
        if len(ranks) < len(group) or len({member.gpu for member in group}) < len(group):
            return False
        pairs = ((member, ranks[rank]) for member in group for rank in self._claims[id(member)] if rank in ranks)
        return all(self._accepts(member, mate) for member, mate in pairs)

    def _accepts(self, member: Member, mate: Member) -> bool:
        return all(
            (not claim.is_local or mate.log.process.host == member.log.process.host)
            and mate.is_called(claim.other_device)
            for claim in self._claims[id(member)].get(mate.rank, ())
        )

    def _link_members(self, members: Sequence[Member], *, local_only: bool) -> list[list[Member]]:
        """Return the members joined by claims that only one GPU meets."""
        group_of = {id(member): [member] for member in members}
        by_rank: dict[int, list[Member]] = {}
        for member in members:
            by_rank.setdefault(member.rank, []).append(member)
        for member in members:
            for rank, claims_on_rank in self._claims[id(member)].items():
                if local_only and not any(claim.is_local for claim in claims_on_rank):
                    continue
                # The only GPU that a claim can mean, if that can mean this one only; equal pairs are taken in turn.
                mates = self._both_ways(member, by_rank.get(rank, ()))
                mine = self._both_ways(mates[0], by_rank[member.rank]) if mates and _is_one_gpu(mates) else []
                if member not in mine or not _is_one_gpu(mine) or len(mine) != len(mates):
                    continue
                mate = mates[mine.index(member)]
                if group_of[id(mate)] is group_of[id(member)]:
                    continue
                joined = group_of[id(member)] + group_of[id(mate)]
                if self.agree(joined):
                    group_of.update((id(linked), joined) for linked in joined)
        return list({id(group): group for group in group_of.values()}.values())

    def _both_ways(self, member: Member, others: Iterable[Member]) -> list[Member]:
        return [mate for mate in others if self._accepts(member, mate) and self._accepts(mate, member)]


def _is_one_gpu(members: Sequence[Member]) -> bool:
    return len({(member.log.process.host, member.gpu.device) for member in members}) == 1


_LONGEST_NAME = 160  # a split of a split of a split has such a name; one of hundreds is only numbered
_MAX_LISTED = 1 << 21  # ranks of all communicators together that are listed: a hundred communicators of 16,384 ranks


class Communicator(Slotted):
    """A communicator with all its members that the log shows."""

    name: str  # ``world``, ``split 1 of world``, …: how reports call it
    nranks: int
    parent: Communicator | None = None
    color: int | None = None
    ordinal: int | None = None
    orphan: bool = False  # a split whose parent the log does not show
    members: dict[int, Member] = field(default_factory=dict)
    first: int = 0  # where in the log it appears
    global_ranks: Sequence[int | None] = ()
    """For each rank of the communicator the global one; None where the log does not show it."""

    world: Communicator | None = None
    is_open: bool = False  # whether it may have more ranks than the log shows

    def mate(self, rank: int) -> Member | None:
        """Return the member with a rank, or that of the world with the same global rank: it tells host and GPU."""
        if member := self.members.get(rank):
            return member
        global_rank = self.global_rank(rank)
        return self.world.members.get(global_rank) if self.world and global_rank is not None else None

    def global_rank(self, rank: int) -> int | None:
        """Return the global rank of a rank; None where the log does not show it."""
        return self.global_ranks[rank] if 0 <= rank < len(self.global_ranks) else None

    @property
    def ids(self) -> set[str]:
        """Return the ids that its members print."""
        return {member.init.comm_id for member in self.members.values() if member.init.comm_id}

    @property
    def local_ranks(self) -> int | None:
        """Return ranks on each node as NCCL counts them, where all members that state them agree."""
        counts = {member.shape.local_ranks for member in self.members.values() if member.shape}
        return counts.pop() if len(counts) == 1 else None

    @property
    def nnodes(self) -> int | None:
        """Nodes as NCCL counts them."""
        counts = {member.shape.nnodes for member in self.members.values() if member.shape}
        return counts.pop() if len(counts) == 1 else None


def join(processes: Iterable[ProcessMembers]) -> list[Communicator]:
    """Return all communicators in the order of their appearance; sets ``communicator`` of each member.

    Parents are joined before their children, whose identity is that of the parent.
    """
    depths: dict[int, int] = {}
    generations: list[list[Member]] = []
    for member in (member for process in processes for member in process.members):
        depth = depths[id(member)] = depths[id(member.parent)] + 1 if member.parent else 0
        if depth == len(generations):
            generations.append([])
        generations[depth].append(member)
    found: list[Communicator] = []
    for generation in generations:
        groups: dict[str, dict[tuple[object, ...], list[Member]]] = {"named": {}, "counted": {}, "vague": {}}
        for member in generation:
            kind, key = _identity(member)
            groups[kind].setdefault(key, []).append(member)
        for group in groups["named"].values():
            found += map(_make, _split_turns(group))
        for key, group in groups["counted"].items():
            # Splits of one parent, whose ordinal each process only counted: believed while nothing speaks against it.
            by_ordinal = group_values((member.ordinal, member) for member in group)
            has_parent = [_has_parent(split) for split in by_ordinal.values()]
            if (
                None not in by_ordinal
                and all(has_parent)
                and all(Joiner(one).agree(one) for one in by_ordinal.values())
            ):
                found += map(_make, by_ordinal.values())
                continue
            if not all(has_parent):
                for member in group:
                    member.parent = None
                key = _identity(group[0])[1]
            for member in group:
                member.ordinal = None
            groups["vague"].setdefault(key, []).extend(group)
        for group in groups["vague"].values():
            found += map(_make, Joiner(group).groups())
    return sorted(found, key=lambda comm: comm.first)


def _split_turns(group: list[Member]) -> Iterable[list[Member]]:
    """Return members of one name by their turns: a rank that comes again begins a new communicator.

    The job was started again, or a pointer used twice. So are all ranks of a source in which one comes again: with
    NCCL_COMM_ID all jobs have one id.
    """
    turns: defaultdict[int, int] = defaultdict(int)
    by_turn: defaultdict[int, list[Member]] = defaultdict(list)
    for here in group_values((source_and_line(member.first.place)[0], member) for member in group).values():
        turn = max([turns[member.rank] for member in here])
        own: defaultdict[int, int] = defaultdict(int)
        for member in here:
            by_turn[turn + own[member.rank]].append(member)
            own[member.rank] += 1
        turns.update({rank: turn + number for rank, number in own.items()})
    return by_turn.values()


def list_contested(comm: Communicator, *others: Communicator) -> list[int]:
    """Return the ranks of a communicator that processes of other hosts began under the same id, too.

    The list is empty where somebody completed it, or where more processes began it than it has ranks: the job, or a
    host of it, was started again, or a host has two names. Each job has a rank 0 that makes an id of its own.
    """
    rivals = [other for other in others if other is not comm and other.ids & comm.ids] if others else []
    began = [member for one in (comm, *rivals) for member in one.members.values()]
    if any(member.completed for member in began) or len(began) > comm.nranks:
        return []
    hosts = {member.log.process.host for member in comm.members.values()}
    found: set[int] = set()
    for other in rivals:
        if hosts.isdisjoint(member.log.process.host for member in other.members.values()):
            both = ((member, comm.members[rank]) for rank, member in other.members.items() if rank in comm.members)
            found |= {one.rank for one, member in both if _pointer(one) != _pointer(member)}
    return [] if 0 in found else sorted(found)


def _pointer(member: Member) -> tuple[int, str]:
    """Return pid and pointer of a communicator: those of one process are the same under each name of its host."""
    return member.log.process.pid, member.init.comm


def _make(members: list[Member]) -> Communicator:
    """Return the communicator of some members, which belong to it from now on."""
    first = members[0]
    comm = Communicator(
        name="",
        nranks=first.init.nranks,
        parent=first.parent.communicator if first.parent else None,
        color=_color(first),
        ordinal=first.ordinal,
        orphan=first.parent is None and (first.init.parent is not None or first.split is not None),
        first=min([member.first.place for member in members]),
    )
    for member in members:
        member.communicator = comm
        comm.members[member.rank] = member
    return comm


def _identity(member: Member) -> tuple[str, tuple[object, ...]]:
    """Return what members of a communicator share, and how far that is a name: ``named``, ``counted`` or ``vague``."""
    init, split = member.init, member.split
    color = _color(member)
    if member.parent is not None:
        parent = id(member.parent.communicator)
        if init.ordinal is not None:
            return "named", ("split", parent, member.ordinal, color, init.nranks)
        return "counted", ("split", parent, color, init.nranks)
    if init.parent is not None or split is not None:
        # Splits of one parent with equal colours share their commId.
        return "vague", ("orphan", init.nranks, init.ordinal, color, init.comm_id)
    if init.comm_id is not None:
        return "named", ("root", init.comm_id, init.nranks)
    return "vague", ("nameless", init.nranks)


def _color(member: Member) -> int | None:
    if member.init.color is not None:
        return member.init.color
    return member.split.color if member.split else None


def _has_parent(group: list[Member]) -> bool:
    """Return whether the parent that was found has the ranks that ``bootstrapSplit`` names."""
    ranks = {member.rank: member for member in group}
    return all(
        member.split is None
        or (mate := ranks.get((member.rank + 1) % member.init.nranks)) is None
        or mate.parent is None
        or mate.parent.rank == member.split.next_rank
        for member in group
    )


# The world, and the names and global ranks that follow from it


def find_world(communicators: Sequence[Communicator]) -> Communicator | None:
    """Return the largest communicator that holds all others' GPUs, or None when there is none."""
    gpus = {member.gpu for comm in communicators for member in comm.members.values()}
    roots = [comm for comm in communicators if comm.parent is None and not comm.orphan]
    for comm in sorted(roots, key=lambda comm: (-comm.nranks, comm.first)):
        outside = len(gpus) - len({member.gpu for member in comm.members.values()})
        room = comm.nranks - len(comm.members)
        # A process in the log whose line of this communicator is lost is the exception.
        if outside <= min(room, len(comm.members) - 1) and (room or not has_ranks_elsewhere(roots)):
            return comm  # one with others elsewhere is that of one host: groups were made without a world
    return None


def local_ranks(world: Communicator | None) -> dict[int, int]:
    """Return the local rank of each global rank, as far as the world's lines show it."""
    members = world.members.values() if world else ()
    return {member.rank: member.shape.local_rank for member in members if member.shape and member.communicator is world}


def has_ranks_elsewhere(communicators: Iterable[Communicator]) -> bool:
    """Return whether the log lacks ranks that others met in an initialisation; a single one may be a lost line."""
    met = [comm for comm in communicators if any(member.completed for member in comm.members.values())]
    return sum(comm.nranks - len(comm.members) for comm in met) > 1


def number(communicators: Sequence[Communicator], world: Communicator | None) -> None:
    """Give each communicator its global ranks and its name; those that claim too many ranks get none."""
    ranks = {member.gpu: rank for rank, member in world.members.items()} if world else {}
    if world and world.nranks - len(world.members) == 1:
        (absent,) = set(range(world.nranks)) - world.members.keys()
        gpus = {member.gpu for comm in communicators for member in comm.members.values()} - ranks.keys()
        if len(gpus) == 1:  # the only rank without a line is the only GPU without a rank
            ranks[gpus.pop()] = absent
    names: Counter[str] = Counter()
    left = _MAX_LISTED
    for index, comm in enumerate(communicators):
        comm.world = world
        comm.name = f"comm {index}" if comm is not world else "world"
        if comm is not world and comm.parent is not None and comm.ordinal is not None:
            split = f"split {comm.ordinal} color {comm.color} of {comm.parent.name}"
            comm.name = split if len(split) < _LONGEST_NAME else comm.name
        names[comm.name] += 1
        if names[comm.name] > 1:  # the program of a process that was started again makes the same split again
            comm.name += f" ({names[comm.name]})"
        left -= comm.nranks
        if left < 0 and comm is not world:
            continue
        if world is None:
            comm.global_ranks = range(comm.nranks)
            continue
        seen = {rank: ranks.get(member.gpu) for rank, member in comm.members.items()}
        same = comm.nranks == world.nranks and all(rank == global_rank for rank, global_rank in seen.items())
        if comm is world or same:
            comm.global_ranks = range(comm.nranks)
        else:
            comm.global_ranks = [seen.get(rank) for rank in range(comm.nranks)]
    if world is not None:
        _close_last_gaps(communicators, world)


def _close_last_gaps(communicators: Iterable[Communicator], world: Communicator) -> None:
    """Fill the only gap of a split, whose communicators share the ranks of their parent, and of one of all ranks.

    So a rank that never began is known.
    """
    families: dict[tuple[int, int | None], list[Communicator]] = {}
    for comm in communicators:
        whole = comm.parent if comm.parent is not None and comm.ordinal is not None else None
        is_of_all = comm.nranks == world.nranks and not world.is_open
        if len(comm.global_ranks) == comm.nranks and (whole is not None or is_of_all):
            families.setdefault((id(comm if whole is None else whole), comm.ordinal), []).append(comm)
    for family in families.values():
        gaps = [comm for comm in family for rank in comm.global_ranks if rank is None]
        if len(gaps) != 1:
            continue
        (comm,) = gaps
        whole = comm.parent if comm.parent is not None and comm.ordinal is not None else world
        missing = set(whole.global_ranks).difference(*(other.global_ranks for other in family))
        if len(missing) == 1 and (last := missing.pop()) is not None:
            comm.global_ranks = [last if rank is None else rank for rank in comm.global_ranks]


# The world where the log shows no communicator of all ranks, from the ranks of the job that torchrun names. PyTorch
# makes communicators with their first call: a job that hangs or fails before the first call of all ranks has only
# those of its groups. torchrun names rank and pid of workers that failed, starts the ranks of a node one after the
# other, and PyTorch lists the ranks of a group in their order; in the file of one host it names the ranks of that
# host. That leaves one place for each process, or else nothing is said.

_TORCH = "torch"
_LABEL = re.compile(rb"\[rank(\d{1,7})\]:")
_LABELS = 2
"""Ranks that lines name at least where a host is placed by them: the line of a single one may be of another host."""


def make_world(
    communicators: Sequence[Communicator], logs: Iterable[ProcessLog], largest: Communicator | None = None
) -> Communicator | None:
    """Return a world of all processes, each with its rank; None where these are not known.

    The largest communicator, which holds all others' processes, is the world where no rank beyond it is named.
    """
    nobody = [log for log in logs if not log.process.host]
    labels = group_sets((source, rank) for source, _, rank in find_named_ranks(nobody))
    if largest is not None and max((max(ranks) for ranks in labels.values()), default=0) < largest.nranks:
        return largest
    workers: dict[int, set[int]] = {}  # which ranks torchrun reports for each pid; one that has several names none
    for event in (note.event for log in nobody for note in log.notes.values()):
        if isinstance(event, ProcessEnded) and event.dialect == _TORCH and event.ended_pid is not None:
            workers.setdefault(event.ended_pid, set()).update(event.ranks)
    ranks = {pid: next(iter(some)) for pid, some in workers.items() if len(some) == 1}
    return _find_stated(communicators, ranks, labels) or largest


def _find_stated(
    communicators: Sequence[Communicator], ranks: Mapping[int, int], labels: Mapping[int, set[int]]
) -> Communicator | None:
    """Return the world by the ranks of pids, and by those that are named in the files of single hosts."""
    nodes = _nodes(communicators) if ranks or labels else {}
    if len({len(members) for members in nodes.values()}) != 1 or not all(map(is_named, nodes)):
        return None
    fixed: dict[int, str] = {}  # by their number the hosts of which a rank is known
    for host, here in nodes.items():
        for local, member in enumerate(here):
            rank = ranks.get(member.log.process.pid)
            if rank is not None and rank >= local:
                fixed.setdefault((rank - local) // len(here), host)
    if (numbered := _number_hosts(nodes, labels)) is None:
        return None
    if any(fixed.get(at, host) != host for at, host in numbered.items()):
        return None
    fixed |= numbered
    if not fixed or len(set(fixed.values())) < len(fixed):
        return None
    places = dict(enumerate(_order(communicators, nodes, fixed)))
    is_open = set(places.values()) != nodes.keys()
    if is_open:
        places = fixed
    is_open |= has_ranks_elsewhere(comm for comm in communicators if comm.parent is None and not comm.orphan)
    if set(places.values()) != nodes.keys():
        return None
    members = {
        at * len(nodes[host]) + local: member for at, host in places.items() for local, member in enumerate(nodes[host])
    }
    size = max(members) + 1
    fits = all(ranks.get(member.log.process.pid, rank) == rank for rank, member in members.items())
    number = {member.gpu: rank for rank, member in members.items()}
    for comm in communicators:  # each group lists its ranks in the order of the job
        own = [number[comm.members[rank].gpu] for rank in sorted(comm.members)]
        fits = fits and all(first < second for first, second in pairwise(own))
    if not fits or (not is_open and max(ranks.values(), default=0) >= size):
        return None
    return Communicator("world", size, members=members, global_ranks=range(size), is_open=is_open)


def find_named_ranks(nobody: Iterable[ProcessLog]) -> Iterator[tuple[int, int, int]]:
    """Yield the ranks of the job that PyTorch and torchrun name, each with its source and its place."""
    for note in (note for log in nobody for note in log.notes.values()):
        if note.event is None or note.event.dialect != _TORCH:
            continue
        values = dict(getattr(note.event, "values", ()))  # as a field or in front
        rank = values.get("global_rank", getattr(note.event, "global_rank", None))
        if rank is None and (label := _LABEL.match(note.message)):
            rank = int(label[1])
        if isinstance(rank, int):
            yield from ((source_and_line(place)[0], place, rank) for place in (note.place, *(note.places or ())))


def _number_hosts(nodes: Mapping[str, Sequence[Member]], labels: Mapping[int, set[int]]) -> dict[int, str] | None:
    """Return the number of each host with a file of its own, by the ranks named there; None if these disagree."""
    hosts = group_sets(
        (source_and_line(place)[0], host)
        for host, members in nodes.items()
        for member in members
        for place in (member.log.first, member.log.last)
    )
    own = {source: next(iter(here)) for source in labels if len(here := hosts.get(source, set())) == 1}
    if len(set().union(*(labels[source] for source in own))) < _LABELS:
        return {}
    numbered: dict[int, str] = {}
    for source, host in own.items():
        ranks = labels[source]
        numbers = {rank // len(nodes[host]) for rank in ranks}
        if len(numbers) > 1 or numbered.setdefault(numbers.pop(), host) != host:
            return None
    return numbered


def _nodes(communicators: Iterable[Communicator]) -> dict[str, list[Member]]:
    """Return one membership of each process, in the order of the GPUs, by host; empty where processes share GPUs."""
    members = {member.gpu: member for comm in communicators for member in comm.members.values()}
    if len({gpu.process for gpu in members}) < len(members):
        return {}
    nodes = group_values((member.log.process.host, member) for member in members.values())
    for host in nodes:
        nodes[host].sort(key=lambda member: member.init.cuda_dev or 0)
    return nodes


def _order(
    communicators: Iterable[Communicator], nodes: Mapping[str, Sequence[Member]], fixed: Mapping[int, str]
) -> list[str]:
    """Return all hosts in the order of their ranks; empty where that is not certain."""
    left = nodes.keys() - set(fixed.values())
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(left, ()))
    for comm in communicators:
        hosts = [comm.members[rank].log.process.host for rank in sorted(comm.members)]
        for before, after in pairwise([host for host in dict.fromkeys(hosts) if host in left]):
            sorter.add(after, before)
    rest: list[str] = []
    try:
        sorter.prepare()
    except CycleError:
        return []
    while sorter.is_active():
        ready = sorter.get_ready()
        if len(ready) > 1:
            return []
        rest.extend(ready)
        sorter.done(*ready)
    free = iter(rest)
    return [fixed[number] if number in fixed else next(free, "") for number in range(len(nodes))] if nodes else []
