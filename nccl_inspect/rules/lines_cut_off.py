"""Lines that all end at the same column."""

from collections import Counter

from nccl_inspect.judging.engine import Facts, Results, Rule
from nccl_inspect.util.wording import count

RULE = Rule(
    name="lines-cut-off",
    category="log quality",
    severity="warning",
    title="Lines of the log are cut off at the same column",
)
_SHAPES = 4
"""Lines of this many shapes do not end at the same column by chance."""


def judge(facts: Facts) -> Results:
    """Judge unrecognized lines: whether most shapes are as long as the longest one."""
    unknown = facts.job.unrecognised
    lengths = Counter(len(shape.example.text) for shape in unknown)
    width = max(lengths, default=0)
    if lengths[width] < max(_SHAPES, len(unknown) / 2):
        return
    cut = [shape for shape in unknown if len(shape.example.text) == width]
    lines = count(sum(shape.count for shape in cut), "line")
    yield RULE.finding(
        f"{lines} that are not recognized end at column {width}: the rest of each seems to be cut off",
        cause="the lines were cut when the log was copied: by a terminal or its pager (less -S), cut -c, a web page or "
        "an export with a limit",
        impact="everything after that column is missing: connections, settings, warnings and errors. Values may be "
        "cut, too (NCCL_HOSTID, plugin names), so nothing is reported as good",
        fix=[
            "kubectl logs <pod> > job.log   # the log as the job printed it, not a copy from the screen",
            "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log   # writes NCCL's output to files of its own",
        ],
        confidence="possible",
        evidence=[shape.example for shape in cut],
    )
