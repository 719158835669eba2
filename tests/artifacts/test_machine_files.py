"""Files about machines: how they are recognised and read, to whom they belong, and what they settle."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import TESTS

import nccl_inspect
from nccl_inspect import artifacts
from nccl_inspect.artifacts.machine import Report
from nccl_inspect.errors import NoInputError
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job

DATA = TESTS / "data" / "machines"
KINDS = {
    "ibstat output": "ibstat.txt ibstat-down.txt ibstat-slow.txt ibstatus.txt",
    "ibv_devinfo output": "ibv_devinfo.txt ibv_devinfo-v.txt",
    "rdma link output": "rdma-link.txt rdma-link-old.txt",
    "show_gids table": "show_gids.txt",
    "fi_info output": "fi_info-efa.txt fi_info-tcp.txt fi_info-none.txt fi_info-none-1.17.txt fi_info-v.txt",
    "lsmod output": "lsmod.txt lsmod-bare.txt modules.txt",
    "ulimit output": "ulimit-bash.txt ulimit-bash4.txt ulimit-small.txt ulimit-zsh.txt ulimit-sh.txt limits-proc.txt",
    "df output": "df.txt df-h.txt df-T.txt df-i.txt",
    "NIC counter file": "counters-before.txt counters-after.txt rdma-statistic.txt ethtool-S.txt",
    "nvidia-smi list": "nvidia-smi-L.txt nvlink-s.txt nvlink-s-bad.txt nvlink-e.txt",
    "nvidia-smi -q output": "nvidia-smi-q-535.txt nvidia-smi-q-535-bad.txt nvidia-smi-q-580.txt "
    "nvidia-smi-q-580-fabric.txt",
}
FILES = [(kind, name) for kind, names in KINDS.items() for name in names.split()]


SEGMENT = "shm-segment-failed"


def text(name: str) -> bytes:
    return (DATA / name).read_bytes()


def read(name: str) -> Report:
    kind = artifacts.kind_of(name, text(name))
    assert kind
    report = kind.read(name, text(name))
    assert isinstance(report, Report)
    return report


@pytest.mark.parametrize(("kind", "name"), FILES)
@pytest.mark.parametrize(
    "lead", [b"", b"\r\n", b"$ tool -a\n", b"root@node-1:~# tool\n\n", b'Defaulted container "x" out of: x, y\n']
)
def test_a_file_is_recognised_behind_a_prompt(kind: str, name: str, lead: bytes) -> None:
    found = artifacts.kind_of("x", lead + text(name))
    assert found is not None
    assert kind == found.KIND
    assert len(found.read("x", lead + text(name)).items) == len(read(name).items)


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_carriage_returns_change_nothing(kind: str, name: str) -> None:
    with_returns = text(name).replace(b"\n", b"\r\n")
    found = artifacts.kind_of("x", with_returns)
    assert found is not None
    assert kind == found.KIND
    values = [(item.part, item.name, item.values) for item in found.read("x", with_returns).items]
    assert values == [(item.part, item.name, item.values) for item in read(name).items]


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_hosts_in_front_of_lines_are_told_apart(kind: str, name: str) -> None:
    """As pdsh and clush print them, mixed."""
    lines = [line for line in text(name).splitlines() if line.strip()]
    mixed = b"".join(b"node-1: " + line + b"\nnode-2: " + line + b"\n" for line in lines)
    found = artifacts.kind_of("x", mixed)
    assert found is not None
    assert kind == found.KIND
    items = found.read("x", mixed).items
    assert {item.host for item in items} == {"node-1", "node-2"}
    assert len(items) == 2 * len(read(name).items)


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_a_log_that_holds_such_an_output_is_a_log(kind: str, name: str, tmp_path: Path) -> None:
    """Scripts print these before they start the job; a log may also quote them."""
    line = b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n"
    assert artifacts.kind_of("x", line + text(name)) is None
    assert artifacts.kind_of("x", b"epoch 1\n" + text(name)) is None
    (tmp_path / "job.log").write_bytes(text(name) + b"\n" * (artifacts.HEAD + 1) + line)
    logs, beside = artifacts.parted(str(tmp_path))
    assert (len(logs), beside) == (1, []), kind


@pytest.mark.parametrize(("_", "name"), FILES)
@given(at=st.integers(0, 6000), noise=st.binary(max_size=6))
def test_a_damaged_file_is_refused_or_read(_: str, name: str, at: int, noise: bytes) -> None:
    data = text(name)[:at] + noise + text(name)[at + len(noise) :]
    for kind in artifacts.kinds():
        if kind.recognises("x", data):
            with contextlib.suppress(ValueError):
                kind.read("x", data)


def values(name: str, part: str) -> dict[str, object]:
    return {item.name: item.values.get("value") for item in read(name).items if item.part == part}


@pytest.mark.parametrize(
    ("name", "memlock", "nofile"),
    [
        ("ulimit-bash.txt", None, 1048576),
        ("ulimit-small.txt", 8192 << 10, 1024),
        ("ulimit-bash4.txt", 65536, 1024),
        ("ulimit-zsh.txt", 65536, 1024),
        ("ulimit-sh.txt", 65536, 1024),
        ("limits-proc.txt", 65536, 1024),
    ],
)
def test_limits(name: str, memlock: int | None, nofile: int) -> None:
    limits = values(name, "limit")
    assert (limits["memlock"], limits["nofile"]) == (memlock, nofile)
    assert "nproc" in limits


def test_ports_of_all_tools_have_the_same_words() -> None:
    for name in ("ibstat-down.txt", "ibstatus.txt", "ibv_devinfo.txt", "rdma-link.txt"):
        states = {item.values["state"] for item in read(name).items}
        assert states == {"ACTIVE", "DOWN"}, name
    assert [item.values["rate"] for item in read("ibv_devinfo-v.txt").items] == [400, 400, 100]


def test_file_systems_in_bytes() -> None:
    sizes = {
        name: [item.values["size"] for item in read(name).items if item.name == "/dev/shm"]
        for name in ("df.txt", "df-h.txt", "df-T.txt")
    }
    assert sizes == {"df.txt": [1056555584 << 10], "df-h.txt": [64 << 20], "df-T.txt": [1008 << 30]}


# What the files settle.

HOSTS = ("gpu-node-0001", "gpu-node-0002")


def start(host: str, rank: int, bus: str = "18000") -> str:
    head = f"{host}:{100 + rank}:{200 + rank} [0] NCCL INFO"
    return (
        f"{head} comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId {bus} commId 0x22 - Init START\n"
        f"{head} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; OOB "
        "eth0:10.0.0.1<0>\n"
        f"{head} comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId {bus} commId 0x22 - Init COMPLETE\n"
    )


STARTED = start(HOSTS[0], 0) + start(HOSTS[1], 1)
PATHS = (
    f"{HOSTS[0]}:100:200 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0{{0}}\n"
    f"{HOSTS[1]}:101:201 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0{{0}}\n"
    f"{HOSTS[0]}:100:200 [0] NCCL INFO Connected all rings\n{HOSTS[1]}:101:201 [0] NCCL INFO Connected all rings\n"
)
ERR12 = (
    f"{HOSTS[0]}:100:240 [0] transport/net_ib.cc:2449 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<40000> with "
    "status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:10.0.1.1 remoteGids::ffff:10.0.1.2 hca mlx5_3\n"
)
MEMLOCK = (
    f"{HOSTS[1]}:101:241 [0] misc/ibvwrap.cc:171 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate "
    "memory\n"
)
SHM = (
    f"{HOSTS[0]}:100:240 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-l0fSTJ to 4194660 "
    "bytes\n"
)
GDR = f"{HOSTS[0]}:100:240 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n"


def job(folder: Path, log: str, **files: str) -> Job:
    """A folder with a log and files (``name=data file``); ``__`` in a name stands for a slash, ``_`` for a dash."""
    (folder / "job.log").write_text(log, encoding="utf-8")
    for name, data in files.items():
        path = folder / name.replace("__", "/").replace("_", "-")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text(data))
    return nccl_inspect.read(str(folder))


def finding(of: Job, rule: str) -> Finding:
    (found,) = [one for one in of.findings if one.rule == rule]
    return found


def test_a_port_that_is_down_is_why_transfers_get_no_answer(tmp_path: Path) -> None:
    found = job(tmp_path, STARTED + ERR12, hosts__gpu_node_0001__ibstat="ibstat-down.txt")
    said = finding(found, "ib-timeout-err12")
    assert said.confidence == "certain"
    assert said.cause == "mlx5_3 port 1 is Down (physical state Polling) on gpu-node-0001 (ibstat:60)"
    assert said.evidence[-1].source.endswith("ibstat")
    assert "nic-link-bad" not in [one.rule for one in found.findings]


def test_another_port_that_is_down_is_not(tmp_path: Path) -> None:
    found = job(tmp_path, STARTED + ERR12.replace("mlx5_3", "mlx5_2"), gpu_node_0001_ibstat="ibstat-down.txt")
    assert finding(found, "ib-timeout-err12").cause.startswith("packets are lost")
    assert finding(found, "nic-link-bad").clue


def test_the_port_may_be_that_of_the_peer(tmp_path: Path) -> None:
    said = finding(job(tmp_path, STARTED + ERR12, hosts__gpu_node_0002__x="ibstat-down.txt"), "ib-timeout-err12")
    assert said.confidence == "likely"
    assert said.cause.startswith("likely: mlx5_3 port 1 is Down")


def test_a_port_that_the_job_does_not_use_may_be_down(tmp_path: Path) -> None:
    unused = STARTED.replace(" [3]mlx5_3:1/IB", "")
    found = job(tmp_path, unused + PATHS.format("/GDRDMA"), gpu_node_0001_ibstat="ibstat-down.txt")
    assert not found.findings


def test_a_slow_port_is_a_clue(tmp_path: Path) -> None:
    found = job(tmp_path, STARTED + PATHS.format("/GDRDMA"), gpu_node_0001_ibstat="ibstat-slow.txt")
    said = finding(found, "nic-link-bad")
    assert (said.clue, said.hosts) == (True, [HOSTS[0]])
    assert said.summary == "mlx5_2 runs at 200 Gb/s, and others of its kind at 400 on gpu-node-0001"


@pytest.mark.parametrize(
    ("log", "rule", "file", "words"),
    [
        (MEMLOCK, "ib-memlock", "ulimit-small.txt", "(memlock) is 8192 KiB on gpu-node-0002"),
        (SHM.replace(HOSTS[0], HOSTS[1]), "shm-segment-failed", "df-h.txt", "/dev/shm has 64 MiB, 0 MiB of it free"),
        (SHM.replace(HOSTS[0], HOSTS[1]), "shm-segment-failed", "df-i.txt", "/dev/shm has 0 of 819,200 inodes free"),
        (GDR.replace(HOSTS[0], HOSTS[1]) + PATHS.format(""), "gdr-disabled", "lsmod-bare.txt", "nvidia_peermem is not"),
    ],
)
def test_what_a_file_settles_is_certain(tmp_path: Path, log: str, rule: str, file: str, words: str) -> None:
    said = finding(job(tmp_path, STARTED + log, gpu_node_0002_x=file), rule)
    assert said.confidence == "certain"
    assert words in said.cause
    assert Path(said.evidence[-1].source).name == "gpu-node-0002-x"


def test_room_without_inodes_is_none(tmp_path: Path) -> None:
    said = finding(job(tmp_path, STARTED + SHM, gpu_node_0001_df="df.txt", gpu_node_0001_dfi="df-i.txt"), SEGMENT)
    assert "/dev/shm has 0 of 819,200 inodes free" in said.cause
    assert "1.01e+03 GiB" not in said.cause


def test_a_reason_that_the_log_tells_stays(tmp_path: Path) -> None:
    denied = SHM.replace("bytes\n", "bytes, error: Operation not permitted (1)\n")
    said = finding(job(tmp_path, STARTED + denied, gpu_node_0001_df="df-h.txt"), "shm-segment-failed")
    assert "Operation not permitted" in said.cause


def test_a_distance_that_is_too_long_needs_no_module(tmp_path: Path) -> None:
    far = f"{HOSTS[0]}:100:200 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 18000 / HCA 0 (distance 7 > 4)\n"
    log = "NCCL version 2.21.5+cuda12.4\n" + STARTED + far + PATHS.format("")
    said = finding(job(tmp_path, log, gpu_node_0001_lsmod="lsmod-bare.txt"), "gdr-disabled")
    assert "farther apart" in said.cause


def test_a_file_of_another_host_is_named_and_not_used(tmp_path: Path) -> None:
    found = job(tmp_path, STARTED + ERR12, hosts__gpu_node_0003__ibstat="ibstat-down.txt")
    (artifact,) = found.artifacts
    assert artifact.problem == "about host gpu-node-0003, which is not in the log (gpu-node-0001, gpu-node-0002)"
    assert finding(found, "ib-timeout-err12").cause.startswith("packets are lost")


def test_a_file_that_names_no_host_proves_nothing_of_a_job_on_several(tmp_path: Path) -> None:
    said = finding(job(tmp_path, STARTED + MEMLOCK, ulimit="ulimit-small.txt"), "ib-memlock")
    assert said.confidence == "likely"
    assert "8192 KiB" in said.cause


def test_gpu_faults_are_joined_by_bus_id(tmp_path: Path) -> None:
    cuda = f"{HOSTS[0]}:100:240 [0] enqueue.cc:1 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'\n"
    said = finding(job(tmp_path, STARTED + cuda, gpu_node_0001_q="nvidia-smi-q-535-bad.txt"), "gpu-hardware-error")
    assert said.cause.startswith("memory of GPU 00000000:18:00.0 is broken (Pending: Yes)")
    elsewhere = STARTED.replace("busId 18000", "busId 5d000")
    said = finding(job(tmp_path, elsewhere + cuda, gpu_node_0001_q="nvidia-smi-q-535-bad.txt"), "gpu-hardware-error")
    assert said.cause == "CUDA reports it"


def test_inactive_nvlinks_are_a_clue(tmp_path: Path) -> None:
    log = STARTED.replace("nvmlDev 0", "nvmlDev 1") + PATHS.format("/GDRDMA")
    said = finding(job(tmp_path, log, gpu_node_0001_nvlink="nvlink-s-bad.txt"), "gpu-degraded")
    assert said.clue
    assert said.ranks == [0]
    assert "6 NVLinks of GPU 1 are inactive, and 12 are active on gpu-node-0001" in said.summary


def test_counters_that_grew_are_the_likely_reason(tmp_path: Path) -> None:
    log = STARTED + ERR12.replace("mlx5_3", "mlx5_1")
    files = {"gpu_node_0001_after": "counters-after.txt", "gpu_node_0001_before": "counters-before.txt"}
    said = finding(job(tmp_path, log, **files), "ib-timeout-err12")
    assert "mlx5_1 counted errors (link_downed by 2) on gpu-node-0001" in said.cause
    assert said.evidence[-1].text == "mlx5_1: link_downed 3 (1 before)"


HEALTHY = (
    "ibstat.txt lsmod.txt ulimit-bash.txt df.txt nvidia-smi-q-535.txt nvlink-s.txt nvidia-smi-L.txt fi_info-efa.txt"
)


def test_files_of_healthy_machines_raise_nothing(tmp_path: Path) -> None:
    files = {f"hosts__{host.replace('-', '_')}__{name}": name for host in HOSTS for name in HEALTHY.split()}
    found = job(tmp_path, STARTED + PATHS.format("/GDRDMA"), **files)
    assert not found.findings
    assert len(found.artifacts) == 2 * len(HEALTHY.split())
    assert {artifact.host for artifact in found.artifacts} == set(HOSTS)
    assert not any(artifact.problem for artifact in found.artifacts)


SICK = (
    "ibstat-down.txt lsmod-bare.txt ulimit-small.txt df-h.txt nvidia-smi-q-535-bad.txt nvlink-s-bad.txt "
    "fi_info-none.txt"
)


def test_files_of_sick_machines_alone_raise_no_more_than_clues(tmp_path: Path) -> None:
    files = {f"hosts__gpu_node_0001__{name}": name for name in SICK.split()}
    found = job(tmp_path, STARTED + PATHS.format("/GDRDMA"), **files)
    assert all(one.clue for one in found.findings)
    assert {one.rule for one in found.findings} <= {"nic-link-bad", "gpu-degraded"}


def test_a_topology_beside_the_log_is_used_as_one_that_is_given(tmp_path: Path) -> None:
    shm = "vm:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
    (tmp_path / "job.log").write_text(shm, encoding="utf-8")
    (tmp_path / "topo.txt").write_bytes((TESTS / "data" / "g6e.nvidia-smi-topo.txt").read_bytes())
    said = finding(nccl_inspect.read(str(tmp_path)), "shm-instead-of-p2p")
    assert (said.severity, said.confidence) == ("info", "certain")


def test_the_xml_of_nccl_is_used_too(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(b"vm:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n")
    for name in ("topo", "graph"):
        (tmp_path / f"{name}.xml").write_bytes((TESTS / "data" / f"h200-4gpu.nccl-{name}.xml").read_bytes())
    found = nccl_inspect.read(str(tmp_path))
    assert [artifact.kind for artifact in found.artifacts] == ["topology file", "topology file"]
    assert not any(artifact.problem for artifact in found.artifacts)


def test_an_xid_on_the_gpu_of_a_rank_names_the_rank(tmp_path: Path) -> None:
    closed = f"NCCL WARN socketProgress: Connection closed by remote peer {HOSTS[0]}<4567>"
    gone = f"{HOSTS[1]}:101:241 [0] misc/socket.cc:49 {closed}\n"
    found = job(tmp_path, STARTED + gone, gpu_node_0001_dmesg="dmesg.txt")
    said = finding(found, "gpu-hardware-error")
    assert (said.hosts, said.ranks) == ([HOSTS[0]], [0])
    assert found.findings[0].rule == "gpu-hardware-error"


def test_one_file_may_hold_the_output_of_several_tools(tmp_path: Path) -> None:
    names = ("ibstat-down.txt", "lsmod.txt", "ulimit-small.txt", "df-h.txt", "fi_info-efa.txt", "nvidia-smi-q-580.txt")
    topology = (TESTS / "data" / "p4d.nvidia-smi-topo.txt").read_bytes()
    (tmp_path / "job.log").write_text(STARTED + ERR12, encoding="utf-8")
    (tmp_path / "gpu-node-0001.txt").write_bytes(b"".join(b"$ tool\n" + text(name) for name in names) + topology)
    found = nccl_inspect.read(str(tmp_path))
    assert [artifact.kind for artifact in found.artifacts] == [
        "ibstat output", "lsmod output", "ulimit output", "df output", "fi_info output", "nvidia-smi -q output",
        "topology file",
    ]  # fmt: skip
    said = finding(found, "ib-timeout-err12")
    assert said.cause.endswith("(gpu-node-0001.txt:61)")
    lines = (tmp_path / "gpu-node-0001.txt").read_text(encoding="utf-8").splitlines()
    assert "State: Down" in lines[60]


def test_a_file_may_speak_against_a_cause(tmp_path: Path) -> None:
    said = finding(job(tmp_path, STARTED + MEMLOCK, gpu_node_0002_ulimit="ulimit-bash.txt"), "ib-memlock")
    assert said.confidence == "likely"
    assert "But there is no limit on locked memory (memlock) on gpu-node-0002 (gpu-node-0002-ulimit:7)" in said.cause


def test_files_without_a_log_are_no_job(tmp_path: Path) -> None:
    (tmp_path / "ibstat.txt").write_bytes(text("ibstat.txt"))
    with pytest.raises(NoInputError, match=r"ibstat output, and no log of a job"):
        nccl_inspect.read(str(tmp_path))
