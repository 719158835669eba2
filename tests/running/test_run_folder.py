"""``run``: the settings that it adds, the folder it keeps, the report, and jobs that stand still."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from repository import ROOT
from running_jobs import LIMIT, python, quietly, read_until, run, shell, started

from nccl_inspect.running import variables
from nccl_inspect.running.standstill import Standstill
from nccl_inspect.running.streams import JobLog

SAMPLES = ROOT / "sample_logs"


def test_settings_are_added_and_none_is_replaced(tmp_path: Path) -> None:
    done = run(tmp_path, *quietly(shell("env")), NCCL_ALGO="Ring", TORCH_FR_BUFFER_SIZE="7")
    env = dict(line.split("=", 1) for line in done.stdout.decode().splitlines() if "=" in line)
    assert env["NCCL_DEBUG"] == "INFO"
    assert env["NCCL_DEBUG_FILE"] == f"{tmp_path}/out/nccl.%h.%p.log"
    assert env["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] == f"{tmp_path}/out/nccl_trace_rank_"
    assert env["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert env["NCCL_ALGO"] == "Ring"
    assert env["TORCH_FR_BUFFER_SIZE"] == "7"
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in env


def test_who_asked_for_lines_of_nccl_still_sees_them() -> None:
    folder = Path("/runs/50%")
    given = variables.given({"NCCL_DEBUG": "INFO"}, folder)
    assert not {"NCCL_DEBUG", "NCCL_DEBUG_FILE"} & given.keys()
    assert variables.given({}, folder)["NCCL_DEBUG_FILE"] == "/runs/50%%/nccl.%h.%p.log"
    assert variables.given({}, folder)["NCCL_TOPO_DUMP_FILE"] == "/runs/50%/topology.xml"
    assert variables.log_files({"NCCL_DEBUG_FILE": "/l/50%%/n.%h.%p"}) == "/l/50%/n.*.*"


def test_what_stands_in_the_configuration_of_nccl_is_set(tmp_path: Path) -> None:
    (tmp_path / "nccl.conf").write_text("# ours\nNCCL_DEBUG=WARN\n")
    given = variables.given({"NCCL_CONF_FILE": str(tmp_path / "nccl.conf")}, tmp_path)
    assert "NCCL_DEBUG" not in given


def test_an_earlier_run_is_kept(tmp_path: Path) -> None:
    run(tmp_path, *quietly(shell("echo first")))
    second = run(tmp_path, *shell("echo second"))
    assert b"out-2" in second.stderr
    assert (tmp_path / "out" / "job.log").read_bytes() == b"first\n"
    assert (tmp_path / "out-2" / "job.log").read_bytes() == b"second\n"


def test_a_folder_that_cannot_be_written_does_not_stop_the_job(tmp_path: Path) -> None:
    done = run(tmp_path, "--out", "/proc/out", "--", "echo", "ran", TMPDIR=str(tmp_path))
    assert done.stdout == b"ran\n"
    assert b"/proc/out: " in done.stderr


def test_without_a_folder_the_job_runs_elsewhere_and_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    done = run(tmp_path, *shell("echo ran; exit 3"), TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout) == (3, b"ran\n")
    assert b"Not a directory; the files go to" in done.stderr
    assert next(tmp_path.glob("nccl-run-*/job.log")).read_bytes() == b"ran\n"


def test_where_nothing_can_be_written_the_job_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nccl_inspect.running import folder

    (tmp_path / "out").write_text("a file")

    def full(**_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    said: list[str] = []
    assert folder.make(str(tmp_path / "out"), {}, said.append) is None
    assert said == [f"{tmp_path}/out: Not a directory; the job runs without a report"]


TRAINING = f"""
import lzma, os, pathlib, shutil, sys
name = os.environ["NCCL_DEBUG_FILE"].replace("%h", "node").replace("%p", str(os.getpid()))
pathlib.Path(name).write_bytes(lzma.open({str(SAMPLES / "mesh" / "skip-eager" / "job.log.xz")!r}).read())
for dump in pathlib.Path({str(SAMPLES / "mesh" / "skip-eager")!r}).glob("nccl_trace_rank_*"):
    rank = dump.name.rpartition("_")[2]
    shutil.copy(dump, os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + rank)
print("step 1")
sys.exit(1)
"""


def test_the_report_has_all_that_the_job_left(tmp_path: Path) -> None:
    done = run(tmp_path, *python(TRAINING))
    assert done.returncode == 1
    assert done.stdout == b"step 1\n", "the output stays as it was"
    assert b"collective-mismatch" in done.stderr
    assert b"FAILED" in done.stderr


def test_the_report_goes_to_a_file(tmp_path: Path) -> None:
    done = run(tmp_path, "--report", "report.json", "--quiet", *python(TRAINING))
    assert done.stderr == b""
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "failed"


def test_quiet_is_quiet(tmp_path: Path) -> None:
    assert run(tmp_path, "-q", *shell("echo out; echo err >&2")).stderr == b"err\n"


def test_one_of_the_processes_of_a_host_reports(tmp_path: Path) -> None:
    first = run(tmp_path, *shell("echo first"), SLURM_PROCID="0", SLURM_LOCALID="0")
    other = run(tmp_path, *shell("echo other"), SLURM_PROCID="1", SLURM_LOCALID="1")
    assert b"files of this run" in first.stderr
    assert other.stderr == b""
    assert {path.name for path in (tmp_path / "out").glob("job*")} == {"job.0.log", "job.1.log"}


@pytest.mark.parametrize(
    ("given", "ranks"),
    [
        ({}, (None, None)),
        ({"RANK": "3"}, (3, None)),
        ({"SLURM_PROCID": "9", "SLURM_LOCALID": "1"}, (9, 1)),
        ({"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, (5, 1)),
        ({"SLURM_PROCID": "1", "TORCHELASTIC_RUN_ID": "x", "RANK": "12", "LOCAL_RANK": "4"}, (12, 4)),
        ({"RANK": "many"}, (None, None)),
    ],
)
def test_the_innermost_launcher_numbers(given: dict[str, str], ranks: tuple[int | None, int | None]) -> None:
    assert variables.ranks(given) == ranks


def test_processes_of_a_job_share_the_usual_folder(tmp_path: Path) -> None:
    for rank in "01":
        launched = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}
        run(tmp_path, "-q", "--", "true", data=b"", **launched)
    assert {path.name for path in (tmp_path / "nccl-run-4711-0").glob("job*")} == {"job.0.log", "job.1.log"}


def test_why_there_is_no_report_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, *shell("echo hello"), NCCL_DEBUG="WARN")
    assert b"(NCCL_DEBUG=WARN was set; leave it out)" in done.stderr


def test_each_silence_counts_once(tmp_path: Path) -> None:
    clock = [1000.0]
    with (tmp_path / "job.log").open("wb", buffering=0) as file:
        log = JobLog(file, several=False)
        log.last = 1000.0
        os.utime(tmp_path / "job.log", (1000, 1000))
        watch = Standstill(60, log, tmp_path, now=lambda: clock[0])
        looks = []
        for clock[0] in (1030.0, 1061.0, 1062.0, 1500.0):
            looks.append(watch.came())
        (tmp_path / "nccl.node.1.log").write_text("a line")
        os.utime(tmp_path / "nccl.node.1.log", (1510, 1510))
        for clock[0] in (1561.0, 1571.0, 1580.0):
            looks.append(watch.came())
    assert looks == [False, True, False, False, False, True, False]


class Ras(threading.Thread):
    """Answers as RAS does, from recorded answers."""

    def __init__(self, recording: str, goes_on: bool = False) -> None:
        super().__init__(daemon=True)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._recording = SAMPLES / "mesh" / recording
        self._goes_on = goes_on
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.asked = 0

    def run(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection, connection.makefile("rwb") as stream:
                form = "text"
                for line in stream:
                    if line.startswith(b"SET FORMAT"):
                        form = line.split()[-1].decode()
                    if line == b"VERBOSE STATUS\n":
                        stream.write(self._answer(form))
                        stream.flush()
                        break
                    stream.write(b"SERVER PROTOCOL 2\n" if line.startswith(b"CLIENT") else b"OK\n")
                    stream.flush()

    def _answer(self, form: str) -> bytes:
        self.asked += 1
        data = (self._recording / f"ras.{form}").read_bytes()
        return data.replace(b'"AllReduce": ', b'"AllReduce": %d' % self.asked) if self._goes_on else data


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_stand_still_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: bool) -> None:
    from nccl_inspect.running import gathering

    ras = Ras("skip-eager", goes_on)
    ras.start()
    monkeypatch.setenv("NCCL_RAS_ADDR", ras.address)
    work = gathering.Gathering(tmp_path, between=0.01)
    assert work.answers() != goes_on
    assert bool(list(tmp_path.glob("hosts/*/ras.*"))) != goes_on
    assert ras.asked == 4
    work.forget()
    assert not list(tmp_path.glob("hosts/*/ras.*"))


def test_a_stand_still_is_reported_while_the_job_runs(tmp_path: Path) -> None:
    ras = Ras("sigstop-eager")
    ras.start()
    script = f"xz -dc {SAMPLES / 'mesh' / 'sigstop-eager' / 'job.log.xz'}; sleep 30"
    args = ["--out", "out", "--stall", "0.5", "--", "sh", "-c", script]
    with started(tmp_path, *args, NCCL_RAS_ADDR=ras.address) as process:
        assert process.stderr is not None
        threading.Thread(target=process.stdout.read, daemon=True).start()  # type: ignore[union-attr]
        shown = read_until(process.stderr.fileno(), b"process-unresponsive")
        assert process.poll() is None
        assert b"FAILED" in shown
        process.terminate()
        assert process.wait(LIMIT) == 128 + signal.SIGTERM
    assert len(list(tmp_path.glob("out/hosts/*/ras.*"))) == 2


def test_a_job_that_is_only_quiet_is_not_reported(tmp_path: Path) -> None:
    log = SAMPLES / "field-notes" / "p4d-4pod-1gpu-efa.log"
    with started(tmp_path, "--out", "out", "--stall", "0.5", "--", "sh", "-c", f"cat {log}; sleep 30") as process:
        assert process.stderr is not None
        threading.Thread(target=process.stdout.read, daemon=True).start()  # type: ignore[union-attr]
        shown = read_until(process.stderr.fileno(), b"\n")
    assert shown == b"nccl-inspect: nothing printed for 0.5 s\n"


def test_processes_that_the_kernel_killed_before_the_run_are_not_of_it(tmp_path: Path) -> None:
    now = time.time()
    before, within = (time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(now + shift)) for shift in (-7200, 1))
    lost = f"[{before}] NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.\n"
    killed = f"[{within}] Memory cgroup out of memory: Killed process 7 (python) total-vm:1kB\n  more of it\n"
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "printed").write_text(killed.replace(within, before) + lost + killed)
    (commands / "dmesg").write_text(f"#!/bin/sh\ncat {commands}/printed\n")
    (commands / "dmesg").chmod(0o755)
    run(tmp_path, *quietly(shell("true")), PATH=f"{commands}:{os.environ['PATH']}")
    (kept,) = (tmp_path / "out").glob("hosts/*/dmesg")
    assert kept.read_text() == lost + killed
