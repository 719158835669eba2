"""What the numbers mean by which NCCL tells how far a NIC is from a GPU (src/graph/topo.h, PATH_…)."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.event.types import GdrDecision
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.job import Notice
from nccl_inspect.model.versions import order

_CLASSES = (
    ((2, 27, 5), "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS"),
    ((2, 27), "LOC NVL NVB C2C PIX PXB PXN P2C PHB SYS"),
    ((2, 26), "LOC NVL NVB C2C PIX PXB PXN PHB SYS"),
    ((2, 12), "LOC NVL NVB PIX PXB PXN PHB SYS"),
    ((2, 8), "LOC NVL NVB PIX PXB PHB SYS"),
    ((2, 6), "LOC NVL PIX PXB PHB SYS"),
)
"""The classes from near to far, and the release from which on they are numbered so."""


def too_far(reasons: Iterable[Notice]) -> GdrDecision | None:
    """The first distance that is too long, where nothing says that support is missing."""
    decisions = [(notice.roles, notice.event) for notice in reasons if isinstance(notice.event, GdrDecision)]
    measured = all("gdr-too-far" in roles for roles, _ in decisions)
    return decisions[0][1] if decisions and measured else None


def words(far: GdrDecision, facts: Facts) -> str:
    """What is too far from what, with the names of the numbers where the release is known."""
    distance, limit = (_worded(number, facts) for number in (far.distance, far.limit))
    return (
        f"GPU {far.gpu} and NIC {far.nic} are further apart than NCCL allows: distance {distance}, and the limit is "
        f"{limit}"
    )


def _worded(number: int | None, facts: Facts) -> str:
    known = None if number is None else name(number, facts.job.nccl_versions)
    return f"{number} ({known})" if known else f"{number}"


def name(distance: int, releases: Iterable[str]) -> str | None:
    """The name of a distance; None where the releases of the log do not agree on one, or none is known.

    Args:
        distance: as the line has it.
        releases: of the log; one that is inferred may be any of a range.
    """
    known = {_named(distance, release) for release in releases}
    return known.pop() if len(known) == 1 else None


def _named(distance: int, release: str) -> str | None:
    if "inferred" in release:
        return None
    classes = next((text.split() for first, text in _CLASSES if order(release) >= first), [])
    return classes[distance] if distance < len(classes) else None
