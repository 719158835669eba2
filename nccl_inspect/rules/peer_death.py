"""A rank died while the others were working."""

import signal
from collections.abc import Iterator

from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import (
    Account,
    Effects,
    Facts,
    Finding,
    Notice,
    Results,
    Rule,
    first_evidence,
)
from nccl_inspect.judging.evidence import kernel_log
from nccl_inspect.judging.networks.efa_completions import lost_peers
from nccl_inspect.judging.networks.ib_errors import after_another
from nccl_inspect.judging.process_ends import exceptions, ray, wording
from nccl_inspect.judging.process_ends.ends import (
    in_order,
    last_words,
    loss_exceptions,
    process_ends,
    ranks_of_tasks,
    since_start,
    task_ends,
)
from nccl_inspect.judging.process_ends.process_end import ProcessEnd
from nccl_inspect.judging.process_ends.silence import Silence, closed_by_others, is_last, silence_of
from nccl_inspect.judging.retelling import retell
from nccl_inspect.judging.statements import FLUSHED, message_of, report_of
from nccl_inspect.util.wording import ranks_word

RULE = Rule(
    name="peer-death",
    category="failures",
    tells=(
        "exception",
        "process-ended",
        "process-killed",
        "fell-silent",
        "lost-connection",
        "launcher-report",
        "waited",
    ),
    title="A rank died while the others were working",
    shows=("death", "gone"),
    supersedes=("nccl-tests-failed",),
)
_OVER = "the program failed after NCCL's work was done: all communicators were already finalized"
_DEAD = "the job is dead: a communicator does not survive the loss of a rank"
_ONLY_EFFECT = "'Connection closed by remote peer' on the others is the effect, not the cause"
_ENDED = "its process ended while the others were working"
_WORDS = {
    "fell-silent": "its lines stop without an error or a regular end: killed, crashed, or its machine was lost",
    "exception": "its program raised an exception; what others report of lost connections follows from that",
}
"""Why, by the kind of what happened."""
_WHY_DEAD = "dmesg -T | grep -iE 'oom|xid|segfault'   # on its host"
_SLURM_KILLED = "Out Of Memory"
_SHOWN = 4
"""The most echoes to show beside the last line of the lost rank."""


def judge(facts: Facts) -> Results:
    """Judge processes that ended, and connections closed by that; the story decides what came first."""
    closed, lost = _closed(facts), loss_exceptions(facts)
    given_up = [*after_another(facts), *facts.completions(FLUSHED)]
    killed = [*filter(_is_slurm_kill, task_ends(facts)), *facts.with_role("memory-kill")]
    departed = process_ends(facts)
    yield Effects([notice for notice in facts.with_role("catchable") if exceptions.is_caught(facts, notice)])
    if killed:
        by_memory = _of_memory(facts, killed, departed, [*closed, *given_up])
        yield by_memory
        if by_memory.confidence != "possible":
            return
    if departed:
        yield _departed(facts, departed, [*closed, *given_up])
    elif facts.is_over() and (late := since_start(facts, lost)):
        yield _finding(facts, Silence([], []), late, sure=False)
    else:
        yield from _silenced(facts)


def tell(facts: Facts, account: Account) -> Finding:
    """Describe processes that ended of their own, or fell silent."""
    ranks = set(account.ranks)
    ends = [
        end
        for end in process_ends(facts)
        if ranks.intersection(end.ranks) or (not end.ranks and end.pid in account.pids)
    ]
    if ends and account.kind != "fell-silent":
        finding = _departed(facts, ends, [])
        return finding if set(finding.ranks) == ranks else finding.with_fields(ranks=sorted(ranks))
    silenced = next(_silenced(facts), None) if account.kind == "fell-silent" else None
    if silenced and set(silenced.ranks) == ranks:
        return silenced
    return retell(
        RULE,
        account,
        _WORDS.get(account.kind, _ENDED),
        "Read the output of {who} first, with its traceback.",
        _WHY_DEAD,
        impact=_OVER if facts.is_over() else _DEAD,
    )


def _closed(facts: Facts) -> list[Notice]:
    """Return connections to ranks or the store that closed for no known reason."""
    closed = [*facts.notices("nccl/socket-closed-by-peer"), *filter(_is_reset, facts.job.notices)]
    closed += [*lost_peers(facts), *_stores_lost(facts), *propagated_errors.remote(facts)]
    # A helper of old releases serves strangers, too, and who asked it for memory and left is no rank.
    helpers = {_thread(notice) for notice in facts.notices("nccl/remote-allocator-failed")}
    return [notice for notice in closed if _thread(notice) not in helpers]


def _thread(notice: Notice) -> str:
    """Return the host, pid and thread in front of the first line."""
    return notice.evidence[0].text.partition(" ")[0]


def _silenced(facts: Facts) -> Iterator[Finding]:
    """Judge lost connections if no report says which process ended."""
    local = closed_by_others(facts)
    closed = [*_closed(facts), *loss_exceptions(facts)]
    given_up = [*after_another(facts), *facts.completions(FLUSHED)]
    if not (closed or given_up or local):
        yield from _at_the_end(facts)
        return
    if facts.is_over():
        return  # every rank finalized its communicators: connections close then
    notices = [*closed, *given_up, *local]
    silence = silence_of(facts, notices)
    is_aborted = any(comm.state == "aborted" for comm in facts.job.communicators)
    if closed or given_up or (silence.gone and is_aborted):  # local connections close at every exit
        yield _finding(facts, silence, notices, sure=bool(closed) or len(silence.gone) == 1)


def _at_the_end(facts: Facts) -> Iterator[Finding]:
    """An unattributed exception at the end of the output, while communicators were in use."""
    comms = facts.job.communicators
    loose = exceptions.exceptions_of(facts).loose
    if not loose or not comms or any(comm.ended for comm in comms) or not is_last(facts, loose[-1].line):
        return
    last = loose[-1]
    whose = "the output" if last.rank is None else f"the output of {ranks_word([last.rank])}"
    printer = (
        "The line does not show which process printed it" if last.rank is None else "The rank is the launcher's label"
    )
    yield RULE.finding(
        f"{whose} ends with an exception: {last.text}",
        cause=f"no output of the program follows it: it may have ended a rank, or the log was cut there. {printer}",
        impact="if it ended a rank, the job is dead: the others wait for it",
        fix=["Read the traceback above that line, and check whether the job continued."],
        confidence="possible" if last.rank is None else "likely",
        ranks=[] if last.rank is None else [last.rank],
        evidence=[last.line],
        fatal=True,
    )


def _stores_lost(facts: Facts) -> list[Notice]:
    """Reports that torchrun lost the agent with the store, before any communicator was finalized."""
    ended = any(comm.ended for comm in facts.job.communicators)
    return [] if ended or not facts.job.communicators else facts.notices("torch/store-lost")


def _is_slurm_kill(notice: Notice) -> bool:
    return str(report_of(notice).how).startswith(_SLURM_KILLED)


def _of_memory(facts: Facts, killed: list[Notice], departed: list[ProcessEnd], echoes: list[Notice]) -> Finding:
    """Processes that the kernel, or the scheduler of the job, killed because memory ran out."""
    gone = [end for end in departed if end.code == -signal.SIGKILL]
    ranks = {rank for end in gone for rank in end.ranks} | ray.ranks_killed_by_monitor(facts)
    by_task = set() if ranks else {rank for end in killed for rank in ranks_of_tasks(facts, end)}
    is_doubtful = not gone and all(kernel_log.confidence(facts, notice) == "possible" for notice in killed)
    return RULE.finding(
        f"a process was killed because host memory ran out: {message_of(killed[0]).strip()}",
        cause=wording.MEMORY,
        impact=f"{_DEAD}. The others lose connections, or wait until PyTorch times out",
        fix=wording.MEMORY_FIX,
        severity="warning" if is_doubtful else None,
        confidence="possible" if is_doubtful else "likely" if by_task else "certain",
        ranks=ranks | by_task,
        hosts={end.host for end in gone},
        evidence=first_evidence([*killed, *(end.notice for end in gone[:2]), *echoes]),
        fatal=not is_doubtful,
    )


def _departed(facts: Facts, departed: list[ProcessEnd], echoes: list[Notice]) -> Finding:
    """Processes that ended on their own, as reported by launchers, shells or themselves."""
    departed = in_order(wording.on_their_own(departed))
    words = last_words(facts, departed)
    first = departed[0]
    suspected = wording.waited_for(facts, departed) if first.echo else set()
    lines = [end.notice for end in departed[:2]]
    begin = [first.trace.begin] if first.trace else []
    return RULE.finding(
        wording.summarize_given_up(facts, departed) if first.echo else wording.end_summary(departed),
        cause=wording.end_cause(facts, first, next((words[rank] for rank in first.ranks if rank in words), None)),
        impact=_OVER if facts.is_over() else _DEAD,
        fix=wording.given_up_remedies(suspected) if first.echo else wording.end_remedies(first),
        # It may not be a rank, or only one that lost another.
        confidence="likely" if first.echo or _is_doubtful(facts, first) else "certain",
        ranks=suspected or {rank for end in departed for rank in end.ranks},
        hosts={end.host for end in departed},
        evidence=[
            *first_evidence(begin),
            *([first.raised.line] if first.raised else []),
            *first_evidence([*lines, *words.values(), *echoes[:2]]),
        ],
        fatal=True,
    )


def _is_doubtful(facts: Facts, end: ProcessEnd) -> bool:
    return end.is_nameless or end.is_rank_unconfirmed or ray.is_maybe_caught(facts, end.notice)


def _is_reset(notice: Notice) -> bool:
    """Whether a call failed only because the other side is gone."""
    gone = ("reset by peer", "Broken pipe", *wording.UNANSWERED)
    return notice.production == "nccl/socket-recv-failed" and any(word in notice.message for word in gone)


def _finding(facts: Facts, silence: Silence, echoes: list[Notice], *, sure: bool) -> Finding:
    loss = wording.loss_of(facts, silence, echoes)
    return RULE.finding(
        wording.loss_summary(facts, loss),
        cause=wording.loss_cause(facts, loss),
        impact=_OVER if facts.is_over() else f"{_DEAD}. {_ONLY_EFFECT}",
        fix=wording.loss_steps(facts, loss),
        confidence="likely" if sure else "possible",
        ranks=loss.ranks,
        hosts=loss.hosts(facts),
        evidence=[*first_evidence(echoes)[:_SHOWN], *(last.evidence for last in silence.gone[:1] if last.evidence)],
        fatal=True,
    )
