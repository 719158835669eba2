"""Evidence beside the log: what is recognised, what is refused, and what the dumps of all ranks say together."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from dumps import LOG, MESH, dump, entry
from repository import ROOT

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import causes, joining, standstill


def test_evidence_is_told_from_logs(tmp_path: Path) -> None:
    for name in ("nccl_trace_rank_0", "ras.json", "ras.text"):
        (tmp_path / name).write_bytes((MESH / "loop-eager" / name).read_bytes())
    (tmp_path / "job.log").write_bytes(LOG)
    (tmp_path / "settings.json").write_text("{}", encoding="utf-8")
    logs, beside = artifacts.parted(str(tmp_path))
    assert [Path(file.name).name for file in logs] == ["job.log"]
    assert sorted(Path(artifact.name).name for artifact in beside) == ["nccl_trace_rank_0", "ras.json", "ras.text"]


def test_a_log_of_nccl_needs_no_reader_of_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.log").write_bytes(LOG)
    monkeypatch.setattr(artifacts, "kinds", pytest.fail)
    logs, beside = artifacts.parted(str(tmp_path / "job.log"))
    assert ([Path(log.name).name for log in logs], beside) == (["job.log"], [])


def test_folders_are_gone_through_once_for_all_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = (ROOT / "sample_logs" / "v2.30.7-shm-4gpu" / "job.log").read_bytes()
    for number in range(6):
        folder = tmp_path / f"job{number}"
        folder.mkdir()
        (folder / "job.log").write_bytes(re.sub(rb"commId 0x.", b"commId 0x%d" % (number + 1), world))
    recorded = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": []}
    (tmp_path / "job3" / "nccl_trace_rank_0").write_bytes(pickle.dumps(recorded, protocol=2))
    calls: list[int] = []
    folders = joining.folders

    def counted(jobs: Any) -> Any:
        calls.append(len(jobs))
        return folders(jobs)

    monkeypatch.setattr(joining, "folders", counted)
    job = nccl_inspect.read(str(tmp_path), job="job3")
    assert calls == [6]
    assert [Path(artifact.name).parent.name for artifact in job.artifacts] == ["job3"]
    assert nccl_inspect.read(str(tmp_path), job="job2").artifacts == []


def test_who_waits_in_calls_that_differ_is_no_cause_elsewhere() -> None:
    groups = {"tp0": [0, 1, 2], "tp1": [3, 4, 5], **{f"dp{rank}": [rank, rank + 3] for rank in range(3)}}
    dumps = [
        dump(rank, [entry(1, "tp0", 1, "all_reduce"), entry(2, f"dp{rank}", 1, "all_reduce", "started")], groups)
        for rank in range(3)
    ]
    dumps += [
        dump(rank, [entry(1, "tp1", 1, "all_reduce", "started", input_sizes=[[4, 8 + (rank == 4)]])], groups)
        for rank in range(3, 6)
    ]
    (found,) = standstill.of(dumps)
    assert (found.kind, [part.rank for part in found.culprits]) == (causes.DIFFERENT, [4])
