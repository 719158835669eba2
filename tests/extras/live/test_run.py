"""``run``: the job notices nothing, all that a report needs is kept, and jobs that stand still are reported."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke
from repository import ROOT
from terminals import Piped, read_until

from nccl_inspect.extras.live.cli_run import PROCESSES, SETTINGS, Gathering

pytestmark = pytest.mark.slow
SAMPLES = ROOT / "sample_logs"
LIMIT = 60
NOBODY = "localhost:9"
"""Where no RAS listens."""
SET = {name for setting, (_, *unless) in SETTINGS.items() for name in (setting, *unless)}


def environment(**own: str) -> dict[str, str]:
    """Return an environment without a launcher and without settings of NCCL."""
    left_out = {*SET, *itertools.chain(*PROCESSES["launchers"]), *PROCESSES["jobs"]}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "NCCL_RAS_ADDR": NOBODY, **own}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "nccl_inspect", "run", *args]


def run(folder: Path, *args: str, data: bytes = b"", **own: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(*args), cwd=folder, env=environment(**own), input=data, capture_output=True, timeout=LIMIT, check=False
    )


def shell(script: str) -> list[str]:
    return ["--out", "out", "--", "sh", "-c", script]


def python(script: str) -> list[str]:
    return ["--out", "out", "--", sys.executable, "-c", script]


def quietly(arguments: list[str]) -> list[str]:
    """Return the command without a report, which takes most of the time."""
    return ["--quiet", *arguments]


def _take_signals() -> None:
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def start_job(folder: Path, *args: str, **own: str) -> Iterator[Piped]:
    env = environment(**own)
    process = Piped(
        command(*args),
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_take_signals,  # nohup, and a shell's '&', ignore some in all that they start
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


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
            "import os, signal, time, sys\n"  # print may not be called while it still says that it is ready
            f"signal.signal({int(number)}, lambda *_: (os.write(1, b'got\\n'), sys.exit(9)))\n"
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


# --- the end of the command leads the report, is kept, and ends all that the command started

SOUND = SAMPLES / "p2p-nvlink-8gpu" / "job.log"
KILLED = SAMPLES / "peer-killed" / "job.log"
PATHS = "; its paths are as good as expected"
RAISES = "printf 'Traceback (most recent call last):\\n  File \"a.py\", line 1\\nValueError: x\\n'"
ENDS = (
    (f"cat {SOUND}", 0, "OK: every path that the log shows is as good as expected"),
    (f"cat {SOUND}; kill -9 $$", 137, f"FAILED: the command ended with status 137 (SIGKILL){PATHS}"),
    (f"cat {SOUND}; kill -TERM $$", 143, f"FAILED: the command ended with status 143 (SIGTERM){PATHS}"),
    (f"cat {SOUND}; exit 3", 3, f"FAILED: the command ended with status 3{PATHS}"),
    (f"cat {SOUND}; exit 255", 255, f"FAILED: the command ended with status 255{PATHS}"),
    (f"cat {SOUND}; {RAISES}; exit 1", 1, "FAILED: a process raised ValueError: x"),
    ("exit 1", 1, "FAILED: the command ended with status 1"),
    (f"cat {KILLED}; exit 1", 1, "FAILED: rank 3 (llama-3-8b-node-0-1, pid 5026, GPU 3) went away"),
)


def test_the_end_of_the_command_leads_the_report_and_stays_in_its_folder(tmp_path: Path) -> None:
    wrong: list[object] = []
    for number, (script, status, headline) in enumerate(ENDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = run(folder, *shell(script))
        said, *report = done.stderr.decode().splitlines()
        again = invoke("summarize", str(folder / "out")).stdout.splitlines()
        end = headline.partition(PATHS)[0].removeprefix("FAILED: ") if "command" in headline else "the command "
        is_first = said.startswith(f"nccl-inspect: {end if status else 'the command succeeded'}")
        shown = f"ended with status {status}" in "\n".join(report) or not status
        if done.returncode != status or not (is_first and shown):
            wrong.append((script, done.returncode, said))
        wrong += [(script, lines[:1]) for lines in (report, again) if not " ".join(lines).startswith(headline)]
    assert not wrong


def test_a_signal_ends_all_that_the_command_started(tmp_path: Path) -> None:
    """Also what a shell waits for, which a signal to the shell alone leaves behind."""
    alive = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with start_job(tmp_path, "-q", *shell("sh -c 'echo $$; exec sleep 60'; sleep 60")) as process:
            child = int(process.stdout.readline())
            while Path(f"/proc/{child}/comm").read_text() != "sleep\n":  # a shell that ends by SIGINT of its own
                time.sleep(0.01)  # is no reason for the outer one to end
            process.send_signal(number)
            status = process.wait(LIMIT)
        for _ in range(100):
            if not Path(f"/proc/{child}").exists():
                break
            time.sleep(0.05)
        else:
            os.kill(child, signal.SIGKILL)
            alive.append((number, status))
        if status != 128 + number:
            alive.append((number, status))
    assert not alive
