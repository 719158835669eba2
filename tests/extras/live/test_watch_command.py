"""``watch`` as a command, on pipes and terminals: what it prints, what ends it."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sample_data
from command_line import execute
from terminals import EXE, PATIENCE, Piped, read_until
from watching import BEGUN, HANG, HEALTHY, TWO_HOSTS

from nccl_inspect.extras.live.watch import Alarm, run_command

pytestmark = pytest.mark.slow
WATCH = [*EXE, "watch"]
ENV = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")} | {"TERM": "xterm"}
FAST = ["--interval", "0.04", "--settle", "0.2"]
DEGRADED = (sample_data.FOLDER / "v2.30.7-shm-4gpu" / "job.log").read_bytes()
DEAD = (sample_data.FOLDER / "peer-killed" / "job.log").read_bytes()


@contextmanager
def start_watch(*args: str, **how: Any) -> Iterator[Piped]:
    with Piped([*WATCH, *args], env=ENV, bufsize=0, **how) as process:
        try:
            yield process
        finally:
            process.kill()


# --- what it prints


def test_on_a_pipe_status_verdict_findings_and_end_come_one_after_the_other() -> None:
    with start_watch(*FAST, "--fail-on", "warning") as process:
        process.stdin.write(HEALTHY[:3000])
        assert b"\r" not in read_until(process.stderr, b"nccl-inspect: ")
        process.stdin.write(HEALTHY[3000:])
        assert read_until(process.stdout, b"intra").startswith(b"OK: ")
        process.stdin.write(TWO_HOSTS)
        shown = read_until(process.stdout, b"the verdict is DEGRADED now (it was OK)\n")
        for words in (b" socket-instead-of-rdma (", b"  fix   ", b"  evidence  <stdin>:"):
            assert words in shown
        assert process.poll() is None
        process.stdin.close()
        assert process.stdout.read().startswith(b"DEGRADED: ")
        assert process.wait(PATIENCE) == 1


def test_half_a_line_waits_and_the_whole_summary_comes_at_the_end_if_none_came() -> None:
    with start_watch() as process:
        process.stdin.write(HANG[:-40])
        out, err = process.communicate(HANG[-40:], PATIENCE)
    assert (process.returncode, out, err) == (0, execute("summarize", data=HANG).stdout, b"")


def test_a_stall_is_told_on_the_standard_output() -> None:
    with start_watch(*FAST, "--stall", "0.1") as process:
        process.stdin.write(HANG)
        shown = read_until(process.stdout, b"last step")
    assert shown.startswith(b"STALLED: communicator world (4 ranks)")
    assert b"waiting   3 ranks: 0-1,3" in shown
    assert b"missing   1 rank: 2" in shown


def test_on_a_terminal_the_status_is_rewritten_in_place_and_the_verdict_has_colour() -> None:
    ours, theirs = pty.openpty()
    try:
        with start_watch(*FAST, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            process.stdin.write(HEALTHY[:3000])
            shown = read_until(ours, b"ranks ")
            assert b"\n" not in shown
            assert re.match(rb"\r\d s, ", shown)
            process.stdin.write(HEALTHY[3000:])
            shown = read_until(ours, b"8/8, communicators 1/1 complete", shown)
            shown = read_until(ours, b"\x1b[32mOK\x1b[0m: ", shown)
            assert shown.partition(b"\x1b[32mOK")[0].endswith(b" \r"), "the status line is wiped first"
    finally:
        os.close(ours)


# --- ends


def test_ctrl_c_ends_with_what_is_known_and_status_130(tmp_path: Path) -> None:
    for data, stream, words in ((HEALTHY, "stdout", b"intra"), (HANG, "stderr", b"3/4")):
        (tmp_path / "job.log").write_bytes(data)
        with start_watch(str(tmp_path / "job.log"), *FAST) as process:
            seen = read_until(getattr(process, stream), words)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, b"Traceback" in seen + err) == (130, False)
        if data is HEALTHY:
            assert (seen + out).rstrip().rpartition(b"\n")[2].startswith(b"OK: ")
        else:
            assert out.startswith(b"partial: interrupted after 36 lines\n")
    with start_watch(*FAST) as process:
        process.stdin.write(b"hello\n")
        read_until(process.stderr, b"none of NCCL yet")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, b"")
    assert err.endswith(b"nccl-inspect: interrupted\n")


def test_a_closed_output_ends_in_silence_though_the_input_stays_open() -> None:
    with start_watch(*FAST) as process:
        process.stdin.write(HEALTHY)
        read_until(process.stdout, b"OK: ")
        process.stdout.close()
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
        said = process.stderr.read()
    assert all(line.startswith(b"nccl-inspect: ") and b" lines, " in line for line in said.splitlines())
    never_open = f'"{sys.executable}" -m nccl_inspect watch >&- 2>&-'
    assert subprocess.run(["bash", "-c", never_open], input=HEALTHY, timeout=PATIENCE, check=False).returncode == 0


def test_input_ends_with_a_status(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(HEALTHY)
    for args, data, status, says in (
        ([], b"", 3, b"<stdin>: empty; "),
        ([], b"x\ny\n", 3, b"<stdin>: no NCCL line among 2 lines; "),
        (["gone.log", "--until-end"], b"", 3, b"gone.log: no such file; check the path"),
        ([".", "--until-end"], b"", 3, b"is a folder"),
        (["job.log", "--until-end"], b"", 0, b""),
    ):
        done = subprocess.run([*WATCH, *args], input=data, cwd=tmp_path, capture_output=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout[:4], done.stderr.count(b"\n")) == (
            status,
            b"" if status else b"OK: ",
            status // 3,
        )
        assert says in done.stderr


HOOK = 'echo "$NCCLINSPECT_VERDICT|$NCCLINSPECT_RULE|$NCCLINSPECT_RANKS|$HOME" >> {folder}/runs; echo said; exit 7'
"""A command that notes each time it is run, with its variables and one that the shell expands."""


def test_the_watch_ends_by_itself_and_runs_the_command_once(tmp_path: Path) -> None:
    for number, (data, conditions, noted) in enumerate(
        (
            (DEAD, ["error"], "failed|peer-death|"),
            (DEAD, ["warning"], "failed|peer-death|"),
            (DEGRADED, ["error", "warning"], "degraded|p2p-disabled-by-env|0-3"),
            (BEGUN, ["stall"], "unknown||2"),
        )
    ):
        (folder := tmp_path / f"{number}").mkdir()
        asked = [word for name in conditions for word in ("--exit-on", name)]
        with start_watch(*FAST, "--stall", "0.4", *asked, "--on-exit", HOOK.format(folder=folder)) as process:
            process.stdin.write(data)
            assert process.wait(PATIENCE) == 1
            said = process.stderr.read().decode()
        (run,) = (folder / "runs").read_text(encoding="utf-8").splitlines()
        assert run.startswith(noted)
        assert not run.endswith("$HOME")
        assert "said\n" in said, "what the command prints does not mix with the report"
        assert re.search(r"^nccl-inspect: stopped by --exit-on: (error|warning|stall)[a-z0-9 -]*: ", said, re.MULTILINE)
        assert said.endswith("nccl-inspect: the command of --on-exit ended with status 7\n")


def test_a_healthy_job_is_left_alone(tmp_path: Path) -> None:
    asked = [word for name in ("error", "warning", "stall") for word in ("--exit-on", name)]
    with start_watch(*FAST, "--stall", "0.4", *asked, "--on-exit", HOOK.format(folder=tmp_path)) as process:
        process.stdin.write(HEALTHY)
        read_until(process.stdout, b"OK: ")
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert not (tmp_path / "runs").exists()


def test_a_variable_that_is_too_long_for_a_command_is_empty(tmp_path: Path) -> None:
    hosts = ",".join(f"gpu-node-{number:06}.cluster.example.com" for number in range(5000))
    why = Alarm("error", "failed", "it failed", hosts=hosts)
    assert run_command(f'echo "$NCCLINSPECT_VERDICT|$NCCLINSPECT_HOSTS" > {tmp_path}/runs', why) == 0
    assert (tmp_path / "runs").read_text(encoding="utf-8") == "failed|\n"
