"""A CUDA call of NCCL failed, and the log does not say in which part of NCCL."""

from __future__ import annotations

from collections.abc import Iterator

from nccl_inspect.model.job import Finding, NotJudged
from nccl_inspect.rules import cuda
from nccl_inspect.rules.engine import Rule
from nccl_inspect.rules.facts import Facts, first_said, hosts_in, listed, ranks_in

RULE = Rule(
    name="cuda-call-failed",
    category="failures",
    severity="error",
    title="A CUDA call of NCCL failed",
    specific=(
        "cuda-failure-in-connect",
        "cuda-failure-in-launch",
        "cuda-init-error",
        "fabric-manager-down",
        "gpu-hardware-error",
        "gpu-out-of-memory",
        "nccl-too-old",
        "peer-mapping-exhausted",
    ),
)
_FIX = (
    "NCCL_DEBUG=INFO   # on all ranks, and run again: the WARN of this rank has the place, the lines above it the step",
    cuda.DO_THEY_FIT,
    cuda.IS_BROKEN,
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge failures without a source file, as exceptions pass them on, by what CUDA says."""
    failed = [failure for failure in cuda.failures(facts) if failure.file is None and _tells(failure)]
    if not failed:
        return
    cuda.pass_over_retold(facts, failed)
    code, notices = failed[0].code, [failure.notice for failure in failed]
    yield RULE.finding(
        f"a CUDA call of NCCL failed: {listed(map(cuda.words, failed))}",
        cause=cuda.cause(code),
        impact="the rank fails, and with it the job; the others wait for it or lose their connections",
        fix=cuda.fix(code, (cuda.WHICH_KERNEL, *_FIX) if code in cuda.KERNEL_ERRORS else _FIX),
        confidence="likely",
        ranks=ranks_in(notices),
        hosts=hosts_in(notices),
        evidence=first_said(notices),
        fatal=True,
    )


def _tells(failure: cuda.Failure) -> bool:
    """Whether the error itself says what was wrong, whatever made the call."""
    return failure.code in cuda.KERNEL_ERRORS or failure.code in cuda.ANSWERS
