"""CUDA itself cannot be initialized."""

from nccl_inspect.judging.engine import Effects, Facts, Layer, Notice, Results, Rule, value
from nccl_inspect.judging.hardware.cuda import ANSWERS, CUDA_CODES, code_of, file_of
from nccl_inspect.judging.hardware.cuda import failed_calls as cuda_failed
from nccl_inspect.judging.hardware.cuda_codes import AT_START
from nccl_inspect.judging.process_ends import exceptions
from nccl_inspect.judging.statements import error_of, message_of
from nccl_inspect.util.text import cut

RULE = Rule(
    name="cuda-init-error",
    category="environment",
    layer=Layer.RESOURCE,
    title="CUDA cannot be initialized",
    supersedes=("cuda-call-failed", "cuda-failure-in-connect", "cuda-failure-in-launch", "nccl-tests-failed"),
    local=True,
)
_CAUSES = {code: ANSWERS[code].cause for code in AT_START & ANSWERS.keys()} | {
    3: "CUDA was used before a fork: a child process cannot use it",
    35: "the driver is older than the CUDA release that NCCL or the framework was built for",
    100: "the process sees no GPU: the container has none, CUDA_VISIBLE_DEVICES is empty, or a GPU failed",
    101: "the program uses a GPU that this process does not see: fewer GPUs than ranks on the host, a local rank "
    "that does not match CUDA_VISIBLE_DEVICES, or a container with only some of the GPUs",
    127: "CUDA could not start in this process: no memory, a half-installed driver, or a limit of the container",
    803: "the driver's kernel module and its libraries have different versions",
    999: "the driver failed: a lost GPU (Xid), a broken kernel module (nvidia_uvm), or a reset is needed; or the "
    "container lost its access to the GPUs (a systemctl daemon-reload on the host can revoke it)",
}
_NOT_INITIALIZED, _BUSY, _UNKNOWN, _NO_DEVICE = 3, 46, 999, 100
_WIDTH = 200
_NVML = {"Driver/library version mismatch": 803, "Driver Not Loaded": _NO_DEVICE, "Unknown Error": _UNKNOWN}
"""Errors of NVML, with the CUDA error that has the same causes."""
_STATED = {"torch/no-gpus": _NO_DEVICE, "torch/no-gpus-available": _NO_DEVICE, "torch/driver-too-old": 35}
"""PyTorch's own messages."""
_VISIBLE = "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES   # inside the container: which GPUs are visible?"
_FIX = {code: ANSWERS[code].fix for code in AT_START & ANSWERS.keys()} | {
    3: ('torch.multiprocessing.set_start_method("spawn")   # and no CUDA call before the workers start',),
    35: ("Install a newer driver, or use an image with an older CUDA; data center GPUs: the cuda-compat package.",),
    100: (
        "--gpus all   # option of docker run",
        "resources: {limits: {nvidia.com/gpu: <GPUs of the node>}}   # pod spec",
        _VISIBLE,
    ),
    101: (
        "torchrun --nproc_per_node=gpu <script>   # as many processes as GPUs",
        'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # in the program, before the first use of CUDA',
        _VISIBLE,
    ),
    127: (
        "nvidia-smi; free -m; ulimit -a   # inside the container: does the driver answer, is there memory?",
        _VISIBLE,
    ),
    803: ("After a driver upgrade, reboot or reload its modules; remove any other libcuda.so from the image.",),
    999: (
        "nvidia-smi -L   # in the container and on the host: if it fails only in the container, restart that",
        "dmesg -T | grep -i xid; nvidia-smi   # what does the driver report?",
        "modprobe nvidia_uvm   # is the module loaded? If it is, reset the GPU (nvidia-smi -r) or reboot",
    ),
}


def judge(facts: Facts) -> Results:
    """Judge errors of CUDA's initialization; a process that already connects has another fault."""
    codes = {id(notice): code for notice in cuda_failed(facts) if (code := _code(notice)) is not None}
    failed = [notice for notice in cuda_failed(facts) if id(notice) in codes]
    program = [*facts.with_role("program-cuda-error"), *facts.notices(*_STATED)]
    survived = [notice for notice in program if exceptions.is_survived(facts, notice)]
    yield Effects(survived)
    program = [notice for notice in program if notice not in survived]
    program_codes = {id(notice): code for notice in program if (code := _program_code(notice)) is not None}
    failed += [notice for notice in program if id(notice) in program_codes]
    nvml = {
        id(notice): code for notice in facts.notices("nccl/nvml-failed") if (code := _nvml_code(notice)) is not None
    }
    notices = [*failed, *(notice for notice in facts.notices("nccl/nvml-failed") if id(notice) in nvml)]
    if not notices:
        return
    errors = sorted({*codes.values(), *program_codes.values(), *nvml.values()})
    errors = [code for code in errors if code != _NO_DEVICE] or errors  # "no GPU" follows from the others
    yield RULE.finding(
        f"CUDA cannot be initialized: {cut(message_of(notices[0]).strip(), _WIDTH)}",
        cause="; ".join(_CAUSES[code] for code in errors),
        impact="this rank cannot use its GPU: the job does not start",
        fix=[step for code in errors for step in _FIX[code]],
        confidence="likely" if {_BUSY, _UNKNOWN}.issuperset(errors) else "certain",
        notices=notices,
        fatal=True,
    )


def _code(notice: Notice) -> int | None:
    code = code_of(notice)
    connecting = "transport" in file_of(notice) or file_of(notice).endswith(("proxy.cc", "channel.cc"))
    return code if code in _CAUSES and (code == _NOT_INITIALIZED or not connecting) else None


def _program_code(notice: Notice) -> int | None:
    """The code of an error that the program's own CUDA call returned; 'unknown error' may occur at any time."""
    if notice.production in _STATED:
        return _STATED[notice.production]
    words = (text for text, code in CUDA_CODES.items() if code in _CAUSES and code != _UNKNOWN)
    return next((CUDA_CODES[text] for text in words if text in error_of(notice)), None)


def _nvml_code(notice: Notice) -> int | None:
    """The code for an NVML error at WARN, which stops NCCL (src/misc/nvmlwrap.cc)."""
    return _NVML.get(str(value(notice, "error"))) if notice.level == "WARN" else None
