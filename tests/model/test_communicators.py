"""What the document does not tell of communicators: which rings are whole, times, and what real groups are for.

States, names, purposes and contradictions are in `tests/labels/built_model.toml` (`model/communicators`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sample_data

import nccl_inspect
from nccl_inspect.model.communicators.shapes import crossings, fewest_crossings, is_closed, tree_shape
from nccl_inspect.model.job import CommunicatorInfo


def line(rank: int, message: str, time: str = "") -> str:
    return f"{time}node-{rank // 2}:{10 + rank}:{10 + rank} [{rank % 2}] NCCL INFO {message}\n"


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


def mismatches(cases: Mapping[str, tuple[str, object]], of: Callable[[CommunicatorInfo], object]) -> str:
    """Return in which logs something of the communicator is not what is known; "" if it is everywhere."""
    found = ((name, of(comm(text)), known) for name, (text, known) in cases.items())
    return "\n".join(f"{name}: {value}, known: {known}" for name, value, known in found if value != known)


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


def test_a_life_has_stages_with_times() -> None:
    stamps = [f"[2026-11-20 23:13:0{second}] " for second in range(8)]
    lines = [line(rank, init(rank, "START"), stamps[rank]) for rank in range(4)]
    lines += [line(rank, init(rank, "COMPLETE"), stamps[4]) for rank in range(4)]
    timings = (
        "Init timings - ncclCommInitRank: rank 0 nranks 4 total 2.79 (kernels 0.00, alloc 0.00, bootstrap 0.00, "
        "allgathers 0.02, topo 0.01, graphs 0.00, connections 0.00, rest 2.75)"
    )
    lines += [line(0, timings, stamps[4]), line(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", stamps[5])]
    stages = comm("".join([*lines, line(0, "Connected all rings", stamps[6])])).lifetime
    assert [(stage.name, stage.ranks, stage.seconds) for stage in stages] == [
        ("started", 4, None),
        ("complete", 4, 2.79),
        ("connected", 1, None),
    ]
    assert (stages[0].first, stages[0].last) == ("2026-11-20 23:13:00", "2026-11-20 23:13:03")
    assert stages[1].first == "2026-11-20 23:13:04"
    assert [stage.first for stage in comm(world("START", "COMPLETE")).lifetime] == [None, None]


RING = "Channel 00/01 : 0 1 2 3"
TWENTY = "Channel 00/01 : " + "".join(f" {rank:3}" for rank in range(20))
CUT = "Channel 00/02 :" + "".join(f" {rank:2}" for rank in range(36)) + " ..."


def test_trees_have_the_links_that_either_end_shows() -> None:
    started = world("START")
    shown = line(1, "Trees [0] 3/-1/-1->1->0 [1] -1/-1/-1->1->2") + first("Trees [0] 1/-1/-1->0->-1")
    wrong = world("START", nranks=2) + first("Trees [0] 9/-1/-1->0->-1 [1] 1/-1/-1->7->8")
    trees: dict[str, tuple[str, object]] = {
        "from either end": (started + shown, [[[0, 1], [1, 3]], [[2, 1]]]),
        "to ranks that do not exist": (wrong, [[], []]),
    }
    assert not mismatches(trees, lambda comm: comm.trees)


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
    assert not mismatches(rings, lambda comm: comm.incomplete_rings)
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
