"""A GPU has fewer NVLinks or PCIe lanes than the others."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule

RULE = Rule(
    name="gpu-degraded",
    category="topology",
    layer=Layer.HARDWARE,
    severity="warning",
    title="A GPU has fewer NVLinks or PCIe lanes than the others",
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge the GPUs of ranks by files from their hosts."""
    if facts.job.artifacts:
        from nccl_inspect.judging.evidence import settled  # most jobs are a log alone

        yield from settled.clues(facts, RULE)
