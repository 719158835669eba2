"""A check of the machine by NCCL itself found a problem."""

from nccl_inspect.judging.engine import Facts, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.facts import members_named
from nccl_inspect.util.patterns import later
from nccl_inspect.util.wording import listed, read_range

RULE = Rule(
    name="nccl-check-failed",
    category="topology",
    layer=Layer.CALL,
    severity="warning",
    title="NCCL's own check of the machine found a problem",
)
_RESULTS = ("nccl/diagnostics-result", "nccl/diagnostics-xid")
_FABRIC = "nccl/fabric-degraded"
"""The driver's report on the NVLink fabric, for NVLink across hosts (2.32)."""
_FAULT = later(
    r"mismatch|\bdiffer\b|^only \d+/\d+ |^(?:peer-memory import|launch/check|local CUDA setup|topology check) failed|"
    r"^uncorrected volatile errors on|^corrected volatile errors at or above|off median|inactive|^inconsistent|"
    r"^enabled \(DMA remapping\)|ATSCtl disabled|^disabled on"
)
"""A fault or a difference between ranks, not a check that could not be made."""

_DIFFERING = later(r"\brank\(s\) ([0-9,\- ]+) differ")
_MOST_RANKS = 1 << 17
"""Ranks of a range that may be one of a job."""


def judge(facts: Facts) -> Results:
    """Judge the results of NCCL_RUN_DIAGNOSTICS and NCCL_RUN_RAS_DIAGNOSTICS (2.31 and later)."""
    faults = [notice for notice in facts.notices(*_RESULTS, _FABRIC) if _is_fault(notice)]
    if not faults:
        return
    yield RULE.finding(
        f"NCCL's own checks found: {listed(map(_words, faults), limit=2)}",
        cause="NCCL reports what it measured and counted, not the reason; the line names ranks or hosts",
        impact="depends on the check: P2P that fails its test may corrupt or stop transfers, a NIC or GPU that differs "
        "from the others sets the pace for all",
        fix=[
            "Compare the hosts and ranks that the lines name with the others, and exclude them from the job.",
            "nvidia-smi nvlink -s; nvidia-smi -q -d ECC; dmesg | grep -E 'NVRM|Xid'   # on those hosts",
            "NCCL_RUN_DIAGNOSTICS=1 NCCL_RUN_RAS_DIAGNOSTICS=1   # again after the repair",
        ],
        ranks={rank for notice in faults for rank in _differing(facts, notice)},
        evidence=first_evidence(faults),
        explains_errors=faults,
    )


def _is_fault(notice: Notice) -> bool:
    if notice.production == _FABRIC:
        return True
    if value(notice, "status") != "INFO":
        return False
    return notice.production == "nccl/diagnostics-xid" or bool(_FAULT.search(str(value(notice, "text"))))


def _differing(facts: Facts, notice: Notice) -> set[int]:
    """The ranks that a line names because they differ from others."""
    match = _DIFFERING.search(str(value(notice, "text")))
    parts = map(read_range, match[1].replace(" ", "").split(",")) if match else ()
    return members_named(facts, notice, {rank for part in parts for rank in (part or ())[:_MOST_RANKS]})


def _words(notice: Notice) -> str:
    return notice.message if notice.production == _FABRIC else notice.message.partition("[INFO]")[2].strip()
