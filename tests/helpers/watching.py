"""Watches with a clock of our own."""

from __future__ import annotations

from typing import Any

import sample_data

from nccl_inspect.extras.live.watch import News, Timing, Watch
from nccl_inspect.pipeline.reading import Judge, Options

HEALTHY = (sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log").read_bytes()
TWO_HOSTS = (sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log").read_bytes()
HANG = (sample_data.FOLDER / "rank-missing-hang" / "job.log").read_bytes()
BEGUN = b"".join(line for line in HANG.splitlines(keepends=True) if b" NCCL " in line)
"""Three of four ranks wait, and nobody says that they were ended."""


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A watch that is fed and looked at in steps."""

    def __init__(self, timing: Timing | None = None, judge: Judge | None = None, **more: Any) -> None:
        self.clock = Clock()
        self.watch = Watch(judge or Judge(Options()), timing or Timing(), clock=self.clock, **more)

    def news_after(self, seconds: float, data: bytes = b"") -> list[News]:
        """Return the news after so many seconds, when this came at their end."""
        self.clock.now += seconds
        if data:
            self.watch.feed(data)
        return self.watch.look()
