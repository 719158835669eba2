"""Evidence beside the log: what is recognised, what is refused, and what the dumps of all ranks say together."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import pickle
import pickletools
import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import sample_data
from hypothesis import given
from hypothesis import strategies as st
from repository import ROOT

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import causes, flight_recorder, joining, plain_pickle, ras, standstill
from nccl_inspect.artifacts.flight_recorder import Dump
from nccl_inspect.model.job import Job

MESH = ROOT / "sample_logs" / "mesh"
LOG = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"


def entry(order: int, group: str, seq: int, name: str, state: str = "completed", **more: Any) -> dict[str, Any]:
    """A call as the recorder writes it."""
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
    """What a rank recorded."""
    config = {name: {"name": name, "desc": f"group {name}", "ranks": str(ranks)} for name, ranks in groups.items()}
    document = {"version": "2.10", "comm_lib_version": "2.28.9", "pg_config": config, "entries": entries}
    return flight_recorder.read(f"nccl_trace_rank_{rank}", pickle.dumps(document, protocol=2))


class Hostile:
    """Asks whoever reads its pickle to run something."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize(
    "value",
    [
        Hostile(os.system, "touch /tmp/never"),
        Hostile(eval, "1"),
        Hostile(getattr, "", "join"),
        {"entries": [Hostile(exec, "")]},
        datetime.timedelta(1),
        Path("x"),
        io.BytesIO(b"x"),
    ],
)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_asks_for_anything_is_refused(value: Any, protocol: int) -> None:
    with pytest.raises(plain_pickle.PlainPickleError, match="asks for"):
        plain_pickle.loads(pickle.dumps(value, protocol=protocol))


def test_a_hostile_dump_beside_a_log_is_named_and_not_used(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    head = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": [Hostile(os.system, f"touch {mark}")]}
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(head, protocol=2))
    (tmp_path / "job.log").write_bytes(LOG)
    job = nccl_inspect.read(str(tmp_path))
    assert not mark.exists()
    assert [(artifact.kind, artifact.value) for artifact in job.artifacts] == [("flight recorder dump", None)]
    assert "which a dump of plain values never does" in (job.artifacts[0].problem or "")
    assert job.to_dict()["evidence"][0]["problem"]  # type: ignore[index]


def test_a_dump_that_is_nested_too_deeply_is_named_and_not_used(tmp_path: Path) -> None:
    text = '{"version": "2.10", "pg_config": {}, "record_id": 1, "entries": ' + "[" * 100_000 + "]" * 100_000 + "}"
    (tmp_path / "nccl_trace_rank_0").write_text(text, encoding="utf-8")
    (tmp_path / "job.log").write_bytes(LOG)
    job = nccl_inspect.read(str(tmp_path))
    assert [(artifact.value, artifact.problem) for artifact in job.artifacts] == [(None, "damaged: nested too deeply")]


def test_what_shares_its_parts_has_no_text_and_numbers_have_an_end() -> None:
    shared: list[Any] = ["a"]
    for _ in range(60):
        shared = [shared, shared]
    huge = [[1 << 63] * 3, [1 << 62] * 1000]
    config = {"0": {"name": shared, "desc": shared, "ranks": [0, 1 << 63]}}
    calls = [entry(1, "0", 1 << 63, "all_reduce", "started", input_sizes=huge)]
    read = flight_recorder.read("rank_0", pickle.dumps({"version": "2.10", "pg_config": config, "entries": calls}))
    assert read.groups[""].ranks == (0, 0)
    assert len(str(read.calls["0"][0])) < 5000


BOMBS = {
    "a place of the memo far away": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "the same in text": b"\x80\x02Np99999999999\n.",
    "the same behind a value": b"\x80\x05C\x01a\x98r\xff\xff\xff\x7f.",
    "bytes that are not there": b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b"x.",
    "text that is not there": b"\x80\x02X\xff\xff\xff\x7fx.",
    "a number that is not there": b"\x80\x02\x8b\xff\xff\xff\x3f.",
    "a number of many digits": pickle.dumps(10**5000),
    "a frame that is longer than the file": b"\x80\x04\x95" + (1 << 60).to_bytes(8, "little") + b"N.",
    "numbers that collide as keys": pickle.dumps({(1 << 61) - 1 << 64: 1}),
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS)
def test_a_small_pickle_takes_little_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(plain_pickle.PlainPickleError):
            plain_pickle.loads(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_copies_of_copies_do_not_fill_the_memory() -> None:
    copies = b"\x80\x02]q\x00(" + b"K\x01" * 10_000 + b"e" + b"ctorch.jit._pickle\nbuild_intlist\nh\x00\x85R" * 2000
    tracemalloc.start()
    try:
        assert plain_pickle.loads(copies + b".") == [1] * 10_000
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(_PLAIN, st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_plain_values_are_read_as_they_were(value: Any, protocol: int) -> None:
    assert plain_pickle.loads(pickle.dumps(value, protocol=protocol)) == value


_OPCODES = [opcode.code.encode("latin-1") for opcode in pickletools.opcodes]


@given(st.lists(st.sampled_from(_OPCODES) | st.binary(min_size=1, max_size=9), max_size=60))
def test_no_opcodes_run_anything_or_make_the_reader_fall(parts: list[bytes]) -> None:
    with contextlib.suppress(plain_pickle.PlainPickleError):
        plain_pickle.loads(b"\x80\x02" + b"".join(parts) + b".")


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fall(data: bytes) -> None:
    with contextlib.suppress(plain_pickle.PlainPickleError):
        plain_pickle.loads(b"\x80\x02" + data)


@given(st.integers(0, 2600), st.binary(min_size=1, max_size=4))
def test_a_damaged_dump_is_refused_or_read(at: int, noise: bytes) -> None:
    whole = (MESH / "skip-eager" / "nccl_trace_rank_0").read_bytes()
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        flight_recorder.read("nccl_trace_rank_0", whole[:at] + noise + whole[at + len(noise) :])


def test_typed_lists_of_torch_are_lists() -> None:
    data = b"\x80\x02ctorch.jit._pickle\nbuild_intlist\n(]q\x00(K\x01K\x02etR."
    assert plain_pickle.loads(data) == [1, 2]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_12", 12),
        ("a/b3/nccl_trace_rank_0.json", 0),
        ("dump-rank7.pickle", 7),
        ("comm_lib_trace_rank_5", 5),
        ("dump", None),
    ],
)
def test_the_rank_is_in_the_name(name: str, rank: int | None) -> None:
    data = json.dumps({"version": "2.4", "pg_config": {}, "pg_status": {}, "entries": []}).encode()
    assert flight_recorder.recognises(name, data)
    assert flight_recorder.read(name, data).rank == rank


def test_early_versions_have_other_fields() -> None:
    call = {"record_id": 3, "pg_id": 2, "seq_id": 7, "profiling_name": "nccl:all_reduce", "input_sizes": ((8,),)}
    data = pickle.dumps({"version": "2.0", "entries": [call]}, protocol=2)
    assert flight_recorder.recognises("x", data)
    read = flight_recorder.read("nccl_trace_rank_1", data)
    assert [(c.group, c.seq, c.inputs, c.state) for c in read.calls["2"]] == [("2", 7, (8,), "scheduled")]


def test_calls_of_a_batch_are_over_when_the_batch_is() -> None:
    calls = [
        entry(1, "0", 1, "send 0->1", "scheduled"),
        entry(2, "0", 1, "recv 0<-1", "scheduled"),
        entry(3, "0", 1, "coalesced", is_p2p=True, collective_seq_id=0, p2p_seq_id=1),
    ]
    assert [call.state for call in dump(0, calls, {"0": [0, 1]}).calls["0"]] == ["completed"] * 2


def test_a_batch_of_early_versions_is_no_p2p() -> None:
    calls = [
        entry(1, "0", 1, "send 0->1", "scheduled"),
        entry(2, "0", 0, "coalesced", p2p_seq_id=1, input_sizes=[], output_sizes=[]),
    ]
    assert not dump(0, calls, {"0": [0, 1]}).pending("0")


def test_calls_of_a_batch_of_one_operation_are_over_when_the_batch_is() -> None:
    """all_gather of tensors of different sizes makes one broadcast for each rank."""
    calls = [
        *(entry(order, "0", 1, "_broadcast_oop", "scheduled") for order in (1, 2)),
        entry(3, "0", 1, "ALLGATHER_coalesced", input_sizes=[], output_sizes=[]),
        entry(4, "0", 2, "all_reduce", "started"),
    ]
    assert [call.order for call in dump(0, calls, {"0": [0, 1]}).pending("0")] == [3]


def test_what_comes_before_a_call_that_is_over_is_over() -> None:
    """The recorder does not see the end of what is captured in a CUDA graph."""
    calls = [
        entry(1, "0", 1, "all_gather_into_tensor_coalesced", "scheduled"),
        entry(2, "0", 1, "send 0->1", "scheduled"),
        entry(3, "0", 2, "recv 0<-2", "scheduled"),
        entry(4, "0", 2, "all_reduce"),
        entry(5, "0", 3, "recv 0<-1"),
    ]
    assert [call.order for call in dump(0, calls, {"0": [0, 1, 2]}).pending("0")] == [2]


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


WORLD = {"w": [0, 1, 2, 3], "a": [0, 1], "b": [2, 3]}
DONE = entry(1, "w", 1, "all_reduce")


def stands(*calls: list[dict[str, Any]]) -> list[standstill.Standstill]:
    return standstill.of(dump(rank, [DONE, *more], WORLD) for rank, more in enumerate(calls))


def told(still: standstill.Standstill) -> tuple[str, str, int, list[int], list[int]]:
    return (
        still.kind,
        still.group.name,
        still.seq,
        [part.rank for part in still.culprits],
        [part.rank for part in still.waiting],
    )


def test_the_rank_that_did_not_come_is_named_and_not_those_that_wait_elsewhere() -> None:
    """Rank 3 is away; 2 waits for it in its group, 0 and 1 wait for both in the world."""
    world = [entry(2, "w", 2, "all_reduce", "scheduled")]
    found = stands(world, world, [entry(2, "b", 1, "broadcast", "scheduled")], [])
    assert [told(still) for still in found] == [(causes.MISSING, "w", 2, [3], [0, 1])]


def test_a_chain_over_groups_leads_to_its_end() -> None:
    """Rank 0 waits for 1 in a, which waits for 3 in the world, as does 2."""
    world = [entry(2, "w", 2, "all_reduce", "scheduled")]
    found = stands([entry(2, "a", 1, "all_reduce", "scheduled")], world, world, [])
    assert [told(still) for still in found] == [(causes.MISSING, "w", 2, [3], [1, 2])]


def test_ranks_that_wait_for_each_other_are_a_cycle() -> None:
    first, second = entry(2, "a", 1, "all_reduce", "scheduled"), entry(2, "w", 2, "all_reduce", "scheduled")
    found = stands([first], [second], [second], [second])
    assert [(still.kind, {part.rank for part in still.culprits}) for still in found] == [(causes.CYCLE, {0, 1})]


def test_calls_that_differ_are_named_by_the_few() -> None:
    usual = [entry(2, "w", 2, "all_reduce", "scheduled")]
    odd = [entry(2, "w", 2, "all_reduce", "scheduled", input_sizes=[[16]])]
    found = stands(usual, usual, odd, usual)
    assert [told(still) for still in found] == [(causes.DIFFERENT, "w", 2, [2], [0, 1, 3])]


def test_a_call_that_some_finished_and_others_wait_in_the_next_one() -> None:
    odd = [entry(2, "w", 2, "all_reduce", input_sizes=[[1]]), entry(3, "w", 3, "all_reduce", "scheduled")]
    usual = [entry(2, "w", 2, "all_reduce", "scheduled")]
    found = stands(usual, usual, usual, odd)
    assert [told(still)[:4] for still in found] == [(causes.DIFFERENT, "w", 2, [3])]


def test_all_inside_one_call() -> None:
    inside = [entry(2, "w", 2, "all_reduce", "started")]
    assert [still.kind for still in stands(inside, inside, inside, inside)] == [causes.UNFINISHED]
    over = [entry(2, "w", 2, "all_reduce")]
    found = stands(inside, over, over, over)
    assert [told(still) for still in found] == [(causes.PARTLY, "w", 2, [0], [1, 2, 3])]


def test_who_did_not_come_as_it_stands_in_a_call_of_all_is_not_blamed() -> None:
    """2 and 3 are inside a call that both made; 0 and 1 wait for them."""
    inside, waiting = [entry(2, "b", 1, "all_reduce", "started")], [entry(2, "w", 2, "all_reduce", "scheduled")]
    found = stands(waiting, waiting, inside, inside)
    assert [told(still)[:4] for still in found] == [(causes.UNFINISHED, "b", 1, [2, 3])]


def test_a_send_without_a_partner() -> None:
    found = stands([entry(2, "w", 1, "send 0->3", "scheduled")], [], [], [])
    assert [told(still)[:4] for still in found] == [(causes.NO_PARTNER, "w", 1, [3])]


def test_a_transfer_that_both_sides_came_to_is_unfinished() -> None:
    send, receive = entry(2, "w", 1, "send 0->3", "scheduled"), entry(2, "w", 1, "recv 3<-0", "scheduled")
    found = stands([send], [], [], [receive])
    assert [told(still)[:4] for still in found] == [(causes.UNFINISHED, "w", 1, [0, 3])]
    other = stands([send], [], [], [{**receive, "input_sizes": [[4, 9]]}])
    assert [told(still)[:4] for still in other] == [(causes.DIFFERENT, "w", 1, [0, 3])]
    sent = stands([{**send, "state": "completed"}], [], [], [receive])
    assert [told(still) for still in sent] == [(causes.PARTLY, "w", 1, [3], [0])]


def test_both_send_first() -> None:
    found = stands([entry(2, "w", 1, "send 0->1", "scheduled")], [entry(2, "w", 1, "send 1->0", "scheduled")], [], [])
    assert [(still.kind, {part.rank for part in still.culprits}) for still in found] == [(causes.CYCLE, {0, 1})]


def test_a_rank_without_a_dump_is_silent() -> None:
    waiting = [DONE, entry(2, "w", 2, "all_reduce", "scheduled")]
    (still,) = standstill.of(dump(rank, waiting, WORLD) for rank in (0, 1, 3))
    assert (still.kind, still.culprits, still.silent) == (causes.MISSING, [], [2])


def beside(folder: Path, dumps: dict[int, list[dict[str, Any]]], ranks: str = "[0, 1, 2, 3]") -> Job:
    """A sound log with dumps of some ranks."""
    (log,) = sample_data.contents("v2.21.5-ipc")
    (folder / "job.log").write_bytes(log)
    for rank, entries in dumps.items():
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
        document = {"version": "2.10", "comm_lib_version": "2.21.5", "pg_config": config, "entries": entries}
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document, protocol=2))
    return nccl_inspect.read(folder)


@pytest.mark.parametrize("behind", ["all in a call", "one behind"])
def test_dumps_that_were_written_while_ranks_made_calls_blame_nobody(behind: str, tmp_path: Path) -> None:
    now = time.time_ns()
    made = [entry(1, "0", 1, "all_reduce", time_created_ns=now - 10**7)]
    inside = [*made, entry(2, "0", 2, "all_reduce", "started", time_created_ns=now)]
    dumps = dict.fromkeys(range(4), inside) | ({3: made} if behind == "one behind" else {})
    sound = beside(tmp_path, {}).verdict
    job = beside(tmp_path, dumps)
    assert (job.verdict, [finding.rule for finding in job.findings if finding.fatal]) == (sound, [])
    assert any("while the job was running" in question.reason for question in job.not_judged)
    for rank in dumps:
        os.utime(tmp_path / f"nccl_trace_rank_{rank}", (now / 1e9 + 600,) * 2)
    assert nccl_inspect.read(tmp_path).verdict == "failed"


def test_ranks_whose_dumps_may_only_not_be_here_do_not_make_a_job_failed(tmp_path: Path) -> None:
    waiting = [entry(1, "0", 1, "all_reduce"), entry(2, "0", 2, "all_reduce", "scheduled")]
    assert beside(tmp_path, {0: waiting}).verdict == "unknown"
    assert beside(tmp_path, dict.fromkeys((0, 1, 3), waiting)).verdict == "failed"


def test_dumps_of_a_running_job_say_nothing() -> None:
    assert not stands([], [], [], [])


@given(st.data())
def test_healthy_prefixes_never_show_a_mismatch(data: st.DataObject) -> None:
    """Ranks of one program, each stopped somewhere: some are behind, none called something else."""
    program = [("w", 1), ("a", 1), ("w", 2), ("b", 1), ("w", 3)]
    dumps = []
    for rank in range(4):
        made = [call for call in program if rank in WORLD[call[0]]]
        reached, waits = data.draw(st.tuples(st.integers(0, len(made)), st.booleans()))
        calls = [entry(order, *call, "all_reduce") for order, call in enumerate(made[:reached], 1)]
        if calls and waits:
            calls[-1]["state"] = "scheduled"
        dumps.append(dump(rank, calls, WORLD))
    assert all(still.kind != causes.DIFFERENT for still in standstill.of(dumps))


def test_a_thousand_ranks_are_compared_by_their_groups() -> None:
    """A mesh of 8 x 128: rank 517 is away; who waits for it in its two groups and in the world is told once."""
    dumps = []
    for rank in range(1024):
        tp, dp = f"tp{rank // 8}", f"dp{rank % 8}"
        groups = {
            "world": list(range(1024)),
            tp: [rank // 8 * 8 + place for place in range(8)],
            dp: list(range(rank % 8, 1024, 8)),
        }
        calls = [entry(1, tp, 1, "all_reduce"), entry(2, dp, 1, "all_reduce"), entry(3, "world", 1, "all_reduce")]
        if rank != 517:
            same_tp, same_dp = rank // 8 == 517 // 8, rank % 8 == 517 % 8
            calls.append(entry(4, tp, 2, "all_reduce", "scheduled" if same_tp else "completed"))
            if not same_tp:
                calls.append(entry(5, dp, 2, "all_reduce", "scheduled" if same_dp else "completed"))
                if not same_dp:
                    calls.append(entry(6, "world", 2, "all_reduce", "scheduled"))
        dumps.append(dump(rank, calls, groups))
    found = standstill.of(dumps)
    assert [[part.rank for part in still.culprits] for still in found] == [[517]]


TEXT = """\
NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 4711 on node 192.0.2.7 managing GPU 3

#0-0 (00ab) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 3 -- GPU 3 (NVML 7) managed by process 4711 on node 192.0.2.7

Warnings
========

#1-2 (cafe) MISMATCH
  Communicator ranks have different AllReduce operation counts
  6 ranks have launched up to operation 12
  Rank 4 has launched up to operation 9 -- GPU 4 managed by process 14 on node 192.0.2.8
  2 ranks have not launched any operations
  Rank 6 -- GPU 6 managed by process 16 on node 192.0.2.8
  Rank 7 -- [process information not found]

"""


def test_an_answer_as_text() -> None:
    assert ras.recognises("x", TEXT.encode())
    answer = ras.read("x", TEXT.encode())
    assert answer.nccl_version == "2.27.5"
    assert [(lost.host, lost.pid, lost.is_dead, lost.rank) for lost in answer.lost] == [
        ("192.0.2.7", 4711, True, None),
        ("192.0.2.7", 4711, False, 3),
    ]
    (mismatch,) = answer.mismatches
    assert (mismatch.comm_id, mismatch.operation, mismatch.usual) == ("0xcafe", "AllReduce", 12)
    assert [(member.rank, member.launched) for member in mismatch.behind] == [(4, 9), (6, 0), (7, 0)]


def test_an_answer_that_lacks_a_comma_is_read() -> None:
    answer = ras.read("ras.json", (MESH / "sigstop-eager" / "ras.json").read_bytes())
    assert [lost.rank for lost in answer.lost] == [1, 1]


@pytest.mark.parametrize("form", ["text", "json"])
def test_both_forms_say_the_same(form: str) -> None:
    answer = ras.read(form, (MESH / "loop-eager" / f"ras.{form}").read_bytes())
    assert {member.rank for mismatch in answer.mismatches for member in mismatch.behind} == {1}


@pytest.mark.parametrize("key", ["rank", "pid", "cuda_dev", "collective_counts", "size", "host"])
@pytest.mark.parametrize("value", ["x", -1, [], {"AllReduce": "7"}, 1.5])
def test_an_answer_of_other_types_stops_nobody(key: str, value: Any, tmp_path: Path) -> None:
    def changed(found: dict[str, Any]) -> dict[str, Any]:
        return {**found, key: value} if key in found else found

    document = json.loads((MESH / "loop-eager" / "ras.json").read_bytes(), object_hook=changed)
    (tmp_path / "ras.json").write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "job.log").write_bytes(LOG)
    (found,) = nccl_inspect.read(str(tmp_path)).artifacts
    assert found.kind == ras.KIND
    assert found.value or (found.problem or "").startswith("damaged: ")


def test_evidence_is_told_from_logs(tmp_path: Path) -> None:
    for name in ("nccl_trace_rank_0", "ras.json", "ras.text"):
        (tmp_path / name).write_bytes((MESH / "loop-eager" / name).read_bytes())
    (tmp_path / "job.log").write_bytes(LOG)
    (tmp_path / "settings.json").write_text("{}", encoding="utf-8")
    logs, beside = artifacts.parted(str(tmp_path))
    assert [Path(file.name).name for file in logs] == ["job.log"]
    assert sorted(Path(artifact.name).name for artifact in beside) == ["nccl_trace_rank_0", "ras.json", "ras.text"]


def test_a_log_of_nccl_needs_no_reader_of_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.log").write_bytes(LOG)
    monkeypatch.setattr(artifacts, "kinds", pytest.fail)
    logs, beside = artifacts.parted(str(tmp_path / "job.log"))
    assert ([Path(log.name).name for log in logs], beside) == (["job.log"], [])


def test_folders_are_gone_through_once_for_all_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = (ROOT / "sample_logs" / "v2.30.7-shm-4gpu" / "job.log").read_bytes()
    for number in range(6):
        folder = tmp_path / f"job{number}"
        folder.mkdir()
        (folder / "job.log").write_bytes(re.sub(rb"commId 0x.", b"commId 0x%d" % (number + 1), world))
    recorded = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": []}
    (tmp_path / "job3" / "nccl_trace_rank_0").write_bytes(pickle.dumps(recorded, protocol=2))
    calls: list[int] = []
    folders = joining.folders

    def counted(jobs: Any) -> Any:
        calls.append(len(jobs))
        return folders(jobs)

    monkeypatch.setattr(joining, "folders", counted)
    job = nccl_inspect.read(str(tmp_path), job="job3")
    assert calls == [6]
    assert [Path(artifact.name).parent.name for artifact in job.artifacts] == ["job3"]
    assert nccl_inspect.read(str(tmp_path), job="job2").artifacts == []


def test_who_waits_in_calls_that_differ_is_no_cause_elsewhere() -> None:
    groups = {"tp0": [0, 1, 2], "tp1": [3, 4, 5], **{f"dp{rank}": [rank, rank + 3] for rank in range(3)}}
    dumps = [
        dump(rank, [entry(1, "tp0", 1, "all_reduce"), entry(2, f"dp{rank}", 1, "all_reduce", "started")], groups)
        for rank in range(3)
    ]
    dumps += [
        dump(rank, [entry(1, "tp1", 1, "all_reduce", "started", input_sizes=[[4, 8 + (rank == 4)]])], groups)
        for rank in range(3, 6)
    ]
    (found,) = standstill.of(dumps)
    assert (found.kind, [part.rank for part in found.culprits]) == (causes.DIFFERENT, [4])


SAYS = """\
NCCL version 2.26.2 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

Errors
======

#0-0 (00ab) ERROR
  Initialization error on 1 rank
  Rank 5 reported Internal error -- [process information not found]
  Asynchronous errors on 3 ranks
  2 ranks reported Remote process error
  Rank 0 -- GPU 0 managed by process 10 on node 192.0.2.7
  Rank 1 -- [process information not found]
  Rank 2 reported System error -- GPU 2 (NVML 6) managed by process 12 on node fd00::7

Warnings
========

#0-0 (00ab) MISMATCH
  Communicator ranks have different status
  60 ranks have status RUNNING
  2 ranks have status NOCOMM
  Rank 3 -- GPU 3 managed by process 13 on node 192.0.2.7
  Rank 4 -- GPU 4 managed by process 14 on node 192.0.2.7
  Rank 6 has status ABORT -- GPU 6 managed by process 16 on node 192.0.2.7
  Communicator ranks have different AllReduce operation counts
  2 ranks have launched up to operation 12
  Rank 1 has launched up to operation 9 -- GPU 1 managed by process 11 on node 192.0.2.7

"""


def test_what_ranks_report_and_how_they_differ_as_text() -> None:
    answer = ras.read("x", SAYS.encode())
    assert [(one.stage, one.what, [member.rank for member in one.members]) for one in answer.errors] == [
        ("Initialization", "Internal error", [5]),
        ("Asynchronous", "Remote process error", [0, 1]),
        ("Asynchronous", "System error", [2]),
    ]
    assert answer.errors[2].members[0].host == "fd00::7"
    assert [(one.what, one.count, [member.rank for member in one.members]) for one in answer.states] == [
        ("RUNNING", 60, []),
        ("NOCOMM", 2, [3, 4]),
        ("ABORT", 1, [6]),
    ]
    assert SAYS.splitlines()[answer.states[1].line - 1] == "  2 ranks have status NOCOMM"
    assert [member.rank for mismatch in answer.mismatches for member in mismatch.behind] == [1]


def test_what_ranks_report_and_how_they_differ_as_json() -> None:
    def rank(number: int, **status: Any) -> dict[str, Any]:
        return {"rank": number, "host": "192.0.2.7", "pid": 10 + number, "cuda_dev": number, "status": status}

    comm = {
        "hash": "0xab",
        "size": 5,
        "ranks": [
            rank(0, init_state=0, async_error=6),
            rank(1, init_state=0, async_error=2),
            rank(2, init_state=0, async_error=7, abort_flag=True),
        ],
        "missing_ranks": [rank(3, unresponsive=False, considered_dead=False), rank(4, unresponsive=True)],
    }
    document = {"nccl_version": "2.30.3", "communicators_count": 1, "communicators": [comm]}
    answer = ras.read("x", json.dumps(document).encode())
    assert [(one.what, [member.rank for member in one.members]) for one in answer.errors] == [
        ("System error", [1]),
        ("Remote process error", [0]),
    ]
    assert {one.what: [member.rank for member in one.members] for one in answer.states} == {
        "RUNNING": [0, 1],
        "ABORT": [2],
        "NOCOMM": [3],
    }
    assert [lost.rank for lost in answer.lost] == [4]


def test_a_dump_that_breaks_off_is_named_so() -> None:
    whole = (MESH / "loop-eager" / "nccl_trace_rank_0").read_bytes()
    with pytest.raises(ValueError, match="it breaks off"):
        flight_recorder.read("nccl_trace_rank_0", whole[: len(whole) // 2])
