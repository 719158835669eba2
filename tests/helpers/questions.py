"""Answers of commands that answer one question each, and the logs that they are asked about."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import large_job
import sample_data
from command_line import invoke

TWO_HOSTS = str(sample_data.FOLDER / "timestamps" / "job.log")
SHARED = 3
"""The GPU whose NIC is moved to that of the one before it."""


@cache
def rails(moved: bool = False) -> bytes:
    """Return a job of 2 hosts with 8 GPUs and a NIC for each; or with one NIC of the second host idle."""
    listed = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(8))
    lines = []
    for line in large_job.log(2).decode().splitlines():
        head, _, message = line.partition(" NCCL INFO ")
        if message.startswith("Using network"):
            lines += [f"{head} NCCL INFO NET/IB : Using {listed} [RO]; OOB eth0:192.0.2.2<0>"]
            lines += [f"{head} NCCL INFO NCCL_IB_HCA set by environment to mlx5", f"{head} NCCL INFO Using network IB"]
        elif message.startswith("Connected all rings"):
            rank = int(head.rpartition(":")[2].partition(" ")[0]) - 4000
            other, nic = (rank + 8) % 16, rank % 8
            nic -= moved and rank == 8 + SHARED
            way = f"via NET/IB/{nic}/GDRDMA"
            lines += [f"{head} NCCL INFO Channel 00/0 : {rank}[{rank % 8}] -> {other}[{rank % 8}] [send] {way}"]
            lines += [
                f"{head} NCCL INFO Channel 00/0 : {other}[{rank % 8}] -> {rank}[{rank % 8}] [receive] {way}",
                line,
            ]
        elif "Libfabric" not in message:
            lines.append(line)
    return "\n".join([*lines, ""]).encode()


def records(command: str, *args: str, data: bytes | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(invoke(*command.split(), *args, "--format", "json", data=data).stdout)
    return found
