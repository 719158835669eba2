"""Commands run in pipes and on terminals."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import sample_data

HEALTHY = str(sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log")
SLOW = str(sample_data.FOLDER / "v2.30.7-shm-4gpu" / "job.log")
TWO_HOSTS = str(sample_data.FOLDER / "timestamps" / "job.log")
PATIENCE = 60.0
"""Seconds that something may take before a test fails; none waits so long when all is well."""
EXE = [sys.executable, "-c", "from nccl_inspect.cli import main; main()"]


def run(
    *args: str, data: bytes = b"", env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    return subprocess.run(
        [*EXE, *args], input=data, capture_output=True, env=inherited | (env or {}), cwd=cwd, timeout=60, check=False
    )


class Piped(subprocess.Popen[bytes]):
    """A program that runs; its input and its outputs are pipes unless the test says otherwise."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def __init__(self, args: Sequence[str], **how: Any) -> None:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        super().__init__(args, **{**pipes, **how})


def read_to_end(terminal: int) -> bytes:
    """Return what is written on a pseudo-terminal until its other end is closed."""
    shown = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux: the other end is closed
            return shown
        if not data:
            return shown
        shown += data


def read_until(stream: Any, wanted: bytes, seen: bytes = b"") -> bytes:
    """Return what comes from a pipe or terminal until a text is in it; the test fails where it does not come."""
    descriptor = stream if isinstance(stream, int) else stream.fileno()
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE)
        data = os.read(descriptor, 65536) if ready else b""
        assert data, f"{wanted!r} did not come: {seen!r}"
        seen += data
    return seen


def on_a_terminal(args: Sequence[str], env: dict[str, str] | None = None) -> bytes:
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*EXE, *args], stdin=theirs, stdout=theirs, stderr=theirs, env=inherited | {"TERM": "xterm"} | (env or {})
    ) as process:
        os.close(theirs)
        shown = read_to_end(ours)
        process.wait(60)
    os.close(ours)
    return shown
