"""Dumps of whole jobs, in all forms: the rank that holds up all others is named, and soon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import recorded_job

import nccl_inspect
from nccl_inspect.model.finding import Finding


def judged(folder: Path, job: recorded_job.Job, **more: Any) -> Finding:
    recorded_job.write(folder, job, **more)
    (folder / "job.log").write_bytes(recorded_job.log(job))
    findings = nccl_inspect.read(str(folder)).findings
    return next(finding for finding in findings if finding.rule == "collective-not-called")


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(("ranks", "kept"), [(16, None), (32, 20), (64, 9)])
def test_the_late_rank_is_named_in_every_form(ranks: int, kept: int | None, as_json: bool, tmp_path: Path) -> None:
    finding = judged(tmp_path, recorded_job.Job(ranks, 10, late=11, kept=kept), as_json=as_json)
    assert finding.ranks == [11]
    assert finding.confidence == "certain"
    assert "DATA_PARALLEL_GROUP" in finding.summary
    assert "/app/train.py:214 in train_step" in " ".join([finding.cause, *(line.text for line in finding.evidence)])


def test_a_late_rank_without_a_dump_is_likely_the_one(tmp_path: Path) -> None:
    finding = judged(tmp_path, recorded_job.Job(32, 10, late=11), silent=[11])
    assert (finding.ranks, finding.confidence) == ([11], "likely")


@pytest.mark.slow
def test_the_dumps_of_1024_ranks_are_judged(tmp_path: Path) -> None:
    job = recorded_job.Job(1024, 25, late=517)
    recorded_job.write(tmp_path, job)
    (tmp_path / "job.log").write_bytes(recorded_job.log(job))
    findings = nccl_inspect.read(str(tmp_path)).findings
    (finding,) = (finding for finding in findings if finding.rule == "collective-not-called")
    assert (finding.ranks, finding.confidence) == ([517], "certain")
