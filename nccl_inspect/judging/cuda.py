"""Failed CUDA calls: their codes and meanings, what made them, and fixes for errors that are the cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nccl_inspect.event.types import CudaFailure, ErrorCascade
from nccl_inspect.judging.check import Hit
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_failure
from nccl_inspect.util.records import Frozen, frozen

CUDA_CODES = {
    "invalid argument": 1,
    "out of memory": 2,
    "initialization error": 3,
    "driver shutting down": 4,
    "invalid configuration argument": 9,
    "invalid device symbol": 13,
    "invalid host pointer": 16,
    "invalid device pointer": 17,
    "CUDA driver is a stub library": 34,
    "CUDA driver version is insufficient for CUDA runtime version": 35,
    "API call is not supported in the installed CUDA driver": 36,
    "CUDA-capable device(s) is/are busy or unavailable": 46,
    "all CUDA-capable devices are busy or unavailable": 46,
    "incompatible driver context": 49,
    "unspecified launch failure in prior launch": 53,
    "invalid device function": 98,
    "no CUDA-capable device is detected": 100,
    "invalid device ordinal": 101,
    "device doesn't have valid Grid license": 102,
    "integrity checks failed": 103,
    "startup failure in cuda runtime": 127,
    "device kernel image is invalid": 200,
    "invalid device context": 201,
    "no kernel image is available for execution on the device": 209,
    "uncorrectable ECC error encountered": 214,
    "limit is not supported on this architecture": 215,
    "exclusive-thread device already in use by a different thread": 216,
    "peer access is not supported between these two devices": 217,
    "a PTX JIT compilation failed": 218,
    "uncorrectable NVLink error detected during the execution": 220,
    "PTX JIT compiler library not found": 221,
    "the provided PTX was compiled with an unsupported toolchain.": 222,
    "PTX JIT compilation was disabled": 223,
    "Invalid access of peer GPU memory over nvlink or a hardware error": 226,
    "Loader version is insufficient for fatbin": 227,
    "file not found": 301,
    "shared object symbol not found": 302,
    "shared object initialization failed": 303,
    "OS call failed or operation not supported on this OS": 304,
    "invalid resource handle": 400,
    "the operation cannot be performed in the present state": 401,
    "named symbol not found": 500,
    "device not ready": 600,
    "an illegal memory access was encountered": 700,
    "too many resources requested for launch": 701,
    "the launch timed out and was terminated": 702,
    "peer access is already enabled": 704,
    "peer access has not been enabled": 705,
    "cannot set while device is active in this process": 708,
    "context is destroyed": 709,
    "device-side assert triggered": 710,
    "peer mapping resources exhausted": 711,
    "part or all of the requested memory range is already mapped": 712,
    "pointer does not correspond to a registered memory region": 713,
    "hardware stack error": 714,
    "an illegal instruction was encountered": 715,
    "misaligned address": 716,
    "operation not supported on global/shared address space": 717,
    "invalid program counter": 718,
    "unspecified launch failure": 719,
    "too many blocks in cooperative launch": 720,
    "operation not permitted": 800,
    "operation not supported": 801,
    "system not yet initialized": 802,
    "system has unsupported display driver / cuda driver combination": 803,
    "forward compatibility was attempted on non supported HW": 804,
    "MPS client failed to connect to the MPS control daemon or the MPS server": 805,
    "the remote procedural call between the MPS server and the MPS client failed": 806,
    "MPS server is not ready to accept new MPS client requests": 807,
    "the hardware resources required to create MPS client have been exhausted": 808,
    "the hardware resources required to support device connections have been exhausted": 809,
    "the MPS client has been terminated by the server": 810,
    "operation not permitted when stream is capturing": 900,
    "operation failed due to a previous error during capture": 901,
    "operation would result in a merge of separate capture sequences": 902,
    "capture was not ended in the same stream as it began": 903,
    "capturing stream has unjoined work": 904,
    "dependency created on uncaptured work in another stream": 905,
    "operation would make the legacy stream depend on a capturing blocking stream": 906,
    "operation not permitted on an event last recorded in a capturing stream": 907,
    "attempt to terminate a thread-local capture sequence from another thread": 908,
    "an async error has occured in external entity outside of CUDA": 911,
    "a kernel launch error has occurred due to cluster misconfiguration": 912,
    "the function handle is not loaded when calling an API that requires a loaded function": 913,
    "GPU fabric is not ready within the probe wait budget; application may retry "
    "(see CUDA_FABRIC_INIT_TIMEOUT_MS)": 919,
    "unknown error": 999,
}
"""Texts of cudaGetErrorString (CUDA 11.8 to 13): runtime calls print only the text, driver calls also the number. Up
to CUDA 10.0 many texts had other numbers, so the text takes precedence."""
KERNEL_ERRORS = {
    53: "launch failure",
    700: "illegal address",
    702: "time-out of a launch",
    710: "device-side assert",
    714: "stack error",
    715: "illegal instruction",
    716: "misaligned address",
    717: "wrong address space",
    718: "invalid program counter",
    719: "launch failure",
}
"""Errors of a kernel: the next CUDA call reports them, whoever makes it."""
MEANINGS = {
    1: "an argument that this driver or GPU does not accept",
    9: "a launch that this GPU does not support: blocks or shared memory beyond its limits",
    13: "a symbol that does not exist for this GPU: the library was built for others",
    16: "a host pointer unknown to CUDA",
    17: "a pointer outside this GPU's memory: freed, or of another GPU",
    49: "the context of this process was created by an older CUDA API",
    101: "a GPU that this process cannot see",
    103: "the driver failed its integrity check: reinstall it",
    127: "CUDA could not start in this process: no memory, an incomplete driver installation, or a limit of the "
    "container",
    200: "the code in the library does not match this GPU or driver, or the file is damaged",
    201: "the process has no valid CUDA context: it was destroyed, or the process is a fork of one that used CUDA",
    215: "a limit that this GPU does not support",
    304: "an operating system call was refused: a sandbox, missing capabilities or another namespace",
    400: "a handle that is not valid in this process",
    401: "a call that the driver does not allow in its present state",
    500: "a kernel that is not in this library: it was built for other GPUs, or two NCCL libraries are mixed",
    600: "unfinished work was treated as an error",
    701: "the kernel needs more registers or shared memory than this GPU has: built for another GPU, or for debugging",
    704: "P2P between two GPUs was enabled twice: the program did it before NCCL and did not clear the error. "
    "Harmless, but CUDA reports it at the next call",
    705: "P2P between two GPUs was never enabled, or was disabled by the program",
    708: "a setting that must precede the first use of the GPU",
    709: "the CUDA context was destroyed while NCCL still used it: cudaDeviceReset, or the end of the process",
    712: "host memory was already registered",
    713: "host memory that is not registered",
    720: "more blocks than fit on this GPU at once: other programs share it, or MPS or MIG provide only a part of it",
    800: "not permitted: missing rights or capabilities in the container",
    801: "not supported by this GPU, driver or virtual machine",
    911: "something outside of CUDA failed, such as a NIC that writes to a GPU",
    912: "a launch with clusters that this GPU does not support",
    913: "a kernel that was not loaded",
    999: "an error without a number in the driver: usually a lost GPU (Xid), or a driver in a bad state",
}


TRIALS: dict[int | None, tuple[str, ...]] = {
    801: (
        "NCCL_CUMEM_ENABLE=0   # as a test: if the job then runs, cuMem memory is at fault, as with some vGPUs and "
        "old drivers",
        "NCCL_NVLS_ENABLE=0   # as a test: if the job then runs, NVSwitch multicast is at fault",
    ),
}
"""Settings that disable features that may not be supported."""


@frozen
class Answer(Frozen):
    """An error whose text is the cause, whatever call returns it: the GPU is not broken."""

    cause: str
    fix: tuple[str, ...]


DO_THEY_FIT = "nvidia-smi; python -c 'import torch; print(torch.version.cuda)'   # do driver and CUDA match?"
_COMPAT = "ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH   # in the container: is cuda/compat found first?"
_NEWER_DRIVER = ("Install a newer driver, or take an image with an older CUDA.", DO_THEY_FIT)
_RESTART_MPS = (
    "ps aux | grep nvidia-cuda-mps; cat /var/log/nvidia-mps/*.log   # on the host: does the daemon run?",
    "echo quit | nvidia-cuda-mps-control; nvidia-cuda-mps-control -d   # restart it as the user of the job",
    "env | grep CUDA_MPS   # in the container: CUDA_MPS_PIPE_DIRECTORY of the daemon; unset: no MPS",
)
ANSWERS = {
    34: Answer(
        "the process loaded the stub of libcuda.so, which is only for linking, instead of the driver's library",
        (
            "ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH   # remove the folder 'stubs' from the path",
            "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility   # of the container",
        ),
    ),
    36: Answer(
        "the driver is too old: it lacks a call that NCCL or the framework makes",
        _NEWER_DRIVER,
    ),
    46: Answer(
        "the GPU accepts no other process: usually it is in exclusive compute mode and another process uses it (two "
        "ranks on one GPU, or a leftover of an earlier job); else MIG without an instance, or a GPU in a bad state",
        (
            "nvidia-smi --query-gpu=index,compute_mode,mig.mode.current --format=csv   # Exclusive_Process?",
            "nvidia-smi --query-compute-apps=pid,name,gpu_uuid --format=csv   # on the host: who has it?",
            "sudo nvidia-smi -c DEFAULT   # if it is Exclusive_Process and several processes must share it",
        ),
    ),
    102: Answer(
        "the virtual GPU has no valid licence, without which CUDA does not run on it",
        ("nvidia-smi -q | grep -i -A2 license; systemctl status nvidia-gridd   # in the virtual machine: licensed?",),
    ),
    217: Answer(
        "P2P cannot work between these two GPUs: the driver has no peer access for this pair (GPU model, PCIe "
        "topology, virtual machine), though NCCL selected P2P",
        (
            "nvidia-smi topo -p2p r   # which pairs have peer access? OK, CNS (chipset), GNS (GPU), NS",
            "NCCL_P2P_DISABLE=1   # as a test: the job then runs over shared memory",
        ),
    ),
    222: Answer(
        "the driver is too old for the code in the library: it must support the same CUDA release or a later one",
        _NEWER_DRIVER,
    ),
    218: Answer(
        "the library has no code for this GPU, and its PTX could not be compiled for it: the release is older than the "
        "GPU, or the driver too old for it",
        ("pip install -U nvidia-nccl-cu12   # or -cu13, a newer PyTorch wheel, a newer image", DO_THEY_FIT),
    ),
    221: Answer(
        "the library has no code for this GPU, and the driver's compiler is not in the container",
        (
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility   # of the container: mounts libnvidia-ptxjitcompiler.so",
            "pip install -U nvidia-nccl-cu12   # or -cu13: a release that is built for this GPU",
        ),
    ),
    223: Answer(
        "the library has no code for this GPU, and CUDA_DISABLE_PTX_JIT prevents compiling it",
        (
            "unset CUDA_DISABLE_PTX_JIT",
            "pip install -U nvidia-nccl-cu12   # or -cu13: a release that is built for this GPU",
        ),
    ),
    804: Answer(
        "a cuda-compat package is used on a GPU that does not support it: only data center GPUs do",
        (
            _COMPAT,
            "Remove the compat folder from LD_LIBRARY_PATH (or the package cuda-compat-*) in the image, and use a "
            "driver that is new enough without it, or an image with an older CUDA.",
        ),
    ),
}
ANSWERS[216] = ANSWERS[46]
ANSWERS[227] = ANSWERS[222]
ANSWERS |= dict.fromkeys(
    (805, 806, 807), Answer("the MPS service of the host is not running or does not respond", _RESTART_MPS)
)
ANSWERS |= dict.fromkeys(
    (808, 809),
    Answer("the MPS service of the host has reached its limit of processes: too many ranks on a GPU", _RESTART_MPS),
)
ANSWERS[810] = Answer(
    "the MPS service terminated this process: another process on the same GPU failed, or an administrator did it",
    _RESTART_MPS,
)
ANSWERS |= dict.fromkeys(
    range(900, 909),
    Answer(
        "during the capture of a CUDA graph a call was made that a capture does not allow, usually by another thread "
        "of the process (PyTorch's watchdog, a data loader): in global mode, calls of other threads count as well",
        (
            'torch.cuda.graph(graph, capture_error_mode="thread_local")   # then only calls of this thread count',
            "Keep other threads from using CUDA during the capture; first run once without the graph, so that NCCL "
            "has its communicators and buffers.",
        ),
    ),
)
AT_START = frozenset((3, 34, 35, 46, 100, 101, 102, 127, 216, *range(803, 810), 999))
"""Errors from starting CUDA; a process that already connects has CUDA, and another fault."""

_VISIBLE = "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES   # inside the container: which GPUs are visible?"
START_ANSWERS = {code: ANSWERS[code] for code in AT_START & ANSWERS.keys()} | {
    3: Answer(
        "CUDA was used before a fork: a child process cannot use it",
        ('torch.multiprocessing.set_start_method("spawn")   # and no CUDA call before the workers start',),
    ),
    35: Answer(
        "the driver is older than the CUDA release that NCCL or the framework was built for",
        ("Install a newer driver, or use an image with an older CUDA; data center GPUs: the cuda-compat package.",),
    ),
    100: Answer(
        "the process sees no GPU: the container has none, CUDA_VISIBLE_DEVICES is empty, or a GPU failed",
        (
            "--gpus all   # option of docker run",
            "resources: {limits: {nvidia.com/gpu: <GPUs of the node>}}   # pod spec",
            _VISIBLE,
        ),
    ),
    101: Answer(
        "the program uses a GPU that this process does not see: fewer GPUs than ranks on the host, a local "
        "rank that does not match CUDA_VISIBLE_DEVICES, or a container with only some of the GPUs",
        (
            "torchrun --nproc_per_node=gpu <script>   # as many processes as GPUs",
            'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))   # in the program, before the first use of CUDA',
            _VISIBLE,
        ),
    ),
    127: Answer(
        "CUDA could not start in this process: no memory, a half-installed driver, or a limit of the container",
        (
            "nvidia-smi; free -m; ulimit -a   # inside the container: does the driver answer, is there memory?",
            _VISIBLE,
        ),
    ),
    803: Answer(
        "the driver's kernel module and its libraries have different versions",
        ("After a driver upgrade, reboot or reload its modules; remove any other libcuda.so from the image.",),
    ),
    999: Answer(
        "the driver failed: a lost GPU (Xid), a broken kernel module (nvidia_uvm), or a reset is needed; or "
        "the container lost its access to the GPUs (a systemctl daemon-reload on the host can revoke it)",
        (
            "nvidia-smi -L   # in the container and on the host: if it fails only in the container, restart that",
            "dmesg -T | grep -i xid; nvidia-smi   # what does the driver report?",
            "modprobe nvidia_uvm   # is the module loaded? If it is, reset the GPU (nvidia-smi -r) or reboot",
        ),
    ),
}
"""Errors while CUDA starts."""


__all__ = ["ANSWERS", "CUDA_CODES", "DO_THEY_FIT", "KERNEL_ERRORS", "MEANINGS", "Answer"]

_LAUNCH = ("enqueue", "ce_coll", "device/", "rma/", "scheduler/", "sym_kernels", "misc/strongstream")
"""Prefixes of source files that launch kernels and copies or wait for streams; all others build communicators and
connections."""
IS_BROKEN = "dmesg -T | grep -i xid; nvidia-smi -q | grep -iE 'retired|remap|ecc errors' -A3   # is a GPU broken?"
WHICH_KERNEL = "CUDA_LAUNCH_BLOCKING=1   # the traceback then names the kernel; compute-sanitizer shows more"
WHICH_PLACE = (
    "NCCL_DEBUG=INFO   # on all ranks, and rerun: the WARN of this rank names the place, the lines above it the step"
)
WHICH_CONNECTION = "NCCL_DEBUG=INFO   # on all ranks: the lines above the warning show which connection was being made"
SAME_DRIVER = "nvidia-smi   # on the host and in the container: same driver, all GPUs, a matching CUDA?"
ALL_GPUS = "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility   # of the container"
EARLIER_OUTPUT = "Look at the earlier output of this rank: its own traceback is closer to the cause than NCCL."
_ON_AMD = {
    IS_BROKEN: "dmesg -T | grep -i amdgpu; rocm-smi --showrasinfo   # is a GPU broken?",
    DO_THEY_FIT: "rocm-smi; rocminfo | grep gfx; ls -l /dev/kfd /dev/dri   # in the container: all GPUs, one release?",
    WHICH_KERNEL: "AMD_SERIALIZE_KERNEL=3   # the traceback then names the kernel",
}
"""The same steps with the commands of AMD's GPUs."""
FULL = "out of memory"
ERROR = "CUDA error: "
"""PyTorch's prefix of CUDA's error text."""
_NO_HANDLE = "CUBLAS_STATUS_ALLOC_FAILED"
OUT_OF_MEMORY = CUDA_CODES[FULL]
_CUDA_ERROR = 1


@frozen
class Failure(Frozen):
    """One failed CUDA call, as one or more processes report it."""

    code: int | None
    file: str | None
    """Source file of NCCL without its folder ``src``: ``transport/p2p.cc``."""
    error: str
    notice: Notice


def code_of(notice: Notice) -> int | None:
    """Return the number of a CUDA failure: by its text, which is stable across releases, else as printed."""
    event = notice.event
    if not isinstance(event, CudaFailure):
        return None
    return CUDA_CODES.get(event.error, event.code)


def file_of(notice: Notice) -> str:
    """Return the source file that printed a WARN: ``transport/p2p.cc``; some builds print the full path."""
    return (notice.location or "").partition(":")[0].rpartition("/src/")[2]


def failed_calls(facts: Facts, *files: str) -> list[Notice]:
    """CUDA calls that failed in one of these files of NCCL (``transport/p2p.cc``), or anywhere if none is given.

    NCCL prints failures that it ignores as INFO: they are left out.
    """
    warnings = [notice for notice in facts.with_event(CudaFailure) if notice.level == "WARN"]
    return [notice for notice in warnings if not files or file_of(notice).endswith(files)]


def is_launch(failure: Failure) -> bool:
    """Return whether a call failed while NCCL launched work, and not while it set up communicators."""
    return failure.file is not None and failure.file.startswith(_LAUNCH)


def failures(facts: Facts) -> list[Failure]:
    """Failed CUDA calls with the file that made each: for a shared header, the file of the first frame above."""
    calls = []
    for notice in failed_calls(facts):
        if job_failure.is_shutting_down(notice.event):
            continue
        assert isinstance(notice.event, CudaFailure)
        file = notice.event.file or _caller(facts, notice)
        calls.append(Failure(code_of(notice), file, notice.event.error, notice))
    return calls


def _caller(facts: Facts, notice: Notice) -> str | None:
    """Return the file of a call; RCCL's fatal errors name none, and a shared header prints them, too."""
    file = file_of(notice) or None
    if not (file.endswith(".h") if file else is_hip(notice)):
        return file
    processes = set(notice.processes)
    for frame in facts.with_event(ErrorCascade):
        event = frame.event
        assert isinstance(event, ErrorCascade)
        above = frame.place > notice.place and not event.file.endswith(".h")
        if above and event.code == _CUDA_ERROR and processes & set(frame.processes):
            return event.file.rpartition("/src/")[2]
    return file


def is_hip(notice: Notice) -> bool:
    """Return whether RCCL prints the failure of a call of HIP."""
    return notice.event is not None and notice.event.dialect == "rccl"


def matching_exceptions(facts: Facts, failed: Iterable[Failure]) -> list[Notice]:
    """PyTorch exceptions with the same errors, which need no explanation of their own."""
    errors = {failure.error for failure in failed}
    return [notice for notice in facts.notices("torch/cuda-error") if value(notice, "error") in errors]


def code_in(text: str) -> int | None:
    """Return the number of the error that an exception of PyTorch names: ``RuntimeError: CUDA error: …``."""
    return CUDA_CODES.get(text.partition(ERROR)[2])


def is_out_of_memory(notice: Notice) -> bool:
    """Return whether a PyTorch exception reports GPU memory exhaustion, including that of cuBLAS's own buffers."""
    error = str(value(notice, "error"))
    return error == FULL or error.startswith(_NO_HANDLE)


def on_hardware(steps: Iterable[str], facts: Facts) -> list[str]:
    """Steps with the commands of the GPUs of the job."""
    return [_ON_AMD.get(step, step) for step in steps] if facts.is_rccl() else list(steps)


def failure_in_words(failure: Failure) -> str:
    """CUDA's error text, with its code if printed or known."""
    return f"'{failure.error}'" + (f" ({failure.code})" if failure.code is not None else "")


def find_cause(code: int | None) -> str:
    """Return the likely cause of a failure that no rule for its code handles."""
    if code in KERNEL_ERRORS:
        return (
            f"a kernel that ran earlier on this GPU ({KERNEL_ERRORS[code]}), usually one of the program and not "
            "NCCL's: CUDA reports it at the next call"
        )
    if code in ANSWERS:
        return ANSWERS[code].cause
    if code in MEANINGS:
        return (
            f"CUDA's error means: {MEANINGS[code]}. The log does not show whether driver, container or GPU is at fault"
        )
    return "unknown from this log; likely: driver, container or GPU"


def find_fix(code: int | None, otherwise: Iterable[str]) -> list[str]:
    """Return the fix if the error is the cause; otherwise steps that show more."""
    return list(ANSWERS[code].fix if code in ANSWERS else [*TRIALS.get(code, ()), *otherwise])


def make_cuda_hit(
    facts: Facts, failed: list[Failure], steps: Iterable[str], known: Mapping[str, object] | None = None
) -> Hit:
    """Return the hit of some failed calls.

    Args:
        facts: about the job.
        failed: the calls; the first one decides the cause.
        steps: show more, where the error itself is not the cause.
        known: more values.
    """
    first = failed[0]
    named = {
        "file": first.file,
        "errors": list(dict.fromkeys(map(failure_in_words, failed))),
        "cause": find_cause(first.code),
        "steps": on_hardware(find_fix(first.code, steps), facts),
        **(known or {}),
    }
    return Hit([failure.notice for failure in failed], named, explains=matching_exceptions(facts, failed))
