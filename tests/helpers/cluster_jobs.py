"""Jobs read by a cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sample_data

from nccl_inspect.model.fold.fold import Fold
from nccl_inspect.pipeline import reading


def document(fold: Fold) -> str:
    return json.dumps(reading.Judge(reading.Options())(fold).to_dict(), indent=1)


def same(inputs: str | Sequence[str], running: Any) -> None:
    assert document(reading.fold(inputs, cluster=running.scheduler_address)) == document(reading.fold(inputs))


def per_process(folder: Path, files: int = 16, copies: int = 1) -> Path:
    """A log in the files of its processes, written so often that it takes some time to read."""
    (data,) = sample_data.contents("socket-2node-tp4-dp2")
    lines = data.splitlines(keepends=True) * copies
    folder.mkdir(exist_ok=True)
    for number in range(files):
        (folder / f"nccl.{number}.log").write_bytes(b"".join(lines[number::files]))
    return folder
