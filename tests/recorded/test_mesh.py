"""Real jobs on two GPUs, broken on purpose (``tools/break_mesh.py``), judged with all that they left behind."""

from __future__ import annotations

import json

import pytest
from repository import ROOT

import nccl_inspect

MESH = ROOT / "sample_logs" / "mesh"
RECORDINGS = sorted(folder.name for folder in MESH.iterdir() if folder.is_dir())
LEADING = {
    "skipped-call": "collective-mismatch",
    "other-size": "collective-mismatch",
    "other-type": "collective-mismatch",
    "other-operation": "collective-mismatch",
    "order": "groups-out-of-order",
    "busy": "collective-not-called",
    "stopped": "process-unresponsive",
    "left": "process-unresponsive",
    "killed": "peer-death",
    "exception": "peer-death",
    "shm": "shm-segment-failed",
    "straggler": "straggler",
}
"""What must lead, by what was done to the job."""


def truth(name: str) -> dict[str, object]:
    loaded: dict[str, object] = json.loads((MESH / name / "truth.json").read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_job_is_judged_by_all_that_it_left(name: str) -> None:
    job = nccl_inspect.read(str(MESH / name))
    kind = str(truth(name)["kind"])
    expected = LEADING.get(kind)
    assert not any(artifact.problem for artifact in job.artifacts)
    if kind == "healthy":
        assert (job.verdict, job.findings) == ("ok", [])
        return
    assert job.verdict in ("failed", "unknown")
    if expected:
        assert job.verdict == ("unknown" if kind == "straggler" else "failed")
        assert job.findings[0].rule == expected
    if expected in ("collective-not-called", "process-unresponsive", "peer-death", "straggler"):
        assert job.findings[0].ranks == [truth(name)["culprit_rank"]]


@pytest.mark.parametrize("name", [name for name in RECORDINGS if truth(name)["kind"] not in ("other-setting", "shm")])
def test_the_log_alone_names_no_wrong_suspect(name: str) -> None:
    job = nccl_inspect.read(str(MESH / name / "job.log.xz"))
    for finding in job.findings:
        if "suspect" in finding.summary.lower():
            assert f"suspect: rank {truth(name)['culprit_rank']}" in finding.summary


def test_what_run_kept_of_a_hang_names_the_rank_and_lists_the_evidence() -> None:
    job = nccl_inspect.read(str(MESH.parent / "run-loop"))
    assert (job.findings[0].rule, job.findings[0].ranks) == ("collective-not-called", [1])
    assert job.findings[0].confidence == "certain"
    assert job.platform == "h200-sxm"
    kinds = {artifact.kind for artifact in job.artifacts if not artifact.problem}
    assert {"flight recorder dump", "RAS answer", "topology file", "df output", "nvidia-smi -q output"} <= kinds
    assert not [artifact.problem for artifact in job.artifacts if artifact.problem]
