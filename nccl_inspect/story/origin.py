"""Where a hang began, by the time-outs that PyTorch's watchdog reports in all process groups together.

A rank that waits in one group holds up those that wait for it in another. Who waits nowhere holds up all; where
everybody waits, ranks wait for each other in a ring.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from nccl_inspect.judging.facts import Facts, global_ranks
from nccl_inspect.judging.statements import value
from nccl_inspect.judging.watchdog import (
    PAIRWISE,
    Wait,
    communicator_of,
    communicator_of_wait,
    last_enqueued,
    latecomers,
    waiting_ranks,
    without_output,
)
from nccl_inspect.model.job import CommunicatorInfo
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.wording import conjugate, list_words, ranks_word

_MOST_IN_RING = 16
_ORDER = "Ranks call the groups in different orders, one skips a call, or their calls differ in size or type"


@frozen
class Origin(Frozen):
    """Holds where it began, as far as the log shows it."""

    suspects: set[int]
    """Empty where several ranks may be at fault."""
    words: str
    among: Collection[int] = ()
    """Of several that may be at fault, all; empty where one may be whose rank is not known."""


@frozen
class _Call(Frozen):
    """A call in which ranks wait."""

    wait: Wait
    waiting: frozenset[int]
    absent: frozenset[int]
    """Ranks of the group that do not wait in it; empty where the group is not known."""
    is_known: bool
    """Whether its communicator is."""

    @property
    def description(self) -> str:
        who = ranks_word(self.waiting)
        what = f"{self.wait.operation} (work {self.wait.seq} of {self.wait.group})"
        return f"{who} {conjugate(len(self.waiting), 'wait')} for {ranks_word(self.absent)} in {what}"


def origin(facts: Facts, waits: Sequence[Wait], elsewhere: Iterable[int] = ()) -> Origin | None:
    """Return where the hang began; None where the waits do not show it.

    Args:
        facts: about the job.
        waits: of all process groups; at least one.
        elsewhere: ranks that wait for others outside of these calls.
    """
    reports = facts.notices("torch/desync-lagging", "torch/desync-not-joined")
    parts = (part for report in reports for part in str(value(report, "members")).split(","))
    if named := {int(part) for part in parts if part.strip().isdigit()}:
        return Origin(named, f"PyTorch's desync report names {ranks_word(named)} as lagging")
    late = latecomers(waits)
    waits = [wait for wait in waits if wait not in late]
    by_group = collectives_by_group(waits)
    waiting = {wait.rank for wait in waits if wait.rank is not None}
    if not by_group:  # the members that did not time out, of the pair or the only communicator in which others wait
        comm = communicator_of_wait(facts, waits) if waiting else None
        absent = global_ranks(comm, range(comm.nranks)) - waiting - waiting_ranks(facts) if comm else set[int]()
        absent -= last_enqueued(facts).get(waits[0].group, {}).keys() if absent else set()
        if not absent or len(absent) > len(waiting):
            return None
        them = f"{ranks_word(absent)} did not time out: it did not arrive, died, or its output is missing"
        return Origin(absent, them)
    for group, some in by_group.items():
        if differing := _different(group, some):
            return Origin(set(), differing, {wait.rank for wait in some if wait.rank is not None})
    calls, reached = [], set[int]()
    for group, some, comm in with_communicators(facts, by_group):
        here = frozenset(wait.rank for wait in some if wait.rank is not None)
        members = global_ranks(comm, range(comm.nranks)) if comm else set()
        calls.append(_Call(some[0], here, frozenset(members - here), comm is not None))
        reached |= {rank for rank, last in last_enqueued(facts).get(group, {}).items() if last >= some[0].seq}
    waiting |= waiting_ranks(facts) | set(elsewhere)
    idle = {rank for call in calls for rank in call.absent} - waiting - reached
    unseen = idle & without_output(facts)
    known = [call.with_fields(absent=call.absent - unseen) for call in calls]
    if idle == unseen and (among := _find_in_ring(known) or _innermost(known)):
        return among
    # A call that waits for no rank without output waits for one of these for certain.
    idle = {rank for call in calls if not call.absent & unseen for rank in call.absent & idle} or idle
    if not idle or len(idle) > len(waiting):
        return None
    waits_for = list_words([call.description for call in calls if call.absent & idle], limit=3)
    missing = f" (the log has no output of {ranks_word(idle & unseen)})" if idle & unseen else ""
    return Origin(idle, f"by elimination, {ranks_word(idle)}{missing}: {waits_for}")


def collectives_by_group(waits: Iterable[Wait]) -> dict[str, list[Wait]]:
    """Return the collectives in which ranks wait, by process group."""
    own = (wait for wait in waits if wait.rank is not None and wait.operation not in PAIRWISE)
    return group_values((wait.group, wait) for wait in own if wait.group is not None)


def with_communicators(
    facts: Facts, by_group: Mapping[str, list[Wait]]
) -> Iterator[tuple[str, list[Wait], CommunicatorInfo | None]]:
    """Yield each group with its communicator, those first of which the waits leave one: it is no other group's."""
    left = dict(by_group)
    taken: set[tuple[int | None, ...]] = set()
    while left:
        fits = {group: communicator_of(facts, group, waits, taken) for group, waits in left.items()}
        for group, comm in ({group: comm for group, comm in fits.items() if comm} or fits).items():
            yield group, left.pop(group), comm
            taken.add(tuple(comm.ranks) if comm else ())


def _different(group: str, waits: Sequence[Wait]) -> str:
    """Return ranks of one group that wait under two numbers, in words; empty where all wait under one."""
    by_number = sorted(group_sets((wait.seq, wait.rank) for wait in waits if wait.rank is not None).items())
    if len(by_number) < 2:
        return ""
    (number, first), (_, then), *_ = by_number
    if not (only := first - then):
        return ""
    return (
        f"it likely began in process group {group}: {ranks_word(then)} finished work {number}, in which "
        f"{ranks_word(only)} still {conjugate(len(only), 'wait')}: they made different calls under that number, or the "
        f"part of {ranks_word(only)} is stuck"
    )


def _find_in_ring(calls: Sequence[_Call]) -> Origin | None:
    """Return ranks that wait for each other: those that are in every ring."""
    elsewhere = {rank for call in calls if call.absent for rank in call.waiting}
    calls = [  # one in which all ranks are waits for those that wait elsewhere as well
        call.with_fields(waiting=call.waiting - elsewhere, absent=call.waiting & elsewhere)
        if call.is_known and not call.absent
        else call
        for call in calls
    ]
    ring = _ring(calls, None)
    core = {rank for rank in ring if not _ring(calls, rank)} if len(ring) <= _MOST_IN_RING else set[int]()
    if not core:
        return None  # there are several rings, and nothing says which was the first
    held = [call for call in calls if call.waiting & set(ring) and call.absent & set(ring)]
    links = list_words([call.description for call in held], limit=3)
    if len(core) == 1:
        return Origin(core, f"all others wait for {ranks_word(core)}, or for ranks that do: {links}")
    return Origin(set(), f"it likely began with {ranks_word(core)}, which wait for each other: {links}. {_ORDER}", core)


def _innermost(calls: Sequence[_Call]) -> Origin | None:
    """Return the group in which all those stand for which the others wait, where its other ranks are not known."""
    unknown = [call for call in calls if not call.is_known]
    held = [call for call in calls if call.absent]
    if len(unknown) != 1 or not held or not all(call.absent <= unknown[0].waiting for call in held):
        return None
    last = unknown[0]
    return Origin(
        set(),
        f"it likely began in process group {last.wait.group}, in {last.wait.operation} (work {last.wait.seq}): "
        f"{ranks_word(last.waiting)} {conjugate(len(last.waiting), 'wait')} there, and "
        + list_words([call.description for call in held], limit=3)
        + f". {_ORDER}",
    )


def _ring(calls: Sequence[_Call], without: int | None) -> list[int]:
    """Return ranks that wait for each other in a ring, leaving one rank out of account."""
    graph: dict[object, set[object]] = {}
    for number, call in enumerate(calls):
        graph[f"call {number}"] = set(call.absent - {without})
        for rank in call.waiting - {without}:
            graph.setdefault(rank, set()).add(f"call {number}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return sorted({entry for entry in error.args[1] if isinstance(entry, int)})
    return []
