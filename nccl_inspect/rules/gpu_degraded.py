"""A GPU has fewer NVLinks or PCIe lanes than the others."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Notice, value
from nccl_inspect.judging.page_words import Hit

_TRUE = 1
_STATES = {
    0: "bandwidth is degraded",
    2: "routes are being updated",
    4: "a connection is unhealthy",
    6: "accesses timed out",
}
"""The lowest of two bits each: 1 is yes, 2 no, 0 not supported (ctrl2080gpu.h of NVIDIA/open-gpu-kernel-modules)."""
_CONFIGURATION = 8
"""The lowest of four bits."""
_WRONG = {
    2: "the system GUID is wrong",
    3: "the serial number of the chassis is wrong",
    4: "it is in no partition",
    5: "it has too few NVLinks",
    6: "its firmware does not fit",
    7: "its location is invalid",
    8: "its state is invalid",
}


def find(facts: Facts) -> Iterator[Hit]:
    """Find what monitors, NCCL's health masks (it warns of degraded bandwidth since 2.32) and files from hosts show."""
    if stated := facts.errors_of_rule("gpu-degraded"):
        yield Hit(stated)
    masks = facts.notices("nccl/mnnvl-fabric")
    if sick := [notice for notice in masks if _mask_of(notice) & 3 == _TRUE]:
        faults = dict.fromkeys(fault for notice in sick for fault in decode_health(_mask_of(notice)))
        yield Hit(sick, {"faults": list(faults), "mask": value(sick[0], "health")})
    if facts.job.artifacts:
        from nccl_inspect.judging.evidence import settled  # most jobs are a log alone

        yield from settled.find_clues(facts, "gpu-degraded")


def _mask_of(notice: Notice) -> int:
    mask = str(value(notice, "health"))
    return int(mask, 16) if mask.startswith("0x") else 0


def decode_health(mask: int) -> list[str]:
    """Return what a health mask says is wrong; nothing where all is well, or not reported."""
    faults = [words for shift, words in _STATES.items() if mask >> shift & 3 == _TRUE]
    configuration = mask >> _CONFIGURATION & 15
    return [*faults, _WRONG[configuration]] if configuration in _WRONG else faults
