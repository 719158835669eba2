"""A rank comes last to the collectives of its group again and again: PyTorch's flight recorder shows how long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import Facts, hosts_with
from nccl_inspect.model.evidence import Evidence
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.util.wording import does, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.stragglers import Straggler, Timed

RULE = Rule(
    name="straggler",
    category="topology",
    severity="warning",
    title="A rank comes last to the collectives of its group again and again",
    local=True,
)
_MOST = 3
"""Ranks that are told; where there are more, the time is lost elsewhere."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge how long the calls took on each rank, where PyTorch measured it."""
    dumps = flight_recorder.dumps_of(facts)
    if len(dumps) < 2:
        return
    from nccl_inspect.artifacts import stragglers  # most logs come alone

    for straggler in stragglers.of(dumps)[:_MOST]:
        others = set(straggler.group.ranks) - {straggler.rank}
        who = f"the other {len(others)} ranks" if len(others) > 1 else ranks_word(others)
        yield RULE.clue(
            f"rank {straggler.rank} comes last to {straggler.late} of {straggler.compared} collectives of group "
            f"{straggler.group.label}: {who} {does(len(others), 'wait')} {straggler.share:.0%} of the time",
            cause=f"the calls are short on this rank and {straggler.gap_ms:.0f} ms longer on all others: it is late, "
            "by a slower GPU, more work than the others have, or time on the CPU (data loading, checkpoints, logging)",
            impact=f"all ranks of the group go at the pace of rank {straggler.rank}",
            fix=[
                "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE   # on its host and on another one: is the GPU held "
                "down?",
                "py-spy dump --pid <pid>   # several times: is it on the CPU while the others wait?",
                "Start the job with this host left out, or with the hosts in another order.",
            ],
            confirm="Exchange its host with another one: does the host or the rank stay behind? The host: a slow GPU. "
            "The rank: its work.",
            confidence="likely",
            ranks={straggler.rank},
            hosts=hosts_with(facts.job, {straggler.rank}),
            evidence=[_line(straggler, timed) for timed in straggler.calls],
        )


def _line(straggler: Straggler, timed: Timed) -> Evidence:
    text = f"rank {timed.rank}: work {timed.seq} of group {straggler.group.label} took {timed.milliseconds:.1f} ms"
    return Evidence(timed.dump, timed.order, text)
