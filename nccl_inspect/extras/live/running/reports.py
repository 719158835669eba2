"""The report on a run, made by a process of its own: whatever becomes of it, the exit status of the job stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from nccl_inspect.extras.live.running.child import Signals

NO_LINES = 3
"""Exit status for a log without a line of NCCL."""
_STDERR = 2
_STANDS = (b"FAILED", b"WAITING")
"""First words of a report on a job that is stuck."""
_SECONDS = 120
_TICK = 1.0


def command(inputs: Sequence[Path], *options: str) -> list[str]:
    """Return how the report is made; modules in the folder of the job are not taken for those of this program."""
    return [sys.executable, "-P", "-m", "nccl_inspect", "summarize", *map(str, inputs), "--no-progress", *options]


def final(inputs: Sequence[Path], target: str, signals: Signals) -> int | None:
    """Write the report at the end; its exit status, None where a signal broke it off.

    Args:
        inputs: the folder of the run, and files of NCCL elsewhere.
        target: a file; empty for stderr.
        signals: that end it.
    """
    with TemporaryFile() as errors:
        options = ("-o", target) if target else ()
        process = subprocess.Popen(command(inputs, *options), stdin=subprocess.DEVNULL, stdout=_STDERR, stderr=errors)
        while (status := process.poll()) is None:
            if signals.ending(_TICK):
                process.kill()
                process.wait()
                return None
        errors.seek(0)
        if status != NO_LINES:
            _to_stderr(errors.read())
        return status


def of_standstill(inputs: Sequence[Path]) -> bool:
    """Write the report to stderr if the job failed or its ranks wait, as far as the log shows; whether that is so."""
    with suppress(OSError, subprocess.TimeoutExpired):
        made = subprocess.run(
            command(inputs),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        if made.stdout.startswith(_STANDS):
            _to_stderr(made.stdout)
            return True
    return False


def _to_stderr(data: bytes) -> None:
    view = memoryview(data)
    with suppress(OSError):
        while view:
            view = view[os.write(_STDERR, view) :]
