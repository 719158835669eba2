"""A NIC or its peer rejected a transfer: the statuses of InfiniBand verbs that have no rule of their own."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, value
from nccl_inspect.judging.page_words import Hit


def find(facts: Facts) -> Iterator[Hit]:
    """Find completions by status, or the line that NCCL 2.29.7 and later print before that with the status."""
    completions = facts.with_role("completion-error") or facts.notices("nccl/ib-cqe-error")
    if failed := [notice for notice in completions if value(notice, "status") not in (4, 5, 12)]:
        yield Hit(failed)
