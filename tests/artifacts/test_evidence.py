"""Evidence beside logs: which job it belongs to, what is not used and why, what is passed over."""

from __future__ import annotations

import io
import json
import lzma
import os
import pickle
import re
import shutil
import socket
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import dumps
import pytest
import sample_data
from click.testing import CliRunner
from repository import ROOT

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.cli import cli
from nccl_inspect.model.job import Job
from nccl_inspect.report import beside

SAMPLES = ROOT / "sample_logs"
MESH = SAMPLES / "mesh" / "skip-eager"
FOUR = SAMPLES / "v2.30.7-shm-4gpu" / "job.log"
BESIDE = ("nccl_trace_rank_0", "nccl_trace_rank_1", "ras.json", "ras.text")


def unused(job: Job) -> dict[str, str]:
    """What is not used, and why."""
    return {Path(entry.name).name: entry.problem for entry in job.artifacts if entry.problem}


def dump(world: int, active: float = 0.0) -> bytes:
    """A dump with one call, of a rank of a world of this size."""
    call = {
        "record_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
        "time_created_ns": int(active * 1e9),
    }
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    return pickle.dumps({"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": [call]}, protocol=2)


@pytest.fixture
def mesh(tmp_path: Path) -> Path:
    """A folder with a job of two ranks and all its evidence."""
    folder = tmp_path / "mesh"
    shutil.copytree(MESH, folder)
    return folder


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
    rows = dict(beside.rows(job))
    assert rows["passed over"] == "11 files: notes, truth.json, empty (empty), …"
    document: Any = job.to_dict()
    assert [one["name"] for one in document["passed_over"]] == [one.name for one in job.passed_over]
    for form in ("text", "markdown", "html"):
        out = CliRunner().invoke(cli, ["summarize", str(mesh), "--format", form]).stdout
        assert "11 files: notes, truth.json" in re.sub(r"\s+", " ", out), form


def test_thousands_of_files_are_one_row(mesh: Path) -> None:
    for number in range(3000):
        (mesh / f"shard-{number}.bin").touch()
    assert dict(beside.rows(nccl_inspect.read(str(mesh))))["passed over"].startswith("3,001 files: truth.json, shard-")


def test_a_log_alone_names_nothing() -> None:
    assert not nccl_inspect.read(str(FOUR)).passed_over


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("error::ResourceWarning")  # it is closed again
@pytest.mark.parametrize("form", ["tar", "tar.gz", "zip"])
def test_an_archive_holds_evidence(mesh: Path, tmp_path: Path, form: str) -> None:
    packed = tmp_path / f"run.{form}"
    if form == "zip":
        with zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(mesh.iterdir()):
                archive.write(path, f"run/{path.name}")
    else:
        with tarfile.open(packed, "w:gz" if form.endswith("gz") else "w") as archive:
            archive.add(mesh, "run")
    job, unpacked = nccl_inspect.read(str(packed)), nccl_inspect.read(str(mesh))
    assert [finding.rule for finding in job.findings] == [finding.rule for finding in unpacked.findings]
    assert sorted(entry.kind for entry in job.artifacts) == sorted(entry.kind for entry in unpacked.artifacts)
    assert [source.name for source in job.sources] == [f"{packed}:run/job.log.xz"]
    assert [one.name for one in job.passed_over] == [f"{packed}:run/truth.json"]


def test_a_damaged_archive_gives_what_it_holds(mesh: Path, tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in ("job.log.xz", *BESIDE):
            archive.add(mesh / name, name)
    (tmp_path / "cut.tar").write_bytes(data.getvalue()[:-9000])
    result = CliRunner().invoke(cli, ["summarize", str(tmp_path / "cut.tar")])
    assert "Traceback" not in result.output
    assert not result.exception


def test_packed_evidence_is_read(mesh: Path) -> None:
    import gzip

    for name in BESIDE:
        (mesh / f"{name}.gz").write_bytes(gzip.compress((mesh / name).read_bytes()))
        (mesh / name).unlink()
    job = nccl_inspect.read(str(mesh))
    assert len(job.artifacts) == len(BESIDE)
    assert not unused(job)


def test_dumps_of_another_world_are_not_used(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(FOUR.read_bytes())
    for rank in range(8):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(dump(8))
    job = nccl_inspect.read(str(tmp_path))
    assert set(unused(job).values()) == {"ranks 0-7 of a world of 8; the log's job has 4"}
    assert [finding.rule for finding in job.findings] == [f.rule for f in nccl_inspect.read(str(FOUR)).findings]
    assert list(beside.problems(job.artifacts, short=True)) == [
        "8 flight recorder dumps (nccl_trace_rank_0, …): ranks 0-7 of a world of 8; the log's job has 4"
    ]


def test_a_dump_that_an_earlier_run_left_is_not_used(mesh: Path) -> None:
    (mesh / "nccl_trace_rank_1").write_bytes(dump(2, active=1_000_000_000))
    assert re.fullmatch(
        r"\d+ days older than the dumps of other ranks|recorded \d+ days before the log began|of another run.*",
        unused(nccl_inspect.read(str(mesh)))["nccl_trace_rank_1"],
    )


def test_dumps_are_used_if_a_call_ran_out_of_time_though_all_communicators_were_destroyed(tmp_path: Path) -> None:
    """They may be of another program in the same log, or ranks may destroy them when they give up."""
    dumps.beside(tmp_path, {0: [dumps.DONE, dumps.entry(2, "w", 2, "all_reduce", "scheduled")]})
    (log,) = sample_data.contents("v2.21.5-ipc")
    (tmp_path / "job.log").write_bytes(log)
    assert "by the log all ranks finished" in str(unused(nccl_inspect.read(str(tmp_path))))
    timeout = (
        b"[rank0]:[E ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL("
        b"SeqNum=2, OpType=ALLREDUCE, NumelIn=32, NumelOut=32, Timeout(ms)=15000) "
        b"ran for 15006 milliseconds before timing out.\n"
    )
    (tmp_path / "job.log").write_bytes(timeout + log)
    assert not unused(nccl_inspect.read(str(tmp_path)))


def test_dumps_that_another_run_of_the_same_job_left_are_not_used(tmp_path: Path) -> None:
    """By the log other calls timed out than those that the dumps have open."""
    mesh = SAMPLES / "mesh" / "order-lazy"
    log = lzma.decompress((mesh / "job.log.xz").read_bytes())
    (tmp_path / "job.log").write_bytes(log.replace(b"SeqNum=9,", b"SeqNum=7,").replace(b"SeqNum=5,", b"SeqNum=3,"))
    alone = nccl_inspect.read(str(tmp_path))
    for dump_file in mesh.glob("nccl_trace_rank_*"):
        shutil.copy(dump_file, tmp_path)
    job = nccl_inspect.read(str(tmp_path))
    assert set(unused(job)) == {path.name for path in tmp_path.glob("nccl_trace_rank_*")}
    assert all("another run" in why for why in unused(job).values())
    assert [f.rule for f in job.findings] == [f.rule for f in alone.findings]
    (tmp_path / "job.log").write_bytes(log)
    assert not unused(nccl_inspect.read(str(tmp_path)))


def test_of_two_dumps_of_a_rank_the_newer_one_counts(mesh: Path) -> None:
    (mesh / "old").mkdir()
    shutil.copy(mesh / "nccl_trace_rank_0", mesh / "old" / "nccl_trace_rank_0")
    found = [entry for entry in nccl_inspect.read(str(mesh)).artifacts if entry.problem]
    assert [entry.problem.partition(" of ")[0] for entry in found if entry.problem] == ["a copy"]


def test_an_answer_of_another_job_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(FOUR.read_bytes())
    (tmp_path / "ras.json").write_bytes((MESH / "ras.json").read_bytes())
    job = nccl_inspect.read(str(tmp_path))
    assert unused(job)["ras.json"].startswith("about other communicators (0x")


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """The logs of two jobs in one folder, and evidence of one of them in another one."""
    folder = tmp_path / "two"
    (folder / "logs").mkdir(parents=True)
    (folder / "evidence").mkdir()
    shutil.copy(MESH / "job.log.xz", folder / "logs" / "mesh.log.xz")
    shutil.copy(FOUR, folder / "logs" / "four.log")
    for name in BESIDE:
        shutil.copy(MESH / name, folder / "evidence" / name)
    return folder


def test_evidence_goes_to_the_job_that_it_fits(two: Path) -> None:
    mesh, four = nccl_inspect.read(str(two), job="mesh"), nccl_inspect.read(str(two), job="four")
    assert sorted(Path(entry.name).name for entry in mesh.artifacts) == sorted(BESIDE)
    assert not unused(mesh)
    assert four.artifacts == []


def test_what_fits_none_or_several_is_named(two: Path) -> None:
    (two / "evidence" / "nccl_trace_rank_7").write_bytes(dump(8))
    (two / "evidence" / "train.sbatch").write_text("#!/bin/bash\n#SBATCH --gpus-per-task=1\nsrun train\n")
    job = nccl_inspect.read(str(two))
    assert len(job.jobs) == 2
    assert unused(job) == {
        "nccl_trace_rank_7": "ranks 0-7 of a world of 8; fits none of 2 jobs",
        "train.sbatch": "fits 2 jobs, and nothing in it says which; put it into the folder of its job",
    }


def test_two_jobs_of_one_size_share_no_dump(tmp_path: Path) -> None:
    log = FOUR.read_bytes()
    (tmp_path / "a.log").write_bytes(re.sub(rb"commId 0x.", b"commId 0x1", log))
    (tmp_path / "b.log").write_bytes(re.sub(rb"commId 0x.", b"commId 0x2", log).replace(b"vm:", b"vn:"))
    (tmp_path / "nccl_trace_rank_0").write_bytes(dump(4))
    job = nccl_inspect.read(str(tmp_path))
    assert unused(job) == {"nccl_trace_rank_0": "fits 2 jobs; put it into the folder of its job"}


def test_the_inventory_is_complete(mesh: Path) -> None:
    found = artifacts.inventory(str(mesh))
    assert (len(found.logs), len(found.evidence), len(found.passed_over)) == (1, 4, 1)
    assert artifacts.parted(str(mesh))[0][0].name == found.logs[0].name


@pytest.mark.parametrize("command", [["check", "--policy", "policy.toml"], ["diff", str(FOUR)]])
def test_check_and_diff_count_what_evidence_shows(mesh: Path, command: list[str], monkeypatch: Any) -> None:
    monkeypatch.chdir(mesh)
    Path("policy.toml").write_text('max_severity = "info"\n')
    result = CliRunner().invoke(cli, [*command, str(mesh), "--format", "json"])
    assert "collective-" in json.dumps(json.loads(result.stdout)), result.output


def test_a_watch_reads_evidence_at_the_end(mesh: Path, tmp_path: Path) -> None:
    import lzma

    log = tmp_path / "job.log"
    log.write_bytes(lzma.decompress((mesh / "job.log.xz").read_bytes()))
    result = CliRunner().invoke(cli, ["watch", "--until-end", str(log), str(mesh), str(tmp_path / "later")])
    assert "2 flight recorder dumps, 2 RAS answers" in result.stdout
    assert "1 log beside it" in result.stderr
    assert "later: no such file" in result.stderr


def test_a_watch_follows_one_log() -> None:
    result = CliRunner().invoke(cli, ["watch", str(FOUR), str(FOUR)])
    assert result.exit_code == 2
    assert "only one log can be watched" in result.stderr


def test_a_dump_lacks_what_timed_out_after_it_was_written(tmp_path: Path) -> None:
    """A process writes one dump: that it lacks a later call does not make it another run's."""
    mesh = SAMPLES / "mesh-nodes" / "sigkill-lazy"
    log = lzma.decompress((mesh / "job.log.xz").read_bytes())
    for dump_file in mesh.glob("nccl_trace_rank_*"):
        shutil.copy(dump_file, tmp_path)
    (tmp_path / "job.log").write_bytes(log)
    assert not unused(nccl_inspect.read(str(tmp_path)))
    before = log.replace(b"Received a dump signal", b"Received no dump signal")
    (tmp_path / "job.log").write_bytes(before)
    assert set(unused(nccl_inspect.read(str(tmp_path)))) >= {"nccl_trace_rank_0.xz", "nccl_trace_rank_1.xz"}
