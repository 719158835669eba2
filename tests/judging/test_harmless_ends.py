"""What other programs print after, or before, the work of NCCL was done is no death of the job."""

from __future__ import annotations

import pytest
import sample_data
from repository import TESTS

import nccl_inspect

(HEALTHY,) = sample_data.contents("p2p-nvlink-8gpu")
"""All communicators come to their end."""
NO_ROW = TESTS / "cases" / "nccl-tests-no-row-time-limit.log"
ROW = b"         8           2     float     sum      -1    22.6    0.00    0.00      0    22.5    0.00    0.00    0"
TASK = b"""Traceback (most recent call last):
ray.exceptions.RayTaskError(KeyError): ray::evaluate() (pid=21411, ip=192.0.2.2)
KeyError: 'lr'
evaluation skipped
"""
WAITED = b"""srun: First task exited 60s ago
srun: StepId=1.0 task 0: running
srun: StepId=1.0 tasks 1-7: exited
srun: error: vm: task 0: Killed
"""


@pytest.mark.parametrize(
    "tail",
    [
        b"[2026-11-22 13:28:31,970 E 9012 9012] logging.cc:474: *** SIGSEGV received at time=1795354111 on cpu 1 ***\n",
        b"train.sh: line 9:  99 Segmentation fault      (core dumped) nvidia-smi dmon\n",
        b"NCCL operation ncclAllReduce failed: invalid usage, retrying\n",
        b"2026-11-21 16:35:10 INFO train: caught, retrying: RuntimeError: NCCL error: invalid usage\n",
        b"WARNING:root:retry 1/3 after RuntimeError: NCCL error: unhandled system error\n",
        b"step 7: skipped after RuntimeError: NCCL Error 2: unhandled system error\n",
        b"INFO again, since horovod said ncclAllReduce failed: invalid usage\n",
        WAITED,
    ],
)
def test_what_comes_after_the_end_of_all_communicators_makes_no_failure(tail: bytes) -> None:
    assert nccl_inspect.read(HEALTHY + tail).verdict != "failed"


@pytest.mark.parametrize(
    "line",
    [
        b"[rank1]: RuntimeError: NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)\n",
        b"(Worker pid=7) ERROR 08-20 10:00:00 multiproc_worker_utils.py:226] RuntimeError: NCCL error: invalid usage\n",
        b"[rank1]: RuntimeError: NCCL Error 2: unhandled system error\n",
        b"RuntimeError: ncclAllReduce failed: invalid usage\n",
    ],
)
def test_an_exception_that_stands_alone_is_a_failure(line: bytes) -> None:
    running = HEALTHY[: HEALTHY.index(b"Destroy COMPLETE")].rpartition(b"\n")[0] + b"\n"
    assert nccl_inspect.read(running + line).verdict == "failed"


def test_what_a_task_of_ray_raised_in_a_process_without_nccl_may_have_been_caught() -> None:
    running = HEALTHY[: HEALTHY.index(b"Destroy COMPLETE")].rpartition(b"\n")[0] + b"\n"
    assert nccl_inspect.read(TASK + running).verdict != "failed"


def test_a_row_between_the_head_of_a_table_and_the_end_is_work_that_was_done() -> None:
    head, end, prompt = NO_ROW.read_bytes().rpartition(b"slurmstepd")
    assert nccl_inspect.read(head + end + prompt).verdict == "failed"
    assert nccl_inspect.read(head + ROW + b"\n" + end + prompt).verdict == "ok"
