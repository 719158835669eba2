"""A check inside NCCL, RCCL or a plugin failed."""

from nccl_inspect.judging import propagated_errors, stated_errors
from nccl_inspect.judging.engine import Facts, Finding, Layer, Notice, Results, Rule
from nccl_inspect.judging.statements import is_propagated_error

RULE = Rule(
    name="internal-error",
    category="failures",
    layer=Layer.CALL,
    title="A check inside NCCL, RCCL or a plugin failed",
)
_INTERNAL_ERROR = 3
_OWNERS = {
    "aws-ofi-nccl": ("aws-ofi-nccl", "https://github.com/aws/aws-ofi-nccl/issues"),
    "hpcx": ("the HPC-X plugin", "https://github.com/Mellanox/nccl-rdma-sharp-plugins/issues"),
    "tcpxo": ("Google's plugin", "https://cloud.google.com/support"),
    "rccl": ("RCCL", "https://github.com/ROCm/rccl/issues"),
}
"""By dialect: whose check it is, and where to report it; else NCCL."""
_OF_NCCL = ("NCCL", "https://github.com/NVIDIA/nccl/issues")
_STEPS = (
    "Look at the errors above this line, and at those of the other ranks: one of them may be the cause.",
    "python -c 'import torch; print(torch.cuda.nccl.version())'   # on every node: the same release and "
    "the same settings?",
)


def judge(facts: Facts) -> Results:
    """Judge the errors that the grammar calls internal; else NCCL's code 3 where no warning names the check."""
    notices = [notice for notice in facts.errors_of_rule(RULE.name) if not is_propagated_error(notice)]
    if notices:
        yield _finding(facts, notices)
    elif reached := propagated_errors.unexplained(facts, _INTERNAL_ERROR):
        yield _without_words(facts, reached)


def _finding(facts: Facts, notices: list[Notice]) -> Finding:
    owner, address = _OWNERS.get(notices[0].event.dialect if notices[0].event else "", _OF_NCCL)
    return stated_errors.finding(
        RULE,
        facts,
        notices,
        f"a check inside {owner} failed: {notices[0].message}",
        cause="unknown from this log; likely: an earlier failure of this rank or another one, ranks with different "
        f"releases or settings, a bug in this release of {owner}, or corrupted memory",
        stops="the call fails, and with it the job",
        fix=(
            *_STEPS,
            f"Update {owner}; if the error comes back, report it with the logs of all ranks: {address}.",
        ),
        confirm="Look for a later exception or line that ends with '-> 3': then the call failed.",
        confidence="likely" if facts.job.failed else "possible",
    )


def _without_words(facts: Facts, reached: list[Notice]) -> Finding:
    return stated_errors.finding(
        RULE,
        facts,
        reached,
        "NCCL reports an internal error (code 3), and no warning says which check failed",
        cause="unknown from this log; likely: ranks differ in release, settings or topology, or one of them failed "
        "before; else a bug in this release",
        stops="the call fails, and with it the job",
        fix=(
            "NCCL_DEBUG=INFO   # on all ranks, then rerun: the WARN before the first '-> 3' names the check",
            *_STEPS,
        ),
        confirm="Look for the first rank that failed.",
    )
