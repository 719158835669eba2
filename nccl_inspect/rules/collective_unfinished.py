"""All ranks made a call that did not complete on all of them: the flight recorder rules out the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nccl_inspect.artifacts.causes import PARTLY, UNFINISHED
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.util.wording import ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.standstill import Standstill
from nccl_inspect.judging.engine import (
    Account,
    Facts,
    Finding,
    Needs,
    Results,
    Rule,
)
from nccl_inspect.judging.retelling import RECORD, STACK, retell

RULE = Rule(
    name="collective-unfinished",
    category="failures",
    tells=("call-unfinished",),
    title="All ranks made a call, and it did not complete",
)


def judge(facts: Facts) -> Results:
    """Judge calls that all ranks made alike: the device, the network or earlier work blocks them."""
    if flight_recorder.is_running(facts):
        yield RULE.undecided(
            "the flight recorder's dumps were written within seconds of a call, while the job was running; they "
            "do not show which ranks hang",
            Needs(others=("dumps of all ranks written while the job hangs; PyTorch writes them after a time limit",)),
        )
    for standstill in flight_recorder.standstills(facts, PARTLY, UNFINISHED):
        stuck = flight_recorder.ranks_of(standstill.culprits)
        call = flight_recorder.work(standstill.culprits[0].call, standstill.group, standstill.seq)
        partly = standstill.kind == PARTLY
        is_pair = bool(standstill.culprits[0].call and standstill.culprits[0].call.is_p2p)
        yield RULE.finding(
            f"{ranks_word(stuck)} {'is' if len(stuck) == 1 else 'are'} stuck in {call}, which " + _others(standstill),
            cause=f"{'both sides' if is_pair else 'all ranks'} made the same call, so the program is consistent; "
            "likely: "
            + (
                "the GPU or the network of these ranks, or work that they queued before the call"
                if partly
                else "the network between them, a GPU that hangs, or work that one rank queued before the call"
            ),
            impact=flight_recorder.IMPACT,
            fix=[
                "dmesg -T | grep -iE 'xid|mlx5|nvlink'; nvidia-smi -q   # on the hosts of these ranks",
                "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET   # what the transports report; ncclras -v on a stuck node",
                "Look for work queued before the call on the same stream, such as a kernel that does not end.",
            ],
            confidence="likely",
            ranks=stuck,
            hosts=hosts_with(facts.job, stuck),
            evidence=[
                *flight_recorder.lines(facts, standstill.culprits, 3),
                *flight_recorder.lines(facts, standstill.waiting, 2),
            ],
            fatal=True,
        )


def tell(facts: Facts, account: Account) -> Finding:
    """Describe ranks that wait for each other in a call that all made."""
    return retell(
        RULE,
        account,
        "one of them made another call, or its GPU or network is stuck; the log does not show which",
        STACK,
        "dmesg -T | grep -iE 'xid|mlx5|nvlink'; nvidia-smi -q   # on the hosts of these ranks",
        RECORD,
    )


def _others(standstill: Standstill) -> str:
    """Return what the other ranks did; all ranks whose call is still open are culprits."""
    call = standstill.culprits[0].call
    if call and call.is_p2p:
        finished = flight_recorder.ranks_of(standstill.waiting)
        return f"{ranks_word(finished)} finished" if finished else "both sides called"
    return "the other ranks finished" if standstill.kind == PARTLY else "all ranks of the group called"
