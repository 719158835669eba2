"""What the model makes of communicators and paths: both ends of connections, trees, rings and states."""

from __future__ import annotations

import pytest

import nccl_inspect
from nccl_inspect.model.connection import End, Link
from nccl_inspect.model.job import CommunicatorInfo, Job, Path


def line(host: str, pid: int, message: str) -> str:
    return f"node-{host}:{pid}:{pid} [0] NCCL INFO {message}\n"


def init(rank: int, nranks: int, phase: str) -> str:
    return (
        f"ncclCommInitRank comm 0x{rank + 1} rank {rank} nranks {nranks} cudaDev 0 nvmlDev 0 busId 60 commId 0x7 - "
        f"Init {phase}"
    )


def read(text: str) -> Job:
    return nccl_inspect.read(text.encode())


def net(side: str, nic: str, channel: int = 0, conn: int = 0, src: int = 0, dst: int = 1) -> str:
    host, pid = ("a", 1) if side == "send" else ("b", 2)
    message = f"Channel {channel:02}/{conn} : {src}[0] -> {dst}[0] [{side}] via NET/{nic}"
    return line(host, pid, message)


def path(*lines: str) -> Path:
    return read("".join(lines)).paths.between(0, 1)


def test_both_ends_of_a_connection_are_joined_by_channel() -> None:
    found = path(
        net("send", "IB/0/GDRDMA", 0),
        net("send", "IB/1/GDRDMA", 1),
        net("receive", "IB/0/GDRDMA", 0),
        net("receive", "IB/3", 1),
    )
    assert found.links == [
        Link(End(0, None, True, None), End(0, None, True, None), False, 0b01),
        Link(End(1, None, True, None), End(3, None, False, None), False, 0b10),
    ]
    assert [link.crosses_rails for link in found.links] == [False, True]
    assert found.gdr == "partial"
    assert (found.gdr_at("send"), found.gdr_at("receive")) == (True, "partial")


def test_channels_with_equal_ends_are_one_link() -> None:
    lines = [net(side, "IB/0", channel) for channel in range(64) for side in ("send", "receive")]
    (link,) = path(*lines).links
    assert link.channels == (1 << 64) - 1


def test_an_end_whose_log_is_missing_is_none() -> None:
    found = path(net("receive", "IB/2"))
    assert found.links == [Link(None, End(2, None, False, None), False, 1)]
    assert not found.links[0].crosses_rails
    assert found.ends("send") == set()
    assert (found.gdr_at("send"), found.gdr_at("receive")) == (None, False)


def test_connection_sets_are_not_mixed() -> None:
    found = path(
        net("send", "IB/0", conn=0), net("receive", "IB/0", conn=0), net("send", "IB/1", conn=1), net("receive", "IB/2")
    )
    crossing = [link for link in found.links if link.crosses_rails]
    assert crossing == []
    assert {link.send_recv for link in found.links} == {False, True}


def test_a_channel_that_one_side_names_twice_is_not_paired() -> None:
    found = path(net("send", "IB/0"), net("send", "IB/1"), net("receive", "IB/0"))
    assert all(link.send is None or link.receive is None for link in found.links)
    assert len(found.links) == 3


def test_other_transports_have_no_links() -> None:
    assert path(line("a", 1, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")).links == []


@pytest.mark.parametrize(
    ("listed", "nics"),
    [
        ("NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", ["mlx5_0", "mlx5_3"]),
        (
            "NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [1]={[2] mlx5_2:1/IB, [3] mlx5_3:1/IB} [RO]; "
            "OOB eth0:10.0.0.1<0>",
            ["mlx5_0+mlx5_1", "mlx5_2+mlx5_3"],
        ),
        ("NET/IB : Using [0]={x} [1]mlx5_5:1/IB [RO]; OOB eth0:10.0.0.1<0>", [None, "mlx5_5"]),
        ("NET/IB : Made virtual device [1] name=mlx5_0+mlx5_1 speed=400000 ndevs=2", [None, "mlx5_0+mlx5_1"]),
    ],
)
@pytest.mark.parametrize("network", ["IB", "IBext_v8"])
def test_nics_have_the_names_of_the_list_of_their_process(listed: str, nics: list[str | None], network: str) -> None:
    sending = [net("send", f"{network}/{index}", index) for index in (0, 1)]
    found = path(line("a", 1, listed), *sending, net("receive", f"{network}/1", 1))
    assert [link.send and link.send.nic for link in found.links] == nics
    assert found.links[1].receive == End(1, None, False, None)
    assert found.nic == nics[0]


def test_equal_names_are_one_rail_whatever_their_index() -> None:
    lists = [
        line(host, pid, f"NET/IB : Using{names} [RO]; OOB eth0:10.0.0.1<0>")
        for host, pid, names in (("a", 1, " [0]mlx5_0:1/IB [1]mlx5_4:1/IB"), ("b", 2, " [0]mlx5_4:1/IB"))
    ]
    found = path(*lists, net("send", "IB/1"), net("receive", "IB/0"))
    assert [link.crosses_rails for link in found.links] == [False]


def test_the_rank_of_a_proxy_is_a_global_one() -> None:
    world = "".join(
        line("a", 10 + rank, f"{text}")
        for rank in range(4)
        for text in (
            f"ncclCommInitRank comm 0x{rank + 1}0 rank {rank} nranks 4 cudaDev {rank} nvmlDev {rank} busId {rank}0 "
            f"commId 0x7 - Init {phase}"
            for phase in ("START", "COMPLETE")
        )
    )
    split = "".join(
        line("a", 10 + rank, text)
        for rank in (2, 3)
        for text in (
            f"ncclCommSplit comm 0x{rank}9 rank {rank - 2} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank}0 parent "
            f"0x{rank + 1}0 splitCount 1 color 1 key 1 commId 0x8 - Init START",
            *(["Channel 00/1 : 0[2] -> 1[3] [send] via NET/IB/3(1)/Shared"] if rank == 2 else []),
        )
    )
    found = read(world + split).paths.between(2, 3)
    assert found.pxn_rank == 3
    assert found.links[0].send == End(3, None, False, 3)


def communicator(*lines: str) -> CommunicatorInfo:
    (comm,) = read("".join(lines)).communicators
    return comm


def ranks(nranks: int, *phases: str, present: int | None = None) -> str:
    return "".join(
        line("a", 10 + rank, init(rank, nranks, phase)) for phase in phases for rank in range(present or nranks)
    )


def rank0(*messages: str) -> str:
    return "".join(line("a", 10, message) for message in messages)


def test_trees_have_the_links_that_either_end_shows() -> None:
    comm = communicator(
        ranks(4, "START"),
        line("a", 11, "Trees [0] 3/-1/-1->1->0 [1] -1/-1/-1->1->2"),
        rank0("Trees [0] 1/-1/-1->0->-1"),
    )
    assert comm.trees == [[[0, 1], [1, 3]], [[2, 1]]]


def test_links_to_ranks_that_do_not_exist_are_left_out() -> None:
    assert communicator(ranks(2, "START"), rank0("Trees [0] 9/-1/-1->0->-1 [1] 1/-1/-1->7->8")).trees == [[], []]


RING = "Channel 00/01 : 0 1 2 3"


@pytest.mark.parametrize(
    ("lines", "incomplete"),
    [
        (rank0(RING), []),
        (rank0("Channel 00/01 : 0 1 2"), [0]),
        (rank0("Channel 00/02 : 0 1 2 3", "Channel 01/02 : 0 1 1 3"), [1]),
        (rank0(RING) + line("a", 11, "Channel 00/01 : 0 2 1 3"), [0]),
        (rank0("Channel 00/01 : 0 1 2 9"), [0]),
    ],
)
def test_rings_that_are_not_whole_are_told(lines: str, incomplete: list[int]) -> None:
    assert communicator(ranks(4, "START", "COMPLETE"), lines).incomplete_rings == incomplete


def test_a_ring_of_an_old_release_shows_twenty_ranks_and_no_mark() -> None:
    ring = "Channel 00/01 : " + "".join(f" {rank:3}" for rank in range(20))
    comm = communicator(ranks(32, "START", present=2), rank0(ring))
    assert comm.rings == [list(range(20))]
    assert comm.incomplete_rings == [0]


def test_a_ring_that_nccl_cut_is_incomplete() -> None:
    ring = "Channel 00/02 :" + "".join(f" {rank:2}" for rank in range(36)) + " ..."
    assert communicator(ranks(64, "START", present=2), rank0(ring)).incomplete_rings == [0]


def test_a_cut_ring_takes_no_connection_from_its_communicator() -> None:
    """The last rank printed is not the neighbour of the first."""
    ring = "Channel 00/01 : " + "".join(f" {rank:3}" for rank in range(20))
    after = rank0(ring, "Channel 00/0 : 0[0] -> 31[0] [send] via NET/IB/0")
    job = read(ranks(32, "START", "COMPLETE", present=2) + after)
    assert job.paths.between(0, 31).communicators == ["world"]
    assert not job.unplaced_lines


CONNECT = "Channel 00/0 : 0[0] -> 1[0] via P2P/CUMEM"
END = "comm 0x1 rank 0 nranks 2 cudaDev 0 busId 60 - {} COMPLETE"


@pytest.mark.parametrize(
    ("state", "lines"),
    [
        ("started", ranks(2, "START")),
        ("started", ranks(2, "START") + rank0(init(0, 2, "COMPLETE"))),
        ("started", ranks(2, "START") + rank0(CONNECT, "Connected all rings", init(0, 2, "COMPLETE"))),
        ("complete", ranks(2, "START", "COMPLETE")),
        ("complete", ranks(2, "START", "COMPLETE", present=1)),
        ("complete", ranks(2, "START", "COMPLETE") + rank0(CONNECT)),
        ("connected", ranks(2, "START", "COMPLETE") + rank0(CONNECT, "Connected all rings")),
        ("connected", ranks(2, "START") + rank0(CONNECT) + ranks(2, "COMPLETE")),
        ("connected", ranks(2, "START", "COMPLETE") + rank0(CONNECT.replace("/0 :", "/1 :"))),
        (
            "complete",
            ranks(2, "START", "COMPLETE")
            + rank0(CONNECT, "Connected all rings")
            + line("a", 11, "Channel 00/0 : 1[0] -> 0[0] via P2P/CUMEM"),
        ),
        ("connected", ranks(2, "START", "COMPLETE") + rank0(CONNECT, "Connected all rings", END.format("Destroy"))),
        ("destroyed", ranks(2, "START", "COMPLETE", present=1) + rank0(END.format("Destroy"))),
        ("aborted", ranks(2, "START", "COMPLETE") + rank0(END.format("Abort"))),
    ],
)
def test_a_state_is_what_all_ranks_reached(state: str, lines: str) -> None:
    assert communicator(lines).state == state


GPUS = "GPU/{} :GPU/60 ({}) GPU/70 ({}) CPU/0 (1/48.0/PHB)␣".replace("␣", " ")
P2P = line("a", 1, "Channel 00/0 : 0[{}] -> 1[{}] via P2P/CUMEM")


@pytest.mark.parametrize(
    ("system", "kind", "gpus", "link"),
    [
        ("", "2/360.0/NVL", ("60", "70"), "NVLink"),
        ("0-", "2/24.0/PIX", ("60", "70"), "PCIe"),
        ("0-", "2/24.0/PHB", ("60", "70"), "PCIe"),
        ("0-", "2/24.0/C2C", ("60", "70"), None),
        ("0-", "2/360.0/NVL", ("0", "1"), None),
    ],
)
def test_the_link_of_p2p_is_what_nccl_detected(system: str, kind: str, gpus: tuple[str, str], link: str | None) -> None:
    seen = line("a", 1, GPUS.format("60", "0/5000.0/LOC", kind).replace("GPU/", f"GPU/{system}"))
    assert path(seen, P2P.format(*gpus)).link == link
    assert path(P2P.format(*gpus)).link is None


def test_processes_that_contradict_each_other_prove_no_link() -> None:
    seen = [
        line("a", pid, GPUS.format("60", "0/5000.0/LOC", kind)) for pid, kind in ((1, "2/9.0/NVL"), (2, "2/9.0/PIX"))
    ]
    assert path(*seen, P2P.format("60", "70")).link is None


@pytest.mark.parametrize(
    ("platform", "link"), [("p4d.24xlarge", "NVLink"), ("g6e.12xlarge", "PCIe"), ("p3dn.24xlarge", None)]
)
def test_a_platform_tells_the_link_where_all_its_pairs_have_the_same(platform: str, link: str | None) -> None:
    job = nccl_inspect.read(P2P.format(0, 1).encode(), platform=platform)
    assert job.paths.between(0, 1).link == link


def test_ranks_on_an_nvswitch_talk_over_nvlink() -> None:
    seen = ranks(2, "START") + "".join(
        line("a", 10 + rank, "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 24)") for rank in (0, 1)
    )
    assert read(seen + rank0(CONNECT)).paths.between(0, 1).link == "NVLink"
    assert read(ranks(2, "START") + rank0(CONNECT)).paths.between(0, 1).link is None
