"""Conditions that end a watch, and the command that then runs: a guard that stops a bad job early."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterable

from nccl_inspect.extras.live.watch import Behind, Change, End, News, Stall, Turn, Verdict
from nccl_inspect.judging.engine import SEVERITIES
from nccl_inspect.judging.places import Places
from nccl_inspect.model.finding import ACTIONS
from nccl_inspect.model.job import Job
from nccl_inspect.report.digest import reason
from nccl_inspect.util.records import Frozen, frozen
from nccl_inspect.util.text import escape_controls
from nccl_inspect.util.wording import count, ranges

STALL = "stall"
_ACTION = "action="
TO_ACT = tuple(f"{_ACTION}{name}" for name in ACTIONS[:-1])
"""Conditions for a finding that needs this action."""
CONDITIONS = ("error", "warning", STALL, *TO_ACT)
"""What a watch may end on: a finding of this severity or a higher one, or a communicator without progress."""
VARIABLES = ("VERDICT", "REASON", "RULE", "SEVERITY", "ACTION", "RANKS", "HOSTS", "FIX")
"""Variables in the environment of the command, without :data:`PREFIX`."""
PREFIX = "NCCLINSPECT_"
_MAX_BYTES = 100_000
"""Of a variable: with a longer one Linux runs no command (``MAX_ARG_STRLEN``)."""
_STDERR = 2


@frozen
class Alarm(Frozen):
    """Why a watch ends."""

    condition: str
    """One of :data:`CONDITIONS`."""
    verdict: str
    reason: str
    """In a sentence."""
    rule: str = ""
    """The rule that found it; empty for a stall, and for an error that no rule explains."""
    severity: str = ""
    action: str = ""
    ranks: str = ""
    hosts: str = ""
    fix: str = ""
    """What to do now."""

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables of the command; one that is too long is empty: a part of a list would look like all."""
        texts = {f"{PREFIX}{name}": escape_controls(getattr(self, name.lower())) for name in VARIABLES}
        return {name: text if len(text.encode()) <= _MAX_BYTES else "" for name, text in texts.items()}


def alarm(news: Iterable[News], conditions: Collection[str]) -> Alarm | None:
    """Return what of some news ends the watch, if anything does."""
    for event in news:
        if isinstance(event, Stall) and STALL in conditions:
            whom, number = event.missing or event.waiting, event.communicator.id
            what = "did not begin" if event.missing else "began and did not finish"
            where = "" if event.are_global else f" of communicator {number}"
            words = f"communicator {number} made no progress for {event.seconds:.0f} s"
            words += f": {count(len(whom), 'rank')}{where}, {ranges(whom)}, {what}"
            return Alarm(STALL, "unknown", words, ranks=ranges(whom) if event.are_global else "")
        if isinstance(event, Behind) and STALL in conditions:
            words = f"no operation was launched for {event.seconds:.0f} s: {'; '.join(event.late.words)}"
            return Alarm(STALL, "unknown", words, ranks=ranges(event.late.ranks))
        if (
            set(conditions) - {STALL}
            and isinstance(event, Verdict | Change | Turn | End)
            and (reason_to_end := _find_alarm(event.job, conditions))
        ):
            return reason_to_end
    return None


def _find_alarm(job: Job, conditions: Collection[str]) -> Alarm | None:
    limits = [SEVERITIES.index(name) for name in conditions if name in SEVERITIES]
    severe = ((f.severity, f) for f in job.findings if limits and SEVERITIES.index(f.severity) >= min(limits))
    needing = ((f"{_ACTION}{f.action}", f) for f in job.findings if f"{_ACTION}{f.action}" in conditions)
    for condition, finding in (*needing, *severe):
        places = Places(job)
        at = finding.hosts or dict.fromkeys(host for rank in finding.ranks if (host := places.locate(rank).host))
        return Alarm(
            condition,
            job.verdict,
            finding.summary,
            finding.rule,
            finding.severity,
            finding.action,
            ranks=ranges(finding.ranks),
            hosts=",".join(at),
            fix=next(iter(finding.fix), ""),
        )
    return Alarm("error", job.verdict, reason(job), severity="error") if limits and job.verdict == "failed" else None


def run(command: str, why: Alarm) -> int:
    """Run a command by the shell; what it prints goes to the standard error, and its exit status is the result.

    Nothing of the log is put into the command; it gets variables only.

    Raises:
        OSError: there is no shell, or no process can be started.
    """
    variables = {**os.environ, **why.environment}
    shell = ["/bin/sh", "-c", command]
    return subprocess.run(shell, env=variables, stdin=subprocess.DEVNULL, stdout=_STDERR, check=False).returncode  # noqa: S603
