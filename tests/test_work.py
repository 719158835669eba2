"""The work grows little faster than the log: counted in calls, which no other program disturbs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import FrameType

import sample_data

from nccl_inspect import reading
from nccl_inspect.reading import Judge, Options

ONCE = re.compile(rb"(?m)^.*(?: NCCL INFO (?:Bootstrap|cudaDriver|NET/|NCCL_|Check P2P|MNNVL)|NCCL version).*\n")
"""What a process says once, however many communicators it makes."""


def of_communicators(number: int) -> bytes:
    """The log of eight ranks that make so many communicators, each with times of its own."""
    (first,) = sample_data.contents("p2p-nvlink-8gpu")
    again = ONCE.sub(b"", first)
    others = [
        re.sub(rb"( comm(?:Id)? 0x)([0-9a-f]+)", lambda m, at=at: b"%b%x" % (m[1], int(m[2], 16) + at * 4096), again)  # type: ignore[misc]
        for at in range(1, number)
    ]
    return first + b"".join(other.replace(b" total 1.", b" total 1%d." % at) for at, other in enumerate(others))


def calls(work: Callable[[], object]) -> int:
    """How many functions are called, those of C included."""
    count = 0

    def called(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event.endswith("call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_the_work_grows_with_the_number_of_communicators() -> None:
    judge = Judge(Options())

    def work(number: int) -> int:
        fold = reading.fold(of_communicators(number))
        return calls(lambda: judge(fold))

    work(2)  # what is loaded and compiled once
    few, many = work(40), work(160)
    assert many < 6 * few  # squared would be 16
