"""Where ranks stand still by the dumps of all of them: who is named, who waits, and when nobody is."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from call_count import calls
from dumps import DONE, dump, entry
from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.artifacts import causes, flight_recorder, standstill
from nccl_inspect.artifacts.calls import Call, Recorded
from nccl_inspect.artifacts.flight_recorder import Dump

Calls = list[dict[str, Any]]
WORLD = {"w": [0, 1, 2, 3], "a": [0, 1], "b": [2, 3]}


def call(text: str, order: int = 2, **more: Any) -> dict[str, Any]:
    """``w 2`` is an all-reduce that waits, ``b 1 broadcast started`` one of another kind and state."""
    group, seq, *rest = text.split()
    name, state = (*rest, *("all_reduce", "scheduled")[len(rest) :])
    return entry(order, group, int(seq), name.replace("_to_", " "), state, **more)


WAITS = [call("w 2")]
OVER = [call("w 2 all_reduce completed")]
ODD = [call("w 2", input_sizes=[[16]])]
INSIDE = [call("w 2 all_reduce started")]
SEND, RECEIVE = call("w 1 send_to_0->3"), call("w 1 recv_to_3<-0")


def told(still: standstill.Standstill) -> str:
    culprits, waiting = (sorted(part.rank for part in parts) for parts in (still.culprits, still.waiting))
    return f"{still.kind} {culprits}, {still.group.name} {still.seq}, waiting {waiting}"


SITUATIONS: dict[str, tuple[list[Calls], list[str]]] = {
    "who did not come is named, and not those that wait elsewhere": (
        [WAITS, WAITS, [call("b 1 broadcast")], []],
        ["missing call [3], w 2, waiting [0, 1]"],
    ),
    "a chain over groups leads to its end": (
        [[call("a 1")], WAITS, WAITS, []],
        ["missing call [3], w 2, waiting [1, 2]"],
    ),
    "ranks that wait for each other are a cycle": ([[call("a 1")], WAITS, WAITS, WAITS], ["cycle [0, 1]"]),
    "both send first": ([[call("w 1 send_to_0->1")], [call("w 1 send_to_1->0")], [], []], ["cycle [0, 1]"]),
    "calls that differ are named by the few": (
        [WAITS, WAITS, ODD, WAITS],
        ["different calls [2], w 2, waiting [0, 1, 3]"],
    ),
    "some finished a call that differs and wait in the next one": (
        [WAITS, WAITS, WAITS, [call("w 2 all_reduce completed", input_sizes=[[1]]), call("w 3", 3)]],
        ["different calls [3], w 2"],
    ),
    "all are inside one call": ([INSIDE] * 4, ["unfinished [0, 1, 2, 3]"]),
    "a call that is over on some": ([INSIDE, OVER, OVER, OVER], ["partly finished [0], w 2, waiting [1, 2, 3]"]),
    "who stands in a call of all is not blamed for the next one": (
        [WAITS, WAITS, [call("b 1 all_reduce started")], [call("b 1 all_reduce started")]],
        ["unfinished [2, 3], b 1"],
    ),
    "a send without a partner": ([[SEND], [], [], []], ["no partner [3], w 1"]),
    "a transfer that both sides came to": ([[SEND], [], [], [RECEIVE]], ["unfinished [0, 3], w 1"]),
    "a transfer whose sides differ": (
        [[SEND], [], [], [{**RECEIVE, "input_sizes": [[4, 9]]}]],
        ["different calls [0, 3], w 1"],
    ),
    "a transfer that is over on one side": (
        [[{**SEND, "state": "completed"}], [], [], [RECEIVE]],
        ["partly finished [3], w 1, waiting [0]"],
    ),
    "dumps of a running job say nothing": ([[], [], [], []], []),
}


def test_who_is_named() -> None:
    wrong = []
    for name, (made, expected) in SITUATIONS.items():
        found = [*map(told, standstill.of(dump(rank, [DONE, *more], WORLD) for rank, more in enumerate(made)))]
        if len(found) != len(expected) or not all(map(str.startswith, found, expected)):
            wrong.append(f"{name}: {found}, wanted {expected}")
    assert not wrong, "\n".join(wrong)


def test_ranks_without_dumps_and_those_that_the_log_calls_busy() -> None:
    def found(ranks: dict[int, Calls], busy: list[int]) -> list[tuple[list[int], list[int]]]:
        dumps = [dump(rank, [DONE, *made], WORLD) for rank, made in ranks.items()]
        return [([part.rank for part in one.culprits], one.silent) for one in standstill.of(dumps, busy=busy)]

    assert found({0: WAITS, 1: WAITS, 3: WAITS}, []) == [([], [2])], "a rank without a dump is silent"
    alone: dict[int, Calls] = {0: [], 1: WAITS, 2: [], 3: []}
    assert [found(alone, busy)[0][0] for busy in ([], [0, 2], [0, 2, 3])] == [[0, 2, 3], [3], [0, 2, 3]]
    # Ranks 2 and 3 wrote no dump; one of them, or both, timed out in a call of their own.
    assert found({0: WAITS, 1: WAITS}, [2]) == [([], [3])]
    assert found({0: WAITS, 1: WAITS}, [2, 3]) == []
    assert found({0: [], 1: WAITS, 2: WAITS}, [0]) == [([], [3])], "who waits elsewhere is not blamed"


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


# --- a mesh: the world, pairs of tensor parallelism and pairs of data parallelism

EIGHT = {
    "0": list(range(8)),
    **{f"t{first}": [first, first + 1] for first in range(0, 8, 2)},
    **{f"d{first}": [first, first + 2] for first in (0, 1, 4, 5)},
}


def mesh(
    made: dict[int, Calls], status: dict[int, Any] | None = None, descriptions: dict[str, str] | None = None
) -> list[standstill.Standstill]:
    described = {"0": "default_pg", "t": "tp", "d": "dp"} | (descriptions or {})
    config = {name: {"name": name, "desc": described[name[0]], "ranks": str(ranks)} for name, ranks in EIGHT.items()}
    dumps = []
    for rank, entries in made.items():
        document: dict[str, Any] = {"version": "2.10", "pg_config": config, "pg_status": (status or {}).get(rank, {})}
        document["entries"] = [{**DONE, "process_group": ["0", ""]}, *entries]
        dumps.append(flight_recorder.read(f"nccl_trace_rank_{rank}", pickle.dumps(document, protocol=2)))
    return standstill.of(dumps)


def tp(rank: int, state: str = "completed", **more: Any) -> dict[str, Any]:
    return call(f"t{rank // 2 * 2} 1 all_reduce {state}", 2, **more)


def dp(rank: int, state: str = "completed") -> dict[str, Any]:
    return call(f"d{rank if rank in (0, 1, 4, 5) else rank - 2} 1 all_reduce {state}", 3)


def world(order: int = 4) -> dict[str, Any]:
    return call("0 2", order)


def stuck(rank: int) -> Calls:
    """What a rank called of a step when rank 5 left out or changed its call of tp, and went to the call of all."""
    if rank == 4:
        return [tp(4, "scheduled"), dp(4, "scheduled"), world()]
    return [tp(rank), dp(rank, "scheduled" if rank in (6, 7) else "completed"), world()]


STUCK = {rank: stuck(rank) for rank in range(8)}
USUAL = {rank: [tp(rank, "scheduled" if rank == 4 else "completed"), world(3)] for rank in range(8)}
RING = {4: [tp(4, "scheduled")], 5: [world(2)]}
"""Rank 4 waits for 5 in their pair, and 5 for 4 in the call of all."""


@pytest.mark.parametrize("size", [[[4, 8]], [[2, 8]]])
def test_what_follows_from_a_difference_is_no_cause_of_its_own(size: list[list[int]]) -> None:
    """Rank 7 waits for 5 in dp, 6 for 4, and all in the call of all ranks, which all made."""
    (still,) = mesh(STUCK | {5: [tp(5, input_sizes=size, input_dtypes=["Half"]), world(3)]})
    assert told(still) == "different calls [5], t4 1, waiting [4]"
    assert still.peers == 6


def test_without_other_groups_to_compare_with_either_of_two_may_be_wrong() -> None:
    first, *_ = mesh({4: stuck(4), 5: [tp(5, input_sizes=[[2, 8]]), world(3)]})
    assert told(first).startswith("different calls [4, 5], t4 1")


def test_of_a_ring_the_rank_is_named_that_left_out_a_call_or_makes_them_in_another_order() -> None:
    for made in (STUCK | {5: [world(3)]}, USUAL | RING):
        (still,) = mesh(made)
        assert told(still).startswith("cycle [4, 5]")
        assert still.odd == [5]


def test_a_rank_in_two_groups_with_one_description_does_not_show_the_order_of_calls() -> None:
    twice = {rank: [*made, entry(9, "d0", 1, "all_reduce")] for rank, made in USUAL.items()}
    for usual, odd in ((twice, []), (USUAL, [5])):
        (still,) = mesh(usual | RING, descriptions={"d": "tp"})
        assert (still.kind, still.odd) == (causes.CYCLE, odd)


def test_ranks_without_dumps_are_named_once() -> None:
    """Each of them is missing in groups of its own, and both in the call of all."""
    (still,) = mesh({rank: made for rank, made in STUCK.items() if rank not in (4, 5)})
    assert (still.kind, still.culprits, still.silent) == (causes.MISSING, [], [4, 5])


@pytest.mark.parametrize("queued", [4, 5])
def test_a_rank_that_stands_in_a_call_which_it_has_yet_to_queue_waits(queued: int) -> None:
    """NCCL connects the first send to a peer; CUDA calls over what was never begun."""
    send = entry(2, "0", 5, "send 0->5", retired=False)
    made: dict[int, Calls] = {rank: [world(2)] for rank in range(8)} | {0: [send], 5: []}
    (still,) = mesh(made, {0: {0: {"last_enqueued_collective": queued}}})
    culprits = [part.rank for part in still.culprits]
    assert culprits == ([5] if queued == 4 else [0, 5])
    assert [link.awaited for link in still.chain] == ([(5,)] if queued == 4 else [])


def test_who_waits_in_calls_that_differ_is_no_cause_elsewhere() -> None:
    groups = {"tp0": [0, 1, 2], "tp1": [3, 4, 5], **{f"dp{rank}": [rank, rank + 3] for rank in range(3)}}
    dumps = [
        dump(rank, [call("tp0 1 all_reduce completed", 1), call(f"dp{rank} 1 all_reduce started")], groups)
        for rank in range(3)
    ]
    dumps += [
        dump(rank, [call("tp1 1 all_reduce started", 1, input_sizes=[[4, 8 + (rank == 4)]])], groups)
        for rank in range(3, 6)
    ]
    (still,) = standstill.of(dumps)
    assert told(still).startswith("different calls [4]")


# --- dumps that do not tell whether a rank came blame nobody

ALL = {"w": [0, 1, 2, 3]}
LATER = [DONE, call("w 40", 40)]


def held(rank: int, entries: Calls, status: dict[str, Any] | None = None) -> Dump:
    """A dump with what PyTorch says of its groups besides the calls."""
    config = {"w": {"name": "w", "desc": "world", "ranks": "[0, 1, 2, 3]"}}
    document = {"version": "2.10", "pg_config": config, "pg_status": status or {}, "entries": entries}
    return flight_recorder.read(f"nccl_trace_rank_{rank}", pickle.dumps(document, protocol=2))


def beside_three(last: Dump, waiting: Calls = LATER) -> standstill.Standstill:
    (still,) = standstill.of([*(dump(rank, waiting, ALL) for rank in range(3)), last])
    return still


def test_a_call_that_may_have_been_overwritten_is_not_missing() -> None:
    other = [entry(500 + place, "x", 500 + place, "all_reduce", pg_id=1) for place in range(9)]
    still = beside_three(held(3, other))
    assert (still.kind, still.culprits, still.overwritten) == (causes.MISSING, [], [3])
    early = {**entry(500, "w", 39, "all_reduce"), "pg_id": 0}
    for put, says in (
        (40, "unfinished [0, 1, 2]"),
        (39, "missing call [3]"),
        ("40", "unfinished [0, 1, 2]"),
        ("39", "missing call [3]"),
    ):
        still = beside_three(held(3, [early, *other[1:]], {"0": {"last_enqueued_collective": put}}))
        assert told(still).startswith(says), f"the last call put into the queue is {put!r}"


def test_a_dump_that_lacks_what_others_finished_is_older() -> None:
    past = [entry(place, "w", place, "all_reduce") for place in range(1, 40)]
    still = beside_three(dump(3, past[:30], ALL), [*past, LATER[1]])
    assert (still.kind, still.culprits, still.older) == (causes.MISSING, [], [3])
    assert [part.rank for part in beside_three(dump(3, past, ALL), [*past, LATER[1]]).culprits] == [3]


def test_the_number_of_a_group_in_its_process_is_no_name() -> None:
    """PyTorch 2.3 (version 2.0) names groups by such numbers: those of two ranks may be of different groups."""
    for number, expected in ((0, [causes.DIFFERENT]), (1, [])):
        dumps = []
        for rank, name in enumerate(("nccl:all_reduce", "nccl:broadcast")):
            made = {"id": 0, "pg_id": number, "seq_id": 1, "profiling_name": name, "state": "scheduled"}
            document = {"version": "2.0", "nccl_version": "2.20.5", "entries": [made]}
            dumps.append(flight_recorder.read(f"trace_{rank}", pickle.dumps(document, protocol=2)))
        assert [still.kind for still in standstill.of(dumps)] == expected


def test_a_group_that_one_rank_does_not_list_is_that_of_the_others() -> None:
    assert told(beside_three(dump(3, LATER, {}))).startswith("unfinished [0, 1, 2, 3]")


# --- many ranks


def pairs(size: int) -> Iterator[Dump]:
    """Dumps of pairs of ranks that made different calls, each pair under a number of its own."""
    for rank in range(size):
        name = f"t{rank // 2}"
        group = flight_recorder.Group(name=name, desc="tp", ranks=(rank // 2 * 2, rank // 2 * 2 + 1))
        operation = ("all_reduce", "broadcast")[rank % 2]
        made = Call(name, 1, rank // 2, operation, "started", False, (4,), (4,), ("Float",), 0, "")
        yield Dump("", "2.10", rank, None, {name: group}, Recorded({name: [made]}, made))


def ring(size: int) -> Iterator[Dump]:
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
        yield Dump("", "2.10", rank, None, groups, Recorded(made, None))


@pytest.mark.slow
@pytest.mark.parametrize("dumps", [pairs, ring])
def test_work_is_linear_in_ranks(dumps: Callable[[int], Iterator[Dump]]) -> None:
    def work(size: int) -> int:
        some = list(dumps(size))
        return calls(lambda: standstill.of(some))

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
    assert [[part.rank for part in still.culprits] for still in standstill.of(dumps)] == [[517]]
