"""Where a hang began, by the time-outs of all process groups in the log."""

from __future__ import annotations

import pytest

import nccl_inspect
from nccl_inspect.model.finding import Finding

PAIRS = {"1(tp)": (0, 1), "2(tp)": (2, 3), "3(dp)": (0, 2), "4(dp)": (1, 3)}
WORLD = "0(default_pg)"


def log(*timeouts: tuple[int, str, int], enqueued: dict[int, int] | None = None) -> bytes:
    """A log of four ranks with pairs, and the calls in which ranks timed out: rank, group, number."""
    lines = []
    comms = {WORLD: (0, 1, 2, 3), **PAIRS}
    for number, ranks in enumerate(comms.values()):
        for phase in ("START", "COMPLETE"):
            lines += [
                f"host:{100 + rank}:{100 + rank} [{rank}] NCCL INFO ncclCommInitRankConfig comm 0x{number}{rank}0 rank "
                f"{place} nranks {len(ranks)} cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId "
                f"0x{number}a1b2c3 - Init {phase}"
                for place, rank in enumerate(ranks)
            ]
    for rank, group, seq in timeouts:
        place = comms[group].index(rank)
        head = f"[rank{rank}]:[E1123 10:53:05.723497024 ProcessGroupNCCL.cpp"
        lines += [
            f"{head}:689] [Rank {place}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
            "OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=15000) ran for 15002 milliseconds before timing out.",
            f"{head}:2303] [PG ID 0 PG GUID {group} Rank {place}]  failure detected by watchdog at work sequence id: "
            f"{seq} PG status: last enqueued work: {seq}, last completed work: {seq - 1}",
        ]
    for rank, last in (enqueued or {}).items():
        lines.append(
            f"[rank{rank}]:[E1123 10:53:10.5 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID {WORLD} Rank {rank}] Received "
            "a dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info. "
            f"Last enqueued NCCL work: {last}, last completed NCCL work: {last - 1}."
        )
    return "\n".join([*lines, ""]).encode()


def watchdog(*timeouts: tuple[int, str, int], enqueued: dict[int, int] | None = None) -> Finding:
    """What is said of these time-outs."""
    job = nccl_inspect.read(log(*timeouts, enqueued=enqueued))
    return next(finding for finding in job.findings if finding.rule == "watchdog-timeout")


def test_who_waits_nowhere_is_the_suspect() -> None:
    """Rank 0 waits for rank 1 in its pair, 2 and 3 for 0 and 1 in the call of all."""
    finding = watchdog((0, "1(tp)", 9), (2, WORLD, 5), (3, WORLD, 5))
    assert finding.ranks == [1]
    assert finding.summary.endswith("suspect: rank 1")


def test_who_waits_in_another_group_is_not() -> None:
    finding = watchdog((2, WORLD, 5), (3, WORLD, 5), (1, WORLD, 5), (0, "1(tp)", 9))
    assert "suspect" not in finding.summary
    assert "ranks 0-1, which wait for each other" in finding.cause or "process group 1(tp)" in finding.cause


def test_ranks_of_one_group_in_two_calls_made_different_ones() -> None:
    finding = watchdog((2, WORLD, 5), (3, WORLD, 5), (0, "1(tp)", 9), (1, "1(tp)", 10))
    assert "rank 1 finished work 9, in which rank 0 still waits" in finding.cause


@pytest.mark.parametrize("last", [4, 5])
def test_a_rank_that_made_the_call_is_no_suspect(last: int) -> None:
    """Its own time-out may not be in the log."""
    finding = watchdog((0, "1(tp)", 9), (2, WORLD, 5), enqueued={3: last})
    assert finding.ranks == ([1, 3] if last == 4 else [1])


def test_most_ranks_are_not_blamed_where_one_has_a_log() -> None:
    assert "suspect: ranks" not in watchdog((0, "1(tp)", 9)).summary


def test_ranks_that_wait_for_each_other_are_where_to_look_first() -> None:
    finding = watchdog((0, WORLD, 5), (2, WORLD, 5), (3, WORLD, 5), (0, "3(dp)", 9), (1, "1(tp)", 9))
    assert "suspect" not in finding.summary
    assert finding.summary.endswith("; likely began with ranks 0-1")
    assert finding.ranks == [0, 1]
    assert "ranks 0-1" in finding.fix[0]


def test_the_group_in_which_it_began_is_no_consequence() -> None:
    """Each of these groups timed out; the first line is about another one than that in which it began."""
    for timeouts in (
        ((2, WORLD, 5), (3, WORLD, 5), (0, "1(tp)", 9), (1, "1(tp)", 10)),
        ((2, WORLD, 5), (3, WORLD, 5), (1, WORLD, 5), (0, "1(tp)", 9)),
    ):
        finding = watchdog(*timeouts)
        assert "likely began" in finding.summary
        assert "also timed out" not in finding.cause
        assert any("SeqNum=9" in line.text for line in finding.evidence)


def test_a_log_cut_off_after_the_first_time_out_blames_nobody() -> None:
    finding = watchdog((0, WORLD, 5))
    assert "suspect" not in finding.summary
    assert "ranks 1-3 did not time out in it" in finding.cause
