"""Flight recorder dumps: fields of all versions, calls that are over, and dumps whose age says what they prove."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

from dumps import beside, dump, entry

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import flight_recorder
from nccl_inspect.model.job import Job


def test_the_rank_is_in_the_name() -> None:
    data = json.dumps({"version": "2.4", "pg_config": {}, "pg_status": {}, "entries": []}).encode()
    names: dict[str, int | None] = {
        "nccl_trace_rank_12": 12,
        "a/b3/nccl_trace_rank_0.json": 0,
        "dump-rank7.pickle": 7,
        "comm_lib_trace_rank_5": 5,
        "dump": None,
    }
    assert all(flight_recorder.recognises(name, data) for name in names)
    assert {name: flight_recorder.read(name, data).rank for name in names} == names


def test_early_versions_have_other_fields() -> None:
    call = {"record_id": 3, "pg_id": 2, "seq_id": 7, "profiling_name": "nccl:all_reduce", "input_sizes": ((8,),)}
    data = pickle.dumps({"version": "2.0", "entries": [call]}, protocol=2)
    assert flight_recorder.recognises("x", data)
    read = flight_recorder.read("nccl_trace_rank_1", data)
    assert [(c.group, c.seq, c.inputs, c.state) for c in read.calls["2"]] == [("2", 7, (8,), "scheduled")]


SEND = entry(1, "0", 1, "send 0->1", "scheduled")
BATCHES: dict[str, tuple[list[dict[str, Any]], list[int]]] = {
    "calls of a batch are over when it is": (
        [
            SEND,
            entry(2, "0", 1, "recv 0<-1", "scheduled"),
            entry(3, "0", 1, "coalesced", is_p2p=True, collective_seq_id=0, p2p_seq_id=1),
        ],
        [],
    ),
    "a batch of early versions is no P2P": (
        [SEND, entry(2, "0", 0, "coalesced", p2p_seq_id=1, input_sizes=[], output_sizes=[])],
        [],
    ),
    "all_gather of tensors of different sizes makes one broadcast for each rank": (
        [
            *(entry(order, "0", 1, "_broadcast_oop", "scheduled") for order in (1, 2)),
            entry(3, "0", 1, "ALLGATHER_coalesced", input_sizes=[], output_sizes=[]),
            entry(4, "0", 2, "all_reduce", "started"),
        ],
        [3],
    ),
    "what comes before a call that is over is over: the recorder does not see the end of calls of a CUDA graph": (
        [
            entry(1, "0", 1, "all_gather_into_tensor_coalesced", "scheduled"),
            entry(2, "0", 1, "send 0->1", "scheduled"),
            entry(3, "0", 2, "recv 0<-2", "scheduled"),
            entry(4, "0", 2, "all_reduce"),
            entry(5, "0", 3, "recv 0<-1"),
        ],
        [2],
    ),
}


def test_calls_that_are_over_are_not_pending() -> None:
    read = {name: dump(0, entries, {"0": [0, 1, 2]}).pending("0") for name, (entries, _) in BATCHES.items()}
    found = {name: [call.order for call in pending] for name, pending in read.items()}
    assert found == {name: pending for name, (_, pending) in BATCHES.items()}


def test_frames_are_those_of_the_program() -> None:
    frames = [
        {"name": "all_reduce", "filename": "/x/site-packages/torch/distributed/distributed_c10d.py", "line": 9},
        {"name": "reduce", "filename": "helpers.py", "line": 8},
        {"name": "step", "filename": "train.py", "line": 88},
        {"name": "main", "filename": "train.py", "line": 99},
    ]
    read = dump(0, [entry(1, "0", 1, "all_reduce", frames=frames)], {"0": [0]})
    assert read.last is not None
    assert read.last.frame == "helpers.py:8 in reduce < train.py:88 in step"


NOW = 1_795_378_708
SECOND = 10**9


def write_dumps(folder: Path, seconds: dict[int, float]) -> Job:
    """Read a folder again, with dumps that were written so long after `NOW`."""
    for rank, after in seconds.items():
        os.utime(folder / f"nccl_trace_rank_{rank}", (NOW + after, NOW + after))
    os.utime(folder / "job.log", (NOW, NOW))
    return nccl_inspect.read(folder)


def test_dumps_that_were_written_while_ranks_made_calls_blame_nobody(tmp_path: Path) -> None:
    made = [entry(1, "0", 1, "all_reduce", time_created_ns=NOW * SECOND - 10**7)]
    inside = [*made, entry(2, "0", 2, "all_reduce", "started", time_created_ns=NOW * SECOND)]
    sound = beside(tmp_path, {}).verdict
    for behind in ({}, {3: made}):
        beside(tmp_path, dict.fromkeys(range(4), inside) | behind)
        job = write_dumps(tmp_path, dict.fromkeys(range(4), 0.5))
        assert (job.verdict, [finding.rule for finding in job.findings if finding.fatal]) == (sound, [])
        assert any("while the job was running" in question.reason for question in job.not_judged)
        assert write_dumps(tmp_path, dict.fromkeys(range(4), 600)).verdict == "failed"


def test_a_dump_from_before_the_call_proves_nothing(tmp_path: Path) -> None:
    made = [entry(1, "0", 1, "all_reduce", time_created_ns=(NOW - 900) * SECOND)]
    inside = [*made, entry(2, "0", 2, "all_reduce", "started", time_created_ns=NOW * SECOND)]
    beside(tmp_path, {0: inside, 1: inside, 2: inside, 3: made})
    job = write_dumps(tmp_path, {0: 60, 1: 60, 2: 60, 3: -800})
    (finding,) = (one for one in job.findings if one.rule == "collective-not-called")
    assert finding.confidence == "possible"
    assert "was written 800 s before that call" in finding.cause


def test_dumps_accuse_if_a_time_agrees(tmp_path: Path) -> None:
    """Dumps name no process and no communicator: if no line has a date, the log must not be older than they are."""
    made = [entry(1, "0", 1, "all_reduce", time_created_ns=(NOW - 1) * SECOND)]
    waits = [*made, entry(2, "0", 2, "all_reduce", "started", time_created_ns=NOW * SECOND)]
    beside(tmp_path, {0: waits, 1: waits, 2: waits, 3: made})
    said = {}
    for days in (0, 9, -9):
        os.utime(tmp_path / "job.log", (NOW + days * 86_400, NOW + days * 86_400))
        job = nccl_inspect.read(tmp_path)
        said[days] = (job.verdict, job.findings[0].rule, job.findings[0].confidence)
    found = "collective-not-called"
    assert said == dict.fromkeys((0, 9), ("failed", found, "certain")) | {-9: ("unknown", found, "possible")}


def test_many_files_are_read_by_several_processes(tmp_path: Path, monkeypatch: Any) -> None:
    beside(tmp_path, {rank: [entry(1, "0", 1, "all_reduce")] for rank in range(9)})
    (tmp_path / "nccl_trace_rank_9").write_text(json.dumps({"version": "2.10", "pg_config": 1, "pg_status": 1}) + "}")
    large = json.dumps({"rank": 1}) + " " * artifacts.SHARED
    (tmp_path / "nccl_trace_rank_10").write_text(large)
    monkeypatch.setattr("nccl_inspect.util.processes.processors", lambda: 1)
    alone = artifacts.inventory(str(tmp_path))[:2]
    monkeypatch.setattr("nccl_inspect.util.processes.processors", lambda: 3)
    shared = artifacts.inventory(str(tmp_path))[:2]
    assert [file.name for file in shared[0]] == [file.name for file in alone[0]]
    assert shared[1] == alone[1]
    assert [artifact.value.rank for artifact in shared[1] if artifact.value] == list(range(9))
