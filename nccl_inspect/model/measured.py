"""What benchmarks measured, and how fast a training runs. Plain data."""

from __future__ import annotations

from dataclasses import field

from nccl_inspect.model.evidence import Evidence
from nccl_inspect.util.records import Frozen, Record, frozen, record


@frozen
class Sized(Frozen):
    """Holds what one message size gave."""

    size: int
    """Bytes."""
    gbps: float
    """The better of out-of-place and in-place, GB/s."""
    lower: float
    """The other one; the same where there is one only."""
    line: Evidence


@record
class Measured(Record):
    """The results of one operation, over all sizes; bandwidths are bus bandwidths in GB/s (1e9 bytes)."""

    operation: str
    """As nccl-tests call it: ``all_reduce``; that of another program by its own name."""
    type: str
    ranks: int | None
    size: int
    """Of the row with the best bandwidth, bytes."""
    measured_gbps: float
    expected_low: float | None = None
    """The least and most that is known of such hardware; None where nothing is."""
    expected_high: float | None = None
    expected_source: str | None = None
    """Who states that."""
    ratio: float | None = None
    """Of the least that is expected, at the best size that is large enough to judge."""
    verdict: str = "unknown"
    """``ok``, ``low`` or ``unknown``."""
    line: Evidence | None = None
    """The row."""
    tool: str = "nccl-tests"
    what: str = ""
    """What is expected to give that: ``4 nodes x 8 NICs of 400 Gb/s``."""
    part: str = "nvlink"
    """What limits: ``network``, ``nvlink`` or ``pcie``."""
    is_assumed: bool = False
    """Whether the rate of the NICs is not known, and the usual ones are taken."""
    reason: str = ""
    """Why it is not judged, or what is odd about it."""
    hosts: list[str] = field(default_factory=list)
    nodes: int | None = None
    sizes: list[Sized] = field(default_factory=list)
    dips: list[Sized] = field(default_factory=list)
    """Sizes at which it falls far behind what smaller ones gave."""
    is_below: bool = False
    """Whether its large messages get less than the band allows."""
    falls: bool = False
    """Whether it stays there up to the largest size."""
    wrong_lines: list[Evidence] = field(default_factory=list)
    """Rows with wrong results."""

    @property
    def wrong(self) -> int:
        """Return how many rows have wrong results."""
        return len(self.wrong_lines)


IN_ALL = "seconds in all"


@record
class Speed(Record):
    """Holds how fast a training runs, as its program says."""

    what: str
    """``seconds per step``, ``tokens per second``, ``samples per second``, ``seconds in all``."""
    median: float
    count: int
    """Lines that state it."""
    line: Evidence
    """The last one."""
