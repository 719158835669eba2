"""Makes large logs of the captures in ``sample_logs``: what a line looks like is real, how many there are is not."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path

from wide_job import BEGIN

SAMPLES = Path(__file__).resolve().parent.parent / "sample_logs"
SMALL = SAMPLES / "efa-provider-missing-socket-fallback/job.log"
WIDE = SAMPLES / "p2p-nvlink-8gpu/job.log"
"""Eight ranks of one communicator, 48 lines each."""
CALLS = SAMPLES / "v2.30.7-subsys-all/job.log.gz"
KILLED = SAMPLES / "peer-killed/job.log"


def copy_to_hosts(sample: bytes, size: int) -> Iterator[bytes]:
    """Yield the log of a small job as one job on many hosts: hosts, processes and ranks are all distinct."""
    ranks = max(int(found) for found in re.findall(rb" n[rR]anks (\d+) ", sample))
    copies = -(-size // len(sample))
    return (_renumber(sample, copy, ranks, copies) for copy in range(copies))


def training(size: int, share: int = 100) -> Iterator[bytes]:
    """Yield what a training prints; one line in ``share`` is NCCL's, at first the log of a job."""
    chance = random.Random(1)
    nccl = itertools.cycle([line for line in WIDE.read_bytes().split(b"\n") if b" NCCL INFO " in line])
    lines: list[bytes] = []
    done = 0
    for step in itertools.count():
        lines.append(next(nccl) if step % share == 0 else _step(step, chance))
        if step % 10_000 == 9_999:
            yield (block := b"\n".join(lines) + b"\n")
            lines.clear()
            done += len(block)
            if done >= size:
                return


def _step(step: int, chance: random.Random) -> bytes:
    front = b"[2026-11-20 10:%02d:%02d,%03d] [INFO] [trainer.py:%d:log] "
    values = b"step=%d loss=%.4f grad_norm=%.3f lr=%.3e tokens/s=%.1f"
    clock = step // 600 % 60, step // 10 % 60, step % 1000, 200 + step % 7
    return front % clock + values % (step, *(chance.random() for _ in range(4)))


def flood_of_one_line(size: int) -> Iterator[bytes]:
    """Yield a log in which a peer dies, and each thread prints the same error until somebody ends the job."""
    return _flood([_lost_line(0)], size)


def flood_of_a_cycle(size: int) -> Iterator[bytes]:
    """Return the same, with what stands between: an empty line, and a warning that ends in bytes that are no UTF-8."""
    lines = [
        _lost_line(0),
        _lost_line(1),
        b"\n",
        _lost_line(2),
        _lost_line(3).replace(b"\n", b" \xff\xfe\n"),
        _lost_line(4),
    ]
    return _flood(lines, size)


def _lost_line(thread: int) -> bytes:
    host, pid = re.findall(rb"(?m)^([\w.-]+):(\d+):\d+ ", KILLED.read_bytes())[0]
    text = b"misc/socket.cc:46 NCCL WARN socketProgress: Connection closed by remote peer %b<4%04d>" % (host, thread)
    return b"%b:%b:%d [%d] %b\n" % (host, pid, 6000 + thread, thread, text)


def _flood(lines: list[bytes], size: int) -> Iterator[bytes]:
    yield KILLED.read_bytes()
    block = b"".join(lines) * 1000
    for _ in range(-(-size // len(block))):
        yield block


def wrap_in_docker(lines: Iterable[str]) -> Iterator[str]:
    """Yield the log as Docker keeps it: a JSON object for each line."""
    for number, line in enumerate(lines):
        record = {
            "log": line,
            "stream": "stdout",
            "time": (BEGIN + timedelta(microseconds=37 * number)).isoformat() + "Z",
        }
        yield json.dumps(record, separators=(",", ":")) + "\n"


def calls(size: int) -> Iterator[bytes]:
    """Yield collective calls (subsystem COLL): no two lines are the same."""
    sample = gzip.decompress(CALLS.read_bytes())
    lines = [line for line in sample.split(b"\n") if b": opCount " in line]
    yield sample
    for number in range(size // (len(lines[0]) * 1000)):
        block = [
            re.sub(rb"(opCount |buff 0x)[0-9a-f]+", lambda found, at=at: found[1] + b"%x" % at, lines[at % len(lines)])  # type: ignore[misc]
            for at in range(number * 1000 + 1, number * 1000 + 1001)
        ]
        yield b"\n".join(block) + b"\n"


def write_per_process(folder: Path, size: int) -> None:
    """Write one file for each process, as NCCL_DEBUG_FILE makes them."""
    files: dict[bytes, list[bytes]] = {}
    for job in copy_to_hosts(WIDE.read_bytes(), size):
        for line in job.splitlines(keepends=True):
            if found := re.match(rb"([\w.-]+):(\d+):", line):
                files.setdefault(found[1] + b"." + found[2], []).append(line)
    for name, lines in files.items():
        (folder / f"nccl.{name.decode()}.log").write_bytes(b"".join(lines))


def _process(found: re.Match[bytes], copy: int) -> bytes:
    return b"%b-%d:%d:%d " % (found[1], copy, int(found[2]) + copy, int(found[3]) + copy)


def _renumber(sample: bytes, copy: int, ranks: int, copies: int) -> bytes:
    def rank(found: re.Match[bytes]) -> bytes:
        return found[1] + b"%d" % (int(found[2]) + copy * ranks)

    def size(found: re.Match[bytes]) -> bytes:
        return found[1] + b"%d" % (int(found[2]) * copies)

    def trees(found: re.Match[bytes]) -> bytes:
        return found[1] + re.sub(rb"(\] |/|->)(\d+)", rank, found[2])

    text = re.sub(rb"(?m)^([\w.-]+):(\d+):(\d+) ", lambda found: _process(found, copy), sample)
    text = re.sub(rb"( : | -> | rank )(\d+)(?=\[| n[rR]anks)", rank, text)
    text = re.sub(rb"( n[rR]anks | nNodes )(\d+)", size, text)
    text = re.sub(rb"(?m)^(.* NCCL INFO Trees)(.*)$", trees, text)
    return re.sub(rb"(?m)^.* NCCL INFO Channel \d+/\d+ :(?: +\d+)+\n", b"", text) if copy else text
