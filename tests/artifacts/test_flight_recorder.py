"""Flight recorder dumps: fields of all versions, and what the dumps of all ranks say together."""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from call_count import calls
from dumps import DONE, beside, dump, entry
from hypothesis import given
from hypothesis import strategies as st

import nccl_inspect
from nccl_inspect.artifacts import causes, flight_recorder, standstill
from nccl_inspect.artifacts.calls import Call, Recorded


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


EIGHT = {
    "0": list(range(8)),
    **{f"t{first}": [first, first + 1] for first in range(0, 8, 2)},
    **{f"d{first}": [first, first + 2] for first in (0, 1, 4, 5)},
}
"""A mesh: the world, pairs of tensor parallelism and pairs of data parallelism."""


def mesh(
    calls: dict[int, list[dict[str, Any]]],
    status: dict[int, Any] | None = None,
    descriptions: dict[str, str] | None = None,
) -> list[standstill.Standstill]:
    """What stands still in a mesh of eight ranks."""
    described = {"0": "default_pg", "t": "tp", "d": "dp"} | (descriptions or {})
    config = {name: {"name": name, "desc": described[name[0]], "ranks": str(ranks)} for name, ranks in EIGHT.items()}
    dumps = []
    for rank, entries in calls.items():
        document: dict[str, Any] = {"version": "2.10", "pg_config": config, "pg_status": (status or {}).get(rank, {})}
        document["entries"] = [{**DONE, "process_group": ["0", ""]}, *entries]
        dumps.append(flight_recorder.read(f"nccl_trace_rank_{rank}", pickle.dumps(document, protocol=2)))
    return standstill.of(dumps)


def tp(rank: int, state: str = "completed", order: int = 2, **more: Any) -> dict[str, Any]:
    return entry(order, f"t{rank // 2 * 2}", 1, "all_reduce", state, **more)


def dp(rank: int, state: str = "completed", order: int = 3) -> dict[str, Any]:
    return entry(order, f"d{rank if rank in EIGHT['0'][::4] + EIGHT['0'][1::4] else rank - 2}", 1, "all_reduce", state)


def world(order: int = 4) -> dict[str, Any]:
    return entry(order, "0", 2, "all_reduce", "scheduled")


def stuck(rank: int) -> list[dict[str, Any]]:
    """What a rank called of a step when rank 5 left out or changed its call of tp, and went to the call of all."""
    if rank == 4:
        return [tp(4, "scheduled"), dp(4, "scheduled"), world()]
    return [tp(rank), dp(rank, "scheduled" if rank in (6, 7) else "completed"), world()]


@pytest.mark.parametrize("size", [[[4, 8]], [[2, 8]]])
def test_what_follows_from_a_difference_is_no_cause_of_its_own(size: list[list[int]]) -> None:
    """Rank 7 waits for 5 in dp, 6 for 4, and all in the call of all ranks, which all made."""
    odd = [tp(5, input_sizes=size, input_dtypes=["Half"]), world(3)]
    (still,) = mesh({rank: odd if rank == 5 else stuck(rank) for rank in range(8)})
    assert told(still) == (causes.DIFFERENT, "t4", 1, [5], [4])
    assert still.peers == 6


def test_without_other_groups_to_compare_with_either_of_two_may_be_wrong() -> None:
    odd = [tp(5, input_sizes=[[2, 8]]), world(3)]
    first, *_ = mesh({4: stuck(4), 5: odd})
    assert told(first)[:4] == (causes.DIFFERENT, "t4", 1, [4, 5])


def test_a_rank_that_left_out_a_call_waits_in_a_ring_with_those_that_wait_for_it() -> None:
    left_out = {rank: [world(3)] if rank == 5 else stuck(rank) for rank in range(8)}
    (still,) = mesh(left_out)
    assert (still.kind, {part.rank for part in still.culprits}) == (causes.CYCLE, {4, 5})
    assert still.odd == [5]


def test_of_a_ring_the_rank_is_named_that_makes_the_calls_in_another_order() -> None:
    usual = {rank: [tp(rank, "scheduled" if rank == 4 else "completed"), world(3)] for rank in range(8)}
    (still,) = mesh(usual | {4: [tp(4, "scheduled")], 5: [world(2)]})
    assert (still.kind, {part.rank for part in still.culprits}) == (causes.CYCLE, {4, 5})
    assert still.odd == [5]


def test_a_rank_in_two_groups_with_one_description_does_not_show_the_order_of_calls() -> None:
    usual = {rank: [tp(rank, "scheduled" if rank == 4 else "completed"), world(3)] for rank in range(8)}
    twice = {rank: [*calls, entry(9, "d0", 1, "all_reduce")] for rank, calls in usual.items()}
    descriptions = {"d": "tp"}
    (still,) = mesh(twice | {4: [tp(4, "scheduled")], 5: [world(2)]}, descriptions=descriptions)
    assert (still.kind, still.odd) == (causes.CYCLE, [])
    (still,) = mesh(usual | {4: [tp(4, "scheduled")], 5: [world(2)]}, descriptions=descriptions)
    assert (still.kind, still.odd) == (causes.CYCLE, [5])


def pairs(size: int) -> Iterator[flight_recorder.Dump]:
    """Dumps of pairs of ranks that made different calls, each pair under a number of its own."""
    for rank in range(size):
        name = f"t{rank // 2}"
        group = flight_recorder.Group(name=name, desc="tp", ranks=(rank // 2 * 2, rank // 2 * 2 + 1))
        operation = ("all_reduce", "broadcast")[rank % 2]
        made = Call(name, 1, rank // 2, operation, "started", False, (4,), (4,), ("Float",), 0, "")
        yield flight_recorder.Dump("", "2.10", rank, None, {name: group}, Recorded({name: [made]}, made))


def ring(size: int) -> Iterator[flight_recorder.Dump]:
    """Dumps of ranks each of which waits for the next one, and of as many that made calls of all these groups."""
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
        yield flight_recorder.Dump("", "2.10", rank, None, groups, Recorded(made, None))


@pytest.mark.parametrize("dumps", [pairs, ring])
def test_work_is_linear_in_ranks(dumps: Callable[[int], Iterator[flight_recorder.Dump]]) -> None:
    def work(size: int) -> int:
        some = list(dumps(size))
        return calls(lambda: standstill.of(some))

    assert work(512) < 5 * work(128)


def test_ranks_without_dumps_are_named_once() -> None:
    """Each of them is missing in groups of its own, and both in the call of all."""
    (still,) = mesh({rank: stuck(rank) for rank in range(8) if rank not in (4, 5)})
    assert (still.kind, still.culprits, still.silent) == (causes.MISSING, [], [4, 5])


@pytest.mark.parametrize("queued", [4, 5])
def test_a_rank_that_stands_in_a_call_which_it_has_yet_to_queue_waits(queued: int) -> None:
    """NCCL connects the first send to a peer; CUDA calls over what was never begun."""
    send = entry(2, "0", 5, "send 0->5", retired=False)
    calls = {rank: [world(2)] for rank in range(8)} | {0: [send], 5: []}
    (still,) = mesh(calls, {0: {0: {"last_enqueued_collective": queued}}})
    culprits = [part.rank for part in still.culprits]
    assert culprits == ([5] if queued == 4 else [0, 5])
    assert [link.awaited for link in still.chain] == ([(5,)] if queued == 4 else [])


def test_a_rank_that_waits_outside_of_all_calls_is_not_blamed_for_others_that_wait_nowhere() -> None:
    dumps = [
        dump(rank, [DONE, *calls], WORLD)
        for rank, calls in enumerate(([], [entry(2, "w", 2, "all_reduce", "x")], [], []))
    ]
    assert [told(still)[3] for still in standstill.of(dumps)] == [[0, 2, 3]]
    assert [told(still)[3] for still in standstill.of(dumps, busy=[0, 2])] == [[3]]
    assert [told(still)[3] for still in standstill.of(dumps, busy=[0, 2, 3])] == [[0, 2, 3]]


def test_a_rank_without_a_dump_that_waits_by_the_log_is_not_blamed() -> None:
    """Ranks 2 and 3 wrote no dump; one of them, or both, timed out in a call of their own."""
    dumps = [dump(rank, [DONE, entry(2, "w", 2, "all_reduce", "scheduled")], WORLD) for rank in (0, 1)]
    assert [still.silent for still in standstill.of(dumps, busy=[2])] == [[3]]
    assert not standstill.of(dumps, busy=[2, 3])


def test_a_rank_that_waits_elsewhere_is_not_blamed_where_another_one_wrote_no_dump() -> None:
    waiting = [DONE, entry(2, "w", 2, "all_reduce", "scheduled")]
    dumps = [dump(rank, [DONE] if rank == 0 else waiting, WORLD) for rank in (0, 1, 2)]
    (still,) = standstill.of(dumps, busy=[0])
    assert (told(still)[3], still.silent) == ([], [3])
