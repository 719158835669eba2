"""The scheduler, the launcher or a user ended the job."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from operator import attrgetter

from nccl_inspect.judging.engine import (
    Account,
    Effects,
    Facts,
    Finding,
    Notice,
    Results,
    Rule,
    value,
)
from nccl_inspect.judging.hangs.progress import ends_after_nccl
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.process_ends.ends import since_start, terminations
from nccl_inspect.judging.process_ends.silence import is_last
from nccl_inspect.judging.statements import EXTERNAL, is_propagated_error, message_of, report_of
from nccl_inspect.model.statements import job_end
from nccl_inspect.util import signals
from nccl_inspect.util.records import Frozen, frozen

RULE = Rule(
    name="ended-from-outside",
    category="failures",
    tells=("ended-from-outside",),
    severity="info",
    title="The scheduler, the launcher or a user ended the job",
    shows=("ended",),
)
_OF_NOBODY = "torch/python-interrupted"
_REASONS = {
    job_end.TIME_LIMIT: "its time limit was reached",
    job_end.PREEMPTED: "a job of higher priority took its place",
    job_end.REQUEUED: "it was requeued, by an administrator or because a node failed",
    job_end.NODE_FAILURE: "a node failed",
}
_SIGNAL = "a signal was sent to it: by its user (scancel, Ctrl-C), its launcher or an administrator"
_KILLED = (
    "unknown from this log: SIGKILL comes from the kernel if the host or the cgroup ran out of memory, or from Slurm "
    "or a user who ended the job"
)
_LOST = "none on the paths; unsaved work is lost"
_NODE = "scontrol show node <node>; dmesg -T | tail -100   # why did the node fail?"
_ASK_SLURM = "sacct -j <job> --format=JobID,State,ExitCode,Start,End,Timelimit,Reason   # what did Slurm record?"
_ASK_KUBERNETES = "kubectl describe pod <pod>; kubectl get events   # was it evicted, or deleted?"
_IN_TIME = "sbatch --signal=B:USR1@300 --requeue …   # leaves time to save a checkpoint, then continues in a new job"
_WHY_KILLED = "dmesg -T | grep -i 'killed process'   # on its host: did memory run out?"


def judge(facts: Facts) -> Results:
    """Judge reports of an external end; the story decides whether an earlier failure is the reason."""
    stopped = terminations(facts)
    forced = {id(notice): notice for notice in facts.errors() if job_end.is_forced(notice.event)}
    forced.update((id(notice), notice) for notice in stopped)
    interrupts = facts.notices(_OF_NOBODY)
    yield Effects(interrupts)
    if not _ends_with_interrupt(facts, interrupts):
        forced = {key: notice for key, notice in forced.items() if notice.production != _OF_NOBODY}
    notices = sorted(since_start(facts, forced.values()), key=attrgetter("place"))
    if not notices:
        return
    begin = min(notice.place for notice in notices)
    failed = facts.errors(forced_ends=False)
    # What follows, such as Python's KeyboardInterrupt, is the effect.
    echoes = {id(echo.begin) for echo in exceptions.exceptions_of(facts).echoes}
    effects = [
        failure for failure in failed if _is_effect(failure) and (failure.place >= begin or id(failure) in echoes)
    ]
    end = _job_end(facts, notices)
    yield RULE.finding(
        f"the job was ended: {_REASONS[end.reason] if end.reason else _signal_words(notices)}",
        cause=_cause(end),
        impact=_LOST,
        fix=_fix(end),
        severity="error" if end.is_broken else "warning" if end.is_doubtful else None,
        confidence="possible" if end.is_doubtful or end.is_partial else "certain",
        fatal=end.is_broken,
        notices=notices,
        explains_errors=effects,
    )


def tell(facts: Facts, account: Account) -> Finding:
    """Describe a signal that ended processes: an error if it ended some only, and others waited for these."""
    return RULE.finding(
        account.sentence,
        cause=f"{_SIGNAL}. {account.effects}",
        impact="the others wait for these ranks, or lose their connections" if account.is_partial else _LOST,
        fix=[
            "Ask whoever ended it: scheduler (preemption, time limit), node maintenance, a user.",
            "journalctl -u slurmd -u kubelet --since <time>   # on that host: who sent the signal?",
        ],
        severity="error" if account.is_partial else None,
        confidence=account.confidence,
        ranks=account.ranks,
        hosts=account.hosts,
        evidence=account.evidence,
        fatal=account.is_partial,
    )


@frozen
class _JobEnd(Frozen):
    """Holds how the job was ended."""

    reason: str | None
    is_broken: bool
    """A node failed."""
    is_unclear: bool
    """Killed by an unknown sender."""
    may_hang: bool
    is_partial: bool
    """Only some ranks report it."""
    is_doubtful: bool
    by_slurm: bool


def _job_end(facts: Facts, notices: list[Notice]) -> _JobEnd:
    reason = next(filter(None, (job_end.reason(notice.event) for notice in notices)), None)
    is_broken = reason == job_end.NODE_FAILURE
    is_unclear = reason is None and report_of(notices[0]).signal == signal.SIGKILL.name
    may_hang = not is_broken and bool(ends_after_nccl(facts, facts.job.ended_by))
    is_partial = _is_partial(facts, notices)
    is_of_nobody = any(notice.production == _OF_NOBODY for notice in notices)
    is_doubtful = is_unclear or may_hang or (is_partial and not is_of_nobody)
    by_slurm = any(notice.production.startswith("launchers/slurm-") for notice in notices)
    return _JobEnd(reason, is_broken, is_unclear, may_hang, is_partial, is_doubtful, by_slurm)


def _cause(end: _JobEnd) -> str:
    cause = _REASONS[end.reason] if end.reason else _KILLED if end.is_unclear else _SIGNAL
    hang = ". The log shows nothing between NCCL's last line and the end: the job may have hung"
    return cause + hang if end.may_hang else cause


def _fix(end: _JobEnd) -> Iterator[str]:
    if end.is_unclear:
        yield _WHY_KILLED
    yield _ASK_SLURM if end.by_slurm else _ASK_KUBERNETES
    yield "Check when the job last made a step: a job that hangs also runs into its time limit."
    if end.is_broken:
        yield _NODE
    elif end.by_slurm:
        yield _IN_TIME


def _ends_with_interrupt(facts: Facts, interrupts: list[Notice]) -> bool:
    """Whether the job's output ends with a KeyboardInterrupt of an unknown process, else it may be any helper's."""
    lines = [line for interrupt in interrupts for line in interrupt.evidence]
    lines += [end for end in facts.job.ended_by if lines and end.text.endswith("KeyboardInterrupt")]
    return not facts.is_over() and any(is_last(facts, line) for line in lines)


def _is_partial(facts: Facts, notices: list[Notice]) -> bool:
    """Whether only some ranks were interrupted or ended, and no launcher reports that it ended them all."""
    interrupted = {value(notice, "global_rank") for notice in notices if notice.production == "torch/rank-interrupted"}
    return all("ends-one" in notice.roles for notice in notices) and not interrupted.issuperset(facts.job.ranks_seen)


def _is_effect(notice: Notice) -> bool:
    """Whether it may follow from the end of the job: data loader processes end with it."""
    is_loader = report_of(notice).process == "loader" and report_of(notice).code in EXTERNAL
    return is_propagated_error(notice) or is_loader


def _signal_words(notices: list[Notice]) -> str:
    """The signal if the launcher names it, else its message."""
    stated = (
        report_of(notice).signal or value(notice, "signal") or value(notice, "signal_number") for notice in notices
    )
    given = next(filter(None, stated), None) or next(
        filter(None, (value(notice, "exitcode") for notice in notices)), ""
    )
    if not given and message_of(notices[0]).endswith("KeyboardInterrupt"):
        given = signal.SIGINT.name
    number = signals.number(str(given))
    name = given if number is None else signals.name(abs(signals.from_status(number)))
    return f"{name} from outside" if name else message_of(notices[0])
