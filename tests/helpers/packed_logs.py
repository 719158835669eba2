"""Packed logs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard

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


def run(*args: str, data: bytes = b"", cwd: Path | None = None, exe: list[str] = EXE) -> Any:
    """A command in a process of its own: its status, its output, the lines on stderr."""
    done = subprocess.run([*exe, *args], input=data, capture_output=True, cwd=cwd, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode().splitlines()


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
