"""CUDA is not ready because the fabric manager is not running."""

from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.hardware.cuda import code_of
from nccl_inspect.judging.hardware.cuda import failed_calls as cuda_failed
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.statements import error_of

RULE = Rule(
    name="fabric-manager-down",
    category="intra-node path",
    layer=Layer.HARDWARE,
    title="CUDA is not ready on a machine with NVSwitch: the fabric manager is not running",
    echoes=("cuda-init-error", "peer-death", "watchdog-*"),
    supersedes=("cuda-call-failed", "nccl-tests-failed", "nvls-fabric-manager", "nvls-unavailable"),
    local=True,
)
_NOT_READY = {802: "system not yet initialized", 919: "the GPU fabric is not ready"}
"""919 since CUDA 13, if the driver's wait for the fabric times out."""
_WORDS = _NOT_READY[802]


def judge(facts: Facts) -> Results:
    """Judge CUDA errors 802 and 919, whoever prints them; no other fault causes them."""
    stated = [notice for notice in facts.with_role("program-cuda-error") if _WORDS in error_of(notice)]
    failed = [
        *(notice for notice in cuda_failed(facts) if code_of(notice) in _NOT_READY),
        *(notice for notice in stated if not exceptions.is_survived(facts, notice)),
    ]
    if not failed:
        return
    code = code_of(failed[0]) or 802
    yield RULE.finding(
        f"CUDA is not ready: {_NOT_READY[code]} ({code})",
        cause="the GPUs are behind an NVSwitch, and the fabric manager, which must set up the switches first, is not "
        "running, failed, or has a different version than the driver",
        impact="no program can use the GPUs of this machine",
        fix=[
            "systemctl enable --now nvidia-fabricmanager; journalctl -u nvidia-fabricmanager",
            "apt-get install nvidia-fabricmanager-<branch>=<version>   # exactly the version that nvidia-smi "
            "shows for the driver",
            "nvidia-smi -q | grep -A4 Fabric   # for a virtual machine, the fabric manager runs on the host or in the "
            "service VM",
        ],
        notices=failed,
        fatal=True,
    )
