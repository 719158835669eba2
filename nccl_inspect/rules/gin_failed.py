"""GPU-initiated networking (GIN) or one-sided communication (RMA) failed."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule

RULE = Rule(
    name="gin-failed",
    category="network",
    title="GPU-initiated networking (GIN) or one-sided communication failed",
    layer=Layer.CALL,
)


def judge(facts: Facts) -> Results:
    """Judge errors of its set-up and its transfers; feature-unavailable covers missing support."""
    notices = facts.errors_of_rule(RULE.name)
    if not notices:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        notices,
        f"GPU-initiated or one-sided communication failed: {notices[0].message}",
        cause="unknown from this log; likely: a peer that is gone, a NIC, driver or firmware that does not support it "
        "for this pair, memory that cannot be registered, or a defect of this release: the feature is new",
        stops="the kernel or the call that uses it fails, and with it the job",
        fix=(
            "Look at the errors above this line and on the other ranks: this one may follow from one of them.",
            "NCCL_GIN_TYPE=2   # a test: a proxy thread instead of the GPU drives the NIC (2.28.7 and later)",
            "Use the same current release of NCCL, NIC firmware and driver, and plugin on all nodes.",
        ),
        confirm="Look for an exception of this rank, or of its peer.",
        confidence="likely" if facts.job.failed else "possible",
    )
