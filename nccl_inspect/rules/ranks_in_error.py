"""NCCL's RAS shows ranks of a communicator that report an error, or that left it while others are still in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nccl_inspect.judging.check import Evidence, Facts, Hit
from nccl_inspect.judging.evidence.ras import answers, make_hit, ranks_by_pid
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.util.wording import count, list_words, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.ras import Answer, State

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


def find(facts: Facts) -> Iterator[Hit]:
    """Find the errors that ranks report, first those that do not blame a peer, else their different states."""
    if answer := next((answer for answer in reversed(answers(facts)) if answer.errors), None):
        own = [state for state in answer.errors if state.what != _REMOTE]
        remote = [state for state in answer.errors if state.what == _REMOTE]
        blamed, shown = _ranks(facts, own), own or answer.errors
        yield Hit(
            named={
                "errors": "; ".join(_report_words(facts, state) for state in shown[:3]),
                "comm": shown[0].comm_id,
                "blamed": blamed,
                "one": len(blamed) == 1,
            },
            known=() if blamed else ("nobody",),
            ranks=blamed or None,
            hosts=hosts_with(facts.job, blamed) if blamed else None,
            evidence=[_line(facts, answer, state) for state in [*own, *remote][:4]],
        )
        return
    for answer in reversed(answers(facts)):
        states = [state for state in answer.states if state.what in _WORDS]
        first = [state for state in states if state.comm_id == states[0].comm_id]
        odd = [state for state in first if state.what in _LEFT] or [state for state in first if state.what == "INIT"]
        if odd and len(first) > 1:  # a rank that aborted it had waited for others before
            is_are = (("is" if state.count == 1 else "are", state) for state in first[:4])
            shown_states = "; ".join(f"{_who(facts, state)} {be} {_WORDS[state.what]}" for be, state in is_are)
            behind = _ranks(facts, odd)
            named = {"states": shown_states, "comm": first[0].comm_id, "behind": behind}
            yield make_hit(facts, named, behind, [_line(facts, answer, state) for state in first])
            return


def _ranks(facts: Facts, states: Iterable[State]) -> set[int]:
    """Return the ranks of the job; those of the communicator if the process is not in the log."""
    ranks = ranks_by_pid(facts)
    return {ranks.get(member.pid or -1, member.rank) for state in states for member in state.members}


def _who(facts: Facts, state: State) -> str:
    return ranks_word(_ranks(facts, [state])) if state.members else count(state.count, "rank")


def _report_words(facts: Facts, state: State) -> str:
    reports = "reports" if state.count == 1 else "report"
    return f"{_who(facts, state)} {reports} '{state.what}'{' during initialization' * (state.stage[:4] == 'Init')}"


def _line(facts: Facts, answer: Answer, state: State) -> Evidence:
    where = list_words([f"pid {member.pid} on {member.host}" for member in state.members if member.pid], limit=2)
    stage = f"{state.stage.lower()} error: " if state.stage else ""
    text = f"communicator {state.comm_id}: {_who(facts, state)}: {stage}{state.what}{f' ({where})' if where else ''}"
    return Evidence(answer.name, state.line, text)
