"""A kernel of DeepEP got no answer, or found something that must not be."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.statements import find_text

RULE = Rule(
    name="deepep-failed",
    category="failures",
    title="DeepEP: a kernel got no answer from another rank, or found an inconsistency",
    shows=("no-nvshmem",),
    layer=Layer.CALL,
)


def judge(facts: Facts) -> Results:
    """Judge what the kernels print: they name the step, and the rank that they are on."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"DeepEP failed: {find_text(errors[0])}",
        cause="unknown from this line; likely: another rank ended, hangs or took another branch, a transfer over RDMA "
        "failed, or the sizes of the buffers do not fit the number of ranks and tokens",
        stops="the kernels trap, and the program ends with a CUDA error",
        fix=(
            "Find the rank that printed first, and what else it printed: the others wait for it.",
            "NVSHMEM_DEBUG=INFO; dmesg -T | grep -iE 'xid|mlx5'   # did a GPU or a NIC fail?",
            "python tests/test_intranode.py; python tests/test_low_latency.py   # of DeepEP: does it work alone?",
        ),
        confirm="Check whether the program ended after it.",
        confidence="likely" if facts.job.failed else "possible",
    )
