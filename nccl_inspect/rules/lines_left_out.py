"""Lines of NCCL that a collector shows once for several processes."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.util.wording import does

RULE = Rule(
    name="lines-left-out",
    category="log quality",
    severity="warning",
    title="A collector left out lines of NCCL that it took for repetitions",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what Ray says behind lines of NCCL."""
    said = facts.job.spared
    if not said:
        return
    lines = f"{len(said)} or more lines" if len(said) > 1 else "a line"
    yield RULE.finding(
        f"Ray left lines of NCCL out: {lines} {does(len(said), 'stand')} for several workers",
        cause="Ray shows lines of its workers once that differ in their numbers only (RAY_DEDUP_LOGS): with NCCL the "
        "numbers are the ranks, channels and GPUs",
        impact="connections, settings and warnings of other ranks are not in the log, and ranks may seem to be missing",
        fix=[
            "RAY_DEDUP_LOGS=0   # in the environment of the driver and of ray start",
            "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log   # or let NCCL write its own files, past Ray",
            "nccl-inspect summarize /tmp/ray/session_latest/logs   # on each node: here Ray keeps all lines",
        ],
        confidence="possible",
        evidence=said,
    )
