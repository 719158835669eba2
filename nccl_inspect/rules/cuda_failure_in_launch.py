"""A CUDA call failed while NCCL launched a collective: usually the program had already broken the CUDA context."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.util.wording import listed

RULE = Rule(
    name="cuda-failure-in-launch",
    category="failures",
    layer=Layer.PROGRAM,
    title="A CUDA call failed while NCCL launched a collective",
    supersedes=("cuda-call-failed", "cuda-failure-in-connect"),
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge failed calls in source files that launch kernels and copies."""
    failed = list(filter(cuda.is_launch, cuda.failures(facts)))
    if not failed:
        return
    code, notices = failed[0].code, [failure.notice for failure in failed]
    yield RULE.finding(
        f"CUDA failed in {failed[0].file}: {listed(map(cuda.words, failed))}",
        cause=cuda.cause(code),
        impact=cuda.IMPACT,
        fix=cuda.fix(
            code,
            (
                cuda.WHICH_KERNEL if code in cuda.KERNEL_ERRORS else cuda.DO_THEY_FIT,
                cuda.IS_BROKEN,
                "Look at the earlier output of this rank: its own traceback is closer to the cause than NCCL.",
            ),
        ),
        confidence="likely",
        notices=notices,
        fatal=True,
        explains_errors=cuda.matching_exceptions(facts, failed),
    )
