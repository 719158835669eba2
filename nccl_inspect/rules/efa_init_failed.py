"""aws-ofi-nccl finds a provider but fails to initialize."""

from collections.abc import Iterator
from operator import attrgetter

from nccl_inspect.event.types import OfiProvider
from nccl_inspect.judging import propagated_errors
from nccl_inspect.judging.engine import Facts, Notice, first_evidence, value
from nccl_inspect.judging.facts import first_lines
from nccl_inspect.judging.networks import slingshot
from nccl_inspect.judging.page_words import Hit

_NO_MEMORY = -12
_CONNECTING = ("transport/net.cc", "include/net.h")
"""Until 2.11 NCCL calls plugins through the second."""
_BUILT_IN = (None, "Socket", "IB")


def find(facts: Facts) -> Iterator[Hit]:
    """Find a failed initialization, and set-up errors if no network of the plugin came up."""
    if slingshot.signs(facts) or _lacks_memory(facts):
        return  # the plugin also supports Slingshot
    failed = [n for n in facts.plugin("NET", "failed") if n.event and n.event.dialect == "aws-ofi-nccl"]
    stated = [*facts.notices("aws-ofi-nccl/ofi-gdr-disabled-on-capable"), *facts.errors_of_rule("efa-init-failed")]
    reasons = sorted(stated, key=attrgetter("place"))
    notices = [*reasons, *facts.notices("aws-ofi-nccl/ofi-protocol-failed"), *failed]
    broken = _find_broken(facts, reasons)
    if notices and (failed or facts.job.failed or broken or not _came_up(facts)):
        named = {
            "reason": reasons[0].message.removeprefix("NET/OFI ") if reasons else "",
            "broken": broken,
        }
        yield Hit(notices, named, evidence=first_evidence([*reasons[:3], *notices[-2:], *broken[:1]]))


def _came_up(facts: Facts) -> bool:
    return any(comm.network not in _BUILT_IN for comm in facts.job.communicators) or any(
        "Libfabric" in kind.detail for kind in facts.inter_host_net_paths().kinds
    )


def _find_broken(facts: Facts, reasons: list[Notice]) -> list[Notice]:
    """Find NCCL's frames of connections that then failed, after it had chosen the plugin.

    If the reason comes after the first connection, frames of other ranks may precede it.
    """
    if not reasons or not (facts.with_event(OfiProvider) or _came_up(facts)):
        return []
    used = facts.inter_host_net_paths().where(lambda kind: "Libfabric" in kind.detail)
    first = min((line.order for line in first_lines(used)), default=None)
    is_late = first is not None and reasons[0].evidence[0].order > first
    broken = propagated_errors.frames(facts, files=_CONNECTING)
    return [frame for frame in broken if is_late or frame.place > reasons[0].place]


def _lacks_memory(facts: Facts) -> bool:
    """Whether buffers could not be registered because locked memory is limited, which explains later failures."""
    return any(abs(value(notice, "rc") or 0) == -_NO_MEMORY for notice in facts.with_role("memory-not-registered"))
