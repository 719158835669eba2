"""Lines that all end at one column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.util.wording import count

RULE = Rule(
    name="lines-cut-off",
    category="log quality",
    severity="warning",
    title="Lines of the log are cut off at one column",
)
_SHAPES = 4
"""Lines of so many shapes do not end at one column by chance."""


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge lines that no production knows: whether most shapes of them are as long as the longest one."""
    unknown = facts.job.unrecognised
    lengths = Counter(len(shape.example.text) for shape in unknown)
    width = max(lengths, default=0)
    if lengths[width] < max(_SHAPES, len(unknown) / 2):
        return
    cut = [shape for shape in unknown if len(shape.example.text) == width]
    lines = count(sum(shape.count for shape in cut), "line")
    yield RULE.finding(
        f"{lines} that are not recognised end at column {width}, whatever they say: all after it seems to be cut off",
        cause="what copied the log cut its lines: a terminal or its pager (less -S), cut -c, a web page or an export "
        "with a limit",
        impact="what stood behind that column is missing: connections, settings, warnings and errors. Values may be "
        "cut, too (NCCL_HOSTID, names of plugins), so nothing is called good",
        fix=[
            "kubectl logs <pod> > job.log   # the log as the job printed it; not what was copied from a screen",
            "NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log   # what NCCL prints, in files of its own",
        ],
        confidence="possible",
        evidence=[shape.example for shape in cut],
    )
