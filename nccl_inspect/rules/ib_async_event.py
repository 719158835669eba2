"""A NIC reports that its port went down or that it failed."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.wording import listed

_KINDS = {
    "fatal": ("catastrophic", "access violation", "invalid request", "CQ error", "fatal"),
    "down": ("port error",),
    "new": ("GID table change",),
}
_OWN = {"fatal": "nccl/ib-async-fatal-event", "down": "nccl/ib-speed-change", "new": "nccl/ib-gid-table-changed"}
"""Productions of their own for the same kinds."""
_EVERYDAY = ("last WQE reached", "communication established", "send queue drained")
"""Routine events of a connection, which releases before 2.23 also print as warnings."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find events by kind, and whether transfers failed as well."""
    plain = facts.notices("nccl/ib-async-event", "nccl/ib-async-error-event")
    found = {
        kind: [*facts.notices(_OWN[kind]), *(one for one in plain if any(word in _event(one) for word in words))]
        for kind, words in _KINDS.items()
    }
    other = [notice for notice in plain if not any(word in _event(notice) for word in _EVERYDAY)]
    if notices := [notice for some in found.values() for notice in some] or other:
        named = {
            **found,
            "failing": facts.job.failed or facts.completions(5, 12),
            "ports": listed(str(card) for one in notices if (card := value(one, "device") or value(one, "name"))),
            "events": listed(map(_event, notices)),
        }
        yield Hit(notices, named, evidence=first_evidence([*notices, *facts.notices("nccl/ib-fatal-error")]))


def _event(notice: Notice) -> str:
    return str(value(notice, "event") or notice.message.partition(" : ")[2] or notice.message)
