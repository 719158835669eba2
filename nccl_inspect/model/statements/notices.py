"""Joins what several processes said in the same words at the same place of NCCL's source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from nccl_inspect.event import types as events
from nccl_inspect.event.base import Process, hide_secrets
from nccl_inspect.grammar import engine
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Late
from nccl_inspect.model.communicators import lifetime
from nccl_inspect.model.communicators.members import Member, ProcessMembers
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.fold.process_log import PAIRED, CallKey, Tally, source_and_line
from nccl_inspect.model.inventory import Calls, Progress, Stamp
from nccl_inspect.model.job import Earliest, Notice
from nccl_inspect.model.statements.environment import MAX_EVIDENCE
from nccl_inspect.model.statements.index import Line, Statement
from nccl_inspect.util.secrets import mask_secrets
from nccl_inspect.util.text import decode
from nccl_inspect.util.times import Moment, are_in_order, moment

Completed = Callable[[Process, int], int]
"""Where a thread of a process completed a communicator for the last time; -1 where it did not."""
_UNMADE = Earliest([], device=None, time=None, evidence=Evidence("", 0, ""), is_ordered=False)
"""Until somebody asks who made a statement first."""


def join_notices(
    statements: Iterable[Statement],
    ranks: Mapping[Process, list[int]],
    releases: Mapping[str, str],
    line: Line,
    completed: Completed,
) -> list[Notice]:
    """Return one notice for each statement, in the order of the log.

    Args:
        statements: in the order of the log.
        ranks: the global ranks of each process.
        releases: by production the NCCL releases that print it.
        line: makes evidence of lines.
        completed: finds where a thread completed a communicator for the last time.
    """
    # Nearly each process has timings of its own, and no rule asks for them.
    statements = [statement for statement in statements if not lifetime.is_timing(statement.event)]
    warned = {entry.message for entry in statements if entry.level == "WARN" and entry.location is not None}
    return [
        _notice(statement, ranks, releases, line, completed)
        for statement in statements
        if statement.level != "WARN" or statement.message not in warned or not _is_retold(statement)
    ]


def _notice(
    statement: Statement,
    ranks: Mapping[Process, list[int]],
    releases: Mapping[str, str],
    line: Line,
    completed: Completed,
) -> Notice:
    event, printers = statement.event, statement.processes
    notice = Notice(
        event=event and hide_secrets(event),
        production=event.qualified_name if event else "",
        level=statement.level,
        message=mask_secrets(decode(statement.message)),
        count=sum(statement.counts),
        place=statement.places[0],
        ranks=[],
        hosts=[],
        processes=printers,
        evidence=[],
        earliest=_UNMADE,
        releases=releases.get(event.production, "") if event else "",
        rule=engine.find_rule(event) if event else "",
        roles=engine.find_roles(event) if event else frozenset(),
        location=statement.location,
    )
    return notice.defer(
        ranks=lambda: sorted({rank for process in printers for rank in ranks.get(process, ())}),
        hosts=lambda: list(dict.fromkeys([process.host for process in printers if process.host])),
        evidence=lambda: [statement.line(row, line) for row in range(min(len(printers), MAX_EVIDENCE))],
        lines=lambda: (
            notice.evidence
            if len(printers) <= MAX_EVIDENCE
            else [statement.line(row, line) for row in range(len(printers))]
        ),
        earliest=lambda: (
            _earliest(statement, line) if len(printers) > 1 else _single_line(statement, notice.evidence[0])
        ),
        until=lambda: [source_and_line(place)[1] for place in statement.lasts],
        outlived=lambda: _is_outlived(statement, completed),
    )


def _is_outlived(statement: Statement, completed: Completed) -> bool:
    """Return whether each thread completed a communicator after it made a statement for the last time."""
    rows = zip(statement.processes, statement.origins, statement.lasts, strict=True)
    later = [last < completed(process, origin.tid) for process, origin, last in rows]
    return bool(later) and all(later)


def _is_retold(statement: Statement) -> bool:
    """Return whether an exception passed a warning on, of which the process is not known."""
    return statement.location is None and not any(process.host for process in statement.processes)


def _single_line(statement: Statement, line: Evidence) -> Earliest:
    origin = statement.origins[0]
    is_ordered = moment(origin.time) is not None
    return Earliest(
        statement.processes[:1], device=origin.device, time=origin.time, evidence=line, is_ordered=is_ordered
    )


def _earliest(statement: Statement, line: Line) -> Earliest:
    """Return who said it first: by time where all have times of one clock, else the first in the log."""
    row, origins = 0, statement.origins
    times = [moment(origin.time) for origin in origins] if origins[0].time else [None]
    ordered = are_in_order(*times)
    processes = statement.processes[:1]
    if ordered:
        seconds = [time.seconds for time in times if time]
        earliest = min(seconds)
        processes = [process for process, when in zip(statement.processes, seconds, strict=True) if when == earliest]
        row = seconds.index(earliest)
    return Earliest(
        processes=processes,
        device=origins[row].device,
        time=origins[row].time,
        evidence=statement.line(row, line),
        is_ordered=ordered,
    )


def gathered_calls(processes: Iterable[ProcessMembers], global_rank: Callable[[Member], int | None]) -> list[Calls]:
    """Return the calls of a job. All ranks of a communicator make the same collective calls: each is counted once."""
    by_slot: dict[tuple[object, ...], Calls] = {}
    for process in processes:
        for key, tally in process.log.calls.items():
            member = _member(process, key, tally)
            calls = _calls(key, tally, member, global_rank(member) if member else None)
            calls.leader = process.log.process if member and member.init.rank == 0 else None
            own = calls.ranks if calls.func in PAIRED else ()
            slot = (calls.communicator, key.nranks, key.func, key.datatype, calls.root, key.size_class, *own)
            total = by_slot.setdefault(slot, calls)
            if total is not calls:
                _join(total, calls)
    return sorted(by_slot.values(), key=lambda calls: (calls.place, calls.func))


def _member(process: ProcessMembers, key: CallKey, tally: Tally) -> Member | None:
    """Return whose calls they are.

    Pointers are used again, so the communicator must live from the first to the last.
    """
    fits = [
        member
        for member in process.members
        if member.init.comm == key.comm
        and member.init.nranks == key.nranks
        and member.lives_at(tally.first)
        and member.lives_at(tally.last)
    ]
    return fits[0] if len(fits) == 1 else None


def _calls(key: CallKey, tally: Tally, member: Member | None, rank: int | None) -> Calls:
    comm = member.communicator if member else None
    ranks = comm.global_ranks if comm else ()
    return Calls(
        communicator=comm.name if comm else None,
        func=key.func,
        datatype=key.datatype,
        nranks=key.nranks,
        root=ranks[key.root] if key.root is not None and key.root < len(ranks) else None,
        calls=tally.calls,
        elements=tally.elements,
        smallest=tally.smallest,
        largest=tally.largest,
        ranks=[rank] if rank is not None else [],
        place=tally.first,
    )


def _join(mine: Calls, other: Calls) -> None:
    """Join the same calls as another rank prints them; a log that was cut short has fewer."""
    if other.calls > mine.calls:
        mine.calls, mine.elements = other.calls, other.elements
    mine.smallest = min(mine.smallest, other.smallest)
    mine.largest = max(mine.largest, other.largest)
    mine.ranks = sorted({*mine.ranks, *other.ranks})
    mine.place = min(mine.place, other.place)
    mine.leader = mine.leader or other.leader


def timeline_of(
    processes: Iterable[ProcessMembers],
    global_rank: Callable[[Member], int | None],
    where: Callable[[int], tuple[str, int, int]],
) -> list[Progress]:
    """Return the progress of each rank, by rank.

    Stamps of different clocks (with and without time zone, or without a year) cannot be compared: those of the clock
    that most lines have are kept. A rank of which only one time is known is left out.

    Args:
        processes: with their members.
        global_rank: the global rank of a member.
        where: the source and line of a place.
    """
    rows = [(process, member) for process in processes for member in _first_members(process, global_rank)]
    timed = [(process, member, dict(_moments(process, member))) for process, member in rows]
    clocks = Counter(when.clock for _, _, marks in timed for when, _, _ in marks.values())
    if not clocks:
        return []
    clock = clocks.most_common(1)[0][0]
    progress = []
    for process, member, marks in timed:
        stamps = {name: _stamp(*mark, where) for name, mark in marks.items() if mark[0].clock == clock}
        if len(stamps) > 1:
            host, pid = process.log.process[:2]
            progress.append(Progress(global_rank(member), host, pid, stamps))
    return sorted(progress, key=lambda row: (row.rank is None, row.rank or 0, row.host, row.pid))


def _first_members(process: ProcessMembers, global_rank: Callable[[Member], int | None]) -> Iterator[Member]:
    """Yield the first communicator of each rank of a process; ranks may be threads of one process."""
    seen = set()
    for member in sorted(process.members, key=lambda member: member.first.place):
        rank = global_rank(member)
        key = rank if rank is not None else member.gpu
        if key not in seen:
            seen.add(key)
            yield member


def _moments(process: ProcessMembers, member: Member) -> Iterator[tuple[str, tuple[Moment, int, Origin | Late]]]:
    log = process.log
    ended = member.ended if member.ended and isinstance(member.ended.event, events.CommEnd) else None
    marks = (
        ("first", (log.first, log.opening)),
        ("started", member.started),
        ("completed", member.completed),
        ("connected", member.connected[-1] if member.connected else None),
        ("ended", ended),
        ("last", (log.last, log.final)),
    )
    for name, mark in marks:
        if mark is not None and mark[1].time and (when := moment(mark[1].time)):
            yield name, (when, mark[0], mark[1])


def _stamp(when: Moment, place: int, printed: Origin | Late, where: Callable[[int], tuple[str, int, int]]) -> Stamp:
    return Stamp(when.seconds, printed.time or "", *where(place)[:2])
