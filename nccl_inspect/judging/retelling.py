"""Makes findings of the part of a story about ranks that hold others up."""

from __future__ import annotations

from nccl_inspect.judging.engine import Finding, Rule, Told

STACK = "py-spy dump --pid <pid>   # on {who}: where is it now?"
RECORD = "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # next time: the calls of all ranks"
_IMPACT = "ranks wait for each other; PyTorch's watchdog ends the job when the call times out"


def retell(rule: Rule, told: Told, cause: str, *fix: str, impact: str = _IMPACT) -> Finding:
    """Make a fatal finding of a rule.

    Args:
        rule: that tells it.
        told: whom it is about, and what happened to them.
        cause: why, without a stop.
        fix: the steps; ``{who}`` stands for the ranks.
        impact: what it costs.
    """
    return rule.finding(
        told.sentence,
        cause=f"{cause}. {told.effects}" if told.effects else cause,
        impact=impact,
        fix=[step.replace("{who}", told.who or "every rank") for step in fix],
        confidence=told.confidence,
        ranks=told.ranks,
        hosts=told.hosts,
        evidence=told.evidence,
        fatal=True,
    )
