"""What the document does not tell of communicators: which rings are whole, and what real groups are for.

Lives, trees, states, names, purposes and contradictions are in `tests/labels/built_model.toml` (`model/communicators`).
"""

from __future__ import annotations

import sample_data

import nccl_inspect
from nccl_inspect.model.job import CommunicatorInfo


def line(rank: int, message: str) -> str:
    return f"node-{rank // 2}:{10 + rank}:{10 + rank} [{rank % 2}] NCCL INFO {message}\n"


def init(rank: int, phase: str, nranks: int = 4) -> str:
    return (
        f"ncclCommInitRank comm 0x0a rank {rank} nranks {nranks} cudaDev {rank % 2} nvmlDev {rank % 2} "
        f"busId {6 + rank % 2}0 commId 0x7 - Init {phase}"
    )


def world(*phases: str, nranks: int = 4, present: int | None = None) -> str:
    return "".join(line(rank, init(rank, phase, nranks)) for phase in phases for rank in range(present or nranks))


def find_first(*messages: str) -> str:
    return "".join(line(0, message) for message in messages)


def comm(text: str) -> CommunicatorInfo:
    return nccl_inspect.read(text.encode()).communicators[0]


def test_what_shapes_of_real_jobs_say_is_true() -> None:
    for name in ("socket-2node-tp4-dp2", "v2.19.4-socket-2node"):
        true = {(comm["kind"], tuple(comm["ranks"])) for comm in sample_data.truth(name)["communicators"]}
        for found in sample_data.job(name).communicators:
            if found.parallelism:
                assert (found.parallelism.kind.lower(), tuple(found.ranks)) in true


def test_groups_of_the_same_ranks_are_read_by_what_each_does() -> None:
    """DeviceMesh and ``new_group`` made two groups of ranks 0 and 2; the calls in the log tell which one reduces."""
    job = sample_data.job("torch-mesh-2node")
    calls = {call.communicator: call.func for call in job.calls}
    kinds = {comm.id: comm.parallelism.kind for comm in job.communicators if comm.parallelism and len(comm.hosts) > 1}
    assert {(kind, calls[comm] in ("Send", "Recv")) for comm, kind in kinds.items()} == {("PP", True), ("DP", False)}
    assert sorted(kinds.values()) == ["DP", "DP", "PP", "PP"]


RING = "Channel 00/01 : 0 1 2 3"
TWENTY = "Channel 00/01 : " + "".join(f" {rank:3}" for rank in range(20))
CUT = "Channel 00/02 :" + "".join(f" {rank:2}" for rank in range(36)) + " ..."


def test_rings_that_are_not_whole_are_told() -> None:
    complete = world("START", "COMPLETE")
    rings: dict[str, tuple[str, object]] = {
        "whole": (complete + find_first(RING), []),
        "of too few": (complete + find_first("Channel 00/01 : 0 1 2"), [0]),
        "with a rank twice": (complete + find_first("Channel 00/02 : 0 1 2 3", "Channel 01/02 : 0 1 1 3"), [1]),
        "on which ranks differ": (complete + find_first(RING) + line(1, "Channel 00/01 : 0 2 1 3"), [0]),
        "of ranks that do not exist": (complete + find_first("Channel 00/01 : 0 1 2 9"), [0]),
        "of an old release, which shows twenty ranks and no mark": (
            world("START", nranks=32, present=2) + find_first(TWENTY),
            [0],
        ),
        "that NCCL cut": (world("START", nranks=64, present=2) + find_first(CUT), [0]),
    }
    found = {name: comm(text).incomplete_rings for name, (text, _) in rings.items()}
    assert found == {name: known for name, (_, known) in rings.items()}
    assert comm(rings["of an old release, which shows twenty ranks and no mark"][0]).rings == [list(range(20))]
