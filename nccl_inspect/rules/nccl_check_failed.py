"""A check of the machine by NCCL itself found a problem."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Facts, Notice, value
from nccl_inspect.judging.facts import members_named
from nccl_inspect.judging.page_words import Hit
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import listed, read_range

_FAULT = later(
    r"mismatch|\bdiffer\b|^only \d+/\d+ |^(?:peer-memory import|launch/check|local CUDA setup|topology check) failed|"
    r"^uncorrected volatile errors on|^corrected volatile errors at or above|off median|inactive|^inconsistent|"
    r"^enabled \(DMA remapping\)|ATSCtl disabled|^disabled on"
)
"""A fault or a difference between ranks, not a check that could not be made."""
_DIFFERING = later(r"\brank\(s\) ([0-9,\- ]+) differ")
_MOST_RANKS = 1 << 17
"""Ranks of a range that may be one of a job."""


def find(facts: Facts) -> Iterator[Hit]:
    """Find results of NCCL_RUN_DIAGNOSTICS and NCCL_RUN_RAS_DIAGNOSTICS (2.31 and later) that name a fault."""
    results = facts.notices("nccl/diagnostics-result", "nccl/diagnostics-xid", "nccl/fabric-degraded")
    if faults := list(filter(_is_fault, results)):
        words = (fault.message.rpartition("[INFO]")[2].strip() for fault in faults)
        ranks = {rank for fault in faults for rank in _differing(facts, fault)}
        yield Hit(faults, {"found": listed(words, limit=2)}, ranks=ranks, hosts=())


def _is_fault(notice: Notice) -> bool:
    is_bad = notice.production != "nccl/diagnostics-result" or bool(_FAULT.search(str(value(notice, "text"))))
    return is_bad and value(notice, "status") != "OK"


def _differing(facts: Facts, notice: Notice) -> set[int]:
    """The ranks that a line names because they differ from others."""
    match = _DIFFERING.search(str(value(notice, "text")))
    parts = map(read_range, match[1].replace(" ", "").split(",")) if match else ()
    return members_named(facts, notice, {rank for part in parts for rank in (part or ())[:_MOST_RANKS]})
