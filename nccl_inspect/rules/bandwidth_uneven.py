"""Bandwidth that falls or jumps from one message size to the next."""

from nccl_inspect.bandwidth import measure, words
from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.model.measured import Measured

RULE = Rule(
    name="bandwidth-uneven",
    category="topology",
    severity="warning",
    title="Bandwidth falls or jumps from one message size to the next",
    shows=("slow",),
)


def judge(facts: Facts) -> Results:
    """Judge sizes that are far behind smaller ones: a switch of protocol costs a little, and larger ones recover."""
    uneven = [entry for entry in measure(facts) if entry.dips]
    if not uneven:
        return
    worst = max(uneven, key=lambda entry: (entry.falls, len(entry.dips)))
    before = max((row for row in worst.sizes if row.size < worst.dips[0].size), key=lambda row: row.gbps)
    peak = f"{words.rate(before.gbps)} GB/s at {words.size(before.size)}"
    yield RULE.finding(
        f"{words.of_what(worst)}: bandwidth {_verb(worst)} with size: {peak}, but {words.dips(worst)}",
        cause=_cause(worst),
        impact="messages of these sizes take longer than smaller ones suggest; training steps vary as much",
        fix=[
            "ethtool -S <interface>; rdma statistic   # on each host, during the test: drops, pauses, retries?"
            if (worst.nodes or 2) > 1
            else "nvidia-smi -q -d PERFORMANCE,CLOCK   # during the test: low clocks? other programs?",
            "NCCL_DEBUG_SUBSYS=INIT,TUNING   # and again: do protocol or algorithm change at that size?",
            "all_reduce_perf -b 16M -e 8G -f 2 -n 100   # repeat: is it the same size each time?",
        ],
        severity="warning" if worst.falls or len(worst.dips) > 1 else "info",
        confidence="likely",
        ranks=facts.job.ranks_seen,
        hosts=worst.hosts or facts.hosts(),
        evidence=[before.line, *(dip.line for dip in worst.dips)],
    )


def _verb(entry: Measured) -> str:
    return "falls" if entry.falls else "jumps" if len(entry.dips) > 1 else "dips"


def _cause(entry: Measured) -> str:
    if entry.falls:
        return (
            "unknown from this log: small messages are faster, so that the links are there. Likely: congestion or lost "
            "packets once buffers are full (no lossless Ethernet, several nodes behind one port), throttled GPUs, or "
            "memory that is paged"
        )
    if len(entry.dips) == 1:
        return "likely a switch of protocol or algorithm at that size that the tuning of NCCL misjudges here"
    return (
        "unknown from this log; likely other traffic or other programs on the same links, hosts or GPUs during the test"
    )
