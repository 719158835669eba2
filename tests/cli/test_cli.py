"""The command line: exit statuses, errors in one line, pipes, colours, widths."""

from __future__ import annotations

import csv
import dataclasses
import gc
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import large_job
import pytest
import sample_data
from command_line import invoke
from repository import TESTS

import nccl_inspect
from nccl_inspect.cli import cli
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.judging.engine import registered
from nccl_inspect.report import Style
from nccl_inspect.report.pairs import pairs
from nccl_inspect.report.text import brief

HEALTHY = str(sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log")
SLOW = str(sample_data.FOLDER / "v2.30.7-shm-4gpu" / "job.log")
TOPOLOGY = TESTS / "data" / "h200-4gpu.nccl-topo.xml"
TWO_HOSTS = str(sample_data.FOLDER / "timestamps" / "job.log")
COMMANDS = cli.list_commands(click.Context(cli))
EXE = [sys.executable, "-c", "from nccl_inspect.cli import main; main()"]
HEAVY = ("pandas", "pyarrow", "numpy", "jinja2", "junitparser", "prometheus_client", "xml.etree", "hashlib")
ESCAPE = b"\x1b["


def run(
    *args: str, data: bytes = b"", env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    return subprocess.run(
        [*EXE, *args], input=data, capture_output=True, env=inherited | (env or {}), cwd=cwd, timeout=60, check=False
    )


def on_a_terminal(args: Sequence[str], env: dict[str, str] | None = None) -> bytes:
    """What a command prints on a pseudo-terminal."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*EXE, *args], stdin=theirs, stdout=theirs, stderr=theirs, env=inherited | {"TERM": "xterm"} | (env or {})
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not data:
                break
            shown += data
        process.wait(60)
    os.close(ours)
    return shown


# --- exit statuses and errors


def test_the_status_is_0_when_the_job_was_read_whatever_was_found() -> None:
    for log in (HEALTHY, SLOW):
        done = run("summarize", log)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("message", ["NET/IB : No device found.", "Cuda failure 'out of memory'"])
def test_a_message_is_explained_with_and_without_its_level(message: str) -> None:
    bare, info, warn = (run("explain", lead + message).stdout for lead in ("", "NCCL INFO ", "NCCL WARN "))
    assert bare == info
    assert bare.split(b"\nworry")[0] == warn.split(b"\nworry")[0] != b""


@pytest.mark.parametrize(
    ("log", "limit", "status"),
    [
        (HEALTHY, "error", 0),
        (HEALTHY, "warning", 0),
        (HEALTHY, "info", 0),
        (SLOW, "never", 0),
        (SLOW, "error", 0),
        (SLOW, "warning", 1),
        (SLOW, "info", 1),
    ],
)
def test_the_status_is_1_with_a_finding_as_severe_as_asked_for(log: str, limit: str, status: int) -> None:
    done = run("summarize", log, "--fail-on", limit)
    assert (done.returncode, done.stderr) == (status, b"")
    assert done.stdout


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (["summarize", HEALTHY, "gone.log"], 0),
        (["summarize", HEALTHY, "gone.log", "--fail-on", "error"], 3),
        (["summarize", SLOW, "gone.log", "--fail-on", "error"], 3),
        (["summarize", SLOW, "gone.log", "--fail-on", "warning"], 1),
        (["paths", HEALTHY, "gone.log"], 0),
        (["check", HEALTHY, "gone.log", "--policy", "POLICY"], 3),
        (["check", SLOW, "gone.log", "--policy", "POLICY"], 1),
        (["diff", HEALTHY, "FOLDER"], 0),
        (["diff", HEALTHY, "FOLDER", "--fail-on", "error"], 3),
    ],
    ids=lambda value: " ".join(value).replace("/", "_") if isinstance(value, list) else "",
)
def test_a_gate_does_not_pass_while_a_part_of_the_input_could_not_be_read(
    tmp_path: Path, args: list[str], status: int
) -> None:
    (tmp_path / "policy.toml").write_text('[paths.intra]\ntransport = "P2P"')
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "job.log").write_bytes(Path(HEALTHY).read_bytes())
    (tmp_path / "run" / "rank8.log.gz").write_bytes(b"\x1f\x8b\x08\x00 cut")
    places = {"POLICY": str(tmp_path / "policy.toml"), "FOLDER": str(tmp_path / "run")}
    done = run(*(places.get(arg, arg) for arg in args), cwd=tmp_path)
    assert done.returncode == status
    assert done.stderr.count(b"\n") == 1, done.stderr
    assert done.stdout


@pytest.fixture
def bad_inputs(tmp_path: Path) -> Path:
    (tmp_path / "empty.log").touch()
    (tmp_path / "other.log").write_text("one line\nanother\n")
    (tmp_path / "binary.log").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "cut.log.gz").write_bytes(b"\x1f\x8b\x08\x00 cut")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "weights.bin").write_bytes(b"x")
    (tmp_path / "topo.txt").write_text("no matrix\n")
    return tmp_path


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (["summarize", "gone.log"], 3, "gone.log: no such file; check the path"),
        (["paths", "gone.log"], 3, "gone.log: no such file"),
        (["summarize", "folder"], 3, "folder: the folder holds no log; "),
        (["summarize", "empty.log"], 3, "empty.log: empty; "),
        (["summarize", "other.log"], 3, "other.log: no NCCL line among 2 lines; run the job with NCCL_DEBUG=INFO"),
        (["summarize", "binary.log"], 3, "binary.log: no NCCL line among"),
        (["summarize", "cut.log.gz"], 3, "cut.log.gz: the compressed data is damaged"),
        (["summarize", "-"], 3, "<stdin>: empty; "),
        (["summarize"], 3, "<stdin>: empty; "),
        (["summarize", "LOG", "--select", "zzzzzz"], 2, "no rule 'zzzzzz'; see 'nccl-inspect rules'"),
        (["summarize", "LOG", "--ignore", "no-such-*"], 2, "no rule 'no-such-*'; "),
        (["summarize", "LOG", "--platform", "p5.48xlarg"], 2, "no platform 'p5.48xlarg'; did you mean p5.48xlarge"),
        (["summarize", "LOG", "--topology", "gone.txt"], 2, "gone.txt: No such file or directory; check the path"),
        (["summarize", "LOG", "--topology", "topo.txt"], 2, "topo.txt: not a topology that is understood; give"),
        (["summarize", "LOG", "--topology", "folder"], 2, "folder: Is a directory; "),
        (["summarize", "LOG", "--format", "xml"], 2, "'xml' is not one of"),
        (["summarize", "LOG", "--no-such-option"], 2, "No such option"),
        (["summarize", "LOG", "-o", "gone/report.txt"], 2, "gone/report.txt: No such file or directory; check"),
        (["paths", "LOG", "--rank", "x"], 2, "--rank x: not a rank; write 3, 0-7 or 0-56:8"),
        (["paths", "LOG", "--transport", "RDMA"], 2, "no transport 'RDMA'; the log has P2P/CUMEM"),
        (["paths", "LOG", "--finding", "gdr-of"], 2, "no rule 'gdr-of'; did you mean gdr-"),
        (["paths", "LOG", "--matrix", "--slowest", "3"], 2, "--matrix and --slowest exclude each other"),
        (["ranks", "LOG", "--rank", "99"], 2, "no rank 99; the log has ranks 0-7"),
        (["hosts", "LOG", "--host", "nosuch"], 2, "no host 'nosuch'; the log has vm"),
        (["nics", "LOG", "--limit", "0"], 2, "0 is not in the range x>=1"),
        (["summarize", "LOG", "--version"], 2, "--version goes without a command: nccl-inspect --version"),
        (["help", "pats"], 2, "no command 'pats'; did you mean paths"),
        (["paths", "LOG", "--rank", "99"], 2, "no rank 99; the log has ranks 0-7"),
        (["paths", "LOG", "--rank", "1,20-30"], 2, "no ranks 20-30; the log has ranks 0-7"),
        (["paths", "LOG", "--host", "nosuch"], 2, "no host 'nosuch'; the log has vm"),
        (["topology", "LOG", "--channel", "99"], 2, "no channel 99; the log has channels 0-23"),
        (["topology", "LOG", "--communicator", "wrld"], 2, "no communicator 'wrld'; did you mean world?"),
        (["traffic", "LOG", "--communicator", "zz"], 2, "no communicator 'zz'; the log has world"),
        (["explain", "socket-insted-of-efa"], 2, "no rule 'socket-insted-of-efa'; did you mean socket-instead-of-efa"),
        (["explain", "zzzzzz"], 2, "no rule 'zzzzzz'; see 'nccl-inspect rules'"),
        (["explain", "the", "training", "is", "slow"], 2, "neither a rule nor a line that the grammar knows; see "),
        (["explain", "first words", "other words"], 2, "none of the 2 lines is known; see "),
        (["annotate", "empty.log"], 3, "empty.log: empty; "),
        (["annotate", "--only-nccl", "other.log"], 3, "other.log: no NCCL line among 2 lines; run the job with"),
        (["no-such-command"], 2, "no command 'no-such-command'; run"),
        (["completion", "csh"], 2, "'csh' is not one of"),
    ],
    ids=lambda value: " ".join(value).replace("/", "_") if isinstance(value, list) else "",
)
def test_an_error_is_one_line_that_says_what_where_and_what_to_do(
    bad_inputs: Path, args: list[str], status: int, says: str
) -> None:
    done = run(*(HEALTHY if arg == "LOG" else arg for arg in args), cwd=bad_inputs)
    assert done.returncode == status
    assert done.stdout == b""
    message = done.stderr.decode()
    assert message.count("\n") == 1, message
    assert message.startswith("nccl-inspect: ")
    assert says in message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_an_error_that_says_so(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.touch(mode=0)
    done = run("summarize", str(file))
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert b"no read permission" in done.stderr


def test_without_a_command_the_help_is_shown_and_the_status_is_2() -> None:
    done = run()
    assert done.returncode == 2
    assert b"Usage: nccl-inspect" in done.stderr + done.stdout


def test_without_a_log_on_a_terminal_the_error_says_how_to_give_one() -> None:
    shown = on_a_terminal(["summarize"])
    assert shown.count(b"\n") == 1
    assert b"nccl-inspect: no input; name a log file, or pipe one in" in shown


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"nccl-inspect, version \d+\.\d+\S*\n", invoke("--version").stdout)


# --- pipes and files


def test_a_closed_pipe_ends_in_silence_with_status_0(tmp_path: Path) -> None:
    big = sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log"
    errors = tmp_path / "errors"
    command = " ".join(f"'{part}'" for part in [*EXE, "summarize", str(big), "--format", "json"])
    done = subprocess.run(
        ["bash", "-c", f'{command} 2> "{errors}" | head -1; echo "${{PIPESTATUS[0]}}"'],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == b"{\n0\n"
    assert errors.read_bytes() == b""


@pytest.mark.parametrize("args", [["summarize"], ["summarize", "-"], ["paths"], ["paths", "-"]])
def test_what_is_piped_in_is_read_with_a_dash_or_without_a_name(args: list[str]) -> None:
    done = run(*args, data=Path(HEALTHY).read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"P2P/CUMEM" in done.stdout


def test_a_gzip_may_be_piped_in() -> None:
    packed = sample_data.FOLDER / "v2.30.7-subsys-all" / "job.log.gz"
    done = run("summarize", data=packed.read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"NET/Socket" in done.stdout


def test_a_folder_and_its_files_give_the_same_paths() -> None:
    folder = sample_data.FOLDER / "debug-file-per-process"
    files = map(str, sample_data.files("debug-file-per-process"))
    assert invoke("paths", str(folder)).stdout == invoke("paths", *files).stdout


def test_a_report_may_go_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    result = invoke("summarize", SLOW, "--format", "json", "-o", str(target))
    assert (result.return_value, result.stdout) == (0, "")
    assert json.loads(target.read_text(encoding="utf-8"))["schema"] == "nccl-inspect/1"


# --- options


def found_by(*args: str) -> set[str]:
    """The rules in the JSON of a summary."""
    document = json.loads(invoke("summarize", SLOW, "--format", "json", *args).stdout)
    return {finding["rule"] for finding in document["findings"]}


def test_rules_are_selected_and_ignored_by_name_glob_and_category() -> None:
    everything = found_by()
    assert {"shm-instead-of-p2p", "p2p-disabled-by-env"} <= everything
    assert found_by("--select", "shm-instead-of-p2p") == {"shm-instead-of-p2p"}
    assert found_by("--select", "shm-*", "--select", "p2p-disabled-*") == {"shm-instead-of-p2p", "p2p-disabled-by-env"}
    assert found_by("--ignore", "shm-*") == everything - {"shm-instead-of-p2p"}
    assert found_by("--select", "intra-node path", "--ignore", "p2p-disabled-by-env") == {"shm-instead-of-p2p"}


def test_an_ignored_finding_does_not_count_for_the_status() -> None:
    assert invoke("summarize", SLOW, "--fail-on", "warning").return_value == 1
    ignored = [word for rule in found_by() for word in ("--ignore", rule)]
    assert invoke("summarize", SLOW, "--fail-on", "warning", *ignored).return_value == 0


def test_the_platform_is_taken_over() -> None:
    document = json.loads(invoke("summarize", HEALTHY, "--format", "json", "--platform", "P5.48xlarge").stdout)
    assert document["job"]["platform"] == "p5.48xlarge"


def test_the_summary_begins_with_the_verdict() -> None:
    assert invoke("summarize", HEALTHY).stdout.startswith("OK: ")
    assert invoke("summarize", SLOW).stdout.startswith("DEGRADED: ")


def test_the_summary_names_the_rule_its_evidence_and_a_fix() -> None:
    output = invoke("summarize", SLOW).stdout
    assert "shm-instead-of-p2p" in output
    assert re.search(r"job\.log:\d+: vm:\d+:\d+ \[\d\] NCCL INFO Channel", output)
    assert re.search(r"^  fix ", output, re.MULTILINE)


# --- paths


def test_paths_are_a_table_of_directed_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = len(sample_data.truth("timestamps")["paths"])
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = invoke("paths", TWO_HOSTS).stdout.splitlines()
    assert whole[0].split()[:2] == ["src", "dst"]
    assert len(whole) == 2 + pairs
    assert all("llama-3-8b-node-0-" in line for line in whole[2:]), "in a pipe, grep finds the names"
    assert "expected" not in whole[0], "nothing is known of the machine"
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke("paths", TWO_HOSTS).stdout.splitlines()
    assert len(lines) >= 2 + pairs
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("columns", "left_out"),
    [(40, "no room for: src host, dst host, channels, NIC, GDR"), (60, "no room for: src host, dst host, channels")],
)
def test_a_narrow_terminal_gets_the_columns_that_fit(
    columns: int, left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = invoke("paths", TWO_HOSTS).stdout.splitlines()
    assert " ".join("\n".join(lines).partition("\n\n")[2].split()) == left_out
    assert max(map(len, lines)) <= columns
    assert {"src", "dst", "path", "verdict"} <= set(lines[0].split())


def test_a_file_has_all_columns_whatever_the_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[str] = []
    for columns in ("40", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        for command in (("paths", TWO_HOSTS), ("explain", "gdr-disabled"), ("summarize", TWO_HOSTS)):
            assert invoke(*command, "-o", str(tmp_path / "out.txt")).exception is None
            told.append((tmp_path / "out.txt").read_text(encoding="utf-8"))
    assert told[:3] == told[3:]
    assert "src host" in told[0]


@pytest.mark.parametrize(
    ("command", "name", "begin"),
    [
        ("summarize", "r.json", "{"),
        ("summarize", "r.md", "#"),
        ("summarize", "r.html", "<!"),
        ("summarize", "r.xml", "<testsuites"),
        ("summarize", "r.prom", "# HELP"),
        ("summarize", "r.log", "DEGRADED"),
        ("paths", "p.csv", "src,dst"),
        ("paths", "p.out", "src  dst"),
        ("topology", "t.svg", "<"),
        ("diff", "d.json", "{"),
    ],
)
def test_the_suffix_of_the_file_names_the_format(command: str, name: str, begin: str, tmp_path: Path) -> None:
    logs = [TWO_HOSTS] * (1 + (command == "diff"))
    target = tmp_path / name
    invoke(command, *logs, "-o", str(target))
    assert target.read_text(encoding="utf-8").startswith(begin)
    invoke(command, *logs, "-o", str(target), "--format", "json")
    assert json.loads(target.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("command", "name", "has"),
    [
        ("summarize", "r.yaml", "json"),
        ("summarize", "r.csv", "html"),
        ("paths", "p.parquet", "table, csv, json"),
        ("paths", "p.xlsx", "table, csv, json"),
        ("topology", "t.png", "svg"),
        ("rules", "r.md", "table, json"),
    ],
)
def test_a_suffix_that_a_command_does_not_write_is_said(command: str, name: str, has: str, tmp_path: Path) -> None:
    target = tmp_path / name
    done = run(command, *([] if command == "rules" else [TWO_HOSTS]), "-o", str(target))
    assert done.returncode == 2
    told = done.stderr.decode()
    assert f"{command} cannot write {target.suffix[1:]}" in told
    assert has in told
    assert told.count("\n") == 1
    assert not target.exists()


@pytest.mark.parametrize("what", [TWO_HOSTS, str(Path(TWO_HOSTS).parent)])
def test_a_log_in_the_place_of_a_command_is_told_from_one(what: str) -> None:
    done = run(what)
    assert done.returncode == 2
    assert done.stderr.decode().endswith(f"is a log, not a command; nccl-inspect summarize {what}\n")


def test_what_all_paths_have_in_common_is_told_whole() -> None:
    paths = [path for path in nccl_inspect.read(TWO_HOSTS).paths if path.dst_host == "llama-3-8b-node-0-1"]
    _, _, notes = pairs(paths, 60)
    assert "dst host of all: llama-3-8b-node-0-1" in notes


def test_ranks_of_communicators_are_told_apart(tmp_path: Path) -> None:
    """The end of a log, in which the communicator of all ranks is not begun."""
    log = tmp_path / "end.log"
    lines = sample_data.contents("socket-2node-tp4-dp2")[0].split(b"\n")
    log.write_bytes(b"\n".join(lines[-700:]))
    head, _, *rows = invoke("paths", str(log)).stdout.split("\n\n")[0].splitlines()
    assert head.split()[-1] == "communicator"
    assert len(rows) == len(set(rows)) == len(nccl_inspect.read(str(log)).paths)
    for matrix in ((), ("--matrix",)):
        assert invoke("paths", str(log), *matrix).stdout.endswith("does not show the one of all ranks\n")


def test_the_legend_names_the_marks_that_occur() -> None:
    good = invoke("paths", HEALTHY, "--matrix").stdout
    assert good.endswith("P = P2P/CUMEM\n. = no connection line\n")
    assert invoke("paths", TWO_HOSTS, "--matrix").stdout.endswith("\n! = fallback\n")


def test_a_wide_terminal_gets_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    output = invoke("paths", TWO_HOSTS).stdout
    assert "llama-3-8b-node-0-1" in output
    assert "…" not in output


def test_the_matrix_has_a_row_and_a_column_for_each_rank() -> None:
    output = invoke("paths", TWO_HOSTS, "--matrix").stdout
    rows, _, legend = output.partition("\n\n")
    assert [line.split()[0] for line in rows.splitlines()] == ["src\\dst", "0", "1", "2", "3"]
    assert "P = P2P/CUMEM" in legend
    assert "= NET/Socket" in legend


def test_a_filtered_matrix_tells_what_the_filter_leaves_out_from_what_the_log_lacks() -> None:
    mesh = str(sample_data.FOLDER / "socket-2node-tp4-dp2")
    output = invoke("paths", mesh, "--matrix", "--rank", "3").stdout
    assert [line.split() for line in output.splitlines()[1:3]] == [["0", *"--P----"], ["1", *"--P----"]]
    assert "- = left out by the filter" in output
    assert "no connection line" not in output
    ring = b"".join(
        b"vm:%d:1 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[1] via P2P/CUMEM\n" % (r, r, (r + 1) % 4) for r in range(4)
    )
    rows = invoke("paths", "--matrix", "--rank", "1", data=ring).stdout.partition("\n\n")[0]
    assert [line.split() for line in rows.splitlines()] == [["src\\dst", "1", "2"], ["0", "P", "."], ["1", "P"]]


@pytest.mark.parametrize("columns", [40, 80])
def test_a_matrix_wider_than_the_terminal_goes_on_below(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    log = large_job.log(4)
    whole = invoke("paths", "--matrix", data=log).stdout
    monkeypatch.setenv("COLUMNS", str(columns))
    parts = invoke("paths", "--matrix", data=log).stdout
    assert max(map(len, parts.splitlines())) <= columns < max(map(len, whole.splitlines()))
    assert len(re.findall(r" [PN]\b", parts)) == len(re.findall(r" [PN]\b", whole))
    heads = [name for line in parts.splitlines() if "src\\dst" in line for name in line.split()[1:]]
    assert heads == [str(number) for number in range(32)]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_matrix_of_many_hosts_shows_the_odd_one(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    output = invoke("paths", "--matrix", data=large_job.log(100, channels=1, without_gdr=37)).stdout
    assert max(map(len, output.splitlines())) <= columns
    rows = {line.split(" = ")[0].strip(): line for line in output.partition("\n\n")[0].splitlines()[1:]}
    assert "E?" in (rows["train-7f9c-node-37"] if columns > 40 else output)


def test_a_matrix_in_a_pipe_has_each_host() -> None:
    output = invoke("paths", "--matrix", data=large_job.log(100, channels=1)).stdout
    rows = output.partition("\n\n")[0].splitlines()[1:]
    assert [row.split()[0] for row in rows] == [f"train-7f9c-node-{host}" for host in range(100)]
    assert max(map(len, rows)) < 500


def test_rows_of_the_matrix_are_chosen() -> None:
    few, many = large_job.log(2), large_job.log(10)
    assert json.loads(invoke("paths", "--by", "host", "--format", "json", data=few).stdout)["by"] == "host"
    assert json.loads(invoke("paths", "--by", "rank", "--format", "json", data=many).stdout)["by"] == "rank"
    assert invoke("paths", "--by", "host", data=few).stdout.endswith("number of pairs\n")


@pytest.mark.parametrize(
    ("option", "hosts"),
    [
        (("--rank", "0-72:8"), range(10)),
        (("--host", "train-7f9c-node-[8-9]"), (0, 7, 8, 9)),
        (("--host", "train-7f9c-node-[2-9]*"), range(1, 10)),
    ],
    ids=lambda value: str(value),
)
def test_folded_ranks_and_hosts_are_read(option: tuple[str, str], hosts: Sequence[int]) -> None:
    output = invoke("paths", *option, "--format", "json", data=large_job.log(10, channels=1)).stdout
    found = {path[end] for path in json.loads(output) for end in ("src_host", "dst_host")}
    assert found >= {f"train-7f9c-node-{host}" for host in hosts}


def test_numbers_in_brackets_are_no_characters() -> None:
    with pytest.raises(NcclInspectError, match="no host"):
        invoke("paths", "--host", "train-7f9c-node-[10-12]", data=large_job.log(3, channels=1))


def test_the_csv_and_the_json_hold_all_paths() -> None:
    wanted = sample_data.truth("timestamps")["paths"]
    table = list(csv.DictReader(io.StringIO(invoke("paths", TWO_HOSTS, "--format", "csv").stdout)))
    pairs = sorted((path["src"], path["dst"], path["detail"]) for path in wanted)
    assert sorted((int(row["src"]), int(row["dst"]), row["detail"]) for row in table) == pairs
    document = json.loads(invoke("paths", TWO_HOSTS, "--format", "json").stdout)
    assert sorted((path["src"], path["dst"], path["detail"]) for path in document) == pairs


@pytest.mark.parametrize(
    ("filters", "admits"),
    [
        (["--rank", "3"], lambda p: 3 in (p["src"], p["dst"])),
        (["--rank", "0-1", "--rank", "3"], lambda p: {0, 1, 3} & {p["src"], p["dst"]}),
        (["--rank", "0,2"], lambda p: {0, 2} & {p["src"], p["dst"]}),
        (["--scope", "inter"], lambda p: p["scope"] == "inter"),
        (["--scope", "intra"], lambda p: p["scope"] == "intra"),
        (["--scope", "unknown"], lambda p: False),
        (["--transport", "NET"], lambda p: p["transport"] == "NET"),
        (["--transport", "p2p"], lambda p: p["transport"] == "P2P"),
        (["--rank", "0", "--transport", "NET"], lambda p: p["transport"] == "NET" and 0 in (p["src"], p["dst"])),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_paths_are_filtered(filters: list[str], admits: object) -> None:
    assert callable(admits)
    found = json.loads(invoke("paths", TWO_HOSTS, "--format", "json", *filters).stdout)
    wanted = [(p["src"], p["dst"]) for p in sample_data.truth("timestamps")["paths"] if admits(p)]
    assert sorted((path["src"], path["dst"]) for path in found) == sorted(wanted)


def test_paths_are_filtered_by_host() -> None:
    found = json.loads(
        invoke("paths", TWO_HOSTS, "--format", "json", "--host", "llama-3-8b-node-0-1", "--scope", "intra").stdout
    )
    assert {(path["src"], path["dst"]) for path in found} == {(2, 3), (3, 2)}


def test_the_matrix_is_written_as_csv_and_json() -> None:
    table = list(csv.DictReader(io.StringIO(invoke("paths", TWO_HOSTS, "--matrix", "--format", "csv").stdout)))
    assert list(table[0]) == ["src\\dst", "0", "1", "2", "3"]
    assert table[0]["1"] == "P2P/CUMEM (ok)"
    assert table[1]["2"] == "NET/Socket (fallback)"
    document = json.loads(invoke("paths", TWO_HOSTS, "--matrix", "--format", "json").stdout)
    assert (document["by"], document["names"]) == ("rank", ["0", "1", "2", "3"])
    assert document["rows"][0][1] == [{"detail": "P2P/CUMEM", "gdr": None, "verdict": "ok", "pairs": 1}]
    pairs = {(src, dst) for src, row in enumerate(document["rows"]) for dst, cell in enumerate(row) if cell}
    assert pairs == {(path["src"], path["dst"]) for path in sample_data.truth("timestamps")["paths"]}


def test_above_64_ranks_the_matrix_is_host_by_host_in_all_formats() -> None:
    host = b"vm%d:1:1 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[1] via P2P/CUMEM\n"
    log = b"".join(host % (rank // 8, rank, rank + 1) for rank in range(0, 80, 2))
    document = json.loads(invoke("paths", "--matrix", "--format", "json", data=log).stdout)
    assert (document["by"], len(document["names"]), len(document["rows"])) == ("host", 10, 10)
    assert document["rows"][3][3][0]["pairs"] == 4
    table = list(csv.DictReader(io.StringIO(invoke("paths", "--matrix", "--format", "csv", data=log).stdout)))
    assert [row["src\\dst"] for row in table] == document["names"]
    assert table[3][document["names"][3]].startswith("4 x P2P/CUMEM (")


def test_the_csv_has_all_columns_also_without_a_path() -> None:
    columns = invoke("paths", TWO_HOSTS, "--format", "csv").stdout.partition("\n")[0]
    assert invoke("paths", TWO_HOSTS, "--format", "csv", "--scope", "unknown").stdout == columns + "\n"
    document = json.loads(invoke("paths", TWO_HOSTS, "--format", "json").stdout)
    assert columns.split(",") == [key for key in document[0] if key != "also"]


# --- a machine that the log contradicts


@pytest.mark.parametrize("command", ["summarize", "paths"])
def test_a_machine_that_cannot_be_that_of_the_log_is_told(command: str, tmp_path: Path) -> None:
    done = run(command, HEALTHY, "--platform", "g6e.12xlarge", "--topology", str(TOPOLOGY))
    assert done.returncode == 0
    platform, topology = done.stderr.decode().splitlines()
    seen = "but the log shows 8 on host vm; "
    assert platform.startswith(f"nccl-inspect: warning: g6e.12xlarge has 4 GPUs, {seen}")
    assert topology.startswith(f"nccl-inspect: warning: {TOPOLOGY} has 4 GPUs, {seen}")


def test_a_platform_other_than_the_one_in_the_log_is_told() -> None:
    log = (
        Path(HEALTHY).read_bytes() + b"vm:1:1 [0] NCCL INFO NET/OFI Running on p5.48xlarge platform, topology file x\n"
    )
    done = run("summarize", "--platform", "p4d.24xlarge", data=log)
    assert b"the platform is to be p4d.24xlarge, but the log says p5.48xlarge; leave --platform out" in done.stderr


def test_a_machine_that_fits_is_not_mentioned() -> None:
    done = run("summarize", SLOW, "--platform", "g6e.12xlarge", "--topology", str(TOPOLOGY))
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("form", [[], ["--matrix"]])
def test_no_path_is_told_in_words(form: list[str]) -> None:
    done = invoke("paths", HEALTHY, "--scope", "inter", *form)
    assert (done.return_value, done.stdout) == (0, "no path\n"), "a good question with an answer"
    assert done.stderr == "nccl-inspect: no path matches; the log has 8 paths: 8 intra P2P\n"


def test_what_is_no_log_of_nccl_is_shown_as_it_is_with_status_3() -> None:
    done = run("annotate", data=b"we like NCCL\n")
    assert (done.returncode, done.stdout) == (3, b"we like NCCL\n")
    assert b"no NCCL line among 1 line;" in done.stderr


def test_lines_of_other_programs_that_tell_something_are_annotated() -> None:
    done = invoke("annotate", "--only-nccl", str(sample_data.FOLDER / "torch-rank-killed" / "job.log"))
    assert re.search(r"^.*torch/distributed/elastic.* SIGTERM\n    \^ ", done.stdout, re.MULTILINE)


# --- rules and help


def test_the_rules_are_listed_as_json() -> None:
    document = json.loads(invoke("rules", "--format", "json").stdout)
    assert [rule["name"] for rule in document] == [entry.rule.name for entry in registered()]
    assert all(rule["title"] and rule["category"] and rule["severity"] for rule in document)


def test_the_rules_are_listed_as_a_table() -> None:
    output = invoke("rules").stdout
    assert all(entry.rule.name in output for entry in registered())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_a_command_does(name: str) -> None:
    for option in ("-h", "--help"):
        output = invoke(name, option).stdout
        text = re.split(r"^\S", output.partition("\n\n")[2], maxsplit=1, flags=re.MULTILINE)[0].strip()
        assert len(text.split()) > 5
        assert text.endswith((".", ")"))
        assert f"\n  nccl-inspect {name}" in output.partition("Examples:")[2]


@pytest.mark.parametrize("name", [*COMMANDS, ""])
@pytest.mark.parametrize("columns", [40, 80, 120])
def test_help_fits_but_for_what_stands_in_quotes(name: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for line in invoke(*name.split(), "--help").stdout.splitlines():
        assert len(line) <= columns or line.strip().startswith("'")


def test_commands_name_their_options_alike() -> None:
    known: dict[str, tuple[object, ...]] = {}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for option in command.params:
            assert isinstance(option, click.Argument) or getattr(option, "help", None), f"{name} {option.name}: no help"
            looks = (tuple(option.opts), option.metavar, option.multiple if isinstance(option, click.Option) else None)
            assert known.setdefault(option.name or "", looks) == looks, f"{name} {option.name}"
        names = {option.name for option in command.params}
        assert "output" in names or name in ("grammar", "help", "mcp", "run", "watch")
        assert "no_color" in names or name in ("anonymize", "collect", "events", "grammar", "help", "mcp", "run")


def test_help_lists_all_commands_and_the_exit_statuses() -> None:
    output = invoke("--help").stdout
    assert {"summarize", "paths", "rules"} <= set(COMMANDS)
    assert all(re.search(rf"^  {name} +\S", output, re.MULTILINE) for name in COMMANDS)
    assert re.search(r"^Exit status:\n  0 +Done", output, re.MULTILINE)


# --- looks


def test_there_is_no_colour_in_a_pipe() -> None:
    done = run("summarize", SLOW, env={"TERM": "xterm"})
    assert ESCAPE not in done.stdout


def test_there_is_colour_on_a_terminal_unless_it_is_unwanted(tmp_path: Path) -> None:
    assert b"\x1b[33mDEGRADED\x1b[0m" in on_a_terminal(["summarize", SLOW])
    assert ESCAPE not in on_a_terminal(["summarize", SLOW, "--no-color"])
    assert ESCAPE not in on_a_terminal(["summarize", SLOW], {"NO_COLOR": "1"})
    target = tmp_path / "report.txt"
    assert on_a_terminal(["summarize", SLOW, "-o", str(target)]) == b""
    assert ESCAPE not in target.read_bytes()


def test_escape_sequences_of_a_log_do_not_reach_the_terminal() -> None:
    log = b"vm:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to \x1b]0;owned\x07\xff\n"
    for form in ("text", "json"):
        done = run("summarize", "--format", form, data=log)
        assert done.returncode == 0
        assert b"\x1b" not in done.stdout
        assert b"\x07" not in done.stdout


@pytest.mark.parametrize("columns", [40, 60, 80, 132])
@pytest.mark.parametrize("name", sample_data.names())
def test_the_summary_fits_the_width_unless_a_single_word_does_not(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(sample_data.FOLDER)
    for line in invoke("summarize", name).stdout.splitlines():
        assert len(line) <= columns or len(line.split()) == 1, line


@pytest.mark.parametrize("name", sample_data.names())
def test_the_summary_is_plain_text_that_any_locale_can_take(name: str) -> None:
    output = invoke("summarize", str(sample_data.FOLDER / name)).stdout
    assert output.endswith("\n")
    assert "\x1b" not in output
    assert not re.search(r"[ \t]+$", output, re.MULTILINE)


def test_output_that_the_terminal_cannot_encode_is_no_error() -> None:
    done = run("summarize", str(sample_data.FOLDER / "peer-killed"), env={"PYTHONIOENCODING": "ascii", "COLUMNS": "40"})
    assert (done.returncode, done.stderr) == (0, b"")


# --- speed is bought by importing little


@pytest.mark.parametrize("args", [["summarize", SLOW], ["paths", SLOW], ["rules"]], ids=lambda args: args[0])
def test_the_heavy_libraries_are_not_loaded_for_text(args: list[str]) -> None:
    code = (
        "import sys\nfrom nccl_inspect.cli import cli\n"
        f"cli.main({args!r}, standalone_mode=False)\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stderr.strip() == b""


def test_what_a_prefix_lacks_is_not_told_of_its_line() -> None:
    refused = "Connect to 10.0.0.1<4000> failed : Connection refused"
    assert b"\nfrom" not in run("explain", f"misc/socket.cc:71 NCCL WARN {refused}").stdout
    named = run("explain", f"[3] misc/socket.cc:71 NCCL WARN {refused}")
    assert b"\nfrom        device 3 (of the thread)\n" in named.stdout


@pytest.mark.parametrize(
    "message",
    [
        "comm 0x... rank 1 nranks 4 cudaDev 1 busId XXXX - Destroy COMPLETE",
        "ncclCommInitRankConfig comm 0x… rank 1 nranks 4 cudaDev 0 nvmlDev 0 busId XXXX commId 0xXX - Init START",
        "NVLS Created Multicast group 0x... nranks 4 size 2097152 on rank 1",
    ],
)
def test_a_line_with_numbers_left_out_is_explained_without_them(message: str) -> None:
    """As in the chapter on logging of NCCL's manual."""
    done = run("explain", message)
    assert done.returncode == 0, done.stderr
    fields = dict(line.split()[:2] for line in done.stdout.decode().partition("fields\n")[2].splitlines())
    assert (fields["rank"], fields["nranks"]) == ("1", "4")
    assert not {"comm", "bus_id", "comm_id", "handle"} & set(fields)


CONNECTION = "vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
WATCHDOG = (
    "[rank3]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=5173, OpType=_ALLGATHER_BASE, NumelIn=65667072, NumelOut=525336576, Timeout(ms)=600000) "
    "ran for 600052 milliseconds before timing out."
)
NCCL_ERROR = (
    "torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:77, "
    "unhandled cuda error, NCCL version 2.19.3"
)
ABORT = "vm:1:1 [0] NCCL INFO comm 0x55d0 rank 0 nranks 8 cudaDev 0 busId 60 - {} COMPLETE"


@pytest.mark.parametrize(
    ("line", "worry"),
    [
        (WATCHDOG, "yes: it waited in vain"),
        (ABORT.format("Abort"), "it depends: after an error"),
        (ABORT.format("Destroy"), "not by itself"),
        (NCCL_ERROR, "yes: something failed here"),
        (CONNECTION, "not by itself"),
    ],
)
def test_whether_to_worry(line: str, worry: str) -> None:
    assert f"worry       {worry}" in invoke("explain", line).stdout


def test_fields_of_pytorch_are_described_as_such_and_internal_ones_are_not_shown() -> None:
    output = " ".join(invoke("explain", NCCL_ERROR).stdout.split())
    assert "NCCLUtils.hpp source file of PyTorch at 77 line in that file" in output
    assert "error unhandled cuda error what NCCL returned, in words version 2.19.3 release of NCCL" in output
    for line in (WATCHDOG, NCCL_ERROR):
        assert not re.search(r"^ +_", invoke("explain", line).stdout, re.MULTILINE)


@pytest.mark.parametrize(
    "line",
    [
        f"\x1b[32m{CONNECTION}\x1b[0m",
        CONNECTION.replace("NCCL", "\x1b[1mNCCL\x1b[0m"),
        f"2026-11-20T23:13:07.000000000Z stderr F {CONNECTION}",
        json.dumps({"log": f"{CONNECTION}\n", "stream": "stderr", "time": "2026-11-20T23:13:07Z"}),
    ],
)
def test_a_line_is_read_as_in_a_log_whatever_is_around_it(line: str) -> None:
    assert invoke("explain", line).stdout == invoke("explain", CONNECTION).stdout
    assert "\n    ^ Direct GPU memory" in invoke("annotate", data=f"{line}\n".encode()).stdout


def test_what_stands_around_a_line_is_not_taken_for_a_part_of_it() -> None:
    line = json.dumps({"log": f"{NCCL_ERROR}\n", "stream": "stderr", "time": "2026-11-20T23:13:07Z"})
    assert invoke("explain", line).stdout == invoke("explain", NCCL_ERROR).stdout


MANY = b"".join(b"line %d\n" % number for number in range(101))
NO_DEVICE = "NET/IB : No device found."
OVER_SOCKET = "Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0"


@pytest.mark.parametrize("args", [[], ["-"]])
def test_a_line_to_explain_may_be_piped_in(args: list[str]) -> None:
    piped = run("explain", *args, data=f"{CONNECTION}\n".encode())
    assert piped.stdout == run("explain", CONNECTION).stdout
    for data, says in ((b"", b"is empty; name a rule"), (MANY, b"more than 100 lines; use 'nccl-inspect annotate")):
        refused = run("explain", *args, data=data)
        assert (refused.returncode, refused.stderr.count(b"\n")) == (2, 1)
        assert says in refused.stderr


@pytest.mark.parametrize(
    ("args", "data"),
    [
        ([NO_DEVICE, OVER_SOCKET], b""),
        ([f"{NO_DEVICE}\n{OVER_SOCKET}\n"], b""),
        ([], f"{NO_DEVICE}\n\n{OVER_SOCKET}\n{NO_DEVICE}\n".encode()),
    ],
)
def test_several_lines_are_explained_one_by_one(args: list[str], data: bytes) -> None:
    each = [invoke("explain", line).stdout for line in (NO_DEVICE, OVER_SOCKET)]
    assert invoke("explain", *args, data=data).stdout == f"> {NO_DEVICE}\n{each[0]}\n> {OVER_SOCKET}\n{each[1]}"


def test_of_several_lines_those_that_nobody_knows_are_named() -> None:
    output = invoke("explain", NO_DEVICE, "the training is slow").stdout
    assert "\n> the training is slow\nunknown     neither a rule nor a line" in output
    assert invoke("explain", "gdr-disabled", "nic-shared").stdout.count("\n> nic-shared\n") == 1


@pytest.mark.parametrize(
    ("part", "known"),
    [
        ("NCCL WARN Cuda failure 999", "nccl/cuda-failure,"),
        ("vm:1:1 [0] include/alloc.h:3 NCCL WARN Cuda failure 999", "nccl/cuda-failure,"),
        ("NET/IB : No devices", "nccl/net-ib-none,"),
        ("Watchdog caught collec", "torch/watchdog-timeout"),
        ("Bootstrap : no socket interface", "nccl/bootstrap-no-interface,"),
        ("Duplicate GPU detected", "nccl/duplicate-gpu"),
        ("with error 12, opcode 0, len 32617", "nccl/ib-completion"),
        ("my training is slow since Monday", ""),
        ("NET/OFI is slow on my cluster", ""),
        ("out of the blue", ""),
    ],
)
def test_half_a_line_is_explained_by_the_nearest_one(part: str, known: str) -> None:
    if not known:
        with pytest.raises(NcclInspectError, match="neither a rule nor a line"):
            invoke("explain", part)
        return
    output = invoke("explain", part).stdout
    assert output.startswith("nearest     ")
    assert "the line most" in output
    assert f"known as    {known}" in output


@pytest.mark.parametrize(
    ("line", "worry"),
    [
        ("vm:1:1 [0] x.cc:1 NCCL WARN NET/IB : No device found.", "it depends"),
        ("vm:1:1 [0] x.cc:1 NCCL WARN Cuda failure 999 'unknown error'", "yes"),
        ("vm:1:1 [0] NCCL INFO x.cc:1 -> 2", "yes"),
    ],
)
def test_what_is_normal_is_no_reason_to_worry(line: str, worry: str) -> None:
    assert f"worry       {worry}" in invoke("explain", line).stdout


def test_a_line_alone_is_not_the_end_of_a_log() -> None:
    assert "hang-in-init" not in invoke("explain", NO_DEVICE).stdout


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("network", "'network' is a category of rules; name one of them: "),
        ("Log Quality", "'Log Quality' is a category of rules; name one of them: "),
        (
            "NCCL_P2P_DISABLE=1",
            "NCCL_P2P_DISABLE is a setting, neither a rule nor a line; rules that speak of it: p2p-",
        ),
        ("NCCL_NO_SUCH", "no rule speaks of it; NCCL's manual may"),
    ],
)
def test_what_is_neither_a_rule_nor_a_line_is_told_as_what_it_is(what: str, says: str) -> None:
    with pytest.raises(NcclInspectError) as caught:
        invoke("explain", what)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("KeyboardInterrupt", "python-interrupted"),
        ("trainer.TrainingFailed: loss is nan", "python-raised"),
        ("queue.Empty", "python-raised"),
        ("[rank1]: trainer.errors.TrainingFailed: loss is nan", "rank-raised"),
        ("2026-11-20T23:13:07.000000000Z stderr F trainer.TrainingFailed: loss is nan", "python-raised"),
        ("Traceback (most recent call last):", "python-traceback"),
        ("^CTraceback (most recent call last):", "python-traceback"),
    ],
)
def test_a_line_of_a_traceback_is_explained_alone(line: str, known: str) -> None:
    assert f"torch/{known}," in invoke("explain", line).stdout


@pytest.mark.parametrize("line", ["Epoch: 3", "Warning: something", "Loss", "numpy.float", "train.py: 7"])
def test_what_may_be_any_print_is_not_explained_as_an_exception(line: str) -> None:
    with pytest.raises(NcclInspectError):
        invoke("explain", line)


def test_capitals_do_not_matter_in_the_name_of_a_rule() -> None:
    assert invoke("explain", "GDR-Disabled").stdout == invoke("explain", "gdr-disabled").stdout


def test_a_program_that_calls_the_command_keeps_its_garbage_collection() -> None:
    """Only the process of the command itself, which ends then, does without."""
    frozen = gc.get_freeze_count()
    assert invoke("summarize", SLOW).exit_code == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


def test_a_long_line_of_evidence_is_cut_for_people_and_whole_with_verbose() -> None:
    # what PyTorch prints since 2.5, c10/cuda/CUDACachingAllocator.cpp
    memory = (
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity "
        "of 79.10 GiB of which 1.29 GiB is free. Including non-PyTorch memory, this process has 77.80 GiB memory in "
        "use. Of the allocated memory 70.18 GiB is allocated by PyTorch, and 5.06 GiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )
    job = nccl_inspect.read(SLOW)
    finding = next(one for one in job.findings if one.evidence)
    finding.evidence[0] = dataclasses.replace(finding.evidence[0], text=memory)
    short, whole = (
        " ".join(" ".join(brief(finding, job, Style(color=False, width=100, verbose=verbose))).split())
        for verbose in (False, True)
    )
    assert f"{memory[:299]}…" in short
    assert memory not in short
    assert memory in whole
    assert memory in json.dumps(job.to_dict())
