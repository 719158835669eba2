"""A non-blocking NCCL call did not complete in time."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule

RULE = Rule(
    name="nonblocking-timeout",
    category="failures",
    layer=Layer.CALL,
    title="A non-blocking NCCL call did not complete in time",
)


def judge(facts: Facts) -> Results:
    """Judge PyTorch's exception: the ranks that raise it waited, and a late rank is the cause."""
    notices = facts.errors_of_rule(RULE.name)
    if not notices:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        notices,
        "a non-blocking NCCL call did not complete in time (TORCH_NCCL_NONBLOCKING_TIMEOUT)",
        cause="a rank arrived late or never at initialization or the first connection: it failed, hangs, or was "
        "still loading; or ranks cannot reach each other",
        stops="PyTorch gives up, and the job ends",
        fix=(
            "NCCL_DEBUG=INFO   # on all ranks: which one has no 'Init START', or no 'Init COMPLETE'?",
            "TORCH_NCCL_NONBLOCKING_TIMEOUT=1800   # seconds, if ranks are only slow: loading, many ranks",
            "TORCH_NCCL_USE_COMM_NONBLOCKING=0   # a test: blocking calls",
        ),
        confirm="Check which rank is missing.",
        confidence="possible",
    )
