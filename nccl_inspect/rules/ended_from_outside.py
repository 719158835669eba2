"""A job that somebody ended: its scheduler, its launcher or its user."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from nccl_inspect.model import endings
from nccl_inspect.model.job import Finding, Notice, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, is_retold, ranks_in, value
from nccl_inspect.rules.hangs import silenced_at_once

RULE = Rule(
    name="ended-from-outside",
    category="failures",
    severity="info",
    title="The scheduler, the launcher or a user ended the job",
    specific=("hang-after-init", "hang-after-p2p-setup", "hang-in-init", "rank-missing", "watchdog-timeout"),
)
_NODE_FAILURE = "node failure"
_REASONS = {
    "time limit": "its time limit was reached",
    "preempt": "a job of higher priority took its place",
    _NODE_FAILURE: "a node failed",
}
"""What Slurm gives as the reason (src/slurmd/slurmstepd/req.c), and what that means."""
_NO_REASON = "a signal was sent to it: by its user (scancel, Ctrl-C), its launcher or an administrator"


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what says so, where nothing failed before that could be the reason."""
    said = [notice for notice in facts.errors() if endings.is_forced(notice.event)]
    if not said or facts.job.failed:
        return
    begin = min(notice.place for notice in said)
    failed = facts.failures()
    effects = [
        notice for notice in failed if notice.place > begin and is_retold(notice)
    ]  # as Python's KeyboardInterrupt
    if len(effects) < len(failed):
        return
    facts.pass_over(effects)
    reason = next(filter(None, map(_reason, said)), None)
    is_broken = reason == _NODE_FAILURE
    may_hang = not is_broken and bool(silenced_at_once(facts, facts.job.ended_by))
    yield RULE.finding(
        f"the job was ended: {_REASONS[reason] if reason else _by_signal(said)}",
        cause=(_REASONS[reason] if reason else _NO_REASON)
        + (". Nothing stands between NCCL's last line and the end: it may have hung" if may_hang else ""),
        impact="none on the paths; what was not saved is lost",
        fix=[
            "sacct -j <job> --format=JobID,State,ExitCode,Start,End,Timelimit,Reason   # what Slurm knows",
            "Look when the job last made a step: one that hangs runs into its time limit, too.",
            "scontrol show node <node>; dmesg -T | tail -100   # why did the node fail?"
            if is_broken
            else "sbatch --signal=B:USR1@300 --requeue …   # time to save a checkpoint, then go on in a new job",
        ],
        severity="error" if is_broken else "warning" if may_hang else None,
        confidence="possible" if may_hang else "certain",
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


def _reason(notice: Notice) -> str | None:
    """Why Slurm ended it."""
    given = str(value(notice, "reason") or "").lower()
    return next((reason for reason in _REASONS if reason in given), None)
