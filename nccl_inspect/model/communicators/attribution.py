"""Decides to which communicator the connection lines belong that name none (2.22 and later connect lazily).

Where lines fit several communicators of their process (:mod:`nccl_inspect.model.communicators.candidates`), what is
certain elsewhere excludes some: a connection prints once in a communicator, a NET edge has a twin at its far end. What
is left is decided by the order in which other processes used the communicators, and marked as a guess.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    Twins,
    Unit,
    Wanting,
    ends_of,
    find_unanswered,
    fits,
    slots_of,
    units_of,
)
from nccl_inspect.model.communicators.candidates import list_printed as printed_by
from nccl_inspect.model.communicators.communicator import Communicator
from nccl_inspect.model.communicators.members import RINGS_AND_TREES, SEND_RECV, Member, ProcessMembers, with_more
from nccl_inspect.model.fold.fold import Burst, ProcessLog
from nccl_inspect.util.records import Record, record

if TYPE_CHECKING:
    from nccl_inspect.model.communicators.certain import Certainty
    from nccl_inspect.model.fold.edge_table import EdgeTable


MANY = 5_000
"""Connections from which on a table takes less time than it takes to import what tables are made of."""


def table_of(processes: Sequence[ProcessMembers]) -> EdgeTable | None:
    """Return the connections of some processes as a table; None where they are few, or where numpy is not there."""
    bursts = [burst for process in processes for burst in process.bursts]
    if sum(len(burst.edges) for burst in bursts) < max(1, MANY):
        return None
    try:
        from nccl_inspect.model.fold.edge_table import EdgeTable  # loads numpy
    except ImportError:
        return None
    return EdgeTable(bursts)


_Test: TypeAlias = Callable[[Member], bool]
MAX_QUESTIONS = 1_000_000
"""How often a burst of one process is compared with a communicator: about a second's work."""


_PLACE: Callable[[Made], int] = attrgetter("place")


@record
class Attribution(Record):
    """Holds what became of the loose bursts."""

    homeless: list[tuple[ProcessLog, Burst]] = field(default_factory=list)
    """Bursts that fit no communicator that the log shows."""
    guessed: set[int] = field(default_factory=set)
    """The ids of bursts decided by the order of use only."""
    paired: set[int] = field(default_factory=set)
    """The ids of those whose ranks are the same in each communicator that they may be of."""
    given_up: int = 0
    """Connection lines that could not be compared with all communicators in reasonable time."""

    def is_guessed(self, bursts: Iterable[Burst]) -> bool:
        """Return whether there are bursts, and all were decided so."""
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
    misplaced = certainty.find_misplaced() if certainty else set(_find_misplaced(processes))
    for process in processes if misplaced else ():
        _release(process, misplaced)
    work = _Work(processes, certainty)
    for index, process in enumerate(processes):
        for unit in certainty.left(index) if certainty else units_of(process, FittingMembers(process)):
            work.add(unit)
    work.run()
    for process in processes:
        work.connect(process)
    return work.result


def _find_misplaced(processes: Iterable[ProcessMembers]) -> Iterator[int]:
    """Yield the ids of bursts that members cannot have: with COMPLETE lost, later lines of the thread came to them."""
    for process in processes:
        for member in process.members:
            for burst in member.bursts:
                if not all(fits(member, edge, burst.key.rank) for edge in burst.edges.values()):
                    yield id(burst)


def _release(process: ProcessMembers, misplaced: AbstractSet[int]) -> None:
    """Take away from members what they cannot have."""
    for member in process.members:
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
        self._used: defaultdict[Slot, dict[int, int]] = defaultdict(dict)
        """The channels of a connection that are there already, by the ids of members."""
        self._wanting: defaultdict[Slot, Wanting] = defaultdict(Wanting)
        self._first_uses: defaultdict[tuple[object, ...], _FirstUses] = defaultdict(_FirstUses)
        """By what a communicator is called in every process."""
        self._kind = cache(_kind)
        self._uses: Counter[int] = Counter()
        """How often each process used a communicator, by the ids of logs."""
        self._threads: dict[Process, dict[int, list[Made]]] = {}
        """What each thread connected, and for whom."""
        self._processes, self._certainty = processes, certainty
        bursts = [] if certainty else [process.bursts for process in processes]
        self._twins = Twins(
            (process.log.process for process in processes),
            certainty.list_printed if certainty else lambda index: printed_by(ends_of(bursts[index])),
            certainty.find_unanswered if certainty else lambda: find_unanswered(ends_of(chain.from_iterable(bursts))),
        )
        self._is_same_pair = cache(_is_same_pair)
        if certainty:
            self._begin(certainty)
            return
        for process in processes:
            for member in process.members:  # what stands between START and COMPLETE
                for slot, channels in slots_of(member.log, ends_of(member.bursts), RINGS_AND_TREES):
                    self._take(member, slot, channels)

    def _begin(self, certainty: Certainty) -> None:
        """Begin with what is certain; of that only what is like the rest is looked at again."""
        for process, made in zip(self._processes, certainty.decide(), strict=True):
            self._threads[process.log.process] = made
        for member, order in certainty.first_uses():
            self._first_uses[self._kind(member.communicator)].add(member.log, order)
            self._uses[id(member.log)] = max(order, self._uses[id(member.log)])
        for member, conn, ends in certainty.like():
            for slot, channels in slots_of(member.log, [ends], conn):
                self._take(member, slot, channels)

    def add(self, unit: Unit) -> None:
        unit.ends = list(self._certainty.ends_of(unit.bursts) if self._certainty else ends_of(unit.bursts))
        unit.slots = list(slots_of(unit.log, unit.ends, unit.conn))
        if unit.candidates:
            self._open.setdefault(unit.log.process, []).append(unit)
            unit.left = {id(member): member for member in unit.candidates}
            for slot, wanted in unit.slots:
                self._wanting[slot].add(unit, wanted)
                if used := self._used.get(slot):
                    unit.lost.update([member for member in unit.left if used.get(member, 0) & wanted])
        else:
            self.result.homeless.extend((unit.log, burst) for burst in unit.bursts)

    def run(self) -> None:
        """Decide what is certain in all processes first: guesses go by what others did."""
        left = list[tuple[Process, bool]]()
        for process, units in self._open.items():
            self._left = MAX_QUESTIONS
            units.sort(key=lambda unit: unit.first_place)
            left.append((process, self._settle(units, is_narrowed=False)))
        for process, is_narrowed in left:
            units = self._open[process]
            self._left = MAX_QUESTIONS
            # What could not be decided before the first guess depends on it.
            self.result.guessed.update(id(burst) for unit in units for burst in unit.bursts)
            for unit in units:
                unit.choice = tuple(unit.left.values())
            while units:
                if self._left <= 0:
                    self.result.given_up += sum(burst.lines for unit in units for burst in unit.bursts)
                    break
                unit = units.pop(0)
                self._left -= len(unit.left)
                self._assign(unit, min(unit.left.values(), key=self._order_of_use))
                is_narrowed = self._settle(units, is_narrowed)

    def _settle(self, units: list[Unit], is_narrowed: bool) -> bool:
        """Decide what can be decided; each decision may exclude candidates of other bursts of the process.

        Args:
            units: of the process, which lose those that are decided.
            is_narrowed: whether the other ends of these were asked for: what they say of a candidate stays the same.

        Returns:
            Whether they were by now.
        """
        while self._left > 0:
            undecided = [unit for unit in units if not ((unit.lost or len(unit.left) == 1) and self._strike(unit))]
            if len(undecided) == len(units):
                if is_narrowed:
                    break
                undecided, is_narrowed = [unit for unit in units if not self._narrow(unit)], True
            units[:] = undecided
        return is_narrowed

    def _take(self, member: Member, slot: Slot, channels: int) -> None:
        """Let a member have a connection: it prints once in a communicator; without its set it may be another one."""
        used = self._used[slot]
        used[id(member)] = used.get(id(member), 0) | channels
        for unit, wanted in self._wanting[slot].find_units(id(member)) if slot in self._wanting else ():
            if wanted & channels:
                unit.lost.add(id(member))

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
                member = made[step.printed.tid][before - 1].member
                member.connected = with_more(member.connected, step)

    def _strike(self, unit: Unit) -> bool:
        """Strike out candidates that have what a unit wants; gives whether that decides it."""
        lost = unit.lost & unit.left.keys()
        self._left -= len(lost)
        if len(lost) < len(unit.left):
            for member in lost:
                del unit.left[member]
            unit.lost.clear()
        elif id(unit.bursts[0]) not in self.result.guessed:
            self.result.homeless.extend((unit.log, burst) for burst in unit.bursts)
            return True
        return self._has_decided(unit)

    def _narrow(self, unit: Unit) -> bool:
        """Keep the candidates that have the other ends of a unit, if there are any; gives whether that decides it."""
        if (is_allowed := self._twins.exclude(unit)) is None:
            return False
        self._left -= len(unit.left)
        unit.left = {key: member for key, member in unit.left.items() if is_allowed(member)} or unit.left
        return self._has_decided(unit)

    def _has_decided(self, unit: Unit) -> bool:
        """Assign a unit with one candidate."""
        if len(unit.left) != 1:
            return False
        if unit.doubtful:
            self.result.guessed.update(map(id, unit.bursts))
        self._assign(unit, *unit.left.values())
        return True

    def _order_of_use(self, member: Member) -> tuple[object, ...]:
        first_uses = self._first_uses.get(self._kind(member.communicator))
        if first_uses is None:
            return False, len(self._first_uses), member.first.place
        return first_uses.has(member.log), first_uses.usual, member.first.place

    def _assign(self, unit: Unit, member: Member) -> None:
        member.bursts = with_more(member.bursts, *unit.bursts)
        named = {rank for end in unit.ends for rank in (end.src, end.dst) if rank is not None} if unit.choice else ()
        if self._is_same_pair(frozenset(named), unit.choice):
            self.result.paired.update(map(id, unit.bursts))
        for burst in unit.bursts:
            threads = self._threads.setdefault(unit.log.process, {})
            threads.setdefault(burst.key.tid, []).append(Made(burst.place, burst.key.conn, member))
        for slot, channels in unit.slots:
            self._take(member, slot, channels)
        self._uses[id(unit.log)] += 1
        self._first_uses[self._kind(member.communicator)].add(member.log, self._uses[id(unit.log)])


class _FirstUses:
    """Holds when processes first used a communicator, counted in what each of them connected."""

    def __init__(self) -> None:
        self._by_log: dict[int, int] = {}
        self._ordered: list[int] = []
        """The same in their order, once somebody asked."""

    def add(self, log: ProcessLog, order: int) -> None:
        """Note a use by a process; only the first one counts."""
        if id(log) not in self._by_log:
            self._by_log[id(log)] = order
            if self._ordered:
                insort(self._ordered, order)

    def has(self, log: ProcessLog) -> bool:
        """Return whether a process used it."""
        return id(log) in self._by_log

    @property
    def usual(self) -> int:
        """Return the median."""
        self._ordered = self._ordered or sorted(self._by_log.values())
        return self._ordered[len(self._ordered) // 2]


def _is_same_pair(named: Iterable[int], choice: Sequence[Member]) -> bool:
    """Return whether ranks were guessed to be of one of several communicators, and are the same of the job in each.

    So it is where a program makes a second communicator of the same ranks: which of the two it is tells nothing about
    paths.
    """
    joined = ([_global(member, rank) for rank in named] for member in choice)
    first = next(joined, None)
    return first is not None and all(ranks == first for ranks in joined)


def _global(member: Member, rank: int) -> object:
    """Return the global rank; a value of its own where the log does not show it."""
    comm = member.communicator
    global_rank = comm.global_ranks[rank] if comm is not None and rank < len(comm.global_ranks) else None
    return (id(comm), rank) if global_rank is None or comm is None or comm.world is None else global_rank


def _kind(comm: Communicator | None) -> tuple[object, ...]:
    """Return what the same communicator is called in every process: SPMD programs use them in the same order."""
    ordinals: list[object] = []
    while comm is not None and comm.parent is not None:
        ordinals.append(comm.ordinal)
        comm = comm.parent
    return ("root", comm.first, *reversed(ordinals)) if comm is not None else ()
