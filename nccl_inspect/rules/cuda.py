"""Failed CUDA calls: which code, and which part of NCCL made the call."""

from __future__ import annotations

from typing import NamedTuple

from nccl_inspect.event_types import CudaFailure, ErrorCascade
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.facts import Facts

CUDA_CODES = {
    "invalid argument": 1,
    "out of memory": 2,
    "initialization error": 3,
    "CUDA driver version is insufficient for CUDA runtime version": 35,
    "invalid device function": 98,
    "no CUDA-capable device is detected": 100,
    "invalid device ordinal": 101,
    "no kernel image is available for execution on the device": 209,
    "uncorrectable ECC error encountered": 214,
    "peer access is not supported between these two devices": 217,
    "uncorrectable NVLink error detected during the execution": 220,
    "OS call failed or operation not supported on this OS": 304,
    "invalid resource handle": 400,
    "the operation cannot be performed in the present state": 401,
    "an illegal memory access was encountered": 700,
    "device-side assert triggered": 710,
    "peer mapping resources exhausted": 711,
    "misaligned address": 716,
    "unspecified launch failure": 719,
    "operation not permitted": 800,
    "operation not supported": 801,
    "system not yet initialized": 802,
    "system has unsupported display driver / cuda driver combination": 803,
    "unknown error": 999,
}
"""What cudaGetErrorString says: calls of the CUDA runtime print the text only, those of the driver also the number."""
OUT_OF_MEMORY = CUDA_CODES["out of memory"]
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
    """The source file that printed a WARN: ``transport/p2p.cc``, in some builds with its whole path in front."""
    return (notice.location or "").partition(":")[0]


def failed(facts: Facts, *files: str) -> list[Notice]:
    """CUDA calls that failed in one of these files of NCCL (``transport/p2p.cc``), anywhere if none is named.

    Those that NCCL ignores are printed as INFO and are not among them.
    """
    found = [notice for notice in facts.said(CudaFailure) if notice.level == "WARN"]
    return [notice for notice in found if not files or file_of(notice).endswith(files)]


def failures(facts: Facts) -> list[Failure]:
    """Failed CUDA calls with the file that made each: for a header, which many use, that of the first frame above."""
    found = []
    for notice in failed(facts):
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
