"""The ROCm runtime or its management library fails RCCL."""

from collections.abc import Iterator

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Rule
from nccl_inspect.judging.facts import Facts
from nccl_inspect.model.finding import Finding, NotJudged

RULE = Rule(
    name="rocm-failed",
    category="environment",
    severity="error",
    title="The ROCm runtime or its management library does not work for RCCL",
)


def judge(facts: Facts) -> Iterator[Finding | NotJudged]:
    """Judge what RCCL says of calls into ROCm."""
    said = facts.leading_to(RULE.name)
    if not said:
        return
    yield stated_errors.finding(
        RULE,
        facts,
        said,
        f"a part of ROCm does not work: {said[0].message}",
        cause="the ROCm release of the image does not fit the driver or this build of RCCL, the container does not see "
        "/dev/kfd, /dev/dri and /sys of the host, or a GPU is in trouble",
        stops="RCCL cannot learn how GPUs are connected, use DMA-BUF or start its kernels: it is slow, or stops",
        fix=(
            "rocm-smi; rocminfo | grep gfx; ls -l /dev/kfd /dev/dri   # inside the container",
            "--device=/dev/kfd --device=/dev/dri --group-add video --security-opt seccomp=unconfined   # docker run",
            "Take RCCL and ROCm of one release, for the driver of the host; RCCL must be built for this gfx "
            "architecture.",
            "dmesg -T | grep -i amdgpu   # on its host",
        ),
        confirm="Check whether connections follow, and which transport they use (via …).",
    )
