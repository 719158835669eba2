"""A warning or an error that repeats until it fills the log."""

from collections.abc import Iterator

from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice
from nccl_inspect.util.levels import STATEMENTS

RULE = Rule(
    name="log-flood",
    category="log quality",
    severity="info",
    title="One error repeats until it fills the log",
)
_MANY = 10_000
_REPEATED = 100
"""What is said less often is no flood, however short the log."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge warnings, errors and cascades only: what NCCL_DEBUG_SUBSYS=ALL prints was asked for."""
    repeated = [notice for notice in facts.job.notices if notice.count >= _REPEATED and _is_trouble(notice)]
    total = sum(notice.count for notice in repeated)
    lines = sum(source.lines for source in facts.job.sources)
    worst = max(repeated, key=lambda notice: notice.count, default=None)
    if worst is None or (worst.count <= _MANY and total * 2 <= lines):
        return
    first = min(repeated, key=lambda notice: notice.place)
    yield RULE.finding(
        f"{total:,} of {lines:,} lines repeat the same trouble; the first is: {first.message}",
        cause="NCCL's helper thread tries again without a pause after a connection was lost (seen with 2.19 to 2.23: "
        "2.6 million lines, 205 MB)",
        impact="the log is slow to read and to keep; what came before is hard to find, and a disk may fill up",
        fix=[
            "Judge the first line only: the repeats say nothing new.",
            "Take a newer NCCL: 2.28 says it once.",
            "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log   # keeps ranks apart",
        ],
        notices=repeated,
    )


def _is_trouble(notice: Notice) -> bool:
    tone = getattr(notice.event, "tone", "info")
    return notice.level in STATEMENTS or tone != "info" or isinstance(notice.event, ErrorCascade)
