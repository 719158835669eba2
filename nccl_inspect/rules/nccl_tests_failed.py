"""nccl-tests ended with an error that nothing else in the log explains."""

from nccl_inspect.judging.engine import Facts, Layer, Notice, Results, Rule, first_evidence, value
from nccl_inspect.judging.hardware import cuda
from nccl_inspect.judging.statements import is_propagated_error

RULE = Rule(
    name="nccl-tests-failed",
    category="failures",
    layer=Layer.FRAMEWORK,
    title="nccl-tests ended with an error",
)
_WITH_INFO = "NCCL_DEBUG=INFO   # on all ranks, then rerun: the first WARN says what failed"
_FIX = {
    "nccl-tests/test-nccl-failure": (_WITH_INFO,),
    "nccl-tests/test-cuda-failure": (cuda.DO_THEY_FIT, cuda.IS_BROKEN),
    "nccl-tests/test-timeout": (
        _WITH_INFO,
        "py-spy dump --pid <pid>   # (or gdb) on every rank, during the hang: where does it wait?",
    ),
    "nccl-tests/test-too-few-gpus": (
        "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES   # in each process: which GPUs does it see?",
    ),
}


def judge(facts: Facts) -> Results:
    """Judge the test's last lines, where the log has no error of NCCL or the machine."""
    notices = facts.notices(*_FIX)
    if not notices or any(
        not is_propagated_error(failure) and failure.production not in _FIX
        for failure in facts.errors(forced_ends=False)
    ):
        return
    first = notices[0]
    code = (
        cuda.CUDA_CODES.get(str(value(first, "error"))) if first.production == "nccl-tests/test-cuda-failure" else None
    )
    yield RULE.finding(
        f"nccl-tests ended with an error: {first.message.strip()}",
        cause=_cause(first, code),
        impact="the test did not finish: its numbers, if any, are incomplete",
        fix=cuda.fix(code, _FIX[first.production]),
        evidence=first_evidence(notices),
        fatal=True,
    )


def _cause(first: Notice, code: int | None) -> str:
    match first.production:
        case "nccl-tests/test-cuda-failure" if code == cuda.OUT_OF_MEMORY:
            return "the buffers of the test do not fit: the size (-e) is too large, or another process uses the GPU"
        case "nccl-tests/test-cuda-failure":
            return cuda.cause(code)
        case "nccl-tests/test-timeout":
            return "unknown from this log; likely: a rank hangs or never arrived, or calls exceed the limit (-T)"
        case "nccl-tests/test-too-few-gpus":
            return "the processes of a host request more GPUs (-g, -t) than it has, or than they can see"
    return "unknown from this log: an NCCL call failed, and NCCL's own lines about it are missing"
