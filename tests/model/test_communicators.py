"""What the document does not tell of communicators: which rings are whole, and what real groups are for.

Lives, trees, states, names, purposes and contradictions are in `tests/labels/built_model.toml` (`model/communicators`).
"""

from __future__ import annotations

import sample_data

import nccl_inspect
from nccl_inspect.model.communicators.shapes import crossings, fewest_crossings, is_closed, tree_shape
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


def first(*messages: str) -> str:
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
        "whole": (complete + first(RING), []),
        "of too few": (complete + first("Channel 00/01 : 0 1 2"), [0]),
        "with a rank twice": (complete + first("Channel 00/02 : 0 1 2 3", "Channel 01/02 : 0 1 1 3"), [1]),
        "on which ranks differ": (complete + first(RING) + line(1, "Channel 00/01 : 0 2 1 3"), [0]),
        "of ranks that do not exist": (complete + first("Channel 00/01 : 0 1 2 9"), [0]),
        "of an old release, which shows twenty ranks and no mark": (
            world("START", nranks=32, present=2) + first(TWENTY),
            [0],
        ),
        "that NCCL cut": (world("START", nranks=64, present=2) + first(CUT), [0]),
    }
    found = {name: comm(text).incomplete_rings for name, (text, _) in rings.items()}
    assert found == {name: known for name, (_, known) in rings.items()}
    assert comm(rings["of an old release, which shows twenty ranks and no mark"][0]).rings == [list(range(20))]


def test_shapes_of_rings_and_trees() -> None:
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    assert (crossings([0, 1, 2, 3], hosts), crossings([0, 2, 1, 3], hosts)) == (2, 4)
    assert crossings([0, 4], hosts) is None
    assert (fewest_crossings([0, 1, 2, 3], hosts), fewest_crossings([0, 1], hosts)) == (2, 0)
    assert is_closed([0, 1, 2, 3], 4)
    assert not is_closed([0, 1, 2], 4)
    assert tree_shape([(0, 1), (1, 2), (1, 3)]) == (1, 2, 2)
    assert tree_shape([(0, 1), (1, 0)]) == (0, 0, 1)
    assert tree_shape([]) == (0, 0, 0)


def test_the_only_rank_missing_in_a_split_is_known_by_elimination() -> None:
    world = (
        "n{0}:1{0}:1{0} [0] NCCL INFO ncclCommInitRank comm 0x1{0} rank {0} nranks 4 cudaDev 0 nvmlDev 0 busId {0}0 "
    )
    split = "n{0}:1{0}:1{0} [0] NCCL INFO ncclCommSplit comm 0x2{0} rank {1} nranks 2 cudaDev 0 nvmlDev 0 busId {0}0 "
    began = "parent 0x1{0} splitCount 1 color {2} key {0}- Init START\n"
    lines = [
        world.format(rank) + f"commId 0x7 - Init {phase}\n" for phase in ("START", "COMPLETE") for rank in range(4)
    ]
    for absent, ranks in (({3}, [[0, 2], [1, 3]]), ({1, 3}, [[0, 2]]), ({2, 3}, [[0, None], [1, None]])):
        own = [(split + began).format(rank, rank // 2, rank % 2) for rank in range(4) if rank not in absent]
        job = nccl_inspect.read("".join([*lines, *own]).encode())
        assert sorted(map(str, (comm.ranks for comm in job.communicators[1:]))) == sorted(map(str, ranks)), absent
