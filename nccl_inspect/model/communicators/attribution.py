"""Decides to which communicator the connection lines belong that name none (2.22 and later connect lazily).

Where lines fit several communicators of their process (:mod:`nccl_inspect.model.communicators.candidates`), what is
certain elsewhere excludes some: a connection prints once in a communicator, ring and tree edges are known, a NET edge
has a twin at its other end. What is left is decided by the order in which other processes used the communicators, and
marked as a guess.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import field
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from nccl_inspect.event.base import Process
from nccl_inspect.model.communicators.candidates import (
    FittingMembers,
    Made,
    Slot,
    Unit,
    ends_of,
    fits,
    slots_of,
    units_of,
)
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import RINGS_AND_TREES, SEND_RECV, Member, ProcessMembers
from nccl_inspect.model.communicators.rings_and_trees import is_whole
from nccl_inspect.model.communicators.twins import Twins, unanswered
from nccl_inspect.model.communicators.twins import printed as printed_by
from nccl_inspect.model.fold.fold import Burst, ProcessLog
from nccl_inspect.util.records import Record, record

if TYPE_CHECKING:
    from nccl_inspect.model.communicators.certain import Certainty
    from nccl_inspect.model.fold.edge_table import EdgeTable

_Test: TypeAlias = Callable[[Member], bool]
MAX_QUESTIONS = 1_000_000
"""How often a burst of one process is compared with a communicator: about a second's work."""


_PLACE: Callable[[Made], int] = attrgetter("place")


@record
class Attribution(Record):
    """What became of the loose bursts."""

    homeless: list[tuple[ProcessLog, Burst]] = field(default_factory=list)
    """Bursts that fit no communicator that the log shows."""
    guessed: set[int] = field(default_factory=set)
    """The ids of bursts decided by the order of use only."""
    paired: set[int] = field(default_factory=set)
    """The ids of those whose ranks are the same in each communicator that they may be of."""
    given_up: int = 0
    """Connection lines that could not be compared with all communicators in reasonable time."""

    def is_guessed(self, bursts: Iterable[Burst]) -> bool:
        """Whether there are bursts, and all were decided so."""
        is_one = False
        for burst in bursts:
            is_one = id(burst) in self.guessed
            if not is_one:
                break
        return is_one


def attribute(processes: Iterable[ProcessMembers], table: EdgeTable | None = None) -> Attribution:
    """Add every loose burst to the member it belongs to.

    Args:
        processes: with their members.
        table: of all their bursts, where there are many: what is certain is decided all at once.
    """
    processes = list(processes)
    certainty = None
    if table is not None:
        from nccl_inspect.model.communicators.certain import Certainty  # most logs are short

        certainty = Certainty(processes, table)
    misplaced = certainty.misplaced() if certainty else set(_misplaced(processes))
    for process in processes:
        _release(process, misplaced)
    work = _Work(processes, certainty)
    for index, process in enumerate(processes):
        for unit in certainty.left(index) if certainty else units_of(process, FittingMembers(process)):
            work.add(unit)
    work.run()
    for process in processes:
        work.connect(process)
    return work.result


def _misplaced(processes: Iterable[ProcessMembers]) -> Iterator[int]:
    """The ids of bursts that members cannot have: when COMPLETE was lost, later lines of the thread came to them."""
    for process in processes:
        for member in process.members:
            for burst in member.bursts:
                if not all(fits(member, edge, burst.key.rank) for edge in burst.edges.values()):
                    yield id(burst)


def _release(process: ProcessMembers, misplaced: AbstractSet[int]) -> None:
    """Take away from members what they cannot have."""
    for member in process.members if misplaced else ():
        for burst in member.bursts:
            if id(burst) in misplaced:
                process.leave(burst)
        member.bursts = [burst for burst in member.bursts if id(burst) not in misplaced]
    process.loose.sort(key=lambda burst: burst.place)
    process.by_caller = any(burst.key.tid in process.callers for burst in process.loose)


class _Work:
    def __init__(self, processes: list[ProcessMembers], certainty: Certainty | None) -> None:
        self.result = Attribution()
        self._left = MAX_QUESTIONS
        self._open: dict[Process, list[Unit]] = {}
        self._used: dict[Slot, dict[int, int]] = {}
        """The channels of a connection that are there already, by the ids of members."""
        self._first_use: dict[tuple[object, ...], dict[int, int]] = {}
        self._kind = cache(_kind)
        self._uses: dict[Process, int] = {}
        self._threads: dict[Process, dict[int, list[Made]]] = {}
        """What each thread connected, and for whom."""
        self._direct: dict[Process, set[str | None]] = {}
        """The GPUs to which each process has a direct connection, as brackets name them."""
        self._ring_edges: dict[int, set[tuple[int, int]]] = {}
        self._processes, self._certainty = processes, certainty
        self._direct.update((process.log.process, set()) for process in processes)
        bursts = [] if certainty else [process.bursts for process in processes]
        self._twins = Twins(
            (process.log.process for process in processes),
            certainty.printed if certainty else lambda index: printed_by(ends_of(bursts[index])),
            certainty.unanswered if certainty else lambda: unanswered(ends_of(chain.from_iterable(bursts))),
        )
        if certainty:
            self._begin(certainty)
            return
        for process, printed in zip(processes, bursts, strict=True):
            self._direct[process.log.process].update(end.other[1] for end in ends_of(printed) if end.kind.is_local)
            for member in process.members:  # what stands between START and COMPLETE
                for slot, channels in slots_of(member.log, ends_of(member.bursts), RINGS_AND_TREES):
                    self._take(member, slot, channels)

    def _begin(self, certainty: Certainty) -> None:
        """Begin with what is certain; of that only what is like the rest is looked at again."""
        for process, made in zip(self._processes, certainty.decide(), strict=True):
            self._threads[process.log.process] = made
        for member, order in certainty.first_uses():
            self._first_use.setdefault(self._kind(member.communicator), {}).setdefault(id(member.log), order)
            self._uses[member.log.process] = max(order, self._uses.get(member.log.process, 0))
        for log, device in certainty.direct():
            self._direct[log.process].add(device)
        for member, conn, ends in certainty.like():
            for slot, channels in slots_of(member.log, [ends], conn):
                self._take(member, slot, channels)

    def add(self, unit: Unit) -> None:
        unit.ends = list(self._certainty.ends_of(unit.bursts) if self._certainty else ends_of(unit.bursts))
        unit.slots = list(slots_of(unit.log, unit.ends, unit.conn))
        if unit.candidates:
            self._open.setdefault(unit.log.process, []).append(unit)
        else:
            self.result.homeless.extend((unit.log, burst) for burst in unit.bursts)

    def run(self) -> None:
        """Decide what is certain in all processes first: guesses go by what others did."""
        for units in self._open.values():
            self._left = MAX_QUESTIONS
            units.sort(key=lambda unit: unit.place)
            self._settle(units)
        for units in self._open.values():
            self._left = MAX_QUESTIONS
            # What could not be decided before the first guess depends on it.
            self.result.guessed.update(id(burst) for unit in units for burst in unit.bursts)
            for unit in units:
                unit.choice = unit.candidates
            while units:
                if self._left <= 0:
                    self.result.given_up += sum(burst.lines for unit in units for burst in unit.bursts)
                    break
                unit = units.pop(0)
                self._assign(unit, min(unit.candidates, key=self._order_of_use))
                self._settle(units)

    def _settle(self, units: list[Unit]) -> None:
        """Decide what can be decided; each decision may exclude candidates of other bursts of the process."""
        rules = self._free, self._like_elsewhere, self._twins.exclude, self._on_ring_or_tree
        while units and self._left > 0:
            for rule in rules:
                undecided = [unit for unit in units if not self._decide(unit, rule)]
                progress = len(undecided) < len(units)
                units[:] = undecided
                if progress:
                    break
            else:
                return

    def _take(self, member: Member, slot: Slot, channels: int) -> None:
        used = self._used.setdefault(slot, {})
        used[id(member)] = used.get(id(member), 0) | channels

    def connect(self, process: ProcessMembers) -> None:
        """Give ``Connected …`` lines to the communicator whose connections were made just before.

        Those are connections of the same thread, and those of rings and trees of threads that print no such line: they
        connect for others.
        """
        threads = self._threads.get(process.log.process, {})
        closing = {step.printed.tid for step in process.connected}
        helped = [
            connection
            for tid in threads.keys() - closing
            for connection in threads[tid]
            if connection.conn != SEND_RECV
        ]
        made = {tid: sorted([*threads.get(tid, ()), *helped], key=_PLACE) for tid in closing}
        places = {tid: list(map(_PLACE, some)) for tid, some in made.items()}
        for step in process.connected:
            before = bisect_left(places[step.printed.tid], step.place)
            if before:
                made[step.printed.tid][before - 1].member.connected.append(step)

    def _decide(self, unit: Unit, rule: Callable[[Unit], _Test]) -> bool:
        self._left -= len(unit.candidates)
        left = list(filter(rule(unit), unit.candidates))
        if not left and rule == self._free and id(unit.bursts[0]) not in self.result.guessed:
            self.result.homeless.extend((unit.log, burst) for burst in unit.bursts)
            return True
        if left:
            unit.candidates = left
        if len(unit.candidates) != 1:
            return False
        if unit.doubtful:
            self.result.guessed.update(map(id, unit.bursts))
        self._assign(unit, unit.candidates[0])
        return True

    def _free(self, unit: Unit) -> _Test:
        """A connection prints once in a communicator; without its set it may be another one."""
        used = [(self._used[slot], channels) for slot, channels in unit.slots if slot in self._used]
        if len(used) == 1:
            ((others, channels),) = used
            return lambda member: not others.get(id(member), 0) & channels
        return lambda member: not any(others.get(id(member), 0) & channels for others, channels in used)

    def _like_elsewhere(self, unit: Unit) -> _Test:
        """Two GPUs that talk directly in one communicator do not use the network in another one."""
        direct, host = self._direct[unit.log.process], unit.log.process.host
        ends = ((*end.other, end.kind.is_local) for end in unit.ends)
        others = {rank for rank, device, is_local in ends if rank is not None and not is_local and device in direct}

        def is_like(member: Member) -> bool:
            assert member.communicator is not None
            mates = map(member.communicator.mate, others)
            return all(mate is None or mate.log.process.host != host for mate in mates)

        return is_like

    def _on_ring_or_tree(self, unit: Unit) -> _Test:
        """Connections of set 0 join neighbours in rings and trees."""
        if not unit.simple:
            return lambda member: True

        def joins_neighbours(member: Member) -> bool:
            comm = member.communicator
            assert comm is not None
            if id(comm) not in self._ring_edges:
                self._ring_edges[id(comm)] = _neighbours(comm)
            edges = self._ring_edges[id(comm)]
            return not edges or all((end.src, end.dst) in edges for end in unit.ends)

        return joins_neighbours

    def _order_of_use(self, member: Member) -> tuple[object, ...]:
        kind = self._kind(member.communicator)
        first_use = self._first_use.get(kind, {})
        uses = sorted(first_use.values())
        mine = id(member.log) in first_use
        usual = uses[len(uses) // 2] if uses else len(self._first_use)
        return mine, usual, member.first.place

    def _assign(self, unit: Unit, member: Member) -> None:
        member.bursts.extend(unit.bursts)
        if _is_same_pair(unit):
            self.result.paired.update(map(id, unit.bursts))
        for burst in unit.bursts:
            threads = self._threads.setdefault(unit.log.process, {})
            threads.setdefault(burst.key.tid, []).append(Made(burst.place, burst.key.conn, member))
        for slot, channels in unit.slots:
            self._take(member, slot, channels)
        kind, process = self._kind(member.communicator), id(member.log)
        order = self._uses[unit.log.process] = self._uses.get(unit.log.process, 0) + 1
        self._first_use.setdefault(kind, {}).setdefault(process, order)


def _is_same_pair(unit: Unit) -> bool:
    """Whether the lines were guessed and join the same ranks of the job in each communicator that they may be of.

    So it is where a program makes a second communicator of the same ranks: which of the two it is tells nothing about
    paths.
    """
    named = {rank for end in unit.ends for rank in (end.src, end.dst) if rank is not None} if unit.choice else ()
    joined = ([_global(member, rank) for rank in named] for member in unit.choice)
    first = next(joined, None)
    return first is not None and all(ranks == first for ranks in joined)


def _global(member: Member, rank: int) -> object:
    """The global rank; something of its own where the log does not tell it."""
    comm = member.communicator
    global_rank = comm.global_ranks[rank] if comm is not None and rank < len(comm.global_ranks) else None
    return (id(comm), rank) if global_rank is None or comm is None or comm.world is None else global_rank


def _kind(comm: Communicator | None) -> tuple[object, ...]:
    """What the same communicator is called in every process: SPMD programs use them in the same order."""
    ordinals: list[object] = []
    while comm is not None and comm.parent is not None:
        ordinals.append(comm.ordinal)
        comm = comm.parent
    return ("root", comm.first, *reversed(ordinals)) if comm is not None else ()


def _neighbours(comm: Communicator) -> set[tuple[int, int]]:
    """The edges of rings and trees; none where a ring is missing or cut, so that the rest excludes nothing."""
    edges: set[tuple[int, int]] = set()
    rings = {id(ring): ring for member in comm.members.values() for ring in member.rings.values()}.values()
    if not rings or not all(is_whole(comm, [ring]) for ring in rings):
        return edges
    for ring in rings:
        edges.update(zip(ring.ranks, (*ring.ranks[1:], ring.ranks[0]), strict=True))
    for *down, rank, up in {tree[1:] for member in comm.members.values() for tree in member.trees}:
        for other in (*down, up):
            if other >= 0:
                edges |= {(rank, other), (other, rank)}
    return edges
