"""Inputs that cannot be read, output that ends early, and what is understood without a command."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import large_job
import pytest
from command_line import execute, invoke
from few_examples import every
from repository import ROOT
from terminals import Piped

from nccl_inspect.errors import NoInputError

SOUND = ROOT / "sample_logs" / "p2p-nvlink-8gpu" / "job.log"
READERS = (
    *("summarize", "paths", "hosts", "nics", "env", "ranks", "topology", "traffic", "events", "annotate"),
    *("timings", "memory", "bandwidth"),
    *("anonymize --overwrite -o copies", "summarize --format junit", "diff", "check --policy policy.toml"),
    *("summarize --fail-on error", "diff --fail-on error"),
)
GATES = ("check", "--fail-on")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a sound log and one that nobody may read, also where the tests run as root, who may."""
    for name in ("sound.log", "shut.log"):
        (tmp_path / "logs" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "logs" / name).write_bytes(SOUND.read_bytes())
    (tmp_path / "policy.toml").write_text("world_size = 8\n")
    allowed = os.access

    def access(name: Any, mode: int, **options: Any) -> bool:
        return "shut" not in str(name) and allowed(name, mode, **options)

    monkeypatch.setattr(os, "access", access)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@every(5)
def test_an_unreadable_input_is_named_and_skipped(step: int, folder: Path) -> None:
    wrong: list[object] = []
    for command in READERS[::step]:
        one = [str(SOUND)] if command.startswith("diff") else []
        for several in (["logs"],) if one else (["logs"], ["logs/sound.log", "logs/shut.log"], ["logs/s*.log"]):
            done = invoke(*command.split(), *one, *several)
            status = 3 if any(word in command for word in GATES) else 0
            if (done.return_value or 0) != status or "shut.log: no read permission" not in done.stderr:
                wrong.append((command, several, done.return_value, done.stderr))
        with pytest.raises(NoInputError, match=r"shut.log: no read permission"):
            invoke(*command.split(), *one, "logs/shut.log")
    assert not wrong, folder


def begin_command(*args: str, data: bytes | None = None) -> Piped:
    """Return a command whose output nobody reads yet; with data, its input stays open."""
    process = Piped([sys.executable, "-m", "nccl_inspect", *args])
    if data is not None:
        process.stdin.write(data)
        process.stdin.flush()
    wait_for(lambda: waiting(process.stdin) == 0 if data else waiting(process.stdout) >= _FULL)
    time.sleep(0.3)
    return process


_FULL = 40_000
"""Bytes in a pipe into which the next line may not fit."""


def waiting(pipe: Any) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"), sys.byteorder)


def wait_for(happened: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)


@pytest.mark.slow
def test_output_is_whole_or_ends_with_a_line_and_the_status_says_so(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(large_job.log(64, channels=16))
    wrong: list[object] = []
    for command in ("summarize --format json", "summarize --format html", "paths --format csv", "events", "annotate"):
        whole = invoke(*command.split(), str(log)).stdout_bytes
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if command == "events" else (signal.SIGINT,):
            with begin_command(*command.split(), str(log)) as process:
                process.send_signal(number)
                time.sleep(0.3)
                out, err = process.communicate()
            status = 143 if number == signal.SIGTERM else 130
            is_cut = process.returncode == status and out.endswith(b"\n") and b"output is partial" in err
            if not (whole.startswith(out) and (is_cut or (process.returncode == 0 and out == whole))):
                wrong.append((command, number, process.returncode, len(out), out[-80:], err))
    with begin_command("paths", "--format", "csv", str(log)) as process:
        process.stdout.close()
        if process.wait(60) != 128 + signal.SIGPIPE:
            wrong.append(("closed", process.returncode))
    assert not wrong


@pytest.mark.slow
def test_an_interrupted_report_is_marked_in_every_format(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("world_size = 8\n")
    marks = {
        "text summarize - --brief": b" (partial: reading was interrupted)\n",
        "text": b"partial: interrupted after 446 lines\n",
        "json": b'"partial":true',
        "junit": b'<error message="interrupted after 446 lines" type="partial" />',
        "github": b"::error title=partial::interrupted after 446 lines\n",
        "sarif": b'"executionSuccessful": false',
        "markdown": b"(partial: reading was interrupted)",
        "prometheus": b"nccl_inspect_partial 1.0\n",
        "html": b"interrupted",
        f"json check - --policy {tmp_path}/policy.toml": b'"partial": true',
        f"json diff {SOUND} -": b'"partial": true',
    }
    wrong: list[object] = []
    for call, mark in marks.items():
        form, *command = call.split()
        with begin_command(*(command or ["summarize", "-"]), "--format", form, data=SOUND.read_bytes()) as process:
            process.send_signal(signal.SIGTERM if command else signal.SIGINT)
            out, err = process.communicate()
        is_told = command or b"reading stopped: reporting what was read; Ctrl-C again to stop\n" in err
        if process.returncode != (143 if command else 130) or mark not in out or not is_told:
            wrong.append((call, process.returncode, out[:300], err))
    with begin_command("summarize", "-", data=b"one line\n") as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err.strip()) == (130, b"", b"nccl-inspect: interrupted")
    assert not wrong


@pytest.mark.slow
def test_sigterm_is_obeyed_soon_wherever_the_time_goes() -> None:
    """More than a hundred thousand communicators take seconds to judge; what is being written is finished."""
    init = "node-1:{pid}:{pid} [{rank}] NCCL INFO ncclCommInitRank comm 0x55b9{comm:08x} rank {rank} nranks 2 cudaDev "
    init += "{rank} nvmlDev {rank} busId {rank}000 commId 0x949dfd68{comm:08x} - Init {state}\n"
    places = [(comm, rank, state) for comm in range(120_000) for rank in (0, 1) for state in ("START", "COMPLETE")]
    text = "".join(init.format(comm=comm, rank=rank, state=state, pid=100 + rank) for comm, rank, state in places)
    wrong: list[object] = []
    for after in (0.0, 1.0):  # while it reads the last lines, and while it judges
        for form in ("text", "json"):
            process = Piped([sys.executable, "-m", "nccl_inspect", "summarize", "-", "--format", form])
            process.stdin.write(text.encode())
            process.stdin.close()
            process.stdin = None  # type: ignore[assignment]
            time.sleep(after)
            process.terminate()
            out, err = process.communicate(timeout=20)
            is_report = json.loads(out)["verdict"] == "unknown" if form == "json" else out.startswith(b"partial: ")
            is_finished = process.returncode == 0 and b"finishing the report" in err
            if not is_finished and (process.returncode != 143 or not is_report):
                wrong.append((after, form, process.returncode, out[:200], err))
    assert not wrong


def test_a_log_without_a_command_is_summarized(folder: Path) -> None:
    wrong: list[object] = []
    for short, whole in {
        "logs/sound.log": "summarize logs/sound.log",
        "--brief logs/sound.log": "summarize --brief logs/sound.log",
        "logs/sound.log logs/sound.log --format json": "summarize logs/sound.log logs/sound.log --format json",
        "logs": "summarize logs",
        "logs/s*.log": "summarize logs/s*.log",
        "summarise logs/sound.log": "summarize logs/sound.log",
        "--help": "help",
    }.items():
        if (out := invoke(*short.split()).stdout) != invoke(*whole.split()).stdout:
            wrong.append((short, out))
    assert execute("-", data=SOUND.read_bytes()).stdout.startswith(b"OK: ")
    with pytest.raises(NoInputError, match=r"jbo.log: no such file"):
        invoke("logs/jbo.log")
    assert not wrong, folder


@pytest.mark.slow
def test_without_arguments_a_pipe_is_summarized_and_without_input_there_is_help() -> None:
    command = [sys.executable, "-m", "nccl_inspect"]
    done = subprocess.run(command, input=SOUND.read_bytes(), capture_output=True, timeout=60, check=False)
    assert done.stdout.startswith(b"OK: ")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr[:6]) == (2, b"Usage:")
