"""``watch`` as a command, on pipes and terminals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from watching import ENV, EXE, FAST, HANG, HEALTHY, PATIENCE, TWO_HOSTS, fd, read_until, started, write


def test_on_a_pipe_status_verdict_findings_and_end_come_one_after_the_other() -> None:
    with started(*FAST, "--fail-on", "warning") as process:
        begin, rest = HEALTHY[:3000], HEALTHY[3000:]
        write(process, begin)
        assert b"\r" not in read_until(fd(process.stderr), b"nccl-inspect: ")
        write(process, rest)
        shown = read_until(fd(process.stdout), b"intra")
        assert shown.startswith(b"OK: ")
        write(process, TWO_HOSTS)
        shown = read_until(fd(process.stdout), b"the verdict is DEGRADED now (it was OK)\n")
        assert b" socket-instead-of-rdma (" in shown
        assert b"  fix   " in shown
        assert b"  evidence  <stdin>:" in shown
        assert process.poll() is None
        assert process.stdin is not None
        process.stdin.close()
        assert process.stdout is not None
        last = process.stdout.read()
        assert last.startswith(b"DEGRADED: ")
        assert process.wait(PATIENCE) == 1


def test_half_a_line_waits_and_the_whole_summary_comes_at_the_end_if_none_came() -> None:
    with started() as process:
        write(process, HANG[:-40])
        out, err = process.communicate(HANG[-40:], PATIENCE)
    summary = subprocess.run(
        [*EXE[:-1], "summarize"], input=HANG, env=ENV, capture_output=True, timeout=PATIENCE, check=True
    ).stdout
    assert (process.returncode, out, err) == (0, summary, b"")


def test_a_stall_is_told_on_the_standard_output() -> None:
    with started(*FAST, "--stall", "0.1") as process:
        write(process, HANG)
        shown = read_until(fd(process.stdout), b"last step")
    assert shown.startswith(b"STALLED: communicator world (4 ranks)")
    assert b"waiting   3 ranks: 0-1,3" in shown
    assert b"missing   1 rank: 2" in shown


def test_on_a_terminal_the_status_is_rewritten_in_place_and_the_verdict_has_colour() -> None:
    ours, theirs = pty.openpty()
    try:
        with started(*FAST, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            write(process, HEALTHY[:3000])
            shown = read_until(ours, b"ranks ")
            assert b"\n" not in shown
            assert shown.startswith(b"\r0 s, ")
            write(process, HEALTHY[3000:])
            shown = read_until(ours, b"8/8, communicators 1/1 complete", shown)
            shown = read_until(ours, b"\x1b[32mOK\x1b[0m: ", shown)
            before = shown.partition(b"\x1b[32mOK")[0]
            assert before.endswith(b" \r"), "the status line is wiped first"
    finally:
        os.close(ours)


@pytest.mark.parametrize("told", [True, False])
def test_ctrl_c_ends_with_what_is_known_and_status_130(told: bool, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(HEALTHY if told else HANG)
    with started(str(log), *FAST) as process:
        seen = read_until(fd(process.stdout), b"intra") if told else b""
        seen_err = b"" if told else read_until(fd(process.stderr), b"3/4")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"Traceback" not in seen_err + err
    if told:
        assert (seen + out).rstrip().rpartition(b"\n")[2].startswith(b"OK: ")
    else:
        assert out.startswith(b"partial: interrupted after 36 lines\n")


def test_ctrl_c_before_the_first_line_of_nccl_is_an_interruption_too() -> None:
    with started(*FAST) as process:
        write(process, b"hello\n")
        read_until(fd(process.stderr), b"none of NCCL yet")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, b"")
    assert err.endswith(b"nccl-inspect: interrupted\n")


def test_input_without_a_line_of_nccl_ends_with_status_3() -> None:
    for data, says in ((b"", b"<stdin>: empty; "), (b"x\ny\n", b"<stdin>: no NCCL line among 2 lines; ")):
        done = subprocess.run(EXE, input=data, capture_output=True, timeout=PATIENCE, check=False)
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (3, b"", 1)
        assert done.stderr.startswith(b"nccl-inspect: " + says)


def test_a_closed_output_ends_in_silence_though_the_input_stays_open() -> None:
    with started(*FAST) as process:
        write(process, HEALTHY)
        read_until(fd(process.stdout), b"OK: ")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
        assert process.stderr is not None
        said = process.stderr.read()
    assert all(line.startswith(b"nccl-inspect: ") and b" lines, " in line for line in said.splitlines())


def test_output_that_was_never_open_is_no_error() -> None:
    code = EXE[2].replace("main()", "import sys; sys.argv[1:] = ['watch']; main()")
    command = f'"{sys.executable}" -c "{code}" >&- 2>&-'
    done = subprocess.run(["bash", "-c", command], input=HEALTHY, timeout=PATIENCE, check=False)
    assert done.returncode == 0


def test_a_file_is_read_until_its_end_when_that_is_wanted(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(HEALTHY)
    done = subprocess.run([*EXE, str(log), "--until-end"], capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"OK: ")
    for path, says in ((tmp_path / "gone.log", b"gone.log: no such file; check the path"), (tmp_path, b"is a folder")):
        done = subprocess.run([*EXE, str(path), "--until-end"], capture_output=True, timeout=PATIENCE, check=False)
        assert (done.returncode, done.stdout) == (3, b"")
        assert says in done.stderr
