"""CUDA is not ready because the fabric manager is not running."""

from nccl_inspect.judging import stated_errors
from nccl_inspect.judging.engine import Facts, Layer, Results, Rule
from nccl_inspect.judging.hardware.cuda import code_of
from nccl_inspect.judging.hardware.cuda import failed_calls as cuda_failed
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.statements import error_of, find_text

RULE = Rule(
    name="fabric-manager-down",
    category="intra-node path",
    layer=Layer.HARDWARE,
    title="CUDA is not ready on a machine with NVSwitch: the fabric manager is not running",
    supersedes=("cuda-call-failed", "nccl-tests-failed", "nvls-fabric-manager", "nvls-unavailable"),
    local=True,
)
_NOT_READY = {802: "system not yet initialized", 919: "the GPU fabric is not ready"}
"""919 since CUDA 13, if the driver's wait for the fabric times out."""
_WORDS = _NOT_READY[802]
_VERSION = "fabric/fabric-manager-version"


def judge(facts: Facts) -> Results:
    """Judge CUDA errors 802 and 919, whoever prints them; no other fault causes them."""
    stated = [notice for notice in facts.with_role("program-cuda-error") if _WORDS in error_of(notice)]
    failed = [
        *(notice for notice in cuda_failed(facts) if code_of(notice) in _NOT_READY),
        *(notice for notice in stated if not exceptions.is_survived(facts, notice)),
    ]
    service = facts.errors_of_rule(RULE.name)
    if not failed and not service:
        return
    code = code_of(failed[0]) or 802 if failed else 802
    is_dead = bool(failed) or stated_errors.is_fatal(facts, service)
    yield RULE.finding(
        f"CUDA is not ready: {_NOT_READY[code]} ({code})"
        if failed
        else f"the fabric manager is not working: {find_text(service[0])}",
        cause="the GPUs are behind an NVSwitch, and the fabric manager, which must set up the switches first, is not "
        "running, failed, or has a different version than the driver"
        if failed or not facts.notices(_VERSION)
        else "the fabric manager and the driver are of different releases, most often after an update without a reboot",
        impact="no program can use the GPUs of this machine",
        fix=[
            "systemctl enable --now nvidia-fabricmanager; journalctl -u nvidia-fabricmanager",
            "apt-get install nvidia-fabricmanager-<branch>=<version>   # exactly the version that nvidia-smi "
            "shows for the driver",
            "nvidia-smi -q | grep -A4 Fabric   # for a virtual machine, the fabric manager runs on the host or in the "
            "service VM",
        ],
        severity="error" if is_dead else "warning",
        confidence="certain" if failed or facts.notices(_VERSION) else "likely",
        notices=[*failed, *service],
        explains_errors=service,
        fatal=is_dead,
    )
