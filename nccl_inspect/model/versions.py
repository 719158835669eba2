"""Releases of NCCL: which can have printed a log without a version line; settings that one prints in other words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_WRONG = 20  # no release of NCCL has such a first number
_NUMBER = re.compile(r"\d+")


def infer(ranges: Iterable[str]) -> str | None:
    """Return the range of releases that all lines have in common, in words.

    Args:
        ranges: of the productions seen, as grammar files write them: ``2.14.3..2.22.3``, ``..2.12.12``, ``2.22.3..``.

    Returns:
        Such as ``2.22.3 to 2.26.6 (inferred)``, or None when nothing narrows it or the lines contradict each other.
    """
    bounds = [text.partition("..") for text in ranges if text]
    firsts = [first for first, _, _ in bounds if first]
    lasts = [last if dots else first for first, dots, last in bounds if last or not dots]
    first = max(firsts, key=order, default="")
    last = min(lasts, key=order, default="")
    if first and last:
        if order(first) > order(last):
            return None
        return f"{first} (inferred)" if first == last else f"{first} to {last} (inferred)"
    if first or last:
        return f"{first} or later (inferred)" if first else f"{last} or earlier (inferred)"
    return None


def is_inferred(release: str) -> bool:
    """Return whether a release is what :func:`infer` says, not what a line states."""
    return release.endswith("(inferred)")


def read_torch_version(text: str) -> str:
    """Return a release as PyTorch names it: until 1.12 it took the number of 2.9 and later (21003) for 21.0.3."""
    major, minor, patch = (*order(text), 0, 0, 0)[:3]
    code = major * 1000 + minor * 100 + patch
    return text if major < _WRONG else read_version_code(code)


def read_version_code(code: int) -> str:
    """22705 is how NCCL writes 2.27.5, since 2.9."""
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def order(version: str) -> tuple[int, ...]:
    """Return a release as numbers that can be compared."""
    return tuple(map(int, _NUMBER.findall(version)[:3]))


def cuda(number: str) -> str:
    """13000 is how CUDA writes 13.0."""
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


class Alike(NamedTuple):
    """A setting that may follow another one on its line."""

    name: str
    value: str
    note: str  # when both print alike, in words


_LEVEL = "NCCL_P2P_LEVEL=LOC"
_FIRST, _LAST = (2, 6), (2, 22)
_DISABLE = Alike("NCCL_P2P_DISABLE", "1", f"until NCCL {'.'.join(map(str, _LAST))} both print as {_LEVEL}")
"""ncclGetLevel in src/graph/paths.cc prints the name of the level for both. Before 2.6 and since 2.23 each has its own.
All other variables print their own name: NCCL_PARAM in src/misc/param.cc, and the INFO beside each ncclGetEnv."""


def find_related(name: str, value: str, releases: Iterable[str]) -> Alike | None:
    """Return what else may have been set where a log shows this setting."""
    numbers = [order(release)[:2] for release in releases]
    fits_release = not numbers or any(_FIRST <= number <= _LAST for number in numbers)
    return _DISABLE if f"{name}={value}" == _LEVEL and fits_release else None
