"""What bad paths and ranks have in common: in simulated jobs of 8 to 1,024 ranks whose fault is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from large_job import log as large_log
from worlds import Ends, World, found, named, tcp_on

import nccl_inspect
from nccl_inspect.differences import compare
from nccl_inspect.differences.formats import text as diff_text
from nccl_inspect.model.job import Job
from nccl_inspect.pipeline import reading
from nccl_inspect.report import Style, github, html, junit, markdown, prometheus, sarif, text

SIZES = {"8 ranks": (2, 4), "128 ranks": (16, 8), "1,024 ranks": (128, 8)}


def without_gdr(lacks: Callable[[Ends], bool]) -> Callable[[Ends, Ends, Ends], str]:
    """Ends without GPUDirect RDMA."""
    return lambda a, b, own: f"NET/IB/{own[1]}" + ("" if lacks(own) else "/GDRDMA")


@cache
def one_host_on_tcp(size: str) -> Job:
    hosts, gpus = SIZES[size]
    return World(hosts, gpus, remote=tcp_on(1)).job()


@pytest.mark.parametrize("size", ["128 ranks", "1,024 ranks"])
def test_one_host_on_tcp(size: str) -> None:
    hosts, gpus = SIZES[size]
    job = one_host_on_tcp(size)
    finding = found(job, "socket-instead-of-ib")
    bad = [path for path in job.paths if "Socket" in path.detail]
    good = sum(path.scope == "inter" for path in job.paths) - len(bad)
    (culprit,) = finding.culprits
    assert (culprit.kind, culprit.name, culprit.side) == ("host", "node-001", None)
    assert (culprit.bad, culprit.of, culprit.good_elsewhere) == (len(bad), len(bad), good)
    assert culprit.ranks == list(range(gpus, 2 * gpus))
    others = f"none of the {good:,} between the other {hosts - 1} hosts does"
    assert finding.where == f"all {len(bad)} paths touch node-001; {others}"
    assert finding.fix[0].startswith("Compare devices, drivers, image and environment of node-001")


def test_two_hosts_have_only_each_other() -> None:
    assert found(one_host_on_tcp("8 ranks"), "socket-instead-of-ib").culprits == []
    job = World(2, remote=lambda a, b, own: "NET/Socket/0" if a[0] else f"NET/IB/{own[1]}/GDRDMA").job()
    assert found(job, "socket-instead-of-ib").culprits == []  # who sends, or who receives?


def test_three_hosts_tell() -> None:
    job = World(3, remote=tcp_on(2)).job()
    assert named(found(job, "socket-instead-of-ib")) == [("host", "node-002")]


@pytest.mark.parametrize("size", SIZES)
def test_one_gpu_on_shm(size: str) -> None:
    hosts, gpus = SIZES[size]
    shm = lambda a, b: "SHM/direct/direct" if (1, 2) in (a, b) else "P2P/CUMEM"  # noqa: E731
    finding = found(World(hosts, gpus, local=shm).job(), "shm-instead-of-p2p")
    (culprit,) = finding.culprits
    bad, every = 2 * (gpus - 1), hosts * gpus * (gpus - 1)
    assert (culprit.kind, culprit.name) == ("gpu", "node-001 GPU 2")
    assert (culprit.bad, culprit.of, culprit.good_elsewhere) == (bad, bad, every - bad)
    assert culprit.ranks == [gpus + 2]
    begin = f"all {bad} paths start or end at GPU 2 of node-001 (rank {gpus + 2}); "
    assert finding.where == begin + f"none of the other {every - bad:,} within hosts does"
    assert finding.fix[0].startswith("nvidia-smi -i 2 ")


@pytest.mark.parametrize("size", ["8 ranks", "128 ranks"])
def test_one_host_on_shm(size: str) -> None:
    hosts, gpus = SIZES[size]
    shm = lambda a, b: "SHM/direct/direct" if a[0] == 1 else "P2P/CUMEM"  # noqa: E731
    finding = found(World(hosts, gpus, local=shm).job(), "shm-instead-of-p2p")
    assert named(finding) == [("host", "node-001")]
    assert f"all {gpus * (gpus - 1)} paths are within node-001; none of the" in finding.where


@pytest.mark.parametrize("size", SIZES)
def test_one_nic_without_gdr(size: str) -> None:
    hosts, gpus = SIZES[size]
    finding = found(World(hosts, gpus, remote=without_gdr(lambda end: end == (1, 3))).job(), "gdr-one-sided")
    nic, gpu = finding.culprits
    assert (nic.kind, nic.name, nic.of) == ("nic", "node-001 mlx5_3", nic.bad)
    assert (gpu.kind, gpu.name, gpu.bad) == ("gpu", "node-001 GPU 3", nic.bad), "nothing tells them apart"
    assert "use mlx5_3 of node-001, the NIC of GPU 3" in finding.where
    assert finding.fix[0].startswith("ibstat mlx5_3")


def test_one_rail_without_gdr() -> None:
    finding = found(World(16, remote=without_gdr(lambda end: end[1] == 3)).job(), "gdr-disabled")
    assert named(finding)[0] == ("rail", "mlx5_3")
    assert "use rail mlx5_3" in finding.where


def test_one_direction_only() -> None:
    job = World(16, remote=without_gdr(lambda end: False)).job()
    assert not [finding for finding in job.findings if finding.culprits]
    leaving = lambda a, b, own: "NET/Socket/0" if a[0] == 5 else f"NET/IB/{own[1]}/GDRDMA"  # noqa: E731
    finding = found(World(16, remote=leaving).job(), "socket-instead-of-ib")
    (culprit,) = finding.culprits
    assert (culprit.kind, culprit.name, culprit.side) == ("host", "node-005", "send")
    assert finding.where.startswith("all 32 paths leave node-005; none of the other ")


def test_two_bad_hosts() -> None:
    finding = found(World(16, remote=tcp_on(3, 9)).job(), "socket-instead-of-ib")
    assert sorted(named(finding)) == [("host", "node-003"), ("host", "node-009")]
    assert "touch node-003 (64) or node-009 (64); none of the" in finding.where
    assert finding.fix[0].startswith("Compare devices, drivers, image and environment of node-003 and node-009")


@pytest.mark.parametrize("bad", [{2, 7}, {2, 7, 9}])
def test_several_hosts_on_shm(bad: set[int]) -> None:
    shm = lambda a, b: "SHM/direct/direct" if a[0] in bad else "P2P/CUMEM"  # noqa: E731
    finding = found(World(16, local=shm).job(), "shm-instead-of-p2p")
    assert named(finding) == [("host", f"node-{host:03}") for host in sorted(bad)]


def test_logs_of_two_hosts_of_many() -> None:
    lines = [line for line in World(16, remote=tcp_on(3)).lines() if line.startswith(("node-003", "node-004"))]
    finding = found(nccl_inspect.read("".join(lines).encode()), "socket-instead-of-ib")
    assert finding.where == "all 64 paths touch node-003; none of the other 48 between hosts does"


def test_a_setting_that_differs_stands_beside_its_only_host() -> None:
    shm = lambda a, b: "SHM/direct/direct" if a[0] == 1 else "P2P/CUMEM"  # noqa: E731
    said = lambda end: ["NCCL_P2P_DISABLE set by environment to 1"] if end[0] == 1 else []  # noqa: E731
    finding = found(World(16, local=shm, said=said).job(), "p2p-disabled-by-env")
    assert named(finding) == [("host", "node-001"), ("setting", "NCCL_P2P_DISABLE=1")]
    assert finding.where.endswith("; only there: NCCL_P2P_DISABLE=1")
    assert finding.fix[0] == "Start with node-001: no other host has NCCL_P2P_DISABLE=1."


@pytest.mark.parametrize("size", ["128 ranks", "1,024 ranks"])
def test_a_setting_of_several_hosts(size: str) -> None:
    hosts, gpus = SIZES[size]
    shm = lambda a, b: "SHM/direct/direct" if a[0] % 3 == 1 else "P2P/CUMEM"  # noqa: E731
    said = lambda end: ["NCCL_P2P_DISABLE set by environment to 1"] if end[0] % 3 == 1 else []  # noqa: E731
    finding = found(World(hosts, gpus, local=shm, said=said).job(), "p2p-disabled-by-env")
    assert named(finding) == [("setting", "NCCL_P2P_DISABLE=1")]


def test_ranks_with_another_setting() -> None:
    said = lambda end: ["NCCL_ALGO set by environment to Tree"] if end[0] == 1 else []  # noqa: E731
    finding = found(World(16, said=said).job(), "env-mismatch-across-ranks")
    assert named(finding) == [("host", "node-001"), ("setting", "NCCL_ALGO=Tree")]
    assert finding.where == "all 8 ranks are on node-001; none of the other 120 is; only there: NCCL_ALGO=Tree"


def test_one_version() -> None:
    shm = lambda a, b: "SHM/direct/direct" if a[0] % 3 == 1 else "P2P/CUMEM"  # noqa: E731
    said = lambda end: [f"NCCL version 2.2{7 if end[0] % 3 == 1 else 8}.3+cuda13.0"]  # noqa: E731
    finding = found(World(16, local=shm, said=said).job(), "shm-instead-of-p2p")
    assert named(finding) == [("version", "NCCL 2.27.3+cuda13.0")]


def test_one_communicator() -> None:
    job = World(16, split=lambda a, b: "NET/Socket/0").job()
    finding = found(job, "socket-instead-of-ib")
    split = next(comm.id for comm in job.communicators if comm.parent)
    assert named(finding) == [("communicator", split)]
    assert f"belong to communicator {split}; none of the other " in finding.where


@pytest.mark.parametrize("size", SIZES)
def test_a_fault_that_is_everywhere_has_no_culprit(size: str) -> None:
    hosts, gpus = SIZES[size]
    job = World(hosts, gpus, remote=lambda *_: "NET/Socket/0", local=lambda *_: "SHM/direct/direct").job()
    assert {"socket-instead-of-ib", "shm-instead-of-p2p"} <= {finding.rule for finding in job.findings}
    assert not [finding for finding in job.findings if finding.culprits or finding.where]


def test_half_of_the_hosts_are_no_culprits() -> None:
    finding = found(World(16, remote=tcp_on(*range(8))).job(), "socket-instead-of-ib")
    assert finding.culprits == []


def test_bad_pairs_at_random_have_no_culprit() -> None:
    shm = lambda a, b: "SHM/direct/direct" if (7 * a[0] + sum((a[1], b[1]))) % 11 == 0 else "P2P/CUMEM"  # noqa: E731
    assert found(World(16, local=shm).job(), "shm-instead-of-p2p").culprits == []


def test_another_fault_of_the_kind_is_not_taken_for_good() -> None:
    job = World(
        16,
        remote=lambda a, b, own: (
            tcp_on(3)(a, b, own) if 3 in (a[0], b[0]) else without_gdr(lambda end: end == (5, 2))(a, b, own)
        ),
    ).job()
    assert named(found(job, "socket-instead-of-ib")) == [("host", "node-003")]
    assert named(found(job, "gdr-one-sided"))[0] == ("nic", "node-005 mlx5_2")


def test_reports_say_where_first() -> None:
    job, style = one_host_on_tcp("128 ranks"), Style(width=200)
    where = found(job, "socket-instead-of-ib").where
    lines = text.render(job, style).splitlines()
    assert lines[1] == f"where        {where}"
    assert "ERROR socket-instead-of-ib (likely, host node-001)" in lines
    assert any(line.split() == ["where", *where.split()] for line in lines)
    assert where in "".join(markdown.render(job, style).splitlines()[:6])
    assert f"%0Awhere: {where}%0Acause" in github.render(job, style)
    assert f"where     {where}" in junit.render(job, style)
    assert 'nccl_inspect_culprits{kind="host",name="node-001",rule="socket-instead-of-ib"}' in prometheus.render(
        job, style
    )
    result: dict[str, Any] = json.loads(sarif.render(job, style))["runs"][0]["results"][0]
    assert f"Where: {where}" in result["message"]["text"]
    assert result["properties"]["culprits"][0]["name"] == "node-001"
    assert job.to_dict()["findings"][0]["culprits"][0]["name"] == "node-001"  # type: ignore[index]
    page = html.render(job, style)
    assert f"<dt>where</dt><dd>{where}</dd>" in page
    assert '"culprits":[["host node-001",[8,9,10,11,12,13,14,15]]]' in page


def test_diff_says_where_a_new_finding_is() -> None:
    slow = one_host_on_tcp("128 ranks")
    told = diff_text.render(compare.compare(World(16).job(), slow), Style(width=400))
    assert found(slow, "socket-instead-of-ib").where in told


def test_several_processes_give_the_same(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_text("".join(World(16, remote=tcp_on(3, 9)).lines()))
    one, two = (reading.Judge(reading.Options())(reading.fold([str(file)], jobs=jobs)) for jobs in (1, 2))
    assert [named(finding) for finding in one.findings] == [named(finding) for finding in two.findings]
    assert one.to_dict()["findings"] == two.to_dict()["findings"]


def test_a_host_without_gdr_at_either_end() -> None:
    job = nccl_inspect.read(large_log(8, without_gdr=5))
    (finding,) = [finding for finding in job.findings if finding.rule in ("gdr-disabled", "gdr-one-sided")]
    assert named(finding) == [("host", "train-7f9c-node-5")]
