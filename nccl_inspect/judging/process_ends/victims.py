"""Ranks that gave up because another one did not arrive, or was gone: whom they may have waited for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from nccl_inspect.event.types import CollectiveTimeout
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.hangs.watchdog import without_output
from nccl_inspect.judging.line_order import first_of_each, precedes
from nccl_inspect.judging.process_ends import exceptions, ray
from nccl_inspect.judging.process_ends.ends import logged_at
from nccl_inspect.judging.process_ends.process_end import ProcessEnd
from nccl_inspect.judging.statements import rank_prefix
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import ranks_word


def on_their_own(ends: list[ProcessEnd]) -> list[ProcessEnd]:
    """The processes that ended on their own, if any; else all."""
    return [end for end in ends if end.echo is None] or ends


def suspects(facts: Facts, ends: list[ProcessEnd]) -> set[int]:
    """The ranks that the others may have waited for: those named, those without output, or one without a traceback."""
    if named := exceptions.absent_ranks(facts):
        return named
    # Of several tasks, Ray shows the exception that the driver received first.
    if any(ray.is_of_task(end.notice) for end in ends):
        return set()
    ranks = set(facts.job.ranks_seen)
    if (unseen := without_output(facts)) and len(unseen) <= len(ranks):
        return unseen
    gave_up = {rank for end in ends for rank in end.ranks} | {
        end.rank for end in exceptions.exceptions_of(facts).echoes
    }
    sizes = {comm.nranks for comm in facts.job.communicators}
    silent = ranks - gave_up
    return silent if len(silent) == 1 and sizes and max(sizes) == len(ranks) else set()


def first_of_ranks(notices: Iterable[Notice]) -> dict[int, dict[str, int]]:
    """The first line of each rank in each source."""
    lines: dict[int, list[Evidence]] = {}
    for notice in notices:
        prefixed = rank_prefix(notice)
        for rank in notice.ranks or ([] if prefixed is None else [prefixed]):
            lines.setdefault(rank, []).append(notice.evidence[0])
    return {rank: first_of_each(own) for rank, own in lines.items()}


def is_behind(line: Evidence, ranks: Iterable[int], first: Mapping[int, Mapping[str, int]]) -> bool:
    """Whether a line follows the first one of a rank in the same source."""
    return any(line.order > first.get(rank, {}).get(line.source, line.order) for rank in ranks)


def summary(facts: Facts, ends: list[ProcessEnd]) -> str:
    """Which ranks gave up, and which ranks they may have waited for."""
    first = ends[0]
    ranks = {rank for end in ends for rank in end.ranks}
    who, others = first.who, f", and {len(ends) - 1} more" if len(ends) > 1 else ""
    if first.has_given_up and ranks:
        who, others = first.who if len(ends) == 1 else ranks_word(ranks), ""
    suspected = set() if exceptions.absent_ranks(facts) else suspects(facts, ends)
    missing = "of which the log has no output" if suspected & without_output(facts) else "which printed no traceback"
    hint = f"; possibly because of {ranks_word(suspected)}, {missing}" if suspected else ""
    return f"{who} {first.how}{others}{hint}"


def remedies(suspected: set[int]) -> list[str]:
    """What to do if ranks gave up."""
    who = ranks_word(suspected) if suspected else "every rank"
    return [
        f"Look at the output of {who} first, and at the last step there.",
        f"py-spy dump --pid <pid>   # on {who}, before the time limit: where does it wait?",
        "dmesg -T | grep -iE 'oom|xid|segfault'   # on its host",
    ]


def waits_after(facts: Facts, killed: list[Notice], departed: list[ProcessEnd]) -> list[Notice]:
    """The time-outs of ranks that waited for a process that was killed or had ended.

    A rank prints its time-out again when it ends, the last time without the hour: the first line is what counts.
    """
    gone = [end for end in departed if end.is_crash_or_kill or end.is_by_exception]
    waits = facts.with_event(CollectiveTimeout)
    if killed:
        return waits
    first: dict[Hashable, Notice] = {}
    for wait in waits:
        first.setdefault(_call(wait), wait)
    effects = {call for call, wait in first.items() if any(_is_before(end, wait) for end in gone)}
    return [wait for wait in waits if _call(wait) in effects]


def _call(wait: Notice) -> Hashable:
    """What distinguishes a call that timed out from others of its source."""
    event = wait.event
    assert isinstance(event, CollectiveTimeout)
    return (wait.evidence[0].source, event.operation, event.seq, event.ran_ms)


def _is_before(end: ProcessEnd, wait: Notice) -> bool:
    """Whether a process ended before another timed out: by the lines of a source, else by their times."""
    when = logged_at(end.notice)
    return precedes(end.begin, wait) or (bool(when) and when < logged_at(wait))
