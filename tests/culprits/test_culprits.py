"""What bad paths and ranks have in common: in simulated jobs whose fault is known, and of any job by hypothesis.

The logs with labels say what is found of each kind of fault; here is what holds for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import ModuleType

from call_count import calls_by_function
from hypothesis import given
from hypothesis import strategies as st
from large_job import log as large_log

import nccl_inspect
from nccl_inspect.culprits import search, traits
from nccl_inspect.culprits.traits import Trait
from nccl_inspect.differences import compare
from nccl_inspect.differences.formats import text as diff_text
from nccl_inspect.judging import culprits
from nccl_inspect.model.finding import Finding
from nccl_inspect.model.job import Job
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
        nics = " ".join(f"[{nic}]mlx5_{nic}:1/IB" for nic in range(self.gpus))
        yield f"NET/IB : Using {nics} [RO]; OOB eth0:10.0.{host}.1<0>"
        about = f"rank {rank} nranks {size} cudaDev {gpu} nvmlDev {gpu} busId {gpu + 1}000"
        init = f"ncclCommInitRank comm 0xa{rank:06x} {about} commId 0x949dfd688ed0b46b"
        yield f"{init} - Init START"
        shape = f"nRanks {size} nNodes {self.hosts} localRanks {self.gpus} localRank {gpu} MNNVL 0"
        yield f"comm 0xa{rank:06x} rank {rank} {shape}"
        yield f"{init} - Init COMPLETE"
        for other in range(self.gpus):
            if other != gpu:
                yield self._connection(own, (host, other), f"via {self.local(own, (host, other))}")
        for step in sorted({step % self.hosts for step in (1, 2, -1, -2)} - {0}):
            there = (host + step) % self.hosts, gpu
            yield self._connection(own, there, f"[send] via {self.remote(own, there, own)}")
            yield self._connection(there, own, f"[receive] via {self.remote(there, own, own)}")
        yield "Connected all rings, use ring PXN 0 GDR 1"

    def _connection(self, a: Ends, b: Ends, via: str) -> str:
        return f"Channel 00/0 : {self._number(a)}[{a[1]}] -> {self._number(b)}[{b[1]}] {via}"


def tcp_on(*bad: int) -> Callable[[Ends, Ends, Ends], str]:
    """Hosts without InfiniBand."""
    return lambda a, b, own: "NET/Socket/0" if {a[0], b[0]} & set(bad) else f"NET/IB/{own[1]}/GDRDMA"


def found(job: Job, rule: str = "socket-instead-of-ib") -> Finding:
    (finding,) = [finding for finding in job.findings if finding.rule == rule]
    return finding


def named(finding: Finding) -> list[tuple[str, str]]:
    return [(culprit.kind, culprit.name) for culprit in finding.culprits]


def shm_at(*bad: Ends) -> Callable[[Ends, Ends], str]:
    """GPUs that use shared memory."""
    return lambda a, b: "SHM/direct/direct" if {a, b} & set(bad) else "P2P/CUMEM"


KINDS = ("host", "gpu")
Units = list[tuple[tuple[int, int], bool]]


@st.composite
def jobs(draw: st.DrawFn) -> Units:
    hosts = draw(st.integers(2, 20))
    bad = draw(st.sets(st.integers(0, hosts - 1), max_size=4))
    pairs = draw(st.lists(st.tuples(st.integers(0, hosts - 1), st.integers(0, hosts - 1)), max_size=120))
    noise = draw(st.sets(st.integers(0, 119), max_size=3))
    return [((a, b), bool({a, b} & bad) != (at in noise)) for at, (a, b) in enumerate(pairs) if a != b]


def group(units: Units, names: Callable[[int], int]) -> tuple[search.Population, list[Trait]]:
    """Pairs of hosts; the numbers of traits and their names follow the names of the hosts."""
    traits = [Trait("host", f"{host:03}") for host in range(64)]
    sets = [({names(a), names(b)}, bad) for (a, b), bad in units]
    bad, good = ([one for one, is_bad in sets if is_bad is kind] for kind in (True, False))
    return search.Population(bad, lambda wanted: (one & wanted for one in good), len(good)), traits


@given(jobs(), st.randoms(use_true_random=False))
def test_other_names_give_the_same_culprits_with_these_names(units: Units, random: Random) -> None:
    order = list(range(64))
    random.shuffle(order)
    plain, traits = group(units, lambda host: host)
    renamed, _ = group(units, order.__getitem__)
    before, after = (search.explain(one, traits, KINDS) for one in (plain, renamed))
    assert before.explained == after.explained
    counts = [sorted((count.bad, count.good) for count in one.culprits) for one in (before, after)]
    assert counts[0] == counts[1]
    if len(set(counts[0])) == len(counts[0]):
        assert [order[count.trait] for count in before.culprits] == [count.trait for count in after.culprits]


@given(jobs())
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


def test_a_job_on_other_hosts_has_its_culprit_there() -> None:
    for seed in range(3):
        Random(seed).shuffle(names := [f"pod-{name}" for name in "azbycx"])
        assert named(found(World(6, 3, remote=tcp_on(seed), names=names).job())) == [("host", names[seed])]
        local = World(6, 3, local=shm_at((seed, 1)), names=names).job()
        assert named(found(local, "shm-instead-of-p2p")) == [("gpu", f"{names[seed]} GPU 1")]


def calls_in(module: ModuleType, work: Callable[[], object]) -> Counter[str]:
    """How often functions of a module are called, by their names."""
    called: Counter[str] = Counter()
    for name, number in calls_by_function(work).items():
        if name.startswith(f"{module.__file__}:"):
            called[name.rpartition(" ")[2]] += number
    return called


def test_a_sound_job_costs_nothing_and_each_path_of_another_is_looked_at_a_fixed_number_of_times() -> None:
    assert World(8, 4).job().verdict == "ok"
    assert not calls_in(traits, World(8, 4).job)
    for hosts in (6, 12):
        jobs: list[Job] = []
        world = World(hosts, 4, remote=tcp_on(1))
        called = calls_in(culprits, lambda world=world, jobs=jobs: jobs.append(world.job()))  # type: ignore[misc]
        assert named(found(jobs[0])) == [("host", "node-001")]
        assert 0 < max(called.values()) <= 2 * len(jobs[0].paths)


def test_culprits_are_told_with_the_paths_that_they_have_and_those_that_do_without() -> None:
    job = World(16, 4, remote=tcp_on(1)).job()
    finding = found(job)
    bad = [path for path in job.paths if "Socket" in path.detail]
    good = sum(path.scope == "inter" for path in job.paths) - len(bad)
    (culprit,) = finding.culprits
    assert (culprit.kind, culprit.name, culprit.side) == ("host", "node-001", None)
    assert (culprit.bad, culprit.of, culprit.good_elsewhere) == (len(bad), len(bad), good)
    assert culprit.ranks == [4, 5, 6, 7]
    others = f"none of the {good:,} between the other 15 hosts does"
    assert finding.where == f"all {len(bad)} paths touch node-001; {others}"
    leaving = World(8, 2, remote=lambda a, b, own: "NET/Socket/0" if a[0] == 5 else f"NET/IB/{own[1]}/GDRDMA").job()
    assert [(one.name, one.side) for one in found(leaving).culprits] == [("node-005", "send")]
    gdr = nccl_inspect.read(large_log(8, without_gdr=5))
    (finding,) = [finding for finding in gdr.findings if finding.rule in ("gdr-disabled", "gdr-one-sided")]
    assert named(finding) == [("host", "train-7f9c-node-5")]


def test_reports_say_where_first() -> None:
    job, style = World(6, 4, remote=tcp_on(1)).job(), Style(width=200)
    where = found(job).where
    lines = text.render(job, style).splitlines()
    assert lines[1] == f"where        {where}"
    assert "ERROR socket-instead-of-ib (likely, host node-001)" in lines
    assert where in "".join(markdown.render(job, style).splitlines()[:6])
    for form, part in {
        github: f"%0Awhere: {where}%0Acause",
        junit: f"where     {where}",
        prometheus: 'nccl_inspect_culprits{kind="host",name="node-001",rule="socket-instead-of-ib"}',
        sarif: f"Where: {where}",
        html: f"<dt>where</dt><dd>{where}</dd>",
    }.items():
        assert part in form.render(job, style), form.__name__
    assert '"culprits":[["host node-001",[4,5,6,7]]]' in html.render(job, style)
    assert where in diff_text.render(compare.compare(World(6, 4).job(), job), Style(width=400))


def test_several_processes_give_the_same(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_text("".join(World(10, 4, remote=tcp_on(3, 8)).lines()))
    one, two = (reading.Judge(reading.Options())(reading.fold([str(file)], jobs=jobs)) for jobs in (1, 2))
    assert named(found(one)) == [("host", "node-003"), ("host", "node-008")]
    assert one.to_dict()["findings"] == two.to_dict()["findings"]
