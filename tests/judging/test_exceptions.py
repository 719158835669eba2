"""Exceptions of programs: whose they are, which is the cause, and which ended nobody.

What stands before them is the beginning of a real job of two ranks; the lines behind are shaped after those of
``sample_logs/faults``.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import sample_data
from command_line import invoke

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.fold.source_counts import MAX_RAISED
from nccl_inspect.model.job import Job

_LINES = gzip.decompress((sample_data.FOLDER / "faults/exception.log.gz").read_bytes()).decode().splitlines(True)
START = "".join(line for line in _LINES[:141] if " NCCL " in line)
"""Two ranks, connected, at work."""
_BEGINS = [line.split() for line in START.splitlines() if "Init COMPLETE" in line]
PID = {int(words[words.index("rank") + 1]): int(words[0].split(":")[1]) for words in _BEGINS}
COMM = {int(words[words.index("rank") + 1]): words[words.index("comm") + 1] for words in _BEGINS}


def raised(rank: int, *exceptions: str) -> str:
    return f"[rank{rank}]: Traceback (most recent call last):\n" + "".join(
        f"[rank{rank}]: {one}\n" for one in exceptions
    )


def failed(rank: int, code: int = 1, time: str = "1121 16:35:11.771000") -> str:
    front = f"E{time} 9 torch/distributed/elastic/multiprocessing/api.py:986]"
    return f"{front} failed (exitcode: {code}) local_rank: {rank} (pid: {PID[rank]}) of binary: /usr/bin/python\n"


def waited(rank: int) -> str:
    return (
        f"[rank{rank}]:[E1121 16:45:00.0 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600004 "
        "milliseconds before timing out.\n"
    )


ENDED = "".join(
    f"vm:{PID[rank]}:{PID[rank]} [{rank}] NCCL INFO comm {COMM[rank]} rank {rank} nranks 2 cudaDev {rank} "
    f"busId {rank + 6}0 - Destroy COMPLETE\n"
    for rank in PID
)
LOST = (
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, "
    "remote process exited or there was a network error, NCCL version 2.28.9"
)
GLOO = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:2"
CLOSED = "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB."
XID = "NVRM: Xid (PCI:0000:18:00): {}, pid=1, name=python, Ch 00000008\n"
TIME_LIMIT = "slurmstepd: error: *** JOB 1 ON vm CANCELLED AT 2026-11-21T16:35:10 DUE TO TIME LIMIT ***\n"
IB_TIMEOUT = (
    f"vm:{PID[0]}:99 [0] transport/net_ib.cc:2449 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<40000> with "
    "status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_3\n"
)
HYDRA = f"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID {PID[1]} RUNNING AT vm\n=   EXIT CODE: 1\n"
BARRIER = "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 6000 ms"
LOADER = "RuntimeError: DataLoader worker (pid 30882) is killed by signal: Terminated. "


def read(*texts: str) -> Job:
    return nccl_inspect.read((START + "".join(texts)).encode())


def lead(job: Job) -> str:
    return f"{job.findings[0].rule} {job.findings[0].ranks}: {job.findings[0].summary}; {job.findings[0].cause}"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (raised(0, LOST) + raised(1, "ValueError: bad sample"), "peer-death [1]: rank 1 (vm"),
        (raised(0, GLOO) + raised(1, "ValueError: bad sample"), "ended with ValueError: bad sample"),
        (raised(0, CLOSED) + raised(1, "ValueError: bad sample"), "peer-death [1]: rank 1 (vm"),
        (raised(1, "ValueError: bad sample") + waited(0), "ended with ValueError: bad sample"),
        (raised(1, "ValueError: bad sample", LOST), "ended with ValueError: bad sample"),
        (raised(1, "ValueError: bad sample") + XID.format(45), "ended with ValueError: bad sample"),
        (XID.format(74) + raised(1, "ValueError: bad sample") + failed(1), "ended with ValueError: bad sample"),
        (raised(1, "ConnectionRefusedError: [Errno 111] Connection refused"), "ended with ConnectionRefusedError"),
        (raised(1, "KeyError: 'a'") + failed(1) + raised(1, "ValueError: b") + failed(1), "ended with ValueError: b;"),
        (raised(1, "MemoryError"), "ended with MemoryError"),
        (raised(1, "torch.AcceleratorError: CUDA error: device-side assert triggered"), "(device-side assert)"),
        (f"{OOM}\nstep 2\n" + raised(1, "ValueError: bad sample") + failed(1), "ended with ValueError: bad sample"),
        ("[default1]:" + raised(1, "ValueError: bad").replace("\n[", "\n[default1]:["), "ended with ValueError: bad"),
        ("ValueError: bad sample\n" + failed(1), "likely ValueError: bad sample"),
        ("ValueError: bad sample\n" + failed(1, 13), "unknown from this log"),
        ("ValueError: bad\nException ignored in: 'a.b'\nOSError: c\n" + failed(1), "likely ValueError: bad"),
        (raised(0, GLOO) + failed(0), "gave up: RuntimeError: [/pytorch/third_party/gloo"),
        (raised(0, GLOO) + raised(1, GLOO), "this log does not show which rank failed first"),
        (raised(1, "ValueError: bad sample") + IB_TIMEOUT, "peer-death [1]: rank 1 (vm"),
        (failed(1, -9) + IB_TIMEOUT, "was ended by SIGKILL"),
        (IB_TIMEOUT + raised(1, "ValueError: bad sample"), "ib-timeout-err12"),
        (raised(1, "ValueError: bad config") + raised(0, OOM), "ended with ValueError: bad config"),
        (raised(0, OOM) + raised(1, "ValueError: bad config"), "gpu-out-of-memory [0]"),
        (raised(1, "FileNotFoundError: '/data/Gloo/train.bin'"), "ended with FileNotFoundError"),
        (raised(0, "RuntimeError: Connection reset by peer") + failed(1, -9), "was ended by SIGKILL"),
        (raised(1, LOADER) + failed(1), "DataLoader worker (pid 30882) is killed by signal: Terminated."),
        (failed(1) + "  ValueError: kept by @record\n", "likely ValueError: kept by @record"),
        ("MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n", "peer-death [1]: rank 1 called MPI_Abort"),
        ("  Process name: [[5487,1],1]\n  Exit code:    1\n", "peer-death [1]: rank 1 ended"),
        (HYDRA, "peer-death [1]: rank 1 (vm"),
        (raised(0, BARRIER) + failed(0), "gave up: RuntimeError: [Rank 0]: Rank 1 failed to pass"),
        (raised(0, BARRIER), "rank 1 did not reach a barrier"),
    ],
)
def test_the_cause_leads(log: str, told: str) -> None:
    job = read(log)
    assert job.verdict == "failed"
    assert told in lead(job)
    assert not job.unexplained


@pytest.mark.parametrize(
    "log",
    [
        "ValueError: caught\n" * 3 + ENDED,
        OOM + "\n" + ENDED,
        f"[rank1]: {OOM}\n" + ENDED,
        "UserWarning: RuntimeError: CUDA error: invalid device ordinal\n" + ENDED,
        XID.format(31) + ENDED,
        raised(0, "KeyboardInterrupt") + raised(1, "KeyboardInterrupt"),
    ],
)
def test_what_ended_nobody_makes_no_failure(log: str) -> None:
    job = read(log)
    assert job.verdict == "ok"
    assert not [finding for finding in job.findings if finding.severity != "info"]


@pytest.mark.parametrize(
    "log",
    [
        "ValueError: bad sample\n",
        "ValueError: bad sample\n" + TIME_LIMIT,
        raised(1, "KeyboardInterrupt") + failed(1, -2),
    ],
)
def test_what_may_have_ended_a_job_makes_it_unknown(log: str) -> None:
    assert read(log).verdict == "unknown"


PEER = "RuntimeError: Connection {} by peer"
"""As PyTorch passes on what its backend says, without the file of Gloo in front."""


@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_rank_that_lost_another_after_the_end_is_no_sound_job(how: str) -> None:
    job = read(ENDED + raised(1, PEER.format(how)))
    assert (job.verdict, [(one.rule, one.confidence) for one in job.findings]) == (
        "unknown",
        [("peer-death", "possible")],
    )
    assert job.findings[0].impact.startswith("the program failed after NCCL's work was done")


def test_a_connection_to_a_server_is_none_to_a_rank() -> None:
    text = f"{PEER.format('closed')} [s3.amazonaws.com]"
    assert lead(read(raised(1, text))).startswith(f"peer-death [1]: rank 1 (vm, pid {PID[1]}) ended with {text}")
    for address in ("", " [127.0.0.1]:31641", " [::1]:2"):
        assert (
            read(raised(1, PEER.format("closed") + address)).findings[0].summary.startswith("rank 1 lost connections")
        )


def test_an_exception_that_output_follows_was_caught() -> None:
    assert read("ValueError: skipped\nstep 100\n").verdict == "ok"


def test_an_own_exception_before_a_ctrl_c_is_no_end_from_outside() -> None:
    assert read(raised(1, "ValueError: bad"), raised(1, "KeyboardInterrupt")).verdict == "failed"


KILLED = sample_data.contents("peer-killed")[0].decode()
"""Rank 3 was killed, and the others lost their connections."""


@pytest.mark.parametrize(
    "log",
    [
        "srun: error: vm: task 3: Killed\nsrun: error: vm: tasks 0-2: Exited with exit code 1\n",
        "  Process name: [[5487,1],0]\n  Exit code:    1\n",
        "-- Process 0 terminated with the following error:\n",
        raised(0, "RuntimeError: checkpoint on error failed"),
        raised(2, "RuntimeError: NCCL communicator was aborted on rank 2."),
        raised(0, LOST),
        "ValueError: caught\nstep 5\n",
    ],
)
def test_who_lost_the_killed_rank_is_not_blamed(log: str) -> None:
    assert nccl_inspect.read((KILLED + log).encode()).findings[0].ranks == [3]


def test_a_time_out_that_is_raised_is_no_exception_of_the_one_that_waited() -> None:
    job = read(raised(1, "torch.distributed.DistBackendError: " + waited(1).partition("] ")[2].rstrip()))
    assert (job.findings[0].rule, job.findings[0].ranks) == ("watchdog-timeout", [0])


def test_an_error_of_nccl_that_an_exception_tells_is_no_lost_peer() -> None:
    system = LOST.replace("remote process exited or there was a network error", "unhandled system error")
    job = read(raised(0, system), raised(1, system), "srun: error: vm: tasks 0-1: Exited with exit code 1\n")
    assert [finding.rule for finding in job.findings] == ["unhandled-system-error"]


def test_an_end_before_the_job_is_that_of_an_earlier_one() -> None:
    before = TIME_LIMIT.replace("TIME LIMIT", "PREEMPTION")
    job = nccl_inspect.read((before + START + raised(1, "ValueError: bad") + failed(1)).encode())
    assert "ended with ValueError: bad" in lead(job)
    assert job.verdict == "failed"


def test_files_without_an_order_do_not_make_a_full_memory_an_effect(tmp_path: Path) -> None:
    full = "os/linux.cc:795 (ncclOsShmOpen) NCCL WARN Error: failed to extend /dev/shm/nccl-q3MaAd to 34210180 bytes"
    (tmp_path / "a.log").write_text(f"{START}vm:{PID[0]}:9 [0] {full}, error: No space left on device (28)\n")
    (tmp_path / "b.log").write_text(raised(1, "ValueError: bad"))
    assert nccl_inspect.read(tmp_path).findings[0].rule == "shm-segment-failed"


def test_what_follows_the_end_of_a_job_is_no_cause() -> None:
    job = read("step 1\nstep 2\nstep 3\n", TIME_LIMIT, raised(1, LOADER))
    assert [finding.rule for finding in job.findings] == ["ended-from-outside"]


def test_of_two_spawned_processes_each_has_its_own_exception() -> None:
    begin = "-- Process {} terminated with the following error:\nTraceback (most recent call last):\n{}\n"
    job = read(begin.format(0, "ValueError: first"), begin.format(1, "KeyError: 'second'"), "OSError: of the parent\n")
    assert "process 0 of torch.multiprocessing.spawn ended with ValueError: first, and 1 more" in lead(job)


def test_of_several_files_the_times_tell_who_was_first(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(START + raised(0, "KeyError: 'late'") + failed(0, time="1121 16:45:11.0"))
    (tmp_path / "b.log").write_text(raised(1, "ValueError: early") + failed(1, time="1121 16:35:11.0"))
    assert "rank 1 (vm" in lead(nccl_inspect.read(tmp_path))
    (tmp_path / "a.log").write_text(START + raised(0, "KeyError: 'one'"))
    (tmp_path / "b.log").write_text(raised(1, "ValueError: two"))
    assert "the order is unknown" in lead(nccl_inspect.read(tmp_path))


def test_exceptions_of_nobody_do_not_crowd_out_what_launchers_say() -> None:
    many = "".join(f"ValueError: {number}\n" for number in range(30_000))
    job = read(many, failed(1))
    assert len(job.raised) == MAX_RAISED
    assert "ended with exit code 1" in lead(job)
    assert "likely ValueError: 29999" in lead(job)


def test_exceptions_alone_are_no_log_of_nccl(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("Traceback (most recent call last):\nValueError: bad sample\n")
    with pytest.raises(NcclInspectError, match="no NCCL line among 2 lines"):
        invoke("summarize", str(tmp_path / "job.log"))


REPORT = (
    "Root Cause (first observed failure):\n[0]:\n"
    "  time      : 2026-11-21_16:35:11\n  host      : vm\n  rank      : 1 (local_rank: 1)\n"
    f"  exitcode  : -15 (pid: {PID[1]})\n  error_file: <N/A>\n"
    f"  traceback : Signal 15 (SIGTERM) received by PID {PID[1]}\n"
)
"""torch/distributed/elastic/multiprocessing/errors/__init__.py."""
WORK = "".join(f"step {step} loss 1.5\n" for step in range(3))
TASK = "srun: error: vm: task 0: Exited with exit code 1\n"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (failed(1, -15) + TIME_LIMIT, "certain: the job was ended: its time limit was reached"),
        (failed(1, -15) + REPORT + TIME_LIMIT, "certain: the job was ended: its time limit was reached"),
        (failed(1, -15) + REPORT + TASK + TIME_LIMIT, "certain: the job was ended: its time limit was reached"),
        (failed(1, -2) + TIME_LIMIT, "certain: the job was ended: its time limit was reached"),
        (failed(1, -15) + REPORT, "possible: the job was ended: SIGTERM from outside"),  # maybe one of two only
    ],
)
def test_a_worker_that_was_ended_before_slurm_says_why_did_not_fail(log: str, told: str) -> None:
    job = read(WORK, log)
    assert [f"{one.confidence}: {one.summary}" for one in job.findings if one.rule == "ended-from-outside"] == [told]
    assert job.verdict == ("ok" if "certain" in told else "unknown")
    assert not job.unexplained


@pytest.mark.parametrize("code", [-9, -11, -24, 1])
def test_a_worker_that_failed_before_slurm_ended_the_job_is_the_cause(code: int) -> None:
    job = read(WORK, failed(1, code), TIME_LIMIT)
    assert (job.verdict, job.findings[0].rule, job.findings[0].ranks) == ("failed", "peer-death", [1])


def test_with_a_launcher_on_each_node_ranks_that_crash_after_they_lost_another_are_its_victims() -> None:
    """Each torchrun reports the first failure of its own node; the one that lost its peer may do so first."""
    wide = LOST.replace("NCCLUtils.cpp:94", "ProcessGroupNCCL.cpp:3780")  # the words come late in the line
    job = nccl_inspect.read((START + raised(0, wide) + failed(0, -11) + failed(1, -9)).encode())
    assert (job.findings[0].rule, job.findings[0].ranks) == ("peer-death", [1])
    assert "was ended by SIGKILL" in job.findings[0].summary
    by_elimination = nccl_inspect.read((START + raised(0, wide) + failed(0, -11)).encode())
    assert (by_elimination.findings[0].rule, by_elimination.findings[0].ranks) == ("peer-death", [1])


def test_a_rank_that_its_watchdog_aborts_is_a_victim() -> None:
    after = waited(0) + failed(0, -6, "1121 16:46:05.771000")
    job = nccl_inspect.read((START + failed(1, -9) + after).encode())
    assert (job.findings[0].rule, job.findings[0].ranks) == ("peer-death", [1])
