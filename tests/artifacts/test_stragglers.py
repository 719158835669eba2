"""Ranks that come last again and again, and healthy dumps in which nobody does."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from dumps import dump, entry
from hypothesis import given
from hypothesis import strategies as st

from nccl_inspect.artifacts import stragglers
from nccl_inspect.artifacts.flight_recorder import Dump

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
