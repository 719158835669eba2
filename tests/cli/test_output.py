"""Where reports go: files are complete or as they were, and what cannot be written is said in one line."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import large_job
import pytest
import sample_data
from command_line import execute
from terminals import EXE, TWO_HOSTS

import nccl_inspect
from nccl_inspect.cli.paths import PAIR
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.ingest.sources.log_detection import is_log
from nccl_inspect.report.tables import fit_table, make_cells
from nccl_inspect.util import atomic_files

LOG = str(sample_data.FOLDER / "v2.30.7-shm-4gpu" / "job.log")


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a shell command in which ``TOOL`` is the command line."""
    words = " ".join(f"'{word}'" for word in EXE)
    return subprocess.run(
        ["bash", "-c", command.replace("TOOL", words)], cwd=cwd, capture_output=True, timeout=60, check=False
    )


# --- files


def breaking_off() -> Iterator[str]:
    yield "one"
    raise RuntimeError("in the middle")


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "report"
    target.write_text("before")
    for name in ("report", "new"):
        with pytest.raises(RuntimeError):
            atomic_files.write_lines(str(tmp_path / name), "-o", breaking_off())
        assert target.read_text() == "before"
        assert list(tmp_path.iterdir()) == [target]
    with atomic_files.open_replacement(str(target), "-o") as file:
        file.write(b"after")
        assert target.read_text() == "before"
    assert target.read_text() == "after"


def test_a_new_file_has_the_usual_mode_and_one_that_is_replaced_its_own(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic_files.write_lines(str(tmp_path / "new"), "-o", ["x"])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    atomic_files.write_lines(str(tmp_path / "new"), "-o", ["y"])
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604


def test_links_and_pipes_stay_what_they_are_and_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    (tmp_path / "soft").symlink_to("file")
    (tmp_path / "hard").hardlink_to(tmp_path / "file")
    atomic_files.write_lines(str(tmp_path / "soft"), "-o", ["soft"])
    assert (tmp_path / "soft").is_symlink()
    assert (tmp_path / "hard").read_text() == "soft\n"
    (tmp_path / "dangling").symlink_to("made")
    atomic_files.write_lines(str(tmp_path / "dangling"), "-o", ["x"])
    assert (tmp_path / "made").read_text() == "x\n"
    os.mkfifo(tmp_path / "pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append((tmp_path / "pipe").read_text()))
    reader.start()
    atomic_files.write_lines(str(tmp_path / "pipe"), "-o", ["x"])
    reader.join(10)
    assert found == ["x\n"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(NcclInspectError, match="Is a directory; check the name given with -o"):
        atomic_files.write_lines(str(tmp_path), "-o", ["x"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").touch(0o444)
    with pytest.raises(NcclInspectError, match="Permission denied"):
        atomic_files.write_lines(str(tmp_path / "file"), "-o", ["x"])


# --- standard output


@pytest.mark.slow
def test_standard_output_may_be_named_as_a_file(tmp_path: Path) -> None:
    for name in ("-", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"):
        command = f"TOOL summarize '{LOG}' --format json -o {name}"
        assert json.loads(shell(f"{command} | cat", tmp_path).stdout)["verdict"] == "degraded"
        (tmp_path / "out").write_text("[1]\n")
        shell(f"{command} >> out", tmp_path)
        assert (tmp_path / "out").read_text().startswith("[1]\n{")
    into = f"TOOL summarize '{LOG}' -o >(cat > out; touch done); while [ ! -e done ]; do :; done"
    done = shell(into, tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "out").read_bytes().startswith(b"DEGRADED")
    (tmp_path / "out.gz").symlink_to("/dev/stdout")
    done = shell(f"TOOL summarize {LOG} -o out.gz | gzip -dc", tmp_path)
    assert (done.returncode, done.stdout[:8], done.stderr) == (0, b"DEGRADED", b"")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
def test_a_full_disk_is_one_line_and_a_status(tmp_path: Path) -> None:
    wrong: list[object] = []
    for args in (
        *("summarize LOG > /dev/full", "summarize LOG --format json > /dev/full", "summarize LOG -o /dev/full"),
        *("summarize LOG -o /dev/stdout > /dev/full", "annotate LOG > /dev/full", "rules > /dev/full"),
        *("rules --format json > /dev/full", "--help > /dev/full", "summarize --help > /dev/full"),
        "--version > /dev/full",
    ):
        done = shell("TOOL " + args.replace("LOG", LOG), tmp_path)
        is_told = b"No space left on device; " in done.stderr
        wrong += [] if (done.returncode, done.stderr.count(b"\n"), is_told) == (2, 1, True) else [done]
    for stream in ("2> /dev/full", "2>&-"):  # an error that cannot be told leaves its status
        wrong += [] if (done := shell(f"TOOL summarize gone.log {stream}", tmp_path)).returncode == 3 else [done]
    assert not wrong


@pytest.mark.slow
def test_a_terminal_without_our_characters_gets_those_of_ascii(tmp_path: Path) -> None:
    (tmp_path / "caf\u00e9.log").write_bytes(b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n")
    done = shell("PYTHONIOENCODING=ascii TOOL summarize caf*.log", tmp_path)
    assert (done.returncode, done.stderr, b"caf\\xe9.log" in done.stdout) == (0, b"", True)
    killed = sample_data.FOLDER / "peer-killed"
    done = shell(f"COLUMNS=40 PYTHONIOENCODING=ascii TOOL summarize {killed}", tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    plain = "PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C TOOL"
    done = shell(f"{plain} rules", tmp_path)
    assert done.stdout.isascii()
    assert b"\\u" not in done.stdout
    assert b"Traceback" not in shell(f"{plain} summarize …", tmp_path).stderr


# --- inputs are safe, and reports are no logs

OVER_ITS_INPUT = (
    *("summarize job.log", "annotate job.log", "anonymize job.log", "paths job.log", "topology job.log"),
    *("traffic job.log", "events job.log --format jsonl", "check --learn job.log", "diff other.log job.log"),
    *("diff job.log other.log", "summarize ./", "summarize *.log", "paths linked.log"),
    *("summarize other.log --topology job.log", "check other.log --policy job.log"),
    *("anonymize other.log --map job.log", "summarize other.log --config job.log"),
)


def test_no_command_writes_over_what_it_reads(tmp_path: Path) -> None:
    data = Path(LOG).read_bytes()
    for name in ("job.log", "other.log"):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "linked.log").symlink_to("job.log")
    said = f"nccl-inspect: {tmp_path}/job.log: is one of the inputs, which would be lost; choose another name for -o\n"
    wrong: list[object] = []
    for args in OVER_ITS_INPUT:
        done = execute(*args.split(), "-o", f"{tmp_path}/job.log", cwd=tmp_path)
        wrong += [] if (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", said) else [done]
        wrong += [] if (tmp_path / "job.log").read_bytes() == data else [args]
    assert not wrong


@pytest.mark.slow
def test_no_command_writes_over_what_is_piped_in(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(Path(LOG).read_bytes())
    done = shell("TOOL summarize -o job.log < job.log", tmp_path)
    assert (done.returncode, b"is one of the inputs" in done.stderr) == (2, True)


def test_a_folder_of_logs_is_not_written_over(tmp_path: Path) -> None:
    data = Path(LOG).read_bytes()
    (tmp_path / "logs" / "more").mkdir(parents=True)
    for name in ("job.log", "more/job.log"):
        (tmp_path / "logs" / name).write_bytes(data)
    for logs in ("logs", "logs/job.log", "logs/job.log logs/more/job.log"):
        done = execute("anonymize", *logs.split(), "-o", "logs", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"logs: holds one of the inputs, logs/job.log, which would be lost" in done.stderr
        assert [path.read_bytes() == data for path in tmp_path.rglob("*.log")] == [True, True]


REPORTS = {
    "v2.30.7-subsys-all": (
        *("summarize", "summarize --format markdown", "summarize --format json", "summarize --format github"),
        *("paths", "paths --matrix", "topology", "traffic", "hosts", "nics", "env", "ranks"),
    ),
    "v2.30.7-shm-4gpu": ("summarize", "traffic", "paths --scope inter"),
}


@pytest.mark.slow
def test_an_earlier_report_in_the_folder_is_no_log(tmp_path: Path) -> None:
    wrong: list[object] = []
    for sample, commands in REPORTS.items():
        for command in commands:
            shown = execute(*command.split(), data=sample_data.contents(sample)[0]).stdout
            wrong += [(command, shown[:200])] if is_log("new.txt", shown) else []
    (tmp_path / "job.log").write_bytes(Path(LOG).read_bytes())
    for suffix in ("txt", "json.gz"):
        for name in (f"first.{suffix}", f"second.{suffix}", f"first.{suffix}"):
            done = execute("summarize", ".", "-o", name, cwd=tmp_path)
            wrong += [] if (done.returncode, done.stderr) == (0, b"") else [done]
        assert (tmp_path / f"first.{suffix}").read_bytes() == (tmp_path / f"second.{suffix}").read_bytes()
    assert not wrong


def test_a_report_in_front_of_a_log_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "slurm-1.out"
    log.write_bytes(both := execute("summarize", LOG).stdout + Path(LOG).read_bytes())
    done = execute("summarize", "logs", "-o", "logs/slurm-1.out", cwd=tmp_path)
    assert (done.returncode, b"which would be lost" in done.stderr) == (2, True)
    assert log.read_bytes() == both


def test_what_is_written_may_lie_beside_the_inputs(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(Path(LOG).read_bytes())
    (tmp_path / "old.txt").write_text("an older report")
    for target in ("new.txt", "old.txt", "/dev/null"):
        assert execute("summarize", "job.log", "-o", target, cwd=tmp_path).returncode == 0
    assert (tmp_path / "old.txt").read_bytes() == (tmp_path / "new.txt").read_bytes()
    assert execute("anonymize", ".", "-o", "out", cwd=tmp_path).returncode == 0
    assert (tmp_path / "out" / "job.log").exists()


def test_what_goes_to_a_gz_file_is_compressed(tmp_path: Path) -> None:
    for command, name in (
        *(("summarize", "new.json"), ("summarize", "new.txt"), ("paths", "new.csv"), ("topology", "new.dot")),
        *(("events", "new.jsonl"), ("events", "new.csv"), ("anonymize", "new.log")),
    ):
        for target in (name, f"{name}.gz", f"again.{name}.GZ"):
            assert execute(command, LOG, "-o", target, cwd=tmp_path).returncode == 0
        packed = (tmp_path / f"{name}.gz").read_bytes()
        assert gzip.decompress(packed) == (tmp_path / name).read_bytes()
        assert (tmp_path / f"again.{name}.GZ").read_bytes() == packed


# --- ``paths``: widths, suffixes of files, large matrices; the rest is in `tests/answers/commands.txt`


def show_paths(*args: str, columns: int | None = None, data: bytes = b"") -> str:
    """Return what ``paths`` prints, in a pipe or at a width."""
    env = {"COLUMNS": str(columns)} if columns else {}
    return execute("paths", *args, data=data, env=env).stdout.decode()


def test_paths_are_a_table_of_directed_pairs() -> None:
    pairs = len(sample_data.truth("timestamps")["paths"])
    whole = show_paths(TWO_HOSTS).splitlines()
    assert whole[0].split()[:2] == ["src", "dst"]
    assert len(whole) == 2 + pairs
    assert all("llama-3-8b-node-0-" in line for line in whole[2:]), "in a pipe, grep finds the names"
    assert "expected" not in whole[0], "nothing is known of the machine"
    lines = show_paths(TWO_HOSTS, columns=80).splitlines()
    assert len(lines) >= 2 + pairs
    assert max(map(len, lines)) <= 80
    wide = show_paths(TWO_HOSTS, columns=200)
    assert "llama-3-8b-node-0-1" in wide
    assert "…" not in wide


def test_a_narrow_terminal_gets_the_columns_that_fit() -> None:
    for columns, left_out in (
        (40, "no room for: src host, dst host, channels, NIC, GDR"),
        (60, "no room for: src host, dst host, channels"),
    ):
        lines = show_paths(TWO_HOSTS, columns=columns).splitlines()
        assert " ".join("\n".join(lines).partition("\n\n")[2].split()) == left_out
        assert max(map(len, lines)) <= columns
        assert {"src", "dst", "path", "verdict"} <= set(lines[0].split())


def test_a_file_has_all_columns_whatever_the_terminal(tmp_path: Path) -> None:
    written: list[str] = []
    for columns in ("40", "200"):
        for command in (("paths", TWO_HOSTS), ("explain", "gdr-disabled"), ("summarize", TWO_HOSTS)):
            execute(*command, "-o", str(tmp_path / "out.txt"), env={"COLUMNS": columns})
            written.append((tmp_path / "out.txt").read_text(encoding="utf-8"))
    assert written[:3] == written[3:]
    assert "src host" in written[0]


BEGINS = {
    "summarize r.json": "{",
    "summarize r.md": "#",
    "summarize r.html": "<!",
    "summarize r.xml": "<testsuites",
    "summarize r.prom": "# HELP",
    "summarize r.log": "DEGRADED",
    "paths p.csv": "src,dst",
    "paths p.out": "src  dst",
    "topology t.svg": "<",
    "diff d.json": "{",
}


@pytest.mark.slow
def test_the_suffix_of_the_file_names_the_format(tmp_path: Path) -> None:
    wrong: list[object] = []
    for words, begin in BEGINS.items():
        command, name = words.split()
        args = [command, *[TWO_HOSTS] * (1 + (command == "diff")), "-o", name]
        for more, start in (([], begin), (["--format", "json"], ("{", "["))):
            execute(*args, *more, cwd=tmp_path)
            text = (tmp_path / name).read_text(encoding="utf-8")
            wrong += [] if text.startswith(start) else [(words, more, text[:80])]
    assert not wrong


def test_what_all_paths_have_in_common_is_told_whole() -> None:
    paths = [path for path in nccl_inspect.read(TWO_HOSTS).paths if path.dst_host == "llama-3-8b-node-0-1"]
    _, _, notes = fit_table(PAIR, make_cells(PAIR, paths), 60)
    assert "dst host of all: llama-3-8b-node-0-1" in notes


# --- the matrix


def test_a_matrix_wider_than_the_terminal_goes_on_below() -> None:
    log = large_job.log(4)
    whole = show_paths("--matrix", data=log)
    for columns in (40, 80):
        parts = show_paths("--matrix", data=log, columns=columns)
        assert max(map(len, parts.splitlines())) <= columns < max(map(len, whole.splitlines()))
        assert len(re.findall(r" [PN]\b", parts)) == len(re.findall(r" [PN]\b", whole))
        heads = [name for line in parts.splitlines() if "src\\dst" in line for name in line.split()[1:]]
        assert heads == [str(number) for number in range(32)]


def test_a_matrix_of_many_hosts_shows_the_odd_one() -> None:
    log = large_job.log(20, channels=1, without_gdr=17)
    for columns in (40, 200):
        output = show_paths("--matrix", data=log, columns=columns)
        assert max(map(len, output.splitlines())) <= columns
        rows = {line.split(" = ")[0].strip(): line for line in output.partition("\n\n")[0].splitlines()[1:]}
        assert "E!" in (rows["train-7f9c-node-17"] if columns > 40 else output)
    piped = show_paths("--matrix", data=log).partition("\n\n")[0].splitlines()[1:]
    assert [row.split()[0] for row in piped] == [f"train-7f9c-node-{host}" for host in range(20)]
    assert max(map(len, piped)) < 500
