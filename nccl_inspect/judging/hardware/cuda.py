"""Failed CUDA calls: which code, and which part of NCCL made the call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nccl_inspect.event.types import CudaFailure, ErrorCascade
from nccl_inspect.judging.facts import Facts
from nccl_inspect.judging.hardware.cuda_codes import (
    ANSWERS,
    CUDA_CODES,
    DO_THEY_FIT,
    IMPACT,
    KERNEL_ERRORS,
    MEANINGS,
    TRIALS,
    Answer,
)
from nccl_inspect.judging.statements import value
from nccl_inspect.model.job import Notice
from nccl_inspect.model.statements import job_end

__all__ = ["ANSWERS", "CUDA_CODES", "DO_THEY_FIT", "IMPACT", "KERNEL_ERRORS", "MEANINGS", "Answer"]

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
    """The number of a CUDA failure: by its text, which stays the same, else as it is printed."""
    event = notice.event
    if not isinstance(event, CudaFailure):
        return None
    return CUDA_CODES.get(event.error, event.code)


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
        if job_end.is_shutting_down(notice.event):
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


def retold(facts: Facts, failed: Iterable[Failure]) -> list[Notice]:
    """Exceptions of PyTorch with the same error, which need no explanation of their own."""
    errors = {failure.error for failure in failed}
    return [notice for notice in facts.notices("torch/cuda-error") if value(notice, "error") in errors]


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
    return "unknown from this log; likely: driver, container or GPU"


def fix(code: int | None, otherwise: Iterable[str]) -> list[str]:
    """What helps where the error is the cause; otherwise what tells more."""
    return list(ANSWERS[code].fix if code in ANSWERS else [*TRIALS.get(code, ()), *otherwise])
