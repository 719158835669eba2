"""The first release of NCCL that is built for each generation of GPUs: ``makefiles/common.mk`` at its tag.

A GPU runs code for an earlier GPU with the same major number (sm_80 on sm_86 and sm_89, sm_100 on sm_103).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nccl_inspect.model.versions import order
from nccl_inspect.util.patterns import compile_later
from nccl_inspect.util.records import Frozen, frozen


@frozen
class Generation(Frozen):
    """GPUs with the same first release of NCCL."""

    words: str
    names: re.Pattern[str]
    """As the driver and machine types name them."""
    first: tuple[int, ...]


GENERATIONS = (
    Generation(
        "Ampere and Ada (sm_80, sm_86, sm_89)",
        compile_later(r"\b(?:A100|A800|A30|A40|A16|A10G?|A2|L4|L20|L40S?|RTX A\d{3,4}|RTX [34]0\d0|RTX \d{4} Ada)\b"),
        (2, 7, 3),
    ),
    Generation("Hopper (sm_90)", compile_later(r"\b(?:G?H100|G?H200|H800|H20)\b"), (2, 15, 1)),
    Generation("Blackwell (sm_100, sm_103)", compile_later(r"\b(?:B100|G?B200|G?B300)\b"), (2, 25, 1)),
    # The makefile has sm_120 since 2.25.1, whose kernels ask for more shared memory than these GPUs have.
    Generation("RTX Blackwell (sm_120, sm_121)", compile_later(r"\b(?:RTX 50\d0|RTX PRO \d{4}|GB10)\b"), (2, 26, 2)),
    Generation("Thor (sm_110)", compile_later(r"\bThor\b"), (2, 27, 5)),
)


def newest_generation(names: Iterable[str]) -> Generation | None:
    """Return the newest generation among GPUs with these names; None if no name is known."""
    generations = [generation for name in names for generation in GENERATIONS if generation.names.search(name)]
    return max(generations, key=lambda generation: generation.first, default=None)


def is_before(release: str, first: tuple[int, ...]) -> bool:
    """Return whether a release is known and older; an inferred one is a range and proves nothing."""
    return "inferred" not in release and () < order(release) < first


def number(first: tuple[int, ...]) -> str:
    """Return a release as text: ``2.15.1``."""
    return ".".join(map(str, first))
