"""Failed CUDA calls: which code, and which part of NCCL made the call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nccl_inspect.event_types import CudaFailure, ErrorCascade
from nccl_inspect.model import endings
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.facts import Facts
from nccl_inspect.rules.statements import value

CUDA_CODES = {
    "invalid argument": 1,
    "out of memory": 2,
    "initialization error": 3,
    "driver shutting down": 4,
    "CUDA driver version is insufficient for CUDA runtime version": 35,
    "invalid device function": 98,
    "API call is not supported in the installed CUDA driver": 36,
    "CUDA-capable device(s) is/are busy or unavailable": 46,
    "all CUDA-capable devices are busy or unavailable": 46,
    "no CUDA-capable device is detected": 100,
    "invalid device ordinal": 101,
    "no kernel image is available for execution on the device": 209,
    "uncorrectable ECC error encountered": 214,
    "peer access is not supported between these two devices": 217,
    "uncorrectable NVLink error detected during the execution": 220,
    "the provided PTX was compiled with an unsupported toolchain.": 222,
    "OS call failed or operation not supported on this OS": 304,
    "invalid resource handle": 400,
    "the operation cannot be performed in the present state": 401,
    "named symbol not found": 500,
    "an illegal memory access was encountered": 700,
    "the launch timed out and was terminated": 702,
    "device-side assert triggered": 710,
    "peer mapping resources exhausted": 711,
    "hardware stack error": 714,
    "an illegal instruction was encountered": 715,
    "misaligned address": 716,
    "operation not supported on global/shared address space": 717,
    "invalid program counter": 718,
    "unspecified launch failure": 719,
    "Invalid access of peer GPU memory over nvlink or a hardware error": 721,
    "operation not permitted": 800,
    "operation not supported": 801,
    "system not yet initialized": 802,
    "system has unsupported display driver / cuda driver combination": 803,
    "forward compatibility was attempted on non supported HW": 804,
    "operation not permitted when stream is capturing": 900,
    "operation failed due to a previous error during capture": 901,
    "unknown error": 999,
}
"""What cudaGetErrorString says: calls of the CUDA runtime print the text only, those of the driver also the number."""
KERNEL_ERRORS = {
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
"""Errors of a kernel: whatever calls CUDA next reports them."""
MEANINGS = {
    1: "an argument that this driver or GPU does not take",
    101: "a GPU that this process cannot see",
    304: "an operating system call was refused: a sandbox, missing capabilities or another name space",
    400: "a handle that is not valid in this process",
    500: "a kernel that is not in this library: it was built for other GPUs, or two NCCL libraries are mixed",
    800: "not permitted: missing rights or capabilities in the container",
    801: "not supported by this GPU, driver or virtual machine",
}


_TRIALS: dict[int | None, tuple[str, ...]] = {
    801: (
        "NCCL_CUMEM_ENABLE=0   # a test: if it runs then, it is cuMem memory, as with some vGPUs, old drivers",
        "NCCL_NVLS_ENABLE=0   # a test: if it runs then, it is multicast of the NVSwitch",
    ),
}
"""Settings that switch off what may not be supported."""


class Answer(NamedTuple):
    """An error whose text is the cause, whatever call gives it: no broken GPU need be looked for."""

    cause: str
    fix: tuple[str, ...]


IMPACT = "the rank fails, and with it the job; the others wait for it or lose their connections"
DO_THEY_FIT = "nvidia-smi; python -c 'import torch; print(torch.version.cuda)'   # do driver and CUDA fit?"
_COMPAT = "ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH   # in the container: is cuda/compat found first?"
ANSWERS = {
    36: Answer(
        "the driver is too old: it does not know a call that NCCL or the framework makes",
        ("Install a newer driver, or take an image with an older CUDA.", DO_THEY_FIT),
    ),
    46: Answer(
        "the GPU takes no other process: most often it is in exclusive compute mode and another process has it (two "
        "ranks on one GPU, or what is left of an earlier job); else MIG without an instance, or a GPU in a bad state",
        (
            "nvidia-smi --query-gpu=index,compute_mode,mig.mode.current --format=csv   # Exclusive_Process?",
            "nvidia-smi --query-compute-apps=pid,name,gpu_uuid --format=csv   # on the host: who has it?",
            "sudo nvidia-smi -c DEFAULT   # where it is Exclusive_Process and several processes are to share it",
        ),
    ),
    217: Answer(
        "P2P cannot work between these two GPUs: the driver has no peer access for this pair (kind of GPU, PCIe "
        "topology, virtual machine), though NCCL took that way",
        (
            "nvidia-smi topo -p2p r   # which pairs have peer access? OK, CNS (chipset), GNS (GPU), NS",
            "NCCL_P2P_DISABLE=1   # as a test: it runs then, by shared memory",
        ),
    ),
    222: Answer(
        "the driver is too old for the code in the library: it must be of the same CUDA release or a later one",
        ("Install a newer driver, or take an image with an older CUDA.", DO_THEY_FIT),
    ),
    804: Answer(
        "a cuda-compat package is used on a GPU that does not support it: that is for data centre GPUs",
        (
            _COMPAT,
            "Take the compat folder off LD_LIBRARY_PATH (or remove the package cuda-compat-*) in the image, and use a "
            "driver that is new enough by itself, or an image with an older CUDA.",
        ),
    ),
}
ANSWERS |= dict.fromkeys(
    (900, 901),
    Answer(
        "while a CUDA graph was captured, a call was made that may not stand in one, mostly by another thread of the "
        "process (PyTorch's watchdog, a data loader): a capture in global mode forbids these, too",
        (
            'torch.cuda.graph(graph, capture_error_mode="thread_local")   # then only the own thread counts',
            "Let no other thread use CUDA while a graph is captured; first run once without the graph, so that NCCL "
            "has its communicators and buffers.",
        ),
    ),
)
_LAUNCH = ("enqueue", "ce_coll", "device/", "rma/", "scheduler/", "sym_kernels", "misc/strongstream")
"""Beginnings of source files that launch kernels and copies, or wait for streams, also when they end; all others build
communicators and connections."""
IS_BROKEN = "dmesg -T | grep -i xid; nvidia-smi -q | grep -iE 'retired|remap|ecc errors' -A3   # is a GPU broken?"
WHICH_KERNEL = "CUDA_LAUNCH_BLOCKING=1   # the traceback then names the kernel; compute-sanitizer tells more"
FULL = "out of memory"
ERROR = "CUDA error: "
"""What PyTorch puts in front of what CUDA says."""
_NO_HANDLE = "CUBLAS_STATUS_ALLOC_FAILED"
OUT_OF_MEMORY = CUDA_CODES[FULL]
_CUDA_ERROR = 1


class Failure(NamedTuple):
    """One failed CUDA call, as one or more processes tell it."""

    code: int | None
    file: str | None
    """Source file of NCCL without its folder ``src``: ``transport/p2p.cc``."""
    error: str
    notice: Notice


def code_of(notice: Notice) -> int | None:
    """The number of a CUDA failure, by its text where it is not printed."""
    event = notice.event
    if not isinstance(event, CudaFailure):
        return None
    return CUDA_CODES.get(event.error) if event.code is None else event.code


def file_of(notice: Notice) -> str:
    """The source file that printed a WARN: ``transport/p2p.cc``; some builds print its whole path."""
    return (notice.location or "").partition(":")[0].rpartition("/src/")[2]


def failed(facts: Facts, *files: str) -> list[Notice]:
    """CUDA calls that failed in one of these files of NCCL (``transport/p2p.cc``), anywhere if none is named.

    Those that NCCL ignores are printed as INFO and are not among them.
    """
    found = [notice for notice in facts.said(CudaFailure) if notice.level == "WARN"]
    return [notice for notice in found if not files or file_of(notice).endswith(files)]


def is_launch(failure: Failure) -> bool:
    """Whether a call failed while NCCL launched work, and not while it built what it works with."""
    return failure.file is not None and failure.file.startswith(_LAUNCH)


def failures(facts: Facts) -> list[Failure]:
    """Failed CUDA calls with the file that made each: for a header, which many use, that of the first frame above."""
    found = []
    for notice in failed(facts):
        if endings.is_shutting_down(notice.event):
            continue
        assert isinstance(notice.event, CudaFailure)
        file = notice.event.file or _caller(facts, notice)
        found.append(Failure(code_of(notice), file, notice.event.error, notice))
    return found


def _caller(facts: Facts, notice: Notice) -> str | None:
    file = file_of(notice) or None
    if file is None or not file.endswith(".h"):
        return file
    processes = set(notice.processes)
    for frame in facts.said(ErrorCascade):
        event = frame.event
        assert isinstance(event, ErrorCascade)
        above = frame.place > notice.place and not event.file.endswith(".h")
        if above and event.code == _CUDA_ERROR and processes & set(frame.processes):
            return event.file
    return file


def pass_over_retold(facts: Facts, failed: Iterable[Failure]) -> None:
    """Say that exceptions of PyTorch with the same error need no explanation of their own."""
    errors = {failure.error for failure in failed}
    facts.pass_over(notice for notice in facts.notices("cuda-error") if value(notice, "error") in errors)


def code_in(text: str) -> int | None:
    """The number of the error that an exception of PyTorch names: ``RuntimeError: CUDA error: …``."""
    return CUDA_CODES.get(text.partition(ERROR)[2])


def is_full(notice: Notice) -> bool:
    """Whether an exception of PyTorch says that no memory was left; cuBLAS says so of what it needs for itself."""
    error = str(value(notice, "error"))
    return error == FULL or error.startswith(_NO_HANDLE)


def words(failure: Failure) -> str:
    """What CUDA said, with its code where that is printed or known."""
    return f"'{failure.error}'" + (f" ({failure.code})" if failure.code is not None else "")


def cause(code: int | None) -> str:
    """What may have led to a failure that no rule about a certain code takes."""
    if code in KERNEL_ERRORS:
        return (
            f"a kernel that ran before on this GPU ({KERNEL_ERRORS[code]}), most often one of the program and not "
            "NCCL's: CUDA reports it at the next call"
        )
    if code in ANSWERS:
        return ANSWERS[code].cause
    if code in MEANINGS:
        return f"CUDA's answer means: {MEANINGS[code]}. Which of driver, container or GPU is at fault is not in the log"
    return "not in the log: driver, container or GPU"


def fix(code: int | None, otherwise: Iterable[str]) -> list[str]:
    """What helps where the error is the cause; otherwise what tells more."""
    return list(ANSWERS[code].fix if code in ANSWERS else [*_TRIALS.get(code, ()), *otherwise])
