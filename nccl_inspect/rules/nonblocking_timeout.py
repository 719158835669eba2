"""A non-blocking call of NCCL was not done in time."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="nonblocking-timeout",
    category="failures",
    severity="error",
    title="A non-blocking call of NCCL was not done in time",
    symptom=True,
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge PyTorch's exception; the ranks that say it waited, and the cause is where another one is late."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        "a non-blocking call of NCCL was not done in time (TORCH_NCCL_NONBLOCKING_TIMEOUT)",
        cause="a rank came late or never to the initialisation or to the first connection: it failed, hangs, or was "
        "still "
        "loading; or ranks cannot reach each other",
        stops="PyTorch gives up, and the job ends",
        fix=(
            "NCCL_DEBUG=INFO   # on all ranks: which one has no 'Init START', or no 'Init COMPLETE'?",
            "TORCH_NCCL_NONBLOCKING_TIMEOUT=1800   # seconds, where ranks are only slow: loading, many ranks",
            "TORCH_NCCL_USE_COMM_NONBLOCKING=0   # a test: blocking calls",
        ),
        confirm="Check which rank is missing.",
        confidence="possible",
    )
