"""A port that NCCL uses is down, or slower than the others."""

from collections.abc import Iterator

from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts

RULE = Rule(
    name="nic-link-bad",
    category="network",
    severity="warning",
    title="A port that NCCL uses is down, or slower than the others",
    local=True,
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge the ports that NCCL lists by the files of their hosts."""
    if facts.job.artifacts:
        from nccl_inspect.rules import settled  # most jobs are a log alone

        yield from settled.clues(facts, RULE)
