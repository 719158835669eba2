"""The wide job of the benchmarks: what is read from its log is its truth."""

from __future__ import annotations

import pytest
from wide_job import WideJob, collected

import nccl_inspect


@pytest.mark.parametrize("ranks", [8, 16, 64, 128])
@pytest.mark.parametrize("prefixed", [False, True], ids=["plain", "collected"])
def test_each_path_is_that_of_the_truth(ranks: int, prefixed: bool) -> None:
    wide = WideJob(ranks, no_gdr=1)
    lines = collected(wide.lines()) if prefixed else wide.lines()
    job = nccl_inspect.read("".join(lines).encode())
    assert {
        (path.src, path.dst): (path.transport, None if path.gdr is None else path.gdr is True) for path in job.paths
    } == wide.truth
    assert {comm.state for comm in job.communicators} == {"connected"}
    assert [host.name for host in job.hosts] == wide.hosts
    assert [finding.rule for finding in job.findings] == ["gdr-one-sided"] * (ranks > 8)
    assert job.unplaced_lines == 0


def test_a_job_is_the_same_each_time() -> None:
    assert list(WideJob(16).lines()) == list(WideJob(16).lines())
