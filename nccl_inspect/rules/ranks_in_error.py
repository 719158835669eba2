"""NCCL's RAS shows ranks of a communicator that report an error, or that left it while others are still in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.evidence.ras import answers, finding_or_clue, ranks_by_pid
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.util.wording import count, does, listed, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Answer, State
from nccl_inspect.judging.engine import Evidence, Facts, Finding, Results, Rule

RULE = Rule(
    name="ranks-in-error",
    category="failures",
    tells=("left-communicator",),
    title="RAS shows ranks of a communicator that failed, or that left it while others are still in it",
    local=True,
)
_REMOTE = "Remote process error"
"""Reported by a rank that lost its peer."""
_LEFT = ("NOCOMM", "FINALIZE")
_WORDS = {
    "NOCOMM": "no longer in it (ncclCommDestroy, ncclCommAbort)",
    "FINALIZE": "in ncclCommFinalize or ncclCommDestroy",
    "ABORT": "aborted (ncclCommAbort)",
    "INIT": "still initializing",
    "RUNNING": "in use",
}
_REFUSED = "NCCL refuses all further calls in this communicator; other ranks wait for these until a timeout"
_ASK = "ncclras -v > ras.txt   # run it again to see whether other ranks follow"
_CHECK = "Look at the output of {who} first, and at what it printed before the error."


def judge(facts: Facts) -> Results:
    """Judge the errors that ranks report, then their different states, in the newest answer with either."""
    for answer in reversed(answers(facts)):
        if answer.errors:
            yield _reported_errors(facts, answer)
            return
    for answer in reversed(answers(facts)):
        states = [state for state in answer.states if state.what in _WORDS]
        first = [state for state in states if state.comm_id == states[0].comm_id]
        odd = [state for state in first if state.what in _LEFT] or [state for state in first if state.what == "INIT"]
        if odd and len(first) > 1:  # a rank that aborted it had waited for others before
            yield _different_states(facts, answer, first, odd)
            return


def _reported_errors(facts: Facts, answer: Answer) -> Finding:
    """Ranks that report errors, first those that do not blame a peer."""
    own = [state for state in answer.errors if state.what != _REMOTE]
    blamed = _ranks(facts, own)
    shown = own or answer.errors
    summary = f"RAS: {'; '.join(_reported(facts, state) for state in shown[:3])} in communicator {shown[0].comm_id}"
    remote = [state for state in answer.errors if state.what == _REMOTE]
    evidence = [_line(facts, answer, state) for state in [*own, *remote][:4]]
    if not blamed:
        return RULE.clue(
            summary,
            cause="these ranks lost the connection to a peer; this answer does not show what failed there first",
            impact=_REFUSED,
            fix=[_CHECK.format(who="the ranks that are not named here"), _ASK],
            confirm="Check the output of the other ranks: did one of them fail or end?",
            confidence="possible",
            evidence=evidence,
        )
    who, its = ranks_word(blamed), "its" if len(blamed) == 1 else "their"
    return RULE.finding(
        summary,
        cause=f"{who} failed on {its} own: peers that lose a rank report '{_REMOTE}'",
        impact=_REFUSED,
        fix=[_CHECK.format(who=who), _ASK],
        confidence="certain",
        ranks=blamed,
        hosts=hosts_with(facts.job, blamed),
        evidence=evidence,
        fatal=True,
    )


def _different_states(facts: Facts, answer: Answer, states: Sequence[State], odd: Sequence[State]) -> Finding:
    """Ranks that left a communicator, or are late to join it, while others are in it."""
    behind = _ranks(facts, odd)
    who = ranks_word(behind) if behind else "these ranks"
    summary = f"RAS: {'; '.join(_described(facts, state) for state in states[:4])} (communicator {states[0].comm_id})"
    cause = f"{who} no longer {does(len(behind), 'take')} part in it, or not yet, and the others wait"
    evidence = [_line(facts, answer, state) for state in states]
    fix = [_CHECK.format(who=who), "py-spy dump --pid <pid>"]
    return finding_or_clue(
        facts,
        RULE,
        summary,
        cause=cause,
        fix=fix,
        confirm="Ask RAS again after 10 s: at the end of a job, ranks leave a communicator at different times.",
        ranks=behind,
        evidence=evidence,
    )


def _ranks(facts: Facts, states: Iterable[State]) -> set[int]:
    """The ranks of the job; those of the communicator if the process is not in the log."""
    ranks = ranks_by_pid(facts)
    return {ranks.get(member.pid or -1, member.rank) for state in states for member in state.members}


def _who(facts: Facts, state: State) -> str:
    """The ranks of a state; their number if the answer does not list them."""
    return ranks_word(_ranks(facts, [state])) if state.members else count(state.count, "rank")


def _reported(facts: Facts, state: State) -> str:
    reports = "reports" if state.count == 1 else "report"
    return f"{_who(facts, state)} {reports} '{state.what}'{' during initialization' * (state.stage[:4] == 'Init')}"


def _described(facts: Facts, state: State) -> str:
    return f"{_who(facts, state)} {'is' if state.count == 1 else 'are'} {_WORDS[state.what]}"


def _line(facts: Facts, answer: Answer, state: State) -> Evidence:
    where = listed([f"pid {member.pid} on {member.host}" for member in state.members if member.pid], limit=2)
    stage = f"{state.stage.lower()} error: " if state.stage else ""
    text = f"communicator {state.comm_id}: {_who(facts, state)}: {stage}{state.what}{f' ({where})' if where else ''}"
    return Evidence(answer.name, state.line, text)
