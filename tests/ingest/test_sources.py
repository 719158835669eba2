"""Inputs of all kinds: packed files, archives, folders, several at once, broken ones, interrupted ones."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pty
import random
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import sample_data
import zstandard
from command_line import invoke

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.sources import blocks, compression, log_detection
from nccl_inspect.ingest.sources.streams import BLOCK, StreamError, pieces

EXE = [sys.executable, "-c", "from nccl_inspect.cli import main; main()"]
CHANNEL = b"vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
BACK = b"vm:21:22 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM\n"
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "zst": zstandard.compress,
}
PER_RANK = sample_data.FOLDER / "debug-file-per-process" / "per-process"


def run(*args: str, data: bytes = b"", cwd: Path | None = None, exe: list[str] = EXE) -> Any:
    """A command in a process of its own: its status, its output, the lines on stderr."""
    done = subprocess.run([*exe, *args], input=data, capture_output=True, cwd=cwd, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode().splitlines()


def names_in(*inputs: Any) -> list[str]:
    return [source.name for source in blocks.find(list(inputs))]


def read(source: blocks.Source) -> bytes:
    return b"".join(blocks.raw_blocks(source))


def tar(members: dict[str, bytes], mode: Any = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def in_steps(data: bytes, size: int) -> Iterator[bytes]:
    stream = io.BytesIO(data)
    return iter(lambda: stream.read(size), b"")


def fill(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


# --- compression


@pytest.mark.parametrize("kind", PACK)
def test_packed_data_is_told_by_its_content(kind: str, tmp_path: Path) -> None:
    (tmp_path / "job").write_bytes(PACK[kind](CHANNEL))
    job = nccl_inspect.read(tmp_path / "job")
    assert job.paths.between(0, 1).detail == "P2P/CUMEM"
    assert (job.sources[0].lines, job.sources[0].problem) == (1, None)
    assert run("paths", data=PACK[kind](CHANNEL))[0] == 0


@pytest.mark.parametrize("step", [1, 7, 1000, BLOCK])
@pytest.mark.parametrize("kind", PACK)
def test_packed_data_may_come_in_any_pieces_and_several_parts(kind: str, step: int) -> None:
    plain = [b"".join(b"%d %d\n" % (part, number) for number in range(3000)) for part in range(3)]
    packed = b"".join(PACK[kind](data) for data in plain)
    assert b"".join(compression.unpacked(in_steps(packed, step))) == b"".join(plain)


@pytest.mark.parametrize("kind", PACK)
def test_what_breaks_off_gives_all_that_it_holds(kind: str, tmp_path: Path) -> None:
    noise = random.Random(1)
    lines = [CHANNEL[:-1] + b" %d" % noise.getrandbits(4000) for _ in range(4000)]
    packed = PACK[kind](b"\n".join(lines))
    (tmp_path / "job.log").write_bytes(packed[: len(packed) * 3 // 4])
    job = nccl_inspect.read(tmp_path / "job.log")
    assert job.sources[0].problem == (
        f"{tmp_path / 'job.log'}: the compressed data is damaged (it breaks off); copy the file again"
    )
    # bzip2 gives nothing of a part of 900 kB that is not whole, zstd nothing of one of 128 kB
    assert job.sources[0].lines > (1000 if kind == "bz2" else 2800)


@pytest.mark.parametrize("kind", PACK)
def test_an_empty_file_may_be_packed(kind: str) -> None:
    assert list(compression.unpacked(iter([PACK[kind](b"")]))) == []


@pytest.mark.parametrize("kind", ["gz", "zst", "bz2", "xz"])
def test_what_follows_packed_data_is_damage_unless_it_is_padding(kind: str) -> None:
    assert b"".join(compression.unpacked(iter([PACK[kind](CHANNEL) + bytes(512)]))) == CHANNEL
    found = []
    with pytest.raises(StreamError, match="damaged"):
        for piece in compression.unpacked(iter([PACK[kind](CHANNEL) + b"and so on"])):
            found.append(piece)
    assert b"".join(found) == CHANNEL


@pytest.mark.parametrize("kind", PACK)
def test_few_bytes_that_stand_for_many_are_unpacked_in_small_pieces(kind: str) -> None:
    packed = PACK[kind](bytes(100_000_000))
    assert len(packed) < 500_000
    sizes = [len(piece) for piece in compression.unpacked(pieces(io.BytesIO(packed)))]
    assert sum(sizes) == 100_000_000
    assert max(sizes) <= 64 * BLOCK if kind == "zst" else max(sizes) <= BLOCK


def test_frames_that_zstd_skips_are_skipped() -> None:
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"
    assert b"".join(compression.unpacked(iter([skipped + zstandard.compress(CHANNEL) + skipped]))) == CHANNEL


def test_without_the_package_for_zstd_the_error_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(zstandard.compress(CHANNEL))
    without = [EXE[0], "-c", "import sys; sys.modules |= {'zstandard': None, 'compression.zstd': None}; " + EXE[2]]
    status, output, errors = run("summarize", "job.log", cwd=tmp_path, exe=without)
    assert (status, output, len(errors)) == (3, "", 1)
    assert "job.log: it is packed with zstd" in errors[0]
    assert "pip install 'nccl-inspect[zstd]'" in errors[0]


def test_what_cannot_be_unpacked_here_is_named() -> None:
    with pytest.raises(NoInputError, match=r"<bytes>: lz4 is not unpacked here; unpack it: lz4 -dc"):
        nccl_inspect.read(b"\x04\x22\x4d\x18" + bytes(100))


# --- archives

MEMBERS = {
    "run/rank10.log": BACK,
    "./run/rank2.log": CHANNEL,
    "run/rank3.log.gz": gzip.compress(CHANNEL.replace(b"0[0] -> 1[1]", b"2[2] -> 3[3]")),
    "run/weights.bin": CHANNEL,
    "run/._rank2.log": CHANNEL,
    "run/odd-name": b"x\n" * 100 + CHANNEL,
    "run/notes": b"no line of it\n",
    "run/core.123": b"\x7fELF" + bytes(1000),
    "run/data.log": bytes(range(256)) * 300,
    "run/inner.tar": tar({"inner.log": CHANNEL}),
}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "zst"])
def test_members_of_a_tar_are_sources_told_by_content(mode: str, tmp_path: Path) -> None:
    data = zstandard.compress(tar(MEMBERS)) if mode == "zst" else tar(MEMBERS, mode)
    (tmp_path / "logs").write_bytes(data)
    job = nccl_inspect.read(tmp_path / "logs")
    names = ["run/rank10.log", "run/rank2.log", "run/rank3.log.gz", "run/odd-name"]
    assert [source.name for source in job.sources] == [f"{tmp_path / 'logs'}:{name}" for name in names]
    assert [(path.src, path.dst) for path in job.paths] == [(0, 1), (1, 0), (2, 3)]
    assert {line.source for path in job.paths for line in path.evidence} <= {source.name for source in job.sources}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_of_a_zip_are_sources_in_natural_order(method: int, tmp_path: Path) -> None:
    (tmp_path / "logs").write_bytes(zipped(MEMBERS, method))
    job = nccl_inspect.read(tmp_path / "logs")
    names = [source.name.partition("logs:")[2].removeprefix("./") for source in job.sources]
    assert names == ["run/rank2.log", "run/odd-name", "run/rank3.log.gz", "run/rank10.log"]
    assert [(path.src, path.dst) for path in job.paths] == [(0, 1), (1, 0), (2, 3)]


def test_an_archive_may_come_through_a_pipe_as_bytes_or_as_a_file_object(tmp_path: Path) -> None:
    packed = tar({"a.log": CHANNEL}, "w:gz")
    status, output, _ = run("summarize", data=packed)
    assert status == 0
    assert "<stdin>:a.log: 1 line" in output
    assert nccl_inspect.read(packed).sources[0].name == "<bytes>:a.log"
    assert nccl_inspect.read(io.BytesIO(packed)).sources[0].name == "<stream>:a.log"
    assert nccl_inspect.read(zipped({"a.log": CHANNEL})).sources[0].name == "<bytes>:a.log"
    (tmp_path / "a.zip").write_bytes(zipped({"a.log": CHANNEL}))
    with (tmp_path / "a.zip").open("rb") as stream:
        assert nccl_inspect.read(stream).sources[0].lines == 1
    status, _, errors = run("summarize", data=zipped({"a.log": CHANNEL}))
    assert (status, len(errors)) == (3, 1)
    assert "<stdin>: a zip archive cannot be read from a pipe" in errors[0]


def test_a_tar_that_breaks_off_gives_what_it_holds_and_one_problem(tmp_path: Path) -> None:
    long = CHANNEL * 2000
    plain = tar({"a.log": CHANNEL, "b.log": long})
    for name, data in {"cut.tar": plain[:60_000], "cut.tgz": gzip.compress(plain, mtime=0)[:-60]}.items():
        (tmp_path / name).write_bytes(data)
        job = nccl_inspect.read(tmp_path / name)
        assert [source.name.rpartition(":")[2] for source in job.sources] == ["a.log", "b.log"]
        assert job.sources[0].problem is None
        assert "damaged" in (job.sources[1].problem or "")
        assert job.sources[0].lines == 1


def test_a_tar_with_a_damaged_header_says_so() -> None:
    data = bytearray(tar({"a.log": CHANNEL, "b.log": BACK, "c.log": CHANNEL}))
    data[1024 + 100 : 1024 + 110] = b"x" * 10
    job = nccl_inspect.read(bytes(data))
    assert [(source.name, source.problem is None) for source in job.sources] == [
        ("<bytes>:a.log", True),
        ("<bytes>", False),
    ]


def test_a_tar_cannot_make_the_reader_take_a_huge_name() -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    with pytest.raises(NoInputError, match="a member whose name is too long"):
        nccl_inspect.read(info.tobuf(tarfile.GNU_FORMAT) + bytes(100_000))


def test_a_damaged_member_of_a_zip_stops_only_itself() -> None:
    data = bytearray(zipped({"a.log": CHANNEL * 50, "b.log": BACK}, zipfile.ZIP_STORED))
    data[100] ^= 1
    job = nccl_inspect.read(bytes(data))
    assert [source.problem is None for source in job.sources] == [False, True]
    assert "CRC" in (job.sources[0].problem or "")
    with pytest.raises(NoInputError, match="the archive is damaged"):
        nccl_inspect.read(zipped({"a.log": CHANNEL})[:-10])


def test_an_archive_without_a_log_is_an_error_that_says_so() -> None:
    for data in (tar({"weights.bin": b"x"}), zipped({"weights.bin": b"x"}), zipped({})):
        with pytest.raises(NoInputError, match="<bytes>: the archive holds no log"):
            nccl_inspect.read(data)


def test_a_name_in_an_archive_cannot_reach_the_terminal() -> None:
    job = nccl_inspect.read(tar({"a\x1b[31m.log": CHANNEL}))
    assert job.sources[0].name == "<bytes>:a\\x1b[31m.log"


# --- folders


def test_a_folder_gives_what_looks_like_a_log_in_natural_order(tmp_path: Path) -> None:
    wanted = {
        "attempt_0/2/stdout.log": CHANNEL,
        "attempt_0/2/stderr.log": b"",
        "attempt_0/10/stdout.log": BACK,
        "mpi/1/rank.0/stdout": CHANNEL,
        "mpi/1/rank.0/stderr": b"a warning\n",
        "nccl.host-a.4182.log": CHANNEL,
        "nccl.host-a.4182": CHANNEL,
        "slurm-123_4.out": CHANNEL,
        "job.o1234": CHANNEL,
        "job.log-20261120.gz": gzip.compress(CHANNEL),
        "odd-name": b"x\n" * 1000 + CHANNEL,
        "odd-packed": zstandard.compress(CHANNEL),
        "hole.log": bytes(100) + CHANNEL,
    }
    others = {
        "attempt_0/2/error.json": CHANNEL,
        ".hidden.log": CHANNEL,
        ".git/x.log": CHANNEL,
        "core": b"\x7fELF" + bytes(100) + CHANNEL,
        "core.4711": CHANNEL,
        "python.core": CHANNEL,
        "weights.safetensors": CHANNEL,
        "checkpoint-500/model.pt": CHANNEL,
        "binary.log": bytes(range(256)) * 10,
        "nulls.log": bytes(10_000),
        "random.log": random.Random(1).randbytes(10_000),
        "train": b"no line of it\n",
        "late": b"x" * 70_000 + CHANNEL,
        "notes.md": CHANNEL,
        "sources.tar.gz": tar({"a.c": b"int main;\n"}, "w:gz"),
    }
    fill(tmp_path, wanted | others)
    (tmp_path / "dangling.log").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo.log")
    found = [Path(name).relative_to(tmp_path).as_posix() for name in names_in(str(tmp_path))]
    assert sorted(found) == sorted(wanted)
    assert found.index("attempt_0/2/stdout.log") < found.index("attempt_0/10/stdout.log")


def test_a_big_file_in_a_folder_is_not_read_to_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(CHANNEL)
    for name in ("model", "huge.log", "core.1"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
    assert names_in(str(tmp_path)) == [str(tmp_path / "job.log")]


def test_an_archive_in_a_folder_is_read(tmp_path: Path) -> None:
    fill(tmp_path, {"node1.tgz": tar({"a.log": BACK}, "w:gz"), "node0.zip": zipped({"a.log": CHANNEL})})
    assert names_in(str(tmp_path)) == [f"{tmp_path}/node0.zip:a.log", f"{tmp_path}/node1.tgz:a.log"]


@pytest.mark.parametrize(
    "names", [["rank2", "rank10"], ["a/2/x", "a/10/x"], ["1a", "2", "10"], ["a", "a1", "a2b3", "a2b20"]]
)
def test_the_natural_order_counts(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(backwards, key=log_detection.natural) == names


def test_a_glob_is_expanded(tmp_path: Path) -> None:
    fill(tmp_path, {"logs/rank10.log": BACK, "logs/rank2.log": CHANNEL, "logs/notes.txt": b"", "a[1].log": CHANNEL})
    assert names_in(f"{tmp_path}/logs/*.log") == [f"{tmp_path}/logs/rank2.log", f"{tmp_path}/logs/rank10.log"]
    assert names_in(f"{tmp_path}/**/rank2.log") == [f"{tmp_path}/logs/rank2.log"]
    assert names_in(f"{tmp_path}/a[1].log") == [f"{tmp_path}/a[1].log"]
    status, output, errors = run("summarize", "logs/*.txt.gz", cwd=tmp_path)
    assert (status, output, len(errors)) == (3, "", 1)
    assert "logs/*.txt.gz: no file matches; check the pattern" in errors[0]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    fill(tmp_path, {"job.log": CHANNEL})
    (tmp_path / "latest.log").symlink_to("job.log")
    os.link(tmp_path / "job.log", tmp_path / "same.log")
    inputs = [str(tmp_path / "job.log"), tmp_path / "job.log", f"{tmp_path}/../{tmp_path.name}/job.log", str(tmp_path)]
    assert names_in(*inputs) == [str(tmp_path / "job.log")]
    assert names_in(CHANNEL, CHANNEL) == ["<bytes>", "<bytes>"]


# --- one that is bad


def test_a_bad_input_stops_only_itself(tmp_path: Path) -> None:
    cut = gzip.compress(BACK + random.Random(1).randbytes(3000).hex().encode())[:-1000]
    fill(tmp_path, {"a.log": CHANNEL, "cut.log": cut, "c.log": CHANNEL.replace(b"0[0] -> 1[1]", b"2[2] -> 3[3]")})
    args = ["a.log", "gone.log", "no*.log", "cut.log", "c.log"]
    status, output, errors = run("summarize", *args, cwd=tmp_path)
    assert status == 0
    assert [line.partition(";")[0] for line in errors] == [
        "nccl-inspect: gone.log: no such file",
        "nccl-inspect: no*.log: no file matches",
        "nccl-inspect: cut.log: the compressed data is damaged (it breaks off)",
    ]
    assert "not read     gone.log: no such file; check the path" in output
    status, output, _ = run("summarize", *args, "--format", "json", cwd=tmp_path)
    problems = {source["name"]: source["problem"] for source in json.loads(output)["sources"]}
    assert [name for name, problem in problems.items() if problem is None] == ["a.log", "c.log"]
    assert problems["gone.log"] == "gone.log: no such file; check the path"
    assert [(path["src"], path["dst"]) for path in json.loads(output)["paths"]] == [(0, 1), (1, 0), (2, 3)]
    for command in (["paths"], ["annotate"]):
        status, output, errors = run(*command, *args, cwd=tmp_path)
        assert (status, len(errors)) == (0, 3)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("jbo.log", "job.log"),
        ("job.log.gz", "job.log"),
        ("rank1.log", "rank1.log.gz"),
        ("rank1", "rank1.log.gz"),
        ("JOB.LOG", "job.log"),
        ("job.txt", "job.log"),
        ("ranks/rank1.log", ""),
        ("flder/inner.log", "folder/inner.log"),
        ("flder/other.log", ""),
        ("gone.log", ""),
    ],
)
def test_a_slip_in_a_file_name_gets_a_question(typed: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    fill(tmp_path, {"job.log": CHANNEL, "rank1.log.gz": gzip.compress(CHANNEL), "folder/inner.log": CHANNEL})
    status, _, errors = run("summarize", typed, cwd=tmp_path)
    assert status == 3
    assert errors[0] == f"nccl-inspect: {typed}: no such file; " + (
        f"did you mean {meant}?" if meant else "check the path"
    )


def test_a_slip_in_the_name_of_another_file_gets_a_question(tmp_path: Path) -> None:
    fill(tmp_path, {"job.log": CHANNEL, "policy.toml": b"", "topo.xml": b"<system/>"})
    for option, typed, meant in (("--config", "polcy.toml", "policy.toml"), ("--topology", "topo.xlm", "topo.xml")):
        _, _, errors = run("summarize", "job.log", option, typed, cwd=tmp_path)
        assert errors == [f"nccl-inspect: {typed}: No such file or directory; did you mean {meant}?"]


def test_only_when_nothing_can_be_read_it_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, {"other.log": b"one line\n"})
    for args in (["gone.log", "lost.log"], ["gone.log", "lost.log", "other.log"]):
        status, output, errors = run("summarize", *args, cwd=tmp_path)
        assert (status, output, len(errors)) == (3, "", 1)
        assert "gone.log: no such file" in errors[0]
        assert "1 more cannot be read" in errors[0]
        assert ("the other 1 hold no NCCL line" in errors[0]) == (len(args) == 3)
    status, output, errors = run("annotate", "gone.log", "lost.log", cwd=tmp_path)
    assert (status, output, len(errors)) == (3, "", 1)


def test_many_bad_inputs_do_not_flood_stderr(tmp_path: Path) -> None:
    fill(tmp_path, {"a.log": CHANNEL})
    _, output, errors = run("summarize", "a.log", *(f"gone{number}.log" for number in range(50)), cwd=tmp_path)
    assert len(errors) == 21
    assert errors[-1] == "nccl-inspect: 30 more inputs could not be read"
    assert output.count("gone") < 10


def test_events_of_all_inputs_come_before_the_error(tmp_path: Path) -> None:
    found = []
    with pytest.raises(NoInputError, match="gone"):
        for event in nccl_inspect.events([CHANNEL, tmp_path / "gone.log", BACK]):
            found.append(event.message)
    assert len(found) == 2


# --- ranks that are missing


def test_ranks_without_a_line_are_named() -> None:
    files = sorted(map(str, PER_RANK.iterdir()))
    everything = nccl_inspect.read(files)
    assert everything.ranks_seen == list(range(8))
    left_out = next(file for file in files if nccl_inspect.read(file).ranks_seen == [6])
    rest = [file for file in files if file != left_out]
    assert nccl_inspect.read(rest).ranks_seen == [0, 1, 2, 3, 4, 5, 7]
    output = " ".join(invoke("summarize", *rest).stdout.split())
    assert "8 ranks, of which 0-5,7 seen; rank 6 has no line in these 7 files; 2 hosts" in output
    one = " ".join(invoke("summarize", left_out).stdout.split())
    assert "8 ranks, only rank 6 seen; ranks 0-5,7 have no line in this log; 1 host" in one
    assert "has no line" not in invoke("summarize", *files).stdout


# --- progress and interruption


def on_a_terminal(args: list[str], exe: list[str], stdin: int | None = None) -> bytes:
    """What a command prints on stderr when that is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*exe, *args], stdin=stdin, stdout=subprocess.DEVNULL, stderr=theirs) as process:
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


SOON = [EXE[0], "-c", "from nccl_inspect.util import progress; progress._LONG = 100_000; " + EXE[2]]
"""The command with a lower idea of a long input."""


def test_long_input_on_a_terminal_shows_a_progress_bar(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(CHANNEL * 3000)
    (tmp_path / "job.log.gz").write_bytes(gzip.compress(random.Random(1).randbytes(150_000).hex().encode() + CHANNEL))
    for name in ("job.log", "job.log.gz"):
        shown = on_a_terminal(["paths", str(tmp_path / name)], SOON)
        assert b"reading" in shown
        assert b"100%" in shown
        assert b"MB/s" in shown
        assert b"reading" not in on_a_terminal(["paths", str(tmp_path / name), "--no-progress"], SOON)
        assert on_a_terminal(["paths", str(tmp_path / name)], EXE) == b""
        status, _, errors = run("paths", str(tmp_path / name), exe=SOON)
        assert (status, errors) == (0, [])


def test_input_of_unknown_length_shows_the_bytes_read() -> None:
    ours, theirs = os.pipe()
    with subprocess.Popen([sys.executable, "-c", f"print({CHANNEL.decode()!r} * 3000)"], stdout=theirs):
        os.close(theirs)
        shown = on_a_terminal(["paths"], SOON, stdin=ours)
    os.close(ours)
    assert b"reading" in shown
    assert b"0.2 MB, " in shown
    assert b"%" not in shown


def interrupted(args: list[str], fifo: Path, data: bytes) -> tuple[int, str, str]:
    """A command that reads a FIFO and gets Ctrl-C when it has read the data and waits for more."""
    os.mkfifo(fifo)
    process = subprocess.Popen([*EXE, *args, str(fifo)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with fifo.open("wb", buffering=0) as pipe:
        pipe.write(data)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    return process.returncode, output.decode(), errors.decode()


def test_ctrl_c_gives_what_was_read_so_far(tmp_path: Path) -> None:
    data = CHANNEL + BACK + CHANNEL[:20]
    status, output, errors = interrupted(["summarize"], tmp_path / "text", data)
    assert (status, errors) == (130, "nccl-inspect: reading stopped: reporting what was read; Ctrl-C again to stop\n")
    assert output.splitlines()[0] == "partial: interrupted after 2 lines"
    assert "P2P/CUMEM" in output
    status, output, _ = interrupted(["summarize", "--format", "json"], tmp_path / "json", data)
    document = json.loads(output)
    assert (status, document["job"]["partial"], document["sources"][0]["lines"]) == (130, True, 2)
    status, output, _ = interrupted(["paths", "--format", "csv"], tmp_path / "paths", data)
    assert (status, len(output.splitlines())) == (130, 3)
    assert nccl_inspect.read(data).to_dict()["job"]["partial"] is False  # type: ignore[index]


def test_ctrl_c_before_the_first_line_of_nccl_gives_nothing(tmp_path: Path) -> None:
    status, output, errors = interrupted(["summarize"], tmp_path / "fifo", b"one line\n")
    assert (status, output) == (130, "")
    assert errors.split() == ["nccl-inspect:", "interrupted"]


# --- memory

MEASURED = (
    "import sys\nfrom nccl_inspect.pipeline import reading\n"
    "state = reading.fold(['-'])\n"
    # Not ru_maxrss: that starts at what the parent took when it made this process.
    "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
    "print(state.sources[0].bytes, int(peak) * 1024)"
)


def generated(size: int) -> Iterator[bytes]:
    """Pieces of a log: mostly lines of a training loop, some of NCCL."""
    piece = b"".join(b"step %d loss 0.%d\n" % (number, number * 7919 % 9973) for number in range(40_000))
    piece += b"".join(
        b"vm:%d:9 [0] NCCL INFO Channel %02d/0 : 0[0] -> 1[1] via P2P/CUMEM\n" % (n % 8, n % 24) for n in range(2000)
    )
    return repeat(piece, size // len(piece) + 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zst", "gz", "tar.gz"])
def test_memory_is_bounded(kind: str) -> None:
    pack: Any = {
        "zst": lambda stream: zstandard.ZstdCompressor().stream_writer(stream, closefd=False),
        "gz": lambda stream: gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1),
        "tar.gz": lambda stream: gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1),
    }[kind]
    wanted = 200_000_000
    process = subprocess.Popen([sys.executable, "-c", MEASURED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    with process.stdin as stdin, pack(stdin) as packed:
        if kind == "tar.gz":
            info = tarfile.TarInfo("job.log")
            info.size = sum(map(len, generated(wanted)))
            packed.write(info.tobuf())
        for piece in generated(wanted):
            packed.write(piece)
        if kind == "tar.gz":
            packed.write(bytes(-info.size % 512 + 1024))
    size, peak = map(int, process.stdout.read().split())
    process.stdout.close()
    assert process.wait(60) == 0
    assert size >= wanted
    assert peak < 200_000_000


@pytest.mark.slow
@pytest.mark.parametrize("kind", PACK)
def test_few_bytes_that_stand_for_many_take_little_memory(kind: str, tmp_path: Path) -> None:
    # In parts, to keep this process small: on Linux the peak of a child begins with the size of its parent.
    packed = PACK[kind](bytes(20_000_000)) * 20 + PACK[kind](b"\n" + CHANNEL)
    process = subprocess.run(
        [sys.executable, "-c", MEASURED], input=packed, stdout=subprocess.PIPE, timeout=120, check=True
    )
    size, peak = map(int, process.stdout.split())
    assert size > 400_000_000
    assert peak < 200_000_000


def test_lines_are_given_as_soon_as_they_are_there() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as stream:
        os.write(theirs, b"first\nsecond\nthi")
        source = next(blocks.find(stream))
        found = blocks.blocks(source)
        assert next(found).lines == [b"first", b"second"]
        os.write(theirs, b"rd\n")
        assert next(found).lines == [b"third"]
        os.close(theirs)
        assert list(found) == []
