"""Failed CUDA calls: their codes, and the parts of NCCL that made them."""

from __future__ import annotations

from collections.abc import Iterable

from nccl_inspect.event.types import CudaFailure, ErrorCascade
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.hardware.cuda_codes import (
    ANSWERS,
    CUDA_CODES,
    DO_THEY_FIT,
    KERNEL_ERRORS,
    MEANINGS,
    TRIALS,
    Answer,
)
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_failure
from nccl_inspect.util.records import Frozen, frozen

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


def words(failure: Failure) -> str:
    """CUDA's error text, with its code if printed or known."""
    return f"'{failure.error}'" + (f" ({failure.code})" if failure.code is not None else "")


def cause(code: int | None) -> str:
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


def fix(code: int | None, otherwise: Iterable[str]) -> list[str]:
    """Return the fix if the error is the cause; otherwise steps that show more."""
    return list(ANSWERS[code].fix if code in ANSWERS else [*TRIALS.get(code, ()), *otherwise])
