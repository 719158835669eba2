"""Failed CUDA calls: which code, and which part of NCCL made the call."""

from __future__ import annotations

import re
from typing import NamedTuple

from nccl_inspect.event_types import CudaFailure, ErrorCascade
from nccl_inspect.model.job import Notice
from nccl_inspect.rules.facts import Facts

OUT_OF_MEMORY = 2
_CODES = {
    "invalid argument": 1,
    "out of memory": OUT_OF_MEMORY,
    "initialization error": 3,
    "CUDA driver version is insufficient for CUDA runtime version": 35,
    "no CUDA-capable device is detected": 100,
    "invalid device ordinal": 101,
    "uncorrectable ECC error encountered": 214,
    "peer access is not supported between these two devices": 217,
    "uncorrectable NVLink error detected during the execution": 220,
    "OS call failed or operation not supported on this OS": 304,
    "invalid resource handle": 400,
    "an illegal memory access was encountered": 700,
    "device-side assert triggered": 710,
    "peer mapping resources exhausted": 711,
    "misaligned address": 716,
    "unspecified launch failure": 719,
    "operation not permitted": 800,
    "operation not supported": 801,
    "system not yet initialized": 802,
    "unknown error": 999,
}
"""CUDA's texts: calls of the runtime print no code in any release, those of the driver do since 2.19."""
_LOCATION = re.compile(r"(\S+):\d+ NCCL WARN ")
_CUDA_ERROR = 1


class Failure(NamedTuple):
    """One failed CUDA call, as one or more processes tell it."""

    code: int | None
    file: str | None
    """Source file of NCCL without its folder ``src``: ``transport/p2p.cc``."""
    error: str
    notice: Notice


def failures(facts: Facts) -> list[Failure]:
    """Failed CUDA calls that NCCL did not ignore: those are told at INFO."""
    found = []
    for notice in facts.job.notices:
        event = notice.event
        if isinstance(event, CudaFailure) and notice.level == "WARN":
            code = event.code if event.code is not None else _CODES.get(event.error)
            found.append(Failure(code, event.file or _file(facts, notice), event.error, notice))
    return found


def _file(facts: Facts, notice: Notice) -> str | None:
    """The file that made the call; for a header, which many use, that of the first frame above it."""
    match = _LOCATION.search(notice.evidence[0].text)
    file = match[1] if match else None
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
