"""Recorded jobs as people pass them on: what a filter leaves out makes no other rank the one that failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import sample_data
from known_labels import labels
from repository import ROOT

import nccl_inspect
from nccl_inspect.errors import NoInputError

_MARKS = (
    *("waited", "lost a connection", "gave up", "a call of NCCL failed", "monitoredBarrier", "was told to end"),
    "is setting up NCCL communicator",
    "Call to recv from",
)
"""What the first entry of a story says where it only tells of ranks that wait for others, lost or followed them."""
_TAIL = 150


def _keep(pattern: str) -> Callable[[list[bytes]], list[bytes]]:
    shown = re.compile(pattern.encode())
    return lambda lines: [line for line in lines if shown.search(line)]


FILTERS: Mapping[str, Callable[[list[bytes]], list[bytes]]] = {
    "grep -i nccl": _keep(r"(?i)nccl"),
    "grep errors": _keep(r"(?i)nccl|error|exception|signal|killed"),
    "NCCL_DEBUG=WARN": lambda lines: [line for line in lines if not re.search(rb"\] NCCL INFO", line)],
    "tail": lambda lines: lines[-_TAIL:],
}
KNOWN = {
    ("killed-in-groups.log.gz", "tail"): "the numbers of ranks are those of groups of two",
    ("models-differ.log.gz", "tail"): "who lacks parameters is told by who has them",
    ("evaluation-long.log.gz", "tail"): "the loopback interface is what is left of the causes",
    ("restarted-id", "NCCL_DEBUG=WARN"): "without the ids of communicators the first attempt leads",
}
"""Filters with which another rank leads, and why."""


@pytest.mark.slow
def test_a_filtered_log_blames_nobody_else(tmp_path: Path) -> None:
    wrong = set()
    for name, (of, label) in labels().items():
        file = ROOT / name
        if of != "faults.toml" or not file.exists() or not label.get("ranks"):
            continue
        given = [file] if file.is_file() else sorted(file.glob("*.log*"))
        for words, keep in FILTERS.items():
            for one in tmp_path.iterdir():
                one.unlink()
            for one in given:
                log = b"".join(keep(sample_data.unpack(one).splitlines(keepends=True)))
                (tmp_path / one.name.partition(".gz")[0]).write_bytes(log)
            try:
                job = nccl_inspect.read(str(tmp_path))
            except NoInputError:
                continue
            first: list[Any] = job.to_dict()["story"][:1]  # type: ignore[index]
            is_open = any(mark in entry["what"] for entry in first for mark in _MARKS)
            blamed = {rank for entry in first if not is_open for rank in entry["ranks"]}
            lead = next(iter(job.findings), None)
            if blamed and blamed.isdisjoint(label["ranks"]) and lead and lead.confidence != "possible":
                wrong.add((file.name, words, first[0]["what"], *sorted(blamed)))
    assert {(name, words) for name, words, *_ in wrong} == set(KNOWN), sorted(wrong)
