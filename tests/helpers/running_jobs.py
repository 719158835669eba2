"""Jobs started by ``run``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from terminals import Piped

from nccl_inspect.extras.live.session import JOB, LAUNCHERS, SETTINGS

LIMIT = 60
NOBODY = "localhost:9"
"""Where no RAS listens."""
SET = {name for setting in SETTINGS for name in (setting.name, *setting.unless)}


def environment(**own: str) -> dict[str, str]:
    """Return an environment without a launcher and without settings of NCCL."""
    launched = {name for launcher in LAUNCHERS for name in (launcher.mark, launcher.rank, launcher.local_rank)}
    left_out = {*SET, *launched, *JOB}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "NCCL_RAS_ADDR": NOBODY, **own}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "nccl_inspect", "run", *args]


def run(folder: Path, *args: str, data: bytes = b"", **own: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(*args), cwd=folder, env=environment(**own), input=data, capture_output=True, timeout=LIMIT, check=False
    )


def shell(script: str) -> list[str]:
    return ["--out", "out", "--", "sh", "-c", script]


def python(script: str) -> list[str]:
    return ["--out", "out", "--", sys.executable, "-c", script]


def quietly(arguments: list[str]) -> list[str]:
    """Return the command without a report, which takes most of the time."""
    return ["--quiet", *arguments]


@contextmanager
def start_job(folder: Path, *args: str, **own: str) -> Iterator[Piped]:
    env = environment(**own)
    process = Piped(command(*args), cwd=folder, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)
