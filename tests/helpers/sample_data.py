"""The captures of ``sample_logs`` for the tests: their bytes, their files and what is true of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT

import nccl_inspect
from nccl_inspect.model.fold import Fold
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline.reader import Reader

FOLDER = ROOT / "sample_logs"


@cache
def names() -> tuple[str, ...]:
    """Return the samples with a ground truth."""
    return tuple(sorted(file.parent.name for file in FOLDER.glob("*/truth.json")))


def one_or_all(*few: str) -> pytest.MarkDecorator:
    """Return a few samples for `make test`, and all of them for `make test-all`."""
    return pytest.mark.parametrize("names", [few, pytest.param(names(), marks=pytest.mark.slow)], ids=["few", "all"])


@cache
def truth(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / name / "truth.json").read_text(encoding="utf-8"))
    return loaded


def files(name: str) -> list[Path]:
    return [file for file in sorted((FOLDER / name).rglob("*.log*")) if file.is_file()]


@cache
def contents(name: str) -> tuple[bytes, ...]:
    return tuple(unpack(file) for file in files(name))


def unpack(file: Path) -> bytes:
    data = file.read_bytes()
    return gzip.decompress(data) if file.suffix == ".gz" else data


@cache
def job(name: str) -> Job:
    return nccl_inspect.read([str(file) for file in files(name)])


def is_torn(name: str) -> bool:
    return "cut_lines" in truth(name)


def fold_sources(parts: Sequence[tuple[str, Sequence[bytes]]]) -> Fold:
    """One fold of some sources, each with its lines."""
    reader = Reader()
    for name, lines in parts:
        reader.fold.start(name)
        reader.feed(lines)
    return reader.fold
