"""A rank did not make a call that the others are waiting in, according to PyTorch's flight recorder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nccl_inspect.artifacts.causes import MISSING
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
from nccl_inspect.judging.retelling import RECORD, STACK, retell

RULE = Rule(
    name="collective-not-called",
    category="failures",
    tells=("never-called",),
    title="A rank did not make a call that the others are waiting in",
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge the dumps of all ranks: which wait in a call, and which never made it and wait for nobody."""
    for standstill in flight_recorder.standstills(facts, MISSING):
        waiting = flight_recorder.ranks_of(standstill.waiting)
        call = flight_recorder.work(standstill.waiting[0].call, standstill.group, standstill.seq)
        absent = flight_recorder.ranks_of(standstill.culprits)
        missing = absent or set(standstill.unknown)
        yield RULE.finding(
            f"{ranks_word(absent)} never called {call}; {ranks_word(waiting)} {does(len(waiting), 'wait')} in it"
            if absent
            else f"{ranks_word(waiting)} {does(len(waiting), 'wait')} in {call} for {ranks_word(missing)}: "
            + (
                f"no dump of {'it' if len(missing) == 1 else 'them'}"
                if standstill.silent
                else "the dump does not show whether it made the call"
            ),
            cause=". ".join(
                filter(
                    None,
                    [
                        _cause(standstill),
                        flight_recorder.not_known(standstill),
                        flight_recorder.chain(facts, standstill),
                    ],
                )
            ),
            impact=flight_recorder.IMPACT,
            fix=list(_fixes(standstill)),
            confidence=flight_recorder.confidence(standstill),
            ranks=missing,
            hosts=hosts_with(facts.job, missing),
            evidence=[
                *flight_recorder.lines(facts, standstill.waiting, 2),
                *flight_recorder.lines(facts, standstill.culprits, 2),
            ],
            fatal=True,
        )


def tell(facts: Facts, account: Account) -> Finding:
    """Describe ranks that never made a call that others wait in."""
    return retell(
        RULE,
        account,
        "its process is busy or stuck elsewhere, took another branch, or ended",
        STACK,
        "Read the output of {who} before the others began to wait: a loop, I/O, a branch.",
        RECORD,
    )


def _cause(standstill: Standstill) -> str:
    """The last calls of the absent ranks."""
    sentences = []
    for part in standstill.culprits[:3]:
        if part.call is None:
            sentences.append(f"rank {part.rank} has made no call at all")
            continue
        place = f" from {part.call.frame}" if part.call.frame else ""
        sentences.append(
            f"the last call of rank {part.rank} was {flight_recorder.described(part.call)}{place}, which is complete"
        )
    text = "; ".join(sentences)
    if sentences:
        text += ": since then it has been busy or stuck outside NCCL, or took another branch"
    return text


def _fixes(standstill: Standstill) -> Iterator[str]:
    yield "py-spy dump --pid <pid>   # where is it now?"
    places = sorted({part.call.frame for part in standstill.culprits if part.call and part.call.frame})
    if places:
        yield f"Check the code after {places[0]}: a branch that only some ranks take, a loop, I/O, an exception."
    yield from flight_recorder.fixes_of_dumps(standstill)
