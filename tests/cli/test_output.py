"""Where reports go: files are complete or as they were, and what cannot be written is said in one line."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sample_data

from nccl_inspect.errors import NcclInspectError
from nccl_inspect.util import atomic_files

LOG = str(sample_data.FOLDER / "v2.30.7-shm-4gpu" / "job.log")
EXE = [sys.executable, "-c", "from nccl_inspect.cli import main; main()"]


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """A shell command in which ``TOOL`` is the command line."""
    words = " ".join(f"'{word}'" for word in EXE)
    return subprocess.run(
        ["bash", "-c", command.replace("TOOL", words)], cwd=cwd, capture_output=True, timeout=60, check=False
    )


def breaking_off() -> Iterator[str]:
    yield "one"
    raise RuntimeError("in the middle")


def test_what_breaks_off_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.write_text("before")
    with pytest.raises(RuntimeError):
        atomic_files.lines(str(target), "-o", breaking_off())
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(RuntimeError):
        atomic_files.lines(str(tmp_path / "new"), "-o", breaking_off())
    assert list(tmp_path.iterdir()) == [target]


def test_while_it_is_written_the_file_is_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.write_text("before")
    with atomic_files.replacing(str(target), "-o") as file:
        file.write(b"after")
        assert target.read_text() == "before"
    assert target.read_text() == "after"


def test_a_new_file_has_the_usual_mode_and_one_that_is_replaced_its_own(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic_files.lines(str(tmp_path / "new"), "-o", ["x"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    atomic_files.lines(str(tmp_path / "new"), "-o", ["y"])
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604


def test_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    (tmp_path / "soft").symlink_to("file")
    (tmp_path / "hard").hardlink_to(tmp_path / "file")
    atomic_files.lines(str(tmp_path / "soft"), "-o", ["soft"])
    assert (tmp_path / "soft").is_symlink()
    assert (tmp_path / "hard").read_text() == "soft\n"
    (tmp_path / "dangling").symlink_to("made")
    atomic_files.lines(str(tmp_path / "dangling"), "-o", ["x"])
    assert (tmp_path / "made").read_text() == "x\n"


def test_a_named_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    atomic_files.lines(str(pipe), "-o", ["x"])
    reader.join(10)
    assert found == ["x\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o444)
    with pytest.raises(NcclInspectError, match="Permission denied"):
        atomic_files.lines(str(tmp_path / "file"), "-o", ["x"])


def test_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NcclInspectError, match="Is a directory; check the name given with -o"):
        atomic_files.lines(str(tmp_path), "-o", ["x"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"])
def test_standard_output_may_be_named_as_a_file(name: str, tmp_path: Path) -> None:
    command = f"TOOL summarize '{LOG}' --format json -o {name}"
    assert json.loads(shell(f"{command} | cat", tmp_path).stdout)["verdict"] == "degraded"
    (tmp_path / "out").write_text("[1]\n")
    shell(f"{command} >> out", tmp_path)
    assert (tmp_path / "out").read_text().startswith("[1]\n{")


def test_output_may_go_into_a_process(tmp_path: Path) -> None:
    done = shell(
        f"TOOL summarize '{LOG}' --format json -o >(cat > out; touch done); while [ ! -e done ]; do :; done", tmp_path
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads((tmp_path / "out").read_bytes())["verdict"] == "degraded"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize(
    "args",
    [
        "summarize LOG > /dev/full",
        "summarize LOG --format json > /dev/full",
        "summarize LOG -o /dev/full",
        "summarize LOG -o /dev/stdout > /dev/full",
        "annotate LOG > /dev/full",
        "rules > /dev/full",
        "rules --format json > /dev/full",
        "--help > /dev/full",
        "summarize --help > /dev/full",
        "--version > /dev/full",
    ],
)
def test_a_full_disk_is_one_line_and_a_status(args: str, tmp_path: Path) -> None:
    done = shell("TOOL " + args.replace("LOG", LOG), tmp_path)
    message = done.stderr.decode()
    assert (done.returncode, message.count("\n")) == (2, 1), message
    assert "No space left on device; " in message


def test_an_error_that_cannot_be_told_leaves_its_status(tmp_path: Path) -> None:
    assert shell("TOOL summarize gone.log 2> /dev/full", tmp_path).returncode == 3
    assert shell("TOOL summarize gone.log 2>&-", tmp_path).returncode == 3


def test_a_character_that_the_terminal_lacks_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "caf\u00e9.log").write_bytes(b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n")
    done = shell("PYTHONIOENCODING=ascii TOOL summarize caf*.log", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"caf\\xe9.log" in done.stdout


@pytest.mark.parametrize(
    "args",
    [
        *("summarize job.log", "annotate job.log", "anonymize job.log", "paths job.log", "topology job.log"),
        *("traffic job.log", "events job.log --format jsonl", "check --learn job.log", "diff other.log job.log"),
        *("diff job.log other.log", "summarize ./", "summarize '*.log'", "summarize < job.log", "paths linked.log"),
        *("summarize other.log --topology job.log", "check other.log --policy job.log"),
        *("anonymize other.log --map job.log", "summarize other.log --config job.log"),
    ],
)
def test_no_command_writes_over_what_it_reads(args: str, tmp_path: Path) -> None:
    data = Path(LOG).read_bytes()
    for name in ("job.log", "other.log"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "linked.log").symlink_to("job.log")
    result = shell(f"TOOL {args} -o {tmp_path}/job.log", tmp_path)
    said = f"nccl-inspect: {tmp_path}/job.log: is one of the inputs, which would be lost; choose another name for -o\n"
    assert (result.returncode, result.stdout, result.stderr.decode()) == (2, b"", said)
    assert (tmp_path / "job.log").read_bytes() == data


@pytest.mark.parametrize("logs", ["logs", "logs/job.log", "logs/job.log logs/more/job.log"])
def test_a_folder_of_logs_is_not_written_over(logs: str, tmp_path: Path) -> None:
    data = Path(LOG).read_bytes()
    (tmp_path / "logs" / "more").mkdir(parents=True)
    for name in ("job.log", "more/job.log"):
        (tmp_path / "logs" / name).write_bytes(data)
    result = shell(f"TOOL anonymize {logs} -o logs", tmp_path)
    assert (result.returncode, result.stdout) == (2, b"")
    assert b"logs: holds one of the inputs, logs/job.log, which would be lost" in result.stderr
    assert sorted(path.read_bytes() == data for path in tmp_path.rglob("*.log")) == [True, True]


@pytest.mark.parametrize("columns", ["40", "120"])
@pytest.mark.parametrize(
    "command",
    [
        *("summarize", "summarize --format markdown", "summarize --format json", "summarize --format github"),
        *("paths", "paths --matrix", "topology", "traffic", "hosts", "nics", "env", "ranks"),
    ],
)
def test_an_earlier_report_in_the_folder_is_no_log(command: str, columns: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "job.log").write_bytes(sample_data.contents("v2.30.7-subsys-all")[0])
    for name in ("first.txt", "logs/new.txt", "logs/new.txt"):
        result = shell(f"COLUMNS={columns} TOOL {command} logs -o {name}", tmp_path)
        assert (result.returncode, result.stderr) == (0, b"")
    assert (tmp_path / "logs" / "new.txt").read_bytes() == (tmp_path / "first.txt").read_bytes()


def test_a_report_in_front_of_a_log_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "slurm-1.out"
    report = shell(f"TOOL summarize {LOG}", tmp_path).stdout
    log.write_bytes(report + Path(LOG).read_bytes())
    result = shell("TOOL summarize logs -o logs/slurm-1.out", tmp_path)
    assert result.returncode == 2
    assert b"which would be lost" in result.stderr
    assert log.read_bytes().startswith(report + Path(LOG).read_bytes()[:100])


def test_what_is_written_may_lie_beside_the_inputs(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(Path(LOG).read_bytes())
    (tmp_path / "old.txt").write_text("an older report")
    for target in ("new.txt", "old.txt", "/dev/null"):
        assert shell(f"TOOL summarize job.log -o {target}", tmp_path).returncode == 0
    assert (tmp_path / "old.txt").read_bytes() == (tmp_path / "new.txt").read_bytes()
    assert shell("TOOL anonymize . -o out", tmp_path).returncode == 0
    assert (tmp_path / "out" / "job.log").exists()


def test_a_terminal_without_our_characters_gets_those_of_ascii() -> None:
    environment = {**os.environ, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    done = subprocess.run([*EXE, "rules"], env=environment, capture_output=True, timeout=60, check=True)
    assert done.stdout.isascii()
    assert b"\\u" not in done.stdout
    done = subprocess.run([*EXE, "summarize", "…"], env=environment, capture_output=True, timeout=60, check=False)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("summarize", "new.json"), ("summarize", "new.txt"), ("paths", "new.csv"), ("topology", "new.dot")),
        *(("events", "new.jsonl"), ("events", "new.csv"), ("anonymize", "new.log")),
    ],
)
def test_what_goes_to_a_gz_file_is_compressed(command: str, name: str, tmp_path: Path) -> None:
    for target in (name, f"{name}.gz", f"again.{name}.GZ"):
        result = shell(f"TOOL {command} {LOG} -o {target}", tmp_path)
        assert result.returncode == 0
    packed = (tmp_path / f"{name}.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / name).read_bytes()
    assert (tmp_path / f"again.{name}.GZ").read_bytes() == packed


def test_a_compressed_report_in_the_folder_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(Path(LOG).read_bytes())
    for name in ("first.json.gz", "second.json.gz"):
        assert shell(f"TOOL summarize . -o {name}", tmp_path).returncode == 0
    assert (tmp_path / "first.json.gz").read_bytes() == (tmp_path / "second.json.gz").read_bytes()


def test_a_format_that_is_compressed_itself_is_not_compressed_again(tmp_path: Path) -> None:
    result = shell(f"TOOL events {LOG} -o new.parquet.gz", tmp_path)
    assert result.returncode == 2
    assert b"its suffix names no format" in result.stderr


@pytest.mark.parametrize("command", ["summarize", "events --format jsonl", "anonymize", "summarize --format json"])
def test_a_compression_other_than_gzip_is_refused_before_anything_is_read(command: str, tmp_path: Path) -> None:
    result = shell(f"TOOL {command} no-such.log -o new.json.zst", tmp_path)
    assert result.returncode == 2
    assert result.stderr == (
        b"nccl-inspect: new.json.zst: cannot write .zst, only .gz; "
        b"use -o new.json.gz, or -o new.json and compress that file\n"
    )
    assert not any(tmp_path.iterdir())


def test_a_link_to_standard_output_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "out.gz").symlink_to("/dev/stdout")
    result = shell(f"TOOL summarize {LOG} -o out.gz | gzip -dc", tmp_path)
    assert result.returncode == 0
    assert result.stdout.startswith(b"DEGRADED")
    assert result.stderr == b""
