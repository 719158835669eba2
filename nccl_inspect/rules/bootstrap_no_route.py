"""The network does not let ranks reach each other."""

from collections.abc import Iterator

from nccl_inspect.event.types import BootstrapInterface
from nccl_inspect.judging.connecting import (
    NO_ROUTE,
    TIMED_OUT,
    addresses,
    failed_connections,
    has_built_communicator,
    has_error,
    reason,
    retried_connections,
)
from nccl_inspect.judging.engine import Facts
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.patterns import later

_BRIDGE = later(r"172\.(?:1[7-9]|2\d|30)\.\d{1,3}\.\d{1,3}\b")
"""What Docker uses for its bridges first (default-address-pools), except 172.31, which clouds use for hosts."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find connections that NCCL gave up on, or was still retrying when the job or the log ended."""
    failed = failed_connections(facts, *NO_ROUTE)
    notices = failed or ([] if has_built_communicator(facts) else retried_connections(facts, *NO_ROUTE))
    if not notices:
        return
    chosen = [one.event for one in facts.with_event(BootstrapInterface) if isinstance(one.event, BootstrapInterface)]
    words = [f"{event.interface} ({event.address or 'no address'})" for event in chosen]
    families = {
        ":" in event.address.partition("<")[0]: text for event, text in zip(chosen, words, strict=True) if event.address
    }
    bridges = [match[0] for notice in notices if (match := _BRIDGE.search(addresses([notice])))]
    named = {
        "where": addresses(notices) or "another rank",
        "over": failed or facts.job.ended_by,
        "silent": all(has_error(notice, TIMED_OUT) for notice in notices),
        "error": next(error for error in NO_ROUTE if error in reason(notices[-1])),
        "bridge": bridges[0] if bridges else "",
        "interfaces": words if len({event.interface for event in chosen}) > 1 else [],
        "IPv6": families[True] if len(families) > 1 else "",
        "IPv4": families.get(False),
    }
    yield Hit(notices, named)
