"""The search for what bad paths have in common: what holds for all jobs, and what ranks say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from call_count import calls_by_function
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import Ends, World, found, named, tcp_on

import nccl_inspect
from nccl_inspect.culprits import search, traits
from nccl_inspect.culprits.traits import Trait
from nccl_inspect.judging import culprits
from nccl_inspect.model.job import Job

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


def calls_in(module: ModuleType, work: Callable[[], object]) -> Counter[str]:
    """How often functions of a module are called, by their names."""
    called: Counter[str] = Counter()
    for name, number in calls_by_function(work).items():
        if name.startswith(f"{module.__file__}:"):
            called[name.rpartition(" ")[2]] += number
    return called


def test_a_sound_job_costs_nothing() -> None:
    assert World(16).job().verdict == "ok"
    assert not calls_in(traits, World(16).job)
    assert calls_in(traits, World(8, 4, remote=tcp_on(1)).job)


@pytest.mark.parametrize("hosts", [8, 16, 32])
def test_each_path_is_looked_at_a_fixed_number_of_times(hosts: int) -> None:
    jobs: list[Job] = []
    world = World(hosts, 4, remote=tcp_on(1))
    called = calls_in(culprits, lambda: jobs.append(world.job()))
    assert named(found(jobs[0], "socket-instead-of-ib")) == [("host", "node-001")]
    assert 0 < max(called.values()) <= 2 * len(jobs[0].paths)


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
