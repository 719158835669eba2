"""Processes that died, or were ended from outside."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from nccl_inspect.event.base import is_named
from nccl_inspect.event.types import ProcessEnded
from nccl_inspect.judging import at_end, check, cuda, ends, exceptions, life, silence
from nccl_inspect.judging.actors import actors_of
from nccl_inspect.judging.check import Account, Effects, Evidence, Facts, Finding, Hit, Notice, value
from nccl_inspect.judging.ends import ProcessEnd
from nccl_inspect.judging.evidence import kernel_log, workloads
from nccl_inspect.judging.evidence.workloads import Case, Change
from nccl_inspect.judging.facts import cite_line, global_ranks, hosts_in, hosts_with, is_before, ranks_in
from nccl_inspect.judging.silence import Silence
from nccl_inspect.judging.statements import EXTERNAL, is_forced, is_propagated_error, message_of, report_of
from nccl_inspect.judging.watchdog import begins_late, statuses, waits, without_output
from nccl_inspect.model.inventory import LastLine, contents_of
from nccl_inspect.model.statements import job_failure
from nccl_inspect.model.versions import order
from nccl_inspect.util import signals
from nccl_inspect.util.grouping import group_values
from nccl_inspect.util.wording import expand, list_words, ranges, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Ended


_POD = "launchers/kubernetes-pod-killed"  # a row that may be of any pod of the cluster
_MOST_SHOWN = 4  # the most echoes to show beside the last line of the lost rank


def peer_death(facts: Facts) -> Iterator[Hit | Effects]:
    """Find processes that ended, and connections closed by that; the story decides what came first."""
    lost = silence.loss_exceptions(facts)
    echoes = [*silence.closed_connections(facts), *silence.given_up(facts)]
    by_slurm = [notice for notice in ends.task_ends(facts) if str(report_of(notice).how).startswith("Out Of Memory")]
    departed = ends.process_ends(facts)
    yield Effects([notice for notice in facts.with_role("catchable") if exceptions.is_caught(facts, notice)])
    if killed := [*by_slurm, *facts.with_role("memory-kill")]:
        by_memory = _find_memory(facts, killed, departed, echoes)
        yield by_memory
        if by_memory.confidence != "possible":
            return
    watched = {status.rank for status in statuses(facts)} | {wait.rank for wait in waits(facts)}
    own = [end for end in departed if end.code != -signal.SIGABRT or watched.isdisjoint(end.ranks)]
    # Where the log lacks ranks, all that ended may have been ended by PyTorch's watchdog, for the loss of one of those.
    world = facts.job.world_size
    lacks_cause = bool(echoes) and not own and (world is None or len(facts.job.ranks_seen) < world)
    if departed and not lacks_cause:
        yield _find_departed(facts, departed, echoes)
    elif facts.is_over() and (late := ends.since_start(facts, lost)):
        yield _find_loss(facts, Silence([], []), late, sure=False)
    else:
        yield from _find_silenced(facts)


def tell_peer_death(facts: Facts, account: Account) -> Hit:
    """Return processes that ended of their own, or fell silent."""
    ranks = set(account.ranks)
    known = ends.process_ends(facts)
    own = [end for end in known if ranks.intersection(end.ranks) or (not end.ranks and end.pid in account.pids)]
    if account.kind == "fell-silent":
        silenced = next(_find_silenced(facts), None)
        if silenced and set(silenced.ranks or ()) == ranks:
            return silenced
    elif own:
        return _find_departed(facts, own, []).with_fields(ranks=sorted(ranks))
    hit = check.tell_account(facts, account)
    return hit.with_fields(named={**hit.named, account.kind: True, **_name_state(facts, account.evidence)})


def _name_state(facts: Facts, failed: Sequence[Evidence]) -> dict[str, object]:
    """Return what became of the job after these lines."""
    restarts = [line for notice in facts.with_role("restart") for line in notice.evidence]
    is_restarted = any(all(not is_before(restart, line) for line in failed) for restart in restarts)
    return {"over": facts.is_over(), "restarts": is_restarted}


_TELLS_EXIT = (2, 28, 7), (2, 30)
"""The first release that prints at exit that it closes its plugin for settings, and the first that no longer does."""


def _find_silenced(facts: Facts) -> Iterator[Hit]:
    """Find lost connections if no report says which process ended."""
    notices = silence.echoes_of(facts)
    closed = [*silence.closed_connections(facts), *silence.loss_exceptions(facts)]
    if not notices:
        yield from _find_loose(facts)
        if not facts.is_over() and (aborted := silence.find_early_aborts(facts)):
            ranks = {rank for last in aborted for rank in actors_of(facts).ranks_of(last)}
            lines = [line for last in aborted if (line := last.evidence)]
            yield Hit(named={"gone": ranks, "alone": True}, ranks=ranks, evidence=lines, confidence="possible")
        return
    if facts.is_over():  # every rank finalized its communicators: connections close then
        yield from _find_loose(facts)
        return
    left = silence.silence_of(facts)
    is_aborted = any(comm.state == "aborted" for comm in facts.job.communicators)
    if closed or silence.given_up(facts) or (left.gone and is_aborted):  # local connections close at every exit
        yield _find_loss(facts, left, notices, sure=bool(closed) or len(left.gone) == 1)
    elif not facts.with_event(ProcessEnded) and _skipped_exit(facts, left.gone):
        loss = _find_loss(facts, left, notices, sure=False)
        yield loss.with_fields(named={**loss.named, "unannounced": True})


def _find_loose(facts: Facts) -> Iterator[Hit]:
    """Find an exception of nobody at the end of the output, or of a thread, where no orderly end follows it.

    Below an orderly end, the story decides if the end of a process is reported.
    """
    comms, loose = facts.job.communicators, exceptions.exceptions_of(facts).loose[-1:]
    is_used = (comms or facts.job.ended_by) and not any(comm.ended for comm in comms)
    for last in loose:
        ranks = set() if last.rank is None else {last.rank}
        is_below = facts.is_over() and not exceptions.is_over_below(facts, last.line)
        is_below = is_below and not facts.with_event(ProcessEnded)
        is_at_end = (is_used or is_below or (last.is_loss_of_peer and not comms)) and ends.is_last(facts, last.line)
        if is_at_end or exceptions.is_given_up_below(facts, last.line):
            named = {"loose": last.text, "labelled": ranks, "over": is_below, "aborts": not is_at_end}
            sure = "likely" if ranks else "possible"
            yield Hit(named=named, ranks=ranks, evidence=[last.line], confidence=sure)
            return
    if comms and not (facts.is_over() or facts.errors(forced_ends=False) or waits(facts)):
        for last in exceptions.exceptions_of(facts).of_threads[-1:]:  # the program continues without that thread
            if life.last_signs(facts).get(last.line.source, 0) < last.line.order:
                ranks = set() if last.rank is None else {last.rank}
                named = {"thread": last.text, "labelled": ranks}
                yield Hit(named=named, ranks=ranks, evidence=[last.line], confidence="possible")


def _skipped_exit(facts: Facts, gone: list[LastLine]) -> bool:
    """Return whether processes ended without the line that their release prints at every orderly exit."""
    first, later = _TELLS_EXIT
    releases = facts.job.nccl_versions
    is_told = bool(releases) and all(first <= order(release) < later for release in releases)
    exited = {process for notice in facts.notices("nccl/plugin-closed") for process in notice.processes}
    is_told = is_told and not facts.settings("NCCL_DEBUG_SUBSYS")
    return is_told and bool(gone) and exited.isdisjoint(last.process for last in gone)


def _find_memory(facts: Facts, killed: list[Notice], departed: list[ProcessEnd], echoes: list[Notice]) -> Hit:
    """Return processes that the kernel, or the scheduler of the job, killed because memory ran out."""
    gone = [end for end in departed if end.code == -signal.SIGKILL]
    ranks = {rank for end in gone for rank in end.ranks} | ends.ranks_killed_by_monitor(facts)
    by_task = set() if ranks else {rank for end in killed for rank in ends.ranks_of_tasks(facts, end)}
    is_of_job = bool(departed or echoes or facts.job.ended_by or facts.job.failed)
    ours = [
        notice
        for notice in killed
        if is_of_job or notice.production != _POD or ends.find_node(facts, notice) in facts.hosts()
    ]
    is_doubtful = not gone and all(kernel_log.confidence(facts, notice) == "possible" for notice in ours)
    named: dict[str, object] = {"memory": message_of(killed[0]).strip(), "doubtful": is_doubtful}
    hosts = {end.node or end.host for end in gone} or {ends.find_node(facts, notice) for notice in ours} - {None}
    lines = check.first_evidence([*killed, *(end.notice for end in gone[:2]), *echoes])
    sure = "possible" if is_doubtful else "likely" if by_task else "certain"
    return Hit([], named, ranks | by_task, hosts, lines, confidence=sure)


_MANNERS = {"lost": "lost by Ray"} | {name: name for name in ("undecided", "SIGKILL", "SIGBUS", "exception")}


def _find_departed(facts: Facts, departed: list[ProcessEnd], echoes: list[Notice]) -> Hit:
    """Return processes that ended on their own, as reported by launchers, shells or themselves."""
    is_cut_off = begins_late(facts)
    if is_cut_off:  # who gave up waiting aborts; anybody else may be whom they waited for
        departed = [end for end in departed if end.code != -signal.SIGABRT] or departed
    departed, unordered = ends.sort_by_time([end for end in departed if end.echo is None] or departed)
    words = ends.last_words(facts, departed)
    first, more = departed[0], len(departed) - 1
    ranks = {rank for end in departed for rank in end.ranks}
    suspected = _waited_for(facts, departed) if first.echo else set()
    who = first.who
    if first.manner == ends.GAVE_UP and ranks and more:
        who, more = ranks_word(ranks), 0
    ended = f"{who} {first.how}"
    if unordered := unordered and not first.echo:
        ended, more = list_words((f"{end.who} {end.how}" for end in departed), limit=2), 0
    elif first.is_undecided and not first.echo:
        more = 0
    manner = _MANNERS.get(first.manner, "error")
    if manner == "exception" and first.raised and first.raised.is_of_cuda:
        manner = "exception of CUDA"
    message = next((words[rank] for rank in first.ranks if rank in words), None)
    cause = _name_cause(facts, first, message)
    # A rank that lost another one, or gave up waiting, ends like this as well, and its words may not be here.
    is_mute = cause["why"] in ("unknown", "SIGABRT") and first.code in (ends.EXCEPTION, -signal.SIGABRT)
    is_mute = is_mute and not first.words
    is_late = is_mute and is_cut_off and first.code == -signal.SIGABRT
    begun = {rank for comm in facts.job.communicators for rank in global_ranks(comm, comm.started)}
    is_cut_short = first.trace is not None and first.trace.last is None
    is_unheard = is_cut_short or (is_mute and not begun.issuperset(first.ranks))
    others = set(facts.job.ranks_seen) - ranks
    over = {rank for comm in facts.job.communicators for rank in global_ranks(comm, comm.ended)}
    is_last_one = bool(ranks and others) and others <= over and others.isdisjoint(ranks_in(echoes))
    are_all_seen = others | ranks == set(range(facts.job.world_size or 0))
    ends_others = first.report.ends_others and not (first.echo or unordered or first.is_undecided or is_unheard)
    named = {
        "ended": ended,
        "more": more,
        "unordered": unordered,
        "own": {*first.ranks},
        "begin": cite_line(first.begin.evidence[0]),
        "place": cite_line(first.notice.evidence[0]),
        "cut off": first.trace and first.trace.is_cut_off,
        "loader": first.is_loader,
        "manner": "" if first.echo else manner,
        **cause,
        **_name_state(facts, first.notice.evidence),
        "late": is_late,
        "unheard": is_unheard,
        "gave up": first.echo,
        "suspected": suspected,
        "mute": suspected & without_output(facts),
        "barrier": exceptions.absent_ranks(facts),
        "ends others": ends_others and not is_last_one,
        "last": ends_others and is_last_one and are_all_seen,
    }
    raised = [first.trace.begin.evidence[0]] if first.trace else []
    raised += [first.raised.line] if first.raised else []
    lines = [*raised, *check.first_evidence([*(end.notice for end in departed[:2]), *words.values(), *echoes[:2]])]
    # It may not be a rank, or only one that lost another.
    at_fault, hosts = suspected or ranks, {end.node or end.host for end in departed}
    is_doubtful = first.echo or is_unheard or _is_unsure_who(facts, first)
    sure = "possible" if is_late else "likely" if is_doubtful else "certain"
    return Hit([], named, at_fault, hosts, lines, confidence=sure)


def _is_unsure_who(facts: Facts, end: ProcessEnd) -> bool:
    """Return whether it may be no rank, another one, or one that continues: a driver of Ray may catch ends of tasks."""
    is_caught = ends.is_of_task(end.report) and not facts.with_event(ProcessEnded, lambda e: e.process == "training")
    is_broken_off = end.trace is not None and end.trace.is_cut_off and end.notice is end.trace.begin
    return end.is_nameless or end.is_rank_unconfirmed or is_caught or is_broken_off


def _name_cause(facts: Facts, end: ProcessEnd, message: Notice | None) -> dict[str, object]:
    """Name why a process ended, as far as the log shows, with what is known of it."""
    if end.is_undecided:
        whole = ends.status_summary(facts, end.notice)
        return {"why": "undecided", "whole": value(whole, "how") if whole else ""}
    if end.code == -signal.SIGBUS:
        return {"why": "SIGBUS", "shares": bool(facts.paths(transport="SHM"))}
    if end.manner == "exception":
        raised, first = end.raised, end.trace.first if end.trace else None
        if raised and raised.is_of_cuda:
            return {"why": "exception", "cuda": cuda.find_cause(cuda.code_in(raised.text))}
        is_root = raised and first and first != raised and not exceptions.is_of_a_loader(first)
        return {"why": "exception", "first": first.text if is_root and first else ""}
    if message is not None:
        error = str(value(message, "error"))
        code = cuda.code_in(error)
        return {"why": "message", "error": error, "cuda": cuda.find_cause(code) if cuda.knows(code, "kernel") else ""}
    names = {
        "SIGKILL": end.code == -signal.SIGKILL,
        "training": end.report.process == "training",
        "lost by Ray": end.manner == ends.LOST,
        "crash": end.is_crash,
        "SIGABRT": end.code == -signal.SIGABRT,
    }
    if end.echo:
        names |= {"waited": exceptions.WAITED in end.echo.text, "lost another": True}
    if why := next((name for name, holds in names.items() if holds), ""):
        return {"why": why}
    maybe = exceptions.candidates(facts, end.notice, end.pid, end.ranks) if end.code == ends.EXCEPTION else []
    if not maybe:
        return {"why": "unknown"}
    last = next((exception for exception in reversed(maybe) if exception.is_error), maybe[-1])
    why = "labelled" if last.rank is not None and end.ranks else "near"
    others = "" if len(maybe) == 1 else "above" if last is maybe[-1] else "near"
    is_sole = len(maybe) == 1 and last.is_error
    return {"why": why, "likely": last.text, "line": cite_line(last.line), "others": others, "sole": is_sole}


def _waited_for(facts: Facts, departed: list[ProcessEnd]) -> set[int]:
    """Return whom ranks that gave up may have waited for: who is named, has no output, or alone has no traceback."""
    if named := exceptions.absent_ranks(facts):
        return named
    # A rank with the same number in its group and in the job has all ranks before it there, too.
    asked = (one for one in facts.notices("torch/unique-id-failed") if value(one, "global_rank") == value(one, "rank"))
    if any(asked) and all(0 not in end.ranks for end in departed):
        return {0}
    # Of several tasks, Ray shows the exception that the driver received first.
    if any(ends.is_of_task(end.report) for end in departed):
        return set()
    ranks = set(facts.job.ranks_seen)
    if (unseen := without_output(facts)) and len(unseen) <= len(ranks):
        return unseen
    gave_up = {rank for end in departed for rank in end.ranks}
    gave_up |= {echo.rank for echo in exceptions.exceptions_of(facts).echoes}
    sizes = {comm.nranks for comm in facts.job.communicators}
    silent = ranks - gave_up
    return silent if len(silent) == 1 and sizes and max(sizes) == len(ranks) else set()


def _find_loss(facts: Facts, left: Silence, echoes: list[Notice], *, sure: bool) -> Hit:
    """Return the rank that went away without a report of its end, as closely as the log shows it."""
    seen, candidates = set(facts.job.ranks_seen), set(left.candidates)
    world, first = facts.job.world_size or 0, left.gone[0] if left.gone else None
    gone = {rank for last in left.gone for rank in actors_of(facts).ranks_of(last)}
    absent = candidates if len(candidates) == 1 and candidates.isdisjoint(seen) else set[int]()
    possible = candidates if not left.gone and 1 < len(candidates) <= world / 2 else set[int]()
    victims, named = ranks_in(echoes), absent or possible
    known = actors_of(facts).homes if named.isdisjoint(seen) else {}
    homes = [known[rank] for rank in named if rank in known]
    process = ""
    if first:  # its GPU by the index on the machine; else by that in the process, which may see only some
        devices = {facts.job.gpus[rank].nvml_dev for rank in first.ranks if rank in facts.job.gpus}
        device = "" if first.device is None else f", CUDA device {first.device}"
        device = f", GPU {devices.pop()}" if len(devices) == 1 and None not in devices else device
        process = f"{first.process.host}, pid {first.process.pid}{device}"
    is_whole = world and facts.job.rank_space == "global" and seen.issuperset(range(world))
    loss: dict[str, object] = {
        "lost": True,
        "unsure": not sure,
        "over": facts.is_over(),
        "whole": is_whole,
        "gone": gone if left.gone else "",
        "many": len(left.gone) > 1,
        "aborted": left.has_aborted,
        "left": left.has_left,
        "process": process,
        "line": first.line if first else "",
        "victims": victims,
        "peers": list(silence.peers_lost(echoes)),
        "barrier": exceptions.absent_ranks(facts),
        "absent": absent,
        "home": "host {}, local rank {}".format(*homes[0]) if homes else "",
        "candidates": ranges(left.candidates) if candidates else "",
        "others": any(None in comm.ranks for comm in facts.job.communicators),  # whom a rank lost may have lost another
        "elsewhere": bool(candidates) and seen.isdisjoint(candidates),
        "few": 1 < len(candidates) < world,
        "possible": possible,
        "possible here": possible & seen,
        "echo of one here": possible and possible <= seen,
    }
    hosts = {last.process[0] for last in left.gone} or set(hosts_with(facts.job, possible)) or hosts_in(echoes)
    shown = [*check.first_evidence(echoes)[:_MOST_SHOWN], *(one.evidence for one in left.gone[:1] if one.evidence)]
    ranks = gone or absent or possible or victims
    # Of several jobs in a log another one may be the one that works below.
    is_sure = sure and (facts.job.is_one_of_several or not life.works_below(facts, echoes))
    return Hit([], loss, ranks, hosts, shown, confidence="likely" if is_sure else "possible")


def ended_from_outside(facts: Facts) -> Iterator[Hit | Effects]:
    """Find reports of an external end; the story decides whether an earlier failure is the reason."""
    stopped = [*ends.terminations(facts), *([] if facts.is_over() else ends.find_kills_of_all(facts))]
    own = facts.with_event(ProcessEnded, lambda event: not event.is_external)
    has_failed = own or exceptions.exceptions_of(facts).traces
    told = {value(notice, "pid") for notice in facts.with_role("ends-worker")} if has_failed else set()
    errors = (notice for notice in facts.errors() if is_forced(notice))
    forced = {id(notice): notice for notice in errors if value(notice, "pid") not in told}
    forced.update((id(notice), notice) for notice in stopped)
    interrupts = facts.notices(ends.INTERRUPTED)
    yield Effects(interrupts)
    # The output may end with the KeyboardInterrupt of an unknown process, else it may be any helper's.
    lines = [line for interrupt in interrupts for line in interrupt.evidence]
    lines += [end for end in facts.job.ended_by if lines and end.text.endswith("KeyboardInterrupt")]
    if facts.is_over() or not any(ends.is_last(facts, line) for line in lines):
        forced = {key: notice for key, notice in forced.items() if notice.production != ends.INTERRUPTED}
    notices = sorted(ends.since_start(facts, forced.values()), key=attrgetter("place"))
    if not notices:
        return
    begin = min(notice.place for notice in notices)
    failed = facts.errors(forced_ends=False)
    # What follows, such as Python's KeyboardInterrupt, is the effect.
    echoes = {id(echo.begin) for echo in exceptions.exceptions_of(facts).echoes}
    later = [failure for failure in failed if failure.place >= begin or id(failure) in echoes]
    effects = [
        failure
        for failure in later
        if is_propagated_error(failure)
        or (report_of(failure).process == "loader" and report_of(failure).code in EXTERNAL)  # they end with it
    ]
    interrupted = {value(notice, "global_rank") for notice in notices if notice.production == "torch/rank-interrupted"}
    is_some = all("ends-one" in notice.roles for notice in notices)  # no launcher reports that it ended them all
    is_some = is_some and not interrupted.issuperset(facts.job.ranks_seen)
    reason = next(filter(None, (job_failure.reason(notice.event) for notice in notices)), None)
    is_killed = reason is None and report_of(notices[0]).signal == signal.SIGKILL.name
    is_silent = reason != job_failure.NODE_FAILURE and bool(at_end.ends_after_nccl(facts, facts.job.ended_by))
    is_of_nobody = any(notice.production == ends.INTERRUPTED for notice in notices)
    is_doubtful = is_killed or is_silent or (is_some and not is_of_nobody)
    lost = (one for one in facts.with_role("forced-end") if job_failure.reason(one.event) == job_failure.NODE_FAILURE)
    nodes = {name for notice in lost for name in expand(str(value(notice, "nodes") or ""))} - {""}
    named = {
        "reason": reason or "",
        "signal": _signal_words(notices),
        "nodes": nodes,
        "killed": is_killed,
        "silence": is_silent,
        "slurm": any(notice.production.startswith("launchers/slurm-") for notice in notices),
        "doubtful": is_doubtful,
        "unsure": is_doubtful or is_some,
    }
    yield Hit(notices, named, hosts=sorted(nodes) or None, explains=effects)


def tell_ended_from_outside(facts: Facts, account: Account) -> Hit:
    """Return processes that were told to end: by their launcher alone, it did so because another one failed."""
    hit = check.tell_account(facts, account)
    told = {value(notice, "pid") for notice in facts.with_role("ends-worker")}
    forced = [*filter(is_forced, facts.errors()), *facts.with_role("forced-end"), *ends.terminations(facts)]
    if not told or any(value(notice, "pid") not in told for notice in forced):
        return hit
    return hit.with_fields(named={**hit.named, "worker": True})


def _signal_words(notices: list[Notice]) -> str:
    """Return the signal if the launcher names it, else its message."""
    stated = (report_of(one).signal or value(one, "signal") or value(one, "signal_number") for one in notices)
    given = next(filter(None, stated), None) or next(filter(None, (value(one, "exitcode") for one in notices)), "")
    if not given and message_of(notices[0]).endswith("KeyboardInterrupt"):
        given = signal.SIGINT.name
    number = signals.number(str(given))
    name = given if number is None else signals.name(abs(signals.exit_code(number)))
    return f"{name} from outside" if name else message_of(notices[0])


_BY_TIME = ("ended", "gone")
"""Kinds of effects: a hanging job also reaches its time limit, which explains how it ended, not why it hung."""
_OVERTIME = ("TIMEOUT", "DEADLINE")
_FAILED_STATES = (*_OVERTIME, "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED")
_SHOWN_KEYS = ("JobState", "RunTime", "NodeList")


def slurm_ended_job(facts: Facts, effects: Sequence[Finding]) -> Iterator[Hit]:
    """Find a job that ended by its state in Slurm, if its nodes are hosts of the log, where both have names."""
    by_time = [effect for effect in effects if workloads.shows(effect, *_BY_TIME)]
    fatal = [effect for effect in effects if effect.fatal or effect in by_time]
    hosts = {name.partition(".")[0] for name in facts.hosts() if is_named(name)}
    for output in contents_of(facts.job.artifacts, "slurm_job") if fatal else ():
        for job in output.jobs:
            values, state = job.values, job.values.get("JobState", "")
            explained = by_time if state in _OVERTIME else fatal
            if state not in _FAILED_STATES or (hosts and job.nodes and hosts.isdisjoint(job.nodes)) or not explained:
                continue
            by_line = group_values((line, f"{key}={values[key]}") for key, line in job.lines.items())
            named: dict[str, object] = {
                "number": job.number,
                "state": state,
                "limit": state in _OVERTIME and values.get("TimeLimit"),
                "reason": values.get("Reason", "None"),
                "code": values.get("ExitCode", "?"),
            }
            shown = (job.lines[key] for key in _SHOWN_KEYS if key in values)
            lines = [Evidence(output.name, line, " ".join(by_line[line])) for line in shown]
            yield Hit([], named, evidence=lines, effects=explained)
            return


_MEMORY = "OOMKilled"
_REASONS = (
    *(_MEMORY, "Evicted", "DeadlineExceeded", "NodeLost", "NodeShutdown", "Terminated", "Preempting", "Preempted"),
    "UnexpectedAdmissionError",
)
_CODES = (135, 137, 139)  # exit codes of the first death; 134 and 143 are usually those of the others after it


def container_killed(facts: Facts, effects: Sequence[Finding]) -> Iterator[Hit]:
    """Find how the pods ended if the job lost ranks; the status of a healthy job is old or of another job."""
    faults = [effect for effect in effects if effect.fatal or workloads.shows(effect, "ended")]
    deaths = _deaths(facts) if faults else []
    if not deaths:
        return
    first, ended = deaths[0]
    where = {host for case, _ in deaths for host in workloads.hosts(facts, case.pod)}
    dead = {rank for host in facts.job.hosts if host.name in where for rank in host.ranks}
    losses = [effect for effect in faults if workloads.shows(effect, "gone")]
    named = set[int]()
    for effect in losses:  # those that printed its evidence lost a peer
        lines = {(line.source, line.line) for line in effect.evidence}
        notices = [one for one in facts.job.notices if any((e.source, e.line) in lines for e in one.evidence)]
        named |= set(effect.ranks) - ranks_in(notices)
    gone = dead & named or dead
    is_other = any(finding.confidence == "certain" and where.isdisjoint(finding.hosts) for finding in losses)
    agrees = not dead or (bool(dead & named) if named else not is_other)
    pod, has_reason = first.pod, ended.reason in _REASONS
    is_container, is_memory = pod.kind == "container", ended.reason == _MEMORY
    is_current = ".lastState." not in ended.where  # if the container restarted, the log may be of a later run
    size = re.fullmatch(r"(\d{1,11})(\D*)", first.container.resources.get("memory") or "")
    more = {"memory": f"{2 * int(size[1])}{size[2]}" if size else "<more>"}
    limit = workloads.steps(first, Change(("resources", "limits"), more)) if is_memory and not is_container else ()
    known: dict[str, object] = {
        "pods": list_words((case.pod.label for case, _ in deaths), limit=3),
        "gone": gone,
        "reason": ended.reason,
        "code": "" if is_memory else ended.code,
        "signal": "" if has_reason else ended.code,
        "limit": list(limit),
        "pod": pod.name,
        "own": workloads.namespace_option(pod.namespace),
        "memory": is_memory,
        "node": "" if is_container else pod.node,
        "container": is_container,
    }
    shown = [Evidence(case.pod.file, one.line, f"{one.where}: {one.text}") for case, one in deaths]
    sure = "certain" if has_reason and agrees and (is_current or dead & named) else "likely"
    yield Hit([], known, gone, None, shown, confidence=sure, effects=faults, cases=[case for case, _ in deaths])


def _deaths(facts: Facts) -> list[tuple[Case, Ended]]:
    """Return the pods whose end explains the loss, in order of time; without reasons, none if all ended alike."""
    pods = [pod for pod in workloads.related_pods(facts) if pod.containers]
    killed = []
    for pod in pods:
        stated = [ended for ended in pod.ended if ended.reason in _REASONS]
        stated = stated or [ended for ended in pod.ended if ended.code in _CODES]  # else one by a signal
        killed += [(Case(pod, pod.workers[0]), ended) for ended in stated[:1]]
    sure = [(case, ended) for case, ended in killed if ended.reason in _REASONS]
    deaths = sure or (killed if len(killed) < max(len(pods), 2) else [])
    return sorted(deaths, key=lambda death: (death[1].when or "~", death[0].pod.name))
