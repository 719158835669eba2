"""When each rank got how far, where lines have time stamps: NCCL's own, or those of what collected the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from nccl_inspect.event import types as events
from nccl_inspect.ingest.lines.prefix import Origin
from nccl_inspect.ingest.lines.timestamps import Late
from nccl_inspect.model.communicators.members import Member, ProcessMembers
from nccl_inspect.model.inventory import Progress, Stamp
from nccl_inspect.util.times import Moment, moment


def of(
    processes: Iterable[ProcessMembers],
    global_rank: Callable[[Member], int | None],
    where: Callable[[int], tuple[str, int, int]],
) -> list[Progress]:
    """The progress of each rank, by rank.

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
    """The first communicator of each rank of a process; ranks may be threads of one process."""
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
