"""What the document does not tell of communicators: which rings are whole, and what real groups are for.

Lives, trees, states, names, purposes and contradictions are in `tests/labels/built_model.toml` (`model/communicators`).
"""

from __future__ import annotations

import pytest
import sample_data

import nccl_inspect
from nccl_inspect.errors import NcclInspectError
from nccl_inspect.model.job import CommunicatorInfo, Job, Path
from nccl_inspect.model.paths.path import End, Link


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


# --- What the document does not tell of paths; what is left of cut logs is in `tests/labels/built_model.toml`


def host_line(host: str, pid: int, message: str) -> str:
    return f"node-{host}:{pid}:{pid} [0] NCCL INFO {message}\n"


def read(*lines: str, platform: str | None = None) -> Job:
    return nccl_inspect.read("".join(lines).encode(), platform=platform)


def path(*lines: str, platform: str | None = None) -> Path:
    return read(*lines, platform=platform).paths.between(0, 1)


def net(side: str, nic: str, channel: int = 0, conn: int = 0) -> str:
    host, pid = ("a", 1) if side == "send" else ("b", 2)
    return host_line(host, pid, f"Channel {channel:02}/{conn} : 0[0] -> 1[0] [{side}] via NET/{nic}")


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
    equal = path(*(net(side, "IB/0", channel) for channel in range(64) for side in ("send", "receive")))
    assert [link.channels for link in equal.links] == [(1 << 64) - 1]


def test_an_end_whose_log_is_missing_is_none() -> None:
    found = path(net("receive", "IB/2"))
    assert found.links == [Link(None, End(2, None, False, None), False, 1)]
    assert not found.links[0].crosses_rails
    assert found.ends("send") == set()
    assert (found.gdr_at("send"), found.gdr_at("receive")) == (None, False)


def test_ends_that_do_not_belong_together_are_not_paired() -> None:
    sets = path(
        net("send", "IB/0", conn=0), net("receive", "IB/0", conn=0), net("send", "IB/1", conn=1), net("receive", "IB/2")
    )
    assert not any(link.crosses_rails for link in sets.links), "connection sets are not mixed"
    assert {link.send_recv for link in sets.links} == {False, True}
    twice = path(net("send", "IB/0"), net("send", "IB/1"), net("receive", "IB/0"))
    assert [(link.send is None) + (link.receive is None) for link in twice.links] == [1, 1, 1]
    assert path(host_line("a", 1, "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")).links == []


LISTS: dict[str, list[str | None]] = {
    "Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB eth0:10.0.0.1<0>": ["mlx5_0", "mlx5_3"],
    "Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/IB} [1]={[2] mlx5_2:1/IB, [3] mlx5_3:1/IB} [RO]; OOB eth0:10.0.0.1<0>": [
        "mlx5_0+mlx5_1",
        "mlx5_2+mlx5_3",
    ],
    "Using [0]={x} [1]mlx5_5:1/IB [RO]; OOB eth0:10.0.0.1<0>": [None, "mlx5_5"],
    "Made virtual device [1] name=mlx5_0+mlx5_1 speed=400000 ndevs=2": [None, "mlx5_0+mlx5_1"],
}


def test_nics_have_the_names_of_the_list_of_their_process() -> None:
    for listed, nics in LISTS.items():
        for network in ("IB", "IBext_v8"):
            sending = [net("send", f"{network}/{index}", index) for index in (0, 1)]
            found = path(host_line("a", 1, f"NET/IB : {listed}"), *sending, net("receive", f"{network}/1", 1))
            assert [link.send and link.send.nic for link in found.links] == nics, listed
            assert found.links[1].receive == End(1, None, False, None)
            assert found.nic == nics[0]


def test_equal_names_are_one_rail_whatever_their_index() -> None:
    lists = [
        host_line(host, pid, f"NET/IB : Using{names} [RO]; OOB eth0:10.0.0.1<0>")
        for host, pid, names in (("a", 1, " [0]mlx5_0:1/IB [1]mlx5_4:1/IB"), ("b", 2, " [0]mlx5_4:1/IB"))
    ]
    assert [link.crosses_rails for link in path(*lists, net("send", "IB/1"), net("receive", "IB/0")).links] == [False]


# --- what P2P runs over, and what a pair could have

GPUS = "GPU/{0}60 :GPU/{0}60 (0/5000.0/LOC) GPU/{0}70 ({1}) CPU/0 (1/48.0/PHB) "
CONNECTS = host_line("a", 1, "Channel 00/0 : 0[{}] -> 1[{}] via P2P/CUMEM")


def test_the_link_of_p2p_is_what_nccl_detected() -> None:
    for system, kind, gpus, link in (
        ("", "2/360.0/NVL", ("60", "70"), "NVLink"),
        ("0-", "2/24.0/PIX", ("60", "70"), "PCIe"),
        ("0-", "2/24.0/PHB", ("60", "70"), "PCIe"),
        ("0-", "2/24.0/C2C", ("60", "70"), None),
        ("0-", "2/360.0/NVL", ("0", "1"), None),
    ):
        seen = host_line("a", 1, GPUS.format(system, kind))
        assert path(seen, CONNECTS.format(*gpus)).link == link, (system, kind)
        assert path(CONNECTS.format(*gpus)).link is None
    contradicting = [host_line("a", pid, GPUS.format("", kind)) for pid, kind in ((1, "2/9.0/NVL"), (2, "2/9.0/PIX"))]
    assert path(*contradicting, CONNECTS.format("60", "70")).link is None, "processes contradict each other"


def test_ranks_on_an_nvswitch_talk_over_nvlink() -> None:
    about = "ncclCommInitRank comm 0x{0} rank {0} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x7 - Init START"
    started = [host_line("a", 1 + rank, about.format(rank)) for rank in (0, 1)]
    multicast = "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 24)"
    seen = [host_line("a", 1 + rank, multicast) for rank in (0, 1)]
    assert path(*started, *seen, CONNECTS.format(0, 0)).link == "NVLink"
    assert path(*started, CONNECTS.format(0, 0)).link is None


def test_a_platform_tells_the_link_where_all_its_pairs_have_the_same() -> None:
    links = {"p4d.24xlarge": "NVLink", "g6e.12xlarge": "PCIe", "p3dn.24xlarge": None}
    assert {name: path(CONNECTS.format(0, 1), platform=name).link for name in links} == links


# --- paths as a table: selections answer without making a path

LOG = b"".join(
    b"%s:1%d:1%d [%d] NCCL INFO Channel 00/0 : %d[%d] -> %d[%d] %s\n" % (host, src, src, src, src, src, dst, dst, way)
    for host, src, dst, way in (
        (b"a", 0, 1, b"via P2P/CUMEM"),
        (b"a", 1, 2, b"[send] via NET/IB/0/GDRDMA"),
        (b"b", 2, 3, b"via P2P/CUMEM"),
        (b"b", 3, 0, b"[send] via NET/IB/1"),
    )
)


def test_a_selection_answers_like_its_paths_and_a_pair_without_one_is_an_error_that_says_so() -> None:
    paths = nccl_inspect.read(LOG).paths
    net = paths.where(lambda kind: kind.transport == "NET")
    assert [(path.src, path.dst) for path in net] == list(net.values("src", "dst")) == [(1, 2), (3, 0)]
    assert net.ends() == {0, 1, 2, 3}
    assert net.hosts() == {host for path in net for host in (path.src_host, path.dst_host)}
    assert [kind.gdr for kind in net.kinds] == [True, False]
    assert [number for _, number in paths.count_kinds()] == [2, 1, 1]
    assert next(paths.distinct("src_host", lambda kind: kind.transport)) == ("a", "P2P")
    assert net[0] is paths.between(1, 2) is paths[1]
    assert net.first_lines()[:1] == net[0].evidence
    assert len(paths.exclude(net)) == len(paths) - len(net) and not paths.where(lambda kind: kind.detail == "SHM")
    assert list((net | paths.take(1)).values("src")) == [(0,), (1,), (3,)]
    assert paths == nccl_inspect.read(LOG).paths != nccl_inspect.read(LOG.replace(b"IB/1", b"IB/2")).paths
    none = nccl_inspect.read(b"NCCL version 2.28.9\n").paths
    assert not none and none.ends() == set() and list(none.distinct("src")) == []
    for (src, dst), more in {(1, 0): "; there is one in the other direction", (0, 9): ""}.items():
        with pytest.raises(KeyError) as raised:
            paths.between(src, dst)
        assert isinstance(raised.value, NcclInspectError)
        assert str(raised.value) == f"no connection line from rank {src} to rank {dst}{more}"
