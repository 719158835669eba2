"""PyTorch's flight recorder on a standstill, in words and lines: shared by the rules about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nccl_inspect import artifacts
from nccl_inspect.judging.evidence.kernel_log import is_near
from nccl_inspect.judging.facts import Facts, once
from nccl_inspect.judging.watchdog import latecomers, waits
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.inventory import contents_of
from nccl_inspect.model.statements import ages
from nccl_inspect.util.grouping import group_sets
from nccl_inspect.util.times import line_seconds
from nccl_inspect.util.wording import conjugate, list_words, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.flight_recorder import Call, Dump, Group
    from nccl_inspect.artifacts.standstill import Part, Standstill
    from nccl_inspect.model.finding import Finding
    from nccl_inspect.model.job import CommunicatorInfo

_DAY = 86_400.0
_NO_TIME = 1e9
"""Seconds; archives and images without times give their files 1970 or 1980."""
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
    standstills = standstill.find_standstills(dumps, waiting.union(being_made(facts)))
    return [still for still in standstills if still.kind == artifacts.DIFFERENT] if is_running(facts) else standstills


@once
def is_of_run(facts: Facts) -> bool:
    """Return whether a time shows that dumps are of the run in the log: they name no processes or communicators.

    Lines with a date were printed within a day of the last calls and not after the first ones, or the log was not last
    written before that. What the log says of calls that timed out was compared with the dumps before.
    """
    active = max((dump.active_ns for dump in dumps_of(facts)), default=0) / 1e9
    if waits(facts) or not active:
        return True
    if _began_before(facts):
        return False
    day = datetime.fromtimestamp(active, UTC).strftime("%Y-%m-%d %H:%M:%S")
    texts = [last.time for last in facts.job.last_lines if last.time]
    texts += [line.text for notice in facts.job.notices for line in notice.evidence[-1:]]
    if any(is_near(day, text) for text in texts):
        return True
    written = [when for source in facts.job.sources if (when := ages.write_time(source.name) or 0) > _NO_TIME]
    return not written or any(when >= active - _DAY for when in written)  # a copy is younger


def _began_before(facts: Facts) -> bool:
    """Return whether the first calls of the dumps precede the log: in UTC, and soon after it in no zone.

    A log without the initialization of a communicator may have lost its beginning.
    """
    if not any(comm.announced for comm in facts.job.communicators):
        return False
    calls = (call for dump in dumps_of(facts) for some in dump.calls.values() for call in some)
    called = min((call.created_ns for call in calls), default=0) / 1e9
    first = line_seconds(datetime.fromtimestamp(called, UTC).isoformat(" "))
    lines = (line_seconds(notice.evidence[0].text) for notice in facts.job.notices)
    begin = min((when for when in lines if when is not None), default=None)
    if begin is None or first is None or not called:
        return False
    return first < begin - CLOCKS and (first - begin) % _ZONES > _STARTING


_ZONES, _STARTING = 1_800.0, 900.0
"""Seconds by which time zones differ, and in which a job makes its first calls."""


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
    places = ((comm, place) for comm in comms for place in set(comm.started) - set(comm.completed))
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


_FRESH = 5.0
"""Seconds after a call: nobody sets a timeout this short."""


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
    """Return who else waits because of it, in words; empty if nobody does, or for these ranks only."""
    made = being_made(facts)
    culprits = ranks_of(still.culprits) or set(still.unknown)
    links = [
        f"{ranks_word(link.ranks)} {conjugate(len(link.ranks), 'wait')} for {ranks_word(link.awaited)} in "
        f"{work(link.call, link.group, link.call.seq)}"
        for link in still.chain
        if link.ranks
    ]
    links += [
        f"rank {rank} waits in the initialization of a communicator of {comm.nranks} ranks, which the others did not "
        "begin"
        for rank, comm in made.items()
        if rank not in culprits and still.culprits
    ]
    return f"Because of that, {list_words(links, limit=3)}" if links else ""


def dumped_before(still: Standstill) -> float:
    """Return how many seconds before the others' call the first dump of a culprit was written; 0 if none was."""
    called = min((part.call.created_ns for part in still.waiting if part.call), default=0) / 1e9
    times = [when for part in still.culprits if (when := ages.write_time(part.dump))]
    early = called - min(times, default=called)
    return early if early > CLOCKS else 0


CLOCKS = 2.0
"""Seconds by which the clocks of hosts may differ."""


def not_known(still: Standstill) -> str:
    """Return the ranks whose part in the call the dumps leave open, and why; empty if there are none."""
    parts = [
        f"{ranks_word(still.silent)} wrote no dump: dead, or the dump is not in the input" if still.silent else "",
        f"the dump of {ranks_word(still.older)} is older: it lacks calls that the others finished with "
        f"{'it' if len(still.older) == 1 else 'them'}"
        if still.older
        else "",
        f"{ranks_word(still.overwritten)} may have called it: the ring buffer of the recorder no longer has the calls "
        "of this group"
        if still.overwritten
        else "",
    ]
    if early := dumped_before(still):
        parts.append(f"the dump of {ranks_word(ranks_of(still.culprits))} was written {early:.0f} s before that call")
    return "; ".join(filter(None, parts))


def fixes_of_dumps(still: Standstill) -> Iterator[str]:
    """Steps that make the dumps more complete."""
    if still.silent:
        yield f"Look at the output of {ranks_word(still.silent)} first: a process that died writes no dump."
    if still.older or dumped_before(still):
        yield "Collect dumps of all ranks from the same moment: PyTorch writes them together at a time-out."
    if still.overwritten:
        yield "TORCH_NCCL_TRACE_BUFFER_SIZE=20000   # each rank keeps more calls"


def dumps_of(facts: Facts) -> list[Dump]:
    """Return all dumps beside the log."""
    return contents_of(facts.job.artifacts, "flight_recorder")


def ranks_of(parts: Iterable[Part]) -> set[int]:
    """Return the ranks of these parts."""
    return {part.rank for part in parts}


def work(call: Call | None, group: Group, seq: int) -> str:
    """Return a call in words: ``all_reduce (work 6 of group TP)``."""
    number = f"work {seq} of group {group.label}"
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


def label(facts: Facts, part: Part) -> str:
    """Return the group of a call as the program calls it."""
    call, dumps = part.call, (dump for dump in dumps_of(facts) if dump.name == part.dump)
    return next((dump.groups[call.group].label for dump in dumps if call), "")


def lines(facts: Facts, parts: Sequence[Part], limit: int = 2) -> Iterator[Evidence]:
    """Yield the calls as lines of evidence; the number is that of the call on its rank."""
    for part in parts[:limit]:
        if call := part.call:
            place = f", {call.frame}" if call.frame else ""
            text = f"rank {part.rank}: work {call.seq} of group {label(facts, part)}: {describe_call(call)}"
            yield Evidence(part.dump, call.order, f"{text}, {call.state}{place}")
