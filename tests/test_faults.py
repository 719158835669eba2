"""Jobs that were made to fail on two H200 with PyTorch 2.11 and NCCL 2.28.9: what was done to each is known."""

from __future__ import annotations

import gzip
from typing import NamedTuple

import pytest
import sample_data

import nccl_inspect

FOLDER = sample_data.FOLDER / "faults"


class Told(NamedTuple):
    """What must be said of a job."""

    verdict: str
    rule: str
    """Of the finding that leads."""
    ranks: tuple[int, ...]
    words: str
    """In its summary or cause."""


FAULTS = {
    "assert": Told("failed", "peer-death", (1,), "device-side assert triggered"),
    "exception": Told("failed", "peer-death", (1,), "its traceback begins at exception.log.gz:142"),
    "fds": Told("failed", "open-files-limit", (1,), "Call to pipe failed: Too many open files"),
    "illegal": Told("failed", "cuda-failure-in-launch", (1,), "a kernel that ran before on this GPU (illegal address)"),
    "interrupted": Told("ok", "ended-from-outside", (), "SIGINT from outside"),
    "late": Told("failed", "watchdog-timeout", (1,), "rank 1 came late"),
    "no-transport": Told("failed", "no-transport", (0, 1), "NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1 leave none"),
    "oom": Told("failed", "gpu-out-of-memory", (1,), "GPU memory ran out when PyTorch asked for more"),
    "oom-warn": Told("failed", "gpu-out-of-memory", (1,), "GPU memory ran out when PyTorch asked for more"),
    "quits": Told("failed", "watchdog-timeout", (1,), "suspect: rank 1"),
    "segv": Told("failed", "peer-death", (1,), "was ended by SIGSEGV"),
    "shm-removed": Told("failed", "shm-attach-failed", (0, 1), "No such file or directory"),
    "shm-small": Told("failed", "shm-segment-failed", (0, 1), "/dev/shm is full or too small"),
    "terminated": Told("ok", "ended-from-outside", (), "SIGTERM from outside"),
    "usage": Told("failed", "invalid-usage", (0, 1), "invalid root 5 (root should be in the 0..2 range)"),
}


def test_every_log_is_tested() -> None:
    assert set(FAULTS) == {file.name.removesuffix(".log.gz") for file in FOLDER.glob("*.gz")}


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_told_and_the_rank_that_has_it(name: str) -> None:
    job = nccl_inspect.read(FOLDER / f"{name}.log.gz")
    told = FAULTS[name]
    lead = job.findings[0]
    assert (job.verdict, lead.rule, tuple(lead.ranks)) == (told.verdict, told.rule, told.ranks)
    assert told.words in f"{lead.summary}; {lead.cause}"
    assert not job.unexplained
    assert not job.unrecognised
    assert sum(source.damaged_lines for source in job.sources) == 0


def test_who_came_late_is_told_by_the_times_and_not_by_the_order_of_the_logs() -> None:
    lines = gzip.decompress((FOLDER / "late.log.gz").read_bytes()).splitlines(keepends=True)
    late_first = sorted(lines, key=lambda line: b"[rank1]" not in line)
    job = nccl_inspect.read(b"".join(late_first))
    assert (job.findings[0].rule, job.findings[0].ranks) == ("watchdog-timeout", [1])
    assert "rank 1 came late" in job.findings[0].cause
