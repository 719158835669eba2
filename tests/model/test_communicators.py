"""What there is to know of a communicator besides its ranks: its name, its life, its use, its rings and trees."""

from __future__ import annotations

from random import Random

import pytest
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


def init(rank: int, phase: str, comm: int = 0, of: int = 0, nranks: int = 4) -> str:
    return (
        f"ncclCommInitRank comm 0x{comm}a rank {of} nranks {nranks} cudaDev {rank % 2} nvmlDev {rank % 2} "
        f"busId {6 + rank % 2}0 commId 0x{comm + 7} - Init {phase}"
    )


def world(*phases: str) -> str:
    return "".join(line(rank, init(rank, phase, of=rank)) for phase in phases for rank in range(4))


def read(text: str) -> Job:
    return nccl_inspect.read(text.encode())


def comm(text: str) -> CommunicatorInfo:
    return read(text).communicators[0]


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
    found = purposes(simulated(2, 2, [[0, 1], [2, 3]], [[0, 2], [1, 3]]))
    assert found == {
        "split 1 color 0 of world": "TP: 2 groups of 2 neighbouring ranks, each within one host, cover the job",
        "split 1 color 1 of world": "TP: 2 groups of 2 neighbouring ranks, each within one host, cover the job",
        "split 2 color 0 of world": "DP: 2 groups of every 2nd rank, each across hosts, cover the job",
        "split 2 color 1 of world": "DP: 2 groups of every 2nd rank, each across hosts, cover the job",
    }


@pytest.mark.parametrize(
    ("hosts", "gpus", "groups"),
    [
        (2, 2, [[0, 1]]),  # one group alone
        (2, 4, [[0, 1], [2, 3], [4, 5]]),  # that leave ranks out
        (2, 4, [[0, 1, 2, 3], [2, 3, 4, 5]]),  # that overlap
        (2, 4, [[0, 1, 4, 5], [2, 3, 6, 7]]),  # of no constant distance
        (1, 4, [[0, 2], [1, 3]]),  # strided, all on one host
    ],
)
def test_other_shapes_say_nothing(hosts: int, gpus: int, groups: list[list[int]]) -> None:
    assert purposes(simulated(hosts, gpus, groups)) == {}


@pytest.mark.parametrize("name", ["socket-2node-tp4-dp2", "v2.19.4-socket-2node"])
def test_what_shapes_of_real_jobs_say_is_true(name: str) -> None:
    true = {(comm["kind"], tuple(comm["ranks"])) for comm in sample_data.truth(name)["communicators"]}
    for found in sample_data.job(name).communicators:
        if found.parallelism:
            assert (found.parallelism.kind.lower(), tuple(found.ranks)) in true


def test_groups_that_only_send_and_receive_are_likely_pipelines() -> None:
    found = simulated(4, 2, [[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 4], [1, 5], [2, 6], [3, 7]], exchanging=1)
    assert {text[:2] for text in purposes(found).values()} == {"TP", "PP"}


def test_groups_of_the_same_ranks_are_read_by_what_each_does() -> None:
    """DeviceMesh and ``new_group`` made two groups of ranks 0 and 2; the calls in the log tell which one reduces."""
    job = sample_data.job("torch-mesh-2node")
    calls = {call.communicator: call.func for call in job.calls}
    kinds = {comm.id: comm.parallelism.kind for comm in job.communicators if comm.parallelism and len(comm.hosts) > 1}
    assert {(kind, calls[comm] in ("Send", "Recv")) for comm, kind in kinds.items()} == {("PP", True), ("DP", False)}
    assert sorted(kinds.values()) == ["DP", "DP", "PP", "PP"]


TORCH = (
    "[rank{0}]:[I1218 20:27:21.426415540 ProcessGroupNCCL.cpp:2260] [PG ID 1 PG GUID 3(mesh_tp) Rank {0}] "
    "ProcessGroupNCCL created ncclComm_ 0x0a on CUDA device: 0\n"
)


def test_the_name_of_a_process_group_comes_by_pointer_and_rank() -> None:
    text = world("START", "COMPLETE") + "".join(TORCH.format(rank) for rank in range(4))
    found = comm(text)
    assert found.group == "mesh_tp"
    assert found.parallelism is None
    assert comm(text.replace("0x0a on", "0x0b on")).group is None
    assert "called mesh_tp" not in read(text).to_dict()["job"]  # type: ignore[operator]


def test_a_name_on_which_ranks_differ_is_none() -> None:
    text = world("START", "COMPLETE") + TORCH.format(0) + TORCH.format(1).replace("mesh_tp", "mesh_dp")
    assert comm(text).group is None


def test_a_name_given_to_nccl_is_that_of_the_next_start() -> None:
    named = "".join(line(rank, "Comm config Comm name set to tensor") for rank in range(4))
    assert comm(named + world("START", "COMPLETE")).group == "tensor"
    assert comm(world("START", "COMPLETE") + named).group is None


def test_a_life_has_stages_with_times() -> None:
    stamps = [f"[2026-11-20 23:13:0{second}] " for second in range(8)]
    lines = [line(rank, init(rank, "START", of=rank), stamps[rank]) for rank in range(4)]
    lines += [line(rank, init(rank, "COMPLETE", of=rank), stamps[4]) for rank in range(4)]
    lines += [
        line(
            0,
            "Init timings - ncclCommInitRank: rank 0 nranks 4 total 2.79 (kernels 0.00, alloc 0.00, bootstrap 0.00, "
            "allgathers 0.02, topo 0.01, graphs 0.00, connections 0.00, rest 2.75)",
            stamps[4],
        ),
        line(0, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", stamps[5]),
        line(0, "Connected all rings", stamps[6]),
    ]
    started, complete, connected = comm("".join(lines)).lifetime
    assert (started.name, started.ranks, started.first) == ("started", 4, "2026-11-20 23:13:00")
    assert (complete.name, complete.ranks, complete.seconds) == ("complete", 4, 2.79)
    assert (started.last, complete.first) == ("2026-11-20 23:13:03", "2026-11-20 23:13:04")
    assert (connected.name, connected.ranks) == ("connected", 1)
    assert [stage.first for stage in comm(world("START", "COMPLETE")).lifetime] == [None, None]


COLLNET = "CollNet 00/0 : {} [send] via COLLNET/SHARP/0/GDRDMA"


def test_collnet_lines_are_no_paths_and_not_unplaced() -> None:
    text = "".join(line(rank, COLLNET.format(rank)) for rank in (0, 2))
    job = read(world("START", "COMPLETE") + text)
    assert job.unplaced_lines == 0
    assert len(job.paths) == 0
    assert job.communicators[0].collnet == [0, 2]
    assert job.communicators[0].algorithms == ["CollNet"]


def test_binomial_trees_are_pat() -> None:
    text = world("START", "COMPLETE") + line(0, "Channel 00/0 : 0[0] -> 2[0] [send] via NET/Socket/0")
    assert comm(text + line(0, "Connected binomial trees")).algorithms == ["PAT"]
    assert comm(text + line(0, "Connected all rings")).algorithms == []


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["Trees [0] 1/-1/-1->0->-1", "Trees [0] 2/-1/-1->1->0"], []),
        (
            ["Trees [0] 1/-1/-1->0->-1", "Trees [0] 2/-1/-1->1->3"],
            ["channel 0: rank 0 has 1 below it in the tree, 1 not 0 above"],
        ),
        (
            ["Trees [0] 2/-1/-1->0->-1", "Trees [0] 2/-1/-1->1->0"],
            ["channel 0: rank 1 has 0 above it in the tree, 0 not 1 below"],
        ),
        (
            ["Channel 00/01 : 0 1 2 3", "Channel 00/01 : 0 2 1 3"],
            ["channel 0: ranks 0 and 1 print different rings"],
        ),
    ],
)
def test_ranks_that_contradict_each_other_are_told(lines: list[str], found: list[str]) -> None:
    text = world("START") + "".join(line(rank, message) for rank, message in enumerate(lines)) + world("COMPLETE")
    assert comm(text).inconsistent == found


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


P2P = "Channel 00/0 : 0[0] -> 1[1] via {}"


@pytest.mark.parametrize(
    ("platform", "way", "expected"),
    [
        ("p4d.24xlarge", "SHM/direct/direct", "P2P (NVLink)"),
        ("p4d.24xlarge", "P2P/CUMEM", "P2P (NVLink)"),
        ("g6e.12xlarge", "SHM/direct/direct", "SHM"),
        (None, "SHM/direct/direct", None),
    ],
)
def test_what_a_pair_could_have_is_told_where_the_machine_is_known(
    platform: str | None, way: str, expected: str | None
) -> None:
    text = line(0, P2P.format(way)).replace("/0 :", " :" if way.startswith("SHM") else "/0 :")
    assert nccl_inspect.read(text.encode(), platform=platform).paths.between(0, 1).expected == expected


def test_the_largest_group_of_one_host_is_not_the_world() -> None:
    """Groups made one by one, no communicator of all ranks, and the log of one of two hosts."""
    job = Simulated(RELEASE, ["node-0", "node-1"], 2, Random(3))
    job.create([[0, 1], [2, 3]])
    job.create([[0, 2], [1, 3]])
    found = read("".join(f"{text}\n" for text, _ in job.log() if text.startswith("node-0")))
    assert found.world_size is None


RANKS = "".join(
    f"#  Rank {rank:2} Group  0 Pid   509{rank} on   node-0 device {rank:2} [0x21] NVIDIA H100\n" for rank in (0, 1)
)


def test_nccl_tests_tell_the_size_of_the_world_where_nccl_does_not() -> None:
    version = "NCCL version 2.27.3+cuda12.9\n"
    assert read(RANKS + version).world_size == 2
    assert read(version).world_size is None
    assert read(RANKS.splitlines(keepends=True)[1] + version).world_size is None
    assert read(world("START") + RANKS).world_size == 4


def test_members_without_commid_are_not_mixed_with_those_of_another_host() -> None:
    job = Simulated(OLD, ["node-0", "node-1"], 4, Random(5))
    job.create([list(range(8))])
    job.create([[0, 1, 2, 3], [4, 5, 6, 7]])
    found = read("".join(f"{text}\n" for text, _ in job.log()))
    assert sorted(tuple(comm.ranks) for comm in found.communicators) == [
        (0, 1, 2, 3),
        (0, 1, 2, 3, 4, 5, 6, 7),
        (4, 5, 6, 7),
    ]
