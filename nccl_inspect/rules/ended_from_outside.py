"""A job that somebody ended: its scheduler, its launcher or its user."""

from __future__ import annotations

import signal
from collections.abc import Container, Iterator
from operator import attrgetter

from nccl_inspect.judging.engine import Effects, Result, Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.hangs.progress import silenced_at_once
from nccl_inspect.judging.process_ends import exceptions, mpi, slurm_tasks
from nccl_inspect.judging.process_ends.departures import departures, is_weak, since_start
from nccl_inspect.judging.process_ends.silence import is_last
from nccl_inspect.judging.statements import is_retold, value, words
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_end

RULE = Rule(
    name="ended-from-outside",
    category="failures",
    severity="info",
    title="The scheduler, the launcher or a user ended the job",
    echoes=("driver-shutting-down",),
    ends=True,
)
_OF_NOBODY = "torch/python-interrupted"
_REASONS = {
    job_end.TIME_LIMIT: "its time limit was reached",
    job_end.PREEMPTED: "a job of higher priority took its place",
    job_end.REQUEUED: "it was put back into the queue, by an administrator or because a node failed",
    job_end.NODE_FAILURE: "a node failed",
}
_SIGNAL = "a signal was sent to it: by its user (scancel, Ctrl-C), its launcher or an administrator"
_KILLED = (
    "unknown from this log: "
    "SIGKILL comes from the kernel where the host or the cgroup has no memory left, or from Slurm or a "
    "user who ended the job"
)
_SIGNALLED = 128
"""What programs add to a signal to make an exit code of it."""
_OF_ONE = ("torch/rank-interrupted", _OF_NOBODY, *job_end.OF_WORKERS)
"""They tell that one process was ended."""
_NODE = "scontrol show node <node>; dmesg -T | tail -100   # why did the node fail?"
_IN_TIME = "sbatch --signal=B:USR1@300 --requeue …   # time to save a checkpoint, then go on in a new job"
_WHY_KILLED = "dmesg -T | grep -i 'killed process'   # on its host: was there no memory left?"


def judge(facts: Facts) -> Iterator[Result]:
    """Judge what says so, where nothing failed before that could be the reason."""
    stopped = mpi.stopped(facts)
    forced = {id(notice): notice for notice in facts.errors() if job_end.is_forced(notice.event)}
    forced.update((id(notice), notice) for notice in stopped)
    interrupts = facts.notices(_OF_NOBODY)
    yield Effects(interrupts)
    if not _ended_with(facts, interrupts):
        forced = {key: notice for key, notice in forced.items() if notice.production != _OF_NOBODY}
    said = sorted(since_start(facts, forced.values()), key=attrgetter("place"))
    if not said or facts.job.failed or _is_explained(facts, forced, said):
        return
    begin = min(notice.place for notice in said)
    failed = facts.failures()
    # What follows, such as Python's KeyboardInterrupt, is the effect.
    echoes = {id(echo.begin) for echo in exceptions.found(facts).echoes}
    effects = [one for one in failed if _is_effect(one) and (one.place >= begin or id(one) in echoes)]
    if len(effects) < len(failed):
        return
    reason = next(filter(None, (job_end.reason(notice.event) for notice in said)), None)
    is_broken = reason == job_end.NODE_FAILURE
    is_unclear = reason is None and str(value(said[0], "how")).startswith("Killed")
    may_hang = not is_broken and bool(silenced_at_once(facts, facts.job.ended_by))
    is_of_some = _is_of_some(facts, said)
    is_of_nobody = any(notice.production == _OF_NOBODY for notice in said)
    is_doubtful = is_unclear or may_hang or (is_of_some and not is_of_nobody)
    by_slurm = any(notice.production.startswith("launchers/slurm-") for notice in said)
    yield RULE.finding(
        f"the job was ended: {_REASONS[reason] if reason else _by_signal(said)}",
        cause=(_REASONS[reason] if reason else _KILLED if is_unclear else _SIGNAL)
        + (". Nothing stands between NCCL's last line and the end: it may have hung" if may_hang else ""),
        impact="none on the paths; what was not saved is lost",
        fix=[
            *([_WHY_KILLED] if is_unclear else []),
            "sacct -j <job> --format=JobID,State,ExitCode,Start,End,Timelimit,Reason   # what Slurm knows"
            if by_slurm
            else "kubectl describe pod <pod>; kubectl get events   # was it evicted, or deleted?",
            "Look when the job last made a step: one that hangs runs into its time limit, too.",
            *([_NODE] if is_broken else [_IN_TIME] if by_slurm else []),
        ],
        severity="error" if is_broken else "warning" if is_doubtful else None,
        confidence="possible" if is_doubtful or is_of_some else "certain",
        fatal=is_broken,
        notices=said,
        explains_errors=effects,
    )


def _ended_with(facts: Facts, interrupts: list[Notice]) -> bool:
    """Whether the output of the job ends with a KeyboardInterrupt of nobody: else it may be that of any helper."""
    lines = [line for one in interrupts for line in one.evidence]
    lines += [end for end in facts.job.ended_by if lines and end.text.endswith("KeyboardInterrupt")]
    return not facts.is_over() and any(is_last(facts, line) for line in lines)


def _is_explained(facts: Facts, forced: Container[int], said: list[Notice]) -> bool:
    """Whether a process ended before, as srun or its own end tells: what was done to others follows from that."""
    gone = departures(facts)
    if all(one.production in _OF_ONE for one in said) and any(one.echo is None and not is_weak(one) for one in gone):
        return True
    return any(id(one.notice) in forced or one.notice.production == slurm_tasks.STATE for one in gone)


def _is_of_some(facts: Facts, said: list[Notice]) -> bool:
    """Whether only some ranks say that they were interrupted, or were ended, and nobody that he ended them all."""
    interrupted = {value(notice, "global_rank") for notice in said if notice.production == "torch/rank-interrupted"}
    return all(one.production in _OF_ONE for one in said) and not interrupted.issuperset(facts.job.ranks_seen)


def _is_effect(notice: Notice) -> bool:
    """Whether it may follow from the end of the job: processes that load data are ended with it."""
    is_loader = notice.production == "torch/data-loader-killed" and value(notice, "how") in ("Terminated", "Interrupt")
    return is_retold(notice) or is_loader


def _by_signal(said: list[Notice]) -> str:
    """Which signal, where the launcher tells; else what it says."""
    told = (value(notice, "signal") or value(notice, "signal_number") or value(notice, "exitcode") for notice in said)
    given = next((str(found) for found in told if found), "").rpartition(".")[2].removeprefix("-")
    if not given and words(said[0]).endswith("KeyboardInterrupt"):
        given = signal.SIGINT.name
    if given.isdigit() and int(given) % _SIGNALLED in set(signal.Signals):
        given = signal.Signals(int(given) % _SIGNALLED).name
    return f"{given} from outside" if given else words(said[0])
