"""Long input and commands in processes of their own: progress, memory, pipes that close."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import pty
import random
import resource
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import zstandard
from terminals import EXE, read_to_end

import nccl_inspect
from nccl_inspect.ingest.sources import blocks

pytestmark = pytest.mark.slow
CHANNEL = b"vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def run(*args: str, exe: list[str] = EXE, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*exe, *args], capture_output=True, text=True, timeout=60, check=False, **how)


def on_a_terminal(args: list[str], exe: list[str], stdin: int | None = None) -> bytes:
    """Return what a command prints on stderr when that is a terminal."""
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
        assert all(word in shown for word in (b"reading", b"100%", b"MB/s"))
        assert b"reading" not in on_a_terminal(["paths", str(tmp_path / name), "--no-progress"], SOON)
        assert on_a_terminal(["paths", str(tmp_path / name)], EXE) == b""
        done = run("paths", str(tmp_path / name), exe=SOON)
        assert (done.returncode, done.stderr) == (0, "")
    ours, theirs = os.pipe()
    with subprocess.Popen([sys.executable, "-c", f"print({CHANNEL.decode()!r} * 3000)"], stdout=theirs):
        os.close(theirs)
        shown = on_a_terminal(["paths"], SOON, stdin=ours)
    os.close(ours)
    assert all(word in shown for word in (b"reading", b"0.2 MB, ")), "the bytes of an input of unknown length"
    assert b"%" not in shown


def test_lines_are_given_as_soon_as_they_are_there() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as stream:
        os.write(theirs, b"first\nsecond\nthi")
        source = next(blocks.find(stream))
        found = blocks.cut(blocks.raw_blocks(source))
        assert next(found).lines == [b"first", b"second"]
        os.write(theirs, b"rd\n")
        assert next(found).lines == [b"third"]
        os.close(theirs)
        assert list(found) == []


# --- memory

MEASURED = (
    "import sys\nfrom nccl_inspect.pipeline import reading\n"
    "try: size = reading.fold(['-']).sources[0].bytes\n"
    "except Exception: size = 0\n"
    # Not ru_maxrss: that starts at what the parent took when it made this process.
    "peak = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
    "print(size, int(peak) * 1024)"
)


def measure_memory(data: Iterator[bytes], pack: Callable[[Any], Any] = lambda stream: stream) -> list[int]:
    """Return how many bytes a process reads of these, and how much memory that takes."""
    process = subprocess.Popen([sys.executable, "-c", MEASURED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    with process.stdin as stdin, pack(stdin) as packed:
        for piece in data:
            packed.write(piece)
    found = list(map(int, process.stdout.read().split()))
    process.stdout.close()
    assert process.wait(60) == 0
    return found


def generate_log(size: int) -> Iterator[bytes]:
    """Yield pieces of a log: mostly lines of a training loop, some of NCCL."""
    piece = b"".join(b"step %d loss 0.%d\n" % (number, number * 7919 % 9973) for number in range(40_000))
    piece += b"".join(
        b"vm:%d:9 [0] NCCL INFO Channel %02d/0 : 0[0] -> 1[1] via P2P/CUMEM\n" % (n % 8, n % 24) for n in range(2000)
    )
    return repeat(piece, size // len(piece) + 1)


def pack_in_tar(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    info = tarfile.TarInfo("job.log")
    info.size = size
    yield info.tobuf()
    yield from pieces
    yield bytes(-info.size % 512 + 1024)


def test_memory_is_bounded() -> None:
    wanted, limit = 200_000_000, 200_000_000

    def zst(stream: Any) -> Any:
        return zstandard.ZstdCompressor().stream_writer(stream, closefd=False)

    def gz(stream: Any) -> Any:
        return gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1)

    size = sum(map(len, generate_log(wanted)))
    for pack, data in ((zst, generate_log(wanted)), (gz, pack_in_tar(generate_log(wanted), size))):
        read, peak = measure_memory(data, pack)
        assert read >= wanted
        assert peak < limit
    old = partial(lzma.compress, format=lzma.FORMAT_ALONE)
    kinds: list[Callable[[bytes], bytes]] = [gzip.compress, old, zstandard.compress]
    for compress in kinds:
        # In parts, to keep this process small: on Linux the peak of a child begins with the size of its parent.
        read, peak = measure_memory(iter([compress(bytes(20_000_000)) * 20, compress(b"\n" + CHANNEL)]))
        assert read > 400_000_000
        assert peak < limit
    (_, few), (_, many) = (measure_memory(repeat(b"a" * (1 << 20), number)) for number in (10, 300))
    assert many < few + 20_000_000, "a line of many megabytes"


def test_an_archive_may_hold_thousands_of_members() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number in range(5000):
            info = tarfile.TarInfo(f"rank{number}.log")
            info.size = len(CHANNEL)
            archive.addfile(info, io.BytesIO(CHANNEL))
    assert len(nccl_inspect.read(file.getvalue()).sources) == 5000


def test_little_space_and_no_regex_library_are_no_traceback(tmp_path: Path) -> None:
    path, limit = tmp_path / "job.log", 30 << 20
    path.write_bytes(CHANNEL * 1000)
    done = run("summarize", str(path), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 0
    path.write_bytes(CHANNEL + b"vm:1:1 [0] NCCL INFO Trees" + b" [0] -1/-1/-1->0->-1" * 60 + b" [1\n")
    done = run("paths", str(path), exe=[EXE[0], "-c", "import sys; sys.modules['regex'] = None; " + EXE[2]])
    assert (done.returncode, "P2P/CUMEM" in done.stdout) == (0, True)
