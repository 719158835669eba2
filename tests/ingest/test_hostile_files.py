"""Bombs, strange files, other encodings and interrupted output: none does harm."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import resource
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nccl_inspect
from nccl_inspect.cli import questions
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.ingest.sources import blocks, limits
from nccl_inspect.ingest.sources.blocks import Source

LINE = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
COMMAND = [sys.executable, "-c", "from nccl_inspect.cli import main; main()"]


def problems(data: object) -> list[str]:
    return [source.problem for source in nccl_inspect.read(data).sources if source.problem]  # type: ignore[arg-type]


# --- packed data


def packed(kind: str, data: bytes) -> bytes:
    if kind == "zstd":
        import zstandard

        return bytes(zstandard.ZstdCompressor().compress(data))
    if kind == "gzip":
        return gzip.compress(data)
    return bz2.compress(data) if kind == "bz2" else lzma.compress(data)


@pytest.mark.parametrize("kind", ["gzip", "bz2", "xz", "zstd"])
def test_a_bomb_is_read_to_the_limit_and_that_is_told(kind: str) -> None:
    bomb = packed(kind, LINE + b"a" * (60 << 20))
    source = Source("job.log", lambda: iter([bomb]), allowance=limits.Allowance(free=5 << 20, ratio=500))
    first, *_, problem = blocks.pieces_of(source)
    assert isinstance(first, blocks.Lines)
    assert LINE.rstrip() in first
    assert "more than 500 times its size, unlike any log" in str(problem)
    assert "--max-unpacked" in str(problem)


def test_the_limit_is_that_of_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(LINE * 100_000))
    done = subprocess.run(
        [*COMMAND, "summarize", "--max-unpacked", "2M", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "it decompresses to more than 2M; reading stopped there; use --max-unpacked 64G to read on" in done.stderr
    for text in ("", "x", "2Q", "-1"):
        with pytest.raises(NcclInspectError, match="invalid size"):
            limits.size(text)
    monkeypatch.setenv(limits.VARIABLE, "10M")
    assert not problems(str(path))


def test_the_members_of_an_archive_share_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.VARIABLE, "1M")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        for number in range(5):
            zipped.writestr(f"rank{number}.log", LINE * 5000)
    assert any("more than 1M" in problem for problem in problems(archive.getvalue()))


def test_a_bomb_in_a_bomb_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(limits.VARIABLE, "3M")
    data = gzip.compress(gzip.compress(b"a" * (50 << 20)))
    with pytest.raises(NoInputError):
        nccl_inspect.read(data)


# --- archives


def test_names_in_archives_reach_nothing_outside() -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("../../etc/rank0.log", "/etc/rank1.log"):
            info = tarfile.TarInfo(name)
            info.size = len(LINE)
            tar.addfile(info, io.BytesIO(LINE))
        for kind, name in ((tarfile.SYMTYPE, "a.log"), (tarfile.LNKTYPE, "b.log"), (tarfile.CHRTYPE, "c.log")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        fifo = tarfile.TarInfo("d.log")
        fifo.type = tarfile.FIFOTYPE
        tar.addfile(fifo)
    names = [source.name for source in nccl_inspect.read(archive.getvalue()).sources]
    assert names == ["<bytes>:../../etc/rank0.log", "<bytes>:/etc/rank1.log"], "read from the archive, never from disk"


@pytest.mark.slow
def test_an_archive_may_hold_thousands_of_members() -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for number in range(5000):
            info = tarfile.TarInfo(f"rank{number}.log")
            info.size = len(LINE)
            tar.addfile(info, io.BytesIO(LINE))
    assert len(nccl_inspect.read(archive.getvalue()).sources) == 5000


# --- files


def test_links_that_lead_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(LINE)
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "self.log").symlink_to(tmp_path / "self.log")
    job = nccl_inspect.read(str(tmp_path))
    assert [Path(source.name).name for source in job.sources] == ["job.log"]
    assert {Path(entry.name).name: entry.reason for entry in job.passed_over} == {
        "again": "link to a folder",
        "self.log": "link that leads to itself",
    }
    with pytest.raises(NoInputError, match="Too many levels of symbolic links"):
        nccl_inspect.read(str(tmp_path / "self.log"))


def test_a_fifo_is_read_and_in_a_folder_left_alone(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(LINE)
    fifo = tmp_path / "pipe.log"
    os.mkfifo(fifo)
    assert len(nccl_inspect.read(str(tmp_path)).sources) == 1
    with subprocess.Popen(["sh", "-c", f"printf '%s' '{LINE.decode()}' > {fifo}"]):
        assert len(nccl_inspect.read(str(fifo)).paths) == 1


def test_a_socket_and_a_device_are_errors_that_say_so(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.log"))
        with pytest.raises(NoInputError, match=r"s\.log: "):
            nccl_inspect.read(str(tmp_path / "s.log"))
    with pytest.raises(NoInputError, match="/dev/null: empty"):
        nccl_inspect.read("/dev/null")


@pytest.mark.parametrize("change", ["grow", "shrink", "vanish"])
def test_a_file_may_change_while_it_is_read(change: str, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(LINE * 50_000)

    def touched() -> None:
        if change == "grow":
            with path.open("ab") as file:
                file.write(LINE)
        elif change == "shrink":
            os.truncate(path, 100)
        else:
            path.unlink(missing_ok=True)

    from nccl_inspect.pipeline import reading

    done: list[bool] = []

    def progress(_size: int, _total: int | None) -> None:
        if not done:
            touched()
            done.append(True)

    state = reading.fold([str(path)], progress)
    assert state.sources[0].counts.nccl_lines > 0


# --- encodings


@pytest.mark.parametrize("name", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_a_log_of_powershell_is_read(name: str) -> None:
    job = nccl_inspect.read((LINE.decode() * 3).replace("\n", "\r\n").encode(name))
    assert job.sources[0].nccl_lines == 3
    assert job.hosts[0].name == "vm"


@pytest.mark.parametrize(
    "data", [b"\0" * 5000 + b"\n" + LINE, b"\r\n".join([LINE.strip()] * 2) + b"\n", b"\xff\xfe\xfa\n" * 3 + LINE + LINE]
)
def test_holes_other_bytes_and_mixed_line_ends_do_no_harm(data: bytes) -> None:
    job = nccl_inspect.read(data)
    assert len(job.paths) == 1


# --- output and signals


def controls() -> Iterator[bytes]:
    evil = b"\x1b[31m\x1b]0;x\x07\x9b\xe2\x80\xae\x00"
    yield b"vm%b:1:1 [0] x.cc:1 NCCL WARN %b\n" % (b"", evil)
    yield b"vm:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to %b\n" % evil
    yield b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/I%bB/0\n" % evil
    yield b"vm:1:1 [0] NCCL INFO a line that nobody knows %b\n" % evil
    yield b"%b vm:1:1 [0] NCCL INFO Using network %b\n" % (evil, evil)


@pytest.mark.parametrize(
    "command",
    [
        ["summarize", "-v"],
        ["paths"],
        ["paths", "--matrix"],
        ["paths", "--format", "csv"],
        ["annotate"],
        ["topology"],
        ["traffic"],
        ["check", "--learn"],
        ["watch"],
        ["diff"],
        ["explain"],
    ],
)
def test_nothing_of_a_log_drives_the_terminal(command: list[str], tmp_path: Path) -> None:
    from fuzz_targets import is_safe

    path = tmp_path / "evil\x1b[31m.log"
    path.write_bytes(LINE + b"".join(controls()))
    given = [str(path)] * (2 if command == ["diff"] else 1)
    if command == ["explain"]:
        given = [next(iter(controls())).replace(b"\0", b"").decode("utf-8", "surrogateescape")]
    if command == ["watch"]:
        given = []
    done = subprocess.run(
        [*COMMAND, *command, *given], capture_output=True, check=False, input=path.read_bytes(), timeout=60
    )
    assert b"Traceback" not in done.stderr
    assert is_safe((done.stdout + done.stderr).decode())


def test_a_cell_is_no_formula(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(
        b"vm:1:1 [0] NCCL INFO NET/IB : Using [0]=cmd|x:1/RoCE ; OOB eth0:10.0.0.1<0>\n"
        b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0\n"
    )
    done = subprocess.run([*COMMAND, "paths", "--format", "csv", str(path)], capture_output=True, text=True, check=True)
    assert "=cmd" in done.stdout
    assert ",=" not in done.stdout
    assert questions.table_of_rows([["host", "=cmd"], ["+x", -3]]) == "host,'=cmd\n'+x,-3\n"


def test_closed_output_and_sigterm_end_in_an_orderly_way(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(LINE * 1000)
    shell = " ".join(f"'{part}'" for part in [*COMMAND, "annotate", str(path)])
    done = subprocess.run(["bash", "-c", f"{shell} | head -1"], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
    process = subprocess.Popen(
        [*COMMAND, "summarize", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    process.stdin.write(LINE * 20_000)
    process.stdin.flush()
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert b"Traceback" not in err
    assert process.returncode == 143
    assert b"partial: interrupted" in out


def test_little_memory_is_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(LINE * 1000)
    limit = 30 << 20
    done = subprocess.run(
        [*COMMAND, "summarize", str(path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 0


def test_without_the_regex_library_everything_but_cut_lines_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(LINE + b"vm:1:1 [0] NCCL INFO Trees" + b" [0] -1/-1/-1->0->1" * 60 + b" [1\n")
    code = "import sys; sys.modules['regex'] = None; from nccl_inspect.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "paths", str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "P2P/CUMEM" in done.stdout
