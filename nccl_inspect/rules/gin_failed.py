"""Communication that the GPU starts (GIN), or one-sided communication (RMA), failed."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="gin-failed",
    category="network",
    severity="error",
    title="Communication that the GPU starts (GIN), or one-sided communication, failed",
    echoes=("internal-error",),
    symptom=True,
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge errors of its set-up and of its transfers; what is not there at all is feature-unavailable."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        f"GPU-initiated or one-sided communication failed: {said[0].message}",
        cause="the line does not tell why: a peer that is gone, a NIC, driver or firmware that does not do it on this "
        "pair, memory that cannot be registered, or a defect of this release: the feature is young",
        stops="the kernel or the call that uses it fails, and with it the job",
        fix=(
            "Look at the errors above this line, and at those of the other ranks: it may only follow from one of them.",
            "NCCL_GIN_TYPE=2   # a test: a proxy thread instead of the GPU drives the NIC (2.28.7 and later)",
            "Take one current release of NCCL, NIC firmware and driver, and plugin on all nodes.",
        ),
        confirm="Look for an exception of this rank, or of its peer.",
        confidence="likely" if facts.job.failed else "possible",
    )
