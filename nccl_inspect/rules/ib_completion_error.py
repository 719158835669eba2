"""A NIC refused a transfer, or the peer's NIC did: the statuses of InfiniBand verbs that no other rule is about."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import value
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="ib-completion-error",
    category="network",
    severity="error",
    title="A NIC refused a transfer (status 1, 2, 9, 10, 11, 13 and others)",
    echoes=("collective-unfinished", "nic-failed"),
)
_PEER_GONE = "the peer's process died or let go of the memory while a transfer was under way"
_STATUSES = {
    1: ("local length error", "the message does not fit the buffer: ranks differ in what they send, or a defect"),
    2: ("local queue pair error", "the card or its driver refuses the request"),
    7: ("bad response", "the peer's card answered what it should not: card, driver or a damaged packet"),
    8: ("local access error", "the memory is not registered for this access, or GPU memory that the NIC cannot reach"),
    9: ("remote invalid request", f"the peer takes no such request: ranks differ in what they send, or {_PEER_GONE}"),
    10: ("remote access error", f"{_PEER_GONE}; or its NIC may not reach its GPU's memory (ACS, IOMMU)"),
    11: ("remote operation error", "the peer's card failed: its own log, or dmesg on its host, tells more"),
    13: (
        "receiver not ready",
        "the peer had no receive posted, and the card gave up. NCCL lets it try for ever, so "
        "that a slow peer alone does not lead to this: the peer died, or card or driver does not keep to it",
    ),
    19: ("fatal error", "the card or its driver failed"),
    20: ("response timeout", "the peer's card did not answer: it or its host failed"),
    21: ("general error", "the card or its driver failed"),
}
"""By ``ibv_wc_status``: its name, and what leads to it."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge completions with a status of its own; flushed ones (5) are echoes."""
    failed = facts.completions(*_STATUSES)
    if not failed:
        return
    statuses = list(dict.fromkeys(value(notice, "status") for notice in failed))
    yield RULE.finding(
        f"{count(len(failed), 'transfer')} failed: "
        + listed(f"{_STATUSES[status][0]} (status {status})" for status in statuses),
        cause=_STATUSES[statuses[0]][1],
        impact="the communicator is lost, and with it the job",
        fix=[
            "Look at the peer first: its log, its pod, dmesg on its host.",
            "ibstat; perfquery -x; rdma statistic   # ports and cables of both ends",
            "NCCL_NET_GDR_LEVEL=LOC   # a test without GPUDirect, slower: if it runs, it is the memory of the GPU",
            "NCCL_DEBUG_SUBSYS=INIT,NET,COLL   # on all ranks: do they call the same collective with the same size?",
        ],
        confidence="likely",
        notices=failed,
        fatal=True,
    )
