"""Flight recorder dumps: fields of all versions, calls that are over, and dumps whose age says what they prove."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import pickle
import pickletools
import random
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from call_count import calls
from dumps import DONE, LOG, MESH, beside, dump, entry
from hypothesis import given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import flight_recorder, plain_pickle, standstill, stragglers
from nccl_inspect.artifacts.flight_recorder import Call, Dump
from nccl_inspect.model.job import Job


def test_the_rank_is_in_the_name() -> None:
    data = json.dumps({"version": "2.4", "pg_config": {}, "pg_status": {}, "entries": []}).encode()
    names: dict[str, int | None] = {
        "nccl_trace_rank_12": 12,
        "a/b3/nccl_trace_rank_0.json": 0,
        "dump-rank7.pickle": 7,
        "comm_lib_trace_rank_5": 5,
        "run-4711/dump_job4711_3": 3,
        "12": 12,
        "dump-rank7.1": None,
        "dump_rank_7-1130": None,
        "dump": None,
    }
    assert artifacts.kind_of(data) is flight_recorder.KIND
    assert {name: flight_recorder.read(name, data).rank for name in names} == names


def test_a_number_behind_a_rank_or_beyond_the_ranks_is_no_rank() -> None:
    group = {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}
    data = json.dumps({"version": "2.4", "pg_config": {"0": group}, "entries": []}).encode()
    names: dict[str, int | None] = {"fr_3": 3, "fr_job-12_2": 2, "rank3.1": None, "dump.4012": None, "rank1.2024": None}
    assert {name: flight_recorder.read(name, data).rank for name in names} == names


def test_early_versions_have_other_fields() -> None:
    call = {"record_id": 3, "pg_id": 2, "seq_id": 7, "profiling_name": "nccl:all_reduce", "input_sizes": ((8,),)}
    data = pickle.dumps({"version": "2.0", "entries": [call]}, protocol=2)
    assert artifacts.kind_of(data) is flight_recorder.KIND
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
    """Dumps name no process and no communicator: where no line has a date, the log was written when they were."""
    made = [entry(1, "0", 1, "all_reduce", time_created_ns=(NOW - 1) * SECOND)]
    waits = [*made, entry(2, "0", 2, "all_reduce", "started", time_created_ns=NOW * SECOND)]
    beside(tmp_path, {0: waits, 1: waits, 2: waits, 3: made})
    said = {}
    for days in (0, 9, -9):
        os.utime(tmp_path / "job.log", (NOW + days * 86_400, NOW + days * 86_400))
        job = nccl_inspect.read(tmp_path)
        said[days] = (job.verdict, job.findings[0].rule, job.findings[0].confidence)
    found = "collective-not-called"
    assert said == dict.fromkeys((9, -9), ("unknown", found, "possible")) | {0: ("failed", found, "certain")}


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


# --- Pickled dumps: read without running anything, whatever they ask for


class Hostile:
    """Asks whoever reads its pickle to run something."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


HOSTILE = (
    Hostile(os.system, "touch /tmp/never"),
    Hostile(eval, "1"),
    Hostile(getattr, "", "join"),
    {"entries": [Hostile(exec, "")]},
    datetime.timedelta(1),
    Path("x"),
    io.BytesIO(b"x"),
)


def test_a_pickle_that_asks_for_anything_is_refused() -> None:
    for value in HOSTILE:
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(plain_pickle.PlainPickleError, match="asks for"):
                plain_pickle.loads(pickle.dumps(value, protocol=protocol))


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


COPIES = b"\x80\x02]q\x00(" + b"K\x01" * 10_000 + b"e" + b"ctorch.jit._pickle\nbuild_intlist\nh\x00\x85R" * 2000


def test_a_small_pickle_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        for name, data in BOMBS.items():
            tracemalloc.reset_peak()
            with pytest.raises(plain_pickle.PlainPickleError):
                plain_pickle.loads(data)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20, name
        assert plain_pickle.loads(COPIES + b".") == [1] * 10_000
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


@given(st.lists(st.sampled_from(_OPCODES) | st.binary(min_size=1, max_size=300), max_size=60))
def test_no_opcodes_run_anything_or_make_the_reader_fall(parts: list[bytes]) -> None:
    with contextlib.suppress(plain_pickle.PlainPickleError):
        plain_pickle.loads(b"\x80\x02" + b"".join(parts) + b".")


@given(st.integers(0, 2600), st.binary(min_size=1, max_size=4))
def test_a_damaged_dump_is_refused_or_read(at: int, noise: bytes) -> None:
    whole = (MESH / "skip-eager" / "nccl_trace_rank_0").read_bytes()
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        flight_recorder.read("nccl_trace_rank_0", whole[:at] + noise + whole[at + len(noise) :])


def test_a_dump_that_breaks_off_is_named_so() -> None:
    whole = (MESH / "loop-eager" / "nccl_trace_rank_0").read_bytes()
    with pytest.raises(ValueError, match="it breaks off"):
        flight_recorder.read("nccl_trace_rank_0", whole[: len(whole) // 2])


# --- Where ranks stand still by the dumps of all of them; who is named is in `tests/labels/built_artifacts.toml`

Calls = list[dict[str, Any]]
WORLD = {"w": [0, 1, 2, 3], "a": [0, 1], "b": [2, 3]}
WAITS = [entry(2, "w", 2, "all_reduce", "scheduled")]


def test_ranks_without_dumps_and_those_that_the_log_calls_busy() -> None:
    def find_standstill(ranks: dict[int, Calls], busy: list[int]) -> list[tuple[list[int], list[int]]]:
        dumps = [dump(rank, [DONE, *made], WORLD) for rank, made in ranks.items()]
        return [
            ([part.rank for part in one.culprits], one.silent) for one in standstill.find_standstills(dumps, busy=busy)
        ]

    assert find_standstill({0: WAITS, 1: WAITS, 3: WAITS}, []) == [([], [2])], "a rank without a dump is silent"
    alone: dict[int, Calls] = {0: [], 1: WAITS, 2: [], 3: []}
    assert [find_standstill(alone, busy)[0][0] for busy in ([], [0, 2], [0, 2, 3])] == [[0, 2, 3], [3], [0, 2, 3]]
    # Ranks 2 and 3 wrote no dump; one of them, or both, timed out in a call of their own.
    assert find_standstill({0: WAITS, 1: WAITS}, [2]) == [([], [3])]
    assert find_standstill({0: WAITS, 1: WAITS}, [2, 3]) == []
    assert find_standstill({0: [], 1: WAITS, 2: WAITS}, [0]) == [([], [3])], "who waits elsewhere is not blamed"


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
    assert all(still.kind != artifacts.DIFFERENT for still in standstill.find_standstills(dumps))


def test_the_number_of_a_group_in_its_process_is_no_name() -> None:
    """PyTorch 2.3 (version 2.0) names groups by such numbers: those of two ranks may be of different groups."""
    for number, expected in ((0, [artifacts.DIFFERENT]), (1, [])):
        dumps = []
        for rank, name in enumerate(("nccl:all_reduce", "nccl:broadcast")):
            made = {"id": 0, "pg_id": number, "seq_id": 1, "profiling_name": name, "state": "scheduled"}
            document = {"version": "2.0", "nccl_version": "2.20.5", "entries": [made]}
            dumps.append(flight_recorder.read(f"trace_{rank}", pickle.dumps(document, protocol=2)))
        assert [still.kind for still in standstill.find_standstills(dumps)] == expected


def test_a_group_that_one_rank_does_not_list_is_that_of_the_others() -> None:
    dumps = [dump(rank, [DONE, *WAITS], WORLD if rank < 3 else {}) for rank in range(4)]
    assert [(still.kind, len(still.culprits)) for still in standstill.find_standstills(dumps)] == [
        (artifacts.UNFINISHED, 4)
    ]


def pairs(size: int) -> Iterator[Dump]:
    """Yield dumps of pairs of ranks that made different calls, each pair under a number of its own."""
    for rank in range(size):
        name = f"t{rank // 2}"
        group = flight_recorder.Group(name=name, desc="tp", ranks=(rank // 2 * 2, rank // 2 * 2 + 1))
        operation = ("all_reduce", "broadcast")[rank % 2]
        made = Call(name, 1, rank // 2, operation, "started", False, (4,), (4,), ("Float",), 0, "")
        yield Dump(calls={name: [made]}, last=made, rank=rank, groups={name: group})


def ring(size: int) -> Iterator[Dump]:
    """Yield dumps of ranks each of which waits for the next one, and of as many that made calls of all these groups."""
    for rank in range(2 * size):
        near = (rank, (rank - 1) % size) if rank < size else range(0, size, size // 16)
        ranks = {first: (first, (first + 1) % size) if rank < size else (rank,) for first in near}
        groups = {
            name: flight_recorder.Group(name=name, desc=f"{first}", ranks=ranks[first])
            for first, name in ((first, f"g{rank // size}-{first}") for first in ranks)
        }
        state = "started" if rank < size else "completed"
        numbers = range(1, 2 if rank < size else 17)
        made = {
            name: [Call(name, at, at, "all_reduce", state, False, (4,), (4,), ("Float",), 0, "") for at in numbers]
            for name in (groups if rank >= size else [*groups][:1])
        }
        yield Dump(calls=made, rank=rank, groups=groups)


@pytest.mark.slow
@pytest.mark.parametrize("dumps", [pairs, ring])
def test_work_is_linear_in_ranks(dumps: Callable[[int], Iterator[Dump]]) -> None:
    def work(size: int) -> int:
        some = list(dumps(size))
        return calls(lambda: standstill.find_standstills(some))

    assert work(512) < 5 * work(128)


@pytest.mark.slow
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
        made = [entry(1, tp, 1, "all_reduce"), entry(2, dp, 1, "all_reduce"), entry(3, "world", 1, "all_reduce")]
        if rank != 517:
            same_tp, same_dp = rank // 8 == 517 // 8, rank % 8 == 517 % 8
            made.append(entry(4, tp, 2, "all_reduce", "scheduled" if same_tp else "completed"))
            if not same_tp:
                made.append(entry(5, dp, 2, "all_reduce", "scheduled" if same_dp else "completed"))
                if not same_dp:
                    made.append(entry(6, "world", 2, "all_reduce", "scheduled"))
        dumps.append(dump(rank, made, groups))
    assert [[part.rank for part in still.culprits] for still in standstill.find_standstills(dumps)] == [[517]]


# --- Ranks that come last again and again, and healthy dumps in which nobody does

STEP_NS = 200_000_000


def dumps(size: int, duration: Callable[[int, int], float | None], calls: int = 40, skew_ns: int = 0) -> list[Dump]:
    """Return dumps of all ranks of one group, by how long each call took on each; clocks of hosts may differ."""

    def call(rank: int, seq: int) -> dict[str, Any]:
        measured = duration(rank, seq)
        took: dict[str, Any] = {} if measured is None else {"duration_ms": measured}
        return entry(seq, "0", seq, "all_reduce", time_created_ns=seq * STEP_NS + rank // 4 * skew_ns, **took)

    ranks = range(size)
    return [dump(rank, [call(rank, seq) for seq in range(1, calls + 1)], {"0": [*ranks]}) for rank in ranks]


def test_the_rank_for_which_all_wait_is_named_whatever_the_clocks() -> None:
    for skew in (0, 3_600_000_000_000, -7_000_000):
        late = dumps(8, lambda rank, seq: 3.0 if rank == 5 else 60.0 + seq % 5 + rank, skew_ns=skew)
        (found,) = stragglers.find_stragglers(late)
        assert (found.rank, found.late, found.compared) == (5, 39, 39)
        assert 0.25 < found.share < 0.35
        assert next(timed.rank for timed in found.calls) == 5
        assert found.calls[1].milliseconds > found.calls[0].milliseconds


def test_late_to_the_first_of_each_step_is_late() -> None:
    (found,) = stragglers.find_stragglers(dumps(4, lambda rank, seq: 4.0 if seq % 2 or rank == 2 else 90.0, calls=60))
    assert (found.rank, found.late) == (2, 30)


@given(st.integers(0, 1 << 30), st.sampled_from([2, 3, 8]))
def test_jitter_is_no_straggler(seed: int, size: int) -> None:
    generator = random.Random(seed)
    assert not stragglers.find_stragglers(dumps(size, lambda *_: generator.expovariate(1 / 20), calls=64))


def pipeline(receive: Mapping[str, object], slow: int | None = None) -> list[Dump]:
    """Return three stages: each receives from the one before, then all meet; a slow one works 50 ms longer."""
    made = []
    for rank in range(3):
        calls: list[dict[str, Any]] = []
        for step in range(1, 31):
            held = 40.0 * rank + (50.0 if slow is not None and rank > slow else 0.0)
            rest = 100.0 - 40.0 * rank + (50.0 if slow is not None and rank < slow else 0.0)
            if rank:
                about: dict[str, Any] = {"is_p2p": True, "collective_seq_id": step, "p2p_seq_id": step}
                made_of = {**about, "duration_ms": held, **receive}
                calls.append(entry(len(calls), "0", step, f"recv {rank}<-{rank - 1}", **made_of))
                if receive.get("batched"):
                    calls.append(entry(len(calls), "0", step, "coalesced", **about, duration_ms=held))
            at = step * STEP_NS
            calls.append(entry(len(calls), "0", step, "all_reduce", duration_ms=rest, time_created_ns=at))
        made.append(dump(rank, calls, {"0": [0, 1, 2]}))
    return made


def test_a_slow_stage_is_named_and_not_those_that_wait_for_it_nor_the_last_stage() -> None:
    for receive in ({}, {"duration_ms": None}, {"duration_ms": None, "batched": True}):
        assert not stragglers.find_stragglers(pipeline(receive)), receive
    for receive in ({}, {"duration_ms": None, "batched": True}):
        assert [found.rank for found in stragglers.find_stragglers(pipeline(receive, slow=1))] == [1], receive


def test_who_costs_little_or_is_late_in_turn_is_none_and_without_all_durations_nothing_is_said() -> None:
    assert not stragglers.find_stragglers(dumps(8, lambda rank, _: 0.02 if rank == 5 else 4.0))
    assert not stragglers.find_stragglers(dumps(8, lambda rank, seq: 3.0 if rank == (5 if seq % 2 else 1) else 60.0))
    assert not stragglers.find_stragglers(dumps(4, lambda *_: None))
    assert not stragglers.find_stragglers(dumps(8, lambda rank, _: 3.0 if rank == 5 else 60.0)[:7])
    assert not stragglers.find_stragglers(dumps(8, lambda rank, _: 3.0 if rank == 5 else 60.0, calls=15))


@pytest.mark.parametrize(
    ("day", "problem"),
    [(10, None), (13, "recorded 3 days after the log ended"), (7, "recorded 3 days before the log began")],
)
def test_dumps_of_another_day_are_refused(tmp_path: Path, day: int, problem: str | None) -> None:
    lines = (
        f"2026-03-10T10:00:00.000000Z n1:7{rank}:7{rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x1{rank} "
        f"rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank}0 commId 0x5 - Init {how}\n"
        for how in ("START", "COMPLETE")
        for rank in range(2)
    )
    (tmp_path / "job.log").write_text("".join(lines))
    made = int(datetime.datetime(2026, 3, day, 10, tzinfo=datetime.UTC).timestamp()) * 10**9
    call = {"record_id": 1, "process_group": ["0", "default_pg"], "collective_seq_id": 1, "time_created_ns": made}
    call |= {"profiling_name": "nccl:all_reduce", "input_sizes": [[8]], "state": "scheduled"}
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    for rank in range(2):
        recorded = {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": [call]}
        (tmp_path / f"nccl_trace_rank_{rank}").write_text(json.dumps(recorded))
    assert {artifact.problem for artifact in nccl_inspect.read(str(tmp_path)).artifacts} == {problem}
