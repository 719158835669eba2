"""A job that somebody ended: its scheduler, its launcher or its user."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from nccl_inspect.model import endings
from nccl_inspect.model.job import Finding, Notice, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, ranks_in
from nccl_inspect.rules.hangs import silenced_at_once
from nccl_inspect.rules.statements import is_retold, value

RULE = Rule(
    name="ended-from-outside",
    category="failures",
    severity="info",
    title="The scheduler, the launcher or a user ended the job",
    specific=("hang-after-init", "hang-after-p2p-setup", "hang-in-init", "rank-missing", "watchdog-timeout"),
)
_REASONS = {
    endings.TIME_LIMIT: "its time limit was reached",
    endings.PREEMPTED: "a job of higher priority took its place",
    endings.REQUEUED: "it was put back into the queue, by an administrator or because a node failed",
    endings.NODE_FAILURE: "a node failed",
}
_SIGNAL = "a signal was sent to it: by its user (scancel, Ctrl-C), its launcher or an administrator"
_KILLED = (
    "not in the log: SIGKILL comes from the kernel where the host or the cgroup has no memory left, or from Slurm or a "
    "user who ended the job"
)
_NODE = "scontrol show node <node>; dmesg -T | tail -100   # why did the node fail?"
_IN_TIME = "sbatch --signal=B:USR1@300 --requeue …   # time to save a checkpoint, then go on in a new job"
_WHY_KILLED = "dmesg -T | grep -i 'killed process'   # on its host: was there no memory left?"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what says so, where nothing failed before that could be the reason."""
    said = [notice for notice in facts.errors() if endings.is_forced(notice.event)]
    if not said or facts.job.failed:
        return
    begin = min(notice.place for notice in said)
    failed = facts.failures()
    # What follows, such as Python's KeyboardInterrupt, is the effect.
    effects = [notice for notice in failed if notice.place > begin and is_retold(notice)]
    if len(effects) < len(failed):
        return
    facts.pass_over(effects)
    reason = next(filter(None, (endings.reason(notice.event) for notice in said)), None)
    is_broken = reason == endings.NODE_FAILURE
    is_unclear = reason is None and str(value(said[0], "how")).startswith("Killed")
    may_hang = not is_broken and bool(silenced_at_once(facts, facts.job.ended_by))
    is_doubtful = is_unclear or may_hang
    by_slurm = any(notice.production.startswith("slurm-") for notice in said)
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
        confidence="possible" if is_doubtful else "certain",
        fatal=is_broken,
        ranks=ranks_in(said),
        hosts=hosts_in(said),
        evidence=first_said(said),
    )


def _by_signal(said: list[Notice]) -> str:
    """Which signal, where the launcher tells; else what it says."""
    given = next((str(found) for notice in said if (found := value(notice, "signal"))), "").rpartition(".")[2]
    if given.isdigit() and int(given) in set(signal.Signals):
        given = signal.Signals(int(given)).name
    return f"{given} from outside" if given else said[0].message
