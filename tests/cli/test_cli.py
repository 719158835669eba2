"""The command line: exit statuses, errors in one line, pipes, colours, widths."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sample_data
from command_line import invoke
from repository import TESTS
from terminals import EXE, HEALTHY, SLOW, on_a_terminal, run

TOPOLOGY = TESTS / "data" / "h200-4gpu.nccl-topo.xml"
HEAVY = ("pandas", "pyarrow", "numpy", "jinja2", "junitparser", "prometheus_client", "xml.etree", "hashlib")


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
        (["explain", "zzzzzz"], 2, "no rule 'zzzzzz'; run 'nccl-inspect rules'"),
        (["explain", "the", "training", "is", "slow"], 2, "no such rule, and not a recognized log line; run "),
        (["explain", "first words", "other words"], 2, "none of the 2 lines is known; run "),
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


def test_without_a_log_on_a_terminal_the_error_says_how_to_give_one() -> None:
    shown = on_a_terminal(["summarize"])
    assert shown.count(b"\n") == 1
    assert b"nccl-inspect: no input; name a log file, or pipe one in" in shown


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"nccl-inspect, version \d+\.\d+\S*\n", invoke("--version").stdout)


# --- pipes and files


def test_a_closed_pipe_ends_in_silence(tmp_path: Path) -> None:
    big = sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log"
    errors = tmp_path / "errors"
    command = " ".join(f"'{part}'" for part in [*EXE, "summarize", str(big), "--format", "json"])
    done = subprocess.run(
        ["bash", "-c", f'{command} 2> "{errors}" | head -1; echo "${{PIPESTATUS[0]}}"'],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout in (b"{\n0\n", b"{\n141\n"), "all fits into the pipe, or the status is that of SIGPIPE"
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


def test_a_program_that_calls_the_command_keeps_its_garbage_collection() -> None:
    """Only the process of the command itself, which ends then, does without."""
    frozen = gc.get_freeze_count()
    assert invoke("summarize", SLOW).exit_code == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen
