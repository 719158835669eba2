"""Evidence beside logs: what is told from a log, what is passed over, and how often folders are gone through.

Which job evidence belongs to, and why it is not used, is in `tests/labels/built_artifacts.toml` (`unused`).
"""

from __future__ import annotations

import json
import lzma
import os
import pickle
import re
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dumps import LOG, MESH
from repository import ROOT, TESTS

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import joining, ras
from nccl_inspect.cli import cli
from nccl_inspect.model.inventory import Artifact
from nccl_inspect.report import digest

FOUR = ROOT / "sample_logs" / "v2.30.7-shm-4gpu" / "job.log"
BESIDE = ("nccl_trace_rank_0", "nccl_trace_rank_1", "ras.json", "ras.text")


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    folder = tmp_path / "mesh"
    shutil.copytree(MESH / "skip-eager", folder)
    return folder


def test_evidence_is_told_from_logs(mesh: Path) -> None:
    (mesh / "settings.json").write_text("{}", encoding="utf-8")
    logs, evidence = artifacts.inventory(str(mesh))[:2]
    assert [Path(file.name).name for file in logs] == ["job.log.xz"]
    assert sorted(Path(artifact.name).name for artifact in evidence) == sorted(BESIDE)
    found = artifacts.inventory(str(mesh))
    assert (len(found.logs), len(found.evidence), len(found.passed_over)) == (1, 4, 2)


def test_a_log_of_nccl_needs_no_reader_of_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.log").write_bytes(LOG)
    monkeypatch.setattr(artifacts, "kinds", pytest.fail)
    logs, evidence = artifacts.inventory(str(tmp_path / "job.log"))[:2]
    assert ([Path(log.name).name for log in logs], evidence) == (["job.log"], [])


def test_folders_are_gone_through_once_for_all_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        folder = tmp_path / f"job{number}"
        folder.mkdir()
        (folder / "job.log").write_bytes(re.sub(rb"commId 0x.", b"commId 0x%d" % (number + 1), FOUR.read_bytes()))
    recorded = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": []}
    (tmp_path / "job3" / "nccl_trace_rank_0").write_bytes(pickle.dumps(recorded, protocol=2))
    calls: list[int] = []
    folders = joining.folders

    def count_events(jobs: Any) -> Any:
        calls.append(len(jobs))
        return folders(jobs)

    monkeypatch.setattr(joining, "folders", count_events)
    job = nccl_inspect.read(str(tmp_path), job="job3")
    assert calls == [6]
    assert [Path(artifact.name).parent.name for artifact in job.artifacts] == ["job3"]
    assert nccl_inspect.read(str(tmp_path), job="job2").artifacts == []


def test_what_a_folder_holds_besides_is_named(mesh: Path) -> None:
    (mesh / ".git").mkdir()
    (mesh / ".git" / "config").write_text("x")
    (mesh / "train.py").write_text("print()")
    (mesh / "state.pt").write_bytes(b"\0")
    (mesh / "notes").write_text("nothing known")
    (mesh / "empty").touch()
    os.mkfifo(mesh / "pipe.log")
    (mesh / "loop").symlink_to("loop")
    (mesh / "gone").symlink_to("nowhere")
    (mesh / "up").symlink_to("..")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(mesh / "s"))
    with (mesh / "sparse.log").open("wb") as file:
        file.truncate(10 << 30)
    job = nccl_inspect.read(str(mesh))
    assert {Path(one.name).name: one.reason for one in job.passed_over} == {
        "empty": "empty",
        "gone": "link to nothing",
        "loop": "link that leads to itself",
        "notes": "neither a log nor evidence of a known kind",
        "pipe.log": "named pipe",
        "s": "socket",
        "sparse.log": "only zeros",
        "state.pt": "not a log by its name",
        "train.py": "not a log by its name",
        "truth.json": "neither a log nor evidence of a known kind",
        "up": "link to a folder",
    }
    document: Any = job.to_dict()
    assert [one["name"] for one in document["passed_over"]] == [one.name for one in job.passed_over]
    assert dict(digest.evidence_rows(job))["passed over"] == "11 files: notes, truth.json, empty (empty), …"
    for form in ("text", "markdown", "html"):
        out = CliRunner().invoke(cli, ["summarize", str(mesh), "--format", form]).stdout
        assert "11 files: notes, truth.json" in re.sub(r"\s+", " ", out), form
    for number in range(300):
        (mesh / f"shard-{number}.bin").touch()
    assert dict(digest.evidence_rows(nccl_inspect.read(str(mesh))))["passed over"].startswith(
        "311 files: notes, truth.json"
    )


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("error::ResourceWarning")
def test_an_archive_that_holds_evidence_is_closed_again(mesh: Path, tmp_path: Path) -> None:
    for form in ("tar", "gztar", "zip"):
        assert len(nccl_inspect.read(shutil.make_archive(str(tmp_path / "run"), form, mesh)).artifacts) == 4


def test_a_warning_of_many_unused_files_is_one_line() -> None:
    unused = [
        Artifact(f"nccl_trace_rank_{rank}", "flight recorder dump", problem="of a world of 8") for rank in range(8)
    ]
    assert list(digest.list_unused_evidence(unused, short=True)) == [
        "8 flight recorder dumps (nccl_trace_rank_0, …): of a world of 8"
    ]


def test_a_watch_reads_evidence_at_the_end(mesh: Path, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(lzma.decompress((mesh / "job.log.xz").read_bytes()))
    result = CliRunner().invoke(cli, ["watch", "--until-end", str(log), str(mesh), str(tmp_path / "later")])
    assert "2 flight recorder dumps, 2 RAS answers" in result.stdout
    assert "1 log beside it" in result.stderr
    assert "later: no such file" in result.stderr
    result = CliRunner().invoke(cli, ["watch", str(FOUR), str(FOUR)])
    assert result.exit_code == 2
    assert "only one log can be watched" in result.stderr


# --- Answers of RAS, as text and as JSON

TEXT = (TESTS / "data" / "ras-answer.txt").read_text(encoding="utf-8")


def test_an_answer_as_text() -> None:
    assert artifacts.kind_of(TEXT.encode()) is ras.KIND
    answer = ras.read("x", TEXT.encode())
    assert [(lost.host, lost.pid, lost.is_dead, lost.rank) for lost in answer.lost] == [
        ("192.0.2.7", 4711, True, None),
        ("192.0.2.7", 4711, False, 3),
    ]
    (mismatch,) = answer.mismatches
    assert (mismatch.comm_id, mismatch.operation, mismatch.usual) == ("0xcafe", "AllReduce", 12)
    assert [(member.rank, member.launched) for member in mismatch.behind] == [(4, 9), (6, 0), (7, 0)]
    assert [(one.stage, one.what, [member.rank for member in one.members]) for one in answer.errors] == [
        ("Initialization", "Internal error", [5]),
        ("Asynchronous", "Remote process error", [0, 1]),
        ("Asynchronous", "System error", [2]),
    ]
    assert answer.errors[2].members[0].host == "fd00::7"
    assert [(one.what, one.count, [member.rank for member in one.members]) for one in answer.states] == [
        ("RUNNING", 60, []),
        ("NOCOMM", 2, [3, 4]),
        ("ABORT", 1, [6]),
    ]
    assert TEXT.splitlines()[answer.states[1].line - 1] == "  2 ranks have status NOCOMM"


def test_both_forms_say_the_same() -> None:
    for form in ("text", "json"):
        answer = ras.read(form, (MESH / "loop-eager" / f"ras.{form}").read_bytes())
        assert {member.rank for mismatch in answer.mismatches for member in mismatch.behind} == {1}


def test_an_answer_alone_is_judged(tmp_path: Path) -> None:
    (tmp_path / "ras.txt").write_text(TEXT, encoding="utf-8")
    (found,) = (one for one in nccl_inspect.read(tmp_path / "ras.txt").findings if one.rule == "process-unresponsive")
    assert (found.hosts, found.summary) == (["192.0.2.7"], "RAS has no answer from pid 4711 on 192.0.2.7")


def test_an_answer_of_other_types_stops_nobody(tmp_path: Path) -> None:
    data = (MESH / "loop-eager" / "ras.json").read_bytes()
    (tmp_path / "job.log").write_bytes(LOG)
    values: tuple[Any, ...] = ("x", -1, [], {"AllReduce": "7"}, 1.5)
    for key in ("rank", "pid", "cuda_dev", "collective_counts", "size", "host"):
        for value in values:

            def change_answer(found: dict[str, Any], key: str = key, value: Any = value) -> dict[str, Any]:
                return {**found, key: value} if key in found else found

            changed = json.dumps(json.loads(data, object_hook=change_answer))
            (tmp_path / "ras.json").write_text(changed, encoding="utf-8")
            (found,) = artifacts.inventory(str(tmp_path)).evidence
            assert found.kind == ras.KIND.title
            assert found.value or (found.problem or "").startswith("damaged: "), f"{key} = {value}"


def test_an_answer_as_json() -> None:
    def rank(number: int, **status: Any) -> dict[str, Any]:
        return {"rank": number, "host": "192.0.2.7", "pid": 10 + number, "cuda_dev": number, "status": status}

    comm = {
        "hash": "0xab",
        "size": 5,
        "ranks": [
            rank(0, init_state=0, async_error=6),
            rank(1, init_state=0, async_error=2),
            rank(2, init_state=0, async_error=7, abort_flag=True),
        ],
        "missing_ranks": [rank(3, unresponsive=False, considered_dead=False), rank(4, unresponsive=True)],
    }
    document = {"nccl_version": "2.30.3", "communicators_count": 1, "communicators": [comm]}
    answer = ras.read("x", json.dumps(document).encode())
    assert [(one.what, [member.rank for member in one.members]) for one in answer.errors] == [
        ("System error", [1]),
        ("Remote process error", [0]),
    ]
    assert {one.what: [member.rank for member in one.members] for one in answer.states} == {
        "RUNNING": [0, 1],
        "ABORT": [2],
        "NOCOMM": [3],
    }
    assert [lost.rank for lost in answer.lost] == [4]
