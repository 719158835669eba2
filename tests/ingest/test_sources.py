"""Inputs of all kinds: packed files, archives, folders, several at once, broken ones, those behind URLs."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import sample_data
import zstandard
from command_line import invoke

import nccl_inspect
from nccl_inspect.errors import NcclInspectError, NoInputError
from nccl_inspect.ingest.sources import blocks, compression, files, log_detection
from nccl_inspect.ingest.sources.streams import BLOCK, StreamError, pieces

CHANNEL = b"vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
BACK = b"vm:21:22 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM\n"
THIRD = CHANNEL.replace(b"0[0] -> 1[1]", b"2[2] -> 3[3]")
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE, preset=0),
    "zst": zstandard.compress,
}
(DATA,) = sample_data.contents("socket-2node-tp4-dp2")


def tar(members: Mapping[str, bytes], mode: Any = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def make_zip(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def fill(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def names_in(*inputs: Any) -> list[str]:
    return [source.name for source in blocks.find(list(inputs))]


def edges(given: Any) -> list[tuple[int, int]]:
    return [(path.src, path.dst) for path in nccl_inspect.read(given).paths]


def error_of(given: Any) -> str:
    with pytest.raises(NcclInspectError) as caught:
        nccl_inspect.read(given)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- packed data, told by its content


def test_packed_data_is_told_by_its_content_and_read_in_any_pieces_and_parts(tmp_path: Path) -> None:
    plain = [b"".join(b"%d %d\n" % (part, number) for number in range(3000)) for part in range(3)]
    for kind, pack in PACK.items():
        (tmp_path / "job").write_bytes(pack(CHANNEL))
        job = nccl_inspect.read(tmp_path / "job")
        assert job.paths.between(0, 1).detail == "P2P/CUMEM", kind
        assert (job.sources[0].lines, job.sources[0].problem) == (1, None), kind
        packed = b"".join(map(pack, plain))
        for step in (1, 7, 1000, BLOCK):
            parts = (packed[at : at + step] for at in range(0, len(packed), step))
            assert b"".join(compression.unpack_data(iter(parts))) == b"".join(plain), (kind, step)
        assert list(compression.unpack_data(iter([pack(b"")]))) == [], kind
    (tmp_path / "plain.log.gz").write_bytes(CHANNEL)
    assert edges(tmp_path / "plain.log.gz") == [(0, 1)]
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip"  # a frame that zstd skips
    assert b"".join(compression.unpack_data(iter([skipped + zstandard.compress(CHANNEL) + skipped]))) == CHANNEL


@pytest.mark.parametrize("kinds", [["gz"], pytest.param([*PACK], marks=pytest.mark.slow)])
def test_what_breaks_off_gives_all_that_it_holds(kinds: list[str], tmp_path: Path) -> None:
    noise, file = random.Random(1), tmp_path / "job.log"
    lines = [CHANNEL[:-1] + b" %d" % noise.getrandbits(4000) for _ in range(1200)]
    for kind in kinds:
        some = lines if kind == "bz2" else lines[:400]
        packed = PACK[kind](b"\n".join(some))
        file.write_bytes(packed[: len(packed) * 3 // 4])
        (source,) = nccl_inspect.read(file).sources
        assert source.problem == f"{file}: the compressed data is damaged (it breaks off); copy the file again", kind
        # bzip2 gives nothing of a part of 900 kB that is not whole, zstd nothing of one of 128 kB
        assert source.lines > (600 if kind == "bz2" else 180 if kind == "zst" else 280), kind


def test_damage_is_told() -> None:
    for kind in ("gz", "zst", "bz2", "xz"):
        assert b"".join(compression.unpack_data(iter([PACK[kind](CHANNEL) + bytes(512)]))) == CHANNEL, "padding"
        found: list[bytes] = []
        with pytest.raises(StreamError, match="damaged"):
            found.extend(compression.unpack_data(iter([PACK[kind](CHANNEL) + b"and so on"])))
        assert b"".join(found) == CHANNEL
    data = bytearray(gzip.compress(CHANNEL * 1000))
    data[30:40] = b"\xff" * 10
    assert "the compressed data is damaged" in error_of(bytes(data))


def test_few_bytes_that_stand_for_many_are_unpacked_in_small_pieces() -> None:
    for kind, pack in PACK.items():
        sizes = [len(piece) for piece in compression.unpack_data(pieces(io.BytesIO(pack(bytes(5_000_000)))))]
        assert sum(sizes) == 5_000_000
        assert max(sizes) <= (64 * BLOCK if kind == "zst" else BLOCK), kind


def test_what_cannot_be_unpacked_here_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lz4 = b"\x04\x22\x4d\x18" + bytes(100)
    assert error_of(lz4).startswith("<bytes>: lz4 is not unpacked here; unpack it: lz4 -dc")
    for name in ("zstandard", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "it is packed with zstd" in error_of(zstandard.compress(CHANNEL))
    assert "pip install zstandard" in error_of(zstandard.compress(CHANNEL))


# --- archives

MEMBERS = {
    "run/rank10.log": BACK,
    "./run/rank2.log": CHANNEL,
    "run/rank3.log.gz": gzip.compress(THIRD),
    "run/weights.bin": CHANNEL,
    "run/._rank2.log": CHANNEL,
    "run/odd-name": b"x\n" * 100 + CHANNEL,
    "run/notes": b"no line of it\n",
    "run/core.123": b"\x7fELF" + bytes(1000),
    "run/data.log": bytes(range(256)) * 300,
    "run/inner.tar": tar({"inner.log": CHANNEL}),
}


def test_members_of_an_archive_are_sources_told_by_content(tmp_path: Path) -> None:
    file = tmp_path / "logs"
    in_tar = ["run/rank10.log", "run/rank2.log", "run/rank3.log.gz", "run/odd-name"]
    archives = [(tar(MEMBERS, mode), in_tar) for mode in ("w", "w:gz", "w:bz2", "w:xz")]
    archives += [(zstandard.compress(tar(MEMBERS)), in_tar)]
    in_zip = ["run/rank2.log", "run/odd-name", "run/rank3.log.gz", "run/rank10.log"]  # in natural order
    archives += [(make_zip(MEMBERS, method), in_zip) for method in (0, 8, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)]
    for data, wanted in archives:
        file.write_bytes(data)
        job = nccl_inspect.read(file)
        assert [source.name.removeprefix(f"{file}:").removeprefix("./") for source in job.sources] == wanted
        assert [(path.src, path.dst) for path in job.paths] == [(0, 1), (1, 0), (2, 3)]
        assert {line.source for path in job.paths for line in path.evidence} <= {one.name for one in job.sources}


def test_an_archive_may_come_as_bytes_or_as_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, archive = tar({"a.log": CHANNEL}, "w:gz"), make_zip({"a.log": CHANNEL})
    assert "<stdin>:a.log: 1 line" in invoke("summarize", data=packed).stdout
    for given, name in ((packed, "<bytes>:a.log"), (io.BytesIO(packed), "<stream>:a.log"), (archive, "<bytes>:a.log")):
        assert nccl_inspect.read(given).sources[0].name == name
    (tmp_path / "a.zip").write_bytes(archive)
    with (tmp_path / "a.zip").open("rb") as stream:
        assert nccl_inspect.read(stream).sources[0].lines == 1
    ours, theirs = os.pipe()
    os.write(theirs, archive)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        assert error_of("-").startswith("<stdin>: a zip archive cannot be read from a pipe")


def test_damage_stops_only_what_is_damaged(tmp_path: Path) -> None:
    plain = tar({"a.log": CHANNEL, "b.log": CHANNEL * 2000})
    header = bytearray(tar({"a.log": CHANNEL, "b.log": BACK, "c.log": CHANNEL}))
    header[1024 + 100 : 1024 + 110] = b"x" * 10
    member = bytearray(make_zip({"a.log": CHANNEL * 50, "b.log": BACK}, zipfile.ZIP_STORED))
    member[100] ^= 1
    for data, wanted in (
        (plain[:60_000], {"<bytes>:a.log": "", "<bytes>:b.log": "damaged"}),
        (gzip.compress(plain, mtime=0)[:-60], {"<bytes>:a.log": "", "<bytes>:b.log": "damaged"}),
        (bytes(header), {"<bytes>:a.log": "", "<bytes>": "damaged"}),
        (bytes(member), {"<bytes>:a.log": "CRC", "<bytes>:b.log": ""}),
    ):
        sources = nccl_inspect.read(data).sources
        assert [source.name for source in sources] == list(wanted)
        assert all(wanted[one.name] in (one.problem or "") for one in sources)
        assert [bool(one.problem) for one in sources] == [bool(word) for word in wanted.values()]
    assert "the archive is damaged" in error_of(make_zip({"a.log": CHANNEL})[:-10])
    huge = tarfile.TarInfo("x")
    huge.type, huge.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    assert "a member whose name is too long" in error_of(huge.tobuf(tarfile.GNU_FORMAT) + bytes(100_000))
    for data in (tar({"weights.bin": b"x"}), make_zip({"weights.bin": b"x"}), make_zip({})):
        assert error_of(data).startswith("<bytes>: the archive holds no log")


def test_names_in_archives_reach_neither_other_files_nor_the_terminal() -> None:
    file = io.BytesIO(tar({"../../etc/rank0.log": CHANNEL, "/etc/rank1.log": CHANNEL, "a\x1b[31m.log": CHANNEL}))
    with tarfile.open(fileobj=file, mode="a") as archive:
        for name, kind in (("a", tarfile.SYMTYPE), ("b", tarfile.LNKTYPE), ("c", tarfile.CHRTYPE), ("d", b"6")):
            info = tarfile.TarInfo(f"{name}.log")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    names = [source.name for source in nccl_inspect.read(file.getvalue()).sources]
    assert names == [f"<bytes>:{name}" for name in ("../../etc/rank0.log", "/etc/rank1.log", "a\\x1b[31m.log")]


# --- folders

WANTED = {
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
OTHERS = {
    **dict.fromkeys(["attempt_0/2/error.json", ".hidden.log", ".git/x.log", "core.4711", "python.core"], CHANNEL),
    **dict.fromkeys(["weights.safetensors", "checkpoint-500/model.pt", "notes.md"], CHANNEL),
    "core": b"\x7fELF" + bytes(100) + CHANNEL,
    "binary.log": bytes(range(256)) * 10,
    "nulls.log": bytes(10_000),
    "random.log": random.Random(1).randbytes(10_000),
    "train": b"no line of it\n",
    "late": b"x" * 70_000 + CHANNEL,
    "sources.tar.gz": tar({"a.c": b"int main;\n"}, "w:gz"),
}
NATURAL = [["rank2", "rank10"], ["a/2/x", "a/10/x"], ["1a", "2", "10"], ["a", "a1", "a2b3", "a2b20"]]
ROTATED = """
job.log.10 job.log.2.gz job.log.1 job.log
0.log.20261120-231307.gz 0.log.20261121-010203 0.log
a.log-20261120 a.log
llama-0.previous.log llama-0.log llama-1.log
x.log.old x.log
"""
"""Files that one log was spread over, the oldest first."""


def test_a_folder_gives_what_looks_like_a_log_in_natural_order(tmp_path: Path) -> None:
    fill(tmp_path, WANTED | OTHERS)
    (tmp_path / "dangling.log").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo.log")
    for name in ("model", "huge.log", "core.1"):  # not read to be left out
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
    found = [Path(name).relative_to(tmp_path).as_posix() for name in names_in(str(tmp_path))]
    assert sorted(found) == sorted(WANTED)
    assert found.index("attempt_0/2/stdout.log") < found.index("attempt_0/10/stdout.log")
    for names in NATURAL:
        assert sorted(sorted(names), key=log_detection.natural) == names
    fill(tmp_path / "b", {"node1.tgz": tar({"a.log": BACK}, "w:gz"), "node0.zip": make_zip({"a.log": CHANNEL})})
    assert names_in(f"{tmp_path}/b") == [f"{tmp_path}/b/node0.zip:a.log", f"{tmp_path}/b/node1.tgz:a.log"]


@pytest.mark.parametrize("name", ["job.log.1", "job.log.20261120-231307.gz"])
def test_files_that_one_log_was_spread_over_are_read_in_their_order(name: str, tmp_path: Path) -> None:
    for names in map(str.split, ROTATED.strip().splitlines()):
        given = sorted(names)
        assert [given[place] for place in files.order(given)] == names
    for names in (["nccl.vm.17", "nccl.vm.18"], ["job.log.2", "job.log.1"], ["b.log", "a.log"]):
        assert [names[place] for place in files.order(names)] == names
    lines = sample_data.contents("peer-killed")[0].splitlines(keepends=True)
    older, newer = b"".join(lines[:200]), b"".join(lines[200:])
    fill(tmp_path, {name: gzip.compress(older) if name.endswith(".gz") else older, "job.log": newer})
    whole, job = nccl_inspect.read(b"".join(lines)), nccl_inspect.read(str(tmp_path))
    assert [source.name.rpartition("/")[2] for source in job.sources] == [name, "job.log"]
    summaries = [[finding.summary.partition(":")[0] for finding in one.findings] for one in (job, whole)]
    assert summaries[0] == summaries[1]
    assert [comm.state for comm in job.communicators] == [comm.state for comm in whole.communicators]


def test_patterns_are_expanded_and_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    fill(tmp_path, {"logs/rank10.log": BACK, "logs/rank2.log": CHANNEL, "logs/notes.txt": b"", "a[1].log": CHANNEL})
    assert names_in(f"{tmp_path}/logs/*.log") == [f"{tmp_path}/logs/rank2.log", f"{tmp_path}/logs/rank10.log"]
    assert names_in(f"{tmp_path}/**/rank2.log") == [f"{tmp_path}/logs/rank2.log"]
    assert names_in(f"{tmp_path}/a[1].log") == [f"{tmp_path}/a[1].log"]
    assert "logs/*.txt.gz: no file matches; check the pattern" in error_of(f"{tmp_path}/logs/*.txt.gz")
    folder = tmp_path / "one"
    fill(folder, {"job.log": CHANNEL})
    (folder / "latest.log").symlink_to("job.log")
    os.link(folder / "job.log", folder / "same.log")
    inputs = [str(folder / "job.log"), folder / "job.log", f"{folder}/../one/job.log", str(folder)]
    assert names_in(*inputs) == [str(folder / "job.log")]
    assert names_in(CHANNEL, CHANNEL) == ["<bytes>", "<bytes>"]


# --- several inputs, and one that is bad


def test_inputs_of_all_kinds_are_parts_of_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(CHANNEL)
    job = nccl_inspect.read([str(file), BACK, io.BytesIO(b"nothing of NCCL\n")])
    assert [(path.src, path.dst) for path in job.paths] == [(0, 1), (1, 0)]
    assert [source.name for source in job.sources][1:] == ["<bytes>", "<stream>"]
    assert edges(gzip.compress(CHANNEL) + gzip.compress(BACK)) == [(0, 1), (1, 0)]
    with file.open("rb") as stream:
        assert nccl_inspect.read(stream).sources[0].name == str(file)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CHANNEL)))
    assert nccl_inspect.read("-").sources[0].name == "<stdin>"


def test_what_holds_no_log_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"x")
    assert error_of(tmp_path / "gone.log").endswith("gone.log: no such file; check the path")
    assert "the folder holds no log" in error_of(tmp_path)
    (tmp_path / "self.log").symlink_to("self.log")
    assert "Too many levels of symbolic links" in error_of(tmp_path / "self.log")
    assert "empty" in error_of(b"")
    for data in (b"no line of it\n" * 3, bytes(range(256)) * 5000, b"\x7fELF" + b"\0" * 3_000_000):
        assert "no NCCL line among" in error_of(data)


def test_a_bad_input_stops_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cut = gzip.compress(BACK + random.Random(1).randbytes(3000).hex().encode())[:-1000]
    fill(tmp_path, {"a.log": CHANNEL, "cut.log": cut, "c.log": THIRD, "other.log": b"one line\n"})
    args = ["a.log", "gone.log", "no*.log", "cut.log", "c.log"]
    done = invoke("summarize", *args)
    assert [line.partition(";")[0] for line in done.stderr.splitlines()] == [
        "nccl-inspect: gone.log: no such file",
        "nccl-inspect: no*.log: no file matches",
        "nccl-inspect: cut.log: the compressed data is damaged (it breaks off)",
    ]
    assert "not read     gone.log: no such file; check the path" in done.stdout
    document = json.loads(invoke("summarize", *args, "--format", "json").stdout)
    problems = {source["name"]: source["problem"] for source in document["sources"]}
    assert [name for name, problem in problems.items() if problem is None] == ["a.log", "c.log"]
    assert problems["gone.log"] == "gone.log: no such file; check the path"
    assert [(path["src"], path["dst"]) for path in document["paths"]] == [(0, 1), (1, 0), (2, 3)]
    assert [invoke(name, *args).stderr.count("\n") for name in ("paths", "annotate")] == [3, 3]
    for given, more in ((["gone.log", "lost.log"], ""), (["gone.log", "lost.log", "other.log"], "the other 1 hold no")):
        error = error_of(given)
        assert "gone.log: no such file" in error
        assert "1 more cannot be read" in error
        assert more in error
    done = invoke("summarize", "a.log", *(f"gone{number}.log" for number in range(50)))
    errors = done.stderr.splitlines()
    assert (len(errors), errors[-1]) == (21, "nccl-inspect: 30 more inputs could not be read")
    assert done.stdout.count("gone") < 10
    found: list[Any] = []
    with pytest.raises(NoInputError, match="gone"):
        found.extend(nccl_inspect.events([CHANNEL, tmp_path / "gone.log", BACK]))
    assert len(found) == 2, "events of all inputs come before the error"


MEANT = {
    "jbo.log": "job.log",
    "job.log.gz": "job.log",
    "rank1.log": "rank1.log.gz",
    "rank1": "rank1.log.gz",
    "JOB.LOG": "job.log",
    "job.txt": "job.log",
    "flder/inner.log": "folder/inner.log",
    **dict.fromkeys(["ranks/rank1.log", "flder/other.log", "gone.log"], ""),
}


def test_a_slip_in_a_file_name_gets_a_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill(tmp_path, {"job.log": CHANNEL, "rank1.log.gz": gzip.compress(CHANNEL), "folder/inner.log": CHANNEL})
    fill(tmp_path, {"policy.toml": b"", "topo.xml": b"<system/>"})
    for typed, meant in MEANT.items():
        question = f"did you mean {meant}?" if meant else "check the path"
        assert error_of(typed) == f"{typed}: no such file; {question}"
    for option, typed, meant in (("--config", "polcy.toml", "policy.toml"), ("--topology", "topo.xlm", "topo.xml")):
        with pytest.raises(NcclInspectError) as caught:
            invoke("summarize", "job.log", option, typed)
        assert str(caught.value) == f"{typed}: No such file or directory; did you mean {meant}?"


def test_a_url_is_named_without_its_secrets_and_not_opened() -> None:
    for url in ("s3://bucket/*.log", "https://user:hidden@logs.example/job.log?token=0123456789"):
        assert error_of(url).endswith("a URL, which is not read; fetch it: curl URL | nccl-inspect")
        assert not [secret for secret in ("hidden", "0123456789") if secret in error_of(url)]
