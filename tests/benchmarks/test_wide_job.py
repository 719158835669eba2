"""The wide job of the benchmarks: what is read from its log is its truth."""

from __future__ import annotations

import pytest
from wide_job import WideJob, collect_lines

import nccl_inspect


@pytest.mark.slow
def test_each_path_is_that_of_the_truth() -> None:
    for ranks in (8, 16, 64):
        wide = WideJob(ranks, no_gdr=1)
        assert list(wide.lines()) == list(WideJob(ranks, no_gdr=1).lines()), "it is the same each time"
        lines = collect_lines(wide.lines()) if ranks == 16 else wide.lines()
        job = nccl_inspect.read("".join(lines).encode())
        gdr = {(path.src, path.dst): None if path.gdr is None else path.gdr is True for path in job.paths}
        assert {(one.src, one.dst): (one.transport, gdr[one.src, one.dst]) for one in job.paths} == wide.truth
        assert {comm.state for comm in job.communicators} == {"connected"}
        assert [host.name for host in job.hosts] == wide.hosts
        assert [finding.rule for finding in job.findings] == ["gdr-one-sided"] * (ranks > 8)
        assert job.unplaced_lines == 0
