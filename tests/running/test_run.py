"""``run``: the job notices nothing, and all that a report needs is kept."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest
from running_jobs import LIMIT, command, environment, python, quietly, read_until, run, shell, started


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 1", 1), ("exit 42", 42), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_the_exit_status_is_that_of_the_job(tmp_path: Path, script: str, status: int) -> None:
    assert run(tmp_path, *quietly(shell(script))).returncode == status


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [("no-such-command", 127, "command not found"), ("./gone", 127, "No such file"), (".", 126, "Permission denied")],
)
def test_a_command_that_cannot_run_ends_as_in_a_shell(tmp_path: Path, name: str, status: int, says: str) -> None:
    done = run(tmp_path, "--out", "out", "--", name)
    assert done.returncode == status
    assert done.stderr.decode().count("\n") == 1
    assert says in done.stderr.decode()
    assert not (tmp_path / "out").exists()


def test_output_is_passed_and_kept_byte_for_byte(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000 + b"\r50%\r100%" + b"\nno end of line"
    (tmp_path / "data").write_bytes(data)
    done = run(tmp_path, *quietly(shell("cat data")))
    assert done.stdout == data
    assert (tmp_path / "out" / "job.log").read_bytes() == data


def test_input_reaches_the_job(tmp_path: Path) -> None:
    assert run(tmp_path, *quietly(shell("cat")), data=b"abc\n").stdout == b"abc\n"


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
    assert sorted(kept) == sorted(done.stdout.splitlines() + [b"err-%d-end" % i for i in range(50)])


def test_streams_to_one_place_keep_their_order(tmp_path: Path) -> None:
    script = "import os\nfor i in range(500): os.write(1 + i % 2, b'%d\\n' % i)"
    with (tmp_path / "both").open("wb") as both:
        subprocess.run(
            command(*quietly(python(script))),
            cwd=tmp_path,
            env=environment(),
            stdout=both,
            stderr=both,
            timeout=LIMIT,
            check=False,
        )
    lines = b"".join(b"%d\n" % i for i in range(500))
    assert (tmp_path / "both").read_bytes() == lines
    assert (tmp_path / "out" / "job.log").read_bytes() == lines


def test_output_comes_while_the_job_runs(tmp_path: Path) -> None:
    with started(tmp_path, *shell("printf partial; sleep 30")) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100) == b"partial"


def test_much_output_is_whole(tmp_path: Path) -> None:
    script = "import sys\nfor i in range(200000): sys.stdout.write('line %d of a job\\n' % i)"
    done = run(tmp_path, *quietly(python(script)))
    assert done.stdout.count(b"\n") == 200_000
    assert (tmp_path / "out" / "job.log").read_bytes() == done.stdout


def test_a_job_that_closes_its_output_goes_on(tmp_path: Path) -> None:
    done = run(tmp_path, *quietly(shell("exec 1>&- 2>&-; sleep 0.3; touch went-on; exit 5")))
    assert done.returncode == 5
    assert (tmp_path / "went-on").exists()


def test_who_leaves_the_output_open_does_not_hold_the_end(tmp_path: Path) -> None:
    with started(tmp_path, *quietly(shell("sleep 30 & exit 3"))) as process:
        assert process.wait(15) == 3
        os.killpg(process.pid, signal.SIGKILL)


def test_a_reader_that_has_enough_ends_the_job_as_without(tmp_path: Path) -> None:
    """``| head -1``: the job gets SIGPIPE."""
    with started(tmp_path, *quietly(shell("yes"))) as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        process.stdout = None
        assert process.wait(LIMIT) == 128 + signal.SIGPIPE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_reach_the_job_once(tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import signal, time, sys\n"
        f"signal.signal({int(number)}, lambda *_: (print('got', flush=True), sys.exit(9)))\n"
        "print('ready', flush=True)\n"
        "time.sleep(30)\n"
    )
    with started(tmp_path, *quietly(python(script))) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        out, _ = process.communicate(timeout=LIMIT)
    assert out == b"got\n"
    assert process.returncode == 9


def test_a_signal_that_ends_the_job_gives_its_status(tmp_path: Path) -> None:
    with started(tmp_path, *quietly(shell("echo ready; exec sleep 30"))) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.wait(LIMIT) == 128 + signal.SIGTERM


def test_the_job_has_no_signal_held_back(tmp_path: Path) -> None:
    done = run(tmp_path, *quietly(shell("grep SigBlk /proc/self/status")))
    assert int(done.stdout.split()[1], 16) == 0


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
    import fcntl
    import termios

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


@pytest.mark.parametrize("folder_name", ["out", "/dev/null/out"], ids=["kept", "in its place"])
def test_the_job_gets_no_setting_of_this_program(
    tmp_path: Path, folder_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)  # what starts workers of Dask leaves it
    done = run(tmp_path, "--quiet", "--out", folder_name, "--", "env")
    assert b"PATH=" in done.stdout
    assert b"OPENBLAS" not in done.stdout
