"""How a job ended is told alike whatever a collector puts around its lines.

The forms are those of ``kubectl logs --timestamps`` and ``--prefix``, of CRI's files and of Docker's json-file driver.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import sample_data
from repository import TESTS

import nccl_inspect

LOGS = sorted(
    [
        *(sample_data.FOLDER / "launchers").glob("*.gz"),
        *(sample_data.FOLDER / "faults").glob("*.gz"),
        *(TESTS / "launchers").glob("*.log"),
    ]
)


def time(number: int) -> str:
    """A time of its own for each line."""
    return f"2026-11-20T23:{13 + number // 6000:02}:{number // 100 % 60:02}.{number % 100:02}7186812Z"


WRAPS: dict[str, Callable[[str, int], str]] = {
    "timestamps": lambda line, number: f"{time(number)} {line}",
    "cri": lambda line, number: f"{time(number)} stdout F {line}",
    "prefix": lambda line, _: f"[pod/trainer-0/pytorch] {line}",
    "prefix and timestamps": lambda line, number: f"[pod/trainer-0/pytorch] {time(number)} {line}",
    "json": lambda line, number: json.dumps({"log": f"{line}\n", "stream": "stdout", "time": time(number)}),
}


def told(text: str) -> list[object]:
    """What is said of a log."""
    job = nccl_inspect.read(text.encode())
    found = [(one.rule, one.severity, one.confidence, one.ranks, one.summary, one.cause) for one in job.findings]
    return [job.verdict, *found]


@pytest.mark.parametrize("file", LOGS, ids=lambda file: file.name.partition(".")[0])
def test_what_is_said_does_not_depend_on_the_collector(file: Path) -> None:
    data = file.read_bytes()
    text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode(errors="replace")
    lines = [line.rstrip("\r") for line in text.split("\n")[:-1]]
    bare = told("".join(f"{line}\n" for line in lines))
    for name, wrap in WRAPS.items():
        assert (name, told("".join(f"{wrap(line, at)}\n" for at, line in enumerate(lines)))) == (name, bare)
