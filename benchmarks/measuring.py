"""Runs commands and measures them: alternately, because seconds on a shared machine mean little and ratios more."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROUNDS = int(os.environ.get("NCCLINSPECT_BENCH_ROUNDS", "5"))


@dataclass(frozen=True)
class Cost:
    """Holds what one run took."""

    seconds: float
    processor: float
    """Seconds of all its processes."""
    peak: float
    """MB that the largest of its processes had."""


@dataclass(frozen=True)
class Comparison:
    """Two commands that ran in turn: medians, and the smallest and the largest ratio of a pair."""

    ours: Cost
    other: Cost
    least: float
    most: float

    @property
    def ratio(self) -> float:
        """Return the ratio of the medians."""
        return self.ours.seconds / self.other.seconds


def compare(command: list[str], other: list[str], rounds: int = ROUNDS) -> Comparison:
    """Run two commands in turn; the first round, which warms the caches, does not count."""
    pairs = [(cost(command), cost(other)) for _ in range(rounds + 1)][1:]
    ratios = [mine.seconds / its.seconds for mine, its in pairs]
    return Comparison(_median(mine for mine, _ in pairs), _median(its for _, its in pairs), min(ratios), max(ratios))


def cost(command: list[str]) -> Cost:
    """Return what a run takes; its output goes to a file, as a user's would."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, env={**os.environ, "LC_ALL": "C"})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - start
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3)


def _median(costs: Iterable[Cost]) -> Cost:
    some = list(costs)
    return Cost(*(statistics.median(getattr(one, name) for one in some) for name in ("seconds", "processor", "peak")))


def machine() -> str:
    """Return what this was measured on."""
    names = [line.split(":")[1].strip() for line in _read_lines("/proc/cpuinfo") if line.startswith("model name")]
    processors = len(os.sched_getaffinity(0))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    model = names[0] if names else platform.machine()
    day, python = time.strftime("%Y-%m-%d"), platform.python_version()
    return f"{day}, {processors} x {model}, Python {python}, load {load}"


def measure_peak(pid: int) -> float:
    """Return the largest amount of memory that a running process had, in MB."""
    sizes = [line.split()[1] for line in _read_lines(f"/proc/{pid}/status") if line.startswith("VmHWM")]
    return int(sizes[0]) / 1e3 if sizes else float("nan")


def _read_lines(path: str) -> list[str]:
    """Return a file of the kernel; nothing on other systems."""
    return Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []
