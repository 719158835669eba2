"""Evidence that contradicts other evidence, and dumps that do not tell whether a rank came: they blame nobody."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from dumps import DONE, MESH, beside, dump, entry

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import causes, flight_recorder, standstill
from nccl_inspect.artifacts.flight_recorder import Dump

ALL = {"w": [0, 1, 2, 3]}
WAITING = entry(40, "w", 40, "all_reduce", "scheduled")


def held(rank: int, entries: list[dict[str, Any]], status: dict[str, Any] | None = None) -> Dump:
    """A dump with what PyTorch says of its groups besides the calls."""
    config = {"w": {"name": "w", "desc": "world", "ranks": "[0, 1, 2, 3]"}}
    document = {"version": "2.10", "pg_config": config, "pg_status": status or {}, "entries": entries}
    return flight_recorder.read(f"nccl_trace_rank_{rank}", pickle.dumps(document, protocol=2))


def of_other_group(first: int) -> list[dict[str, Any]]:
    """The last calls of a rank whose earlier ones were overwritten."""
    return [entry(first + place, "x", first + place, "all_reduce", pg_id=1) for place in range(8)]


def found(last: Dump) -> standstill.Standstill:
    (still,) = standstill.of([*(dump(rank, [DONE, WAITING], ALL) for rank in range(3)), last])
    return still


def test_a_call_that_may_have_been_overwritten_is_not_missing() -> None:
    still = found(held(3, of_other_group(500)))
    assert (still.kind, still.culprits, still.overwritten) == (causes.MISSING, [], [3])


@pytest.mark.parametrize("as_text", [False, True])
def test_what_was_put_into_the_queue_tells_of_overwritten_calls(as_text: bool) -> None:
    def status(last: int) -> dict[str, Any]:
        return {"0": {"last_enqueued_collective": str(last) if as_text else last}}

    early = {**entry(500, "w", 39, "all_reduce"), "pg_id": 0}
    came = found(held(3, [early, *of_other_group(501)], status(40)))
    assert came.kind == causes.UNFINISHED
    assert [part.rank for part in came.culprits] == [0, 1, 2]
    away = found(held(3, [early, *of_other_group(501)], status(39)))
    assert (away.kind, [part.rank for part in away.culprits]) == (causes.MISSING, [3])


def test_a_dump_that_lacks_what_others_finished_is_older() -> None:
    past = [entry(place, "w", place, "all_reduce") for place in range(1, 40)]
    dumps = [dump(rank, [*past, WAITING], ALL) for rank in range(3)]
    (still,) = standstill.of([*dumps, dump(3, past[:30], ALL)])
    assert (still.kind, still.culprits, still.older) == (causes.MISSING, [], [3])
    (still,) = standstill.of([*dumps, dump(3, past, ALL)])
    assert [part.rank for part in still.culprits] == [3]


def test_the_number_of_a_group_in_its_process_is_no_name() -> None:
    """PyTorch 2.3 (version 2.0) names groups by such numbers: those of two ranks may be of different groups."""
    for number, expected in ((0, [causes.DIFFERENT]), (1, [])):
        dumps = []
        for rank, name in enumerate(("nccl:all_reduce", "nccl:broadcast")):
            call = {"id": 0, "pg_id": number, "seq_id": 1, "profiling_name": name, "state": "scheduled"}
            document = {"version": "2.0", "nccl_version": "2.20.5", "entries": [call]}
            dumps.append(flight_recorder.read(f"trace_{rank}", pickle.dumps(document, protocol=2)))
        assert [still.kind for still in standstill.of(dumps)] == expected


def test_a_group_that_one_rank_does_not_list_is_that_of_the_others() -> None:
    unlisted = dump(3, [DONE, WAITING], {})
    (still,) = standstill.of([*(dump(rank, [DONE, WAITING], ALL) for rank in range(3)), unlisted])
    assert (still.kind, len(still.culprits)) == (causes.UNFINISHED, 4)


def test_a_dump_from_before_the_call_proves_nothing(tmp_path: Path) -> None:
    now = 1_795_378_708 * 10**9
    made = [entry(1, "0", 1, "all_reduce", time_created_ns=now - 900 * 10**9)]
    inside = [*made, entry(2, "0", 2, "all_reduce", "started", time_created_ns=now)]
    beside(tmp_path, {0: inside, 1: inside, 2: inside, 3: made})
    for rank in range(4):
        when = now / 1e9 + (-800 if rank == 3 else 60)
        os.utime(tmp_path / f"nccl_trace_rank_{rank}", (when, when))
    job = nccl_inspect.read(tmp_path)
    (finding,) = (one for one in job.findings if one.rule == "collective-not-called")
    assert finding.confidence == "possible"
    assert "was written 800 s before that call" in finding.cause


def test_a_rank_that_made_calls_after_ras_gave_it_up_is_not_dead(tmp_path: Path) -> None:
    source = MESH / "sigstop-eager"
    for name in ("job.log.xz", "ras.json"):
        shutil.copy(source / name, tmp_path)
    after = 1_795_378_708
    calls = [entry(1, "0", 1, "all_reduce", time_created_ns=(after + 90) * 10**9)]
    document = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": calls}
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps(document, protocol=2))
    os.utime(tmp_path / "ras.json", (after, after))
    job = nccl_inspect.read(tmp_path)
    (finding,) = (one for one in job.findings if one.rule == "process-unresponsive")
    assert finding.confidence == "possible"
    assert "its dump contradicts that: rank 1 was active 90 s after this answer" in finding.cause
    assert any("nccl_trace_rank_1" in line.source for line in finding.evidence)


def test_what_dumps_prove_goes_before_what_the_log_suggests(tmp_path: Path) -> None:
    """The log has time-outs of ranks 0 to 2, so that 3 seems to be away; the dumps show that 1 made another call."""
    line = (
        "[rank{0}]: [Rank {0}] [PG ID 0 PG GUID 0(default_pg) Rank "
        "{0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=32, "
        "NumelOut=32, Timeout(ms)=15000) ran for 15000 milliseconds before timing out.\n"
    )
    inside = [entry(1, "0", 1, "all_reduce"), entry(2, "0", 2, "all_reduce", "scheduled")]
    odd = [inside[0], entry(2, "0", 2, "broadcast", "scheduled")]
    beside(tmp_path, {0: inside, 1: odd, 2: inside, 3: inside})
    with (tmp_path / "job.log").open("a", encoding="utf-8") as log:
        log.writelines(line.format(rank) for rank in (0, 1, 2))
    job = nccl_inspect.read(tmp_path)
    assert (job.findings[0].rule, job.findings[0].ranks) == ("collective-mismatch", [1])
    (finding,) = (one for one in job.findings if one.rule == "watchdog-timeout")
    assert finding.ranks == [1]
    assert "The log alone points to rank 3, but the dumps contradict it" in finding.cause


def test_many_files_are_read_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dumps = {rank: [entry(1, "0", 1, "all_reduce")] for rank in range(9)}
    beside(tmp_path, dumps)
    (tmp_path / "nccl_trace_rank_9").write_text(json.dumps({"version": "2.10", "pg_config": 1, "pg_status": 1}) + "}")
    large = json.dumps({"rank": 1}) + " " * artifacts.SHARED
    (tmp_path / "nccl_trace_rank_10").write_text(large)
    monkeypatch.setattr("nccl_inspect.artifacts.sharing.processors", lambda: 1)
    alone = artifacts.parted(str(tmp_path))
    monkeypatch.setattr("nccl_inspect.artifacts.sharing.processors", lambda: 3)
    shared = artifacts.parted(str(tmp_path))
    assert [file.name for file in shared[0]] == [file.name for file in alone[0]]
    assert shared[1] == alone[1]
    assert [artifact.value.rank for artifact in shared[1] if artifact.value] == list(range(9))
