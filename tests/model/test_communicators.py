"""What there is to know of a communicator besides its ranks: name, life, use, state, rings and trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import sample_data
import simulation
from simulation import Job as Simulated

import nccl_inspect
from nccl_inspect.model.communicators.shapes import crossings, fewest_crossings, is_closed, tree_shape
from nccl_inspect.model.job import CommunicatorInfo, Job

RELEASE = next(release for release in simulation.RELEASES if release.name == "2.27.3")
OLD = next(release for release in simulation.RELEASES if release.name == "2.14.3")


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


def read(text: str) -> Job:
    return nccl_inspect.read(text.encode())


def comm(text: str) -> CommunicatorInfo:
    return read(text).communicators[0]


def mismatches(cases: Mapping[str, tuple[str, object]], of: Callable[[CommunicatorInfo], object]) -> str:
    """Return in which logs something of the communicator is not what is known; "" if it is everywhere."""
    found = ((name, of(comm(text)), known) for name, (text, known) in cases.items())
    return "\n".join(f"{name}: {value}, known: {known}" for name, value, known in found if value != known)


# --- what groups are for


def simulated(hosts: int, gpus: int, *groups: list[list[int]], exchanging: int = -1) -> Job:
    job = Simulated(RELEASE, [f"node-{host}" for host in range(hosts)], gpus, Random(1))
    (whole,) = job.create([list(range(hosts * gpus))])
    job.collective([whole])
    for number, some in enumerate(groups):
        made = job.create(some, whole)
        job.exchange(made) if number == exchanging else job.collective(made)
    return read("".join(f"{text}\n" for text, _ in job.log()))


def purposes(job: Job) -> dict[str, str]:
    return {
        comm.id: f"{comm.parallelism.kind}: {comm.parallelism.evidence}"
        for comm in job.communicators
        if comm.parallelism
    }


def test_groups_within_hosts_are_likely_tensor_parallel_and_those_across_data_parallel() -> None:
    assert purposes(simulated(2, 2, [[0, 1], [2, 3]], [[0, 2], [1, 3]])) == {
        "split 1 color 0 of world": "TP: 2 groups of 2 neighbouring ranks, each within one host, cover the job",
        "split 1 color 1 of world": "TP: 2 groups of 2 neighbouring ranks, each within one host, cover the job",
        "split 2 color 0 of world": "DP: 2 groups of every 2nd rank, each across hosts, cover the job",
        "split 2 color 1 of world": "DP: 2 groups of every 2nd rank, each across hosts, cover the job",
    }
    pipelines = simulated(4, 2, [[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 4], [1, 5], [2, 6], [3, 7]], exchanging=1)
    assert {text[:2] for text in purposes(pipelines).values()} == {"TP", "PP"}


def test_other_shapes_say_nothing() -> None:
    for why, hosts, gpus, groups in (
        ("one group alone", 2, 2, [[0, 1]]),
        ("groups that leave ranks out", 2, 4, [[0, 1], [2, 3], [4, 5]]),
        ("groups that overlap", 2, 4, [[0, 1, 2, 3], [2, 3, 4, 5]]),
        ("groups of no constant distance", 2, 4, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("strided groups on one host", 1, 4, [[0, 2], [1, 3]]),
    ):
        assert purposes(simulated(hosts, gpus, groups)) == {}, why


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


# --- names, sizes, lives

TORCH = (
    "[rank{0}]:[I1218 20:27:21.426415540 ProcessGroupNCCL.cpp:2260] [PG ID 1 PG GUID 3(mesh_tp) Rank {0}] "
    "ProcessGroupNCCL created ncclComm_ 0x0a on CUDA device: 0\n"
)


def test_the_name_of_a_group() -> None:
    started = world("START", "COMPLETE")
    torch = started + "".join(TORCH.format(rank) for rank in range(4))
    named = "".join(line(rank, "Comm config Comm name set to tensor") for rank in range(4))
    differing = started + TORCH.format(0) + TORCH.format(1).replace("mesh_tp", "mesh_dp")
    assert not mismatches(
        {
            "the name of a process group comes by pointer and rank": (torch, "mesh_tp"),
            "of another pointer": (torch.replace("0x0a on", "0x0b on"), None),
            "one on which ranks differ is none": (differing, None),
            "one that is given to NCCL is that of the next start": (named + started, "tensor"),
            "and not of the one before": (started + named, None),
        },
        lambda comm: comm.group,
    )
    assert comm(torch).parallelism is None


RANKS = "".join(
    f"#  Rank {rank:2} Group  0 Pid   509{rank} on   node-0 device {rank:2} [0x21] NVIDIA H100\n" for rank in (0, 1)
)


def test_the_size_of_the_world() -> None:
    version = "NCCL version 2.27.3+cuda12.9\n"
    for text, size in {
        RANKS + version: 2,  # nccl-tests tell it where NCCL does not
        version: None,
        RANKS.splitlines(keepends=True)[1] + version: None,
        world("START") + RANKS: 4,
    }.items():
        assert read(text).world_size == size, text
    # Groups made one by one, no communicator of all ranks, and the log of one of two hosts.
    job = Simulated(RELEASE, ["node-0", "node-1"], 2, Random(3))
    job.create([[0, 1], [2, 3]])
    job.create([[0, 2], [1, 3]])
    assert read("".join(f"{text}\n" for text, _ in job.log() if text.startswith("node-0"))).world_size is None


def test_members_without_commid_are_not_mixed_with_those_of_another_host() -> None:
    job = Simulated(OLD, ["node-0", "node-1"], 4, Random(5))
    job.create([list(range(8))])
    job.create([[0, 1, 2, 3], [4, 5, 6, 7]])
    found = {tuple(comm.ranks) for comm in read("".join(f"{text}\n" for text, _ in job.log())).communicators}
    assert found == {(0, 1, 2, 3), tuple(range(8)), (4, 5, 6, 7)}


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


CONNECT = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
ENDED = "comm 0x0a rank 0 nranks 2 cudaDev 0 busId 60 - {} COMPLETE"


def test_a_state_is_what_all_ranks_reached() -> None:
    started = world("START", nranks=2)
    complete = world("START", "COMPLETE", nranks=2)
    last = init(0, "COMPLETE", 2)
    both = first(CONNECT, "Connected all rings")
    other = line(1, "Channel 00/0 : 1[1] -> 0[0] via P2P/CUMEM")
    states = {
        "started by all": (started, "started"),
        "complete on one": (started + first(last), "started"),
        "connected on one that alone is complete": (started + both + first(last), "started"),
        "complete on all": (complete, "complete"),
        "complete on the only one in the log": (world("START", "COMPLETE", nranks=2, present=1), "complete"),
        "connecting": (complete + first(CONNECT), "complete"),
        "connected": (complete + both, "connected"),
        "connected while it is made": (started + first(CONNECT) + world("COMPLETE", nranks=2), "connected"),
        "connected for sends": (complete + first(CONNECT.replace("/0 :", "/1 :")), "connected"),
        "connected on one, connecting on another": (complete + both + other, "complete"),
        "destroyed on one": (complete + both + first(ENDED.format("Destroy")), "connected"),
        "destroyed": (world("START", "COMPLETE", nranks=2, present=1) + first(ENDED.format("Destroy")), "destroyed"),
        "aborted": (complete + first(ENDED.format("Abort")), "aborted"),
    }
    assert not mismatches(states, lambda comm: comm.state)


# --- rings, trees, other algorithms

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
    # The last rank printed is not the neighbour of the first.
    after = first(TWENTY, "Channel 00/0 : 0[0] -> 31[1] [send] via NET/IB/0")
    job = read(world("START", "COMPLETE", nranks=32, present=2) + after)
    assert job.paths.between(0, 31).communicators == ["world"]
    assert not job.unplaced_lines


def test_ranks_that_contradict_each_other_are_told() -> None:
    def log(*lines: str) -> str:
        said = "".join(line(rank, message) for rank, message in enumerate(lines))
        return world("START") + said + world("COMPLETE")

    contradictions: dict[str, tuple[str, object]] = {
        "trees that agree": (log("Trees [0] 1/-1/-1->0->-1", "Trees [0] 2/-1/-1->1->0"), []),
        "below": (
            log("Trees [0] 1/-1/-1->0->-1", "Trees [0] 2/-1/-1->1->3"),
            ["channel 0: rank 0 has 1 below it in the tree, 1 not 0 above"],
        ),
        "above": (
            log("Trees [0] 2/-1/-1->0->-1", "Trees [0] 2/-1/-1->1->0"),
            ["channel 0: rank 1 has 0 above it in the tree, 0 not 1 below"],
        ),
        "rings": (log(RING, "Channel 00/01 : 0 2 1 3"), ["channel 0: ranks 0 and 1 print different rings"]),
    }
    assert not mismatches(contradictions, lambda comm: comm.inconsistent)


def test_other_algorithms() -> None:
    complete = world("START", "COMPLETE")
    sends = complete + first("Channel 00/0 : 0[0] -> 2[0] [send] via NET/Socket/0")
    collnet = "CollNet 00/0 : {} [send] via COLLNET/SHARP/0/GDRDMA"
    job = read(complete + "".join(line(rank, collnet.format(rank)) for rank in (0, 2)))
    assert (job.unplaced_lines, len(job.paths), job.communicators[0].collnet) == (0, 0, [0, 2])
    assert job.communicators[0].algorithms == ["CollNet"]
    assert comm(sends + first("Connected binomial trees")).algorithms == ["PAT"]
    assert comm(sends + first("Connected all rings")).algorithms == []


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
