"""Ranks that only messages name: they are ranks of a communicator, and findings name global ones."""

from __future__ import annotations

import pytest

import nccl_inspect
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
from nccl_inspect.report import head

WORLD = "".join(
    f"vm:{100 + rank}:{100 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x{rank + 1}0 rank {rank} nranks 4 "
    f"cudaDev {rank} nvmlDev {rank} busId {rank + 1}0 commId 0x77 - Init {phase}\n"
    for phase in ("START", "COMPLETE")
    for rank in range(4)
)
SPLIT = "".join(
    f"vm:{102 + rank}:{102 + rank} [{rank + 2}] NCCL INFO ncclCommSplit comm 0x{rank + 1}00 rank {rank} nranks 2 "
    f"cudaDev {rank + 2} nvmlDev {rank + 2} busId {rank + 3}0 parent 0x{rank + 3}0 splitCount 1 color 1 key {rank} "
    "commId 0x88 - Init START\n"
    for rank in range(2)
)
NO_TRANSPORT = "vm:102:120 [2] transport.cc:50 NCCL WARN No transport found for rank {}[30] -> rank {}[40]\n"
DIFFERING = "vm:1144 NCCL DIAG [INFO] GPU inventory: model mismatch across 16 ranks in comm 0x27, rank(s) {} differ\n"


def read(text: str) -> Job:
    return nccl_inspect.read(text.encode())


def found(rule: str, text: str) -> Finding:
    (finding,) = [finding for finding in read(text).findings if finding.rule == rule]
    return finding


@pytest.mark.parametrize(
    ("log", "ranks"),
    [
        (NO_TRANSPORT.format(0, 1), [0, 1]),
        (WORLD + NO_TRANSPORT.format(2, 3), [2, 3]),
        (WORLD + SPLIT + NO_TRANSPORT.format(2, 3), [2, 3]),  # the other communicator has two ranks
        (WORLD + SPLIT + NO_TRANSPORT.format(0, 1), [2]),  # of either communicator: only the one that says it is sure
        (WORLD + NO_TRANSPORT.format(2, 9), [2]),
    ],
)
def test_they_are_those_of_the_communicators_of_the_printing_rank(log: str, ranks: list[int]) -> None:
    assert found("no-transport", log).ranks == ranks


@pytest.mark.parametrize(
    ("words", "ranks"), [("8-15", [*range(8, 16)]), ("1, 3-4", [1, 3, 4]), ("7-3", []), ("- ", [])]
)
def test_a_range_of_ranks_is_read(words: str, ranks: list[int]) -> None:
    assert found("nccl-check-failed", DIFFERING.format(words)).ranks == ranks


def test_a_range_of_any_length_takes_no_memory() -> None:
    assert len(found("nccl-check-failed", DIFFERING.format("0-999999999")).ranks) < 1 << 18


def test_the_head_names_them_and_the_process_that_reports_them() -> None:
    job = read(NO_TRANSPORT.format(0, 1))
    assert head.of(job).where == "ranks 0-1; reported by vm, pid 102"
    assert [(place.rank, place.pid) for place in head.of(job).places] == [(0, None), (1, None), (None, 102)]
