"""NCCL lines that a collector shows once for several processes."""

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.util.wording import does

RULE = Rule(
    name="lines-left-out",
    category="log quality",
    severity="warning",
    title="A collector dropped NCCL lines that it took for repetitions",
)


def judge(facts: Facts) -> Results:
    """Judge the marks that Ray appends to NCCL lines."""
    markers = facts.job.spared
    if not markers:
        return
    lines = f"{len(markers)} or more lines" if len(markers) > 1 else "a line"
    yield RULE.finding(
        f"Ray dropped NCCL lines: {lines} {does(len(markers), 'represent')} several workers",
        cause="Ray shows worker lines that differ only in their numbers once (RAY_DEDUP_LOGS): in NCCL lines "
        "these numbers are ranks, channels and GPUs",
        impact="connections, settings and warnings of other ranks are not in the log, and ranks may seem to be missing",
        fix=[
            "RAY_DEDUP_LOGS=0   # in the environment of the driver and of ray start",
            "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log   # or let NCCL write its own files, bypassing Ray",
            "nccl-inspect summarize /tmp/ray/session_latest/logs   # on each node: Ray keeps all lines there",
        ],
        confidence="possible",
        evidence=markers,
    )
