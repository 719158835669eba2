"""Errors of InfiniBand verbs: what they name, and whether they are echoes of others."""

from __future__ import annotations

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.line_order import precedes
from nccl_inspect.model.job import Notice

AT_START = ("open_device", "query_device", "query_port")
"""Calls that NCCL makes while it looks for cards; it continues without those that refuse."""
REFUSED = ("No such device", "Operation not permitted")
UNANSWERED = 12
OTHER_ROOTS = (9, 10, 11, 13)
"""Statuses of a NIC that refused; its connection is then dead, and the other end may report status 12."""


def after_another(facts: Facts) -> list[Notice]:
    """Transfers without an answer after a peer was gone or a NIC refused a transfer: echoes of that."""
    before = [*facts.notices("nccl/socket-closed-by-peer"), *facts.completions(*OTHER_ROOTS)]
    return [late for late in facts.completions(UNANSWERED) if any(precedes(notice, late) for notice in before)]
