"""TCP connections that were given up or tried again, and whether ranks came together all the same."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import error_of, value
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import listed

REFUSED = ("Connection refused", "exceeded retries")
"""The error as it is printed; up to 2.23 only the number of retries is."""
TIMED_OUT = ("Connection timed out", "exceeded timeouts")
NO_ROUTE = ("No route to host", "Network is unreachable", "Software caused connection abort", *TIMED_OUT)
_CALLS = ("nccl/system-call-failed", "nccl/system-call-timeout")
"""How releases until 2.4 tell it, without the address."""


def gave_up(facts: Facts, *errors: str) -> list[Notice]:
    """Connections that failed for good with one of these errors; with any error, where none is given."""
    calls = [notice for notice in facts.notices(*_CALLS) if value(notice, "call") == "connect"]
    said = [*facts.with_role("connection-failed"), *calls]
    return [notice for notice in said if not errors or is_one_of(notice, errors)]


def retried(facts: Facts, *errors: str) -> list[Notice]:
    """Connections that failed with one of these errors and were tried again."""
    said = facts.with_role("connection-retry")
    return [notice for notice in said if error_of(notice).startswith(errors)]


def is_one_of(notice: Notice, errors: tuple[str, ...]) -> bool:
    """Whether a connection failed with one of these errors."""
    return any(error in reason(notice) for error in errors)


def reason(notice: Notice) -> str:
    """Why a connection failed; until 2.23 some lines only tell what it had too many of."""
    exceeded = next((name for name in ("retries", "timeouts") if value(notice, name) is not None), "")
    # What the connection came to; beside it errno is that of the wait.
    result = str(value(notice, "result_text") or "")
    return result or error_of(notice) or (f"exceeded {exceeded}" if exceeded else "")


def of_one_link(facts: Facts) -> list[Notice]:
    """Connections to link-local IPv6 addresses that the system refuses: it cannot tell by which interface to go."""
    return [notice for notice in gave_up(facts, "Invalid argument") if peer(notice).lstrip("[").startswith("fe80:")]


def peer(notice: Notice) -> str:
    """The address that a connection went to; empty where the line does not tell it."""
    return str(value(notice, "peer") or value(notice, "address") or "")


def addresses(notices: Iterable[Notice]) -> str:
    """The addresses that these connections went to, in words."""
    return listed(filter(None, map(peer, notices)))


def came_up(facts: Facts) -> bool:
    """Whether a communicator was built after all: NCCL tries again, and a few failures are the start of others."""
    return bool(facts.job.paths) or any(len(comm.completed) == comm.nranks for comm in facts.job.communicators)


def connected(facts: Facts) -> bool:
    """Whether ranks came to the end of what needs connections; a line that names a path comes before it is made."""
    return any(comm.completed or comm.connected for comm in facts.job.communicators if comm.nranks > 1)


def is_alone(facts: Facts) -> bool:
    """Whether the log shows that the job is of one host: all ranks of its communicators are there, on that host."""
    comms = facts.job.communicators
    whole = bool(comms) and all(len(comm.started) == comm.nranks or comm.nnodes == 1 for comm in comms)
    return whole and not facts.several_hosts()
