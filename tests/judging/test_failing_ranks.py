"""Ranks that fail or wait, and what programs raise: in numbers, in pieces, and among other jobs.

The logs with labels say who fails, and which is the cause.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import large_job
import pytest
import sample_data
from answers import CORPORA
from command_line import invoke
from repository import TESTS

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.answers import ranks
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.fold.source_counts import MAX_RAISED
from nccl_inspect.pipeline.reader import Reader

LOGS = {one.name.partition("/")[2]: one.texts[0][1] for one in CORPORA["built"]() if one.name.startswith("judging/")}
LOG = LOGS["exceptions/what ended nobody makes no failure"]
START = LOG[: LOG.index(b"\n", LOG.rindex(b"NCCL INFO Connected")) + 1] + b"step 1 loss 1.5\n"
"""Two ranks, connected, at work."""
FAILED = (
    b"E1121 16:35:11.771000 9 torch/distributed/elastic/multiprocessing/api.py:986] failed (exitcode: 1) local_rank: 1 "
    b"(pid: 611) of binary: /usr/bin/python\n"
)


def traceback(last: str, front: str = "") -> list[str]:
    frames = 'Traceback (most recent call last):\n  File "/train.py", line 3, in main\n    raise Failed\n    ^^^^^^\n'
    return [f"{front}{line}\n" for line in f"{frames}{last}".splitlines()]


def test_exceptions_of_nobody_do_not_crowd_out_what_launchers_say() -> None:
    many = "".join(f"ValueError: {number}\n" for number in range(3 * MAX_RAISED)).encode()
    job = nccl_inspect.read(START + many + FAILED)
    assert len(job.raised) == MAX_RAISED
    assert "ended with exit code 1" in job.findings[0].summary
    assert f"likely ValueError: {3 * MAX_RAISED - 1}" in job.findings[0].cause


def test_the_tracebacks_of_labelled_ranks_may_be_mixed() -> None:
    every = [traceback(f"pkg.Failed: rank {rank}", f"[rank{rank}]: ") for rank in range(200)]
    mixed = "".join(line for row in zip(*every, strict=True) for line in row)
    job = nccl_inspect.read(START + mixed.encode())
    assert job.findings[0].summary == "rank 0 (vm, pid 610) ended with pkg.Failed: rank 0, and 199 more"


def test_read_in_blocks_and_merged_where_that_is_allowed_it_is_the_same() -> None:
    lines = (START + "".join(traceback("pkg.Failed: x")).encode() + FAILED).splitlines()
    whole = sample_data.folded([("log", lines)]).sources[0].raised
    assert [one.text for one in whole] == [b"pkg.Failed: x"]
    for at in range(len(lines) - 12, len(lines)):
        reader, first = Reader(), sample_data.folded([("log", lines[:at])])
        reader.fold.start("log")
        reader.feed(lines[:at])
        reader.feed(lines[at:])
        assert reader.fold.sources[0].raised == whole
        later = sample_data.folded([("log", lines[at:])])
        if first.can_merge(later):
            first.merge(later)
            assert first.sources[0].raised == whole


def test_the_ranks_of_another_job_in_the_log_say_nothing_of_who_went_away() -> None:
    """Each job has a rank 3; that of the healthy one came to its end."""
    names = ["p2p-nvlink-8gpu", "peer-killed"]
    for order in (names, names[::-1]):
        found = nccl_inspect.read([str(file) for name in order for file in sample_data.files(name)]).findings[0]
        assert (found.rule, found.ranks) == ("peer-death", [3]), order
        assert "went away" in found.summary, order


def test_the_first_error_is_told_with_its_process_and_time_or_the_rank_that_says_so() -> None:
    for name, first in {
        "failure/the earliest error by time is the first wherever it stands": "what happened <bytes>:7 ranks 1-3: "
        "Error: failed to extend /dev/shm/nccl-abc to 33030532 bytes, error: No space left on device (28), "
        "rank 2 first",
        "retold/it is shown with its rank and line": "what happened <bytes>:3 rank 3: Cuda failure",
    }.items():
        page = report.load("text").render(nccl_inspect.read(LOGS[name]), report.Style(verbose=True))
        assert first in " ".join(page.split()), page


def test_of_lost_connections_the_silent_host_is_bad_and_not_its_victims() -> None:
    job = nccl_inspect.read(TESTS / "logs" / "judging" / "silent-host.log")
    assert {row.rank for row in ranks.rows(job) if ranks.is_bad(row)} == {2, 3}


def test_exceptions_alone_are_no_log_of_nccl(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("Traceback (most recent call last):\nValueError: bad sample\n")
    with pytest.raises(NcclInspectError, match="no NCCL line among 2 lines"):
        invoke("summarize", str(tmp_path / "job.log"))


def test_a_file_in_which_ranks_wait_has_an_age(tmp_path: Path) -> None:
    (log,) = sample_data.contents("rank-missing-hang")
    file = tmp_path / "job.log"
    file.write_bytes(b"".join(log.splitlines(keepends=True)[:-1]))  # without the line of the launcher that ends it
    then = time.time() - 720
    os.utime(file, (then, then))
    job = nccl_inspect.read(file)
    assert job.waiting is not None and job.waiting.age is not None
    assert 720 <= job.waiting.age < 780
    assert "no new line for 12 min" in report.load("text").render(job, report.Style())


def test_transfers_to_one_silent_host_blame_it() -> None:
    job = large_job.log(3, on_each=2).decode().splitlines(keepends=True)
    pid = {4000 + rank: f"train-7f9c-node-{rank // 2}:{4000 + rank}:{4000 + rank} [{rank % 2}]" for rank in range(6)}
    addresses = [f"{who} NCCL INFO Bootstrap: Using eth0:10.0.{(at - 4000) // 2}.7<0>\n" for at, who in pid.items()]
    error = "NCCL WARN NET/IB: Got completion from peer 10.0.1.7<51234> with status=IBV_WC_RETRY_EXC_ERR(12)"
    rest = "opcode=IBV_WC_RDMA_WRITE(1) reqSize=0 vendor_err=129 req_type=Send localGid f::1 remoteGidsf::2 hca mlx5_0"
    for reporters in ((4000,), (4000, 4001), (4000, 4004)):
        errors = [f"{pid[at]} transport/net_ib/p2p.cc:371 {error} {rest}\n" for at in reporters]
        found = nccl_inspect.read("".join([*addresses, *job, *errors]).encode()).findings[0]
        assert (found.rule, found.hosts, found.ranks) == ("ib-timeout-err12", ["train-7f9c-node-1"], [2, 3])
