"""Ranks wait for each other in different process groups: the flight recorder shows the cycle."""

from nccl_inspect.artifacts.causes import CYCLE
from nccl_inspect.judging.engine import (
    Account,
    Facts,
    Finding,
    Results,
    Rule,
)
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.judging.retelling import STACK, retell
from nccl_inspect.util.wording import listed, ranks_word

RULE = Rule(
    name="groups-out-of-order",
    category="failures",
    tells=("groups-out-of-order",),
    title="Ranks wait for each other in different process groups",
)


def judge(facts: Facts) -> Results:
    """Judge calls in which ranks wait for each other in a cycle."""
    for standstill in flight_recorder.standstills(facts, CYCLE):
        ring = [part for part in standstill.culprits if part.call]
        ranks = flight_recorder.ranks_of(ring)
        waits = [
            f"rank {part.rank} waits for rank {after.rank} in {flight_recorder.operation(part.call.operation)} of "
            f"group {flight_recorder.label(facts, part)}"
            for part, after in zip(ring, [*ring[1:], *ring[:1]], strict=True)
            if part.call
        ]
        places = flight_recorder.places(ring)
        odd = set(standstill.odd)
        yield RULE.finding(
            f"ranks wait for each other: {listed(waits, limit=4)}",
            cause="each waits in a call that the other has not made yet: the order of the calls differs, or one rank "
            "skipped a call"
            + (
                f". {ranks_word(odd).capitalize()} makes them in another order than all other ranks, or leaves one out"
                if odd
                else ""
            )
            + (f". The calls: {places}" if places else ""),
            impact=flight_recorder.IMPACT,
            fix=[
                "Call the groups in the same order on all ranks; for send and receive, let even ranks send first and "
                "odd ranks receive first.",
                "torch.distributed.batch_isend_irecv([...])   # for sends and receives in any order",
            ],
            ranks=odd or ranks,
            hosts=hosts_with(facts.job, odd or ranks),
            evidence=flight_recorder.lines(facts, ring, 4),
            fatal=True,
        )


def tell(facts: Facts, account: Account) -> Finding:
    """Describe ranks that call their groups in another order than others."""
    return retell(
        RULE,
        account,
        "each waits in a call that the other has not made yet",
        STACK,
        "Call the groups in the same order on all ranks.",
    )
