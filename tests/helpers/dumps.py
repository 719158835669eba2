"""Flight recorder dumps made for tests."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import sample_data
from repository import ROOT

import nccl_inspect
from nccl_inspect.artifacts import flight_recorder
from nccl_inspect.artifacts.flight_recorder import Dump
from nccl_inspect.model.job import Job

MESH = ROOT / "sample_logs" / "mesh"
LOG = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def entry(order: int, group: str, seq: int, name: str, state: str = "completed", **more: Any) -> dict[str, Any]:
    """Return a call as the recorder writes it."""
    is_p2p = name.startswith(("send", "recv"))
    return {
        "record_id": order - 1,
        "pg_id": 0,
        "process_group": [group, f"group {group}"],
        "collective_seq_id": 0 if is_p2p else seq,
        "p2p_seq_id": seq if is_p2p else 0,
        "op_id": seq,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": order,
        "input_sizes": [[4, 8]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 8]],
        "output_dtypes": ["Float"],
        "state": state,
        "is_p2p": is_p2p,
        **more,
    }


def dump(rank: int, entries: list[dict[str, Any]], groups: dict[str, list[int]]) -> Dump:
    config = {name: {"name": name, "desc": f"group {name}", "ranks": str(ranks)} for name, ranks in groups.items()}
    document = {"version": "2.10", "comm_lib_version": "2.28.9", "pg_config": config, "entries": entries}
    return flight_recorder.read(f"nccl_trace_rank_{rank}", pickle.dumps(document, protocol=2))


DONE = entry(1, "w", 1, "all_reduce")


def beside(folder: Path, dumps: dict[int, list[dict[str, Any]]], ranks: str = "[0, 1, 2, 3]") -> Job:
    """Return a sound log, up to the end of the job, with dumps of some ranks."""
    (log,) = sample_data.contents("v2.21.5-ipc")
    until = [line for line in log.splitlines(keepends=True) if b" Destroy " not in line]
    (folder / "job.log").write_bytes(b"".join(until))
    for rank, entries in dumps.items():
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
        document = {"version": "2.10", "comm_lib_version": "2.21.5", "pg_config": config, "entries": entries}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, protocol=2))
    return nccl_inspect.read(folder)
