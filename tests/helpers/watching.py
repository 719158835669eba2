"""Watches with a clock of our own, and the command while it runs."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import sample_data

from nccl_inspect.live.watch import News, Timing, Watch
from nccl_inspect.pipeline.reading import Judge, Options

EXE = [sys.executable, "-c", "from nccl_inspect.cli import main; main()", "watch"]
ENV = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")} | {"TERM": "xterm"}
FAST = ["--interval", "0.04", "--settle", "0.2"]
HEALTHY = (sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log").read_bytes()
TWO_HOSTS = (sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log").read_bytes()
HANG = (sample_data.FOLDER / "rank-missing-hang" / "job.log").read_bytes()
PATIENCE = 30.0
"""Seconds that something may take before the test fails; none waits so long when all is well."""


# --- a watch with a clock of our own


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A watch that is fed and looked at in steps."""

    def __init__(self, timing: Timing | None = None) -> None:
        self.clock = Clock()
        self.watch = Watch(Judge(Options()), timing or Timing(), clock=self.clock)

    def after(self, seconds: float, data: bytes = b"") -> list[News]:
        """The news after so many seconds, when this came at their end."""
        self.clock.now += seconds
        if data:
            self.watch.feed(data)
        return self.watch.look()


# --- the command


@contextmanager
def started(
    *args: str, stderr: int = subprocess.PIPE, stdout: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """The command with pipes; killed at the end if it still runs."""
    with subprocess.Popen(
        [*EXE, *args], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=ENV, bufsize=0
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(descriptor: int, wanted: bytes, seen: bytes = b"") -> bytes:
    """What comes until a text is in it."""
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE)
        assert ready, f"{wanted!r} did not come: {seen!r}"
        data = os.read(descriptor, 65536)
        assert data, f"{wanted!r} did not come: {seen!r}"
        seen += data
    return seen


def write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)


def fd(stream: object) -> int:
    return int(stream.fileno())  # type: ignore[attr-defined]
