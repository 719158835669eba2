"""Recordings of a mesh, some dumps of which are not in the input."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from repository import ROOT

import nccl_inspect

NODES = ROOT / "sample_logs" / "mesh-nodes"


@pytest.mark.parametrize("missing", [{4}, {5}, {4, 5}, set(range(8)) - {4}])
@pytest.mark.parametrize("name", ["loop-lazy", "no-partner-lazy", "operation-eager", "order-lazy", "size-eager"])
def test_no_rank_is_blamed_that_waits_by_the_log(name: str, missing: set[int], tmp_path: Path) -> None:
    """Rank 5 alone is at fault in each of them."""
    shutil.copy(NODES / name / "job.log.xz", tmp_path)
    for rank in set(range(8)) - missing:
        shutil.copy(NODES / name / f"nccl_trace_rank_{rank}.xz", tmp_path)
    job = nccl_inspect.read(tmp_path)
    blamed = [finding.ranks for finding in job.findings if finding.rule == "collective-not-called"]
    assert blamed in ([], [[5]])
