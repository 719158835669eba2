"""The libraries of the NVIDIA driver are missing or too old."""

from nccl_inspect.judging.engine import Facts, Results, Rule, value

RULE = Rule(
    name="cuda-lib-missing",
    category="environment",
    title="A library of the NVIDIA driver cannot be loaded, or lacks a function",
    supersedes=("cuda-init-error",),
    local=True,
)


def judge(facts: Facts) -> Results:
    """Judge libcuda and libnvidia-ml; libgdrapi is optional."""
    nvml = [notice for notice in facts.errors_of_rule(RULE.name) if not value(notice, "__library")]
    failed = [*facts.notices("nccl/cuda-library-missing", "nccl/cuda-symbol-missing"), *nvml]
    if not failed:
        return
    fatal = not facts.job.paths and (facts.job.failed or bool(nvml))
    lacks = all(notice.production == "nccl/cuda-symbol-missing" for notice in failed)
    yield RULE.finding(
        f"NCCL cannot use a library of the driver: {failed[0].message}",
        cause="the driver's library is older than this NCCL needs, or is a stub"
        if lacks
        else "the container was started without the NVIDIA runtime, so it lacks the driver's libraries, or "
        "NCCL_CUDA_PATH names another folder",
        impact="initialization fails"
        if fatal
        else "in this log NCCL continues, without cuMem (P2P/IPC instead of P2P/CUMEM), DMA-BUF and NVLS",
        fix=[
            "--gpus all   # option of docker run; needs the NVIDIA Container Toolkit",
            "runtimeClassName: nvidia   # pod spec, with resources: {limits: {nvidia.com/gpu: <GPUs>}}",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility   # of the container: utility provides libnvidia-ml.so.1",
            "nvidia-smi; ldconfig -p | grep -E 'libcuda.so|libnvidia-ml'   # inside the container; remove any stubs "
            "folder from LD_LIBRARY_PATH",
            "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH; unset NCCL_CUDA_PATH   # WSL",
        ],
        severity="error" if fatal else "info" if facts.job.paths else "warning",
        notices=failed,
        fatal=fatal,
    )
