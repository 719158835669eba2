"""A port that NCCL uses is down, or slower than the others."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule

RULE = Rule(
    name="nic-link-bad",
    category="network",
    layer=Layer.HARDWARE,
    severity="warning",
    title="A port that NCCL uses is down, or slower than the others",
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge the ports that NCCL lists by files from their hosts."""
    if facts.job.artifacts:
        from nccl_inspect.judging.evidence import settled  # most jobs are a log alone

        yield from settled.clues(facts, RULE)
