"""Where ranks stand still by the dumps of all of them.

Who is named, and when nobody is, is in `tests/labels/built_artifacts.toml` (`artifacts/standstill`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from call_count import calls
from dumps import DONE, dump, entry
from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect import artifacts
from nccl_inspect.artifacts import flight_recorder, standstill
from nccl_inspect.artifacts.flight_recorder import Call, Dump

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
