"""A CUDA call failed in NCCL, and the log shows neither which nor why."""

from nccl_inspect.judging import propagated_errors, stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.hardware import cuda

RULE = Rule(
    name="unhandled-cuda-error",
    category="failures",
    layer=Layer.CALL,
    title="A CUDA call failed in NCCL, and the log does not show which",
)
_CUDA_ERROR = 1


def judge(facts: Facts) -> Results:
    """Judge NCCL's code 1 if neither a warning nor CUDA's own message explains it."""
    errors = propagated_errors.unexplained(facts, _CUDA_ERROR)
    if not errors or cuda.failures(facts):
        return
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        "NCCL reports a CUDA error (code 1), but no warning names the call that failed",
        cause="unknown from this log; likely: the GPU is full or already in use by another rank, an earlier kernel "
        "failed, the driver is older than this CUDA, or a device or NVLink is broken",
        stops="the call fails, and with it the job",
        fix=(
            "NCCL_DEBUG=INFO   # on all ranks, and run again: the 'Cuda failure' line of this rank names the reason",
            "nvidia-smi; dmesg -T | grep -iE 'xid|nvrm'   # on its host: memory in use, driver, faults",
            "CUDA_LAUNCH_BLOCKING=1   # if the program's own kernel may have failed before: names the kernel",
        ),
        confirm="Look for an exception of the same rank.",
    )
