"""What single statements are: errors, or what only passes an error on."""

from __future__ import annotations

import re
from typing import Any

from nccl_inspect import event_types as events
from nccl_inspect.model import endings
from nccl_inspect.model.job import Notice

_RETOLD = (
    *("nccl-error", "nccl-unhandled-cuda-error", "nccl-system-error", "nccl-internal-error", "nccl-invalid-usage"),
    *("work-status", "work-status-2-6", "watchdog-terminated", "watchdog-terminated-unknown", "desync-not-finished"),
    *("async-error", "async-error-2-4", "rank-traceback", "worker-failed", "failure-exitcode", "failure-signal"),
    *("mpi-exit-code", "mpi-hydra", "slurm-failed", "slurm-task-ended", "kubectl-exit-code"),
    *("shell-bus-error", "shell-bus-error-command", "shell-segmentation-fault", "shell-segmentation-fault-command"),
    *("mpi-process-signal", "python-crashed", "test-nccl-failure"),
)
"""PyTorch and nccl-tests pass on what NCCL returned, launchers and shells say that a process failed: the cause stands
elsewhere, if at all."""
FLUSHED = 5
"""The status of transfers that were given up because another one had failed before."""
_RANK_IN_FRONT = re.compile(r"(?:^|\s)\[rank(\d{1,7})\]")
_PROBED = ("topology-attribute-missing",)
"""At INFO level what NCCL asks for and may do without."""
_NO_REASON = ("Resource temporarily unavailable", "Success")
"""What errno says where no call failed."""


def is_error(notice: Notice) -> bool:
    """Whether a statement says that something went wrong."""
    event = notice.event
    if (notice.production in _PROBED and notice.level == "INFO") or endings.is_shutting_down(event):
        return False
    return (
        event is None  # a WARN that the grammar does not know
        or isinstance(event, events.CollectiveTimeout)
        or (isinstance(event, events.CudaFailure) and notice.level == "WARN")  # at INFO NCCL goes on without it
        or (getattr(event, "tone", "info") == "error" and not _is_flushed(notice) and not _is_left_over(notice))
    )


def _is_flushed(notice: Notice) -> bool:
    return notice.production.startswith("ib-") and value(notice, "status") == FLUSHED


def _is_left_over(notice: Notice) -> bool:
    """Whether a helper thread stopped accepting connections as its communicator ended (src/proxy.cc).

    It prints whatever errno an earlier call has left; of an accept() that really failed src/misc/socket.cc warns.
    """
    return notice.production == "proxy-socket-failed" and value(notice, "error") in _NO_REASON


def is_retold(notice: Notice) -> bool:
    """Whether a statement only passes on that something failed."""
    return notice.production in _RETOLD


def value(notice: Notice, name: str) -> Any:
    """A value of a statement, None where its wording has no such field."""
    return dict(notice.event.values).get(name) if isinstance(notice.event, events.Notice) else None


def rank_in_front(notice: Notice) -> int | None:
    """The rank that PyTorch puts in front of its lines, ``[rank3]:``, maybe behind what a collector puts there."""
    found = _RANK_IN_FRONT.search(notice.message)
    return int(found[1]) if found else None
