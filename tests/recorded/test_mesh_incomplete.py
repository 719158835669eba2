"""Recordings of a mesh of which not all is in the input, or in several files."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import pytest
from mesh_pieces import mesh, on
from repository import ROOT

import nccl_inspect
from nccl_inspect.model.job import Job

NODES = ROOT / "sample_logs" / "mesh-nodes"


def by_host(name: str, folder: Path, hosts: Collection[int] = range(4)) -> Job:
    """A recording with a file for each host, of these hosts only."""
    recording = next(recording for recording in mesh() if recording.name == name)
    for number in hosts:
        (folder / f"node-{number}.log").write_text(on(recording, {number}), encoding="utf-8")
    return nccl_inspect.read(folder)


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


@pytest.mark.parametrize("name", ["leave-lazy", "operation-lazy", "size-eager", "type-lazy"])
def test_a_file_for_each_host_shows_the_same_group_first(name: str, tmp_path: Path) -> None:
    whole = nccl_inspect.read(NODES / name / "job.log.xz").findings[0]
    parts = by_host(name, tmp_path).findings[0]
    assert (parts.rule, parts.ranks) == (whole.rule, whole.ranks)
    assert parts.summary.split(", communicator")[0] == whole.summary.split(", communicator")[0]


@pytest.mark.parametrize("name", ["leave-eager", "operation-lazy", "sigstop-lazy", "size-lazy", "type-eager"])
def test_ranks_whose_output_is_missing_are_not_blamed_where_others_may_be(name: str, tmp_path: Path) -> None:
    """Of the node with ranks 2 and 3 there is no log."""
    assert by_host(name, tmp_path, {0, 2, 3}).findings[0].ranks in ([5], [4, 5])


@pytest.mark.parametrize("name", ["leave-eager", "loop-lazy", "sigkill-lazy", "size-eager"])
def test_ranks_whose_output_is_missing_are_where_to_look_if_nobody_else_is(name: str, tmp_path: Path) -> None:
    assert by_host(name, tmp_path, {0, 1, 3}).findings[0].ranks == [4, 5]
