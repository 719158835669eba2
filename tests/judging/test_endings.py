"""What proves that a log goes on to the end of the job, and what does not."""

import pytest

import nccl_inspect

START = "vm:100:100 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x2"
LOG = f"{START} - Init START\n"


@pytest.mark.parametrize(
    "line",
    [
        "launcher: timeout, killing 4 ranks",
        "slurmstepd: error: *** STEP 123456.0 ON node-1 CANCELLED AT 2025-03-04T10:20:30 ***",
        "srun: error: node-1: task 3: Terminated",
        "srun: Force Terminated StepId=123456.0",
        "W1218 20:27:21.426000 12345 torch/distributed/elastic/agent/server/api.py:719] Received 15 death signal, "
        "shutting down workers",
        "command terminated with exit code 143",
        "timeout: sending signal TERM to command 'python'",
        "=>> PBS: job killed: walltime 3605 exceeded limit 3600",
        "./run.sh: line 3: 12345 Killed                  python train.py",
        "Killed",
        "^CTraceback (most recent call last):",
    ],
)
def test_what_launchers_print_proves_the_end(line: str) -> None:
    job = nccl_inspect.read((LOG + line + "\n").encode())
    assert [end.text for end in job.ended_by] == [line]
    assert job.verdict == "failed"


@pytest.mark.parametrize(
    "line",
    [
        "Namespace(timeout=1800, lr=0.1)",
        "data preparation exited with code 0",
        "retry: request timed out, trying again",
        "step 100: killed 3 outliers",
        "INFO: SIGTERM handler installed",
        "dataset loader (pid 12) terminated",
    ],
)
def test_ordinary_output_proves_nothing(line: str) -> None:
    job = nccl_inspect.read((LOG + line + "\n").encode())
    assert not job.ended_by
    assert job.verdict == "unknown"


def test_what_ended_an_earlier_attempt_does_not_end_this_one() -> None:
    job = nccl_inspect.read(("launcher: timeout, killing 2 ranks\n" + LOG).encode())
    assert not job.ended_by


def test_a_rank_that_failed_is_no_hang() -> None:
    crashed = (
        "E1218 20:27:31.426000 12345 torch/x/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 21760) of binary: p"
    )
    job = nccl_inspect.read((LOG + crashed + "\n").encode())
    assert job.ended_by
    assert [finding.rule for finding in job.findings] == ["peer-death"]


SHUTTING_DOWN = "vm:100:100 [0] init.cc:1957 NCCL WARN Cuda failure 4 'driver shutting down'\n"
REACHED_THE_CALLER = "vm:100:100 [0] NCCL INFO init.cc:2180 -> 1\n"


def test_what_fails_because_the_process_is_ending_is_no_failed_job() -> None:
    alone = LOG.replace("nranks 2", "nranks 1")
    assert nccl_inspect.read((alone + REACHED_THE_CALLER).encode()).failed
    assert nccl_inspect.read((alone + REACHED_THE_CALLER + SHUTTING_DOWN).encode()).failed
    assert not nccl_inspect.read((alone + SHUTTING_DOWN + REACHED_THE_CALLER).encode()).failed
    other = REACHED_THE_CALLER.replace("vm:100:100", "vm:101:101")
    assert nccl_inspect.read((alone + SHUTTING_DOWN + other).encode()).failed


@pytest.mark.parametrize(
    ("line", "who"),
    [
        ("Bus error (core dumped)", "a process"),
        ("run.sh: line 3:   101 Segmentation fault      (core dumped) python3 train.py", "a process (pid 101)"),
        ("[vm:00101] Signal: Bus error (7)", "a process (pid 101)"),
        ("Fatal Python error: Segmentation fault", "a process"),
        (
            "[rank3]: RuntimeError: DataLoader worker (pid 21) is killed by signal: Bus error. It is possible that "
            "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
            "a DataLoader worker of rank 3 (pid 21)",
        ),
    ],
)
def test_a_process_that_crashes_ends_the_job_whoever_says_it(line: str, who: str) -> None:
    job = nccl_inspect.read((LOG + line + "\n").encode())
    assert job.ended_by
    assert job.verdict == "failed"
    assert not job.unexplained
    assert job.findings[0].rule == "peer-death"
    assert job.findings[0].summary.startswith(f"{who} was ended by SIG")


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("# Out of bounds values : 2 FAILED", "wrong-results"),
        ("vm: Test NCCL failure common.cu:958 'internal error / '", "nccl-tests-failed"),
        ("vm: Test NCCL failure common.cu:958 'unhandled system error / '", "unhandled-system-error"),
    ],
)
def test_a_test_that_failed_is_a_failed_job(line: str, rule: str) -> None:
    job = nccl_inspect.read((LOG + line + "\n").encode())
    assert (job.verdict, job.findings[0].rule) == ("failed", rule)
    assert not job.unexplained


def test_what_is_left_in_errno_is_no_error() -> None:
    accept = "vm:100:190 [0] proxy.cc:1517 NCCL WARN [Service thread] Accept failed {}\n"
    left = nccl_inspect.read((LOG + accept.format("Resource temporarily unavailable")).encode())
    assert not left.unexplained
    assert not left.findings
    full = nccl_inspect.read((LOG + accept.format("Too many open files")).encode())
    assert [finding.rule for finding in full.findings] == ["open-files-limit"]
