"""Causes and steps of findings: the words that a user must meet, and those that would lead astray."""

from __future__ import annotations

import pytest
from repository import TESTS

import nccl_inspect

CASES = TESTS / "cases"
LOGS = TESTS / "logs" / "judging"


def first(log: str | bytes) -> str:
    """Cause and steps of the leading finding in one text."""
    finding = nccl_inspect.read(log).findings[0]
    return "\n".join((finding.cause, *finding.fix))


@pytest.mark.parametrize(
    ("name", "words", "astray"),
    [
        ("libibverbs-missing-two-hosts", ("libibverbs is not in the image", "libibverbs1"), "not proved"),
        ("rccl-fine-grain-missing", ("HSA_FORCE_FINE_GRAIN_PCIE=1", "iommu=pt", "numa_balancing=0"), "nvidia"),
        ("rccl-no-peer-memory", ("memory_peers", "ib_peer_mem"), "nvidia"),
        ("lasterror-not-supported", ("not supported by this GPU, driver or virtual machine", "CUMEM_ENABLE=0"), "IMEX"),
        ("store-no-route", ("No route to host: a firewall",), "MASTER_PORT is wrong"),
        ("torch-2-0-rank-0-late", ("Rank 0 of the group did not time out",), "is not in the log"),
        ("recv-timed-out-2-18", ("machine or the network to it was lost",), "victims"),
        ("torch-launch-failure-abort", ("one of the program", "CUDA_LAUNCH_BLOCKING=1"), "NCCL_DEBUG"),
    ],
)
def test_cause_and_steps_of_a_case(name: str, words: tuple[str, ...], astray: str) -> None:
    text = first(str(CASES / f"{name}.log"))
    assert not [word for word in words if word not in text]
    assert astray not in text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bootstrap.cc:73 NCCL WARN Message truncated : received 1024 bytes instead of 256", "different NCCL releases"),
        (
            "bootstrap.cc:120 NCCL WARN Bootstrap Root : mismatch in rank count from procs 16 : 8",
            "different numbers of ranks",
        ),
        (
            "misc/shmutils.cc:113 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-M2 (size 57)",
            "own /dev/shm",
        ),
        ("transport/p2p.cc:275 NCCL WARN Cuda failure 101 'invalid device ordinal'", "this process cannot see"),
        ("include/alloc.h:48 NCCL WARN Failed to CUDA host alloc 8388608 bytes", "no pinned host memory is left"),
        (
            "init.cc:521 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 7000",
            "MIG instances of one GPU",
        ),
        ("transport/nvls.cc:153 NCCL WARN Cuda failure 2 'out of memory'", "NCCL_NVLS_ENABLE=0"),
    ],
)
def test_the_likely_cause_of_a_warning_comes_first(line: str, words: str) -> None:
    text = first(f"node-1:100:140 [0] {line}\n".encode())
    assert words in text[:200] or words in text.partition("\n")[2][:60]


@pytest.mark.parametrize(
    ("setting", "platform", "risky"),
    [
        ("LL128", None, True),
        ("^LL", None, True),
        ("Simple;allreduce:LL128", None, True),
        ("^LL128", None, False),
        ("Simple,LL", None, False),
        ("LL128", "p5.48xlarge", False),
    ],
)
def test_a_protocol_that_may_corrupt_data_is_told(setting: str, platform: str | None, risky: bool) -> None:
    """src/graph/tuning.cc: named, or left over by ^, LL128 is used without NCCL's check of the machine."""
    log = f"vm:1:1 [0] NCCL INFO NCCL_PROTO set by environment to {setting}\n"
    finding = nccl_inspect.read(log.encode(), platform=platform).findings[0]
    assert finding.rule == "algo-proto-forced"
    assert ("be silently wrong" in finding.impact) is risky


def test_the_host_that_has_no_card_is_named() -> None:
    job = nccl_inspect.read(LOGS / "card-on-one-host.log")
    for finding in job.findings[:2]:
        assert "on h2 NCCL found no InfiniBand or RoCE card" in finding.cause
        assert any("No device found" in line.text for line in finding.evidence)
    mixed = next(finding for finding in job.findings if finding.rule == "mixed-networks")
    assert (mixed.ranks, mixed.hosts) == ([1], ["h2"])


def test_a_time_out_is_told_by_whom_it_is_known_as_far_as_the_line_says() -> None:
    """Shaped after the format of PyTorch 2.6; what the launcher puts in front may be missing."""
    told = (
        "[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:1682] [PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump "
        "signal due to a collective timeout from {} and we will try our best to dump the debug info. Last enqueued "
        "NCCL work: 5, last completed NCCL work: 4.This is most likely caused by incorrect usages of collectives\n"
    )
    for front, whose, words, ranks in (
        ("[rank3]:", " rank 4", "rank 4 waited for a collective and timed out, according to rank 3", [4]),
        ("", " rank 4", "rank 4 waited for a collective and timed out, according to others", [4]),
        ("[rank3]:", "this local rank", "rank 3 waited for a collective and timed out, according to rank 3", [3]),
    ):
        finding = nccl_inspect.read((front + told.format(whose)).encode()).findings[0]
        assert (finding.rule, finding.summary, finding.ranks) == ("watchdog-timeout", words, ranks)
