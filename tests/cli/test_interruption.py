"""Ctrl-C, SIGTERM and closed pipes at any moment: no traceback, no half file, no orphan; what was read is reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import cycle
from pathlib import Path

import pytest
import sample_data
from repository import ROOT

LOG = sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log"
OTHER = sample_data.FOLDER / "v2.30.7-shm-4gpu" / "job.log"
POLICY = ROOT / "docs" / "howto" / "policy.toml"
PATIENCE = 60
pytestmark = pytest.mark.slow
LONG = 4_000_000
"""Bytes that are worth several processes."""
COMMANDS = {
    "summarize": ["summarize", str(LOG)],
    "html": ["summarize", str(LOG), "--format", "html", "-o", "OUT/report.html"],
    "check": ["check", str(LOG), "--policy", str(POLICY)],
    "paths": ["paths", str(LOG)],
    "diff": ["diff", str(LOG), str(OTHER)],
    "watch": ["watch", str(LOG), "--until-end"],
    "anonymize": ["anonymize", str(LOG), "-o", "OUT/shareable.log"],
    "events": ["events", str(LOG), "-o", "OUT/events.csv"],
    "explain": ["explain", "gdr-disabled"],
    "annotate": ["annotate", str(LOG)],
}
AT_CALL = """
import os, signal, sys
numbers = [int(number) for number in sys.argv.pop(1).split(",")]
calls = 0
def count(frame, event, arg):
    global calls
    calls += 1
    if calls in numbers:
        os.kill(os.getpid(), signal.SIGINT)
from nccl_inspect import __main__
from nccl_inspect.util import interruption
guard = interruption.guard
def counted():
    guard()
    sys.setprofile(count)
interruption.guard = counted
__main__.main()
"""
"""Sends a signal at given calls of functions, counted from where it can be handled: no matter of time."""
MOMENTS = (1, 2_000, 20_000, 60_000, 100_000, 150_000, 200_000, 300_000)


def run(args: list[str], folder: Path, *calls: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", AT_CALL, ",".join(map(str, calls))]
    command += [arg.replace("OUT", str(folder)) for arg in args]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)


def require_order(done: subprocess.CompletedProcess[bytes], folder: Path) -> None:
    """Check that it ended as promised: interrupted, or complete with all that was asked for."""
    said = done.stderr.decode()
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert done.returncode in (0, 1, 130), said
    written = sorted(file.name for file in folder.iterdir())
    assert not [name for name in written if name.endswith(".part")]
    if done.returncode == 130 and not done.stdout and not written:
        assert said.endswith(("nccl-inspect: interrupted\n", "; nothing written to " + said.rpartition(" ")[2]))


def test_ctrl_c_at_many_moments(tmp_path: Path) -> None:
    for name, args in COMMANDS.items():
        for moment, again in zip(MOMENTS, cycle((0, 1, 1_000))):  # once, or twice, at once or later
            folder = tmp_path / f"{name}-{moment}-{again}"
            folder.mkdir()
            require_order(run(args, folder, moment, *([moment + again] if again else [])), folder)


def test_once_all_is_read_the_report_is_finished(tmp_path: Path) -> None:
    """The signal comes from within the rules, which run when everything is read."""
    code = (
        "import os, signal, sys\nfrom nccl_inspect import judge as judging\nreal = judging.judge\n"
        "def judge(*args):\n    [os.kill(os.getpid(), signal.SIGINT) for _ in range(SIGNALS)]\n    return real(*args)\n"
        "judging.judge = judge\nfrom nccl_inspect.__main__ import main\nmain()"
    )
    for signals, status in ((1, 0), (2, 130)):
        command = [sys.executable, "-c", code.replace("SIGNALS", str(signals)), "summarize", str(LOG)]
        command += ["-o", str(tmp_path / f"{signals}.txt")]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
        assert done.returncode == status
        first, *rest = done.stderr.decode().splitlines()
        assert first == "nccl-inspect: finishing the report; Ctrl-C again to stop"
        assert rest == ([] if status == 0 else [f"nccl-inspect: interrupted; nothing written to {command[-1]}"])
    assert [file.name for file in tmp_path.iterdir()] == ["1.txt"]
    assert (tmp_path / "1.txt").read_text(encoding="utf-8").startswith("OK: ")


def processes_of(group: int) -> list[str]:
    """Return the processes of a group that still do something."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, own = stat.read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
        except OSError:  # it ended meanwhile
            continue
        if own == str(group) and state != "Z":
            found.append(stat.parent.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc on this machine")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_several_processes_end_together(number: signal.Signals, times: int, tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    text = LOG.read_bytes()
    log.write_bytes(text * (LONG // len(text) * 4))
    command = [sys.executable, "-m", "nccl_inspect", "summarize", str(log), "--jobs", "2"]
    command += ["-o", str(tmp_path / "out.txt")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + PATIENCE
    while len(processes_of(process.pid)) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    for _ in range(times):
        os.killpg(process.pid, number)
        time.sleep(0.05)
    _, err = process.communicate(timeout=PATIENCE)
    assert b"Traceback" not in err
    assert process.returncode == 128 + number
    while processes_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not processes_of(process.pid)
    assert {file.name for file in tmp_path.iterdir()} <= {"long.log", "out.txt"}


def test_a_closed_pipe_ends_in_silence(tmp_path: Path) -> None:
    for args in (["--help"], ["summarize", "--help"], ["rules"], *COMMANDS.values()):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "nccl_inspect", *(arg.replace("OUT", str(tmp_path)) for arg in args)]
        with os.fdopen(write, "wb") as out:
            done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
        assert b"Traceback" not in done.stderr
        assert b"make room" not in done.stderr
