"""What single statements are: errors, or what only passes an error on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from nccl_inspect.event import types as events
from nccl_inspect.grammar import engine
from nccl_inspect.judging.hardware import xids
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job, Notice
from nccl_inspect.model.statements import job_end

_Answer = TypeVar("_Answer")
FLUSHED = 5
"""The status of transfers that were given up because another one had failed before."""
_RANK_IN_FRONT = re.compile(r"(?:^|[\s:])\[rank(\d{1,7})\](?=: |:\[)")
_NO_REASON = ("Resource temporarily unavailable", "Success")
"""What errno says where no call failed."""


def quoted(notices: Iterable[Notice], finding: Finding) -> list[Notice]:
    """The statements of which a finding shows a line."""
    lines = {(line.source, line.order) for line in finding.evidence}
    return [one for one in notices if any((line.source, line.order) in lines for line in one.evidence)]


def is_error(notice: Notice) -> bool:
    """Whether a statement says that something went wrong."""
    event = notice.event
    if ("probe" in notice.roles and notice.level == "INFO") or job_end.is_shutting_down(event):
        return False
    return (
        (event is None and notice.level == "WARN")  # which the grammar does not know
        or isinstance(event, events.CollectiveTimeout)
        or (isinstance(event, events.CudaFailure) and notice.level == "WARN")  # at INFO NCCL goes on without it
        or (getattr(event, "tone", "info") == "error" and not any(is_none(notice) for is_none in _NO_ERRORS))
    )


def is_survived(notice: Notice, job: Job) -> bool:
    """Whether an error is one that NCCL went on without, as connections show."""
    return "survivable" in notice.roles and bool(job.paths)


def _is_flushed(notice: Notice) -> bool:
    return notice.production.startswith("nccl/ib-") and value(notice, "status") == FLUSHED


def _is_left_over(notice: Notice) -> bool:
    """Whether a helper thread stopped accepting connections as its communicator ended (src/proxy.cc).

    It prints whatever errno an earlier call has left; of an accept() that really failed src/misc/socket.cc warns.
    """
    return notice.production == "nccl/proxy-socket-failed" and value(notice, "error") in _NO_REASON


def _is_logged(notice: Notice) -> bool:
    """Whether PyTorch only logs what its store met with: it may try again, and raises an exception when it gives up."""
    return "logged-retry" in notice.roles and "Error: " not in str(value(notice, "_head"))


def broken(notice: Notice) -> str | None:
    """What the kernel log says is broken of a GPU; an Xid that programs cause, or that is mended, is none of it."""
    if notice.production != "kernel/xid":
        return None
    return xids.meaning(value(notice, "xid"), str(value(notice, "text")))


def _is_of_program(notice: Notice) -> bool:
    return notice.production == "kernel/xid" and broken(notice) is None


_NO_ERRORS = (_is_flushed, _is_left_over, _is_logged, _is_of_program)


def is_retold(notice: Notice) -> bool:
    """Whether a statement only passes on that something failed."""
    return "propagated-error" in notice.roles


def of_role(notice: Notice, table: Mapping[str, _Answer]) -> _Answer | None:
    """What a table says of the first of its roles that a statement has."""
    return next((answer for role, answer in table.items() if role in notice.roles), None)


def value(notice: Notice, name: str) -> Any:
    """A value of a statement, None where its wording has no such field."""
    if not isinstance(notice.event, events.Notice):
        return None
    return engine.unlisted(notice.event, name) if name[:2] == "__" else dict(notice.event.values).get(name)


def error_of(notice: Notice) -> str:
    """The error that a statement names, in the words of CUDA, NCCL or the system; empty where it names none."""
    return str(value(notice, "error") or getattr(notice.event, "error", None) or "")


def words(notice: Notice) -> str:
    """A statement without what collectors put in front."""
    return notice.event.message if notice.event else notice.message


def rank_in_front(notice: Notice) -> int | None:
    """The rank that PyTorch puts in front of its lines, ``[rank3]:``, maybe behind what a collector puts there."""
    found = _RANK_IN_FRONT.search(notice.message)
    return int(found[1]) if found else None
