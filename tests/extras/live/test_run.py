"""``run``: the job notices nothing, all that a report needs is kept, and jobs that stand still are reported."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import termios
import threading
import time
from pathlib import Path

import pytest
from repository import ROOT
from running_jobs import LIMIT, SET, command, environment, python, quietly, run, shell, start_job
from terminals import read_until

from nccl_inspect.extras.live.session import Gathering

pytestmark = pytest.mark.slow
SAMPLES = ROOT / "sample_logs"


# --- the job ends as without


def test_a_command_that_cannot_run_ends_as_in_a_shell(tmp_path: Path) -> None:
    for name, status, says in (
        ("no-such-command", 127, "command not found"),
        ("./gone", 127, "No such file"),
        (".", 126, "Permission denied"),
    ):
        done = run(tmp_path, "--out", "out", "--", name)
        assert (done.returncode, done.stderr.count(b"\n"), says in done.stderr.decode()) == (status, 1, True)
        assert not (tmp_path / "out").exists()


def test_who_leaves_the_output_open_does_not_hold_the_end(tmp_path: Path) -> None:
    with start_job(tmp_path, *quietly(shell("sleep 30 & exit 3"))) as process:
        assert process.wait(15) == 3
        os.killpg(process.pid, signal.SIGKILL)


def test_a_reader_that_has_enough_ends_the_job_as_without(tmp_path: Path) -> None:
    """``| head -1``: the job gets SIGPIPE."""
    with start_job(tmp_path, *quietly(shell("yes"))) as process:
        process.stdout.read(10)
        process.stdout.close()
        process.stdout = None  # type: ignore[assignment]
        assert process.wait(LIMIT) == 128 + signal.SIGPIPE


def test_signals_reach_the_job_once(tmp_path: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        script = (
            "import signal, time, sys\n"
            f"signal.signal({int(number)}, lambda *_: (print('got', flush=True), sys.exit(9)))\n"
            "print('ready', flush=True)\n"
            "time.sleep(30)\n"
        )
        with start_job(tmp_path, *quietly(python(script))) as process:
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(number)
            out, _ = process.communicate(timeout=LIMIT)
        assert (process.returncode, out) == (9, b"got\n")
    with start_job(tmp_path, *quietly(shell("grep SigBlk /proc/self/status; exec sleep 30"))) as process:
        assert int(process.stdout.readline().split()[1], 16) == 0, "none is held back"
        process.terminate()
        assert process.wait(LIMIT) == 128 + signal.SIGTERM


# --- streams and surroundings


def test_streams_are_passed_and_kept_byte_for_byte(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000 + b"\r50%\r100%\n" + b"a line of a job\n" * 200_000 + b"no end of line"
    done = run(tmp_path, *quietly(shell("cat")), data=data)
    assert done.stdout == data
    assert (tmp_path / "out" / "job.log").read_bytes() == data


def test_streams_stay_apart_and_lines_stay_whole(tmp_path: Path) -> None:
    script = (
        "import os, time\n"
        "for i in range(50):\n"
        "    os.write(1, b'out-%d-' % i); os.write(2, b'err-%d-' % i); time.sleep(0.001)\n"
        "    os.write(1, b'end\\n'); os.write(2, b'end\\n')\n"
    )
    done = run(tmp_path, *quietly(python(script)))
    assert done.stdout == b"".join(b"out-%d-end\n" % i for i in range(50))
    assert done.stderr == b"".join(b"err-%d-end\n" % i for i in range(50))
    kept = (tmp_path / "out" / "job.log").read_bytes().splitlines()
    assert sorted(kept) == sorted(done.stdout.splitlines() + done.stderr.splitlines())


def test_streams_to_one_place_keep_their_order(tmp_path: Path) -> None:
    script = "import os\nfor i in range(500): os.write(1 + i % 2, b'%d\\n' % i)"
    with (tmp_path / "both").open("wb") as both:
        args = command(*quietly(python(script)))
        subprocess.run(args, cwd=tmp_path, env=environment(), stdout=both, stderr=both, timeout=LIMIT, check=False)
    lines = b"".join(b"%d\n" % i for i in range(500))
    assert (tmp_path / "both").read_bytes() == lines
    assert (tmp_path / "out" / "job.log").read_bytes() == lines


def test_output_comes_while_the_job_runs_which_may_close_it(tmp_path: Path) -> None:
    with start_job(tmp_path, *shell("printf partial; sleep 30")) as process:
        assert os.read(process.stdout.fileno(), 100) == b"partial"
    done = run(tmp_path, *quietly(shell("exec 1>&- 2>&-; sleep 0.3; touch went-on; exit 5")))
    assert done.returncode == 5
    assert (tmp_path / "went-on").exists()


def test_a_terminal_stays_a_terminal(tmp_path: Path) -> None:
    """Colors, progress bars and the buffers of stdout depend on it; Ctrl-C comes once."""
    leader, inside = pty.openpty()
    script = (
        "import os, sys, time\n"
        "try:\n"
        "    print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size().columns, flush=True)\n"
        "    time.sleep(30)\n"
        "except KeyboardInterrupt: print('stopped', flush=True); time.sleep(0.5); sys.exit(4)\n"
    )
    termios.tcsetwinsize(inside, (24, 77))

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        command(*python(script)),
        cwd=tmp_path,
        env=environment(),
        stdin=inside,
        stdout=inside,
        stderr=inside,
        preexec_fn=own_terminal,
    )
    os.close(inside)
    shown = read_until(leader, b"True True 77\r\n")
    os.write(leader, b"\x03")
    shown += read_until(leader, b"files of this run")
    assert process.wait(LIMIT) == 4
    os.close(leader)
    assert shown.count(b"stopped") == 1
    assert b"Traceback" not in shown
    assert (tmp_path / "out" / "job.log").read_bytes().startswith(b"True True 77\n")


def test_the_job_gets_no_setting_of_this_program(tmp_path: Path) -> None:
    for own in ({}, {"OPENBLAS_NUM_THREADS": "3"}):
        given = environment(OPENBLAS_OTHER="4", TOX_ENV_NAME="x", NCCL_ALGO="Ring", **own)
        if not own:
            given.pop("OPENBLAS_NUM_THREADS", None)  # of whoever starts the tests
        for folder_name in ("out", "/dev/null/out"):
            args = command("--quiet", "--out", folder_name, "--", "env", "-0")
            done = subprocess.run(args, cwd=tmp_path, env=given, capture_output=True, timeout=LIMIT, check=True)
            env = dict(entry.split("=", 1) for entry in done.stdout.decode(errors="surrogateescape").split("\0")[:-1])
            assert {name: value for name, value in env.items() if name not in SET} == given
            assert env["NCCL_DEBUG"] == "INFO"


# --- the folder and the report


def test_an_earlier_run_is_kept_and_quiet_is_quiet(tmp_path: Path) -> None:
    run(tmp_path, *quietly(shell("echo first")))
    second = run(tmp_path, *shell("echo second"))
    assert b"out-2" in second.stderr
    assert (tmp_path / "out" / "job.log").read_bytes() == b"first\n"
    assert (tmp_path / "out-2" / "job.log").read_bytes() == b"second\n"
    assert run(tmp_path, "-q", "--out", "new", *shell("echo out; echo err >&2")[2:]).stderr == b"err\n"


def test_a_folder_that_cannot_be_written_does_not_stop_the_job(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    for folder, says in (("/proc/out", b"/proc/out: "), ("out", b"Not a directory; the files go to")):
        place = tmp_path / folder.replace("/", "-")
        place.with_suffix(".tmp").mkdir()
        script = ["--out", folder, "--", "sh", "-c", "echo ran; exit 3"]
        done = run(tmp_path, *script, TMPDIR=str(place.with_suffix(".tmp")))
        assert (done.returncode, done.stdout, says in done.stderr) == (3, b"ran\n", True)
        assert next(place.with_suffix(".tmp").glob("nccl-run-*/job.log")).read_bytes() == b"ran\n"


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
    assert (done.returncode, done.stdout) == (1, b"step 1\n"), "the output stays as it was"
    assert b"collective-mismatch" in done.stderr
    assert b"FAILED" in done.stderr
    done = run(tmp_path, "--report", "report.json", "--quiet", "--out", "new", *python(TRAINING)[2:])
    assert done.stderr == b""
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "failed"
    done = run(tmp_path, *shell("echo hello"), NCCL_DEBUG="WARN")
    assert b"(NCCL_DEBUG=WARN was set; leave it out)" in done.stderr, "why there is no report"


def test_processes_of_a_job_share_a_folder_and_one_of_a_host_reports(tmp_path: Path) -> None:
    first, other = (run(tmp_path, *shell("echo x"), SLURM_PROCID=rank, SLURM_LOCALID=rank) for rank in "01")
    assert b"files of this run" in first.stderr
    assert other.stderr == b""
    for rank in "01":
        launched = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}
        run(tmp_path, "-q", "--", "true", data=b"", **launched)
    for folder in ("out", "nccl-run-4711-0"):
        assert {path.name for path in (tmp_path / folder).glob("job*")} == {"job.0.log", "job.1.log"}


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


def test_a_stand_still_is_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for goes_on in (False, True):
        ras = Ras("skip-eager", goes_on)
        ras.start()
        monkeypatch.setenv("NCCL_RAS_ADDR", ras.address)
        work = Gathering(tmp_path, between=0.01)
        assert work.ask_ras() != goes_on
        assert bool(list(tmp_path.glob("hosts/*/ras.*"))) != goes_on
        assert ras.asked == 4
        work.forget_answers()
        assert not list(tmp_path.glob("hosts/*/ras.*"))


def test_a_stand_still_is_reported_while_the_job_runs_unless_it_is_only_quiet(tmp_path: Path) -> None:
    ras = Ras("sigstop-eager")
    ras.start()
    hang = f"xz -dc {SAMPLES / 'mesh' / 'sigstop-eager' / 'job.log.xz'}; sleep 30"
    quiet = f"cat {SAMPLES / 'field-notes' / 'p4d-4pod-1gpu-efa.log'}; sleep 30"
    for name, script, own in (("hang", hang, {"NCCL_RAS_ADDR": ras.address}), ("quiet", quiet, {})):
        with start_job(tmp_path, "--out", name, "--stall", "0.5", "--", "sh", "-c", script, **own) as process:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            shown = read_until(process.stderr.fileno(), b"process-unresponsive" if own else b"\n")
            assert process.poll() is None
            if own:
                assert b"FAILED" in shown
                process.terminate()
                assert process.wait(LIMIT) == 128 + signal.SIGTERM
                assert len(list(tmp_path.glob("hang/hosts/*/ras.*"))) == 2
            else:
                assert shown == b"nccl-inspect: nothing printed for 0.5 s\n"
