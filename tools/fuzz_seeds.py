"""Inputs to begin with, and how they are changed: shared by the fuzzer and the tests."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import re
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from nccl_inspect.grammar import engine
from nccl_inspect.ingest import envelopes
from nccl_inspect.util.text import encode

ROOT = Path(__file__).parent.parent
_MAX_SEED = 12_000
_WORDS = (
    b"\n", b"\r\n", b"\r", b"\0", b"\x1b[31m", b"\x1b]0;x\x07", b"\xff\xfe", b"\xef\xbb\xbf", b"\xe2\x80\xae", b" ",
    b"-1", b"0", b"2147483648", b"-9223372036854775808", b"99999999999999999999", b"1048576", b"4294967295", b"007",
    b" NCCL INFO ", b" NCCL WARN ", b"NCCL version ", b"vm:1:1 [0] ", b"Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    b" : 0[0] -> 8[0] [send] via NET/IB/2(1)/GDRDMA/Shared", b"Init COMPLETE", b"Init START", b"(nil)", b"0x0",
    b'{"log":"', b'"}', b"[[[[[[[[", b"{{{{{{{{", b"%s%n", b"=cmd|' /C calc'!A0", b"\xf0\x9f\x92\xa5", b"nan", b"inf",
    b"<pci>", b"</pci>", b"<gpu dev=\"0\"/>", b"GPU0", b"NV12", b"[paths]", b"transport = ", b'"""', b"= true",
)  # fmt: skip
_SETTINGS = """
platform = "p5.48xlarge"
select = ["network", "gdr-*"]
ignore = ["p2p-read-mode"]
[severity]
one-gpu-per-pod = "info"
[[suppress]]
rule = "socket-instead-of-efa"
hosts = ["build-*"]
ranks = "0-7"
reason = "the build machines have no EFA"
"""
_POLICY = """
[job]
world_size = 8
hosts = 2
max_severity = "warning"
[versions]
min_nccl = "2.20"
[network]
name = ["IB"]
[paths.intra]
transport = ["P2P*"]
[paths.inter]
gdr = true
[environment.require]
NCCL_DEBUG = "INFO"
"""


_UNPACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}


@cache
def logs() -> tuple[bytes, ...]:
    """Return captures and the lines of each production, cut to a size that is read quickly."""
    found = []
    for path in sorted((ROOT / "sample_logs").rglob("*.log*")):
        data = _UNPACK.get(path.suffix, bytes)(path.read_bytes())
        found += [data[:_MAX_SEED], data[len(data) // 2 :][:_MAX_SEED], data[-_MAX_SEED:]]
    samples = [
        b"vm:1:%d [0] NCCL INFO %s" % (number % 3, sample.encode())
        for number, production in enumerate(engine.load_grammar().productions)
        for sample in production.samples[:1]
        if not production.bare and not production.foreign
    ]
    found += [b"\n".join(samples[start : start + 60]) for start in range(0, len(samples), 60)]
    return tuple(found)


@cache
def pack_log() -> tuple[bytes, ...]:
    """Return a log packed in every way."""
    data = logs()[0][:4000]
    tar, archive = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as file:
        for name in ("a/rank0.log", "b.txt"):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("rank0.log", data)
        zipped.writestr("rank1.log", data[:900])
    found = [gzip.compress(data), bz2.compress(data), lzma.compress(data), tar.getvalue(), archive.getvalue()]
    found.append(gzip.compress(tar.getvalue()))
    found.append(lzma.compress(data, format=lzma.FORMAT_ALONE))
    try:
        import zstandard
    except ImportError:
        return tuple(found)
    return (*found, zstandard.ZstdCompressor().compress(data))


@cache
def wrap_lines() -> tuple[bytes, ...]:
    """Return lines in the envelopes of launchers and collectors."""
    line = b"vm:11:12 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    quoted = json.dumps(line.decode())[1:-1].encode()
    return tuple(
        sample.replace(b"LINE", quoted) if one.reader else sample + line
        for one in envelopes.list_envelopes().values()
        for sample in map(encode, re.findall(r"^sample: (.*)", one.entry, re.MULTILINE))
    )


@cache
def messages() -> tuple[bytes, ...]:
    """Return the samples of all productions."""
    return tuple(sample.encode() for one in engine.load_grammar().productions for sample in one.samples)


@cache
def machines() -> tuple[bytes, ...]:
    """Return topology files."""
    return tuple(path.read_bytes() for path in sorted((ROOT / "tests" / "data").glob("*.*")) if path.is_file())


SEEDS: dict[str, Callable[[], Sequence[bytes]]] = {
    "log": lambda: (*logs(), *pack_log(), *(b"\n".join([one] * 3) for one in wrap_lines())),
    "ingest": lambda: (*pack_log(), *logs()[:3]),
    "message": messages,
    "envelope": wrap_lines,
    "machine": machines,
    "settings": lambda: (_SETTINGS.encode(), _POLICY.encode()),
    "commands": lambda: tuple(bytes([number % 256]) + data for number, data in enumerate(logs())),
}
"""For each target what it begins with."""


def mutate(data: bytes, others: Sequence[bytes], choice: random.Random) -> bytes:
    """Return the data with a few things done to it that disks, pipes, collectors and people do."""
    for _ in range(choice.choice((1, 1, 2, 3, 8))):
        data = choice.choice(_CHANGES)(data, others, choice)
    return data[: 4 * _MAX_SEED]


def _flip(data: bytes, others: Sequence[bytes], choice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(choice.choice((1, 4, 16))):
        if changed:
            changed[choice.randrange(len(changed))] = choice.randrange(256)
    return bytes(changed)


def _cut(data: bytes, others: Sequence[bytes], choice: random.Random) -> bytes:
    start, end = _span(data, choice)
    return data[:start] + data[end:]


def _repeat(data: bytes, others: Sequence[bytes], choice: random.Random) -> bytes:
    start, end = _span(data, choice)
    return data[:end] + data[start:end] * choice.choice((1, 1, 7)) + data[end:]


def _shuffle(data: bytes, others: Sequence[bytes], choice: random.Random) -> bytes:
    lines = data.split(b"\n")
    choice.shuffle(lines)
    return b"\n".join(lines)


def _splice(data: bytes, others: Sequence[bytes], choice: random.Random) -> bytes:
    other = choice.choice(others)
    start, end = _span(other, choice)
    at = choice.randint(0, len(data))
    return data[:at] + other[start:end] + data[at:]


def _truncate(data: bytes, others: Sequence[bytes], choice: random.Random) -> bytes:
    return data[: choice.randint(0, len(data))]


def _insert(data: bytes, others: Sequence[bytes], choice: random.Random) -> bytes:
    at = choice.randint(0, len(data))
    return data[:at] + choice.choice(_WORDS) * choice.choice((1, 1, 1, 50)) + data[at:]


def _renumber(data: bytes, others: Sequence[bytes], choice: random.Random) -> bytes:
    """Return the data with another number in the place of one."""
    digits = [at for at, byte in enumerate(data[:4000]) if 48 <= byte <= 57]
    if not digits:
        return data
    at = choice.choice(digits)
    return data[:at] + choice.choice(_WORDS[10:18]) + data[at + 1 :]


def _span(data: bytes, choice: random.Random) -> tuple[int, int]:
    start = choice.randint(0, len(data))
    return start, min(len(data), start + choice.choice((1, 4, 60, 400, 5000)))


_CHANGES = (_flip, _cut, _repeat, _shuffle, _splice, _truncate, _insert, _renumber)
