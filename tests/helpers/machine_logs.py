"""Lines of jobs on machines that are to be recognised."""

from __future__ import annotations

from pathlib import Path

from nccl_inspect import platforms

FILES = sorted((Path(platforms.__file__).parent).glob("*.toml"))
SHM = "vm0:1511:1595 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
OFF = "vm0:1511:1511 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n"


def said(message: str, host: str = "node-a", level: str = "INFO") -> str:
    return f"{host}:100:140 [0] NCCL {level} {message}\n"
