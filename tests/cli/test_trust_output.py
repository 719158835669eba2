"""Inputs that cannot be read, output that ends early, and what is understood without a command."""

from __future__ import annotations

import fcntl
import json
import os
import re
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


# --- What a new user sees first: the head, the brief form, help by rule, colors, and how it all fits a screen

SAMPLES = ROOT / "sample_logs"
LOGS = "efa-provider-missing-socket-fallback peer-killed rank-missing-hang socket-2node-tp4-dp2 timestamps"
FILES = [*(SAMPLES / name / "job.log" for name in LOGS.split()), SAMPLES / "faults" / "assert.log.gz"]
CLUES = "node-1:1:2 [3] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA {0} 'mlx5_{0}'\n"
"""Lines of a log whose brief form has more to say than fits ten lines."""


@pytest.fixture(autouse=True)
def _set_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a terminal of 80 columns, whatever the environment of the tests says."""
    for name in ("FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def test_the_first_screen_agrees_with_the_findings_below_it(tmp_path: Path) -> None:
    wrong: list[object] = []
    (tmp_path / "job.log").write_text("".join(map(CLUES.format, range(3))))
    for log in (*FILES, tmp_path / "job.log"):
        job = json.loads(invoke("summarize", str(log), "--format", "json").stdout)
        shown = invoke("summarize", str(log)).stdout.splitlines()
        brief = invoke("summarize", str(log), "--brief").stdout.splitlines()
        findings = {finding["rule"]: finding for finding in job["findings"]}
        if not findings:
            continue
        lead = job["findings"][0]
        rule = next((line.split()[3] for line in brief if line.startswith("more: nccl-inspect explain")), "")
        lines = {f"{Path(line['source']).name}:{line['line']}" for line in findings[rule]["evidence"]}
        quoted = [line.split(": ")[1] for line in brief if line.startswith("evidence: ")]
        whole = [
            line for line in shown if line.startswith("  evidence") or re.match(r" {12}(job|assert)\.log\S*:", line)
        ]
        sound = {
            "do is the first fix": job["head"]["do"] == lead["fix"][0] and f"fix: {lead['fix'][0]}" in brief,
            "evidence shows the cause": quoted and lines.issuperset(quoted),
            "more names the cause": len(brief) <= 10 and (rule == lead["rule"] or rule in lead["because"]),
            "a finding fits a screen": len(findings) > 1 or len(shown) <= 30,
            "evidence takes a line each": whole and all(len(line) <= 80 for line in whole),
            "several are many": not re.search(r"ranks [\d,-]+ was ", "".join(brief)),
            "names are ranges": not re.search(r"-0, \S+-1, \S+-2, … \d+ more", "".join((*shown, *brief))),
        }
        wrong += [(log, what, brief) for what, is_so in sound.items() if not is_so]
    assert not wrong


def test_the_times_of_a_collector_leave_room_for_the_line(tmp_path: Path) -> None:
    log = tmp_path / "a-log-with-a-long-name.log"
    lines = (SAMPLES / "peer-killed" / "job.log").read_text().splitlines()
    log.write_text("".join(f"2026-11-20T23:15:18.123456789Z {line}\n" for line in lines))
    shown = " ".join(invoke("summarize", str(log)).stdout.split())
    since = shown[shown.index("since") : shown.index(" do ")]
    assert since.count(f"{log.name}:") == 2, since  # the first error stands in the story
    assert "last line 2026-11-20 23:15:18Z" in since


def test_terminal_manners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = str(SAMPLES / "p2p-nvlink-8gpu" / "job.log")
    colored = {}
    for variables in ("", "FORCE_COLOR=1", "CLICOLOR_FORCE=1", "FORCE_COLOR=0", "FORCE_COLOR=1 NO_COLOR=1"):
        with monkeypatch.context() as patch:
            for name, _, value in (variable.partition("=") for variable in variables.split()):
                patch.setenv(name, value)
            colored[variables] = "\x1b[" in invoke(log).stdout
    assert [name for name, is_so in colored.items() if is_so] == ["FORCE_COLOR=1", "CLICOLOR_FORCE=1"]
    notes = re.findall(r"^    \^ .*", invoke("annotate", log).stdout, re.MULTILINE)
    assert len(notes) == len(set(notes)) > 10
    width = [len(line) for line in invoke("paths", log, "--matrix", "--by", "host").stdout.splitlines()]
    assert max(width) <= 80


def test_parquet_has_the_columns_that_the_log_fills(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    log = str(SAMPLES / "p2p-nvlink-8gpu" / "job.log")
    invoke("events", log, "-o", str(tmp_path / "some.parquet"))
    invoke("events", log, "--all-columns", "-o", str(tmp_path / "all.parquet"))
    some, everything = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("some", "all"))
    assert some.num_columns < everything.num_columns
    assert some.equals(everything.select(some.column_names))


def test_the_page_counts_its_cards_and_marks_what_is_nested(tmp_path: Path) -> None:
    wrong: list[object] = []
    for log in FILES:
        invoke("summarize", str(log), "-o", str(tmp_path / "page.html"))
        page = (tmp_path / "page.html").read_text()
        counted = re.search(r'id="findings-head">Findings <span class="count">([^<]*)', page)
        counts = re.findall(r"(\d+) (error|warning|info|nested)", counted[1] if counted else "")
        numbers = {kind: int(number) for number, kind in counts}
        cards = {
            kind: len(re.findall(rf'<article class="finding {kind}"', page)) for kind in ("error", "warning", "info")
        }
        cards["nested"] = len(
            re.findall(r'<span class="who">nested</span> <span class="relation">(?:because|effect)</span>', page)
        )
        if {kind: number for kind, number in cards.items() if number} != numbers:
            wrong.append((log, numbers, cards))
    assert not wrong


@pytest.mark.slow
def test_names_stay_whole_on_a_phone(tmp_path: Path, browser: Any) -> None:
    invoke("summarize", str(SAMPLES / "peer-killed" / "job.log"), "-o", str(tmp_path / "page.html"))
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto((tmp_path / "page.html").as_uri())
    names = page.locator("dd .name, h1 .name, h3 .name")
    broken = names.evaluate_all("names => names.filter(n => n.getClientRects().length > 1).map(n => n.textContent)")
    assert "--previous" in names.all_text_contents()
    assert not broken
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('table').parentElement)")
