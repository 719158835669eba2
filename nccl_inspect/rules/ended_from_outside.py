"""The scheduler, the launcher or a user ended the job."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from operator import attrgetter

from nccl_inspect.judging import at_end, exceptions
from nccl_inspect.judging.check import Effects, Facts, Hit, Notice, value
from nccl_inspect.judging.ends import is_last, since_start, terminations
from nccl_inspect.judging.statements import EXTERNAL, is_forced, is_propagated_error, message_of, report_of
from nccl_inspect.model.statements import job_failure
from nccl_inspect.util import signals
from nccl_inspect.util.wording import expand

_OF_NOBODY, _NODE_FAILURE = "torch/python-interrupted", "launchers/slurm-node-failure"


def find(facts: Facts) -> Iterator[Hit | Effects]:
    """Find reports of an external end; the story decides whether an earlier failure is the reason."""
    stopped = terminations(facts)
    forced = {id(notice): notice for notice in facts.errors() if is_forced(notice)}
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
    later = [failure for failure in failed if failure.place >= begin or id(failure) in echoes]
    effects = [
        failure
        for failure in later
        if is_propagated_error(failure)
        or (report_of(failure).process == "loader" and report_of(failure).code in EXTERNAL)  # they end with it
    ]
    interrupted = {value(notice, "global_rank") for notice in notices if notice.production == "torch/rank-interrupted"}
    is_some = all("ends-one" in notice.roles for notice in notices)  # no launcher reports that it ended them all
    reason = next(filter(None, (job_failure.reason(notice.event) for notice in notices)), None)
    is_of_nobody = any(notice.production == _OF_NOBODY for notice in notices)
    known = {
        "killed": reason is None and report_of(notices[0]).signal == signal.SIGKILL.name,
        "silence": reason != job_failure.NODE_FAILURE and bool(at_end.ends_after_nccl(facts, facts.job.ended_by)),
        "some": is_some and not interrupted.issuperset(facts.job.ranks_seen),
        "slurm": any(notice.production.startswith("launchers/slurm-") for notice in notices),
    }
    is_doubtful = known["killed"] or known["silence"] or (known["some"] and not is_of_nobody)
    known |= {
        "doubtful": is_doubtful,
        "unsure": is_doubtful or known["some"],
        "time limit": reason == job_failure.TIME_LIMIT,
        "preempt": reason == job_failure.PREEMPTED,
        "requeue": reason == job_failure.REQUEUED,
        "node failure": reason == job_failure.NODE_FAILURE,
    }
    nodes = {name for notice in facts.notices(_NODE_FAILURE) for name in expand(str(value(notice, "nodes")))}
    yield Hit(
        notices,
        named={"reason": reason or "", "signal": _signal_words(notices), "nodes": nodes},
        hosts=sorted(nodes) or None,
        known=[name for name, holds in known.items() if holds],
        explains=effects,
    )


def _ends_with_interrupt(facts: Facts, interrupts: list[Notice]) -> bool:
    """Return whether the output ends with a KeyboardInterrupt of an unknown process, else it may be any helper's."""
    lines = [line for interrupt in interrupts for line in interrupt.evidence]
    lines += [end for end in facts.job.ended_by if lines and end.text.endswith("KeyboardInterrupt")]
    return not facts.is_over() and any(is_last(facts, line) for line in lines)


def _signal_words(notices: list[Notice]) -> str:
    """Return the signal if the launcher names it, else its message."""
    stated = (
        report_of(notice).signal or value(notice, "signal") or value(notice, "signal_number") for notice in notices
    )
    given = next(filter(None, stated), None) or next(
        filter(None, (value(notice, "exitcode") for notice in notices)), ""
    )
    if not given and message_of(notices[0]).endswith("KeyboardInterrupt"):
        given = signal.SIGINT.name
    number = signals.number(str(given))
    name = given if number is None else signals.name(abs(signals.exit_code(number)))
    return f"{name} from outside" if name else message_of(notices[0])
