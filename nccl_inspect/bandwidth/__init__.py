"""Measured bandwidth against expected: result tables in logs, published figures, and a verdict with a number.

``lines`` keeps what looks like a result while a log is read, ``tables`` makes rows of it, ``expectation`` says what the
paths of the job should give (``figures/*.toml`` hold what is published, each with its source), ``measured`` compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nccl_inspect.judging.facts import Facts
    from nccl_inspect.model.measured import Measured

LOW, VERY_LOW = 0.8, 0.5
"""Parts of the least that is expected, below which there is a warning, and an error."""


def measure(facts: Facts) -> list[Measured]:
    """Return what :mod:`nccl_inspect.bandwidth.measured` finds; a log without results does not load it."""
    if not facts.job.benchmarks:
        return []
    from nccl_inspect.bandwidth.measured import measured

    return measured(facts)
