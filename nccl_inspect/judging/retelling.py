"""Makes findings of the part of a story about ranks that hold others up."""

from __future__ import annotations

from nccl_inspect.judging.engine import Account, Finding, Rule

STACK = "py-spy dump --pid <pid>   # on {who}: where is it now?"
RECORD = "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1   # next time: the calls of all ranks"
_IMPACT = "ranks wait for each other; PyTorch's watchdog ends the job when the call times out"


def retell(rule: Rule, account: Account, cause: str, *fix: str, impact: str = _IMPACT) -> Finding:
    """Make a fatal finding of a rule.

    Args:
        rule: that tells it.
        account: whom it is about, and what happened to them.
        cause: why, without a stop.
        fix: the steps; ``{who}`` stands for the ranks.
        impact: what it costs.
    """
    return rule.finding(
        account.sentence,
        cause=f"{cause}. {account.effects}" if account.effects else cause,
        impact=impact,
        fix=[step.replace("{who}", account.who or "every rank") for step in fix],
        confidence=account.confidence,
        ranks=account.ranks,
        hosts=account.hosts,
        evidence=account.evidence,
        fatal=True,
    )
