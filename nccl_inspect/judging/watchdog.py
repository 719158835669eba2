"""The reports of PyTorch's watchdog: which rank waited in which process group, and how far each had got."""

from __future__ import annotations

from collections.abc import Container, Sequence

from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.judging.facts import Facts, global_ranks, once
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import CommunicatorInfo, Notice
from nccl_inspect.util.grouping import group_sets, group_values
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.times import glog_seconds
from nccl_inspect.util.wording import list_words, ranks_word

PAIRWISE = ("SEND", "RECV")
"""Between two ranks: PyTorch gives each pair its own communicator, in any process group, and ranks in that."""
_GROUP = compile_later(r"\[PG (?:ID \S+ PG GUID )?(\S+(?: \(\S*\))?) Rank \d")
_ENQUEUED = compile_later(r"(?i)last enqueued (?:NCCL )?work: (-?\d+)")
_COMPLETED = compile_later(r"(?i)last completed (?:NCCL )?work: (-?\d+)")


@frozen
class Wait(Frozen):
    """A rank that waited for a collective until PyTorch gave up."""

    group: str | None
    """The process group as PyTorch names it, ``0(default_pg)``; None if the line does not name it."""
    rank: int | None
    """Rank in the job, if the line has it."""
    member: int | None
    """Rank in the process group."""
    seq: int
    """-1 if PyTorch does not number its works (until 1.12)."""
    operation: str
    numel: int | None
    timeout_ms: int
    notice: Notice


@frozen
class Status(Frozen):
    """The works of a rank as its watchdog reports them beside a time-out."""

    notice: Notice
    group: str | None
    stated: int | None
    """Rank in the job, as printed."""
    member: int | None
    enqueued: int | None
    """The number of the last work."""
    completed: int

    @property
    def rank(self) -> int | None:
        """Return the rank in the job."""
        return job_rank(self.stated, self.member, self.group)

    @property
    def is_in_call(self) -> bool:
        """Return whether it is about a call that failed or timed out; else it is asked for a dump."""
        return "watchdog-status" in self.notice.roles


@once
def statuses(facts: Facts) -> list[Status]:
    """Return all statuses, in the order of the log."""
    found = []
    for notice in facts.with_role("watchdog-status", "watchdog-dump"):
        numbers = [int(match[1]) if (match := one.search(notice.message)) else None for one in (_ENQUEUED, _COMPLETED)]
        stated, member = (one if isinstance(one := value(notice, name), int) else None for name in _RANKS)
        done = -1 if numbers[1] is None else numbers[1]
        found.append(Status(notice, group_of(notice.message), stated, member, numbers[0], done))
    return found


_RANKS = ("global_rank", "rank")


@once
def waits(facts: Facts) -> list[Wait]:
    """Return each wait once, although PyTorch reports it several times."""
    by_key: dict[tuple[object, ...], Wait] = {}
    first: dict[tuple[object, ...], Notice] = {}
    # Since 2.4 the line about the time-out does not name the group, but that which the rank prints behind it.
    named = group_values(
        ((one.stated, one.member, value(one.notice, "seq")), one)
        for one in statuses(facts)
        if one.is_in_call and one.group is not None
    )
    for notice in facts.with_event(CollectiveTimeout):
        event = notice.event
        assert isinstance(event, CollectiveTimeout)
        seq = -1 if event.seq is None else event.seq
        group = group_of(notice.message) or _next_group(named.get((event.global_rank, event.rank, seq), []), notice)
        member = None if event.operation in PAIRWISE else event.rank
        rank = job_rank(event.global_rank, member, group)
        own = event.global_rank, event.rank, seq, event.operation
        if group is None:
            first.setdefault(own, notice)
        key = group, rank, event.rank, seq, event.operation
        if key not in by_key:
            begun = first.get(own, notice)  # the text of an exception has the group, and is printed later
            by_key[key] = Wait(group, rank, event.rank, seq, event.operation, event.numel_in, event.timeout_ms, begun)
    # An exception's text repeats a wait, and lacks the group or the rank.
    with_group = {(wait.seq, wait.operation, wait.member) for wait in by_key.values() if wait.group is not None}
    with_rank = {(wait.seq, wait.operation, wait.member) for wait in by_key.values() if wait.rank is not None}
    return [
        wait
        for wait in by_key.values()
        if (wait.group is not None or (wait.seq, wait.operation, wait.member) not in with_group)
        and (wait.rank is not None or (wait.seq, wait.operation, wait.member) not in with_rank)
    ]


def _next_group(named: list[Status], notice: Notice) -> str | None:
    """Return the only group that statuses name, or that of the first one behind a line."""
    line, groups = notice.evidence[0], {status.group for status in named}
    if len(groups) < 2:
        return next(iter(groups), None)
    places = [(status.notice.evidence[0].order, status.group) for status in named]
    sources = [status.notice.evidence[0].source for status in named]
    behind = [place for place, source in zip(places, sources, strict=True) if source == line.source]
    return min((place for place in behind if place[0] > line.order), default=(0, None))[1]


def latecomers(waiting: Sequence[Wait]) -> list[Wait]:
    """Waits that, by their times, started only after the first had timed out: the first waited for them."""
    printed = [(wait, glog_seconds(wait.notice.message)) for wait in waiting]
    timed_out = min((when for _, when in printed if when), default=None)
    late = []
    for wait, when in printed if timed_out is not None else ():
        ran_ms = getattr(wait.notice.event, "ran_ms", None)
        if when is not None and ran_ms is not None and timed_out is not None and when - ran_ms / 1000 > timed_out:
            late.append(wait)
    return late


def by_time(waiting: list[Wait]) -> list[Wait]:
    """Waits in the order in which they timed out, which is not that of lines where each host has its own file."""
    times = {id(wait): glog_seconds(wait.notice.message) for wait in waiting}
    return waiting if None in times.values() else sorted(waiting, key=lambda wait: times[id(wait)] or 0.0)


def wait_words(waits: list[Wait], place: str) -> str:
    """Return who waited in which call, lowest number first: the others may be waiting for those ranks."""
    parts: list[str] = []
    last = None
    ordered = sorted(waits, key=lambda wait: wait.seq)
    for (seq, operation), waiting in group_values(((wait.seq, wait.operation), wait) for wait in ordered).items():
        timeout = waiting[0].timeout_ms // 1000
        limit = "" if timeout == last else f" waited {timeout} s"
        last = timeout
        work = f" (work {seq}{'' if parts else place})" if seq >= 0 else ""
        ranks = {wait.rank for wait in waiting if wait.rank is not None}
        members = {wait.member for wait in waiting if wait.member is not None}
        of_group = f"{ranks_word(members)} of its process group" if members else "a rank"
        parts.append(f"{ranks_word(ranks) if ranks else of_group}{limit} for {operation}{work}")
    return list_words(parts, limit=3)


def group_of(message: str) -> str | None:
    """Return the process group that a line names, if the name is valid in the whole job.

    Until 2.1 PyTorch names none; 2.2 and 2.3 print a number that each process counts on its own: only 0 is the same
    group everywhere.
    """
    match = _GROUP.search(message)
    name = match[1].replace(" ", "") if match else None
    return None if name is not None and name.isdigit() and name != "0" else name


def job_rank(global_rank: int | None, member: int | None, group: str | None) -> int | None:
    """Return the rank of the job: as printed, or that of the process group that holds all ranks."""
    return global_rank if global_rank is not None else member if _is_default(group) else None


def _is_default(group: str | None) -> bool:
    return group is not None and (group == "0" or "default_pg" in group)


def waiting_ranks(facts: Facts) -> set[int]:
    """Return the ranks whose own watchdog reports a call that failed or timed out: they waited for others."""
    return {status.stated for status in statuses(facts) if status.is_in_call and status.stated is not None}


@once
def without_output(facts: Facts) -> set[int]:
    """Return the ranks that made a communicator with others and of which the log has no line: it lacks their output.

    Only where all ranks that print anything print NCCL's lines about that as well.
    """
    missing: set[int] = set()
    seen = set(facts.job.ranks_seen)
    for comm in facts.job.communicators:
        members = global_ranks(comm, range(comm.nranks))
        if comm.completed and members & seen <= global_ranks(comm, comm.started):
            missing |= members - seen
    return missing


def communicator_of(
    facts: Facts, group: str | None, waiting: Sequence[Wait], others: Container[tuple[int | None, ...]] = ()
) -> CommunicatorInfo | None:
    """Return the communicator of a process group: the world, or the only one with the same ranks in the same order.

    Args:
        facts: about the job.
        group: as PyTorch names it.
        waiting: those that wait in it.
        others: the ranks of other groups, which it cannot be.
    """
    comms = facts.job.communicators
    if _is_default(group):
        return next((comm for comm in comms if comm.id == "world"), None)
    if group is None:
        return comms[0] if len(comms) == 1 else None
    places = {(wait.member, wait.rank) for wait in waiting if wait.member is not None and wait.rank is not None}
    places |= _members_by_group(facts).get(group, set())
    near = _by_place(facts).get(min(places), []) if places else []
    fits = [
        comm for comm in near if all(member < comm.nranks and comm.ranks[member] == rank for member, rank in places)
    ]
    fits = [comm for comm in fits if tuple(comm.ranks) not in others]
    return fits[0] if len({tuple(comm.ranks) for comm in fits}) == 1 else None


def communicator_of_wait(facts: Facts, waiting: Sequence[Wait]) -> CommunicatorInfo | None:
    """Return the communicator of some waits of one group: between two ranks the only pair that has them all."""
    first = waiting[0]
    if first.operation not in PAIRWISE:
        return communicator_of(facts, first.group, waiting)
    ranks = {wait.rank for wait in waiting if wait.rank is not None}
    pairs = [comm for comm in facts.job.communicators if comm.nranks == 2 and ranks <= global_ranks(comm, range(2))]
    return pairs[0] if ranks and len({tuple(comm.ranks) for comm in pairs}) == 1 else None


@once
def _members_by_group(facts: Facts) -> dict[str | None, set[tuple[int, int]]]:
    """By process group, ranks in it with those of the job, as the watchdog states them."""
    return group_sets(
        (status.group, (status.member, status.stated))
        for status in statuses(facts)
        if status.member is not None and status.stated is not None
    )


@once
def _by_place(facts: Facts) -> dict[tuple[int, int], list[CommunicatorInfo]]:
    """Return the communicators other than the world, by each rank in them with that of the job."""
    return group_values(
        ((member, rank), comm)
        for comm in facts.job.communicators
        if comm.id != "world"
        for member, rank in enumerate(comm.ranks)
        if rank is not None
    )
