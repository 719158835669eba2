"""A warning or an error that repeats until it fills the log."""

from nccl_inspect.event.types import ErrorCascade
from nccl_inspect.judging.engine import Facts, Notice, Results, Rule
from nccl_inspect.util.levels import STATEMENTS

RULE = Rule(
    name="log-flood",
    category="log quality",
    severity="info",
    title="One error repeats until it fills the log",
)
_MANY = 10_000
_REPEATED = 100
"""Fewer repeats are not a flood, however short the log is."""


def judge(facts: Facts) -> Results:
    """Judge only warnings, errors and cascades: the output of NCCL_DEBUG_SUBSYS=ALL was requested."""
    repeated = [notice for notice in facts.job.notices if notice.count >= _REPEATED and _is_trouble(notice)]
    total = sum(notice.count for notice in repeated)
    lines = sum(source.lines for source in facts.job.sources)
    worst = max(repeated, key=lambda notice: notice.count, default=None)
    if worst is None or (worst.count <= _MANY and total * 2 <= lines):
        return
    first = min(repeated, key=lambda notice: notice.place)
    yield RULE.finding(
        f"{total:,} of {lines:,} lines repeat the same problem; the first is: {first.message}",
        cause="NCCL's helper thread retries without a pause after a connection was lost (seen with 2.19 to 2.23: "
        "2.6 million lines, 205 MB)",
        impact="the log is slow to read and large to store; earlier lines are hard to find, and a disk may fill up",
        fix=[
            "Look at the first line only: the repeats add nothing.",
            "Use a newer NCCL: 2.28 prints it once.",
            "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log   # keeps ranks separate",
        ],
        notices=repeated,
    )


def _is_trouble(notice: Notice) -> bool:
    tone = getattr(notice.event, "tone", "info")
    return notice.level in STATEMENTS or tone != "info" or isinstance(notice.event, ErrorCascade)
