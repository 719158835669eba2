"""Jobs that were made to fail under DeepSpeed, Composer, Ray and torchrun (`labels/launchers.toml`), with other lines.

Four processes on one host without a GPU talk over gloo. Each writes the NCCL lines of one process of
``sample_logs/torch-rank-exception``, with its own pid. Where nothing else is told, rank 2 is the one that fails.
"""

from __future__ import annotations

import gzip
import re

import pytest
import sample_data

import nccl_inspect

FOLDER = sample_data.FOLDER / "launchers"


def contents(name: str) -> bytes:
    return gzip.decompress((FOLDER / f"{name}.log.gz").read_bytes())


def test_after_a_new_beginning_that_failed_the_last_end_counts() -> None:
    first = contents("ray-train-exception-restarted")
    again = contents("ray-train-exception").replace(b"Rank 2 ", b"Rank 1 ").replace(b"'tokens'", b"'labels'")
    job = nccl_inspect.read(first + again)
    assert (job.verdict, job.findings[0].rule, job.findings[0].ranks) == ("failed", "peer-death", [1])
    assert "ended with KeyError: 'labels'" in job.findings[0].summary


def test_what_the_driver_raised_is_enough() -> None:
    lines = contents("ray-train-exception").splitlines(keepends=True)
    job = nccl_inspect.read(b"".join(line for line in lines if b"NCCL INFO" in line or b"pid=" not in line))
    assert (job.verdict, job.findings[0].ranks) == ("failed", [2])
    assert "ended with KeyError: 'tokens'" in job.findings[0].summary


@pytest.mark.parametrize("name", ["ray-actor-killed", "ray-train-1-killed"])
def test_without_the_word_of_the_raylet_no_process_is_named(name: str) -> None:
    lines = contents(name).splitlines(keepends=True)
    job = nccl_inspect.read(b"".join(line for line in lines if b"(raylet)" not in line))
    assert (job.verdict, job.findings[0].ranks, job.findings[0].confidence) == ("failed", [], "likely")
    assert "a process died, according to Ray" in job.findings[0].summary


def test_ray_that_gave_up_is_a_failure_also_where_the_reason_is_lost() -> None:
    lines = contents("ray-train-exception").splitlines(keepends=True)
    begin = next(index for index, line in enumerate(lines) if b"Error in training function" in line)
    job = nccl_inspect.read(b"".join(lines[:begin]) + b"(TrainController pid=29752) [FailurePolicy] RAISE\n")
    assert (job.verdict, job.findings[0].rule, job.findings[0].ranks) == ("failed", "peer-death", [])
    assert job.findings[0].summary == "the training failed, according to Ray Train"


def test_a_worker_that_only_ray_train_lost_did_not_answer() -> None:
    lines = contents("ray-train-killed").splitlines(keepends=True)
    job = nccl_inspect.read(
        b"".join(line for line in lines if b"(raylet)" not in line and b"The actor died" not in line)
    )
    assert (job.verdict, job.findings[0].ranks) == ("failed", [2])
    assert job.findings[0].summary == "rank 2 stopped responding to Ray Train"


def test_a_task_that_failed_after_all_communicators_had_ended_is_no_failure_of_the_job() -> None:
    log = contents("ray-task-exception").decode()
    begun = re.compile(
        r"(vm:.*? NCCL INFO )ncclCommInitRankConfig (comm .* )nvmlDev \d (busId \d+) commId .* - Init COMPLETE"
    )
    ends = begun.sub(r"\1\2\3 - Destroy COMPLETE", "\n".join(found[0] for found in begun.finditer(log))) + "\n"
    job = nccl_inspect.read(log.replace("Traceback (most recent", ends + "Traceback (most recent", 1).encode())
    assert all(len(comm.ended) == comm.nranks for comm in job.communicators)
    assert job.verdict == "unknown"


def test_what_ended_before_a_ctrl_c_is_the_cause() -> None:
    log = contents("deepspeed-interrupted")
    own = b"[rank2]: Traceback (most recent call last):\n[rank2]: KeyError: 'tokens'\n"
    job = nccl_inspect.read(log.replace(b"[2026-11-22 13:32:47,542]", own + b"[2026-11-22 13:32:47,542]"))
    assert (job.verdict, job.findings[0].rule, job.findings[0].ranks) == ("failed", "peer-death", [2])


def test_who_lost_another_before_anything_was_ended_tells_of_a_failure() -> None:
    log = contents("deepspeed-interrupted")
    lost = b"".join(line for line in log.splitlines(keepends=True) if line.startswith(b"[rank3]"))
    job = nccl_inspect.read(
        log.replace(lost, b"").replace(b"[2026-11-22 13:32:47,542]", lost + b"[2026-11-22 13:32:47,542]")
    )
    assert (job.verdict, job.findings[0].rule) == ("failed", "peer-death")


def test_a_worker_that_is_no_rank_and_died_before_does_not_lead() -> None:
    died = next(line for line in contents("ray-task-killed").splitlines(keepends=True) if b"A worker died" in line)
    lines = contents("ray-train-exception").splitlines(keepends=True)
    at = next(index for index, line in enumerate(lines) if b"step 0 loss" in line)
    job = nccl_inspect.read(b"".join([*lines[:at], died, *lines[at:]]))
    assert job.findings[0].ranks == [2]
    assert job.findings[0].summary == "rank 2 (vm, pid 30184) ended with KeyError: 'tokens'"
    assert not job.unexplained


@pytest.mark.parametrize(
    ("name", "told", "ranks"),
    [
        ("ray-actor-killed", "A worker died or was killed", [2]),
        ("ray-actor-exit", "A worker died or was killed", [2]),
        ("ray-train-killed", "A worker died or was killed", [2]),
        ("ray-actor-memory", "worker(s) were killed due to the node running low on memory", [2, 3]),
    ],
)
def test_a_transfer_without_an_answer_is_an_effect_of_the_end_of_another_process(
    name: str, told: str, ranks: list[int]
) -> None:
    lines = contents(name).decode().splitlines(keepends=True)
    head = next(line for line in lines if "NCCL INFO" in line).partition(" NCCL INFO")[0]
    lost = (
        f"{head} transport/net_ib.cc:2449 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<40000> with "
        "status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_3\n"
    )
    at = next(index for index, line in enumerate(lines) if told in line)
    for place in (at, at + 1):  # a launcher reports an end after others lost the process
        job = nccl_inspect.read("".join([*lines[:place], lost, *lines[place:]]).encode())
        assert [(one.rule, one.root) for one in job.findings] == [("peer-death", True), ("ib-timeout-err12", False)]
        assert job.findings[0].ranks == ranks


@pytest.mark.parametrize("name", ["ray-actor-exception", "ray-task-exception", "ray-train-exception"])
def test_an_exception_of_any_name_is_told(name: str) -> None:
    log = contents(name).replace(b"(KeyError)", b"(TrainingFailed)")
    log = log.replace(b"KeyError: 'tokens'", b"TrainingFailed: loss is nan")
    assert "ended with TrainingFailed: loss is nan" in nccl_inspect.read(log).findings[0].summary


def test_who_waited_is_told_as_waiting() -> None:
    lead = nccl_inspect.read(FOLDER / "torchrun-hang.log.gz").findings[0]
    assert "it timed out waiting for another process" in lead.cause
    assert lead.fix[0] == "Look at the output of rank 2 first, and at the last step there."
