"""``memory`` and ``timings``: what NCCL allocated, and where the time of a start went."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
import sample_data
from command_line import invoke
from jsonschema import Draft202012Validator
from questions import records

from nccl_inspect.answers import memory, names_of
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.judging.hardware import fabric_health

ALL_SUBSYSTEMS = str(sample_data.FOLDER / "v2.30.7-subsys-all")
COMM = "comm 0x55d0c0a0 rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {bus} commId 0x353ddbbccf6349c6"
ALLOCATIONS = (
    (0, "ncclCommInitRankConfig " + COMM + " - Init START"),
    (0, "init.cc:449 Cuda Alloc Size 4096 pointer 0x516fa00000"),
    (0, "init.cc:450 Cuda Alloc Size 8192 pointer 0x516fb00000"),
    (0, "init.cc:468 (commAlloc) Host Calloc Size 16 pointer 0x562153f21730"),
    (0, "ncclCommInitRankConfig " + COMM + " - Init COMPLETE"),
    (0, "misc/utils.cc:233 Mem Realloc old size 8, new size 24 pointer 0x7fe690004d10"),
    (1, "ncclCommInitRankConfig " + COMM + " - Init START"),
    (1, "ncclCommInitRankConfig " + COMM + " - Init COMPLETE"),
    (
        1,
        "Init timings - ncclCommInitRankConfig: rank 1 nranks 2 total 40.00 (kernels 0.10, alloc 0.10, "
        "bootstrap 38.00, allgathers 0.80, topo 0.50, graphs 0.20, connections 0.20, rest 0.10)",
    ),
)


def _log(folder: Path) -> str:
    """A job of two ranks, after the format strings."""
    lines = [
        f"vm:10{rank}:10{rank} [{rank}] NCCL INFO {text.format(rank=rank, bus=60 + rank)}" for rank, text in ALLOCATIONS
    ]
    path = folder / "job.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_allocations_are_summed_by_rank_communicator_and_kind(tmp_path: Path) -> None:
    found = records("memory", _log(tmp_path))
    assert [(row["rank"], row["memory"], row["kind"], row["bytes"], row["allocations"]) for row in found] == [
        (0, "GPU", "Cuda Alloc", 12288, 2),
        (0, "host", "Host Calloc", 16, 1),
        (0, "host", "Mem Realloc", 16, 1),
    ]
    assert [row["communicator"] for row in found] == ["0x55d0c0a0", "0x55d0c0a0", None]


def test_the_records_of_memory_fit_the_schema() -> None:
    text = files("nccl_inspect").joinpath("schema/nccl-inspect-memory-1.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    found = records("memory", ALL_SUBSYSTEMS)
    assert found
    Draft202012Validator(schema).validate(found)
    assert list(schema["items"]["properties"]) == names_of(memory.RECORD)


def test_standard_input_cannot_be_read_twice() -> None:
    with pytest.raises(NcclInspectError, match="reads the log twice"):
        invoke("memory", data=b"vm:1:1 [0] NCCL INFO init.cc:449 Cuda Alloc Size 8 pointer 0x516fa00000\n")


def test_the_slow_phase_and_the_slow_rank_are_named(tmp_path: Path) -> None:
    (row,) = records("timings", _log(tmp_path))
    assert (row["rank"], row["total"], row["slowest"], row["bootstrap"]) == (1, 40.0, "bootstrap", 38.0)


def test_a_health_mask_is_decoded() -> None:
    cases = {
        0x0: [],
        0x12A: [],
        0x1: ["bandwidth is degraded"],
        0x10: ["a connection is unhealthy"],
        0x411: ["bandwidth is degraded", "a connection is unhealthy", "it is in no partition"],
    }
    assert {mask: fabric_health.decode(mask) for mask in cases} == cases
