"""Logs that end while ranks wait: who waits for whom, by elimination, and when that is more than a cut."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import sample_data

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.model.job import Job
from nccl_inspect.report.digest import verdict_line

HANG = (sample_data.FOLDER / "rank-missing-hang" / "job.log").read_bytes().splitlines(keepends=True)[:-1]
"""Without the line of the launcher that ends it."""


def headline(job: Job) -> str:
    return verdict_line(job)


def process(rank: int, host: str, size: int, began: bool = True, time: str = "") -> str:
    """A rank from its first line on, after the formats of 2.28."""
    head = f"{time}{host}:{100 + rank}:{100 + rank} [{rank % 2}] NCCL INFO "
    lines = [
        "cudaDriverVersion 13000",
        "Bootstrap: Using eth0:10.0.0.1<0>",
        "NCCL version 2.28.9+cuda13.0",
        "Using network Socket",
    ]
    if began:
        lines.append(
            f"ncclCommInitRankConfig comm 0x{rank + 1:x}000 rank {rank} nranks {size} cudaDev {rank % 2} "
            f"nvmlDev {rank % 2} busId {rank % 2 + 1}0 commId 0xabc - Init START"
        )
    return "".join(f"{head}{line}\n" for line in lines)


def read(*parts: str) -> Job:
    return nccl_inspect.read("".join(parts).encode())


def hosts(ranks: Iterable[int], size: int) -> list[str]:
    """Ranks with two on each host."""
    return [process(rank, f"node-{rank // 2}", size) for rank in ranks]


def test_a_rank_without_a_line_for_which_all_others_wait_is_named() -> None:
    job = nccl_inspect.read(b"".join(HANG))
    assert headline(job) == (
        "WAITING: rank 2 of 4 has not started; ranks 0-1,3 wait for it in the initialization of communicator world "
        "since line 34 (or the log was cut at line 35)"
    )
    (lead,) = [finding for finding in job.findings if finding.rule == "rank-missing"]
    assert (job.verdict, lead.severity, lead.confidence, lead.ranks) == ("failed", "error", "likely", [2])
    assert "rank 2 belongs on llama-3-8b-node-0-1, as local rank 0" in lead.cause
    assert [line.line for line in lead.evidence] == [32, 33, 34]
    waiting = job.waiting
    assert waiting is not None
    assert (waiting.missing, waiting.silent, waiting.waiting, waiting.cut) == ([2], [], [0, 1, 3], None)
    assert waiting.age is None


def test_with_the_end_in_the_log_it_is_a_failure() -> None:
    job = sample_data.job("rank-missing-hang")
    assert headline(job).startswith("FAILED: rank 2 of 4 never started")
    assert job.waiting is not None
    assert (job.waiting.cut, job.waiting.age) == (False, None)


def test_the_tail_of_a_log_does_not_show_who_never_began() -> None:
    (log,) = sample_data.contents("rank-missing-hang")
    lines = log.splitlines(keepends=True)
    tail = nccl_inspect.read(b"".join(lines[len(lines) // 2 :]))
    assert (tail.verdict, [finding.rule for finding in tail.findings if finding.fatal]) == ("failed", ["hang-in-init"])


def test_a_job_is_not_called_good_where_the_log_ends_in_a_later_start() -> None:
    (log,) = sample_data.contents("v2.21.5-ipc")
    assert nccl_inspect.read(log).verdict == "ok"
    work = re.search(rb"(?m)^(\S+) \[0\] NCCL INFO ncclCommInitRank comm", log)
    assert work is not None
    start = (
        b"%b [0] NCCL INFO ncclCommInitRank comm 0x77 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x78 - Init "
    )
    second = (start + b"START\n") % work[1]
    job = nccl_inspect.read(log + second)
    assert job.verdict == "unknown"
    assert "the log ends while 1 rank of communicator" in headline(job)
    assert nccl_inspect.read(log + second + (start + b"COMPLETE\n") % work[1]).verdict != "failed"


def test_a_file_has_an_age(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"".join(HANG))
    then = time.time() - 720
    os.utime(log, (then, then))
    job = nccl_inspect.read(log)
    assert job.waiting is not None
    assert job.waiting.age is not None
    assert 720 <= job.waiting.age < 780
    assert "no new line for 12 min" in report.load("text").render(job, report.Style())


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (hosts([0, 1], 4), "a whole host is missing: its log may be elsewhere"),
        (hosts([0], 2), "one rank alone"),
        (hosts([0, 3], 4), "as many are missing as wait, and more"),
        ([*hosts([0, 1, 3], 4), process(2, "node-1", 4, began=False)], "the process is there, and on its way"),
        ([*hosts([0, 1, 3], 4), "node-1:103:103 [1] misc/socket.cc:71 NCCL WARN x is wrong\n"], "an error tells more"),
        ([part.partition("Using network Socket\n")[2] for part in hosts([0, 1, 3], 4)], "no beginning"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_cut_log_of_a_sound_job_looks_like_is_no_failure(parts: list[str], why: str) -> None:
    job = read(*parts)
    assert not any(finding.fatal and finding.open_end for finding in job.findings), why
    assert "WAITING" not in headline(job)


def test_one_of_many_hosts_may_be_missing_as_a_whole() -> None:
    job = read(*hosts(range(6), 8))
    assert headline(job).startswith("WAITING: ranks 6-7 of 8 have not started; ranks 0-5 wait for them")


def test_ranks_of_one_process_may_be_threads_that_have_not_begun() -> None:
    log = "".join(process(rank, "vm", 4) for rank in (0, 1, 3))
    one = log.replace("vm:101:101", "vm:100:101").replace("vm:103:103", "vm:100:103")
    assert "WAITING" not in headline(nccl_inspect.read(one.encode()))


@pytest.mark.parametrize(("seconds", "stuck"), [(5, False), (45, True)])
def test_time_stamps_tell_a_rank_that_stopped_from_one_that_is_slow(seconds: int, stuck: bool) -> None:
    late = f"2026-11-20T10:00:{seconds:02}.000000Z "
    job = read(
        process(2, "node-1", 4, began=False, time="2026-11-20T10:00:00.000000Z "),
        *(process(rank, f"node-{rank // 2}", 4, time=late) for rank in (0, 1, 3)),
    )
    assert headline(job).startswith("WAITING: ") == stuck
    if stuck:
        assert "(probably node-1 pid 102, silent since line 4)" in headline(job)


def test_a_log_that_ends_in_the_middle_of_a_start_says_so() -> None:
    lines = (sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log").read_bytes().splitlines(keepends=True)
    job = nccl_inspect.read(b"".join(lines[:60]))
    assert headline(job) == (
        "UNKNOWN: the log ends while ranks look for their network, at line 60: still starting, stuck, or cut"
    )
    assert job.findings[0].fix


def test_a_log_without_its_beginning_says_so() -> None:
    lines = (sample_data.FOLDER / "socket-2node-tp4-dp2" / "job.log").read_bytes().splitlines(keepends=True)
    job = nccl_inspect.read(b"".join(lines[-10:]))
    assert headline(job).startswith("UNKNOWN: the beginning of the log is missing")
    assert any("--tail=-1" in step for step in job.findings[0].fix)


def test_a_rank_whose_log_is_elsewhere_is_named_and_the_rest_is_judged() -> None:
    lines = (sample_data.FOLDER / "p2p-nvlink-8gpu" / "job.log").read_bytes().splitlines(keepends=True)
    (start,) = [line for line in lines if b" rank 5 nranks 8" in line and b"Init START" in line]
    pid = start.split(b":")[1]
    job = nccl_inspect.read(b"".join(line for line in lines if b":%b:" % pid not in line))
    assert "rank 5 has no line in the log" in [
        entry.reason for entry in job.not_judged if entry.rule == "log-incomplete"
    ]
    (entry,) = [entry for entry in job.not_judged if entry.rule == "log-incomplete"]
    assert "host vm, local rank 5" in entry.needs
