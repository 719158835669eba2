"""TCP connections that failed or were retried, and whether the ranks connected all the same."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import error_of, value
from nccl_inspect.model.job import Notice
from nccl_inspect.util.wording import list_words

REFUSED = ("Connection refused", "exceeded retries")
"""The error as printed; up to 2.23 NCCL prints the number of retries only."""
TIMED_OUT = ("Connection timed out", "exceeded timeouts")
NO_ROUTE = ("No route to host", "Network is unreachable", "Software caused connection abort", *TIMED_OUT)


def failed_connections(facts: Facts, *errors: str) -> list[Notice]:
    """Return connections that failed for good with one of these errors, or with any if none is given."""
    # Releases until 2.4 report it without the address.
    calls = facts.notices("nccl/system-call-failed", "nccl/system-call-timeout")
    calls = [notice for notice in calls if value(notice, "call") == "connect"]
    notices = [*facts.with_role("connection-failed"), *calls]
    return [notice for notice in notices if not errors or has_error(notice, errors)]


def retried_connections(facts: Facts, *errors: str) -> list[Notice]:
    """Return connections that failed with one of these errors and were retried."""
    notices = facts.with_role("connection-retry")
    return [notice for notice in notices if error_of(notice).startswith(errors)]


def has_error(notice: Notice, errors: tuple[str, ...]) -> bool:
    """Return whether a connection failed with one of these errors."""
    return any(error in reason(notice) for error in errors)


def reason(notice: Notice) -> str:
    """Why a connection failed; until 2.23 some lines only say which limit was exceeded."""
    exceeded = next((name for name in ("retries", "timeouts") if value(notice, name) is not None), "")
    # The result of the connection; errno beside it is that of the wait.
    result = str(value(notice, "result_text") or "")
    return result or error_of(notice) or (f"exceeded {exceeded}" if exceeded else "")


def link_local_refused(facts: Facts) -> list[Notice]:
    """Return connections to link-local IPv6 addresses that the system refuses because no interface is given."""
    return [
        notice
        for notice in failed_connections(facts, "Invalid argument")
        if peer(notice).lstrip("[").startswith("fe80:")
    ]


def peer(notice: Notice) -> str:
    """Return the address that a connection went to; empty if the line does not have it."""
    return str(value(notice, "peer") or value(notice, "address") or "")


def addresses(notices: Iterable[Notice]) -> str:
    """Return the addresses that these connections went to, in words."""
    return list_words(filter(None, map(peer, notices)))


def has_built_communicator(facts: Facts) -> bool:
    """Return whether a communicator was built after all: NCCL retries, and some failures mean that peers start late."""
    return bool(facts.job.paths) or any(len(comm.completed) == comm.nranks for comm in facts.job.communicators)


def is_connected(facts: Facts) -> bool:
    """Return whether ranks completed a step that needs connections; the line of a path precedes its connection."""
    return any(comm.completed or comm.connected for comm in facts.job.communicators if comm.nranks > 1)
