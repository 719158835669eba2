"""Joins what several processes said in the same words at the same place of NCCL's source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from nccl_inspect.event import Process, without_secrets
from nccl_inspect.ingest.prefix import Origin
from nccl_inspect.masking import masked
from nccl_inspect.model.environment import MAX_EVIDENCE
from nccl_inspect.model.fold import Note, ProcessLog, source_and_line
from nccl_inspect.model.job import Earliest, Evidence, Notice
from nccl_inspect.text import decode
from nccl_inspect.times import in_order, moment


class _Said(NamedTuple):
    process: Process
    note: Note


def joined(
    logs: Iterable[ProcessLog],
    ranks: Mapping[Process, list[int]],
    releases: Mapping[str, str],
    evidence: Callable[[int, Origin, str, str], Evidence],
) -> list[Notice]:
    """One notice for each statement, in the order of the log.

    Args:
        logs: what each process said.
        ranks: the global ranks of each process.
        releases: by production the NCCL releases that print it.
        evidence: makes evidence of (place, origin, level, message).
    """
    said: dict[tuple[str, bytes, str | None], list[_Said]] = {}
    for log in logs:
        for note in log.notes.values():
            said.setdefault((note.level, note.message, note.origin.location), []).append(_Said(log.process, note))
    warned = {message for level, message, location in said if level == "WARN" and location is not None}
    found = (
        _notice(all_said, ranks, releases, evidence)
        for (level, message, _), all_said in said.items()
        if level != "WARN" or message not in warned or not all(map(_is_retold, all_said))
    )
    return sorted(found, key=lambda notice: notice.place)


def _notice(
    said: list[_Said],
    ranks: Mapping[Process, list[int]],
    releases: Mapping[str, str],
    evidence: Callable[[int, Origin, str, str], Evidence],
) -> Notice:
    said.sort(key=lambda one: one.note.place)
    first = said[0].note
    printers = [one.process for one in said]
    lines = [_line(one.note, evidence) for one in said[:MAX_EVIDENCE]]
    return Notice(
        event=first.event and without_secrets(first.event),
        production=first.event.production if first.event else "",
        level=first.level,
        message=masked(decode(first.message)),
        count=sum(one.note.count for one in said),
        place=first.place,
        ranks=sorted({rank for process in printers for rank in ranks.get(process, [])}),
        hosts=list(dict.fromkeys(process.host for process in printers if process.host)),
        processes=printers,
        evidence=lines,
        earliest=_earliest(said, evidence) if len(said) > 1 else _only(said[0], lines[0]),
        releases=releases.get(first.event.production, "") if first.event else "",
        location=first.origin.location,
        until=[source_and_line(one.note.last)[1] for one in said],
    )


def _is_retold(one: _Said) -> bool:
    """Whether an exception passed a warning on, of which the process is not known."""
    return not one.process.host and one.note.origin.location is None


def _line(note: Note, evidence: Callable[[int, Origin, str, str], Evidence]) -> Evidence:
    return evidence(note.place, note.origin, note.level, decode(note.message))


def _only(said: _Said, line: Evidence) -> Earliest:
    origin = said.note.origin
    is_ordered = moment(origin.time) is not None
    return Earliest([said.process], device=origin.device, time=origin.time, evidence=line, is_ordered=is_ordered)


def _earliest(said: list[_Said], evidence: Callable[[int, Origin, str, str], Evidence]) -> Earliest:
    """Who said it first: by time where one clock tells that of all, else the first in the log."""
    times = [moment(one.note.origin.time) for one in said] if said[0].note.origin.time else [None]
    ordered = in_order(*times)
    seconds = [time.seconds for time in times if time] if ordered else [float(at) for at in range(len(said))]
    first = min(seconds)
    at_once = [one for one, when in zip(said, seconds, strict=True) if when == first]
    note = at_once[0].note
    return Earliest(
        processes=[one.process for one in at_once],
        device=note.origin.device,
        time=note.origin.time,
        evidence=_line(note, evidence),
        is_ordered=ordered,
    )
