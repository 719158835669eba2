"""nccl-tests ended with an error that nothing else in the log explains."""

from collections.abc import Iterator

from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts, first_said
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.statements import is_retold, value
from nccl_inspect.model.finding import Finding, NotJudged
from nccl_inspect.model.job import Notice

RULE = Rule(
    name="nccl-tests-failed",
    category="failures",
    severity="error",
    title="nccl-tests ended with an error",
)
_WITH_INFO = "NCCL_DEBUG=INFO   # on all ranks, and run again: the first WARN says what failed"
_FIX = {
    "nccl-tests/test-nccl-failure": (_WITH_INFO,),
    "nccl-tests/test-cuda-failure": (cuda.DO_THEY_FIT, cuda.IS_BROKEN),
    "nccl-tests/test-timeout": (
        _WITH_INFO,
        "py-spy dump --pid <pid>   # (or gdb) on every rank, while it waits: where does it stand?",
    ),
    "nccl-tests/test-too-few-gpus": (
        "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES   # in each process: which GPUs does it see?",
    ),
}


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what the test prints before it ends, where no error of NCCL or of the machine stands beside it."""
    said = facts.notices(*_FIX)
    if not said or any(not is_retold(one) and one.production not in _FIX for one in facts.failures()):
        return
    first = said[0]
    code = (
        cuda.CUDA_CODES.get(str(value(first, "error"))) if first.production == "nccl-tests/test-cuda-failure" else None
    )
    yield RULE.finding(
        f"nccl-tests ended with an error: {first.message.strip()}",
        cause=_cause(first, code),
        impact="the test did not run to its end: its numbers, if any, are incomplete",
        fix=cuda.fix(code, _FIX[first.production]),
        evidence=first_said(said),
        fatal=True,
    )


def _cause(first: Notice, code: int | None) -> str:
    match first.production:
        case "nccl-tests/test-cuda-failure" if code == cuda.OUT_OF_MEMORY:
            return "the buffers of the test do not fit: the size (-e) is too large, or another process uses the GPU"
        case "nccl-tests/test-cuda-failure":
            return cuda.cause(code)
        case "nccl-tests/test-timeout":
            return (
                "unknown from this log; likely: "
                "a rank hangs or never came, or the calls take longer than the limit (-T)"
            )
        case "nccl-tests/test-too-few-gpus":
            return "the processes of a host ask for more GPUs (-g, -t) than there are, or than they may see"
    return "unknown from this log: a call of NCCL failed, and NCCL's own lines about it are not here"
