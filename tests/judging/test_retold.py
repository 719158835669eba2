"""PyTorch's exceptions end with what NCCL said last; often they are all that is passed on."""

from __future__ import annotations

import pytest

import nccl_inspect
from nccl_inspect import report
from nccl_inspect.model.job import Job

ERROR = "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled cuda error, NCCL version 2.19.3\n"
FULL = "Cuda failure 'out of memory'\n"


def read(text: str) -> Job:
    return nccl_inspect.read(text.encode())


def rules(job: Job) -> list[str]:
    return [finding.rule for finding in job.findings if finding.severity != "info"]


@pytest.mark.parametrize(
    "lead",
    [
        "",
        "[rank3]: ",
        "(RayWorkerWrapper pid=4411, ip=10.0.0.4) ",
        "[pod/train-0/pytorch] [rank3]: ",
        "(VllmWorkerProcess pid=120) ERROR 06-20 10:11:12 multiproc_worker_utils.py:120] ",
        "2025-03-04T10:20:30.123456789Z ",
    ],
)
def test_the_line_after_the_mark_is_the_warning(lead: str) -> None:
    job = read("".join(lead + line for line in ("RuntimeError: " + ERROR, "Last error:\n", FULL)))
    assert rules(job) == ["gpu-out-of-memory"]
    assert job.verdict == "failed"
    assert not job.unexplained


def test_it_may_stand_on_the_same_line() -> None:
    assert rules(read("ncclUnhandledCudaError: Call to CUDA function failed. Last error: " + FULL)) == [
        "gpu-out-of-memory"
    ]
    assert rules(read("Last error: " + FULL)) == ["gpu-out-of-memory"]


def test_ranks_may_print_between_each_other() -> None:
    job = read(
        "[rank1]: Last error:\n[rank0]: Last error:\n"
        "[rank1]: Cuda failure 'out of memory'\n[rank0]: Cuda failure 'out of memory'\n"
    )
    assert [finding.ranks for finding in job.findings if finding.rule == "gpu-out-of-memory"] == [[0, 1]]


def test_the_same_words_elsewhere_are_no_warning() -> None:
    begun = "vm:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 60 - Init COMPLETE\n"
    assert rules(read(begun + "[rank0]: " + ERROR + FULL)) == ["unhandled-cuda-error"]
    assert not rules(read(begun + "[rank0]: Last error:\n" + "x\n" * 100 + "[rank0]: " + FULL))
    assert not rules(read(begun + "[rank0]: Last error:\n[rank1]: " + FULL))


def test_in_an_excerpt_they_are() -> None:
    assert rules(read("[rank0]: " + ERROR + FULL)) == ["gpu-out-of-memory"]


def test_a_warning_that_is_there_itself_counts_once() -> None:
    warning = "vm:1:9 [0] init.cc:795 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 65000\n"
    job = read(warning + "Last error:\n" + warning.partition("WARN ")[2])
    (notice,) = (notice for notice in job.notices if notice.production.startswith("nccl/duplicate-gpu"))
    assert (notice.count, notice.location) == (1, "init.cc:795")


def test_an_exception_alone_is_a_failed_job() -> None:
    job = read("RuntimeError: " + ERROR)
    assert job.verdict == "failed"
    assert rules(job) == ["unhandled-cuda-error"]
    assert not job.unexplained


def test_it_is_shown_with_its_rank_and_line() -> None:
    job = read("[rank3]: " + ERROR + "[rank3]: Last error:\n[rank3]: " + FULL)
    text = report.load("text").render(job, report.Style())
    assert "first error rank 3 (as its own output says), <bytes>:3: the only" in " ".join(text.split())
    assert job.nccl_versions == ["2.19.3"]


def test_pytorch_until_1_12_named_the_release_wrongly() -> None:
    assert read("RuntimeError: " + ERROR.replace("2.19.3", "21.0.3")).nccl_versions == ["2.10.3"]


def test_where_nothing_explains_a_failure_every_warning_is_shown() -> None:
    warning = "Could not find real path of /sys/class/pci_bus/0000:00/../../0000:00:05.0"
    job = read(f"vm:1:1 [0] graph/xml.cc:332 NCCL WARN {warning}\nvm:1:1 [0] NCCL INFO init.cc:840 -> 2\n")
    assert [notice.message for notice in job.unexplained] == [warning]


def test_a_finding_about_the_log_does_not_lead() -> None:
    job = read("n:1:1 [0] f:499 NCCL WARN NET/OFI EFA provider requires at least libfabric version 1.18.0.\n")
    assert [finding.rule for finding in job.findings] == ["efa-libfabric-incompat", "debug-level-too-low"]
