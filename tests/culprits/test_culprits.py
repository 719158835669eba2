"""What bad paths and ranks have in common: in simulated jobs of 8 to 1,024 ranks whose fault is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from large_job import log as large_log

import nccl_inspect
from nccl_inspect.culprits import search
from nccl_inspect.culprits.traits import Trait
from nccl_inspect.differences import compare
from nccl_inspect.differences.formats import text as diff_text
from nccl_inspect.judging import culprits
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job, PathKind
from nccl_inspect.pipeline import reading
from nccl_inspect.report import Style, github, html, junit, markdown, prometheus, sarif, text

Ends = tuple[int, int]
"""Host and GPU."""


@dataclass
class World:
    """A job whose ranks all print: pairs within hosts, and neighbours of the same GPU on the next hosts."""

    hosts: int
    gpus: int = 8
    local: Callable[[Ends, Ends], str] = lambda a, b: "P2P/CUMEM"
    """How two GPUs of a host talk."""
    remote: Callable[[Ends, Ends, Ends], str] = lambda a, b, own: f"NET/IB/{own[1]}/GDRDMA"
    """What an end (the third) prints of a connection between hosts."""
    said: Callable[[Ends], list[str]] = lambda end: []
    """What else a rank prints, at its beginning."""
    split: Callable[[Ends, Ends], str] | None = None
    """How pairs of a second communicator talk, which are three hosts apart."""
    names: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        self.names = self.names or [f"node-{host:03}" for host in range(self.hosts)]
        for host in range(self.hosts):
            for gpu in range(self.gpus):
                name, pid = self.names[host], 1000 + gpu
                for line in self._rank((host, gpu)):
                    yield f"{name}:{pid}:{pid} [{gpu}] NCCL INFO {line}\n"

    def job(self) -> Job:
        return nccl_inspect.read("".join(self.lines()).encode())

    def _number(self, end: Ends) -> int:
        return end[0] * self.gpus + end[1]

    def _rank(self, own: Ends) -> Iterator[str]:
        host, gpu = own
        rank, size = self._number(own), self.hosts * self.gpus
        yield f"Bootstrap: Using eth0:10.0.{host}.1<0>"
        yield from self.said(own)
        nics = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(self.gpus))
        yield f"NET/IB : Using {nics} [RO]; OOB eth0:10.0.{host}.1<0>"
        about = f"rank {rank} nranks {size} cudaDev {gpu} nvmlDev {gpu} busId {gpu + 1}000"
        init = f"ncclCommInitRank comm 0xa{rank:06x} {about} commId 0x949dfd688ed0b46b"
        yield f"{init} - Init START"
        shape = f"rank {rank} nRanks {size} nNodes {self.hosts} localRanks {self.gpus} localRank {gpu} MNNVL 0"
        yield f"comm 0xa{rank:06x} {shape}"
        yield f"{init} - Init COMPLETE"
        for other in range(self.gpus):
            if other != gpu:
                yield self._connection(own, (host, other), f"via {self.local(own, (host, other))}")
        steps = {step % self.hosts for step in (1, 2, -1, -2)} - {0}
        yield from self._between(own, steps, self.remote)
        yield "Connected all rings, use ring PXN 0 GDR 1"
        if self.split:
            after = f"comm 0xb{rank:06x} {about} parent 0xa{rank:06x} splitCount 1 color 0 key {rank}"
            yield f"ncclCommSplit {after}- Init START"
            yield f"comm 0xb{rank:06x} {shape}"
            yield f"ncclCommSplit {after} - Init COMPLETE"
            way = self.split
            yield from self._between(own, {3 % self.hosts, -3 % self.hosts}, lambda a, b, _: way(a, b))
            yield "Connected all rings, use ring PXN 0 GDR 1"

    def _between(self, own: Ends, steps: set[int], way: Callable[[Ends, Ends, Ends], str]) -> Iterator[str]:
        for step in sorted(steps):
            other = (own[0] + step) % self.hosts, own[1]
            yield self._connection(own, other, f"[send] via {way(own, other, own)}")
            yield self._connection(other, own, f"[receive] via {way(other, own, own)}")

    def _connection(self, a: Ends, b: Ends, via: str) -> str:
        return f"Channel 00/0 : {self._number(a)}[{a[1]}] -> {self._number(b)}[{b[1]}] {via}"


SIZES = {"8 ranks": (2, 4), "128 ranks": (16, 8), "1,024 ranks": (128, 8)}


def tcp_on(*bad: int) -> Callable[[Ends, Ends, Ends], str]:
    """Hosts without InfiniBand."""
    return lambda a, b, own: "NET/Socket/0" if {a[0], b[0]} & set(bad) else f"NET/IB/{own[1]}/GDRDMA"


def without_gdr(lacks: Callable[[Ends], bool]) -> Callable[[Ends, Ends, Ends], str]:
    """Ends without GPUDirect RDMA."""
    return lambda a, b, own: f"NET/IB/{own[1]}" + ("" if lacks(own) else "/GDRDMA")


def found(job: Job, rule: str) -> Finding:
    (finding,) = [finding for finding in job.findings if finding.rule == rule]
    return finding


def named(finding: Finding) -> list[tuple[str, str]]:
    return [(culprit.kind, culprit.name) for culprit in finding.culprits]


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
    assert finding.fix[0] == "Begin on node-001: nobody else has NCCL_P2P_DISABLE=1."


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


# --- what holds for all jobs ----------------------------------------------------------------------------------------

KINDS = ("host", "gpu")
Units = list[tuple[tuple[int, int], bool]]


def group(units: Units, names: Callable[[int], int]) -> tuple[search.Group, list[Trait]]:
    """Pairs of hosts; the numbers of traits and their names follow the names of the hosts."""
    traits = [Trait("host", f"{host:03}") for host in range(64)]
    sets = [({names(a), names(b)}, bad) for (a, b), bad in units]
    bad, good = ([one for one, is_bad in sets if is_bad is kind] for kind in (True, False))
    return search.Group(bad, lambda wanted: (one & wanted for one in good), len(good)), traits


@st.composite
def jobs(draw: st.DrawFn) -> Units:
    hosts = draw(st.integers(2, 20))
    bad = draw(st.sets(st.integers(0, hosts - 1), max_size=4))
    pairs = draw(st.lists(st.tuples(st.integers(0, hosts - 1), st.integers(0, hosts - 1)), max_size=120))
    noise = draw(st.sets(st.integers(0, 119), max_size=3))
    return [((a, b), bool({a, b} & bad) != (at in noise)) for at, (a, b) in enumerate(pairs) if a != b]


@given(jobs(), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_other_names_give_the_same_culprits_with_these_names(units: Units, random: Any) -> None:
    order = list(range(64))
    random.shuffle(order)
    plain, traits = group(units, lambda host: host)
    renamed, _ = group(units, order.__getitem__)
    before, after = (search.explain(one, traits, KINDS) for one in (plain, renamed))
    assert before.explained == after.explained
    counts = [sorted((count.bad, count.good) for count in one.culprits) for one in (before, after)]
    assert counts[0] == counts[1]
    distinct = len(set(counts[0])) == len(counts[0])
    if distinct:
        assert [order[count.trait] for count in before.culprits] == [count.trait for count in after.culprits]


@given(st.permutations([f"pod-{name}" for name in "azbycx"]), st.integers(0, 5), st.integers(0, 2))
@settings(max_examples=15, deadline=None)
def test_a_job_on_other_hosts_has_its_culprit_there(names: list[str], host: int, gpu: int) -> None:
    tcp = World(6, 3, remote=tcp_on(host), names=names).job()
    shm = lambda a, b: "SHM/direct/direct" if (host, gpu) in (a, b) else "P2P/CUMEM"  # noqa: E731
    assert named(found(tcp, "socket-instead-of-ib")) == [("host", names[host])]
    local = World(6, 3, local=shm, names=names).job()
    assert named(found(local, "shm-instead-of-p2p")) == [("gpu", f"{names[host]} GPU {gpu}")]


@given(jobs())
@settings(max_examples=150, deadline=None)
def test_counts_add_up(units: Units) -> None:
    compared, traits = group(units, lambda host: host)
    found = search.explain(compared, traits, KINDS)
    covered: set[int] = set()
    for count in found.culprits:
        having = [at for at, ((a, b), _) in enumerate(units) if count.trait in (a, b)]
        assert count.bad == sum(units[at][1] for at in having)
        assert count.good == len(having) - count.bad
        assert count.good < compared.goods, "there are good ones without it"
        covered.update(at for at in having if units[at][1])
    assert found.explained == len(covered)
    assert not found.culprits or found.explained >= 0.95 * len(compared.bad)


def test_a_sound_job_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(culprits, "Traits", None)
    assert World(16).job().verdict == "ok"


@pytest.mark.parametrize("hosts", [8, 16, 32])
def test_each_path_is_looked_at_a_fixed_number_of_times(hosts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    plain = culprits._slowness

    def counted(kind: PathKind) -> int:
        nonlocal calls
        calls += 1
        return plain(kind)

    monkeypatch.setattr(culprits, "_slowness", counted)
    job = World(hosts, 4, remote=tcp_on(1)).job()
    assert named(found(job, "socket-instead-of-ib")) == [("host", "node-001")]
    assert calls <= 2 * len(job.paths)


# --- what ranks say -------------------------------------------------------------------------------------------------


def unanswered(own: Ends, peer: int, nic: int) -> str:
    """A line of a transfer without an answer, after the format string of NCCL 2.24."""
    status = "status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:10.0.0.1 remoteGids::ffff:10.0.0.2"
    said = f"NET/IB: Got completion from peer 10.0.{peer}.1<40000> with {status} hca mlx5_{nic}"
    return f"node-{own[0]:03}:{1000 + own[1]}:{3000 + own[1]} [{own[1]}] transport/net_ib.cc:2003 NCCL WARN {said}\n"


def after(world: World, *lines: str) -> Job:
    return nccl_inspect.read("".join([*world.lines(), *lines]).encode())


def test_the_host_that_no_transfer_reaches() -> None:
    lines = [unanswered((own, gpu), 5, gpu) for own in (3, 4, 6, 7) for gpu in range(8)]
    finding = found(after(World(16), *lines), "ib-timeout-err12")
    assert named(finding) == [("host", "node-005")]
    assert finding.where.startswith("all 32 ") and "include node-005; none of the other " in finding.where


def test_the_nic_from_which_no_transfer_arrives() -> None:
    lines = [unanswered((5, 2), peer, 2) for peer in (3, 4, 6, 7)]
    finding = found(after(World(16), *lines), "ib-timeout-err12")
    assert named(finding) == [("nic", "node-005 mlx5_2")]
    assert finding.fix[0].startswith("ibstat mlx5_2")


def test_of_two_hosts_nothing_tells_which_one_does_not_answer() -> None:
    lines = [unanswered((4, gpu), 5, gpu) for gpu in range(8)]
    assert found(after(World(16), *lines), "ib-timeout-err12").culprits == []


def test_the_nic_that_all_ranks_of_a_host_speak_of() -> None:
    said = "transport/net_ib.cc:100 NCCL WARN NET/IB : mlx5_3:1 Got async event : port error"
    lines = [f"node-004:{1000 + gpu}:{5000 + gpu} [{gpu}] {said}\n" for gpu in range(8)]
    finding = found(after(World(16), *lines), "ib-async-event")
    assert named(finding)[0] == ("nic", "node-004 mlx5_3")
