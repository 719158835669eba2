"""Joins the members of all processes into communicators, and finds the world whose ranks are the global ones.

A root communicator is known by its commId (2.16 and later), a split by its parent, its ordinal and its colour: the
pointers are those of one process, and until 2.22 splits of equal colour share their commId.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nccl_inspect.model.members import Gpu, Member, ProcessMembers


@dataclass(slots=True, eq=False, repr=False)
class Communicator:
    """A communicator with all its members that the log shows."""

    name: str
    """``world``, ``split 1 of world``, …: how reports call it."""
    nranks: int
    parent: Communicator | None = None
    color: int | None = None
    ordinal: int | None = None
    orphan: bool = False
    """A split whose parent the log does not show."""
    members: dict[int, Member] = field(default_factory=dict)
    first: int = 0
    """Where in the log it appears."""
    global_ranks: Sequence[int | None] = ()
    """For each rank of the communicator the global one; None where the log does not tell."""

    @property
    def complete(self) -> bool:
        """Whether every rank finished its initialisation."""
        return len(self.members) == self.nranks and all(member.completed for member in self.members.values())

    @property
    def local_ranks(self) -> int | None:
        """Ranks on each node as NCCL counts them, where all members that tell agree."""
        found = {member.shape.local_ranks for member in self.members.values() if member.shape}
        return found.pop() if len(found) == 1 else None

    @property
    def nnodes(self) -> int | None:
        """Nodes as NCCL counts them."""
        found = {member.shape.nnodes for member in self.members.values() if member.shape}
        return found.pop() if len(found) == 1 else None


def join(processes: Iterable[ProcessMembers]) -> list[Communicator]:
    """The communicators of all processes, in the order of their appearance; sets ``communicator`` of each member."""
    return _Join().all([member for process in processes for member in process.members])


class _Join:
    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Communicator] = {}
        self._taken: dict[tuple[object, ...], int] = {}
        self._nameless: dict[tuple[object, ...], int] = {}

    def all(self, members: list[Member]) -> list[Communicator]:
        for member in members:  # a parent comes before its children in the same process
            member.communicator = self._of(member)
        return sorted(self._known.values(), key=lambda comm: comm.first)

    def _of(self, member: Member) -> Communicator:
        key = self._identity(member)
        slot = (key, member.rank)
        # The same rank again is a new communicator: a job that was started again, or a pointer used twice.
        again = self._taken[slot] = self._taken.get(slot, -1) + 1
        comm = self._known.get((key, again))
        if comm is None:
            comm = self._known[key, again] = _make(member)
        comm.members[member.rank] = member
        comm.first = min(comm.first, member.first.place)
        return comm

    def _identity(self, member: Member) -> tuple[object, ...]:
        init, split = member.init, member.split
        color = init.color if init.color is not None else split.color if split else None
        if member.parent is not None:
            return "split", id(member.parent.communicator), member.ordinal, color
        if init.parent is not None or split is not None:
            # Without its ordinal a split of another process cannot be told from one of equal size and colour.
            alone = member.log.process if init.ordinal is None else None
            return "orphan", init.nranks, init.ordinal, color, alone
        if init.comm_id is not None:
            return "root", init.comm_id, init.nranks
        gpu = (member.gpu, init.nranks)
        self._nameless[gpu] = self._nameless.get(gpu, 0) + 1
        return "nameless", init.nranks, self._nameless[gpu]


def _make(member: Member) -> Communicator:
    init, split = member.init, member.split
    return Communicator(
        name="",
        first=member.first.place,
        nranks=init.nranks,
        parent=member.parent.communicator if member.parent else None,
        color=init.color if init.color is not None else split.color if split else None,
        ordinal=member.ordinal,
        orphan=member.parent is None and (init.parent is not None or split is not None),
    )


def find_world(communicators: Sequence[Communicator]) -> Communicator | None:
    """The largest communicator that holds all others' GPUs, or None when there is none."""
    gpus = {member.gpu for comm in communicators for member in comm.members.values()}
    roots = [comm for comm in communicators if comm.parent is None and not comm.orphan]
    for comm in sorted(roots, key=lambda comm: (-comm.nranks, comm.first)):
        outside = gpus - {member.gpu for member in comm.members.values()}
        if len(outside) <= comm.nranks - len(comm.members):
            return comm
    return None


def number(communicators: Sequence[Communicator], world: Communicator | None) -> None:
    """Give each communicator its global ranks and its name."""
    ranks = _world_ranks(communicators, world)
    for index, comm in enumerate(communicators):
        comm.name = _name(comm, index, world)
        if world is None:
            comm.global_ranks = range(comm.nranks)
            continue
        seen = {rank: ranks.get(member.gpu) for rank, member in comm.members.items()}
        same = comm.nranks == world.nranks and all(rank == known for rank, known in seen.items())
        if comm is world or same:
            comm.global_ranks = range(comm.nranks)
        else:
            comm.global_ranks = _closed([seen.get(rank) for rank in range(comm.nranks)], comm, world)


def _world_ranks(communicators: Sequence[Communicator], world: Communicator | None) -> dict[Gpu, int]:
    if world is None:
        return {}
    ranks = {member.gpu: rank for rank, member in world.members.items()}
    if world.nranks - len(world.members) != 1:
        return ranks
    absent = [rank for rank in range(world.nranks) if rank not in world.members]
    gpus = {member.gpu for comm in communicators for member in comm.members.values()} - ranks.keys()
    if len(absent) == len(gpus) == 1:  # the only rank without a line is the only GPU without a rank
        ranks[gpus.pop()] = absent[0]
    return ranks


def _closed(ranks: list[int | None], comm: Communicator, world: Communicator) -> list[int | None]:
    """Fill the last gap of a communicator as large as the world."""
    if comm.nranks != world.nranks or ranks.count(None) != 1:
        return ranks
    missing = set(range(world.nranks)) - set(ranks)
    return [missing.copy().pop() if rank is None else rank for rank in ranks] if len(missing) == 1 else ranks


def _name(comm: Communicator, index: int, world: Communicator | None) -> str:
    if comm is world:
        return "world"
    if comm.parent is not None:
        return f"split {comm.ordinal} color {comm.color} of {comm.parent.name}"
    return f"comm {index}"
