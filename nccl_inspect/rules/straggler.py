"""A rank repeatedly arrives last at the collectives of its group, according to PyTorch's flight recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nccl_inspect.judging.evidence import flight_recorder
from nccl_inspect.judging.facts import hosts_with
from nccl_inspect.util.wording import does, ranks_word

if TYPE_CHECKING:
    from nccl_inspect.artifacts.stragglers import Straggler, Timed
from nccl_inspect.judging.engine import Evidence, Facts, Results, Rule

RULE = Rule(
    name="straggler",
    category="topology",
    severity="warning",
    title="A rank repeatedly arrives last at the collectives of its group",
    shows=("slow-rank",),
    local=True,
)
_MOST = 3
"""Ranks that are reported; if there are more, the time is lost elsewhere."""


def judge(facts: Facts) -> Results:
    """Judge how long the calls took on each rank, if PyTorch measured it."""
    dumps = flight_recorder.dumps_of(facts)
    if len(dumps) < 2:
        return
    from nccl_inspect.artifacts import stragglers  # most logs have no dumps

    for straggler in stragglers.of(dumps)[:_MOST]:
        others = set(straggler.group.ranks) - {straggler.rank}
        who = f"the other {len(others)} ranks" if len(others) > 1 else ranks_word(others)
        yield RULE.clue(
            f"rank {straggler.rank} arrives last at {straggler.late} of {straggler.compared} collectives of group "
            f"{straggler.group.label}: {who} {does(len(others), 'wait')} {straggler.share:.0%} of the time",
            cause=f"from one of these calls to the next it waits {straggler.gap_ms:.0f} ms less than all others, in "
            "calls of all groups together, so the cause is on that rank: a slower GPU, more work, or time on the CPU "
            "(data loading, checkpoints, logging)",
            impact=f"all ranks of the group run at the pace of rank {straggler.rank}",
            fix=[
                "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE   # on its host and on another one: is the GPU "
                "throttled?",
                "py-spy dump --pid <pid>   # several times: is it on the CPU while the others wait?",
                "Start the job without this host, or with the hosts in another order.",
            ],
            confirm="Swap its host with another one. If the delay follows the host, its GPU is slow; if it follows the "
            "rank, it has more work.",
            ranks={straggler.rank},
            hosts=hosts_with(facts.job, {straggler.rank}),
            evidence=[_line(straggler, timed) for timed in straggler.calls],
        )


def _line(straggler: Straggler, timed: Timed) -> Evidence:
    text = f"rank {timed.rank}: work {timed.seq} of group {straggler.group.label} took {timed.milliseconds:.1f} ms"
    return Evidence(timed.dump, timed.order, text)
