"""Counts calls of functions: a measure of work that no other program disturbs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


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
