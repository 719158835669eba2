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
    "all-raise": Told("failed", "peer-death", (0, 1), "ended with ValueError: Should have seen at least one entry"),
    "assert": Told("failed", "peer-death", (1,), "device-side assert triggered"),
    "barrier": Told("failed", "peer-death", (1,), "gave up: RuntimeError: [Rank 0]: Rank 1 failed to pass monitored"),
    "chained": Told("failed", "peer-death", (1,), "It first raised ValueError: invalid literal for int()"),
    "cublas": Told("failed", "gpu-out-of-memory", (1,), "GPU memory ran out when PyTorch asked for more"),
    "exception": Told("failed", "peer-death", (1,), "its traceback begins at exception.log.gz:142"),
    "fds": Told("failed", "open-files-limit", (1,), "Call to pipe failed: Too many open files"),
    "gloo": Told("failed", "peer-death", (1,), "ended with exit code 9"),
    "illegal-abort": Told("failed", "peer-death", (1,), "a kernel that ran earlier on this GPU (illegal address)"),
    "illegal": Told(
        "failed", "cuda-failure-in-launch", (1,), "a kernel that ran earlier on this GPU (illegal address)"
    ),
    "interrupted": Told("ok", "ended-from-outside", (0, 1), "SIGINT from outside"),
    "late": Told("failed", "watchdog-timeout", (1,), "rank 1 arrived late"),
    "lightning-killed": Told("failed", "peer-death", (1,), "was ended by SIGKILL"),
    "loader": Told("failed", "peer-death", (1,), "ended with KeyError: 'tokens'"),
    "loader-killed": Told(
        "failed", "peer-death", (1,), "a DataLoader worker of rank 1 (pid 4076) was ended by SIGKILL"
    ),
    "master-silent": Told("failed", "rendezvous-failed", (), "nothing answers at 127.0.0.1:29902"),
    "master-unknown": Told("failed", "rendezvous-failed", (), "the name cannot be resolved"),
    "nccl-oom": Told("failed", "gpu-out-of-memory", (1,), "GPU memory ran out when NCCL (channel.cc) asked for more"),
    "no-transport": Told("failed", "no-transport", (0, 1), "NCCL_P2P_DISABLE=1, NCCL_SHM_DISABLE=1 leave none"),
    "nodes-missing": Told("failed", "rendezvous-failed", (), "torchrun waited for agents of other nodes"),
    "oom": Told("failed", "gpu-out-of-memory", (1,), "GPU memory ran out when PyTorch asked for more"),
    "oom-warn": Told("failed", "gpu-out-of-memory", (1,), "GPU memory ran out when PyTorch asked for more"),
    "port-taken": Told("failed", "rendezvous-failed", (), "another program uses it"),
    "quits": Told("failed", "watchdog-timeout", (1,), "suspect: rank 1"),
    "restarted": Told("failed", "peer-death", (1,), "its traceback begins at restarted.log.gz:296"),
    "segv": Told("failed", "peer-death", (1,), "was ended by SIGSEGV"),
    "shm-removed": Told("failed", "shm-attach-failed", (0, 1), "No such file or directory"),
    "shm-small": Told("failed", "shm-segment-failed", (0, 1), "/dev/shm is full or too small"),
    "spawn": Told(
        "failed", "peer-death", (), "process 1 of torch.multiprocessing.spawn ended with ValueError: no such"
    ),
    "spawn-killed": Told("failed", "peer-death", (), "process 1 of torch.multiprocessing.spawn was ended by SIGKILL"),
    "terminated": Told("ok", "ended-from-outside", (0, 1), "SIGTERM from outside"),
    "thread": Told("failed", "peer-death", (1,), "a thread raised OSError: [Errno 28] No space left on device"),
    "usage": Told("failed", "invalid-usage", (0, 1), "invalid root 5 (root should be in the 0..2 range)"),
    "world-too-large": Told("failed", "rendezvous-failed", (1,), "only 2 of 3 processes joined"),
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
    assert "rank 1 arrived late" in job.findings[0].cause


def test_what_a_rule_explains_may_still_be_the_first_error() -> None:
    first = nccl_inspect.read(FOLDER / "usage.log.gz").first_failure
    assert first is not None
    assert (first.ranks, first.basis, first.evidence.line) == ([0, 1], "alone", 77)
