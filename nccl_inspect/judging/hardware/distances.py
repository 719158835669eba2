"""The meaning of the numbers with which NCCL prints the distance between NIC and GPU (src/graph/topo.h, PATH_…)."""

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
"""The classes from near to far, and the first release with this numbering."""


def too_far(reasons: Iterable[Notice]) -> GdrDecision | None:
    """Return the first distance that is too long; None if any reason is missing support."""
    decisions = [(notice.roles, notice.event) for notice in reasons if isinstance(notice.event, GdrDecision)]
    measured = all("gdr-too-far" in roles for roles, _ in decisions)
    return decisions[0][1] if decisions and measured else None


def words(far: GdrDecision, facts: Facts) -> str:
    """Return the distance and its limit in words, with the names of the numbers if the release is known."""
    distance, limit = (_distance_words(number, facts) for number in (far.distance, far.limit))
    return (
        f"GPU {far.gpu} and NIC {far.nic} are farther apart than NCCL allows: distance {distance}, and the limit is "
        f"{limit}"
    )


def _distance_words(number: int | None, facts: Facts) -> str:
    label = None if number is None else name(number, facts.job.nccl_versions)
    return f"{number} ({label})" if label else f"{number}"


def name(distance: int, releases: Iterable[str]) -> str | None:
    """Return the name of a distance; None if the releases of the log disagree, or none is known.

    Args:
        distance: as printed.
        releases: of the log; an inferred one may be any of a range.
    """
    names = {_name_in_release(distance, release) for release in releases}
    return names.pop() if len(names) == 1 else None


def _name_in_release(distance: int, release: str) -> str | None:
    if "inferred" in release:
        return None
    classes = next((text.split() for first, text in _CLASSES if order(release) >= first), [])
    return classes[distance] if distance < len(classes) else None
