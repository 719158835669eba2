"""Counts calls of functions: a measure of work that no other program disturbs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called, those of C included."""
    count = 0

    def note_call(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event.endswith("call")

    sys.setprofile(note_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def calls_by_function(work: Callable[[], object]) -> Counter[str]:
    """Return how often each function is called, by file and name; a generator, how often it is resumed."""
    count: Counter[str] = Counter()

    def note_call(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            code = frame.f_code
            count[f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"] += 1

    sys.setprofile(note_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
