"""What PyTorch says of calls: who waited in which group, by its watchdog, and who made them, by its flight recorder."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.judging.evidence.kernel_log import is_near
from nccl_inspect.judging.facts import Facts, global_ranks, once, precedes
from nccl_inspect.judging.life import find_begun
from nccl_inspect.judging.statements import find_rank, value
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import contents_of
from nccl_inspect.model.job import CommunicatorInfo, Notice
from nccl_inspect.model.statements import ages
from nccl_inspect.util.grouping import group_sets, group_values, sort_by
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen
from nccl_inspect.util.times import are_near, glog_seconds, line_seconds
from nccl_inspect.util.wording import conjugate, list_words, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.flight_recorder import Call, Dump, Group
    from nccl_inspect.artifacts.standstill import Part, Standstill
    from nccl_inspect.model.finding import Finding

PAIRWISE = ("SEND", "RECV")
"""Between two ranks: PyTorch gives each pair its own communicator, in any process group, and ranks in that."""
_GROUP = compile_later(r"\[PG (?:ID \S+ PG GUID )?(\S+(?: \(\S*\))?) Rank \d")
_ENQUEUED = compile_later(r"(?i)last enqueued (?:NCCL )?work: (-?\d+)")
_COMPLETED = compile_later(r"(?i)last completed (?:NCCL )?work: (-?\d+)")
_TIMED_OUT = "collective timeout"


class Wait(Frozen):
    """A rank that waited for a collective until PyTorch gave up."""

    group: str | None
    """The process group as PyTorch names it, ``0(default_pg)``; None if the line does not name it."""
    rank: int | None  # rank in the job, if the line has it
    member: int | None  # rank in the process group
    seq: int  # -1 if PyTorch does not number its works (until 1.12)
    operation: str
    numel: int | None
    timeout_ms: int
    notice: Notice


class Status(Frozen):
    """The works of a rank as its watchdog reports them beside a time-out."""

    notice: Notice
    group: str | None
    stated: int | None  # rank in the job, as printed
    member: int | None
    enqueued: int | None  # the number of the last work
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
        enqueued, done = (pattern.search(notice.message) for pattern in (_ENQUEUED, _COMPLETED))
        ranks = (value(notice, name) for name in ("global_rank", "rank"))
        stated, member = (rank if isinstance(rank, int) else None for rank in ranks)
        last = int(enqueued[1]) if enqueued else None
        found.append(Status(notice, group_of(notice.message), stated, member, last, int(done[1]) if done else -1))
    return found


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
    found = [(wait, (wait.seq, wait.operation, wait.member)) for wait in by_key.values()]
    with_group = {call for wait, call in found if wait.group is not None}
    with_rank = {call for wait, call in found if wait.rank is not None}
    found = [(wait, call) for wait, call in found if wait.group is not None or call not in with_group]
    return [wait for wait, call in found if wait.rank is not None or call not in with_rank]


def _next_group(named: list[Status], notice: Notice) -> str | None:
    """Return the only group that statuses name, or that of the first one behind a line."""
    groups = {status.group for status in named}
    if len(groups) < 2:
        return next(iter(groups), None)
    behind = (status for status in named if precedes(notice, status.notice))
    return min(((status.notice.evidence[0].order, status.group) for status in behind), default=(0, None))[1]


def latecomers(waiting: Sequence[Wait]) -> list[Wait]:
    """Waits that, by their times, started only after the first had timed out: the first waited for them."""
    printed = [
        (wait, glog_seconds(wait.notice.message), getattr(wait.notice.event, "ran_ms", None)) for wait in waiting
    ]
    first = min((when for _, when, _ in printed if when), default=math.inf)
    return [wait for wait, when, ran_ms in printed if when and ran_ms is not None and when - ran_ms / 1000 > first]


def by_time(waiting: list[Wait]) -> list[Wait]:
    """Waits in the order in which they timed out, which is not that of lines where each host has its own file."""
    return sort_by(waiting, lambda wait: glog_seconds(wait.notice.message)) or waiting


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
        members = comm.known_ranks
        if comm.completed and members & seen <= global_ranks(comm, comm.started):
            missing |= members - seen
    return missing


@once
def begins_late(facts: Facts) -> bool:
    """Return whether a log begins after the trouble did: then a line that is not there shows nothing.

    Communicators end that it never shows, or ranks end because of a time-out of which they told before, as others did.
    """
    comms = facts.job.communicators
    if any(comm.ended and not (comm.started or comm.completed) for comm in comms):
        return True
    told = {status.rank for status in statuses(facts)} | {wait.rank for wait in waits(facts)}
    ended = [one for one in facts.notices("torch/process-terminating") if _TIMED_OUT in one.message]
    later = [*ended, *facts.with_role("after-timeout")]
    ranks = {rank for notice in later if (rank := find_rank(notice.message)) is not None}
    shown = {rank for last in facts.job.last_lines if last.process in find_begun(facts) for rank in last.ranks}
    return not ranks <= told.union(shown, *(global_ranks(comm, comm.started) for comm in comms))


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
    fits = [comm for comm in near if tuple(comm.ranks) not in others and places <= set(enumerate(comm.ranks))]
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


# Dumps of the flight recorder: what blocks the job, and in words

_DAY = 86_400.0
_NO_TIME = 1e9  # seconds; archives and images without times give their files 1970 or 1980
CLOCKS = 2.0  # seconds by which the clocks of hosts may differ
_ZONES, _STARTING = 1_800.0, 900.0  # seconds by which time zones differ, and in which a job makes its first calls
_FRESH = 5.0  # seconds after a call: nobody sets a timeout this short
_SHORT = {"_all_gather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor"}
"""The names under which programs call these operations."""


def standstills(facts: Facts, *kinds: str) -> list[Standstill]:
    """Return what blocks the job according to the dumps of its ranks, of these kinds."""
    return [still for still in all_standstills(facts) if still.kind in kinds]


@once
def all_standstills(facts: Facts) -> list[Standstill]:
    """Return what blocks the job according to the dumps of its ranks.

    Dumps of a running job show ranks in calls that others have yet to make: then only calls that differ are wrong.
    """
    dumps = dumps_of(facts)
    if not dumps:
        return []
    from nccl_inspect.artifacts import standstill  # most logs have no dumps

    # Ranks without a dump that, by the log, timed out in a call waited for others.
    dumped, late = {dump.rank for dump in dumps}, {wait.rank for wait in latecomers(waits(facts))}
    waiting = {wait.rank for wait in waits(facts) if wait.rank is not None} - dumped - late
    stills = standstill.find_standstills(dumps, waiting.union(being_made(facts)))
    return [still for still in stills if still.kind == artifacts.DIFFERENT or not is_running(facts)]


@once
def is_of_run(facts: Facts) -> bool:
    """Return whether a time shows that dumps are of the run in the log: they name no processes or communicators.

    Lines with a date were printed within a day of the last calls and not after the first ones, or the log was last
    written then; where nobody knows when, as in an archive, both were packed together. What the log says of calls that
    timed out was compared with the dumps before.
    """
    active = max((dump.active_ns for dump in dumps_of(facts)), default=0) / 1e9
    if waits(facts) or active < _NO_TIME:
        return True
    if _began_before(facts):
        return False
    day = datetime.fromtimestamp(active, UTC).strftime("%Y-%m-%d %H:%M:%S")
    texts = [last.time or "" for last in facts.job.last_lines]
    texts += [line.text for notice in facts.job.notices for line in notice.evidence[-1:]]
    if any(is_near(day, text) or are_near(line_seconds(day), line_seconds(text)) for text in texts):
        return True
    written = [when for source in facts.job.sources if (when := ages.write_time(source.name) or 0) > _NO_TIME]
    return not written or any(abs(when - active) <= _DAY for when in written)


def _began_before(facts: Facts) -> bool:
    """Return whether the first calls of the dumps precede the log: in UTC, and soon after it in no zone.

    A log without the initialization of a communicator may have lost its beginning.
    """
    if not any(comm.announced for comm in facts.job.communicators):
        return False
    calls = (call for dump in dumps_of(facts) for some in dump.calls.values() for call in some)
    called = min((call.created_ns for call in calls), default=0) / 1e9
    first = line_seconds(datetime.fromtimestamp(called, UTC).isoformat(" ")) if called else None
    lines = (line_seconds(notice.evidence[0].text) for notice in facts.job.notices)
    begin = min((when for when in lines if when is not None), default=0.0)
    return first is not None and first < begin - CLOCKS and (first - begin) % _ZONES > _STARTING


def doubt(facts: Facts, findings: list[Finding]) -> list[Finding]:
    """Return the findings; a failure that only dumps show which may be of another run is possible."""
    names = {dump.name for dump in dumps_of(facts)}
    if not names or is_of_run(facts):
        return findings
    return [
        finding.with_fields(confidence="possible", fatal=False)
        if finding.fatal and names.issuperset(line.source for line in finding.evidence)
        else finding
        for finding in findings
    ]


def being_made(facts: Facts) -> dict[int, CommunicatorInfo]:
    """Return the ranks that wait, by the log, to initialize a communicator for others that did not begin it."""
    comms = (comm for comm in facts.job.communicators if 0 < len(comm.started) < comm.nranks)
    places = ((comm, place) for comm in comms for place in comm.pending)
    return {rank: comm for comm, place in places if (rank := comm.ranks[place]) is not None}


@once
def is_running(facts: Facts) -> bool:
    """Return whether all dumps were written right after a call: a dump at a time-out follows a long wait.

    Copies have newer timestamps and count as dumps of a job at a standstill.
    """
    job = facts.job
    if job.failed or job.ended_by or job.quiet is not None or facts.errors(forced_ends=False) or waits(facts):
        return False
    since = [(ages.write_time(dump.name), dump.active_ns / 1e9) for dump in dumps_of(facts)]
    return bool(since) and all(when and 0 <= when - active < _FRESH for when, active in since)


def confidence(still: Standstill) -> str:
    """Return the confidence in which ranks are missing from the call.

    A dump may be missing from the input, or older than the others' calls.
    """
    if still.culprits:
        return "possible" if dumped_before(still) else "certain"
    is_told = len(still.silent) <= len(still.waiting) and not (still.older or still.overwritten)
    return "likely" if is_told else "possible"


def blocking_ranks(facts: Facts) -> set[int]:
    """Return the ranks that certainly block the others, according to the dumps."""
    kinds = (artifacts.MISSING, artifacts.NO_PARTNER, artifacts.DIFFERENT)
    certain = [still for still in standstills(facts, *kinds) if still.waiting and confidence(still) == "certain"]
    odd = {rank for still in standstills(facts, artifacts.CYCLE) for rank in still.odd}
    return {part.rank for still in certain for part in still.culprits} | odd


def waiting(facts: Facts) -> set[int]:
    """Return the ranks that, according to the dumps, only wait for others."""
    standing = {dump.rank for dump in dumps_of(facts) if dump.rank is not None and dump.is_waiting}
    blocks = {rank for still in all_standstills(facts) for rank in ranks_of(still.culprits).union(still.unknown)}
    return (standing | being_made(facts).keys()) - blocks if blocks else set()


def chain(facts: Facts, still: Standstill) -> str:
    """Return who else waits because of it; empty if nobody does, or for these ranks only."""
    made = being_made(facts)
    culprits = ranks_of(still.culprits) or set(still.unknown)
    links = [
        f"{who_waits(link.ranks)} for {ranks_word(link.awaited)} in {work(link.call, link.group, link.call.seq)}"
        for link in still.chain
        if link.ranks
    ]
    links += [
        f"rank {rank} waits in the initialization of a communicator of {comm.nranks} ranks, which the others did not "
        "begin"
        for rank, comm in made.items()
        if rank not in culprits and still.culprits
    ]
    return list_words(links, limit=3)


def dumped_before(still: Standstill) -> float:
    """Return how many seconds before the others' call the first dump of a culprit was written; 0 if none was."""
    called = min((part.call.created_ns for part in still.waiting if part.call), default=0) / 1e9
    times = [when for part in still.culprits if (when := ages.write_time(part.dump))]
    early = called - min(times, default=called)
    return early if early > CLOCKS else 0


def who_waits(ranks: Collection[int]) -> str:
    """Return the beginning of a sentence about ranks that wait: ``ranks 0-2 wait``."""
    return f"{ranks_word(ranks)} {conjugate(len(ranks), 'wait')}"


def dumps_of(facts: Facts) -> list[Dump]:
    """Return all dumps beside the log."""
    return contents_of(facts.job.artifacts, "flight_recorder")


def ranks_of(parts: Iterable[Part]) -> set[int]:
    """Return the ranks of these parts."""
    return {part.rank for part in parts}


def work(call: Call | None, group: Group, seq: int) -> str:
    """Return a call in words: ``all_reduce (work 6 of group TP)``."""
    number = f"work {seq}" + (f" of group {group.label}" if group.label else "")
    return f"{operation(call.operation)} ({number})" if call and call.operation else number


def operation(name: str) -> str:
    """Return an operation as programs call it."""
    return _SHORT.get(name, name)


def describe_call(call: Call) -> str:
    """Return a call with its size and type: ``all_reduce of 1048576 elements of Float``."""
    size = f" of {sum(call.inputs)} elements" if call.inputs else ""
    return f"{operation(call.operation)}{size}" + (f" of {'/'.join(call.dtypes)}" if call.dtypes else "")


def by_call(parts: Sequence[Part]) -> str:
    """Return each call with the ranks that made it."""
    made = group_sets((describe_call(part.call), part.rank) for part in parts if part.call)
    return "; ".join(f"{call} on {ranks_word(ranks)}" for call, ranks in made.items())


def list_frames(parts: Sequence[Part]) -> str:
    """Return where the program made these calls, with the ranks; empty if the dumps have no stacks."""
    made = group_sets((part.call.frame, part.rank) for part in parts if part.call and part.call.frame)
    return list_words([f"{frame} ({ranks_word(ranks)})" for frame, ranks in made.items()], limit=3)


def links_of(ring: Standstill) -> list[str]:
    """Return who waits for whom in a ring of ranks."""
    parts = [part for part in ring.culprits if part.call]
    return [
        f"rank {part.rank} waits for rank {after.rank} in {_operation_of(part)} of group {part.label}"
        for part, after in pairwise([*parts, *parts[:1]])
    ]


def _operation_of(part: Part) -> str:
    assert part.call
    return operation(part.call.operation) or f"work {part.call.seq}"


def lines(parts: Sequence[Part], limit: int = 2) -> Iterator[Evidence]:
    """Yield the calls as lines of evidence; the number is that of the call on its rank."""
    for part in parts[:limit]:
        if call := part.call:
            place = f", {call.frame}" if call.frame else ""
            text = f"rank {part.rank}: work {call.seq} of group {part.label}: {describe_call(call)}"
            yield Evidence(part.dump, call.order, f"{text}, {call.state}{place}")
