"""Packed data, told by its content: whole, in pieces, broken off."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from packed_logs import CHANNEL, EXE, PACK, run

import nccl_inspect
from nccl_inspect.errors import NoInputError
from nccl_inspect.ingest.sources import compression
from nccl_inspect.ingest.sources.streams import BLOCK, StreamError, pieces


def in_steps(data: bytes, size: int) -> Iterator[bytes]:
    stream = io.BytesIO(data)
    return iter(lambda: stream.read(size), b"")


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
