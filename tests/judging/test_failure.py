"""Which rank failed first, and when the log does not tell it."""

from __future__ import annotations

import pytest
import sample_data
from repository import ROOT, TESTS

import nccl_inspect
from nccl_inspect import report

INIT = "".join(
    f"vm:{10 + rank}:{10 + rank} [{rank}] NCCL INFO ncclCommInitRankConfig comm 0x{rank + 1:x} rank {rank} nranks 4 "
    f"cudaDev {rank} nvmlDev {rank} busId {rank + 1}000 commId 0xabc - Init START\n"
    for rank in range(4)
)


def warning(rank: int, second: int | None = None) -> str:
    time = "" if second is None else f"[2026-11-20 23:13:{second:02}] "
    text = "Error: failed to extend /dev/shm/nccl-abc to 33030532 bytes, error: No space left on device (28)"
    return f"{time}vm:{10 + rank}:{50 + rank} [{rank}] misc/shmutils.cc:87 NCCL WARN {text}\n"


def closed(rank: int, second: int) -> str:
    text = "socketProgress: Connection closed by remote peer vm<4711>"
    return f"[2026-11-20 23:13:{second:02}] vm:{10 + rank}:{50 + rank} [{rank}] misc/socket.cc:58 NCCL WARN {text}\n"


def test_the_earliest_error_by_time_is_the_first_wherever_it_stands() -> None:
    job = nccl_inspect.read((INIT + closed(0, 1) + warning(3, 9) + warning(2, 5) + warning(1, 7)).encode())
    assert job.first_failure is not None
    assert (job.first_failure.ranks, job.first_failure.basis) == ([2], "time")
    assert job.first_failure.processes == [("vm", 12)]
    assert job.first_failure.device == 2
    assert "first error  rank 2 (vm pid 12, CUDA device 2) at 2026-11-20 23:13:05" in report.load("text").render(
        job, report.Style()
    )


def test_ranks_that_fail_at_the_same_moment_are_named_together() -> None:
    job = nccl_inspect.read((INIT + warning(3, 5) + warning(2, 5) + warning(1, 7)).encode())
    assert job.first_failure is not None
    assert job.first_failure.ranks == [2, 3]
    assert job.first_failure.device is None


def test_the_only_rank_with_an_error_is_the_first_without_any_time() -> None:
    job = nccl_inspect.read((INIT + warning(1)).encode())
    assert job.first_failure is not None
    assert (job.first_failure.ranks, job.first_failure.basis, job.first_failure.time) == ([1], "alone", None)


@pytest.mark.parametrize(
    "log",
    [
        INIT + warning(1) + warning(2),  # no clock
        INIT + warning(1, 5) + warning(2),  # a clock for one only
        INIT + closed(1, 5),  # nothing but an echo
        INIT,
    ],
)
def test_where_the_log_does_not_tell_nothing_is_named(log: str) -> None:
    assert nccl_inspect.read(log.encode()).first_failure is None


def test_a_healthy_job_has_no_failure() -> None:
    log = ROOT / "sample_logs" / "p2p-nvlink-8gpu" / "job.log"
    assert nccl_inspect.read(str(log)).first_failure is None


@pytest.mark.parametrize("order", [1, -1])
def test_the_ranks_of_another_job_in_the_log_say_nothing_of_who_went_away(order: int) -> None:
    """Each job has a rank 3; that of the healthy one came to its end."""
    names = ["p2p-nvlink-8gpu", "peer-killed"][::order]
    found = nccl_inspect.read([str(file) for name in names for file in sample_data.files(name)]).findings[0]
    assert (found.rule, found.ranks) == ("peer-death", [3])
    assert "went away" in found.summary


def test_a_whole_path_of_nccls_source_is_a_place_too() -> None:
    job = nccl_inspect.read(b"/root/nccl/src/transport.cc:50 NCCL WARN No transport found !\n")
    assert job.sources[0].damaged_lines == 0
    assert [notice.location for notice in job.notices] == ["/root/nccl/src/transport.cc:50"]


def test_lines_without_a_host_are_read_and_nobody_is_called_the_first() -> None:
    """As pasted into issues, where everything before the place in NCCL's source was taken out."""
    job = nccl_inspect.read(
        b"misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer 10.0.0.1<4000>\n"
        b"transport/net_ib.cc:2141 (ncclIbTest) NCCL WARN NET/IB: Got completion from peer 10.2.0.5<33092> with "
        b"status=12 opcode=0 len=0 vendor err 129 (Recv)\n"
    )
    assert job.sources[0].damaged_lines == 0
    assert job.sources[0].typed_lines == 2
    assert (job.verdict, job.findings[0].rule) == ("failed", "peer-death")
    assert [notice.location for notice in job.notices] == ["misc/socket.cc:71", "transport/net_ib.cc:2141 (ncclIbTest)"]
    assert job.first_failure is None


def test_a_line_of_which_only_the_function_of_a_plugin_is_left() -> None:
    job = nccl_inspect.read(
        b"find_ofi_provider:543 NCCL WARN NET/OFI Couldn't find any optimal provider\n"
        b"tcpxResult_t tcpxCommProgress(tcpxComm*):1231 NCCL WARN 0x7f01a0000b60:0x7f01a0000bf0, nic 0, enp12s0, "
        b"10.0.0.1<39187><-10.0.0.2<46723> rx rx ctrl timeout cnt 7331502, nanos 10000000585\n"
        b"ibvwrap.c:160 NCCL WARN Call to ibv_modify_qp failed with error No such device\n"
    )
    assert [notice.production for notice in job.notices] == [
        "aws-ofi-nccl/ofi-no-optimal-provider",
        "tcpxo/tcpx-timeout",
        "nccl/ib-call-failed",
    ]
    assert [source.damaged_lines for source in job.sources] == [0]


def lost(rank: int, peer: str) -> str:
    text = f"socketProgress: Connection closed by remote peer {peer}<44322>"
    return f"vm:{10 + rank}:{50 + rank} [{rank}] misc/socket.cc:58 NCCL WARN {text}\n"


ADDRESSES = "".join(
    f"vm:{10 + rank}:{10 + rank} [{rank}] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n" for rank in range(4)
)


@pytest.mark.parametrize(
    ("log", "summary"),
    [
        (INIT + "".join(lost(rank, "10.0.0.1") for rank in (0, 2, 3)), "rank 1 (vm, pid 11, GPU 1) went away"),
        (
            INIT.replace("nranks 4", "nranks 8") + lost(0, "10.0.0.2") + lost(2, "10.0.0.2") + lost(3, "10.0.0.2"),
            "ranks 0,2-3 lost connections to a peer on 10.0.0.2; the first failing rank is not in this log",
        ),
    ],
)
def test_a_silent_rank_is_blamed_only_where_all_ranks_are_in_the_log(log: str, summary: str) -> None:
    (finding,) = nccl_inspect.read((ADDRESSES + log).encode()).findings
    assert finding.rule == "peer-death"
    assert finding.summary.startswith(summary)


def test_a_silent_rank_of_another_host_than_the_lost_one_is_not_blamed() -> None:
    """Rank 1 says nothing, but it is the address of the other host to which connections were lost."""
    other = INIT.splitlines(keepends=True)[1].replace("vm:", "other:")
    log = INIT.splitlines(keepends=True)
    address = ADDRESSES.splitlines(keepends=True)[1].replace("vm:", "other:").replace("10.0.0.1", "10.0.0.2")
    here = "".join([*log[:1], other, *log[2:]]) + ADDRESSES.splitlines(keepends=True)[0] + address
    for peer, blamed in (("10.0.0.2", True), ("10.0.0.1", False)):
        (finding,) = nccl_inspect.read((here + lost(0, peer) + lost(2, peer) + lost(3, peer)).encode()).findings
        assert finding.summary.startswith("rank 1 (other") == blamed


ENDING = "vm:10:10 [0] init.cc:1997 NCCL WARN Cuda failure 4 'driver shutting down'\n"


def test_a_process_that_was_ending_already_did_not_fail_first() -> None:
    later = "[2026-11-20 23:13:02] vm:12:12 [2] enqueue.cc:1402 NCCL WARN Cuda failure 700 'an illegal memory access'\n"
    job = nccl_inspect.read((INIT + f"[2026-11-20 23:13:01] {ENDING}" + later).encode())
    assert job.first_failure is not None
    assert job.first_failure.ranks == [2]


def test_a_process_that_was_ending_already_hides_no_rank_that_died() -> None:
    killed = "E1121 16:34:10.765000 9 torch/x/api.py:986] failed (exitcode: -9) local_rank: 2 (pid: 12) of binary: p\n"
    job = nccl_inspect.read((INIT + ENDING + killed).encode())
    assert job.findings[0].rule == "peer-death"
    assert job.verdict == "failed"


@pytest.mark.parametrize("log", [ENDING, INIT + ENDING, INIT + ENDING + "vm:10:10 [0] NCCL INFO init.cc:2133 -> 1\n"])
def test_a_process_that_was_ending_already_is_no_failed_job(log: str) -> None:
    job = nccl_inspect.read(log.encode())
    assert job.first_failure is None
    assert job.verdict != "failed"


@pytest.mark.parametrize("name", ["intel-mpi-segv", "intel-mpi-exit-3", "intel-mpi-killed"])
def test_a_process_that_the_launcher_ended_did_not_fail_first(name: str) -> None:
    job = nccl_inspect.read(TESTS / "launchers" / f"{name}.log")
    assert job.verdict == "failed"
    assert job.first_failure is None
