"""Archives: their members are sources, and damage stops only what is damaged."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard
from packed_logs import BACK, CHANNEL, run, tar, zipped

import nccl_inspect
from nccl_inspect.errors import NoInputError

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
