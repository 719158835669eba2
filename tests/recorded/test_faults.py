"""Jobs that were made to fail on two H200 (`labels/faults.toml`), with their lines in another order."""

from __future__ import annotations

import gzip

import sample_data

import nccl_inspect

FOLDER = sample_data.FOLDER / "faults"


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
