"""A rank died while the others were working."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from nccl_inspect.judging import exceptions, placement, propagated_errors
from nccl_inspect.judging.check import Account, Effects, Facts, Hit, Notice, first_evidence, tell_account, value
from nccl_inspect.judging.ends import (
    EXCEPTION,
    ProcessEnd,
    is_last,
    is_maybe_caught,
    is_of_task,
    is_unordered,
    last_words,
    loss_exceptions,
    process_ends,
    ranks_killed_by_monitor,
    ranks_of_tasks,
    since_start,
    sort_by_time,
    status_summary,
    task_ends,
)
from nccl_inspect.judging.evidence import kernel_log
from nccl_inspect.judging.facts import hosts_in, hosts_with, ranks_in
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.line_order import short
from nccl_inspect.judging.networks.efa_completions import lost_peers
from nccl_inspect.judging.networks.ib_errors import after_another
from nccl_inspect.judging.statements import FLUSHED, message_of, report_of
from nccl_inspect.judging.watchdog import without_output
from nccl_inspect.story.silence import Silence, closed_by_others, peers_lost, silence_of
from nccl_inspect.util.wording import list_words, ranges, ranks_word

_UNANSWERED = ("Connection timed out", "No route to host", "Network is unreachable")
"""Errors of transfers over a working connection that no process closed: a lost machine does not."""
_GONE = ("reset by peer", "Broken pipe", *_UNANSWERED)
"""Errors of a call that failed only because the other side is gone."""
_SLURM_KILLED = "Out Of Memory"
_SHOWN = 4
"""The most echoes to show beside the last line of the lost rank."""


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find processes that ended, and connections closed by that; the story decides what came first."""
    closed, lost = _closed_connections(facts), loss_exceptions(facts)
    echoes = [*closed, *after_another(facts), *facts.completions(FLUSHED)]
    by_slurm = [notice for notice in task_ends(facts) if str(report_of(notice).how).startswith(_SLURM_KILLED)]
    departed = process_ends(facts)
    yield Effects([notice for notice in facts.with_role("catchable") if exceptions.is_caught(facts, notice)])
    if killed := [*by_slurm, *facts.with_role("memory-kill")]:
        by_memory = _find_memory(facts, killed, departed, echoes)
        yield by_memory
        if by_memory.confidence != "possible":
            return
    if departed:
        yield _find_departed(facts, departed, echoes)
    elif facts.is_over() and (late := since_start(facts, lost)):
        yield _find_loss(facts, Silence([], []), late, sure=False)
    else:
        yield from _find_silenced(facts)


def tell(facts: Facts, account: Account) -> Hit:
    """Return processes that ended of their own, or fell silent."""
    ranks = set(account.ranks)
    ends = [
        end
        for end in process_ends(facts)
        if ranks.intersection(end.ranks) or (not end.ranks and end.pid in account.pids)
    ]
    if account.kind == "fell-silent":
        silenced = next(_find_silenced(facts), None)
        if silenced and set(silenced.ranks or ()) == ranks:
            return silenced
    elif ends:
        return _find_departed(facts, ends, []).with_fields(ranks=sorted(ranks))
    known = (account.kind, *(("over",) if facts.is_over() else ()))
    return tell_account(facts, account).with_fields(known=known)


def _closed_connections(facts: Facts) -> list[Notice]:
    """Return connections to ranks or the store that closed for no known reason."""
    failed = facts.notices("nccl/socket-recv-failed")
    resets = [notice for notice in failed if any(words in notice.message for words in _GONE)]
    closed = [*facts.notices("nccl/socket-closed-by-peer"), *resets, *lost_peers(facts)]
    closed += propagated_errors.remote(facts)
    if facts.job.communicators and not any(comm.ended for comm in facts.job.communicators):
        closed += facts.notices("torch/store-lost")  # torchrun lost the agent with the store
    # A helper of old releases serves strangers, too, and who asked it for memory and left is no rank.
    helpers = tuple(one.evidence[0].text.partition(" ")[0] for one in facts.notices("nccl/remote-allocator-failed"))
    return [notice for notice in closed if notice.evidence[0].text.partition(" ")[0] not in helpers]


def _find_silenced(facts: Facts) -> Iterator[Hit]:
    """Find lost connections if no report says which process ended."""
    local = closed_by_others(facts)
    closed = [*_closed_connections(facts), *loss_exceptions(facts)]
    given_up = [*after_another(facts), *facts.completions(FLUSHED)]
    if not (closed or given_up or local):
        comms, loose = facts.job.communicators, exceptions.exceptions_of(facts).loose[-1:]
        is_used = comms and not any(comm.ended for comm in comms)
        for last in loose if is_used else ():  # an exception of nobody at the end of the output
            ranks = set() if last.rank is None else {last.rank}
            if is_last(facts, last.line):
                named = {"loose": last.text, "labelled": ranks}
                sure = "likely" if ranks else "possible"
                yield Hit(named=named, ranks=ranks, evidence=[last.line], confidence=sure)
        return
    if facts.is_over():
        return  # every rank finalized its communicators: connections close then
    notices = [*closed, *given_up, *local]
    silence = silence_of(facts, notices)
    is_aborted = any(comm.state == "aborted" for comm in facts.job.communicators)
    if closed or given_up or (silence.gone and is_aborted):  # local connections close at every exit
        yield _find_loss(facts, silence, notices, sure=bool(closed) or len(silence.gone) == 1)


def _find_memory(facts: Facts, killed: list[Notice], departed: list[ProcessEnd], echoes: list[Notice]) -> Hit:
    """Return processes that the kernel, or the scheduler of the job, killed because memory ran out."""
    gone = [end for end in departed if end.code == -signal.SIGKILL]
    ranks = {rank for end in gone for rank in end.ranks} | ranks_killed_by_monitor(facts)
    by_task = set() if ranks else {rank for end in killed for rank in ranks_of_tasks(facts, end)}
    is_doubtful = not gone and all(kernel_log.confidence(facts, notice) == "possible" for notice in killed)
    return Hit(
        named={"memory": message_of(killed[0]).strip()},
        known=("doubtful",) if is_doubtful else (),
        ranks=ranks | by_task,
        hosts={end.host for end in gone},
        evidence=first_evidence([*killed, *(end.notice for end in gone[:2]), *echoes]),
        confidence="possible" if is_doubtful else "likely" if by_task else "certain",
    )


def _find_departed(facts: Facts, departed: list[ProcessEnd], echoes: list[Notice]) -> Hit:
    """Return processes that ended on their own, as reported by launchers, shells or themselves."""
    departed = sort_by_time([end for end in departed if end.echo is None] or departed)
    words = last_words(facts, departed)
    first, more = departed[0], len(departed) - 1
    ranks = {rank for end in departed for rank in end.ranks}
    suspected = _waited_for(facts, departed) if first.echo else set()
    who = first.who
    if first.echo and first.has_given_up and ranks and more:
        who, more = ranks_word(ranks), 0
    ended = f"{who} {first.how}"
    known = ["gave up"] if first.echo else []
    if not first.echo and is_unordered(departed):
        ended, more = list_words((f"{end.who} {end.how}" for end in departed), limit=2), 0
        known.append("unordered")
    elif first.is_undecided and not first.echo:
        more = 0
    elif first.report.ends_others and not first.echo:
        known.append("ends others")
    manner = {-signal.SIGKILL: "SIGKILL", -signal.SIGBUS: "SIGBUS"}.get(first.code, "error")
    if first.is_by_exception:
        manner = "exception of CUDA" if first.raised and first.raised.is_of_cuda else "exception"
    manner = "undecided" if first.is_undecided else "lost by Ray" if first.is_cause_unknown else manner
    message = next((words[rank] for rank in first.ranks if rank in words), None)
    is_doubtful = first.is_nameless or first.is_rank_unconfirmed or is_maybe_caught(facts, first.notice)
    return Hit(
        named={
            "ended": ended,
            "more": more,
            "suspected": suspected,
            "mute": suspected & without_output(facts),
            "barrier": exceptions.absent_ranks(facts),
            "own": ranks_word(first.ranks) if first.ranks else "",
            "begin": short(first.begin.evidence[0]),
            "cut off": bool(first.trace and first.trace.is_cut_off),
            "place": short(first.notice.evidence[0]),
            "manner": "" if first.echo else manner,
            **_name_cause(facts, first, message),
        },
        known=(*known, *(("over",) if facts.is_over() else ()), *(("loader",) if first.is_loader else ())),
        # It may not be a rank, or only one that lost another.
        ranks=suspected or ranks,
        hosts={end.host for end in departed},
        evidence=[
            *first_evidence([first.trace.begin] if first.trace else []),
            *([first.raised.line] if first.raised else []),
            *first_evidence([*(end.notice for end in departed[:2]), *words.values(), *echoes[:2]]),
        ],
        confidence="likely" if first.echo or is_doubtful else "certain",
    )


def _name_cause(facts: Facts, end: ProcessEnd, message: Notice | None) -> dict[str, object]:
    """Name why a process ended, as far as the log shows, with what is known of it."""
    if end.is_undecided:
        whole = status_summary(facts, end.notice)
        return {"why": "undecided", "whole": value(whole, "how") if whole else ""}
    if end.code == -signal.SIGBUS:
        return {"why": "SIGBUS", "shares": bool(facts.paths(transport="SHM"))}
    if end.is_by_exception:
        raised, first = end.raised, end.trace.first if end.trace else None
        if raised and raised.is_of_cuda:
            return {"why": "exception", "cuda": cuda.cause(cuda.code_in(raised.text))}
        is_root = raised and first and first != raised and not exceptions.is_of_a_loader(first)
        return {"why": "exception", "first": first.text if is_root and first else ""}
    if message is not None:
        error = str(value(message, "error"))
        codes = cuda.KERNEL_ERRORS.keys() & {cuda.code_in(error)}
        return {"why": "message", "error": error, "cuda": list_words(map(cuda.cause, codes))}
    names = {
        "SIGKILL": end.code == -signal.SIGKILL,
        "training": end.report.process == "training",
        "lost by Ray": end.is_cause_unknown,
        "crash": end.is_crash,
        "SIGABRT": end.code == -signal.SIGABRT,
        "waited": end.echo is not None and exceptions.WAITED in end.echo.text,
        "lost another": end.echo is not None,
    }
    if why := next((name for name, holds in names.items() if holds), ""):
        return {"why": why}
    maybe = exceptions.candidates(facts, end.notice, end.pid, end.ranks) if end.code == EXCEPTION else []
    if not maybe:
        return {"why": "unknown"}
    last = next((exception for exception in reversed(maybe) if exception.is_error), maybe[-1])
    return {
        "why": "labelled" if last.rank is not None and end.ranks else "near",
        "likely": last.text,
        "line": short(last.line),
        "others": "" if len(maybe) == 1 else "above" if last is maybe[-1] else "near",
    }


def _waited_for(facts: Facts, ends: list[ProcessEnd]) -> set[int]:
    """Return whom ranks that gave up may have waited for: who is named, has no output, or alone has no traceback."""
    if named := exceptions.absent_ranks(facts):
        return named
    # Of several tasks, Ray shows the exception that the driver received first.
    if any(is_of_task(end.notice) for end in ends):
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


def _find_loss(facts: Facts, silence: Silence, echoes: list[Notice], *, sure: bool) -> Hit:
    """Return the rank that went away without a report of its end, as closely as the log shows it."""
    seen, candidates = set(facts.job.ranks_seen), set(silence.candidates)
    world, first = facts.job.world_size or 0, silence.gone[0] if silence.gone else None
    gone = {rank for last in silence.gone for rank in last.ranks}
    absent = candidates if len(candidates) == 1 and candidates.isdisjoint(seen) else set[int]()
    possible = candidates if not silence.gone and 1 < len(candidates) <= world / 2 else set[int]()
    victims, named = ranks_in(echoes), absent or possible
    homes = [home for rank in named if (home := placement.home(facts, rank))] if named.isdisjoint(seen) else []
    process = ""
    if first:  # its GPU by the index on the machine; else by that in the process, which may see only some
        devices = {facts.job.gpus[rank].nvml_dev for rank in first.ranks if rank in facts.job.gpus}
        device = "" if first.device is None else f", CUDA device {first.device}"
        device = f", GPU {devices.pop()}" if len(devices) == 1 and None not in devices else device
        process = f"{first.process.host}, pid {first.process.pid}{device}"
    is_whole = world and facts.job.rank_space == "global" and seen.issuperset(range(world))
    known = {
        "lost": True,
        "over": facts.is_over(),
        "elsewhere": bool(candidates) and seen.isdisjoint(candidates),
        "few": 1 < len(candidates) < world,
        "whole": is_whole,
        "many": len(silence.gone) > 1,
        "possible here": possible and not possible.isdisjoint(seen),
        "unanswered": all(any(words in notice.message for words in _UNANSWERED) for notice in echoes),
        "echo of one here": possible and possible <= seen,
    }
    return Hit(
        named={
            "gone": gone if silence.gone else "",
            "barrier": exceptions.absent_ranks(facts),
            "victims": victims,
            "peers": list_words(peers_lost(echoes)),
            "absent": absent,
            "possible": possible,
            "candidates": ranges(silence.candidates) if candidates else "",
            "home": f"host {homes[0].host}, local rank {homes[0].local_rank}" if homes else "",
            "process": process,
            "line": first.line if first else "",
        },
        known=[name for name, holds in known.items() if holds],
        ranks=gone or absent or possible or victims,
        hosts={last.process[0] for last in silence.gone} or set(hosts_with(facts.job, possible)) or hosts_in(echoes),
        evidence=[*first_evidence(echoes)[:_SHOWN], *(last.evidence for last in silence.gone[:1] if last.evidence)],
        confidence="likely" if sure else "possible",
    )
