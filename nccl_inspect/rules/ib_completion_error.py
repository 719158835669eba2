"""A NIC or its peer rejected a transfer: the statuses of InfiniBand verbs that have no rule of their own."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule, value
from nccl_inspect.util.wording import count, listed

RULE = Rule(
    name="ib-completion-error",
    category="network",
    layer=Layer.LOSS,
    title="A NIC rejected a transfer (status 1, 2, 9, 10, 11, 13 and others)",
    shows=("death", "lost-transfer"),
)
_PEER_GONE = "the peer's process died or freed the memory during a transfer"
_OF_OTHER_RULES = (4, 5, 12)
_NAMELESS = "nccl/ib-cqe-error"
"""What NCCL 2.29.7 and later print before the line with the status."""
_UNKNOWN = ("", "unknown from this log; likely: the peer's process, its NIC or this one failed")
_STATUSES: dict[object, tuple[str, str]] = {
    1: ("local length error", "the message does not fit the buffer: ranks send different sizes, or there is a bug"),
    2: ("local queue pair error", "the card or its driver rejects the request"),
    7: ("bad response", "the peer's card sent an unexpected response: card, driver or a damaged packet"),
    8: ("local access error", "the memory is not registered for this access, or GPU memory that the NIC cannot reach"),
    9: ("remote invalid request", f"the peer does not accept the request: ranks send different sizes, or {_PEER_GONE}"),
    10: ("remote access error", f"{_PEER_GONE}; or its NIC cannot access its GPU's memory (ACS, IOMMU)"),
    11: ("remote operation error", "the peer's card failed: see its own log, or dmesg on its host"),
    13: (
        "receiver not ready",
        "the peer had not posted a receive, and the card gave up. NCCL sets unlimited retries, so "
        "a slow peer alone does not cause this: the peer died, or the card or driver ignores the setting",
    ),
    19: ("fatal error", "the card or its driver failed"),
    20: ("response timeout", "the peer's card did not respond: it or its host failed"),
    21: ("general error", "the card or its driver failed"),
}
"""By ``ibv_wc_status``: its name and its cause; NCCL's connections cannot end with the others."""


def judge(facts: Facts) -> Results:
    """Judge completions with a status of their own; flushed ones (5) are echoes."""
    completions = facts.with_role("completion-error") or facts.notices(_NAMELESS)
    failed = [notice for notice in completions if value(notice, "status") not in _OF_OTHER_RULES]
    if not failed:
        return
    statuses = list(dict.fromkeys(value(notice, "status") for notice in failed))
    yield RULE.finding(
        f"{count(len(failed), 'transfer')} failed: " + listed(map(_in_words, statuses)),
        cause=_STATUSES.get(statuses[0], _UNKNOWN)[1],
        impact="the communicator is lost, and with it the job",
        fix=[
            "Check the peer first: its log, its pod, dmesg on its host.",
            "ibstat; perfquery -x; rdma statistic   # ports and cables of both ends",
            "NCCL_NET_GDR_LEVEL=LOC   # a test without GPUDirect, slower: if it works, GPU memory is the problem",
            "NCCL_DEBUG_SUBSYS=INIT,NET,COLL   # on all ranks: do they call the same collective with the same size?",
        ],
        confidence="likely",
        notices=failed,
        fatal=True,
    )


def _in_words(status: object) -> str:
    if status is None:
        return "the line with the status is missing"
    return f"{_STATUSES[status][0]} (status {status})" if status in _STATUSES else f"status {status}"
