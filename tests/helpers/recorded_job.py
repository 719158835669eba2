"""Flight recorder dumps of jobs as large as wanted, with tensor and data groups, one rank of which is late."""

from __future__ import annotations

import json
import pickle
from collections.abc import Container
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

TENSOR = 8
STEP = 8
"""Calls of a step: all but the last in the tensor group, the last in the data group."""
BEGAN_NS = 1_763_683_987_000_000_000
FRAMES = [
    {"name": "all_reduce", "filename": "/usr/lib/python3/site-packages/torch/distributed/c10d.py", "line": 2810},
    {"name": "train_step", "filename": "/app/train.py", "line": 214},
    {"name": "main", "filename": "/app/train.py", "line": 377},
]


class Job:
    """A job that stands still in an all-reduce of a data group, to which one rank does not come.

    Its peers wait there; all others wait for these, or for it, in the next call of their tensor groups.

    Args:
        ranks: how many.
        steps: of which the late rank does not make the last call.
        late: the rank.
        kept: the newest calls that each recorder still has; None for all.
    """

    def __init__(self, ranks: int, steps: int, late: int, kept: int | None = None) -> None:
        self.ranks, self.late, self.kept = ranks, late, kept
        self._calls = steps * STEP
        tensor = min(TENSOR, ranks)
        self.groups: dict[str, tuple[str, list[int]]] = {"0": ("default_pg", list(range(ranks)))}
        for first in range(0, ranks, tensor):
            self.groups[f"tp{first}"] = ("TENSOR_MODEL_PARALLEL_GROUP", list(range(first, first + tensor)))
        for first in range(tensor):
            self.groups[f"dp{first}"] = ("DATA_PARALLEL_GROUP", list(range(first, ranks, tensor)))
        self._numbers = {name: number for number, name in enumerate(self.groups)}
        self._tensor = tensor

    def of(self, rank: int) -> list[str]:
        """The groups of a rank."""
        return ["0", f"tp{rank - rank % self._tensor}", f"dp{rank % self._tensor}"]

    def dump(self, rank: int) -> dict[str, Any]:
        """What a rank recorded."""
        config = {
            name: {"name": name, "desc": self.groups[name][0], "ranks": str(self.groups[name][1])}
            for name in self.of(rank)
        }
        return {"version": "2.10", "comm_lib_version": "2.28.9", "pg_config": config, "entries": self._entries(rank)}

    def _entries(self, rank: int) -> list[dict[str, Any]]:
        is_peer = rank % self._tensor == self.late % self._tensor
        made = self._calls - 1 if rank == self.late else self._calls if is_peer else self._calls + 1
        numbers: dict[str, int] = {}
        found = []
        for order in range(made):
            group = self.of(rank)[2 if order % STEP == STEP - 1 else 1]
            numbers[group] = numbers.get(group, 0) + 1
            is_over = rank == self.late or order < made - 1
            found.append(self._entry(order, group, numbers[group], "completed" if is_over else "started"))
        return found[-self.kept :] if self.kept else found

    def _entry(self, order: int, group: str, number: int, state: str) -> dict[str, Any]:
        began = BEGAN_NS + order * 2_000_000
        return {
            "frames": FRAMES,
            "record_id": order,
            "pg_id": self._numbers[group],
            "process_group": (group, self.groups[group][0]),
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "op_id": number,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": began,
            "time_discovered_started_ns": began + 100_000,
            "time_discovered_completed_ns": began + 900_000 if state == "completed" else None,
            "duration_ms": 0.8 if state == "completed" else None,
            "input_sizes": ((4096, 1024),),
            "input_dtypes": ["BFloat16"],
            "output_sizes": ((4096, 1024),),
            "output_dtypes": ["BFloat16"],
            "state": state,
            "timeout_ms": 600_000,
            "is_p2p": False,
            "retired": state == "completed",
        }


def write(folder: Path, job: Job, *, as_json: bool = False, silent: Container[int] = ()) -> None:
    """Write the dumps as PyTorch names them.

    Args:
        folder: for the files.
        job: that they are of.
        as_json: rather than as pickles.
        silent: ranks without a dump.
    """
    for rank in range(job.ranks):
        if rank not in silent:
            dump = job.dump(rank)
            data = json.dumps(dump).encode() if as_json else pickle.dumps(dump, 2)
            (folder / f"nccl_trace_rank_{rank}").write_bytes(data)


def log(job: Job) -> bytes:
    """The log of such a job: its largest communicator, and the time-out of rank 0."""
    ranks, seq = job.ranks, job.dump(0)["entries"][-1]["collective_seq_id"]
    about = "cudaDev 0 nvmlDev 0 busId 1000 commId 0xfeed"
    init = "".join(
        f"node-{rank // TENSOR}:{100 + rank}:1 [0] NCCL INFO comm 0x{rank + 1:x} rank {rank} nranks {ranks} {about} "
        "- Init COMPLETE\n"
        for rank in range(ranks)
    )
    when = datetime.fromtimestamp(job.dump(0)["entries"][-1]["time_created_ns"] / 1e9 + 600, UTC)
    timeout = (
        f"[rank0]:[E{when:%m%d %H:%M:%S}.408744579 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum="
        f"{seq}, OpType=ALLREDUCE, NumelIn=4194304, NumelOut=4194304, Timeout(ms)=600000) ran "
        "for 600000 milliseconds before timing out.\n"
    )
    return (init + timeout).encode()
