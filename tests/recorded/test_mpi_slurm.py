"""How jobs end under mpirun and Slurm, beside the real output of `labels/launchers_mpi_slurm.toml`."""

from __future__ import annotations

import pytest

import nccl_inspect
from nccl_inspect.model.job import Job

START = "".join(
    f"vm:{100 + rank}:{100 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x{rank + 1} rank {rank} nranks 4 "
    f"cudaDev {rank} nvmlDev {rank} busId {rank + 1}0 commId 0x2 - Init COMPLETE\n"
    f"vm:{100 + rank}:{100 + rank} [{rank}] NCCL INFO Channel 00/0 : {rank}[{rank}] -> {(rank + 1) % 4}"
    f"[{(rank + 1) % 4}] via P2P/CUMEM\n"
    f"vm:{100 + rank}:{100 + rank} [{rank}] NCCL INFO Connected all rings, use ring PXN 0 GDR 1\n"
    for rank in range(4)
)


def read(text: str) -> Job:
    return nccl_inspect.read(("vm:100:100 [0] NCCL INFO cudaDriverVersion 13000\n" + START + text).encode())


def hydra(pid: int, code: int, whole: str) -> str:
    """MPICH's block, and its last line."""
    named = f"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID {pid} RUNNING AT vm\n"
    return f"{named}=   EXIT CODE: {code}\n" + (f"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: {whole}\n")


@pytest.mark.parametrize(
    ("code", "whole", "told"),
    [
        (11, "Segmentation fault (signal 11)", "rank 1 (vm, pid 101) was ended by SIGSEGV"),
        (139, "Segmentation fault (signal 11)", "rank 1 (vm, pid 101) was ended by SIGSEGV"),
        (6, "Terminated (signal 15)", "rank 1 (vm, pid 101) was ended by SIGABRT"),  # 6 | 9, what Hydra killed
        (3, "Killed (signal 9)", "rank 1 (vm, pid 101) ended with exit code 3"),
        (1, "Killed (signal 9)", "rank 1 (vm, pid 101) ended with exit code 1"),
        (9, "Terminated (signal 15)", "the log does not show which one ended first"),
        (9, "Killed (signal 9)", "the log does not show which one ended first"),
    ],
)
def test_an_exit_code_of_hydra_may_be_a_signal(code: int, whole: str, told: str) -> None:
    assert told in read(hydra(101, code, whole)).findings[0].summary


def killed(rank: int, number: int = 9) -> str:
    """A block of Intel MPI."""
    return f"=   RANK {rank} PID {100 + rank} RUNNING AT vm\n=   KILLED BY SIGNAL: {number} (Killed)\n"


@pytest.mark.parametrize(
    ("log", "ranks"),
    [
        (killed(0) + killed(1, 6) + killed(2), [1]),
        (killed(0) + killed(1) + killed(3), [2]),
        (killed(0) + killed(1), []),
        (killed(3), [3]),
        ("".join(map(killed, range(4))), []),
    ],
)
def test_of_intel_mpis_blocks_the_one_that_hydra_did_not_kill_is_named(log: str, ranks: list[int]) -> None:
    job = read(log)
    assert (job.verdict, job.findings[0].rule, job.findings[0].ranks) == ("failed", "peer-death", ranks)


def test_an_abort_in_another_communicator_names_no_rank_of_the_job() -> None:
    job = read("MPI_ABORT was invoked on rank 1 in communicator MPI COMMUNICATOR 3 SPLIT FROM 0\nwith errorcode 5.\n")
    assert job.findings[0].ranks == []
    assert "called MPI_Abort with error code 5" in job.findings[0].summary


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("srun: error: vm: task 2: Killed\nsrun: Terminating StepId=1.0\n", "peer-death [2]"),
        ("srun: error: vm: tasks 1-2: Killed\n", "peer-death [1, 2]"),
        ("srun: error: vm: tasks 0-3: Killed\n", "ended-from-outside []"),
        ("srun: Terminating StepId=1.0\nsrun: error: vm: task 2: Killed\n", "ended-from-outside []"),
        (
            "srun: error: vm: task 2: Killed\n"
            "slurmstepd: error: *** STEP 1.0 ON vm CANCELLED AT 2026-11-22T13:41:53 DUE TO TIME LIMIT ***\n",
            "ended-from-outside []",
        ),
    ],
)
def test_a_task_is_to_blame_where_it_was_killed_before_and_alone(log: str, told: str) -> None:
    first = read("step 1\nstep 2\nstep 3\n" + log).findings[0]
    assert f"{first.rule} {first.ranks}" == told


def test_a_task_that_launches_several_ranks_is_none_of_them() -> None:
    several = START.replace("vm:101:101", "vm:100:100").replace("vm:103:103", "vm:102:102")
    job = nccl_inspect.read((several + "srun: error: vm: task 1: Killed\n").encode())
    assert job.findings[0].summary == "task 1 of Slurm (vm) was ended by SIGKILL"
    assert job.findings[0].ranks == []


def test_of_commands_that_a_shell_tells_all_killed_none_is_named() -> None:
    one = "run.sh: line 2:   102 Killed                  python3 train.py\n"
    assert read(one).findings[0].ranks == [2]
    every = "".join(one.replace("102", str(100 + rank)) for rank in range(4))
    assert "peer-death" not in [finding.rule for finding in read(every).findings]


def test_a_failed_node_comes_before_a_hang_of_which_nccl_tells() -> None:
    begun = START.partition("\n")[0].replace("Init COMPLETE", "Init START") + "\n"
    failed = "srun: error: Node failure on vm\n"
    assert [finding.rule for finding in nccl_inspect.read((begun + failed).encode()).findings] == ["ended-from-outside"]


def labelled(text: str, label: str) -> str:
    """Lines as a launcher puts the rank in front of them."""
    return "".join(f"{label.format(int(line[3:6]) - 100)}{line}\n" for line in START.splitlines()) + text


@pytest.mark.parametrize("label", ["[{}] ", "{}: ", "[1,{}]<stderr>:"])
def test_an_exception_is_that_of_the_rank_in_front_of_it(label: str) -> None:
    two = label.format(2)
    trace = f"{two}Traceback (most recent call last):\n{two}KeyError: 'loss_scale'\n"
    (finding,) = nccl_inspect.read(labelled(trace, label).encode()).findings
    assert (finding.rule, finding.ranks, finding.confidence) == ("peer-death", [2], "likely")
    assert finding.summary == "the output of rank 2 ends with an exception: KeyError: 'loss_scale'"


def test_of_labelled_exceptions_that_of_the_rank_is_the_cause() -> None:
    other = "[1]   warn\n[1] ValueError: of another\n"
    ended = "  Process name: [[6806,1],2]\n  Exit code:    1\n"
    text = f"[2] KeyError: 'loss_scale'\n{other}{ended}"
    (finding,) = nccl_inspect.read(labelled(text, "[{}] ").encode()).findings
    assert finding.ranks == [2]
    assert finding.cause.startswith("likely KeyError: 'loss_scale'")
    assert "does not say" not in finding.cause


def test_a_label_of_a_task_with_several_ranks_names_none() -> None:
    several = labelled("1: KeyError: 'loss_scale'\n", "{}: ").replace("2: ", "0: ").replace("3: ", "1: ")
    (finding,) = nccl_inspect.read(several.encode()).findings
    assert (finding.ranks, finding.confidence) == ([], "possible")


LOST = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/train.py", line 10, in <module>\n'
    "[rank3]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94,"
    " remote process exited or there was a network error, NCCL version 2.28.9\n"
)
"""ncclRemoteError, as torch/csrc/distributed/c10d/NCCLUtils.cpp words it."""
SYSTEM = LOST.replace("remote process exited or there was a network error", "unhandled system error")
CLOSED = "".join(
    f"vm:{100 + rank}:{100 + rank} [{rank}] misc/socket.cc:881 NCCL WARN socketProgress: Connection closed by remote "
    "peer vm<40000>\n"
    for rank in (0, 1, 3)
)
OWN = "[rank3]: Traceback (most recent call last):\n[rank3]: KeyError: 'tokens'\n"
CRASHED = "srun: error: node1: task 2: Segmentation fault (core dumped)\n"
OTHERS = "srun: error: node1: tasks 0-1,3: Exited with exit code 1\n"
ABORTED = "srun: error: node1: task 3: Aborted (core dumped)\n"
LEFT = (
    "srun: First task exited 60s ago\nsrun: StepId=1.0 tasks 0-1,3: running\n"
    "srun: StepId=1.0 task 2: exited abnormally\n"
)


@pytest.mark.parametrize(
    ("log", "ranks", "told"),
    [
        (CRASHED + LOST + OTHERS, [2], "rank 2 (task 2 of Slurm, node1) was ended by SIGSEGV"),
        (LOST + OTHERS + CRASHED, [2], "rank 2 (task 2 of Slurm, node1) was ended by SIGSEGV"),
        (LOST + ABORTED + CRASHED, [2], "rank 2 (task 2 of Slurm, node1) was ended by SIGSEGV"),
        (LOST + LEFT, [2], "rank 2 (task 2 of Slurm) ended while others were still running"),
        (CLOSED + CRASHED, [2], "rank 2 (task 2 of Slurm, node1) was ended by SIGSEGV"),
        (CLOSED + OTHERS + CRASHED, [2], "rank 2 (task 2 of Slurm, node1) was ended by SIGSEGV"),
        (CLOSED + CRASHED.replace("task 2", "task 1"), [2], "rank 2 (vm, pid 102, GPU 2) went away"),
        (LOST + ABORTED, [3], "gave up: torch.distributed.DistBackendError"),
        (CRASHED + SYSTEM, [2], "rank 2 (task 2 of Slurm, node1) was ended by SIGSEGV"),
        (CRASHED + OWN, [2], "rank 2 (task 2 of Slurm, node1) was ended by SIGSEGV"),
        ("srun: error: node1: task 2: Killed\n" + OWN, [2], "was ended by SIGKILL"),
        (OWN + CRASHED, [3], "rank 3 (vm, pid 103) ended with KeyError: 'tokens'"),
    ],
)
def test_a_task_that_crashed_comes_before_those_that_lost_it(log: str, ranks: list[int], told: str) -> None:
    job = read(log)
    first = job.findings[0]
    assert (job.verdict, first.rule, first.ranks) == ("failed", "peer-death", ranks)
    assert told in first.summary
    assert not job.unexplained
    assert "system error" not in first.cause  # that is of another rank
