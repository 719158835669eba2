"""The progress table: what dumps and the watchdog's lines show together, on inputs that no recording has."""

from __future__ import annotations

from collections.abc import Iterator

from dumps import dump, entry

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts import standstill
from nccl_inspect.model.finding import Finding

Wait = tuple[int, str, int, str, int]
"""A rank, its process group, the number of its work, the operation and the number of elements."""


def _lines(waits: list[Wait]) -> Iterator[str]:
    for rank, group, seq, operation, numel in waits:
        work = f"WorkNCCL(SeqNum={seq}, OpType={operation}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=15000)"
        yield (
            f"[rank{rank}]:[E1123 10:53:05.723497024 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught "
            f"collective operation timeout: {work} ran for 15002 milliseconds before timing out."
        )
        yield (
            f"[rank{rank}]:[E1123 10:53:05.723647516 ProcessGroupNCCL.cpp:2303] [PG ID 1 PG GUID {group} Rank {rank}]  "
            f"failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last "
            f"completed work: {seq - 1}"
        )


def _judge(waits: list[Wait], cut: int = 0) -> dict[str, Finding]:
    log = "".join(f"{line}\n" for line in _lines(waits)).encode()
    return {finding.rule: finding for finding in nccl_inspect.read(log[: len(log) - cut]).findings}


def test_ranks_in_two_calls_of_a_group_whose_other_ranks_are_unknown() -> None:
    found = _judge([(2, "7(dp)", 9, "ALLREDUCE", 8), (6, "7(dp)", 10, "ALLREDUCE", 8)])["watchdog-timeout"]
    assert sorted(found.ranks) == [2, 6] and "began in process group 7(dp): rank 6 finished work 9" in found.cause


def test_who_is_two_calls_ahead_made_other_calls() -> None:
    waits = [(rank, "0(default_pg)", 12 if rank == 3 else 9, "ALLREDUCE", 8) for rank in range(4)]
    assert _judge(waits)["collective-mismatch"].ranks == [3]


def test_ranks_that_wait_in_one_call_of_an_unknown_group_blame_nobody() -> None:
    found = _judge([(2, "7(dp)", 9, "ALLREDUCE", 8), (6, "7(dp)", 9, "ALLREDUCE", 8)])
    assert [*found] == ["watchdog-timeout"] and "likely began" not in found["watchdog-timeout"].summary


def test_calls_of_one_number_differ_by_the_lines_alone() -> None:
    waits = [(rank, "3(tp)", 9, "BROADCAST" if rank == 1 else "ALLREDUCE", 8) for rank in range(3)]
    found = _judge(waits)["collective-mismatch"]
    assert found.ranks == [1] and "broadcast of 8 elements on rank 1" in found.summary


def test_a_batch_of_sends_is_no_other_call() -> None:
    waits = [(0, "3(tp)", 9, "COALESCED", 8), (1, "3(tp)", 9, "ALLREDUCE", 8)]
    assert "collective-mismatch" not in _judge(waits)


def test_a_line_that_is_cut_off_is_no_row() -> None:
    waits = [(rank, "3(tp)", 9, "ALLREDUCE", 16 if rank == 2 else 8) for rank in range(3)]
    cut = len("\n".join([*_lines(waits[2:]), ""])) - 150
    assert "collective-mismatch" in _judge(waits) and "collective-mismatch" not in _judge(waits, cut)


def test_who_waits_in_a_later_call_of_a_group_is_no_cause_elsewhere() -> None:
    groups = {"a": [0, 1], "w": [0, 1, 2]}
    calls = {
        0: [entry(1, "a", 1, "all_reduce", "started")],
        1: [entry(1, "a", 1, "all_reduce"), entry(2, "a", 2, "all_reduce", "started")],
        2: [entry(1, "w", 1, "all_reduce", "started")],
    }
    stills = standstill.find_standstills(dump(rank, some, groups) for rank, some in calls.items())
    assert [(still.kind, [part.rank for part in still.culprits]) for still in stills] == [(artifacts.PARTLY, [0])]


def test_ranks_that_are_ahead_of_each_other_in_two_groups_wait_for_each_other() -> None:
    waits = [(1, "12(g2)", 9, "ALLREDUCE", 8), (1, "11(g1)", 8, "ALLREDUCE", 8)]
    found = _judge([*waits, (3, "11(g1)", 9, "ALLREDUCE", 8), (3, "12(g2)", 8, "ALLREDUCE", 8)])["watchdog-timeout"]
    assert found.ranks == [1, 3]
    groups = {"a": [1, 3], "b": [1, 3]}
    calls = {}
    for rank, ahead, behind in ((1, "b", "a"), (3, "a", "b")):
        waiting = [entry(2, ahead, 9, "all_reduce", "started"), entry(3, behind, 8, "all_reduce", "started")]
        calls[rank] = [entry(1, ahead, 8, "all_reduce"), *waiting]
    (still,) = standstill.find_standstills(dump(rank, some, groups) for rank, some in calls.items())
    assert (still.kind, sorted(part.rank for part in still.culprits)) == (artifacts.CYCLE, [1, 3])


def test_who_alone_finished_a_sum_is_named_where_all_others_wait_in_it() -> None:
    waits = [(rank, "0(default_pg)", 9 if rank else 10, "ALLREDUCE", 8) for rank in range(4)]
    assert _judge(waits)["watchdog-timeout"].ranks == [0]
    gathers = [(rank, "0(default_pg)", 9 if rank else 10, "_ALLGATHER_BASE", 8) for rank in range(4)]
    assert "likely began with rank 0 " not in _judge(gathers)["watchdog-timeout"].summary + " "


def test_what_a_rank_reports_long_after_its_time_out_is_no_wait() -> None:
    waits = [(rank, "0(default_pg)", 9, "ALLREDUCE", 8) for rank in range(4)]
    late = [*_lines([(1, "7(dp)", 3, "ALLREDUCE", 8)])][1].replace("10:53:05", "10:54:05")
    log = "".join(f"{line}\n" for line in (*_lines(waits), late)).encode()
    found = next(one for one in nccl_inspect.read(log).findings if one.rule == "watchdog-timeout")
    assert "likely began" not in found.summary


def test_members_of_a_group_differ_where_no_line_names_a_rank_of_the_job() -> None:
    for odd in (("BROADCAST", 8), ("ALLREDUCE", 16)):
        lines = (line.partition("]:")[2] for line in _lines([(0, "5(tp)", 9, "ALLREDUCE", 8), (1, "5(tp)", 9, *odd)]))
        (found, *_) = nccl_inspect.read("".join(f"{line}\n" for line in lines).encode()).findings
        assert (found.rule, found.ranks) == ("collective-mismatch", []) and "on rank 1" in found.summary
