"""NCCL's RAS shows ranks of a communicator that report an error, or that left it while others are in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence.ras import answers, judged, ranks_by_pid
from nccl_inspect.judging.facts import Facts, hosts_with
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.util.wording import count, does, listed, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Answer, State

RULE = Rule(
    name="ranks-in-error",
    category="failures",
    severity="error",
    title="RAS shows ranks of a communicator that failed, or that left it while others are in it",
    echoes=("ranks-out-of-step", "watchdog-*"),
    local=True,
)
_REMOTE = "Remote process error"
"""What a rank reports that lost its peer."""
_LEFT = ("NOCOMM", "FINALIZE")
_WORDS = {
    "NOCOMM": "no longer in it (ncclCommDestroy, ncclCommAbort)",
    "FINALIZE": "in ncclCommFinalize or ncclCommDestroy",
    "ABORT": "aborted (ncclCommAbort)",
    "INIT": "still in the initialization",
    "RUNNING": "in use",
}
_REFUSED = "NCCL refuses all further calls in this communicator; other ranks wait for these until a time limit"
_ASK = "ncclras -v > ras.txt   # again, to see whether others follow"
_CHECK = "Look at the output of {who} first: what it printed before that."


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what ranks report, and then how they differ, in the newest answer that has any of it."""
    for answer in reversed(answers(facts)):
        if answer.errors:
            yield _failed(facts, answer)
            return
    for answer in reversed(answers(facts)):
        states = [state for state in answer.states if state.what in _WORDS]
        first = [state for state in states if state.comm_id == states[0].comm_id]
        odd = [state for state in first if state.what in _LEFT] or [state for state in first if state.what == "INIT"]
        if odd and len(first) > 1:  # who aborted it had waited for others before
            yield _apart(facts, answer, first, odd)
            return


def _failed(facts: Facts, answer: Answer) -> Finding:
    """Ranks that report errors: those that blame no peer come first."""
    own = [state for state in answer.errors if state.what != _REMOTE]
    blamed = _ranks(facts, own)
    shown = own or answer.errors
    summary = f"RAS: {'; '.join(_reported(facts, state) for state in shown[:3])} in communicator {shown[0].comm_id}"
    evidence = [_line(facts, answer, state) for state in [*own, *(one for one in answer.errors if one not in own)][:4]]
    if not blamed:
        return RULE.clue(
            summary,
            cause="these ranks lost a peer: its connection broke, and what failed there first is not in this answer",
            impact=_REFUSED,
            fix=[_CHECK.format(who="the ranks that are not named here"), _ASK],
            confirm="The output of the other ranks: did one of them fail or end?",
            severity="warning",
            confidence="possible",
            evidence=evidence,
        )
    who = ranks_word(blamed)
    return RULE.finding(
        summary,
        cause=f"{who} failed by {'itself' if len(blamed) == 1 else 'themselves'}: peers that lose a rank report "
        f"'{_REMOTE}'",
        impact=_REFUSED,
        fix=[_CHECK.format(who=who), _ASK],
        confidence="certain",
        ranks=blamed,
        hosts=hosts_with(facts.job, blamed),
        evidence=evidence,
        fatal=True,
    )


def _apart(facts: Facts, answer: Answer, states: Sequence[State], odd: Sequence[State]) -> Finding:
    """Ranks that left a communicator, or began it later, while others are in it."""
    behind = _ranks(facts, odd)
    who = ranks_word(behind) if behind else "these ranks"
    summary = f"RAS: {'; '.join(_described(facts, state) for state in states[:4])} (communicator {states[0].comm_id})"
    cause = f"{who} {does(len(behind), 'take')} no part in it any more, or not yet, and the others wait"
    evidence = [_line(facts, answer, state) for state in states]
    fix = [_CHECK.format(who=who), "py-spy dump --pid <pid>"]
    return judged(
        facts,
        RULE,
        summary,
        cause=cause,
        fix=fix,
        confirm="Ask RAS again after 10 s: ranks that leave a communicator at the end of a job differ for a moment.",
        ranks=behind,
        evidence=evidence,
    )


def _ranks(facts: Facts, states: Iterable[State]) -> set[int]:
    """The ranks of the job; those of the communicator where the process is not in the log."""
    known = ranks_by_pid(facts)
    return {known.get(member.pid or -1, member.rank) for state in states for member in state.members}


def _who(facts: Facts, state: State) -> str:
    """The ranks of a state; their number where the answer does not list them."""
    return ranks_word(_ranks(facts, [state])) if state.members else count(state.count, "rank")


def _reported(facts: Facts, state: State) -> str:
    reports = "reports" if state.count == 1 else "report"
    return f"{_who(facts, state)} {reports} '{state.what}'{' in the initialization' * (state.stage[:4] == 'Init')}"


def _described(facts: Facts, state: State) -> str:
    return f"{_who(facts, state)} {'is' if state.count == 1 else 'are'} {_WORDS[state.what]}"


def _line(facts: Facts, answer: Answer, state: State) -> Evidence:
    where = listed([f"pid {member.pid} on {member.host}" for member in state.members if member.pid], limit=2)
    stage = f"{state.stage.lower()} error: " if state.stage else ""
    text = f"communicator {state.comm_id}: {_who(facts, state)}: {stage}{state.what}{f' ({where})' if where else ''}"
    return Evidence(answer.name, state.line, text)
