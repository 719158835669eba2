"""Whether errors that name what failed are the end of the job."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.judging.exceptions import came_up_below
from nccl_inspect.judging.facts import Facts, first_of_each
from nccl_inspect.model.job import Notice


def is_fatal(facts: Facts, notices: Iterable[Notice], deadly: bool = False) -> bool:
    """Return whether a call of NCCL failed, peers were lost after it, or no connection came up despite it.

    Args:
        deadly: no job survives it, even with its communicators up.
    """
    if facts.job.failed:
        return True
    if facts.is_over():
        return False
    notices = list(notices)
    first = first_of_each(notice.evidence[0] for notice in notices)
    # A communicator does not survive the loss of a rank.
    losses = (loss.evidence[0] for loss in facts.notices("nccl/socket-closed-by-peer"))
    if deadly or any(line.order > first.get(line.source, line.order) for line in losses):
        return True
    return not facts.job.paths and not all(came_up_below(facts, notice) for notice in notices)
