"""The ROCm runtime or its management library does not work for RCCL."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Results, Rule

RULE = Rule(
    name="rocm-failed",
    category="environment",
    title="The ROCm runtime or its management library does not work for RCCL",
)


def judge(facts: Facts) -> Results:
    """Judge RCCL's errors about calls into ROCm."""
    errors = facts.errors_of_rule(RULE.name)
    if not errors:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        errors,
        f"a ROCm component does not work: {errors[0].message}",
        cause="the ROCm release of the image does not match the driver or this build of RCCL, the container does not "
        "see /dev/kfd, /dev/dri and /sys of the host, or a GPU is faulty",
        stops="RCCL cannot detect how GPUs are connected, use DMA-BUF or start its kernels: it is slow, or stops",
        fix=(
            "rocm-smi; rocminfo | grep gfx; ls -l /dev/kfd /dev/dri   # inside the container",
            "--device=/dev/kfd --device=/dev/dri --group-add video --security-opt seccomp=unconfined   # docker run",
            "Use RCCL and ROCm of one release that matches the host's driver; RCCL must be built for this gfx "
            "architecture.",
            "dmesg -T | grep -i amdgpu   # on the host of this GPU",
        ),
        confirm="Check whether connections follow, and which transport they use (via …).",
    )
