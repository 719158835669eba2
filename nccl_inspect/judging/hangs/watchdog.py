"""The reports of PyTorch's watchdog: which rank waited in which process group, and how far each had got."""

from __future__ import annotations

from collections.abc import Container, Sequence

from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.judging.facts import Facts, global_ranks, once
from nccl_inspect.model.job import CommunicatorInfo, Notice
from nccl_inspect.util.patterns import later
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.times import glog_seconds
from nccl_inspect.util.wording import listed, ranks_word

PAIRWISE = ("SEND", "RECV")
"""Between two ranks: PyTorch gives each pair its own communicator, in any process group, and ranks in that."""


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


@once
def waits(facts: Facts) -> list[Wait]:
    """Each wait once, although PyTorch reports it several times."""
    by_key: dict[tuple[object, ...], Wait] = {}
    first: dict[tuple[object, ...], Notice] = {}
    groups = _groups(facts)
    for notice in facts.with_event(CollectiveTimeout):
        event = notice.event
        assert isinstance(event, CollectiveTimeout)
        seq = -1 if event.seq is None else event.seq
        group = group_of(notice.message) or _next_group(groups.get((event.global_rank, event.rank, seq), []), notice)
        member = None if event.operation in PAIRWISE else event.rank
        rank = job_rank(event.global_rank, member, group)
        own = event.global_rank, event.rank, seq, event.operation
        if group is None:
            first.setdefault(own, notice)
        key = group, rank, event.rank, seq, event.operation
        if key not in by_key:
            begun = first.get(own, notice)  # the text of an exception has the group, and is printed later
            by_key[key] = Wait(group, rank, event.rank, seq, event.operation, event.numel_in, event.timeout_ms, begun)
    return _without_repeats(list(by_key.values()))


def latecomers(waiting: Sequence[Wait]) -> list[Wait]:
    """Waits that, by their times, started only after the first had timed out: the first waited for them."""
    timed_out = min(filter(None, (_printed_at(wait.notice) for wait in waiting)), default=None)
    if timed_out is None:
        return []
    return [wait for wait in waiting if (began := _began(wait)) and began > timed_out]


def by_time(waiting: list[Wait]) -> list[Wait]:
    """Waits in the order in which they timed out, which is not that of lines where each host has its own file."""
    times = {id(wait): _printed_at(wait.notice) for wait in waiting}
    return waiting if None in times.values() else sorted(waiting, key=lambda wait: times[id(wait)] or 0.0)


def in_words(waits: list[Wait], place: str) -> str:
    """Return who waited in which call, lowest number first: the others may be waiting for those ranks."""
    calls: dict[tuple[int, str], list[Wait]] = {}
    for wait in sorted(waits, key=lambda wait: wait.seq):
        calls.setdefault((wait.seq, wait.operation), []).append(wait)
    parts: list[str] = []
    last = None
    for (seq, operation), waiting in calls.items():
        timeout = waiting[0].timeout_ms // 1000
        limit = "" if timeout == last else f" waited {timeout} s"
        last = timeout
        work = f" (work {seq}{'' if parts else place})" if seq >= 0 else ""
        parts.append(f"{_who(waiting)}{limit} for {operation}{work}")
    return listed(parts, limit=3)


def _who(waiting: list[Wait]) -> str:
    ranks = {wait.rank for wait in waiting if wait.rank is not None}
    members = {wait.member for wait in waiting if wait.member is not None}
    return ranks_word(ranks) if ranks else f"{ranks_word(members)} of its process group" if members else "a rank"


def _began(wait: Wait) -> float | None:
    event = wait.notice.event
    printed_at = _printed_at(wait.notice)
    assert isinstance(event, CollectiveTimeout)
    return None if printed_at is None or event.ran_ms is None else printed_at - event.ran_ms / 1000


def _printed_at(notice: Notice) -> float | None:
    """Return when PyTorch printed a line, in seconds."""
    return glog_seconds(notice.message)


_Status = tuple[str, int, str]
"""Source and line of a status, and the group that it names."""


def _groups(facts: Facts) -> dict[tuple[int | None, int | None, int | None], list[_Status]]:
    """The process groups of a rank's works, from the line that the rank prints behind that about the time-out: since
    2.4 that one itself does not name it."""
    statuses: dict[tuple[int | None, int | None, int | None], list[_Status]] = {}
    for notice in facts.with_role("watchdog-status"):
        values, group = dict(getattr(notice.event, "values", ())), group_of(notice.message)
        if group is not None:
            line = notice.evidence[0]
            key = values.get("global_rank"), values.get("rank"), values.get("seq")
            statuses.setdefault(key, []).append((line.source, line.order, group))
    return statuses


def _next_group(statuses: list[_Status], notice: Notice) -> str | None:
    """The only group that these lines name, or that of the first one behind a line."""
    line, groups = notice.evidence[0], {group for *_, group in statuses}
    if len(groups) < 2:
        return next(iter(groups), None)
    behind = [status for status in statuses if status[0] == line.source and status[1] > line.order]
    return min(behind)[2] if behind else None


def group_of(message: str) -> str | None:
    """The process group that a line names, if the name is valid in the whole job.

    Until 2.1 PyTorch names none; 2.2 and 2.3 print a number that each process counts on its own: only 0 is the same
    group everywhere.
    """
    match = _GROUP.search(message)
    name = match[1].replace(" ", "") if match else None
    return None if name is not None and name.isdigit() and name != "0" else name


def job_rank(global_rank: int | None, member: int | None, group: str | None) -> int | None:
    """The rank of the job: as printed, or that of the process group that holds all ranks."""
    return global_rank if global_rank is not None else member if is_default(group) else None


def is_default(group: str | None) -> bool:
    """Whether this is the process group of all ranks."""
    return group is not None and (group == "0" or "default_pg" in group)


def _without_repeats(waiting: list[Wait]) -> list[Wait]:
    """The waits without their repetition in an exception's text, which lacks the group or the rank."""
    with_group = {(wait.seq, wait.operation, wait.member) for wait in waiting if wait.group is not None}
    with_rank = {(wait.seq, wait.operation, wait.member) for wait in waiting if wait.rank is not None}
    return [
        wait
        for wait in waiting
        if (wait.group is not None or (wait.seq, wait.operation, wait.member) not in with_group)
        and (wait.rank is not None or (wait.seq, wait.operation, wait.member) not in with_rank)
    ]


_GROUP = later(r"\[PG (?:ID \S+ PG GUID )?(\S+(?: \(\S*\))?) Rank \d")


@once
def _places(facts: Facts) -> dict[str | None, set[tuple[int, int]]]:
    """By process group, ranks in it with those of the job, as the watchdog states them."""
    places: dict[str | None, set[tuple[int, int]]] = {}
    for notice in facts.with_role("watchdog-status", "watchdog-dump"):
        values = dict(getattr(notice.event, "values", ()))
        member, rank = values.get("rank"), values.get("global_rank")
        if isinstance(member, int) and isinstance(rank, int):
            places.setdefault(group_of(notice.message), set()).add((member, rank))
    return places


_ENQUEUED = later(r"(?i)last enqueued (?:NCCL )?work: (-?\d+)")


@once
def enqueued(facts: Facts) -> dict[str | None, dict[int, int]]:
    """Return by process group the number of the last work that each rank of the job enqueued in it."""
    works: dict[str | None, dict[int, int]] = {}
    for notice in facts.with_role("watchdog-status", "watchdog-dump"):
        match, group = _ENQUEUED.search(notice.message), group_of(notice.message)
        values = dict(getattr(notice.event, "values", ()))
        rank = job_rank(values.get("global_rank"), values.get("rank"), group)
        if match and rank is not None:
            works.setdefault(group, {})[rank] = int(match[1])
    return works


def in_calls(facts: Facts) -> set[int]:
    """The ranks whose own watchdog reports a call that failed or timed out: they waited for others."""
    values = (dict(getattr(notice.event, "values", ())) for notice in facts.with_role("watchdog-status"))
    return {rank for entry in values if isinstance(rank := entry.get("global_rank"), int)}


@once
def without_output(facts: Facts) -> set[int]:
    """The ranks that made a communicator with others and of which the log has no line: it lacks their output.

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
    """The communicator of a process group: the world, or the only one with the same ranks in the same order.

    Args:
        facts: about the job.
        group: as PyTorch names it.
        waiting: those that wait in it.
        others: the ranks of other groups, which it cannot be.
    """
    comms = facts.job.communicators
    if is_default(group):
        return next((comm for comm in comms if comm.id == "world"), None)
    if group is None:
        return comms[0] if len(comms) == 1 else None
    places = {(wait.member, wait.rank) for wait in waiting if wait.member is not None and wait.rank is not None}
    places |= _places(facts).get(group, set())
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
def _by_place(facts: Facts) -> dict[tuple[int, int], list[CommunicatorInfo]]:
    """The communicators other than the world, by each rank in them with that of the job."""
    comms: dict[tuple[int, int], list[CommunicatorInfo]] = {}
    for comm in facts.job.communicators:
        for member, rank in enumerate(comm.ranks) if comm.id != "world" else ():
            if rank is not None:
                comms.setdefault((member, rank), []).append(comm)
    return comms
