"""The end of the command that ``run`` started: it leads the report, is kept, and ends all that the command started."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from command_line import invoke
from repository import ROOT
from running_jobs import LIMIT, run, shell, start_job

SOUND = ROOT / "sample_logs" / "p2p-nvlink-8gpu" / "job.log"
KILLED = ROOT / "sample_logs" / "peer-killed" / "job.log"
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_signal_ends_all_that_the_command_started(tmp_path: Path) -> None:
    """Also what a shell waits for, which a signal to the shell alone leaves behind."""
    alive = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with start_job(tmp_path, "-q", *shell("sh -c 'echo $$; exec sleep 60'; sleep 60")) as process:
            child = int(process.stdout.readline())
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
