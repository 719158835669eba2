"""Long input: progress, interruption and memory."""

from __future__ import annotations

import gzip
import json
import os
import pty
import random
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import zstandard
from packed_logs import BACK, CHANNEL, EXE, PACK, run
from terminals import read_to_end

import nccl_inspect
from nccl_inspect.ingest.sources import blocks


def on_a_terminal(args: list[str], exe: list[str], stdin: int | None = None) -> bytes:
    """What a command prints on stderr when that is a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*exe, *args], stdin=stdin, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = read_to_end(ours)
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
