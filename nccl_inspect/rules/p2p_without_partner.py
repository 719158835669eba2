"""A rank waits in a send or receive that its peer does not match: the flight recorder shows both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nccl_inspect.artifacts.causes import NO_PARTNER
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.util.wording import does, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.standstill import Standstill
from nccl_inspect.judging.engine import (
    Account,
    Facts,
    Finding,
    Results,
    Rule,
)
from nccl_inspect.judging.retelling import STACK, retell

RULE = Rule(
    name="p2p-without-partner",
    category="failures",
    tells=("no-partner",),
    title="A send or receive has no partner",
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge sends and receives that are pending on one side only."""
    for still in flight_recorder.standstills(facts, NO_PARTNER):
        waiting = flight_recorder.ranks_of(still.waiting)
        missing = flight_recorder.ranks_of(still.culprits) | set(still.silent)
        yield RULE.finding(
            f"{ranks_word(waiting)} {does(len(waiting), 'wait')} in {still.operation} of group {still.group.label}, "
            f"but {ranks_word(missing)} {'does' if len(missing) == 1 else 'do'} not take part",
            cause=_cause(still),
            impact=flight_recorder.IMPACT,
            fix=[
                "py-spy dump --pid <pid>   # where is the peer now?",
                "Compare the number of sends and receives of both ranks. Look for an uneven number of microbatches, a "
                "wrong peer or a skipped stage.",
            ],
            confidence=flight_recorder.confidence(still),
            ranks=missing,
            hosts=hosts_with(facts.job, missing),
            evidence=[
                *flight_recorder.lines(facts, still.waiting, 2),
                *flight_recorder.lines(facts, still.culprits, 2),
            ],
            fatal=True,
        )


def tell(facts: Facts, account: Account) -> Finding:
    """Describe ranks that did not make the other end of a send or receive."""
    return retell(
        RULE,
        account,
        "no pending call of the other side matches it",
        STACK,
        "Compare the sends and receives of both ranks: uneven microbatches, a wrong peer, a skipped stage.",
    )


def _cause(still: Standstill) -> str:
    place, last = flight_recorder.places(still.waiting), flight_recorder.places(still.culprits)
    unknown = flight_recorder.not_known(still)
    return (
        _partner(still)
        + (f"; called at {place}" if place else "")
        + (f". Last call of the other side: {last}" if last else "")
        + (f". {unknown}" if unknown else "")
    )


def _partner(still: Standstill) -> str:
    """Return what the other side did, counted where its dump has all its calls."""
    call = still.waiting[0].call
    if still.made is None or call is None or not call.nth:
        return "no pending call of the other side matches it"
    return (
        f"it is call number {call.nth} of {ranks_word(flight_recorder.ranks_of(still.waiting))} in this direction, but "
        f"{ranks_word(flight_recorder.ranks_of(still.culprits) or still.silent)} made {still.made or 'none'}"
    )
