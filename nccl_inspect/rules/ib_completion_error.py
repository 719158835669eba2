"""A NIC or its peer rejected a transfer: the statuses of InfiniBand verbs that have no rule of their own."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import listed

_OF_OTHER_RULES = (4, 5, 12)
_NAMELESS = "nccl/ib-cqe-error"
"""What NCCL 2.29.7 and later print before the line with the status."""
_NAMES: dict[object, str] = {
    1: "local length error",
    2: "local queue pair error",
    7: "bad response",
    8: "local access error",
    9: "remote invalid request",
    10: "remote access error",
    11: "remote operation error",
    13: "receiver not ready",
    19: "fatal error",
    20: "response timeout",
    21: "general error",
}
"""By ``ibv_wc_status``; NCCL's connections cannot end with the others."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find completions with a status of their own; flushed ones (5) are echoes."""
    completions = facts.with_role("completion-error") or facts.notices(_NAMELESS)
    failed = [notice for notice in completions if value(notice, "status") not in _OF_OTHER_RULES]
    statuses = [status for status in dict.fromkeys(value(notice, "status") for notice in failed) if status is not None]
    if failed:
        words = [f"{_NAMES[one]} (status {one})" if one in _NAMES else f"status {one}" for one in statuses]
        yield Hit(failed, named={"statuses": listed(words)})
